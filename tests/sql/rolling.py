"""Worlds for the roll-up's tests, and what the totals must be, recomputed from the rows in Python."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from sql.calls import Calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]
    Amounts = tuple[int, ...]
    Sums = dict[tuple[Any, ...], Amounts]

AMOUNTS = (
    "completions, input_tokens, cached_in_tokens, output_tokens, cost_nanos, stale_count, stale_cost_nanos,"
    " released_count, unpriced_count, downgraded_count, downgraded_tokens"
)
NONE = (0,) * 11
SEPTEMBER, OCTOBER, NOVEMBER, DECEMBER = (date(2026, month, 1) for month in (9, 10, 11, 12))
LEGACY = (
    "SELECT allowed, reason FROM quota_reserve_judge((SELECT l FROM tenant_limits l WHERE l.tenant_id = $1),"
    " $1, NULL, $2, $3, $4, NULL, NULL, NULL, NULL, 'normal', NULL, $5)"
)
MOVE = "UPDATE tenant_limits SET department_id = $2, environment = $3 WHERE tenant_id = $1"


async def tenant(calls: Calls, name: str, department: str | None = None) -> None:
    await calls.tenant(
        name,
        department_id=department,
        enforce="off",
        bucket_capacity=1e9,
        bucket_refill_per_sec=1e9,
    )


async def legacy(conn: Connection, name: str, amounts: Iterable[int], now: datetime) -> None:
    """What quota_check_and_charge does, at a time of the test's own."""
    row = await conn.fetchrow(LEGACY, name, *amounts, now)
    assert row is not None
    assert row["allowed"], row["reason"]


async def roll(conn: Connection, now: datetime) -> list[tuple[date, int, bool]]:
    """As the job does: what changed in closed months, then every open month."""
    await conn.execute("SELECT quota_book_adjustments($1)", now)
    done = []
    for row in await conn.fetch("SELECT quota_months_to_roll($1) AS month ORDER BY 1", now):
        await conn.execute("SELECT quota_book_legacy_month($1, 1000, $2)", row["month"], now)
        rolled = await conn.fetchrow(
            "SELECT rows, closed FROM quota_roll_month($1, $2)", row["month"], now
        )
        assert rolled is not None
        done.append((row["month"], rolled["rows"], rolled["closed"]))
    return done


async def sums(
    conn: Connection, table: str, labels: str, amounts: str, where: str = "true"
) -> Sums:
    """The table's rows by its labels; two rows of the same labels are a fault."""
    found: Sums = {}
    for row in await conn.fetch(f"SELECT {labels}, {amounts} FROM {table} WHERE {where}"):
        key = tuple(row)[: labels.count(",") + 1]
        assert key not in found, (table, key)
        found[key] = tuple(int(value) for value in tuple(row)[len(key) :])
    return found


async def parts(conn: Connection) -> Sums:
    """By month, month it belongs to, tenant, department, environment, model and app."""
    labels = "month, belongs_to, tenant_id, department_id, environment, model, app"
    return await sums(conn, "quota_month_parts", labels, AMOUNTS)


async def days(conn: Connection) -> Sums:
    """By month, day, department and environment."""
    return await sums(conn, "quota_month_days", "month, day, department_id, environment", AMOUNTS)


async def totals(conn: Connection) -> Sums:
    """By month, month it belongs to, tenant, department and environment; no cached tokens and so on."""
    return await sums(
        conn,
        "quota_monthly_totals",
        "month, belongs_to, tenant_id, department_id, environment",
        "completions, input_tokens, output_tokens, cost_nanos, stale_count, stale_cost_nanos",
    )


async def everything(conn: Connection) -> tuple[Sums, Sums, Sums]:
    return await parts(conn), await days(conn), await totals(conn)


def added(rows: Iterable[tuple[tuple[Any, ...], Amounts]]) -> Sums:
    """Sums by key, without those that are all zero."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for key, amounts in rows:
        into = found.setdefault(key, [0] * len(amounts))
        for place, amount in enumerate(amounts):
            into[place] += amount
    return {key: tuple(amounts) for key, amounts in found.items() if any(amounts)}


async def assert_parts_make_the_rest(conn: Connection) -> None:
    """Parts add up to each row of the totals, and the month's own to its days by department."""
    found_parts, found_days, found_totals = await everything(conn)
    own = (0, 1, 3, 4, 5, 6)
    assert {key: amounts for key, amounts in found_totals.items() if any(amounts)} == added(
        (key[:5], tuple(amounts[place] for place in own)) for key, amounts in found_parts.items()
    )
    assert added(((key[0], *key[2:]), amounts) for key, amounts in found_days.items()) == added(
        ((key[0], *key[3:5]), amounts) for key, amounts in found_parts.items() if key[0] == key[1]
    )


async def assert_totals_are_the_days(conn: Connection) -> None:
    """By the month that it belongs to, every charge is in the totals exactly once."""
    usage = await conn.fetch(
        "SELECT tenant_id, period, completions, input_tokens, output_tokens,"
        " cost_cents::numeric * 10000000 + cost_subcent_nanos FROM quota_usage"
    )
    assert added(
        ((key[1], key[2]), amounts[:4]) for key, amounts in (await totals(conn)).items()
    ) == added(
        ((row[1].replace(day=1), row[0]), tuple(int(value) for value in tuple(row)[2:]))
        for row in usage
    )


async def recomputed(conn: Connection, zone: ZoneInfo) -> tuple[Sums, Sums]:
    """Parts and days as the raw rows have them, months by the zone's own calendar.

    Charges without a request belong to where their tenant is now.
    """
    present = {
        row["tenant_id"]: (row["department_id"] or "", row["environment"])
        for row in await conn.fetch("SELECT * FROM tenant_limits")
    }
    rest: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0] * 4)
    for row in await conn.fetch("SELECT * FROM quota_usage"):
        rest[row["tenant_id"], row["period"]] = [
            row["completions"],
            row["input_tokens"],
            row["output_tokens"],
            row["cost_cents"] * 10_000_000 + row["cost_subcent_nanos"],
        ]
    rows: list[tuple[tuple[Any, ...], Amounts]] = []
    for row in await conn.fetch("SELECT * FROM quota_reservations"):
        day = row["admitted_at"].astimezone(zone).date()
        assert row["period"] == day
        kind = "estimated" if row["state"] == "open" else "charged"
        charged = [row[f"{kind}_{what}"] for what in ("in_tokens", "out_tokens", "cost_nanos")]
        counted = int(row["completion_counted"])
        for place, amount in enumerate((counted, *charged)):
            rest[row["tenant_id"], day][place] -= amount
        stale = row["state"] == "expired" and not row["late"]
        down = row["answered_model"] != row["requested_model"]
        rows.append(
            (
                (row["tenant_id"], day, row["department_id"] or "", row["environment"], row["model"] or "", row["app"] or ""),
                (
                    counted,
                    charged[0],
                    0 if row["state"] == "open" else row["cached_in_tokens"] or 0,
                    charged[1],
                    charged[2],
                    int(stale and sum(charged) > 0),
                    charged[2] if stale else 0,
                    int(row["state"] != "open" and not counted),
                    int(row["unpriced"]),
                    int(down),
                    charged[0] + charged[1] if down else 0,
                ),
            )
        )  # fmt: skip
    for (name, day), (counted, came_in, out, nanos) in rest.items():
        rows.append(
            ((name, day, *present[name], "", ""), (counted, came_in, 0, out, nanos, *NONE[5:]))
        )
    return (
        added(((k[1].replace(day=1), k[1].replace(day=1), k[0], *k[2:]), v) for k, v in rows),
        added(((k[1].replace(day=1), k[1], *k[2:4]), v) for k, v in rows),
    )


class Story:
    """A random month and a half of three tenants, most of it near where months and clocks change.

    ``events``: when, whose, what to do, with what. Those of one tenant must stay in their order.
    """

    TENANTS = ("a", "b", "c")

    def __init__(self, seed: int, zone: ZoneInfo, size: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311  a story, no secret
        self.zone = zone
        midnights = [
            datetime(2026, *day, tzinfo=zone).astimezone(UTC) for day in ((10, 1), (10, 4), (11, 1), (11, 2))
        ]  # fmt: skip
        near = [
            timedelta(microseconds=-1),
            timedelta(0),
            timedelta(hours=1.5),
            timedelta(hours=2.25),
        ]
        moments = [midnight + delta for midnight in midnights for delta in near]
        while len(moments) < size:
            moments.append(midnights[0] + timedelta(seconds=self.rng.randrange(33 * 86400)))
        self.events: list[tuple[datetime, str, str, tuple[Any, ...]]] = []
        for number, moment in enumerate(moments):
            self._write(number, moment)
        self.events.sort(key=lambda event: event[0])

    def _write(self, number: int, at: datetime) -> None:
        rng, name, request = self.rng, self.rng.choice(self.TENANTS), f"r{number}"
        amounts = (rng.randrange(500), rng.randrange(300), rng.randrange(10**7))
        if rng.random() < 0.2:
            self.events.append((at, name, "legacy", (*amounts[:2], amounts[2] // 100 * 100)))
            return
        if rng.random() < 0.1:
            place = (rng.choice(("sales", "ops", None)), rng.choice(("production", "test")))
            self.events.append((at, name, "move", place))
        labels = (rng.choice(("small", "large", "")), rng.choice(("chat", "search", "")))
        self.events.append((at, name, "reserve", (request, amounts, *labels)))
        used = (rng.randrange(500), rng.randrange(300), rng.randrange(10**7))
        for _ in range(rng.choice((0, 1, 1, 2))):
            at += timedelta(seconds=rng.choice((20, 700, 90_000, 700_000)))
            self.events.append(
                (at, name, rng.choice(("settle", "settle", "release")), (request, used))
            )
            used = (used[0] + 7, used[1], used[2] + 11)

    def shuffled(self) -> list[tuple[datetime, str, str, tuple[Any, ...]]]:
        """The same events, tenants mixed anew, each tenant's own in their order."""
        queues = {name: [e for e in self.events if e[1] == name] for name in self.TENANTS}
        order = [event[1] for event in self.events]
        random.Random(7).shuffle(order)  # noqa: S311
        return [queues[name].pop(0) for name in order]

    async def begin(self, conn: Connection) -> Calls:
        await conn.execute("UPDATE quota_settings SET billing_zone = $1", self.zone.key)
        calls = Calls(conn)
        for name, department in zip(self.TENANTS, ("sales", "ops", None), strict=True):
            await tenant(calls, name, department)
        return calls

    @staticmethod
    async def tell(calls: Calls, event: tuple[datetime, str, str, tuple[Any, ...]]) -> None:
        at, name, what, given = event
        if what == "legacy":
            await legacy(calls.conn, name, given, at)
        elif what == "move":
            await calls.conn.execute(MOVE, name, *given)
        elif what == "reserve":
            request, amounts, model, app = given
            row = await calls.reserve(
                name, request, amounts, model=model or None, app=app or None, now=at
            )
            assert row["allowed"], row
        elif what == "settle":
            await calls.settle(name, given[0], given[1], cached=min(3, given[1][0]), now=at)
        else:
            await calls.release(name, given[0], now=at)
