"""Planted bugs of the months' roll: what the totals are made of, and what a roll reads."""

from __future__ import annotations

from mutations.planting import bug, killed_by

KINDS = killed_by("test_roll_parts", "test_each_kind_of_request_is_told_by_model_and_app")
CHANGED = killed_by("test_roll_parts", "test_only_days_that_changed_are_read_again")
BESIDE = killed_by(
    "test_roll_parts", "test_what_another_transaction_wrote_during_a_roll_is_read_by_the_next"
)
PLACE = killed_by(
    "test_roll_places", "test_charges_without_a_request_stay_with_the_department_that_made_them"
)
ADJUSTED = killed_by("test_roll_parts", "test_an_adjustment_has_the_requests_model_and_app")
BUDGETS = killed_by(
    "test_roll_parts", "test_budgets_and_topups_are_those_in_force_and_freeze_with_the_month"
)
ROWS = killed_by(
    "test_roll_parts", "test_an_open_month_rolled_bit_by_bit_equals_the_rows", without="legacy"
)

CLOCK = killed_by("test_roll_clocks", "test_a_months_closing_is_noted_by_the_real_clock")

BUGS = [
    bug(
        "every release gave everything back",
        "quota_roll_day.sql",
        "r.ended_at IS NOT NULL AND NOT r.completion_counted",
        "r.state = 'released'",
        KINDS,
    ),
    bug(
        "late usage is stale in the parts",
        "quota_roll_day.sql",
        "count(*) FILTER (WHERE r.state = 'expired' AND NOT r.late\n",
        "count(*) FILTER (WHERE r.state <> 'open'\n",
        KINDS,
    ),
    bug(
        "a day of requests ends at noon",
        "quota_roll_day.sql",
        "quota_day_start(p_day + 2)",
        "quota_day_start(p_day) + interval '12 hours'",
        ROWS,
    ),
    bug(
        "a month's day is read once",
        "quota_roll_parts.sql",
        "u.period < v_next AND age(u.xmin) <= p_age",
        "u.period < v_next AND false",
        CHANGED,
    ),
    bug(
        "what ran during a roll is never read",
        "quota_roll_month.sql",
        "ELSE age(pg_snapshot_xmin(v_seen)::xid) END",
        "ELSE age(pg_snapshot_xmax(v_seen)::xid) END",
        BESIDE,
    ),
    bug(
        "a restored month trusts old ids",
        "quota_roll_month.sql",
        "WHEN pg_snapshot_xmin(v_seen) > pg_snapshot_xmax(pg_current_snapshot())\n",
        "WHEN false\n",
        CHANGED,
    ),
    bug(
        "the curve forgets the requests",
        "quota_roll_parts.sql",
        "coalesce(d.cost_nanos, 0) + coalesce(x.cost_nanos, 0)",
        "coalesce(d.cost_nanos, 0)",
        ROWS,
    ),
    bug(
        "a quiet month's curve loses its requests",
        "quota_roll_parts.sql",
        "coalesce(array_agg(n.day), '{}')",
        "array_agg(n.day)",
        KINDS,
    ),
    bug(
        "a moved tenant takes its old charges along",
        "quota_legacy_place.sql",
        "(1, m.department_id, m.environment)",
        "(1, m.department_now, m.environment_now)",
        PLACE,
    ),
    bug(
        "the day of a move is the new department's",
        "quota_legacy_place.sql",
        "coalesce(u.legacy_input_tokens - b.input_tokens, 0)",
        "0",
        PLACE,
    ),
    bug(
        "a charge without a request notes no place",
        "quota_usage_add.sql",
        "PERFORM quota_legacy_place(ARRAY[p_tenant], p_period);",
        "NULL;",
        PLACE,
    ),
    bug(
        "an adjustment has no model",
        "quota_reservation_post.sql",
        "p_cost_nanos - v_cost, p_now, r.model, r.app)",
        "p_cost_nanos - v_cost, p_now, NULL, r.app)",
        ADJUSTED,
    ),
    bug(
        "a top-up that ended before the month counts",
        "quota_roll_budgets.sql",
        "t.expires_at > quota_day_start(p_month)",
        "t.expires_at >= quota_day_start(p_month)",
        BUDGETS,
    ),
    bug(
        "a closing by a time to come looks like any other",
        "quota_roll_month.sql",
        "CASE WHEN v_closing THEN clock_timestamp() END",
        "CASE WHEN v_closing THEN v_now END",
        CLOCK,
    ),
]
