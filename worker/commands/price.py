"""`quota-worker price ...`: what tokens cost, where from, and what waits for a price."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from worker.answers import say, say_json, tell
from worker.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sized
    from datetime import datetime

    from worker.bootstrap import Deps
    from worker.postgres.prices import PostgresPrices

MAX_TOKENS = 10**12
SHOWN_FAULTS = 50
DEFAULT_TOP = 50
MAX_TOP = 2_147_483_647


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listed = actions.add_parser("list", help="the prices in the database")
    listed.add_argument("model", metavar="MODEL", nargs="?", help="a name, or a part of one")
    _add_listing(listed)
    update = actions.add_parser("update", help="take the prices of the installed genai-prices")
    update.add_argument(
        "--left-out", action="store_true", help="load nothing: name what is left out, and why"
    )
    load = actions.add_parser("load", help="replace the overrides by those of a file")
    load.add_argument("file", metavar="FILE", type=Path, help="TOML or CSV, see docs/prices.md")
    rates = actions.add_parser("rates", help="rates of other currencies: list, load")
    rates.set_defaults(currency=None, top=None, json=False)  # without ACTION: list
    what = rates.add_subparsers(dest="what", metavar="ACTION")
    shown = what.add_parser("list", help="the rates in the database, newest first")
    shown.add_argument("currency", metavar="CURRENCY", nargs="?", help="only this one's")
    _add_listing(shown)
    loaded = what.add_parser("load", help="set the rates of a file")
    loaded.add_argument("file", metavar="FILE.csv", type=Path, help="currency, date, rate")
    of = actions.add_parser("of", help="what a request costs, and why")
    of.add_argument("model", metavar="MODEL", help="as in the usage; with :batch the batch price")
    of.add_argument("--in", dest="in_tokens", metavar="N", default="0", help="input tokens")
    of.add_argument("--cached", metavar="N", default="0", help="those of them that were cached")
    of.add_argument("--out", dest="out_tokens", metavar="N", default="0", help="output tokens")
    of.add_argument("--at", metavar="T", help="admitted then, such as 2026-11-01T08:00:00+08:00")
    of.add_argument("--json", action="store_true", help="write it as JSON")
    unpriced = actions.add_parser("unpriced", help="usage that waits for a price, and the cure")
    unpriced.add_argument("--json", action="store_true", help="write it as JSON")


def _add_listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top",
        metavar="N",
        type=int,
        help=f"how many rows (default {DEFAULT_TOP}; 0, and with --json: all)",
    )
    parser.add_argument("--json", action="store_true", help="write the rows as JSON")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Files and the package are read before the database is asked for anything."""
    if args.action == "update":
        return await _update(args, deps)
    if args.action == "rates" and args.what != "load":
        return await _list_rates(args, deps)
    if args.action in {"load", "rates"}:
        return await _load(args, deps)
    if args.action == "of":
        return await _of(args, deps)
    if args.action == "unpriced":
        return await _unpriced(args, deps)
    if args.action == "list":
        return await _list(args, deps)
    raise UsageError("say which: quota-worker price list, update, load, rates, of or unpriced")


async def _prices(deps: Deps) -> PostgresPrices:
    from worker.postgres.prices import PostgresPrices
    from worker.postgres.queries import load_queries

    return PostgresPrices(await deps.connection(), load_queries(deps.assets, "prices"))


async def _update(args: argparse.Namespace, deps: Deps) -> int:
    from worker.prices.package import installed_prices

    package = installed_prices()
    if args.left_out:
        for name, why in package.left_out:
            say(f"left out  {name}: {why}")
        tell(f"{package.source}: {len(package.left_out):,} are left out; nothing was loaded")
        return 0
    prices = await _prices(deps)
    await prices.put_package(package)
    say(
        f"{package.source}: {len(package.prices):,} prices of {package.models:,} models loaded, "
        f"{len(package.left_out):,} left out (--left-out names them)"
    )
    await _tell_waiting(prices)
    return 0


async def _load(args: argparse.Namespace, deps: Deps) -> int:
    from worker.prices.files import read_prices, read_rates
    from worker.prices.shape import RefusedFileError
    from worker.untrusted import for_terminal

    try:
        if args.action == "load":
            overrides = read_prices(args.file)
            prices = await _prices(deps)
            await prices.put_file(args.file.name, overrides)
            say(f"{args.file.name}: {_counted(overrides, 'override')} in place of all before")
        else:
            prices = await _prices(deps)
            rates = read_rates(args.file, (await prices.settings()).currency)
            await prices.put_rates(rates)
            say(f"{args.file.name}: {_counted(rates, 'rate')} set")
    except RefusedFileError as error:
        for fault in error.faults[:SHOWN_FAULTS]:
            tell(for_terminal(fault))
        if len(error.faults) > SHOWN_FAULTS:
            tell(f"and {len(error.faults) - SHOWN_FAULTS:,} more")
        raise
    await _tell_waiting(prices)
    return 0


async def _tell_waiting(prices: PostgresPrices) -> None:
    waiting = (await prices.settings()).waiting
    if waiting:
        tell(f"waiting for a price: {waiting:,}; the next reconcile looks at them again")


def _counted(things: Sized, noun: str) -> str:
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


async def _list(args: argparse.Namespace, deps: Deps) -> int:
    from worker.price_text import price_table, row_document

    top = _top(args)
    prices = await _prices(deps)
    rows = await prices.rows(args.model)
    if not rows and args.model is not None:
        raise await _unknown(prices, args.model)
    shown = rows[:top]
    if args.json:
        say_json({"prices": [row_document(row) for row in shown]})
    elif rows:
        say(price_table(shown) + _left(len(rows) - len(shown), "price list PART names some"))
    else:
        tell("no prices yet: quota-worker price update, or price load FILE (docs/prices.md)")
    return 0


async def _list_rates(args: argparse.Namespace, deps: Deps) -> int:
    from worker.price_text import rate_table, row_document
    from worker.untrusted import for_terminal

    top = _top(args)
    prices = await _prices(deps)
    rows = await prices.rates(args.currency)
    shown = rows[:top]
    if args.json:
        say_json({"rates": [row_document(row) for row in shown]})
    elif rows:
        billing_currency = (await prices.settings()).currency
        left = _left(len(rows) - len(shown), "price rates list CURRENCY names one's")
        say(rate_table(shown, billing_currency) + left)
    else:
        of = "" if args.currency is None else f" of {for_terminal(args.currency)}"
        tell(f"no rates{of} yet: quota-worker price rates load FILE.csv (docs/prices.md)")
    return 0


def _top(args: argparse.Namespace) -> int | None:
    """How many rows are shown; None: all. Raises UsageError."""
    if args.top is None:
        return None if args.json else DEFAULT_TOP
    if not 0 <= args.top <= MAX_TOP:
        raise UsageError("--top needs a number of rows, or 0 for all")
    return args.top or None


def _left(count: int, other: str) -> str:
    """The last line of a table that was cut, empty where it wasn't."""
    return f"\nand {count:,} more: --top 0 shows all, {other}" if count > 0 else ""


async def _of(args: argparse.Namespace, deps: Deps) -> int:
    from worker.price_text import answer_document, arithmetic

    tokens = (
        _tokens("--in", args.in_tokens),
        _tokens("--cached", args.cached),
        _tokens("--out", args.out_tokens),
    )
    if tokens[1] > tokens[0]:
        raise UsageError("--cached tokens are part of --in: give at most as many")
    at = None if args.at is None else _time(args.at)
    prices = await _prices(deps)
    answer = await prices.price_of(args.model, tokens, at)
    if answer.fault == "unknown_model":
        raise await _unknown(prices, args.model)
    if answer.fault is not None:
        raise UsageError(
            f"no rate of {answer.currency} in {answer.billing_currency} at that day or before: "
            "quota-worker price rates load FILE.csv, with the columns currency,date,rate"
        )
    if args.json:
        say_json(answer_document(answer, tokens))
    else:
        say(arithmetic(answer, tokens))
    return 0


async def _unpriced(args: argparse.Namespace, deps: Deps) -> int:
    from worker.price_text import group_document, unpriced_table

    prices = await _prices(deps)
    groups = await prices.unpriced()
    if args.json:
        say_json({"unpriced": [group_document(group) for group in groups]})
    elif groups:
        settings = await prices.settings()
        say(unpriced_table(groups, settings.currency, has_package=settings.has_package))
    else:
        tell("nothing waits for a price")
    return 0


async def _unknown(prices: PostgresPrices, model: str) -> UnknownNameError:
    """An error that names what looks alike."""
    from difflib import get_close_matches

    from worker.untrusted import for_terminal

    known = {name.lower(): name for name in await prices.models()}
    if not known:
        return UnknownNameError("no prices yet: quota-worker price update, or price load FILE")
    asked = model.lower().removesuffix(":batch")
    near = get_close_matches(asked, known, n=3) or get_close_matches(
        asked.rpartition("/")[2], known, n=3
    )
    what = "batch price" if model.lower().endswith(":batch") else "price"
    hint = (
        f"did you mean {', '.join(for_terminal(known[name]) for name in near)}?"
        if near
        else "quota-worker price load FILE sets one"
    )
    return UnknownNameError(f"no {what} of {for_terminal(model)}: {hint}")


def _tokens(option: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,13}", text) or int(text) > MAX_TOKENS:
        raise UsageError(f"{option} is a whole number of tokens, at most {MAX_TOKENS:,}")
    return int(text)


def _time(text: str) -> datetime:
    from datetime import datetime

    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not 2000 <= at.year < 2200:  # noqa: PLR2004  the ledger's
        raise UsageError("--at is a time with its offset, such as 2026-11-01T08:00:00+08:00")
    return at
