"""Planted bugs of blocks and of limits that commands change."""

from __future__ import annotations

from mutations.planting import bug, killed_by

ENDS = "test_a_block_refuses_until_its_time_and_no_longer"
TENANT = {"kind": "tenant", "subject": "t"}
DEPARTMENT = {"kind": "department", "subject": "d"}
BLOCK = "quota_limits_block.sql"
REFUSAL = "quota_block_refusal.sql"

BUGS = [
    bug(
        "a block doesn't end",
        REFUSAL,
        "      AND k.blocked_until > p_now\n    ORDER",
        "    ORDER",
        killed_by("test_blocks", ENDS, **TENANT),
    ),
    bug(
        "a block ends a moment late",
        REFUSAL,
        "      AND k.blocked_until > p_now\n    ORDER",
        "      AND k.blocked_until >= p_now\n    ORDER",
        killed_by("test_blocks", ENDS, **TENANT),
    ),
    bug(
        "a blocked tenant's ceilings still hold",
        BLOCK,
        "UPDATE quota_usage u SET limits_ctid = NULL, limits_xmin = NULL",
        "UPDATE quota_usage u SET eve_ctid = u.eve_ctid",
        killed_by("test_blocks", ENDS, **TENANT),
    ),
    bug(
        "a blocked department's slots still have room",
        "quota_department.sql",
        "v_blocked boolean := quota_department_blocked(p_department, p_now);",
        "v_blocked boolean := false;",
        killed_by("test_blocks", ENDS, **DEPARTMENT),
    ),
    bug(
        "settling opens a blocked department's slots",
        "quota_department.sql",
        "v_blocked boolean := quota_department_blocked(p_department, p_now);",
        "v_blocked boolean := quota_department_blocked(p_department, p_now) AND p_tokens = 0;",
        killed_by("test_blocks", "test_what_is_open_goes_on", **DEPARTMENT),
    ),
    bug(
        "a tenant is blocked beside its lock",
        BLOCK,
        "PERFORM pg_advisory_xact_lock(hashtextextended(p_subject, 1));",
        "",
        killed_by("test_blocks", "test_a_block_waits_for_who_is_being_admitted"),
    ),
    bug(
        "a lifted department block leaves the slots shut",
        "quota_limits_unblock.sql",
        "    PERFORM quota_limits_free(p_kind, p_subject, v_now);\n",
        "",
        killed_by("test_blocks", "test_a_lifted_department_is_on_its_short_path_at_once"),
    ),
    bug(
        "a block of a tenant stops the department of that name",
        REFUSAL,
        "(k.subject_kind = 'tenant' AND k.subject = p_tenant OR k.subject_kind = 'department' AND k.subject = p_department)",
        "k.subject IN (p_tenant, p_department)",
        killed_by("test_blocks", "test_blocks_of_others_say_nothing"),
    ),
    bug(
        "a block is a cap's refusal",
        "quota_reserve_judge.sql",
        "PERFORM quota_refusal_count(p_tenant, v_day, 'blocked', p_now);",
        "PERFORM quota_refusal_count(p_tenant, v_day, reason, p_now);",
        killed_by("test_blocks", "test_a_blocks_refusals_are_no_news_of_a_cap"),
    ),
    bug(
        "observed tenants pass a block",
        "quota_reserve_judge.sql",
        "            IF FOUND THEN\n                model := p_model;",
        "            IF FOUND AND l.enforce = 'on' THEN\n                model := p_model;",
        killed_by(
            "test_blocks",
            "test_a_block_holds_in_every_mode_and_every_function",
            enforce="observe",
            **TENANT,
        ),
    ),
    bug(
        "a storm of a cap's refusals hides a block",
        "quota_refuse_short.sql",
        "AND (u.limits_ctid IS NOT NULL OR NOT quota_tenant_blocked(p_tenant, p_now))",
        "",
        killed_by("test_blocks", "test_a_tenant_that_was_refused_by_a_cap_hears_of_the_block"),
    ),
    bug(
        "only the earliest of two blocks counts",
        REFUSAL,
        "ORDER BY k.blocked_until DESC",
        "ORDER BY k.blocked_until",
        killed_by("test_blocks", "test_the_later_of_two_blocks_is_told"),
    ),
    bug(
        "only the production pool is blocked",
        BLOCK,
        "WHERE s.department_id = p_department AND s.month >= quota_month(quota_day(p_now) - 2)",
        "WHERE s.department_id = p_department AND s.environment = 'production'",
        killed_by("test_blocks", "test_both_pools_are_shut_on_their_short_paths"),
    ),
    bug(
        "a direct change isn't noticed",
        "quota_limits_note.sql",
        "quota_limits_differ(v_last, p_before)",
        "false",
        killed_by(
            "acceptance.test_limits", "test_what_was_changed_by_sql_is_told_and_recorded_once"
        ),
    ),
    bug(
        "two applies at once",
        "quota_limits_put.sql",
        "PERFORM pg_advisory_xact_lock(hashtextextended('quota_limits', 2));",
        "",
        killed_by("acceptance.test_limits", "test_two_applies_wait_for_each_other"),
    ),
]
