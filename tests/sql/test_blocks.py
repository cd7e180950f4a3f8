"""A person's stop: of a tenant or a department, in every path, until its time and no longer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sql.calls import NOON, Calls, Row, at, several, sqlstate_of

BLOCK = """
SELECT * FROM quota_limits_block(p_kind => $1, p_subject => $2, p_seconds => $3, p_by => $4, p_reason => $5, p_now => $6)
"""
UNBLOCK = (
    "SELECT * FROM quota_limits_unblock(p_kind => $1, p_subject => $2, p_by => $3, p_now => $4)"
)
TWO_HOURS = 7200
END = NOON + timedelta(seconds=TWO_HOURS)


async def block(
    calls: Calls, kind: str = "tenant", subject: str = "t", seconds: int = TWO_HOURS, **extra: Any
) -> Row:
    by, reason = extra.get("by", "ann"), extra.get("reason", "leaked key")
    return await calls.row(BLOCK, kind, subject, seconds, by, reason, extra.get("now", calls.now))


async def unblock(calls: Calls, kind: str = "tenant", subject: str = "t") -> Row:
    return await calls.row(UNBLOCK, kind, subject, "ann", calls.now)


async def world(calls: Calls, **limits: Any) -> None:
    """Tenant t of department d, on the short path."""
    await calls.department("d", monthly_tokens=1_000_000)
    await calls.tenant(department_id="d", **limits)
    await calls.reserve(request_id="before")
    await calls.reserve(request_id="before too")


SUBJECTS = [("tenant", "t"), ("department", "d")]


@pytest.mark.parametrize(("kind", "subject"), SUBJECTS)
async def test_a_block_refuses_until_its_time_and_no_longer(
    calls: Calls, kind: str, subject: str
) -> None:
    await world(calls)
    assert await block(calls, kind, subject) == {
        "outcome": "blocked",
        "blocked_until": END,
        "former_until": None,
    }
    before = await calls.figures()
    for _ in range(3):  # the second and third may take the refusals' short path
        row = await calls.reserve(model="big")
        assert (row["allowed"], row["reason"]) == (False, "daily_cap_reached")
        assert (row["limit_name"], row["limit_value"], row["limit_used"]) == ("blocked", 0, 0)
        assert (row["resets_at"], row["retry_after_seconds"]) == (END, TWO_HOURS)
        assert (row["tier"], row["model"], row["observed_reason"]) == ("normal", "big", None)
        who = "The tenant" if kind == "tenant" else "The department"
        told = f"{who} was blocked by ann until 2026-05-15 14:00 (UTC): leaked key."
        assert row["notice"] == f"{told} Requests pass again then."
    assert await calls.figures() == before
    assert await calls.refusals() == {"blocked": 3}

    last = await calls.reserve(now=END - timedelta(microseconds=1))
    assert not last["allowed"]
    for _ in range(3):  # nothing ran in between
        assert (await calls.reserve(now=END))["reason"] == "ok"


@pytest.mark.parametrize(("kind", "subject"), SUBJECTS)
async def test_a_lifted_block_lets_pass_at_once(calls: Calls, kind: str, subject: str) -> None:
    await world(calls)
    await block(calls, kind, subject)
    assert not (await calls.reserve())["allowed"]
    assert await unblock(calls, kind, subject) == {"outcome": "unblocked", "former_until": END}
    assert (await calls.reserve())["allowed"]
    assert (await unblock(calls, kind, subject))["outcome"] == "not_blocked"


@pytest.mark.parametrize(("kind", "subject"), SUBJECTS)
@pytest.mark.parametrize("enforce", ["on", "observe", "off"])
async def test_a_block_holds_in_every_mode_and_every_function(
    calls: Calls, kind: str, subject: str, enforce: str
) -> None:
    await world(calls, enforce=enforce)
    calls.now = None  # quota_check_and_charge has no p_now
    await calls.reserve(request_id="today")
    await block(calls, kind, subject)
    assert not (await calls.reserve())["allowed"]
    rows = await calls.reserve_batch(
        [
            {"tenant": "t", "request_id": f"b{n}", "in_tokens": 1, "out_tokens": 1, "cost_nanos": 1}
            for n in range(3)
        ]
    )
    assert [(one["allowed"], one["limit_name"]) for one in rows] == [(False, "blocked")] * 3
    assert rows[0]["notice"]
    charged = await calls.row("SELECT * FROM quota_check_and_charge('t', 1, 1, 1)")
    assert charged == {"allowed": False, "reason": "daily_cap_reached"}


@pytest.mark.parametrize(("kind", "subject"), SUBJECTS)
async def test_what_is_open_goes_on(calls: Calls, kind: str, subject: str) -> None:
    await world(calls)
    await block(calls, kind, subject)
    again = await calls.reserve(request_id="before")
    assert (again["allowed"], again["replayed"]) == (True, True)
    assert (await calls.settle(request_id="before", amounts=(7, 8, 9)))["outcome"] == "settled"
    assert await calls.release(request_id="before too") == "released"
    assert (await calls.settle(request_id="unknown", amounts=(1, 1, 1)))["outcome"] == "unreserved"
    assert await calls.figures() == (2, 8, 9, 10)
    # settling has drawn nothing that a short path would go by
    assert not (await calls.reserve())["allowed"]
    assert not (await calls.reserve())["allowed"]


async def test_a_block_answers_before_caps_models_and_tiers(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=10, allowed_models=["m"])
    await calls.tenant(department_id="d", daily_completions=1)
    await calls.settle(request_id="full", amounts=(20, 0, 0))
    assert (await calls.reserve(model="m"))["reason"] == "department_budget_exhausted"
    await block(calls)
    row = await calls.reserve(model="other")
    assert (row["limit_name"], row["tier"]) == ("blocked", "exhausted")


async def test_a_tenant_that_was_refused_by_a_cap_hears_of_the_block(calls: Calls) -> None:
    await calls.tenant(daily_completions=2)
    for _ in range(2):
        await calls.reserve()
    for _ in range(2):
        assert (await calls.reserve())["limit_name"] == "daily_completions"
    await block(calls)
    for _ in range(2):
        assert (await calls.reserve())["limit_name"] == "blocked"
    await unblock(calls)
    for _ in range(2):
        assert (await calls.reserve())["limit_name"] == "daily_completions"


async def test_blocks_of_others_say_nothing(calls: Calls) -> None:
    await world(calls, enforce="observe")  # on the general path, which reads blocks
    await calls.tenant("d")  # named as the department is
    await calls.department("t", monthly_tokens=1_000_000)
    await calls.tenant("other", department_id="t")
    await block(calls, "tenant", "d")
    await block(calls, "department", "t")
    assert (await calls.reserve("t"))["allowed"]
    assert not (await calls.reserve("d"))["allowed"]
    assert not (await calls.reserve("other"))["allowed"]


async def test_both_pools_and_the_next_month_are_blocked_with_their_department(
    calls: Calls,
) -> None:
    await calls.department("d", monthly_tokens=1_000_000)
    await calls.tenant("p", department_id="d")
    await calls.tenant("q", department_id="d", environment="test")
    await block(calls, "department", "d", 30 * 86_400)
    june = at("2026-06-01T10:00:00")
    for tenant in ("p", "q"):
        assert not (await calls.reserve(tenant))["allowed"]
        assert not (await calls.reserve(tenant, now=june))["allowed"]
        assert (await calls.reserve(tenant, now=at("2026-06-15T10:00:00")))["allowed"]


async def test_the_later_of_two_blocks_is_told(calls: Calls) -> None:
    await world(calls)
    await block(calls, "tenant", "t", 600)
    await block(calls, "department", "d", 900)
    assert (await calls.reserve())["resets_at"] == NOON + timedelta(seconds=900)
    await unblock(calls, "department", "d")
    assert (await calls.reserve())["resets_at"] == NOON + timedelta(seconds=600)


async def test_blocking_again_replaces_the_end(calls: Calls) -> None:
    await world(calls)
    await block(calls)
    changed = await block(calls, seconds=60, by="bob", reason="a mistake")
    assert (changed["outcome"], changed["former_until"]) == ("changed", END)
    row = await calls.reserve()
    assert row["retry_after_seconds"] == 60
    assert "by bob" in row["notice"]
    rows = await calls.rows(
        "SELECT action, changed_by, subject, before IS NULL AS fresh, after ->> 'blocked_by' AS by"
        " FROM quota_limit_changes ORDER BY change_id"
    )
    assert [tuple(one.values()) for one in rows] == [
        ("block", "ann", "t", True, "ann"),
        ("block", "bob", "t", False, "bob"),
    ]


async def test_the_notice_is_in_the_tenants_language_and_zone(calls: Calls) -> None:
    await calls.zone("Asia/Shanghai")
    await calls.tenant(locale="zh-CN")
    await block(calls, reason="密钥泄露")
    notice = (await calls.reserve())["notice"]
    told = "租户已被 ann 停用至 2026-05-15 22:00（Asia/Shanghai），原因：密钥泄露。"  # noqa: RUF001  Chinese marks
    assert notice == f"{told}到时自动恢复。"


async def test_odd_limits_of_an_old_database_can_be_blocked(calls: Calls) -> None:
    constraints = await calls.rows(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'tenant_limits'::regclass"
        " AND contype = 'c' AND pg_get_constraintdef(oid) LIKE '%%daily_cost_cents%%'"
    )
    name = constraints[0]["conname"]
    await calls.conn.execute(f"ALTER TABLE tenant_limits DROP CONSTRAINT {name}")
    await calls.tenant(daily_cost_cents=-5)
    await calls.conn.execute(
        f"ALTER TABLE tenant_limits ADD CONSTRAINT {name} CHECK (daily_cost_cents >= 0) NOT VALID"
    )
    await block(calls)
    assert (await calls.reserve())["limit_name"] == "blocked"


@pytest.mark.parametrize(
    "words",
    [
        {"kind": "budget"},
        {"subject": ""},
        {"subject": "nobody"},
        {"kind": "department", "subject": "nobody"},
        {"seconds": 0},
        {"seconds": 40_000_000},
        {"by": " "},
        {"reason": "a\nb"},
        {"reason": "x" * 201},
    ],
)
async def test_bad_words_are_refused(calls: Calls, words: dict[str, Any]) -> None:
    await calls.tenant()
    assert await sqlstate_of(block(calls, **words)) == "QW002"


@pytest.mark.parametrize(("kind", "subject"), SUBJECTS)
async def test_nobody_is_admitted_after_a_block_beside_them_has_committed(
    dsn: str, kind: str, subject: str
) -> None:
    async with several(dsn, 5) as [first, *gateways]:
        await world(first)
        blocked = asyncio.Event()
        late: list[Row] = []

        async def gateway(calls: Calls) -> None:
            ended = False
            while not ended:
                ended = blocked.is_set()  # before the call: it began after the commit
                row = await calls.reserve()
                if ended and row["allowed"]:
                    late.append(row)

        tasks = [asyncio.create_task(gateway(calls)) for calls in gateways]
        await asyncio.sleep(0.05)
        await block(first, kind, subject)
        blocked.set()
        count = "SELECT count(*) AS n FROM quota_reservations"
        reserved = (await first.row(count))["n"]
        await asyncio.gather(*tasks)
        assert late == []
        # not even those that had begun before
        assert (await first.row(count))["n"] == reserved
        assert reserved > 2


async def test_a_blocks_refusals_are_no_news_of_a_cap(calls: Calls) -> None:
    await world(calls, daily_completions=1000)
    await block(calls)
    await calls.reserve()
    told = await calls.rows("SELECT * FROM quota_warn_untold($1, $1)", NOON)
    assert told == []


async def test_a_lifted_department_is_on_its_short_path_at_once(calls: Calls) -> None:
    await world(calls)
    short = "SELECT bool_and(short AND tokens_ceiling > 0) AS short FROM quota_department_slots"
    before = await calls.row(short)
    await block(calls, "department", "d")
    assert (before, await calls.row(short)) == ({"short": True}, {"short": False})
    await unblock(calls, "department", "d")
    assert await calls.row(short) == before


async def test_both_pools_are_shut_on_their_short_paths(calls: Calls) -> None:
    for environment in ("production", "test"):
        await calls.department("d", environment, monthly_tokens=1_000_000)
        await calls.tenant(environment, department_id="d", environment=environment)
        await calls.reserve(environment)
        await calls.reserve(environment)
    await block(calls, "department", "d")
    for environment in ("production", "test"):
        assert not (await calls.reserve(environment))["allowed"]


async def test_a_block_waits_for_who_is_being_admitted(dsn: str) -> None:
    async with several(dsn, 2) as [operator, gateway]:
        await operator.tenant()
        async with gateway.conn.transaction():
            assert (await gateway.reserve())["allowed"]
            blocking = asyncio.create_task(block(operator))
            done, _ = await asyncio.wait([blocking], timeout=0.2)
            assert not done
        await blocking
        # what the first request has drawn doesn't hold
        assert not (await gateway.reserve())["allowed"]
