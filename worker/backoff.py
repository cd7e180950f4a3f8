"""When to try again. Pure: times and random numbers are handed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def ladder_seconds(steps: Sequence[float], attempt: int) -> float | None:
    """The wait after the `attempt`-th failure (from 1), or None when the steps are used up."""
    if attempt < 1:
        raise ValueError("attempts count from 1")
    return steps[attempt - 1] if attempt <= len(steps) else None


def exponential_seconds(
    attempt: int, *, base_seconds: float, max_seconds: float, spread: float = 0.0
) -> float:
    """Double each time: base x 2^(attempt - 1), at most `max_seconds`.

    `spread` in [0, 1) shortens the wait by that share: pass a random number
    so that many clients don't come back together.
    """
    if attempt < 1:
        raise ValueError("attempts count from 1")
    if not 0.0 <= spread < 1.0:
        raise ValueError("spread lies in [0, 1)")
    doublings = min(attempt - 1, 62)
    return min(base_seconds * 2.0**doublings, max_seconds) * (1.0 - spread)
