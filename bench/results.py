"""One row of the answer, and how pairs become a ratio."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """A measured value with what it is judged by.

    `value` is mostly ours / baseline; `at_most` turns the comparison with target and aim round.
    `spread` are the least and the greatest of the rounds. `detail` is for people.
    """

    measure: str
    what: str
    value: float
    spread: tuple[float, float] | None = None
    target: float | None = None
    aim: float | None = None
    at_most: bool = False
    ours: str = ""
    baseline: str = ""
    detail: str = ""
    rounds: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    @property
    def verdict(self) -> str:
        """`aim met`, `pass`, `MISSED`, or `-` where there is no target."""
        if self.target is None:
            return "-"
        if not self._reaches(self.target):
            return "MISSED"
        if self.aim is not None:
            return "aim met" if self._reaches(self.aim) else "pass"
        return "pass"

    def _reaches(self, line: float) -> bool:
        return self.value <= line if self.at_most else self.value >= line


def ratio_row(  # noqa: PLR0913  all but three by name
    measure: str,
    what: str,
    rounds: Sequence[tuple[float, float]],
    *,
    target: float | None = None,
    aim: float | None = None,
    at_most: bool = False,
    unit: str = "/s",
    detail: str = "",
) -> Row:
    """The median of the rounds' own ratios: two runs side by side share the machine's mood."""
    ratios = [ours / baseline for ours, baseline in rounds]
    return Row(
        measure=measure,
        what=what,
        value=statistics.median(ratios),
        spread=(min(ratios), max(ratios)),
        target=target,
        aim=aim,
        at_most=at_most,
        ours=f"{statistics.median(o for o, _ in rounds):,.0f}{unit}",
        baseline=f"{statistics.median(b for _, b in rounds):,.0f}{unit}",
        detail=detail,
        rounds=tuple(rounds),
    )
