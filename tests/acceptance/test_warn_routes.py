"""Who is told: routes, owners, superseding of what still waits, and what is for the digest only."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import World

if TYPE_CHECKING:
    import asyncpg

OPS = {"channel": "ops"}
BOTH: dict[str, Any] = {"default": {"to": [OPS, {"channel": "chat"}, OPS], "owners": None}}


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


async def rows(world: World, *names: str) -> list[tuple[Any, ...]]:
    found = await world.conn.fetch(
        f"SELECT {', '.join(names)} FROM quota_outbox ORDER BY created_at, channel, recipient, outbox_id"
    )
    return [tuple(row) for row in found]


async def test_one_row_for_each_channel(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(9)
    assert (await world.warn(routes=BOTH))[1] == 1
    assert await rows(world, "channel", "recipient", "state", "attempts", "subject") == [
        ("chat", None, "pending", 0, "t"),
        ("ops", None, "pending", 0, "t"),
    ]
    keys = await rows(world, "dedupe_key", "message_key")
    assert len(set(keys)) == 2
    assert len({message for _, message in keys}) == 1
    assert all(len(key) <= 43 for key, _ in keys)


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({"tenants": ["x", "t"]}, True),
        ({"tenants": ["x"]}, False),
        ({"departments": ["d"]}, True),
        ({"departments": ["e"]}, False),
        ({"environments": ["production"], "severities": ["warning", "exhausted"]}, True),
        ({"environments": ["test"]}, False),
        ({"severities": ["exhausted"]}, False),
        ({"tenants": ["t"], "severities": ["exhausted"]}, False),
        ({}, True),
    ],
)
async def test_the_first_rule_that_matches_decides(
    world: World, rule: dict[str, Any], *, matches: bool
) -> None:
    await world.department()
    await world.tenant(daily_completions=10, department_id="d")
    await world.use(9)
    never = {"tenants": ["nobody"], "to": [{"channel": "never"}]}
    later = {"tenants": ["t"], "to": [{"channel": "later"}]}
    routes = {"rules": [never, rule | {"to": [OPS]}, later], "default": {"to": []}}
    await world.warn(routes=routes)
    assert await rows(world, "channel") == [("ops",) if matches else ("later",)]


async def test_no_tenant_rule_is_for_a_department_of_that_name(world: World) -> None:
    await world.department("t", monthly_tokens=100)
    await world.tenant("u", department_id="t")
    await world.reserve("u", in_tokens=80)
    await world.warn(
        routes={
            "rules": [{"tenants": ["t"], "to": [OPS]}],
            "default": {"to": [{"channel": "rest"}]},
        }
    )
    assert await rows(world, "channel") == [("rest",)]


async def test_a_department_s_message_goes_to_its_owners_once_each(world: World) -> None:
    await world.department("d", monthly_tokens=100)
    await world.conn.execute(
        "UPDATE departments SET owner_emails = '{Boss@example.com, both@example.com, \" \"}',"
        " finance_emails = '{both@example.com, ops@EXAMPLE.com, not an address}'"
    )
    await world.tenant(department_id="d", daily_completions=1)
    await world.reserve(in_tokens=80)
    mail = {"channel": "mail", "recipient": "ops@example.com"}
    await world.warn(routes={"default": {"to": [OPS, mail], "owners": "mail"}})
    assert await rows(world, "subject_kind", "channel", "recipient") == [
        ("department", "mail", "Boss@example.com"),
        ("department", "mail", "both@example.com"),
        ("department", "mail", "not an address"),
        ("department", "mail", "ops@example.com"),
        ("tenant", "mail", "ops@example.com"),
        ("department", "ops", None),
        ("tenant", "ops", None),
    ]


async def test_nobody_to_tell_is_told_on_the_console(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(9)
    await world.warn(routes={"default": {"to": [], "owners": "mail"}})
    assert await rows(world, "channel", "recipient") == [("console", None)]


async def test_what_still_waits_is_superseded_by_the_higher(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(8)
    await world.warn(routes=BOTH)
    # one of the two was sent; and the other's higher one comes on the same channel only
    await world.conn.execute(
        "UPDATE quota_outbox SET state = 'sent', sent_at = created_at WHERE channel = 'chat'"
    )
    await world.use(10)
    await world.warn(routes={"default": {"to": [OPS]}})
    assert await rows(world, "channel", "severity", "state") == [
        ("chat", "warning", "sent"),
        ("ops", "warning", "superseded"),
        ("ops", "exhausted", "pending"),
    ]
    by = await world.conn.fetchrow(
        "SELECT superseded_by = (SELECT message_key FROM quota_outbox WHERE severity = 'exhausted')"
        " FROM quota_outbox WHERE state = 'superseded'"
    )
    assert by[0]


async def test_what_tells_another_cap_too_is_not_superseded(world: World) -> None:
    await world.tenant(daily_completions=10, daily_input_tokens=10)
    await world.reserve(times=8, in_tokens=1)
    await world.warn()
    await world.reserve(times=2)
    await world.warn()
    assert await rows(world, "severity", "state") == [
        ("warning", "pending"),
        ("exhausted", "pending"),
    ]


async def test_a_lower_threshold_that_ended_unseen_is_for_the_digest_only(world: World) -> None:
    await world.tenant("full", daily_completions=10)
    await world.tenant("near", daily_completions=10)
    await world.warn()
    await world.use(10, "full")
    await world.use(9, "near")
    assert (await world.warn(timedelta(days=1)))[1] == 1
    assert await rows(world, "subject", "state", "digest_only") == [
        ("full", "pending", False),
        ("near", "stale", True),
    ]
    assert (await world.warn())[0] == 0
    facts = (await world.messages())[-1]
    assert (facts["past"], facts["dimensions"][0]["crossed"]) == (True, True)
