"""Planted bugs of usage sources: what is settled, for how much, and who is asked when."""

from __future__ import annotations

from mutations.planting import bug, killed_by

FUNCTIONS = "contract.test_sources_functions"
COSTS = killed_by(FUNCTIONS, "test_costs_are_converted_exactly_by_the_requests_day")
ELSEWHERE = killed_by(FUNCTIONS, "test_usage_from_elsewhere_stays_and_a_guess_does_not")
NEXT = killed_by(FUNCTIONS, "test_who_is_asked_for_next")
SLOTS = killed_by(FUNCTIONS, "test_slots_lie_apart_and_a_clock_that_went_back_blocks_nobody")
BOUNDED = killed_by(FUNCTIONS, "test_what_was_set_aside_is_bounded")

BUGS = [
    bug(
        "a source's answer replaces usage that came meanwhile",
        "quota_source_settle.sql",
        "WHEN (r.ended_at IS NULL OR r.usage_missing) IS NOT TRUE OR r.tenant_id IS NULL THEN 'overtaken' END",
        "WHEN r.tenant_id IS NULL THEN 'overtaken' END",
        ELSEWHERE,
    ),
    bug(
        "a source's answer comes too late for what has expired",
        "quota_source_settle.sql",
        "(r.ended_at IS NULL OR r.usage_missing) IS NOT TRUE",
        "(r.ended_at IS NULL) IS NOT TRUE",
        ELSEWHERE,
    ),
    bug(
        "a source's answer about nobody's request is charged",
        "quota_source_settle.sql",
        "WHEN (r.ended_at IS NULL OR r.usage_missing) IS NOT TRUE OR r.tenant_id IS NULL THEN 'overtaken' END",
        "WHEN r.ended_at IS NOT NULL AND NOT r.usage_missing THEN 'overtaken' END",
        ELSEWHERE,
    ),
    bug(
        "a cost is converted by today's rate",
        "quota_source_settle.sql",
        "ORDER BY q.valid_from DESC LIMIT 1",
        "ORDER BY q.valid_from LIMIT 1",
        COSTS,
    ),
    bug(
        "a rate of the future counts",
        "quota_source_settle.sql",
        "AND q.valid_from <= p_day ",
        "",
        COSTS,
    ),
    bug(
        "a cost without a rate is the largest there is",
        "quota_source_settle.sql",
        "CASE WHEN v_rate IS NOT NULL THEN least(round(p_cost * v_rate * 1000000000), 8000000000000000000)::bigint END",
        "least(round(p_cost * v_rate * 1000000000), 8000000000000000000)::bigint",
        COSTS,
    ),
    bug(
        "a source's cost is cut to whole nanos",
        "quota_source_settle.sql",
        "round(p_cost",
        "trunc(p_cost",
        COSTS,
    ),
    bug(
        "the oldest are asked for first",
        "quota_source_due.sql",
        "ORDER BY r.expires_at DESC LIMIT",
        "ORDER BY r.expires_at LIMIT",
        NEXT,
    ),
    bug(
        "a source is asked twice in one run",
        "quota_source_due.sql",
        "WHERE a.asked_at < p_since AND",
        "WHERE a.asked_at <= p_since AND",
        NEXT,
    ),
    bug(
        "a source is asked for what has ended",
        "quota_source_due.sql",
        "a.asked_at < p_since AND r.ended_at IS NULL AND",
        "a.asked_at < p_since AND",
        NEXT,
    ),
    bug(
        "notes on open requests are cleared",
        "quota_source_begin.sql",
        " AND r.ended_at IS NULL)",
        " AND r.ended_at IS NULL AND false)",
        NEXT,
    ),
    bug(
        "a slot that wasn't granted counts",
        "quota_source_slot.sql",
        "        RETURN NULL;",
        "        v_next := NULL;",
        SLOTS,
    ),
    bug(
        "a clock that went back blocks a source",
        "quota_source_slot.sql",
        " OR v_next > v_now + interval '1 minute'",
        "",
        SLOTS,
    ),
    bug(
        "what is set aside grows without end",
        "quota_source_begin.sql",
        "ORDER BY f.seen_at DESC OFFSET c_keep",
        "ORDER BY f.seen_at OFFSET c_keep",
        BOUNDED,
    ),
]
