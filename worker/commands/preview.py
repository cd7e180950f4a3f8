"""`quota-worker preview KIND [--channel C] [--lang L]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from worker.answers import say_script
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.models import OutboxMessage

FACTS_MAX_BYTES = 4 * 1024 * 1024
SHOWN_FAULTS = 5
DEFAULT_LANGUAGE = "en"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "kind",
        metavar="KIND",
        help="tenant-warn, department-warn, available, usage-missing, burn-rate, runaway,"
        " roi-report, digest or test",
    )
    parser.add_argument(
        "--channel",
        metavar="C",
        help="console (default; of a digest im-bot), im-bot, feishu-webhook, feishu-app, email,"
        " webhook or apprise",
    )
    parser.add_argument(
        "--lang", metavar="L", default=DEFAULT_LANGUAGE, help="en (default) or zh-CN"
    )
    parser.add_argument("--part", metavar="P", help="one part alone, such as html of an e-mail")
    parser.add_argument(
        "--samples",
        metavar="SET",
        help="usual (default), exhausted, refused, past, fallback, long-names or hostile-names",
    )
    parser.add_argument(
        "--facts",
        metavar="FILE",
        help="facts of your own as JSON (of a digest a list of them); - reads stdin",
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Show what would be sent. Needs neither database nor configuration.

    Raises UsageError for unknown choices and for facts of another shape.
    """
    from worker.notifiers.preview import CHANNELS, preview
    from worker.rendering import LANGUAGES, Renderer, RenderingError
    from worker.samples import DIGEST, KINDS, SAMPLES, TEST, sample_facts

    _one_of(args.kind, KINDS, "kind")
    channel = args.channel or ("im-bot" if args.kind == DIGEST else "console")
    _one_of(channel, tuple(CHANNELS), "channel")
    _one_of(args.lang, LANGUAGES, "language")
    if args.facts is not None:
        if args.samples is not None:
            raise UsageError("--facts and --samples exclude each other: leave out one")
        if args.kind == TEST:
            raise UsageError("--facts goes with kinds of alerts: a test has none of its own")
        facts = _read_facts(args.facts, args.kind)
    else:
        samples = args.samples or "usual"
        _one_of(samples, tuple(SAMPLES), "set of samples")
        facts = sample_facts(args.kind, samples)
    messages = [
        preview_message(one, args.kind, channel, args.lang, number)
        for number, one in enumerate(facts, start=1)
    ]
    try:
        text = preview(
            Renderer(deps.assets), messages, channel, part=args.part, digest=args.kind == DIGEST
        )
    except RenderingError as error:
        raise UsageError(str(error)) from error
    say_script(text)
    return 0


def _one_of(word: str, choices: tuple[str, ...], what: str) -> None:
    if word not in choices:
        from worker.untrusted import for_terminal

        raise UsageError(f"no {what} {for_terminal(word)}: choose one of {', '.join(choices)}")


def _read_facts(path: str, kind: str) -> list[dict[str, Any]]:
    """The facts in the file, checked. Raises UsageError with each fault's place."""
    import json
    from decimal import Decimal
    from pathlib import Path

    from worker.facts_shape import FACTS_OF, facts_faults, kind_of
    from worker.samples import DIGEST

    many = kind == DIGEST

    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as stream:
            data = stream.read(FACTS_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--facts {path}: {error.strerror or error}") from None
    if len(data) > FACTS_MAX_BYTES:
        raise UsageError(f"--facts {path}: more than {FACTS_MAX_BYTES:,} bytes")
    try:
        facts: Any = json.loads(data, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--facts {path}: no JSON ({error})") from None
    if many and not (isinstance(facts, list) and facts):
        raise UsageError(f"--facts {path}: a digest wants a list of messages' facts")
    members = facts if many else [facts]
    faults = [
        f"{f'[{number}].' if many else ''}{fault}"
        for number, one in enumerate(members)
        for fault in facts_faults(one)
    ]
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        raise UsageError(f"--facts {path}: {'; '.join(faults[:SHOWN_FAULTS])}{more}")
    if not many and (own := kind_of(facts)) != kind:
        raise UsageError(
            f"--facts {path}: these are {FACTS_OF[own]} facts: use {own} instead of {kind}"
        )
    return members


def preview_message(
    facts: dict[str, Any], kind: str, channel: str, language: str, number: int
) -> OutboxMessage:
    """A message that was never in an outbox; of a digest the one of this number."""
    import json
    from datetime import datetime

    from worker.facts_shape import kind_of
    from worker.models import OutboxMessage
    from worker.samples import DIGEST

    return OutboxMessage(
        message_id=number,
        kind=kind_of(facts) if kind == DIGEST else kind,
        channel=channel,
        severity=facts["severity"],
        locale=language,
        facts=json.dumps(facts, default=float),
        attempt=1,
        dedupe_key=f"qw-preview-{number}",
        created_at=datetime.fromisoformat(facts["decided_at"]),
    )
