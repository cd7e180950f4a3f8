"""Makes each kind's source from its settings; its driver is imported by the first asking."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.postgres.queries import Queries
    from worker.settings import SourceSettings
    from worker.sources.base import BaseSource
    from worker.sources.http import Slot

# What is shorter isn't taken for a secret: "Bearer" is none.
SECRET_LETTERS: Final = 7
_ADDRESS_PARTS: Final = re.compile(r"[/?&=@:]+")


class SourceNeeds(NamedTuple):
    """What sources share: ``dsn`` of the ledger's database, ``slot`` None for one request."""

    dsn: Callable[[], str]
    queries: Queries
    slot: Slot | None


def make_source(settings: SourceSettings, needs: SourceNeeds) -> BaseSource:
    """The source of these settings; nothing is opened yet."""
    from worker.sources.reading import Reader

    values = settings.values
    if settings.kind == "http":
        from worker.sources.http import HttpSource

        # a server may give back the part of a header after its scheme
        secrets = [
            part for header in values["headers"].values() for part in (header, *header.split())
        ]
        # of an address that may hold a token, which servers repeat in their error pages
        secrets += [part for part in _ADDRESS_PARTS.split(values["url"]) if "{" not in part]
        secrets = [part for part in secrets if len(part) >= SECRET_LETTERS]
        return HttpSource(settings, Reader(settings.name, values["currency"], secrets), needs.slot)
    from worker.sources.sql import SqlSource

    dsn: str | None = values["dsn"]
    return SqlSource(
        settings,
        Reader(settings.name, values["currency"], _passwords(dsn)),
        needs.dsn if dsn is None else lambda: dsn,
        needs.queries,
    )


def _passwords(dsn: str | None) -> list[str]:
    """The parts of the address that must not show in what its server says."""
    if dsn is None:
        return []
    from urllib.parse import unquote, urlsplit

    password = urlsplit(dsn).password or ""
    return [dsn, password, unquote(password)]
