"""The figures behind ``quota-worker estimates``: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from decimal import Decimal

# With fewer requests than this nothing is said of a group: no figure is made up.
FEWEST: Final = 20


@dataclass(frozen=True, slots=True)
class EstimatesAsked:
    """What the report is to show.

    ``days`` back from now; ``model`` alone, None: all; ``by`` model, app or key; ``top``
    groups, 0: all.
    """

    days: int
    model: str | None
    by: str
    top: int


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """One model, or one model's part by app or API key: a row of ``quota_estimates``.

    ``label`` is the app or key, '' where nobody gave one; so is ``model``. Factors and
    medians are usage ÷ estimate, None where fewer than FEWEST requests have both.
    """

    model: str
    label: str
    requests: int
    with_usage: int
    missing: int
    over_estimate: int
    factor_in: Decimal | None
    median_in: Decimal | None
    outliers_in: int | None
    factor_out: Decimal | None
    median_out: Decimal | None
    outliers_out: int | None
    p95_out_tokens: int | None
    mean_out_estimate: int | None


@dataclass(frozen=True, slots=True)
class EstimatesReport:
    """The worst first; ``groups`` counts those that ``asked.top`` leaves out, too."""

    asked: EstimatesAsked
    groups: int
    rows: tuple[EstimateRow, ...]
