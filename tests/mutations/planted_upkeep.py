"""Planted bugs of upkeep: something is removed that somebody still needs, or said wrongly afterwards."""

from __future__ import annotations

from mutations.planting import bug, killed_by

RULE = "quota_upkeep_rule.sql"
BOUNDS = "quota_upkeep_bounds.sql"
UPKEEP = "quota_upkeep.sql"
MONTH = killed_by("test_upkeep", "test_requests_go_with_their_month_and_a_late_end_stays")
STUCK = killed_by("test_upkeep", "test_a_month_that_is_not_closed_keeps_all_that_come_after_it")
KEPT = killed_by("test_upkeep", "test_what_waits_for_a_price_and_impossible_rows_stay")
OUTBOX = killed_by("test_upkeep_tables", "test_of_the_outbox_only_what_nobody_waits_for")
RUNS = killed_by(
    "test_upkeep_tables", "test_of_each_job_the_last_hundred_runs_and_the_last_done_one_stay"
)
ALERTS = killed_by(
    "test_upkeep_tables", "test_the_log_of_crossings_keeps_open_periods_and_other_programs_rows"
)
NOTES = killed_by("test_upkeep_tables", "test_inbox_refusals_and_notes_go_by_age")
LEDGER = killed_by("test_upkeep_ledger", "test_a_ledger_months_later_says_what_it_said", seed=0)

BUGS = [
    bug(
        "an open month's requests are removed",
        BOUNDS,
        "least(k.kept, k.closed + interval '1 month')::date - 3",
        "quota_day(t.until)",
        MONTH,
    ),
    bug(
        "a month goes that is younger than one that isn't closed",
        BOUNDS,
        "least(k.kept, k.closed + interval '1 month')",
        "(k.closed + interval '1 month')",
        STUCK,
    ),
    bug(
        "a month's last days go before the next month may",
        BOUNDS,
        "interval '1 month')::date - 3) AS day",
        "interval '1 month')::date) AS day",
        MONTH,
    ),
    bug(
        "a request is forgotten 40 days after its admission",
        RULE,
        "s.ended_at < ($4).waiting_until",
        "s.admitted_at < ($4).waiting_until",
        killed_by("test_upkeep", "test_a_request_that_ended_late_is_remembered_for_forty_days"),
    ),
    bug(
        "usage that waits in the inbox loses its request",
        RULE,
        "s.ended_at < ($4).waiting_until",
        "s.ended_at < ($4).until",
        killed_by("test_upkeep", "test_usage_that_waits_keeps_the_request_it_may_belong_to"),
    ),
    bug("what waits for a price is removed", RULE, "AND NOT s.unpriced AND num", "AND num", KEPT),
    bug(
        "an impossible row is swept under the carpet",
        RULE,
        "s.state IN ('settled', 'released', 'expired') AND",
        "s.state <> 'open' AND",
        KEPT,
    ),
    bug(
        "a dead message that nobody acknowledged is removed",
        RULE,
        "OR s.state = 'dead' AND s.acked_at IS NOT NULL)",
        "OR s.state = 'dead')",
        OUTBOX,
    ),
    bug(
        "a line for the next digest is removed",
        RULE,
        "s.state = 'stale' AND NOT s.digest_only",
        "s.state = 'stale'",
        OUTBOX,
    ),
    bug(
        "a message is removed whose failure is still to be told",
        RULE,
        "f.state IN ('pending', 'sending', 'dead', 'stale')",
        "f.state IN ('sent')",
        OUTBOX,
    ),
    bug(
        "other programs' rows in the log are removed",
        RULE,
        "s.subject_kind IS NOT NULL AND s.period_start",
        "s.period_start",
        ALERTS,
    ),
    bug(
        "a crossing of a month is forgotten by the month's begin",
        RULE,
        "s.period_start < quota_month(quota_day(($4).until))",
        "s.period_start < quota_day(($4).until)",
        ALERTS,
    ),
    bug("the last hundred runs aren't kept", RULE, "OFFSET 99 LIMIT 1", "OFFSET 9 LIMIT 1", RUNS),
    bug(
        "when a failing job was last done is forgotten",
        RULE,
        "d.job = s.job AND d.outcome = 'done'",
        "d.job = s.job",
        RUNS,
    ),
    bug(
        "a storm's count is removed with its sequence",
        RULE,
        "s.counter IS NULL AND s.period",
        "s.period",
        NOTES,
    ),
    bug(
        "usage that waits is removed",
        RULE,
        "s.booked_at < ($4).until AND s.received_at",
        "s.received_at",
        NOTES,
    ),
    bug(
        "a time to come removes more",
        BOUNDS,
        "least(coalesce(p_now, clock_timestamp()), clock_timestamp()) AS at",
        "coalesce(p_now, clock_timestamp()) AS at",
        killed_by("test_upkeep", "test_a_time_to_come_removes_nothing_more_than_the_present"),
    ),
    bug(
        "a request is taken from under a correction",
        UPKEEP,
        "v_tenants := quota_lock_who_is_free(v_tenants);",
        "",
        killed_by(
            "test_upkeep", "test_tenants_that_are_at_work_are_passed_over_until_a_later_walk"
        ),
    ),
    bug(
        "what was passed over is never looked at again",
        UPKEEP,
        "done AND v_rule.monthly AND v_walk.passed_over = 0",
        "done AND v_rule.monthly",
        killed_by(
            "test_upkeep", "test_tenants_that_are_at_work_are_passed_over_until_a_later_walk"
        ),
    ),
    bug(
        "rows behind a full batch are left",
        UPKEEP,
        "IF cardinality(v_places) = p_limit THEN",
        "IF false THEN",
        killed_by("test_upkeep", "test_batches_go_on_where_the_last_one_stopped", blocks=60),
    ),
    bug(
        "usage ids outlive their request",
        UPKEEP,
        "WHERE d.tenant_id = g.tenant_id AND d.request_id = g.request_id)",
        "WHERE false)",
        killed_by(
            "test_upkeep",
            "test_usage_ids_go_with_their_request_and_what_comes_after_is_unreserved",
        ),
    ),
    bug(
        "the audit takes removed requests for a drift",
        "quota_audit_requests.sql",
        "m.month = p_month AND m.requests_removed_at IS NOT NULL)",
        "m.month = p_month AND m.requests_removed_at IS NULL AND false)",
        LEDGER,
    ),
    bug(
        "a month isn't marked before its requests go",
        UPKEEP,
        "AND m.month = ANY (v_bounds.months) AND v_tenants <> '{}'",
        "AND false",
        LEDGER,
    ),
]
