"""What nobody meant to write, and clocks that run ahead: no alert is lost for them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import World
from contract.samples import message
from worker.assets import Assets
from worker.rendering import Renderer

if TYPE_CHECKING:
    import asyncpg

MAIL: dict[str, Any] = {"default": {"to": [{"channel": "ops"}], "owners": "mail"}}


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{ok@x.co,NULL}", ["ok@x.co"]),
        ("{{a@x.co,b@x.co},{c@x.co,NULL}}", ["a@x.co", "b@x.co", "c@x.co"]),
        ('{"",  " "}', []),
        ("{}", []),
    ],
)
async def test_lists_that_hold_no_text(world: World, written: str, expected: list[str]) -> None:
    await world.department(monthly_tokens=100)
    await world.conn.execute(
        "UPDATE departments SET owner_emails = $1::text::text[], finance_emails = '{}'", written
    )
    await world.conn.execute("UPDATE department_budgets SET downgrade_from = '{NULL,large}'")
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=80)
    await world.warn(routes=MAIL)
    (facts,) = {json.dumps(one): one for one in await world.messages()}.values()
    assert (facts["owner_emails"], facts["downgrade_from"]) == (expected, ["large"])
    told = await world.conn.fetch(
        "SELECT recipient FROM quota_outbox WHERE channel = 'mail' ORDER BY 1"
    )
    assert [row[0] for row in told] == expected
    text = Renderer(Assets()).render(message(facts), "console", "term")
    assert "None" not in text
    assert ("whoever owns the budget" in text) == (not expected)


async def test_a_clock_that_ran_ahead_hides_no_ended_period(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.warn()
    right = world.now
    world.now += timedelta(days=19)
    await world.warn()
    world.now = right
    await world.warn()
    await world.use(10)
    assert (await world.warn(timedelta(days=1)))[:2] == (2, 1)
    assert await world.log("threshold", "state") == [(80, "superseded"), (100, "past")]


async def test_one_clock_ahead_and_then_nobody_for_a_day(world: World) -> None:
    await world.tenant(daily_completions=10)
    right = world.now
    world.now += timedelta(days=19)
    await world.warn()
    world.now = right
    await world.use(10)
    # the first right pass comes after the period's end
    assert (await world.warn(timedelta(hours=20)))[1] == 1


async def test_a_name_that_fits_no_index_spoils_no_other(world: World) -> None:
    letters = await world.conn.fetchval(
        "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 83) AS n"
    )
    await world.tenant(letters, daily_completions=10)
    await world.tenant(daily_completions=10)
    await world.use(10, letters)
    await world.use(10)
    assert (await world.warn())[1] == 1
    assert await world.log("subject", "state") == [("t", "superseded"), ("t", "told")]


async def test_what_no_digest_took_makes_one_after_a_day(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.warn(routes=MAIL)
    await world.use(9)
    await world.warn(timedelta(days=1), MAIL)
    state = "SELECT state, digest_only FROM quota_outbox"
    assert tuple(await world.conn.fetchrow(state)) == ("stale", True)
    await world.warn(timedelta(hours=23), MAIL)
    assert tuple(await world.conn.fetchrow(state)) == ("stale", True)
    await world.warn(timedelta(hours=1), MAIL)
    assert tuple(await world.conn.fetchrow(state)) == ("pending", True)
    # and a channel that makes no digests gets none of it
    await world.use(9)
    await world.warn(timedelta(days=1), MAIL | {"digests": ["mail"]})
    assert await world.conn.fetchval("SELECT count(*) FROM quota_outbox") == 1
