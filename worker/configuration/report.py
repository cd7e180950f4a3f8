"""Reads [report]: where the monthly reports go, and on which day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.configuration.addresses import email_fault
from worker.configuration.routing import UNKNOWN
from worker.configuration.table import meant, shown
from worker.settings import ReportSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.configuration.table import Table
    from worker.settings import ChannelSettings

DAY_MAX: Final = 28
NEEDED: Final = "the name of an e-mail channel"


def read_report(table: Table | None, channels: Sequence[ChannelSettings]) -> ReportSettings | None:
    """None where there is no such table, or it is switched off."""
    if table is None:
        return None
    off = table.flag("off")
    channel = table.text("channel", needed=None if off else NEEDED)
    # one that could not be read may well be an e-mail channel
    mails = [one.name for one in channels if one.kind in {"email", UNKNOWN}]
    if channel is not None and channel not in mails:
        if channel not in {one.name for one in channels}:
            wrong = f"a channel that isn't defined: {meant(channel, mails)}"
            table.fault("channel", f"names {shown(channel)}, {wrong}")
        else:
            table.fault("channel", f"is {shown(channel)}, which is no e-mail channel")
    to = table.texts("to", example='["finance@example.com"]') or ()
    for place, address in enumerate(to, start=1):
        if (fault := email_fault(address)) is not None:
            table.fault(f"to[{place}]", fault)
    day = table.number("day", 1, DAY_MAX)
    table.finish()
    return None if off else ReportSettings(channel, to, day)
