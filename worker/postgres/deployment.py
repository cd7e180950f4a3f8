"""The deployment's settings in the database: billing zone, currency, locale."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from worker.errors import ConflictError, UsageError
from worker.postgres.errors import translated
from worker.postgres.queries import load_queries

if TYPE_CHECKING:
    import asyncpg

    from worker.assets import Assets

KEYS = ("zone", "currency", "locale")
LOCALES = ("en", "zh-CN")
_CURRENCY = re.compile(r"[A-Z]{3}")


class Deployment:
    """Reads and changes the one row of quota_settings."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], assets: Assets) -> None:
        self._connection = connection
        self._queries = load_queries(assets, "settings")

    async def show(self) -> dict[str, str]:
        """The settings by key."""
        with translated():
            row = await self._connection.fetchrow(self._queries["show"])
        return dict(zip(KEYS, row or (), strict=True))

    async def change(self, key: str, value: str) -> str | None:
        """Change one setting in a transaction of its own; returns a remark, or None.

        Raises UsageError for an unknown key or value, ConflictError where a
        charge of an open month would fall on another day. Idempotent.
        """
        if key not in KEYS:
            raise UsageError(f"{key!r} is no setting: choose zone, currency or locale")
        if key == "zone":
            await self._change_zone(value)
            return None
        if key == "currency":
            if not _CURRENCY.fullmatch(value):
                raise UsageError(f"{value!r} is no currency: three capitals, such as CNY or USD")
        elif value not in LOCALES:
            raise UsageError(f"{value!r} is no locale: choose en or zh-CN")
        before = (await self.show())[key]
        with translated():
            await self._connection.execute(self._queries[f"set_{key}"], value)
        if key == "currency" and before != value:
            return "note: amounts that are already booked are not converted"
        return None

    async def _change_zone(self, value: str) -> None:
        with translated():
            async with self._connection.transaction():
                known = await self._connection.fetchval(self._queries["zone_exists"], value)
                if not known or not _python_knows(value):
                    raise UsageError(f"{value!r} is no time zone{_hint(value)}")
                await self._connection.execute(self._queries["lock_timeout"])
                await self._connection.execute(self._queries["lock"])
                moving = await self._connection.fetchrow(
                    self._queries["charge_that_would_move"], value
                )
                if moving is not None:
                    raise ConflictError(
                        f"the zone stays: charges of an open month would fall on another day "
                        f"(first: {moving['tenant_id']} on {moving['period']}); "
                        "change it before the month's first charge"
                    )
                await self._connection.execute(self._queries["set_zone"], value)


def _python_knows(name: str) -> bool:
    from zoneinfo import available_timezones

    # What the machine's own files add to the IANA names.
    return name in available_timezones() - {"localtime", "Factory"}


def _hint(name: str) -> str:
    from worker.periods import near_zone

    near = near_zone(name)
    return f": did you mean {near}?" if near else ": use a name such as Asia/Shanghai"
