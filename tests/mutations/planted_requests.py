"""Planted bugs of admission: locks, time, money, caps, the bucket, replays, modes."""

from __future__ import annotations

from datetime import date

from mutations.planting import bug, killed_by

LOCK = "IF pg_advisory_xact_lock(hashtextextended(p_tenant, 1)) IS NULL THEN NULL; END IF;"
CAPS = "test_usage_equal_to_the_cap_refuses_the_next"
SHANGHAI = {"zone": "Asia/Shanghai", "day": date(2026, 12, 31), "session": "America/Los_Angeles"}

BUGS = [
    bug(
        "charge before lock: the first requests race",
        "quota_reserve.sql",
        LOCK,
        "",
        killed_by("test_races", "test_twenty_first_requests_of_a_bucket_of_one"),
        tries=3,
    ),
    bug(
        "settle without the tenant's lock",
        "quota_settle.sql",
        LOCK,
        "",
        killed_by("test_races", "test_a_reserve_races_its_own_settlement"),
        tries=5,
    ),
    bug(
        "no bound on the lock wait",
        "quota_settle.sql",
        "SET lock_timeout = '2s'",
        "SET lock_timeout = '5s'",
        killed_by("test_access", "test_a_held_lock_is_waited_for_two_seconds", function="settle"),
    ),
    bug(
        "reset by the session's time zone",
        "quota_clock.sql",
        "SELECT (p_at AT TIME ZONE quota_zone())::date",
        "SELECT p_at::date",
        killed_by(
            "test_money_and_time",
            "test_days_and_months_end_where_the_billing_zone_ends_them",
            **SHANGHAI,
        ),
    ),
    bug(
        "reset by the session's time zone, short path",
        "quota_reserve.sql",
        "v_day := (v_now AT TIME ZONE quota_zone())::date;",
        "v_day := v_now::date;",
        killed_by(
            "test_money_and_time",
            "test_the_sessions_zone_never_picks_the_day_of_a_charge",
            session="America/Los_Angeles",
        ),
    ),
    bug(
        "a day starts two hours early",
        "quota_clock.sql",
        "interval '2 hours') AT TIME ZONE quota_zone())::date = p_day THEN",
        "interval '2 hours') AT TIME ZONE quota_zone())::date <= p_day THEN",
        killed_by(
            "test_money_and_time",
            "test_the_ledgers_own_day_functions_agree_with_the_model",
            zone="UTC",
            day=date(2026, 2, 28),
        ),
    ),
    bug(
        "the clock of the transaction's start",
        "quota_reserve.sql",
        "v_now := coalesce(p_now, clock_timestamp());",
        "v_now := coalesce(p_now, now());",
        killed_by("test_money_and_time", "test_null_p_now_is_the_clock_not_the_transactions_start"),
    ),
    bug(
        "sub-cent cost dropped",
        "quota_reserve.sql",
        "cost_subcent_nanos   = (u.cost_subcent_nanos + p_cost_nanos) % 10000000,",
        "cost_subcent_nanos   = u.cost_subcent_nanos,",
        killed_by("test_money_and_time", "test_costs_carry_between_cents_and_nanos", cost=1500),
    ),
    bug(
        "sub-cent cost of a settlement rounded",
        "quota_usage_add.sql",
        "AS $$ SELECT ((p_nanos % 10000000) + 10000000) % 10000000 $$;",
        "AS $$ SELECT p_nanos / 1000000 * 1000000 % 10000000 $$;",
        killed_by("test_cases", "test_case_07_a_million_settlements_of_a_tiny_cost"),
    ),
    bug(
        "no carry from nanos to cents",
        "quota_reserve.sql",
        "u.cost_cents + (u.cost_subcent_nanos + p_cost_nanos) / 10000000,",
        "u.cost_cents + p_cost_nanos / 10000000,",
        killed_by(
            "test_money_and_time", "test_costs_carry_between_cents_and_nanos", cost=9_999_999
        ),
    ),
    bug(
        "a ceiling is reached one too late",
        "quota_reserve.sql",
        "u.completions < u.ceiling_completions",
        "u.completions <= u.ceiling_completions",
        killed_by("sql.test_crossings", "test_every_mode_tells", mode="on"),
    ),
    bug(
        "usage equal to the cap passes a request of nothing",
        "quota_caps_judge.sql",
        "WHERE c.used >= c.cap::numeric * c.unit OR c.used + c.estimate",
        "WHERE c.used + c.estimate",
        killed_by(
            "test_reserve",
            CAPS,
            column="daily_tokens",
            reason="daily_tokens_reached",
            unit=(1, 0, 0),
        ),
    ),
    bug(
        "the estimate is not held against the cap",
        "quota_caps_judge.sql",
        "OR c.used + c.estimate > c.cap::numeric * c.unit",
        "",
        killed_by(
            "test_reserve",
            "test_used_plus_estimate_over_the_cap_is_refused",
            column="monthly_tokens",
            reason="monthly_tokens_reached",
            unit=(0, 1, 0),
        ),
    ),
    bug(
        "a monthly cap sees today only",
        "quota_caps_judge.sql",
        "AND u.period >= quota_month(p_day) AND u.period < (quota_month(p_day) + interval '1 month')::date",
        "AND u.period = p_day",
        killed_by("test_reserve", "test_monthly_caps_count_every_day_of_the_month"),
    ),
    bug(
        "a monthly cap resets at midnight",
        "quota_caps_judge.sql",
        "CASE WHEN c.n <= 5 THEN p_day + 1",
        "CASE WHEN c.n <= 8 THEN p_day + 1",
        killed_by(
            "test_reserve",
            CAPS,
            column="monthly_completions",
            reason="monthly_completions_reached",
            unit=(0, 0, 0),
        ),
    ),
    bug(
        "an update of yesterday's row goes unseen",
        "quota_reserve.sql",
        "AND (n.ctid, n.xmin) IS DISTINCT FROM (u.eve_ctid, u.eve_xmin))",
        "AND false)",
        killed_by(
            "test_legacy", "test_an_update_of_a_neighbouring_day_binds_the_month_at_once", offset=-1
        ),
    ),
    bug(
        "a changed limit goes unseen",
        "quota_reserve.sql",
        "AND u.limits_ctid = l.ctid AND u.limits_xmin = l.xmin",
        "",
        killed_by(
            "test_reserve",
            "test_usage_of_111_percent_is_refused_until_the_reset",
            column="daily_completions",
            reason="daily_cap_reached",
            unit=(0, 0, 0),
        ),
    ),
    bug(
        "refusal takes a token",
        "quota_reserve_judge.sql",
        "PERFORM quota_refusal_count(p_tenant, v_day, reason, p_now);",
        "PERFORM quota_bucket_put(p_tenant, v_day, v_live, greatest(v_tokens - 1, 0), v_at);",
        killed_by("test_bucket", "test_a_refusal_takes_no_token"),
    ),
    bug(
        "a refusal writes each time",
        "quota_refusal_count.sql",
        "WHERE c.tenant_id = p_tenant AND c.period = p_period AND c.reason = p_reason;\n\n"
        "    IF v_counter IS NOT NULL THEN",
        "WHERE c.tenant_id = p_tenant AND c.period = p_period AND c.reason = p_reason;\n\n"
        "    IF false THEN",
        killed_by(
            "test_refusals",
            "test_a_storm_of_refusals_takes_no_transaction_ids_and_grows_no_table",
            limits={"daily_completions": 0},
            reason="daily_cap_reached",
        ),
    ),
    bug(
        "the bucket's time goes back",
        "quota_reserve.sql",
        "bucket_at            = greatest(u.bucket_at, v_now)",
        "bucket_at            = v_now",
        killed_by("test_bucket", "test_an_admission_by_a_clock_behind_moves_no_time_back"),
    ),
    bug(
        "the bucket overflows its capacity",
        "quota_reserve_judge.sql",
        "v_tokens := greatest(least(l.bucket_capacity, coalesce(",
        "v_tokens := greatest(least(1e9, coalesce(",
        killed_by("test_bucket", "test_a_lower_capacity_counts_at_once"),
    ),
    bug(
        "a new day is a new bucket",
        "quota_reserve_judge.sql",
        "WHERE u.tenant_id = p_tenant AND u.bucket_tokens IS NOT NULL\n",
        "WHERE u.tenant_id = p_tenant AND u.bucket_tokens IS NOT NULL AND u.period = v_day\n",
        killed_by("test_bucket", "test_the_bucket_carries_over_midnight"),
    ),
    bug(
        "an observed tenant runs up a debt of tokens",
        "quota_reserve_judge.sql",
        "CASE WHEN v_token THEN greatest(v_tokens - 1, 0) ELSE v_tokens END",
        "v_tokens - 1",
        killed_by("test_modes", "test_switching_on_meets_no_debt_of_tokens"),
    ),
    bug(
        "observe refuses",
        "quota_reserve_judge.sql",
        "IF reason <> 'ok' THEN\n            IF l.enforce = 'on' THEN",
        "IF reason <> 'ok' THEN\n            IF l.enforce <> 'off' THEN",
        killed_by(
            "test_modes",
            "test_an_observed_tenant_passes_and_is_told",
            limits={"daily_completions": 0},
            budget=None,
            observed="daily_cap_reached",
        ),
    ),
    bug(
        "observe downgrades",
        "quota_reserve_judge.sql",
        "IF d.tier IN (2, 3) AND l.enforce = 'on'",
        "IF d.tier IN (2, 3)",
        killed_by("test_modes", "test_observing_leaves_the_model_alone_in_every_tier", used=900),
    ),
    bug(
        "a replay is charged again",
        "quota_reserve.sql",
        "AND NOT EXISTS (SELECT FROM quota_reservations r"
        " WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id)",
        "",
        killed_by("test_cases", "test_case_06_one_request_id_twice"),
    ),
    bug(
        "a replay with another model passes",
        "quota_reserve_judge.sql",
        "IS NOT DISTINCT FROM (p_in_tokens, p_out_tokens, p_cost_nanos, p_model)",
        "IS NOT DISTINCT FROM (p_in_tokens, p_out_tokens, p_cost_nanos, r.requested_model)",
        killed_by(
            "test_reserve",
            "test_the_same_id_with_other_figures_conflicts",
            other={"model": "small"},
        ),
    ),
    bug(
        "control characters pass",
        "quota_request_fault.sql",
        "WHEN p_id ~ '[\\u0001-\\u001f\\u007f-\\u009f]' THEN 'has control characters'",
        "",
        killed_by("test_bad_input", "test_ids_that_are_no_ids", name="a\nb"),
    ),
    bug(
        "negative amounts pass",
        "quota_request_fault.sql",
        "WHEN p_in_tokens < 0 OR p_out_tokens < 0 OR p_cost_nanos < 0 THEN 'an amount is negative'",
        "",
        killed_by("test_bad_input", "test_amounts_out_of_bounds", amounts=(0, 0, -1)),
    ),
    bug(
        "a direct write is booked for ever",
        "quota_book_legacy.sql",
        "booked_input_tokens  = u.booked_input_tokens + f.i,",
        "",
        killed_by(
            "test_legacy",
            "test_a_direct_update_reaches_the_department_with_the_next_reconcile",
        ),
    ),
]
