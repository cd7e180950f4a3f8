"""How much of a summary a form has room for, and how names are shown in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.report.cells import Change, Missing, Money, Quantity, Share
from worker.untrusted import visible

if TYPE_CHECKING:
    from worker.report.cells import Cell
    from worker.report.reader import Reader
    from worker.roi.figures import Figure, Unknown
    from worker.roi.summary import Summary

ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Detail:
    """``whole``: all lines and columns. Else up to four columns, for a phone, and shortened.

    ``lines``: of a table that would have more; ``measures``: of tables that are one for each;
    ``letters``: of a name, a longer one keeps both its ends.
    """

    whole: bool
    lines: int = 0
    measures: int = 0
    letters: int = 0


WHOLE: Final = Detail(whole=True)
BRIEF: Final = Detail(whole=False, lines=10, measures=3, letters=60)


@dataclass(frozen=True, slots=True)
class Build:
    """What every table of a document is made with."""

    summary: Summary
    reader: Reader
    detail: Detail

    def say(self, key: str, **parts: str | int) -> str:
        """The reader's word or sentence."""
        return self.reader.say(key, **parts)

    def columns(self, *keys: str) -> tuple[str, ...]:
        """The reader's words for columns."""
        return tuple(map(self.say, keys))

    def name(self, text: str) -> str:
        """Somebody else's name, seen whole or by its ends."""
        shown = visible(text)
        most = self.detail.letters
        if self.detail.whole or len(shown) <= most:
            return shown
        tail = most // 4
        return f"{shown[: most - tail - 1]}{ELLIPSIS}{shown[-tail:]}"

    def metric(self, name: str) -> str:
        """A metric at the head of a line."""
        return self.name(self.reader.metric(name))

    def measure(self, name: str) -> str:
        """What a measure is called."""
        return self.name(self.reader.cost_of_one(name))

    def short(self, count: int) -> tuple[str, ...]:
        """The note that ``count`` lines were left out."""
        return (self.say("shortened", count=count),) if count > 0 else ()

    @property
    def subject(self) -> str:
        """Whose report it is."""
        department = self.summary.department
        return self.say("everyone") if department is None else self.name(department.name)


def missing(figure: Unknown, metric: str = "") -> Missing:
    """The cell of a figure that can't be told."""
    return Missing(figure.reason, metric)


def money(figure: Figure, metric: str = "") -> Cell:
    """A figure in nanos as a cell."""
    return missing(figure, metric) if figure.value is None else Money(figure.value)


def share(figure: Figure) -> Cell:
    """A figure that is a part of a whole, as a cell."""
    return missing(figure) if figure.value is None else Share(figure.value)


def quantity(figure: Figure, metric: str = "") -> Cell:
    """A figure of outcomes as a cell."""
    return missing(figure, metric) if figure.value is None else Quantity(figure.value)


def change(figure: Figure, metric: str = "") -> Cell:
    """A change against the month before, or the median, as a cell."""
    return missing(figure, metric) if figure.value is None else Change(figure.value)
