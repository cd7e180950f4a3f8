"""`quota-worker topup DEPARTMENT …`: an extra allowance, with its end, approver and reason."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from worker.answers import say, tell
from worker.errors import ConflictError, UnknownNameError, UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.limits.rows import Clock, Topup
    from worker.postgres.limits import PostgresLimits

TOKENS_MAX: Final = 10**15
CENTS_MAX: Final = 10**11
YEARS: Final = range(2000, 2200)
KEY_BYTES: Final = 6
EXPIRES: Final = "write 7d, 2026-12-31 (through that day) or 2026-12-31T18:00"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    add = parser.add_argument
    add("department", metavar="DEPARTMENT", help="whose budget grows")
    add(
        "--environment",
        metavar="E",
        default="production",
        choices=("production", "test"),
        help="of which pool: production (default) or test",
    )
    add("--tokens", metavar="N", help="so many tokens more")
    add("--cost", metavar="X", help="so much more, in the billing currency: 500 or 500.00")
    add("--expires", metavar="T", required=True, help="when it ends: 7d, a day, or a time")
    add("--approved-by", metavar="WHO", required=True, help="who approved it")
    add("--reason", metavar="R", required=True, help="why")
    add("--key", metavar="K", help="repeats with it add once (default: a new one, printed)")
    add("--by", metavar="WHO", help="who enters it (default: the user's name)")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Raises UsageError, UnknownNameError, or ConflictError where the key had other values."""
    from worker.limits.rows import Topup
    from worker.signature import signed_by, signed_words

    if args.tokens is None and args.cost is None:
        raise UsageError("say how much: --tokens N, --cost X, or both")
    tokens = None if args.tokens is None else _tokens(args.tokens)
    cents = None if args.cost is None else _cents(args.cost)
    if not tokens and not cents:
        raise UsageError("--tokens and --cost are 0: that adds nothing")
    words = {
        "approved_by": signed_words("--approved-by", args.approved_by),
        "reason": signed_words("--reason", args.reason),
    }
    by = signed_by(args.by)
    limits = await deps.limits()
    clock = await limits.clock()
    if not (await limits.kinds(args.department))[1]:
        raise UnknownNameError(await _unknown(args.department, limits))
    expires_at = await _expires(args, limits, clock)
    key = signed_words("--key", args.key) if args.key is not None else _new_key(clock.at)
    topup = Topup(
        args.department, args.environment, tokens, cents, key, expires_at=expires_at, **words
    )
    try:
        outcome = await limits.topup(topup, by)
    except ConflictError:
        raise ConflictError(
            f"the key {_quoted(key)} was used for another allowance of this department: use a new "
            "key, or the first values (quota-worker limits history shows them)"
        ) from None
    _tell(topup, outcome, clock)
    if idle := await _without_budget(topup, limits):
        tell(
            f"note: no budget of {idle} here, so nothing limits that, and the allowance changes "
            "nothing"
        )
    return 0


async def _without_budget(topup: Topup, limits: PostgresLimits) -> str:
    """What the pool has no budget of, though an allowance was given: `tokens`, `cost`, or both."""
    from worker.limits.shape import BUDGET, Key

    row = None
    async for page in limits.pages([topup.department]):
        for one in page:
            if one.key == Key(BUDGET, topup.department, topup.environment):
                row = one.row
    given = {
        "tokens": (topup.tokens, "monthly_tokens"),
        "cost": (topup.cost_cents, "monthly_cost_cents"),
    }
    return " and of ".join(
        word for word, (extra, name) in given.items() if extra and (row or {}).get(name) is None
    )


def _tell(topup: Topup, outcome: str, clock: Clock) -> None:
    from worker.money import cents_to_nanos, format_nanos
    from worker.periods import load_zone

    amounts = [f"{topup.tokens:,} tokens"] if topup.tokens else []
    if topup.cost_cents:
        amounts.append(format_nanos(cents_to_nanos(topup.cost_cents), clock.currency))
    end = topup.expires_at.astimezone(load_zone(clock.billing_zone))
    what = f"{' and '.join(amounts)} for {_quoted(topup.department)} ({topup.environment})"
    until = f"until {end:%Y-%m-%d %H:%M:%S} {clock.billing_zone}"
    if outcome == "replayed":
        say(f"added before with the key {_quoted(topup.key)}, and not again: {what}, {until}")
    else:
        say(f"added {what}, {until}; key {_quoted(topup.key)}")


def _tokens(text: str) -> int:
    plain = text.replace(",", "").replace("_", "")
    digits = plain.lstrip("0") or "0"
    usable = plain.isascii() and plain.isdecimal() and len(digits) <= len(str(TOKENS_MAX))
    if not usable or int(digits) > TOKENS_MAX:
        raise UsageError(f"--tokens needs a whole number up to {TOKENS_MAX:,}, such as 5000000")
    return int(digits)


def _cents(text: str) -> int:
    from worker.money import NANOS_PER_CENT, parse_nanos

    cure = "an amount in the billing currency with at most two decimals, such as 500 or 499.50"
    try:
        cents, rest = divmod(parse_nanos(text), NANOS_PER_CENT)
    except ValueError:
        raise UsageError(f"--cost needs {cure}") from None
    if rest or not 0 <= cents <= CENTS_MAX:
        raise UsageError(f"--cost needs {cure}, up to {CENTS_MAX // 100:,}")
    return cents


async def _expires(args: argparse.Namespace, limits: PostgresLimits, clock: Clock) -> datetime:
    """The end; a day without a time is meant whole, a time without a zone is the billing zone's."""
    text = args.expires.strip()
    at = _after_span(text, clock)
    if at is not None:
        if args.key is not None:
            raise UsageError(
                "--expires is a span from now, which a repeat with --key would move: "
                "write a day or a time"
            )
        return at
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--expires is no time: {EXPIRES}") from None
    if moment.year not in YEARS:
        raise UsageError(f"--expires is out of range, the years 2000 to 2199: {EXPIRES}")
    if day is not None:
        at = await limits.day_end(day)
    elif moment.tzinfo is None:
        at = await limits.local_instant(moment)
    else:
        at = moment.astimezone(UTC)
    # a repeat of what was added may come after its end
    if at <= clock.at and args.key is None:
        raise UsageError(f"--expires is over already: {EXPIRES}")
    return at


def _after_span(text: str, clock: Clock) -> datetime | None:
    from worker.limits.spans import parse_span

    try:
        seconds = parse_span(text)
    except ValueError:
        return None
    return clock.at.replace(microsecond=0) + timedelta(seconds=seconds)


def _new_key(at: datetime) -> str:
    import secrets

    return f"topup-{at:%Y%m%d}-{secrets.token_hex(KEY_BYTES)}"


async def _unknown(name: str, limits: PostgresLimits) -> str:
    import difflib

    near = difflib.get_close_matches(name, await limits.names_near(name), n=3)
    cure = f"did you mean {', '.join(map(_quoted, near))}?" if near else "limits show lists all"
    return f"no department is called {_quoted(name)}: {cure}"


def _quoted(name: str) -> str:
    from worker.status_names import as_argument

    return as_argument(name)
