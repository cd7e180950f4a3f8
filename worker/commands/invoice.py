"""`quota-worker invoice compare FILE.csv --month M`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.answers import say, say_json
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from datetime import date
    from decimal import Decimal
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from worker.bootstrap import Deps
    from worker.invoice.names import Names
    from worker.invoice.reading import ReadingRules
    from worker.postgres.invoice import PostgresInvoice

DEFAULT_ZONE: Final = "UTC"
DEFAULT_TOLERANCE_PCT: Final = "1"
DEFAULT_TOP: Final = 20
MAX_TOP: Final = 2_147_483_647
MAX_TOLERANCE_PCT: Final = 100
CURRENCY_LETTERS: Final = 3
EXIT_BEYOND: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    actions = parser.add_subparsers(dest="action", metavar="compare", required=True)
    compare = actions.add_parser("compare", help="a provider's export beside the ledger's month")
    add = compare.add_argument
    add("file", metavar="FILE", help="the export, a CSV with a header")
    add("--month", metavar="M", required=True, help="the month, such as 2026-10")
    add(
        "--columns",
        metavar="KEY=NAME,…",
        action="append",
        default=[],
        help="of an unknown export: date=…,model=…,input=…,output=…,cached=…,tokens=…,cost=…,"
        "currency=…; #3 is the third column",
    )
    add("--zone", metavar="Z", default=DEFAULT_ZONE, help="the export's time zone (default UTC)")
    add("--currency", metavar="C", help="of costs whose rows name none")
    add(
        "--decimal",
        choices=(".", ","),
        help="the decimal mark (default . where no number is in doubt)",
    )
    add("--dates", choices=("dmy", "mdy"), help="what comes first in dates with slashes")
    add(
        "--where",
        metavar="COLUMN=VALUE",
        action="append",
        default=[],
        help="only rows that have this, * stands for anything",
    )
    add(
        "--model",
        metavar="A=B",
        action="append",
        default=[],
        help="the invoice's model A, * stands for anything, is B in the ledger",
    )
    add(
        "--only",
        metavar="MODEL",
        action="append",
        default=[],
        help="only these models, * stands for anything",
    )
    add(
        "--tolerance",
        metavar="PCT",
        default=DEFAULT_TOLERANCE_PCT,
        help=f"how much may differ, in percent (default {DEFAULT_TOLERANCE_PCT})",
    )
    add(
        "--top",
        metavar="N",
        type=int,
        default=DEFAULT_TOP,
        help=f"how many models, days, and days of models (default {DEFAULT_TOP}; 0: all)",
    )
    add("--json", action="store_true", help="for programs")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Compare and explain: exit 0 within the tolerance, 1 beyond it. Changes nothing.

    Raises UsageError for a file or an option that can't be used: the program ends with 2.
    """
    from pathlib import Path

    from worker.invoice.columns import parse_columns
    from worker.invoice.names import Names
    from worker.invoice.reading import ReadingRules
    from worker.periods import load_zone

    month, zone, tolerance = _month(args.month), _zone(args.zone), _tolerance(args.tolerance)
    if not 0 <= args.top <= MAX_TOP:
        raise UsageError("--top needs a number of lines, or 0 for all")
    names = Names(args.model, args.only)
    columns = parse_columns(args.columns)
    where = [_where(text) for text in args.where]
    currency = None if args.currency is None else _currency(args.currency)
    ledger = await _ledger(deps)
    billing_zone, billing_currency = await ledger.billing_rules()
    rules = ReadingRules(
        month=month,
        billing=load_zone(billing_zone),
        zone=zone,
        billing_currency=billing_currency,
        currency=currency,
        columns=columns,
        decimal=args.decimal,
        slashed=args.dates,
        where=where,
    )
    return await _compare(args, Path(args.file), rules, names, tolerance, ledger)


async def _compare(
    args: argparse.Namespace,
    path: Path,
    rules: ReadingRules,
    names: Names,
    tolerance: Decimal,
    ledger: PostgresInvoice,
) -> int:
    from datetime import date

    from worker.invoice.comparing import compare
    from worker.invoice.converting import convert, foreign_currencies
    from worker.invoice.explaining import explain
    from worker.invoice.reading import read_export
    from worker.invoice.showing import Check, as_document, render_text
    from worker.invoice.zones import fit_zone

    tally = read_export(path, rules)
    theirs = {model for _, model, _ in tally.sums}
    chosen = None if names.all else lambda ours: names.match(theirs, ours).chosen_ledger()
    month = await ledger.month(rules.month, chosen, rules.zone if tally.by_zone else None)
    rates = await ledger.rates(foreign_currencies(tally, month.currency), rules.month)
    invoice = convert(tally, month.currency, rates)
    comparison = compare(invoice, month, names, tolerance)
    days = {
        date.fromisoformat(one.day): one.invoice.of(comparison.measure) for one in comparison.days
    }
    fit = fit_zone(tally.kind, rules.zone, month, days, comparison.measure)
    explanations = explain(comparison, invoice, month, names, fit, rules.zone)
    check = Check(invoice, month, comparison, fit, explanations, rules.zone.key)
    if args.json:
        say_json(as_document(check, args.top or None))
    else:
        say(render_text(check, args.top or None))
    return 0 if comparison.within else EXIT_BEYOND


async def _ledger(deps: Deps) -> PostgresInvoice:
    from worker.postgres.invoice import PostgresInvoice
    from worker.postgres.queries import load_queries

    migrations = [path.stem for path in deps.assets.sql_files("migrations")]
    return PostgresInvoice(await deps.pool(), load_queries(deps.assets, "invoice"), migrations)


def _month(text: str) -> date:
    from worker.periods import parse_month

    try:
        return parse_month(text)
    except ValueError as error:
        raise UsageError(f"--month: {error}") from None


def _zone(text: str) -> ZoneInfo:
    from worker.periods import load_zone, near_zone

    try:
        return load_zone(text)
    except ValueError as error:
        near = near_zone(text)
        advice = f": did you mean {near}?" if near else ": say it like Asia/Shanghai or Etc/GMT-8"
        raise UsageError(f"--zone: {error}{advice}") from None


def _tolerance(text: str) -> Decimal:
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text.strip().removesuffix("%"))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= MAX_TOLERANCE_PCT:
        raise UsageError(f"--tolerance {text!r} is no percentage from 0 to {MAX_TOLERANCE_PCT}")
    return value


def _currency(text: str) -> str:
    code = text.strip().upper()
    if len(code) != CURRENCY_LETTERS or not (code.isascii() and code.isalpha()):
        raise UsageError(f"--currency {text!r} is no currency like USD")
    return code


def _where(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column.strip():
        raise UsageError(f"--where {text!r} is not like COLUMN=VALUE")
    return column, value.strip().casefold()
