"""Billing zone, currency and locale: what may change, and when."""

from __future__ import annotations

from datetime import datetime

import pytest

from worker.assets import Assets
from worker.errors import ConflictError, LockTimeoutError, UsageError
from worker.postgres.deployment import Deployment


@pytest.fixture
def deployment(conn) -> Deployment:
    return Deployment(conn, Assets())


async def reserve(conn, at: str, request_id: str = "r1") -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('t') ON CONFLICT DO NOTHING")
    row = await conn.fetchrow(
        "SELECT allowed, reason FROM quota_reserve('t', $1, 10, 10, 10, p_now => $2)",
        request_id,
        datetime.fromisoformat(at),
    )
    assert row["allowed"], row


async def test_without_charges_everything_may_change(deployment) -> None:
    assert await deployment.show() == {"zone": "UTC", "currency": "USD", "locale": "en"}
    await deployment.change("zone", "Asia/Shanghai")
    assert "not converted" in (await deployment.change("currency", "CNY") or "")
    assert await deployment.change("currency", "CNY") is None
    await deployment.change("locale", "zh-CN")
    assert await deployment.show() == {
        "zone": "Asia/Shanghai",
        "currency": "CNY",
        "locale": "zh-CN",
    }


async def test_a_charge_that_would_move_keeps_the_zone(deployment, conn) -> None:
    await reserve(conn, "2026-11-20T18:00+00:00")  # 02:00 of the 21st in Shanghai
    with pytest.raises(ConflictError, match="first: t on 2026-11-20"):
        await deployment.change("zone", "Asia/Shanghai")
    assert (await deployment.show())["zone"] == "UTC"


async def test_a_charge_that_stays_on_its_day_lets_it_change(deployment, conn) -> None:
    await reserve(conn, "2026-11-20T10:00+00:00")
    await deployment.change("zone", "Asia/Shanghai")
    assert (await deployment.show())["zone"] == "Asia/Shanghai"


async def test_a_charge_without_a_time_counts_as_moving(deployment, conn) -> None:
    await conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, cost_cents) VALUES ('t', '2026-11-20', 5)"
    )
    with pytest.raises(ConflictError, match="t on 2026-11-20"):
        await deployment.change("zone", "Asia/Shanghai")
    # Same days all through November: nothing moves.
    await deployment.change("zone", "Europe/London")
    assert (await deployment.show())["zone"] == "Europe/London"


async def test_a_closed_month_does_not_hold_it(deployment, conn) -> None:
    await conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, cost_cents) VALUES ('t', '2026-01-20', 5)"
    )
    await conn.execute(
        "INSERT INTO quota_months (month, rolled_at, closed_at) VALUES ('2026-01-01', now(), now())"
    )
    await deployment.change("zone", "Asia/Shanghai")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("zone", "Asia/Shanghia", "did you mean Asia/Shanghai"),
        ("zone", "shanghai", "did you mean Asia/Shanghai"),
        ("zone", "UTC+8", "no time zone"),
        ("zone", "CST", "no time zone: use a name such as"),
        ("zone", "", "no time zone"),
        ("zone", "posixrules", "no time zone"),
        ("zone", "localtime", "no time zone"),
        ("currency", "usd", "no currency"),
        ("currency", "$", "no currency"),
        ("locale", "de", "choose en or zh-CN"),
        ("colour", "red", "choose zone, currency or locale"),
    ],
)
async def test_a_wrong_value_is_one_line(deployment, key: str, value: str, message: str) -> None:
    before = await deployment.show()
    with pytest.raises(UsageError, match=message) as caught:
        await deployment.change(key, value)
    assert "\n" not in str(caught.value)
    assert await deployment.show() == before


async def test_an_admission_under_way_is_waited_for(deployment, connect) -> None:
    other = await connect()
    async with other.transaction():
        await reserve(other, "2026-11-20T18:00+00:00")
        with pytest.raises(LockTimeoutError):
            await deployment.change("zone", "Asia/Shanghai")
    with pytest.raises(ConflictError):
        await deployment.change("zone", "Asia/Shanghai")
