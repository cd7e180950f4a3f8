"""Planted bugs of departments, top-ups, and batches."""

from __future__ import annotations

from mutations.planting import bug, killed_by

THIRTY = "test_twenty_tenants_of_one_department_on_thirty_connections"
TIERS = "test_tiers_by_the_higher_of_tokens_and_cost"
WORLDS = killed_by("test_batch_equivalence", "some_worlds_agree")

BUGS = [
    bug(
        "a threshold is passed, not reached",
        "quota_department.sql",
        "p_tokens * 100 >= p_budget_tokens * p_pct",
        "p_tokens * 100 > p_budget_tokens * p_pct",
        killed_by(
            "test_departments",
            TIERS,
            used=900,
            tier="downgrade",
            priority="normal",
            model="small",
            reason="ok",
            dimension="tokens",
        ),
    ),
    bug(
        "cost makes no tier",
        "quota_department.sql",
        "OR coalesce(p_cost_nanos * 100 >= p_budget_cost_nanos * p_pct, false)",
        "",
        killed_by(
            "test_departments",
            TIERS,
            used=980,
            tier="protected",
            priority="high",
            model="small",
            reason="ok",
            dimension="cost",
        ),
    ),
    bug(
        "normal priority passes when protected",
        "quota_reserve_judge.sql",
        "p_tier = 3 AND p_priority <> 'high'",
        "p_tier = 3 AND p_priority = 'low'",
        killed_by(
            "test_departments",
            TIERS,
            used=980,
            tier="protected",
            priority="normal",
            model=None,
            reason="department_protected",
            dimension="tokens",
        ),
    ),
    bug(
        "what no longer fits is admitted",
        "quota_reserve_judge.sql",
        "ELSIF p_tokens_used + p_tokens > p_budget_tokens OR",
        "ELSIF p_tokens_used > p_budget_tokens OR",
        killed_by(
            "test_departments", "test_an_estimate_that_no_longer_fits_is_refused_in_any_tier"
        ),
    ),
    bug(
        "no model at all is an allowed one",
        "quota_reserve_judge.sql",
        "(p_model IS NULL OR p_model <> ALL (p_allowed_models))",
        "p_model <> ALL (p_allowed_models)",
        killed_by(
            "test_departments",
            "test_allowed_models",
            allowed=["big"],
            model=None,
            reason="model_not_allowed",
        ),
    ),
    bug(
        "every model is downgraded",
        "quota_reserve_judge.sql",
        "AND (d.downgrade_from IS NULL OR p_model = ANY (d.downgrade_from)) THEN",
        "THEN",
        killed_by(
            "test_departments",
            "test_which_models_are_downgraded",
            downgrade_from=["big"],
            model="other",
            answered="other",
        ),
    ),
    bug(
        "notices in English only",
        "quota_notice.sql",
        "WHEN p_locale = 'zh-CN' THEN",
        "WHEN p_locale = 'xx' THEN",
        killed_by("test_departments", "test_notices_speak_the_tenants_language"),
    ),
    bug(
        "a top-up turns no budget into a limit",
        "quota_department.sql",
        "budget_tokens := base_tokens + v_topup_tokens;",
        "budget_tokens := coalesce(base_tokens, 0) + v_topup_tokens;",
        killed_by("test_departments", "test_a_top_up_never_limits_an_unlimited_pool"),
    ),
    bug(
        "a top-up never ends",
        "quota_department.sql",
        "coalesce(sum(t.tokens) FILTER (WHERE t.valid_from <= p_now AND p_now < t.expires_at), 0)",
        "coalesce(sum(t.tokens) FILTER (WHERE t.valid_from <= p_now), 0)",
        killed_by("test_departments", "test_a_top_up_counts_within_its_window"),
    ),
    bug(
        "a band outlives its top-up",
        "quota_department.sql",
        "band_until              = d.valid_until,",
        "band_until              = 'infinity',",
        killed_by("test_departments", "test_a_top_up_counts_within_its_window"),
    ),
    bug(
        "each slot gets the whole room",
        "quota_department.sql",
        "v_up_t := coalesce(floor((ceil(d.budget_tokens * v_up_t / 100) - 1 - d.tokens_used) / 16),",
        "v_up_t := coalesce(floor((ceil(d.budget_tokens * v_up_t / 100) - 1 - d.tokens_used) / 1),",
        killed_by("test_races", THIRTY, dimension="tokens"),
        tries=5,
    ),
    bug(
        "a changed budget goes unseen",
        "quota_reserve.sql",
        "AND s.budget_ctid IS NOT DISTINCT FROM b.ctid AND s.budget_xmin IS NOT DISTINCT FROM b.xmin",
        "",
        killed_by("test_departments", "test_a_lower_budget_counts_at_once"),
    ),
    bug(
        "a slot is booked past its band",
        "quota_department.sql",
        "AND s.tokens_used + p_tokens BETWEEN s.tokens_floor AND s.tokens_ceiling",
        "",
        killed_by("test_departments", "test_late_usage_moves_the_tier_for_every_session"),
    ),
    bug(
        "another top-up under the same key passes for the same",
        "quota_topup.sql",
        "IF outcome = 'conflict' THEN",
        "IF false THEN",
        killed_by(
            "test_departments", "test_the_same_key_adds_once_and_conflicts_with_other_values"
        ),
    ),
    bug(
        "a batch charges an id as often as it is named",
        "quota_reserve_batch.sql",
        "GROUP BY q.tenant, q.request_id) f",
        "GROUP BY q.tenant, q.request_id, q.ordinal) f",
        killed_by("test_batches", "test_a_repeated_id_inside_a_batch_that_fits"),
    ),
    bug(
        "a batch draws one token for all",
        "quota_batch_charge.sql",
        "* greatest(date_part('epoch', p_now - u.bucket_at), 0)) >= a.n",
        "* greatest(date_part('epoch', p_now - u.bucket_at), 0)) >= 1",
        killed_by("test_batches", "test_a_batch_meets_a_cap_or_an_empty_bucket_in_its_middle"),
    ),
    bug(
        "a batch passes the cap together",
        "quota_batch_charge.sql",
        "AND u.completions <= u.ceiling_completions - a.n",
        "AND u.completions < u.ceiling_completions",
        killed_by("test_batches", "test_a_batch_meets_a_cap_or_an_empty_bucket_in_its_middle"),
    ),
    bug(
        "a batch charges a known id once more",
        "quota_reserve_batch.sql",
        "WHERE NOT EXISTS (SELECT FROM quota_reservations r WHERE",
        "WHERE true OR EXISTS (SELECT FROM quota_reservations r WHERE",
        killed_by("test_batches", "test_a_known_id_inside_a_batch_that_fits"),
    ),
    bug(
        "a batch charges, undoes it for an id that isn't new, and goes on to the department",
        "quota_reserve_batch.sql",
        "    IF v_new <> '{}' THEN\n",
        """    BEGIN
        PERFORM quota_batch_charge(v_all[1:1], v_now);
        RAISE EXCEPTION USING ERRCODE = 'QW000';
    EXCEPTION WHEN SQLSTATE 'QW000' THEN
        PERFORM quota_department_lock('d', 'production', quota_month(quota_day(v_now)));
    END;
    IF v_new <> '{}' THEN
""",
        killed_by(
            "test_batch_locks",
            "test_a_batch_with_a_repeated_id_deadlocks_no_top_up",
            again="known",
        ),
    ),
    bug(
        "a batch looks for a tenant's limits once more when it charges",
        "quota_batch_charge.sql",
        "JOIN unnest(g.limits) l ON",
        "JOIN tenant_limits l ON",
        killed_by(
            "test_batch_locks",
            "test_a_tenant_that_goes_amid_a_batch_is_charged_for_what_it_got",
        ),
    ),
    bug(
        "a batch judges a tenant in a department that it hasn't locked",
        "quota_reserve_batch.sql",
        "FROM quota_reserve_judge(w.limits, q.tenant",
        "FROM quota_reserve_judge((SELECT l FROM tenant_limits l WHERE l.tenant_id = q.tenant), q.tenant",
        killed_by(
            "test_batch_locks",
            "test_a_tenant_that_moves_amid_a_batch_brings_no_department_out_of_order",
        ),
    ),
    bug(
        "a batch ignores the department's band",
        "quota_batch_charge.sql",
        "AND s.tokens_used + k.tokens <= s.tokens_ceiling",
        "",
        killed_by("test_batches", "test_a_batch_crosses_the_thresholds_in_its_middle"),
    ),
    bug(
        "a batch forgets what is held",
        "quota_batch_charge.sql",
        "held_output_tokens   = u.held_output_tokens + t.o,",
        "",
        WORLDS,
    ),
]
