"""`quota-worker source list | test NAME [--tenant T --request R] | faults [NAME] [--limit N]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.answers import say, tell
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.settings import SourceSettings
    from worker.sources.base import BaseSource
    from worker.usage import OverdueRequest, SourceAnswer

DEFAULT_LIMIT = 20
LIMIT_MAX = 10_000
# Asked for where no request is named: that nobody knows it is the right answer.
NOBODY = "quota-worker-test"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    actions = parser.add_subparsers(dest="action", metavar="list | test | faults", required=True)
    actions.add_parser("list", help="every usage source in the order of asking, and the limits")
    test = actions.add_parser(
        "test", help="ask one source, show what was understood; settles nothing"
    )
    test.add_argument("name", metavar="NAME", help="the source's name, as `list` shows it")
    test.add_argument("--tenant", metavar="T", help="of a real request: its tenant")
    test.add_argument("--request", metavar="R", help="of a real request: its id")
    faults = actions.add_parser("faults", help="answers that were set aside, newest first")
    faults.add_argument("name", metavar="NAME", nargs="?", help="of this source only")
    faults.add_argument(
        "--limit", metavar="N", type=int, default=DEFAULT_LIMIT, help="how many rows (default 20)"
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """List, test (exit 0 when the source answered as it should, else 1), or show faults.

    Raises UsageError for what doesn't exist, and ConfigurationError.
    """
    if args.action == "faults":
        return await _faults(args, deps)
    if args.action == "list":
        return _list(deps)
    return await _test(args, deps)


def _list(deps: Deps) -> int:
    from worker.status_text import table
    from worker.untrusted import visible

    asking = deps.delivery().asking
    if not asking.sources:
        say("no usage source is configured here: without any, the stale policy is applied at once")
        say("where the schedule has some, its configuration is missing (--config); docs/sources.md")
        return 0
    header = ("source", "kind", "asks", "time limit")
    rows = [
        (visible(one.name), one.kind, _place(one), f"{one.values['time_limit_seconds']} s")
        for one in asking.sources
    ]
    say(table(header, rows, frozenset()))
    say("")
    say(f"asked in this order, at most {asking.ask_seconds} s in one tick")
    say(f"the stale policy waits {asking.wait_seconds // 60} min for them")
    return 0


def _place(source: SourceSettings) -> str:
    """Where it asks, without anything that may be a secret."""
    from urllib.parse import urlsplit

    from worker.untrusted import visible

    if source.kind == "http":
        rate = source.values["requests_per_second"]
        return f"{visible(urlsplit(source.values['url']).hostname or '')}, {rate}/s"
    dsn = source.values["dsn"]
    if dsn is None:
        return "the ledger's own database"
    parts = urlsplit(dsn)
    return f"{visible(parts.hostname or 'localhost')}{visible(parts.path)}"


async def _test(args: argparse.Namespace, deps: Deps) -> int:
    from worker.clock import monotonic_seconds, utc_now
    from worker.usage import OverdueRequest

    if (args.tenant is None) != (args.request is None):
        raise UsageError("--tenant and --request belong together: a request's id is its tenant's")
    source = _named(args.name, deps)
    named = args.request is not None
    request = OverdueRequest(args.tenant or NOBODY, args.request or NOBODY, utc_now())
    ends_at = monotonic_seconds() + 2 * source.settings.values["time_limit_seconds"]
    try:
        answer = await source.ask([request], lambda: ends_at - monotonic_seconds())
    finally:
        await source.close()
    return _tell_answer(answer, request, named=named)


def _named(name: str, deps: Deps) -> BaseSource:
    try:
        return deps.source(name)
    except KeyError:
        known = [source.name for source in deps.delivery().asking.sources]
        raise _unknown(name, known) from None


def _unknown(name: str, known: list[str]) -> UsageError:
    from worker.configuration.table import meant, shown

    cure = meant(name, known) if known else "none is configured, see docs/sources.md"
    return UsageError(f"{shown(name)} is no usage source here: {cure}")


def _tell_answer(answer: SourceAnswer, request: OverdueRequest, *, named: bool) -> int:
    from worker.untrusted import visible

    for trouble in answer.troubles:
        tell("no answer that can be used")
        tell(f"  cause: {trouble.cause}: {trouble.detail}")
        if trouble.cure:
            tell(f"  do: {trouble.cure}")
    for fault in answer.faults:
        tell(f"set aside: {fault.reason}: {fault.excerpt}")
    for usage in answer.usages:
        say(f"usage of request {visible(usage.request_id)} of tenant {visible(usage.tenant_id)}")
        cost = "unknown" if usage.cost is None else f"{usage.cost.normalize():f}"
        for word, value in (
            ("in_tokens", str(usage.in_tokens)),
            ("out_tokens", str(usage.out_tokens)),
            ("cached_in_tokens", _or_unknown(usage.cached_in_tokens)),
            ("cost", f"{cost} {usage.currency or '(billing currency)'}"),
            ("model", _or_unknown(usage.model)),
            ("usage_id", visible(usage.usage_id)),
        ):
            say(f"  {word:<17}{value}")
    if answer.troubles or answer.faults or not answer.asked:
        return 1
    if answer.usages:
        say("nothing was settled: this was a test")
        return 0
    if answer.not_yet:
        return _tell_not_yet(request, named=named)
    if named:
        tell(f"it answered, and knows no usage of request {visible(request.request_id)}")
        return 1
    say("it answered, and knows no usage of a request that nobody made: as it should")
    say("to see real figures: --tenant T --request R")
    return 0


def _tell_not_yet(request: OverdueRequest, *, named: bool) -> int:
    from worker.untrusted import visible

    if named:
        tell(f"it answered: not yet, the usage of request {visible(request.request_id)} is to come")
        tell("  do: nothing; reconcile asks again at each tick until wait_minutes are over")
        return 1
    say(
        "it answered: not yet, of a request that nobody made (404 would tell that it knows of none)"
    )
    say("to see real figures: --tenant T --request R")
    return 0


def _or_unknown(value: object) -> str:
    from worker.untrusted import visible

    return "unknown" if value is None else visible(str(value))


async def _faults(args: argparse.Namespace, deps: Deps) -> int:
    from worker.status_text import table
    from worker.untrusted import visible

    if not 1 <= args.limit <= LIMIT_MAX:
        raise UsageError(f"--limit needs a number of rows from 1 to {LIMIT_MAX}")
    reader = await deps.source_faults()
    faults = await reader.newest(args.name, args.limit)
    if not faults:
        if args.name is None:
            say("no answer of a usage source was set aside")
            return 0
        known = [source.name for source in deps.delivery().asking.sources]
        if args.name not in known:
            # one that was renamed or taken out since may still have faults
            raise _unknown(args.name, sorted({*known, *await reader.sources()}))
        say(f"no answer of the usage source {visible(args.name)} was set aside")
        return 0
    header = (
        f"seen ({faults[0]['zone']})",
        "source",
        "reason",
        "tenant",
        "request",
        "times",
        "what",
    )
    rows = [
        (
            f"{row['seen_local']:%Y-%m-%d %H:%M}",
            visible(row["source"]),
            row["reason"],
            visible(row["tenant_id"]),
            visible(row["request_id"]),
            str(row["times"]),
            visible(row["excerpt"]),
        )
        for row in faults
    ]
    say(table(header, rows, frozenset()))
    return 0
