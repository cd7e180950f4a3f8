"""`quota-worker limits show | apply | block | unblock | history`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.answers import say, say_json, say_script, tell
from worker.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from worker.bootstrap import Deps
    from worker.postgres.limits import PostgresLimits

DEFAULT_TOP: Final = 50
MAX_TOP: Final = 1_000_000
MAX_SUGGESTIONS: Final = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    shown = actions.add_parser("show", help="tenants, departments and budgets as they are")
    shown.add_argument("names", metavar="NAME", nargs="*", help="only these (default: all)")
    forms = shown.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="for programs")
    forms.add_argument("--toml", action="store_true", help="as a file for limits apply")
    applied = actions.add_parser("apply", help="make the limits those of a file, or refuse it")
    applied.add_argument("file", metavar="FILE", type=Path, help="TOML, as show --toml writes it")
    applied.add_argument("--dry-run", action="store_true", help="show the diff, change nothing")
    applied.add_argument("--json", action="store_true", help="for programs")
    _add_by(applied)
    blocked = actions.add_parser("block", help="refuse all requests of a tenant or department")
    _add_subject(blocked)
    blocked.add_argument(
        "--for", dest="span", metavar="SPAN", required=True, help="how long: 90m, 2h, 3d"
    )
    blocked.add_argument(
        "--reason", metavar="R", required=True, help="why: callers are told, as is who"
    )
    _add_by(blocked)
    freed = actions.add_parser("unblock", help="end a block now")
    _add_subject(freed)
    freed.add_argument("--reason", metavar="R", help="why, for the record")
    _add_by(freed)
    record = actions.add_parser("history", help="who changed what, when and how; newest first")
    record.add_argument("name", metavar="NAME", nargs="?", help="only this one's changes")
    record.add_argument(
        "--top",
        metavar="N",
        type=int,
        help=f"how many changes (default {DEFAULT_TOP}; 0, and with --json: all)",
    )
    record.add_argument("--json", action="store_true", help="for programs")


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a tenant or a department")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--tenant", dest="kind", action="store_const", const="tenant", help="NAME is a tenant"
    )
    kinds.add_argument(
        "--department",
        dest="kind",
        action="store_const",
        const="department",
        help="NAME is a department",
    )


def _add_by(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", metavar="WHO", help="who (default: the user's name)")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Exit 2 where a file is refused or a name isn't known: nothing was changed then."""
    actions = {
        "show": _show,
        "apply": _apply,
        "block": _block,
        "unblock": _unblock,
        "history": _history,
    }
    if args.action not in actions:
        raise UsageError("say which: quota-worker limits show, apply, block, unblock or history")
    return await actions[args.action](args, deps)


async def _show(args: argparse.Namespace, deps: Deps) -> int:
    from worker.limits.showing import TOML_HEADER, json_row, line_of, toml_table

    limits = await deps.limits()
    missing = dict.fromkeys(args.names)
    rows = 0
    if args.toml:
        say_script(TOML_HEADER)
    elif args.json:
        say('{"limits": [')
    async for page in limits.pages(args.names or None):
        for one in page:
            missing.pop(one.key.subject, None)
            if args.toml:
                say_script(toml_table(one))
            elif args.json:
                say(f"{', ' if rows else ''}{json_row(one)}")
            else:
                say(line_of(one))
            rows += 1
    if args.json:
        say("]}")
    if missing:
        raise UnknownNameError(await _unknown(next(iter(missing)), limits))
    if not rows and not args.json:
        tell("no tenants or departments yet: quota-worker limits apply FILE")
    return 0


async def _apply(args: argparse.Namespace, deps: Deps) -> int:
    from worker.limits.reading import read_limits
    from worker.limits.showing import diff_text, summary, verdict_document
    from worker.signature import signed_by
    from worker.untrusted import visible

    by = signed_by(args.by)
    file = read_limits(args.file)
    limits = await deps.limits()
    async with limits.applying(file.wanted) as applying:
        verdict = applying.verdict
        if verdict.faults:
            raise file.refusal(list(verdict.faults))
        if not args.dry_run:
            await applying.put(by, visible(file.name), file.sha256)
    for note in verdict.notes:
        tell(f"note: {note}")
    if args.json:
        say_json(verdict_document(verdict, file.sha256, dry_run=args.dry_run))
        return 0
    if diff := diff_text(verdict):
        say(diff)
    say(f"{summary(verdict, dry_run=args.dry_run)}; what it doesn't name stays as it is")
    if args.dry_run:
        tell("nothing was changed: --dry-run")
    return 0


async def _block(args: argparse.Namespace, deps: Deps) -> int:
    from worker.limits.spans import parse_span, shown_span
    from worker.signature import signed_by, signed_words
    from worker.status_names import as_operand

    try:
        seconds = parse_span(args.span)
    except ValueError as error:
        raise UsageError(f"--for {error}") from None
    by, reason = signed_by(args.by), signed_words("--reason", args.reason)
    limits = await deps.limits()
    kind = await _kind(args, limits)
    outcome, until, former = await limits.block(kind, args.name, seconds, by, reason)
    shown = await _local(until, limits)
    name = _quoted(args.name)
    again = "" if former is None else f" (it was blocked until {await _local(former, limits)})"
    how_long = f"until {shown}, for {shown_span(seconds)}"
    say(f"{kind} {name} is blocked {how_long}, by {by}: {reason}{again}")
    if outcome == "blocked":
        tell(
            "requests under way go on and are settled; quota-worker limits unblock "
            f"{as_operand(args.name)} "
            "ends the block now"
        )
    return 0


async def _unblock(args: argparse.Namespace, deps: Deps) -> int:
    from worker.signature import signed_by, signed_words

    by = signed_by(args.by)
    reason = None if args.reason is None else signed_words("--reason", args.reason)
    limits = await deps.limits()
    blocked = {block.key.kind for block in await limits.blocks(2, args.name)}
    if args.kind is None and len(blocked) == 1:
        # it may be of somebody who is gone; and of two with one name that is who is meant
        kind = blocked.pop()
    else:
        kind = await _kind(args, limits)
    outcome, former = await limits.unblock(kind, args.name, by, reason)
    name = _quoted(args.name)
    if outcome == "not_blocked" or former is None:
        say(f"{kind} {name} is not blocked: nothing to do")
    else:
        say(f"{kind} {name} passes again; it was blocked until {await _local(former, limits)}")
    return 0


async def _history(args: argparse.Namespace, deps: Deps) -> int:
    from worker.limits.showing import history_document, history_text
    from worker.periods import load_zone

    if args.top is not None and not 0 <= args.top <= MAX_TOP:
        raise UsageError(f"--top needs a number of changes up to {MAX_TOP:,}, or 0 for all")
    top = args.top if args.top is not None else (0 if args.json else DEFAULT_TOP)
    limits = await deps.limits()
    rows = await limits.history((top or MAX_TOP) + 1, args.name)
    if not rows and args.name is not None and not any(await limits.kinds(args.name)):
        raise UnknownNameError(await _unknown(args.name, limits))
    shown = rows[: top or MAX_TOP]
    if args.json:
        say_json({"changes": [history_document(row) for row in shown]})
    elif shown:
        say(history_text(shown, load_zone((await limits.clock()).billing_zone)))
        if len(rows) > len(shown):
            tell("and more: --top 0 shows all")
    else:
        tell("no changes are recorded; what is changed by SQL is noticed by the next limits apply")
    return 0


async def _kind(args: argparse.Namespace, limits: PostgresLimits) -> str:
    """Tenant or department. Raises UnknownNameError, or UsageError where both are called so."""
    is_tenant, is_department = await limits.kinds(args.name)
    known = {"tenant": is_tenant, "department": is_department}
    if args.kind is not None:
        if not known[args.kind]:
            raise UnknownNameError(await _unknown(args.name, limits, args.kind))
        return str(args.kind)
    if is_tenant and is_department:
        raise UsageError(
            f"{_quoted(args.name)} is a tenant and a department: say --tenant or --department"
        )
    if not (is_tenant or is_department):
        raise UnknownNameError(await _unknown(args.name, limits))
    return "tenant" if is_tenant else "department"


async def _unknown(name: str, limits: PostgresLimits, kind: str = "tenant or department") -> str:
    import difflib

    near = difflib.get_close_matches(name, await limits.names_near(name), n=MAX_SUGGESTIONS)
    meant = ", ".join(map(_quoted, near))
    cure = f"did you mean {meant}?" if meant else "quota-worker limits show lists all"
    return f"no {kind} is called {_quoted(name)}: {cure}"


async def _local(at: datetime, limits: PostgresLimits) -> str:
    from worker.periods import load_zone

    zone = (await limits.clock()).billing_zone
    return f"{at.astimezone(load_zone(zone)):%Y-%m-%d %H:%M:%S} {zone}"


def _quoted(name: str) -> str:
    from worker.status_names import as_argument

    return as_argument(name)
