"""Both sides of an invoice check, made by hand."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from unit.invoice_world import MONTH
from worker.invoice.comparing import Comparison, compare
from worker.invoice.converting import Invoice
from worker.invoice.explaining import Explanation, explain
from worker.invoice.figures import Figures, LedgerCell, LedgerMonth, Part
from worker.invoice.names import Names
from worker.invoice.reading import DAYS, Tally
from worker.invoice.showing import Check
from worker.invoice.zones import fit_zone
from worker.periods import day_of, load_zone

if TYPE_CHECKING:
    from collections.abc import Mapping

ONE_PCT = Decimal(1)
UNIT = 10**9
Cells = dict[tuple[date, str], Figures]


def cost(nanos: int) -> Figures:
    return Figures(cost_nanos=nanos)


def make_invoice(cells: Cells, *measures: str, **more: Any) -> Invoice:
    kind, rows = more.pop("kind", DAYS), more.pop("rows", 9)
    found = Tally("x", kind, frozenset(measures or ("cost",)), rows, 0, 0, 0, {}, kind == DAYS)
    return Invoice(found, cells, **more)


def make_ledger(cells: Cells, **more: Any) -> LedgerMonth:
    made = tuple(LedgerCell(day, name, Part(1, one)) for (day, name), one in cells.items())
    given = {"month": MONTH, "zone": "UTC", "currency": "USD", "cells": made}
    return LedgerMonth(**{**given, **more})


def compared(ledger: Cells, invoice: Cells, *measures: str, **more: Any) -> Comparison:
    return compare(make_invoice(invoice, *measures), make_ledger(ledger, **more), Names(), ONE_PCT)


def explained(
    ledger: LedgerMonth, invoice: Invoice, zone: str = "UTC", names: Names | None = None
) -> dict[str, Explanation]:
    return {one.kind: one for one in checked(ledger, invoice, zone, names).explanations}


def checked(
    ledger: LedgerMonth, invoice: Invoice, zone: str = "UTC", names: Names | None = None
) -> Check:
    names = names or Names()
    found = compare(invoice, ledger, names, ONE_PCT)
    days = {date.fromisoformat(one.day): one.invoice.of(found.measure) for one in found.days}
    fit = fit_zone(invoice.tally.kind, load_zone(zone), ledger, days, found.measure)
    explanations = explain(found, invoice, ledger, names, fit, load_zone(zone))
    return Check(invoice, ledger, found, fit, explanations, zone)


def traffic(zone: str) -> tuple[tuple[tuple[datetime, Figures], ...], Mapping[date, int]]:
    """Half hours of uneven traffic, and what they come to by the days of a zone."""
    generator = random.Random(5)  # noqa: S311  traffic is no secret
    start = datetime(2026, 9, 29, tzinfo=UTC)
    times = []
    days: dict[date, int] = {}
    for number in range(2 * 24 * 35):
        moment = start + timedelta(minutes=30 * number)
        nanos = generator.randrange(UNIT)
        times.append((moment, cost(nanos)))
        day = day_of(moment, load_zone(zone))
        if day.month == MONTH.month:
            days[day] = days.get(day, 0) + nanos
    return tuple(times), days
