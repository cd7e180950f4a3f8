"""Reports' mails as a real SMTP server took them, and pages of their HTML with its images."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contract.mail_world import LIMIT_SECONDS, SENDER, reached, serving
from contract.samples import AT
from contract.servers_mail import Certificates
from worker.assets import Assets
from worker.models import OutboxMessage
from worker.notifiers.mail import MailNotifier
from worker.postgres.roi_reports import report_facts
from worker.rendering import LANGUAGES, Renderer
from worker.report.json_file import dump_summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from contract.servers_mail import Received
    from worker.report.corrections import Changed
    from worker.roi.summary import Summary

MAIL_BYTES = 20_000_000
_CONTENT_ID = re.compile(r'src="cid:([^"]+)"')


def report_message(
    number: int, summary: Summary, language: str, changes: tuple[Changed, ...] = ()
) -> OutboxMessage:
    """As the outbox has it; with changes it is the second revision."""
    told = [{"figure": one.figure, "old": one.old, "new": one.new} for one in changes]
    facts = report_facts(summary) | {
        "month": f"{summary.month:%Y-%m}",
        "department_id": "" if summary.department is None else summary.department.department_id,
        "revision": 2 if changes else 1,
        "changes": told,
        "decided_at": AT.isoformat(),
        "summary": dump_summary(summary),
    }
    return OutboxMessage(
        message_id=number,
        kind="roi-report",
        channel="mail",
        recipient="director@example.com",
        severity="report",
        locale=language,
        facts=json.dumps(facts),
        attempt=1,
        dedupe_key=f"rr-{number}",
        created_at=AT,
    )


async def receive(messages: list[OutboxMessage]) -> list[Received]:
    """Each message, sent through a server that judges it, in order."""
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        async with serving(certificates, size_max=MAIL_BYTES) as server:
            renderer = Renderer(Assets())
            notifier = MailNotifier(renderer, reached(server), SENDER, now=lambda: AT)
            try:
                for message in messages:
                    result = await notifier.send(message, LIMIT_SECONDS)
                    assert result.delivered, result
            finally:
                await notifier.close()
            return list(server.received)


def page_of(received: Received) -> str:
    """The mail's HTML, each image from the part that its address names."""
    images = {
        str(part["Content-ID"])[1:-1]: base64.b64encode(part.get_content()).decode()
        for part in received.mail.walk()
        if part.get_content_type() == "image/png"
    }
    shown = set(_CONTENT_ID.findall(received.part("html")))
    assert shown == set(images), "an image that is not shown, or not there"
    return _CONTENT_ID.sub(
        lambda found: f'src="data:image/png;base64,{images[found[1]]}"', received.part("html")
    )


def mails_of(
    summaries: Mapping[str, Summary], changes: Mapping[str, tuple[Changed, ...]]
) -> Iterator[tuple[str, Received]]:
    """By ``name.language``: each summary's mail in each language."""
    names, messages = [], []
    for language in LANGUAGES:
        for name, summary in summaries.items():
            names.append(f"{name}.{language}")
            messages.append(
                report_message(len(names), summary, language, tuple(changes.get(name, ())))
            )
    return zip(names, asyncio.run(receive(messages)), strict=True)
