"""What the kinds of usage sources share: they answer, and never raise for a failed asking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from worker.usage import SourceAnswer, SourceCause, SourceFault, SourceTrouble, ToldUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.settings import SourceSettings
    from worker.sources.reading import Reader
    from worker.usage import OverdueRequest

# Of the faults of one asking so many are named; the others are counted.
FAULTS_NAMED: Final = 100
# No asking begins with less time than this.
LEAST_SECONDS: Final = 0.2


class SourceFailedError(Exception):
    """A source gave no answer; `is_down`: it won't give one to the next request, either."""

    def __init__(
        self, cause: SourceCause, detail: str, cure: str = "", *, is_down: bool = False
    ) -> None:
        super().__init__(detail)
        self.trouble = SourceTrouble(cause, detail, cure)
        self.is_down = is_down


class Gathered:
    """What comes of one asking, piece by piece."""

    def __init__(self) -> None:
        self.asked: list[OverdueRequest] = []
        self.usages: list[ToldUsage] = []
        self.not_yet: list[OverdueRequest] = []
        self.troubles: list[SourceTrouble] = []
        self.is_down = False
        self._faults: list[SourceFault] = []
        self._set_aside = 0

    def set_aside(self, fault: SourceFault) -> None:
        """Keep the fault by name, or count it where there are too many."""
        self._set_aside += 1
        if len(self._faults) < FAULTS_NAMED:
            self._faults.append(fault)

    def failed(self, error: SourceFailedError) -> None:
        """Keep what went wrong."""
        self.troubles.append(error.trouble)
        self.is_down = self.is_down or error.is_down

    def answer(self) -> SourceAnswer:
        """All of it."""
        return SourceAnswer(
            asked=tuple(self.asked),
            usages=tuple(self.usages),
            not_yet=tuple(self.not_yet),
            faults=tuple(self._faults),
            set_aside=self._set_aside,
            troubles=tuple(self.troubles),
            is_down=self.is_down,
        )


class BaseSource(ABC):
    """One configured source: port ``UsageSource``. Opened by the first asking."""

    # how many requests one asking is given
    batch_size: int = 1000

    def __init__(self, settings: SourceSettings, reader: Reader) -> None:
        self.settings = settings
        self.reader = reader

    @property
    def name(self) -> str:
        """The source's name."""
        return self.settings.name

    @abstractmethod
    async def ask(
        self, requests: Sequence[OverdueRequest], seconds_left: Callable[[], float]
    ) -> SourceAnswer:
        """Ask for the requests' usage, for at most as long as ``seconds_left`` says."""

    async def close(self) -> None:
        """Release what asking opened. Idempotent."""
        return
