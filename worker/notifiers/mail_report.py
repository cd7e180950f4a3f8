"""A monthly report's mail, from the summary that was stored with it. Sends nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from worker.notifiers.mail_message import Mail, MailFile
from worker.rendering import RenderingError

if TYPE_CHECKING:
    from worker.models import OutboxMessage


def report_mail(message: OutboxMessage, subject: str) -> Mail:
    """Text, HTML with its charts, and the files. Raises RenderingError, without a value.

    The message's facts have `summary`, as `dump_summary` wrote it, and of a corrected report
    what `changes`.
    """
    from worker.report.corrections import Changed, Correction
    from worker.report.forms import mail_form
    from worker.report.json_file import load_summary

    try:
        facts = json.loads(message.facts)
        correction = None
        if facts["revision"] > 1:
            changes = tuple(Changed(**one) for one in facts["changes"])
            correction = Correction(facts["revision"], changes)
        form = mail_form(load_summary(facts["summary"]), message.locale, correction)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise RenderingError(f"the stored report can't be shown: {type(error).__name__}") from error
    return Mail(
        subject=subject,
        text=form.text,
        html=form.html,
        images=tuple(MailFile(cid, "image/png", png) for cid, png in form.images.items()),
        attachments=tuple(
            MailFile(one.name, one.media_type, one.content) for one in form.attachments
        ),
    )
