"""`quota-worker alerts`, `alerts ID`, `alerts retry ID …`, `alerts ack ID …`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from worker.answers import say, say_json
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from worker.alerts_report import AlertsReport
    from worker.alerts_words import Words
    from worker.bootstrap import Deps
    from worker.postgres.alerts import PostgresAlerts

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 2_147_483_647
MAX_IDS: Final = 1_000
YEARS: Final = range(2000, 2200)
MAX_TEXT: Final = 500
ACTIONS: Final = ("retry", "ack")
STATES: Final = ("pending", "sending", "sent", "dead", "superseded", "stale")
_ID_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)
_SPAN: Final = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_SPAN_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
# {when}: as of Words.next_tick
_RETRIED: Final = {
    "retried": "will be sent again {when}; its attempts are counted anew",
    "reopened": (
        "will be sent again {when}; its attempts are counted anew,"
        " and its acknowledgement is taken back"
    ),
    "hastened": "is due now, and sent {when}",
    "sending": "is being sent now: try again in a minute",
    "sent": "was sent: there is nothing to retry",
    "superseded": "is not to be sent any more: a later alert says more, or somebody withdrew it",
    "stale": "is out of date, or a line of the recipient's next digest: it can't be sent alone",
    "unknown": "is no message's id: quota-worker alerts lists them",
}
_ACKED: Final = {
    "acked": "is acknowledged",
    "acked_sent": "was sent; now it is acknowledged, too",
    "withdrawn": "is withdrawn: it will not be sent any more",
    "already": "was acknowledged before",
    "sending": "is being sent now: try again in a minute",
    "unknown": "is no message's id: quota-worker alerts lists them",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "words",
        metavar="ID | retry ID … | ack ID …",
        nargs="*",
        help="one message in full; send messages again; acknowledge them. None: the list",
    )
    parser.add_argument("--since", metavar="T", help="a time, or a span back from now: 90m, 2h, 3d")
    parser.add_argument("--subject", metavar="NAME", help="only this tenant or department")
    parser.add_argument(
        "--state", metavar="S", help=f"only with a message that is {_either(STATES)}"
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, help=f"how many alerts (default {DEFAULT_LIMIT}; 0: all)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--note", metavar="TEXT", help="with ack: why, or what was done about it")
    parser.add_argument("--by", metavar="NAME", help="with ack: who (default: the user's name)")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """What was told, or one message, or what is to become of some.

    Raises UsageError for unknown ids and choices, and for what can't be done: then nothing is.
    """
    action = args.words[0] if args.words and args.words[0] in ACTIONS else None
    _check_options(args, action)
    if action is not None:
        ids = _ids(args.words[1:], action)
        by, note = _signature(args) if action == "ack" else ("", None)
        alerts = await _alerts(deps)
        if action == "retry":
            return await _retry(args, deps, alerts, ids)
        outcomes = await alerts.ack(ids, by, note, None)
        _refuse(outcomes, _ACKED, {"acked", "acked_sent", "withdrawn", "already"})
        return _say_outcomes(args, [(one, outcome, _ACKED[outcome]) for one, outcome in outcomes])
    if args.words:
        return await _show_one(args, deps)
    return await _show_list(args, deps)


def _check_options(args: argparse.Namespace, action: str | None) -> None:
    for_list = [
        f"--{name}" for name in ("since", "subject", "state", "limit") if _given(args, name)
    ]
    if for_list and args.words:
        raise UsageError(f"{for_list[0]} goes with the list alone: leave out {args.words[0]!r}")
    for_ack = [f"--{name}" for name in ("note", "by") if _given(args, name)]
    if for_ack and action != "ack":
        raise UsageError(f"{for_ack[0]} goes with quota-worker alerts ack ID … alone")
    if args.state is not None and args.state not in STATES:
        raise UsageError(f"--state {_shown(args.state)} is no state: choose {_either(STATES)}")
    if args.limit is not None and not 0 <= args.limit <= MAX_LIMIT:
        raise UsageError("--limit needs a number of alerts, or 0 for all")


async def _alerts(deps: Deps) -> PostgresAlerts:
    from worker.postgres.alerts import PostgresAlerts
    from worker.postgres.queries import load_queries

    queries = load_queries(deps.assets, "alerts")
    channels = deps.channels()
    return PostgresAlerts(await deps.pool(), queries, channels.quiet, channels.served)


async def _show_list(args: argparse.Namespace, deps: Deps) -> int:
    from worker.alerts import history_document, history_text
    from worker.periods import load_zone

    since = None if args.since is None else _moment(args.since)
    alerts = await _alerts(deps)
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=load_zone(await alerts.zone()))
    limit = DEFAULT_LIMIT if args.limit is None else args.limit
    report = await alerts.history(since, args.subject, args.state, limit or None)
    if args.json:
        say_json(history_document(report))
    else:
        say(history_text(report, _words(report, deps)))
    return 0


async def _show_one(args: argparse.Namespace, deps: Deps) -> int:
    from worker.alerts_detail import alert_detail_document, alert_text

    outbox_id, *more = _ids(args.words, None)
    if more:
        raise UsageError("one message at a time, or begin with retry or ack")
    alerts = await _alerts(deps)
    report = await alerts.one(outbox_id)
    if not report.deliveries:
        raise UsageError(f"no message has the id {outbox_id}: quota-worker alerts lists them")
    text = _message_text(report, outbox_id, deps)
    if args.json:
        say_json(alert_detail_document(report, outbox_id, text))
    else:
        say(alert_text(report, outbox_id, text, _words(report, deps)))
    return 0


def _message_text(report: AlertsReport, outbox_id: int, deps: Deps) -> str:
    """The message as the console shows it; in words where it can't be rendered."""
    from worker.models import OutboxMessage
    from worker.rendering import Renderer, RenderingError

    row = next(one for one in report.deliveries if one.outbox_id == outbox_id)
    message = OutboxMessage(
        message_id=row.outbox_id,
        kind=row.kind,
        channel=row.channel,
        severity=row.severity,
        locale=row.locale,
        facts=row.facts,
        attempt=row.attempts,
        dedupe_key=row.dedupe_key,
        created_at=row.created_at,
        recipient=row.recipient,
    )
    try:
        return Renderer(deps.assets).render(message, "console", "term")
    except RenderingError as error:
        return f"can't be rendered: {error}"


def _words(report: AlertsReport, deps: Deps) -> Words:
    from worker.alerts_words import Words, cause_words
    from worker.periods import load_zone

    failed = report.given_up or any(row.last_failure for row in report.deliveries)
    causes = cause_words(deps.assets) if failed else {}
    return Words(report, load_zone(report.billing_zone), causes)


async def _retry(
    args: argparse.Namespace, deps: Deps, alerts: PostgresAlerts, ids: list[int]
) -> int:
    """Make them due, and say when they are sent: a tick may not be free to."""
    outcomes = await alerts.retry(ids, None)
    _refuse(outcomes, _RETRIED, {"retried", "reopened", "hastened"})
    report = await alerts.of(ids)
    words = _words(report, deps)
    when = {row.outbox_id: words.next_tick(row) for row in report.deliveries}
    return _say_outcomes(
        args,
        [
            (one, outcome, _RETRIED[outcome].replace("{when}", when[one]))
            for one, outcome in outcomes
        ],
    )


def _refuse(outcomes: Sequence[tuple[int, str]], words: dict[str, str], good: set[str]) -> None:
    """Raises UsageError where one was refused, as then nothing was done."""
    refused = [f"{one} {words[outcome]}" for one, outcome in outcomes if outcome not in good]
    if not refused:
        return
    others = len(outcomes) - len(refused)
    more = {0: "", 1: "; the other stays as it is"}.get(
        others, f"; the other {others} stay as they are"
    )
    raise UsageError(f"nothing was done: {'; '.join(refused)}{more}")


def _say_outcomes(args: argparse.Namespace, done: Sequence[tuple[int, str, str]]) -> int:
    if args.json:
        say_json([{"id": one, "outcome": outcome} for one, outcome, _ in done])
        return 0
    for one, _, words in done:
        say(f"{one} {words}")
    return 0


def _signature(args: argparse.Namespace) -> tuple[str, str | None]:
    by = _user_name() if args.by is None else args.by
    for name, text in (("--by", by), ("--note", args.note or "")):
        if "\0" in text or len(text) > MAX_TEXT:
            raise UsageError(f"{name} is over {MAX_TEXT} characters, or has a NUL in it")
    if not by.strip():
        raise UsageError("--by is empty: give the name of who acknowledges")
    return by, args.note or None


def _user_name() -> str:
    import getpass
    import os

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def _ids(words: Sequence[str], action: str | None) -> list[int]:
    if not words:
        raise UsageError(f"{action} needs the ids of messages: quota-worker alerts lists them")
    ids: dict[int, None] = {}
    for word in words:
        if not (_NUMBER.fullmatch(word) and 0 < int(word) <= _ID_MAX):
            raise UsageError(f"{_shown(word)} is no message's id: {_meant(word, action)}")
        ids[int(word)] = None
    if len(ids) > MAX_IDS:
        raise UsageError(f"at most {MAX_IDS:,} messages at a time")
    return list(ids)


def _meant(word: str, action: str | None) -> str:
    """What to write instead: an action where it looks like one, and none stands before it."""
    from difflib import get_close_matches

    if action is not None:
        return "a number that quota-worker alerts shows is needed"
    near = get_close_matches(word.lower(), ACTIONS, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return "retry, ack, or a number that quota-worker alerts shows"


def _moment(text: str) -> datetime:
    """A span back from now, or a time; without an offset it is naive, of the billing zone."""
    from worker.clock import utc_now

    span = _SPAN.fullmatch(text)
    try:
        if span is not None:
            return utc_now() - timedelta(minutes=int(span[1]) * _SPAN_MINUTES[span[2]])
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {_shown(text)} is no time: write 90m, 2h, 3d, 2026-11-30 or 2026-11-30T18:00"
        ) from None
    # an offset or a zone would carry the first and the last years over the calendar's ends
    if at.year not in YEARS:
        raise UsageError(f"--since {_shown(text)} is out of range: the years 2000 to 2199")
    return at


def _given(args: argparse.Namespace, name: str) -> bool:
    value: Any = getattr(args, name)
    return value is not None


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(text: str) -> str:
    from worker.status_text import clipped
    from worker.untrusted import for_terminal

    return clipped(for_terminal(text))
