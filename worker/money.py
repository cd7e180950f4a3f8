"""Money: whole nanos (1e-9) of the billing currency; cents where older columns want them.

Decimal serves only to show an amount. Nothing here rounds silently.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

NANOS_PER_UNIT: Final = 1_000_000_000
NANOS_PER_CENT: Final = 10_000_000


def cents_to_nanos(cents: int) -> int:
    """Whole cents as nanos, exactly."""
    return cents * NANOS_PER_CENT


def split_nanos(nanos: int) -> tuple[int, int]:
    """Nanos as (whole cents rounded down, the rest in nanos, 0 to 9,999,999)."""
    return divmod(nanos, NANOS_PER_CENT)


def nanos_to_decimal(nanos: int) -> Decimal:
    """Nanos as currency units, exactly: 1_500_000_000 is 1.5."""
    return Decimal(nanos).scaleb(-9)


def parse_nanos(text: str) -> int:
    """An amount in currency units ("0.0000015") as nanos.

    Raises ValueError if it isn't a finite number, or needs more than 9 decimals.
    """
    from decimal import InvalidOperation

    try:
        scaled = Decimal(text.strip()).scaleb(9)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount") from None
    if not scaled.is_finite() or scaled != scaled.to_integral_value():
        raise ValueError(f"{text!r} is not an amount of at most 9 decimals")
    return int(scaled)


def format_nanos(nanos: int, currency: str, least_decimals: int = 2) -> str:
    """An amount to show, unrounded: "0.0000015 USD", "12.50 USD"."""
    sign = "-" if nanos < 0 else ""
    units, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    decimals = f"{rest:09d}".rstrip("0").ljust(least_decimals, "0")
    return f"{sign}{units}{'.' if decimals else ''}{decimals} {currency}"
