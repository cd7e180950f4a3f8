"""Planted bugs of endings: settle, correct, release, progress, expire."""

from __future__ import annotations

from mutations.planting import bug, killed_by

LATER = "test_later_usage_replaces_the_charge_on_the_day_of_admission"
PARTIAL = {"policy": "partial", "streamed": 20, "charged": (1, 100, 20, 1200)}

BUGS = [
    bug(
        "late usage added instead of replacing",
        "quota_reservation_post.sql",
        "v_in   bigint := CASE WHEN v_open THEN r.estimated_in_tokens ELSE r.charged_in_tokens END;",
        "v_in   bigint := CASE WHEN v_open THEN r.estimated_in_tokens ELSE 0 END;",
        killed_by("test_settle", LATER, end="settle", usage_id="u1"),
    ),
    bug(
        "late cost added instead of replacing",
        "quota_reservation_post.sql",
        "THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END;\n    v_held",
        "THEN r.estimated_cost_nanos ELSE 0 END;\n    v_held",
        killed_by("test_settle", LATER, end="expire", usage_id=None),
    ),
    bug(
        "hold not released on settle",
        "quota_settle.sql",
        "-v_in, -v_out, -v_cost, false);",
        "0, 0, 0, false);",
        killed_by("test_settle", "test_the_first_end_posts_what_was_used", figures=(10, 5, 100)),
    ),
    bug(
        "the department's hold not released on settle",
        "quota_settle.sql",
        "-v_in - v_out, -v_cost);",
        "0, 0);",
        killed_by("test_departments", "test_a_moved_tenants_open_requests_end_where_they_began"),
    ),
    bug(
        "hold not released on expiry",
        "quota_expire_overdue.sql",
        "greatest(u.held_input_tokens - d.ei, 0)",
        "u.held_input_tokens",
        killed_by(
            "test_cases",
            "test_case_01_killed_callers_are_expired_by_one_run",
            policy="estimate",
        ),
    ),
    bug(
        "the department's hold not released on expiry",
        "quota_expire_overdue.sql",
        "-sum(e.ei + e.eo), -sum(e.ec))::quota_booking",
        "0, 0)::quota_booking",
        killed_by("test_release_progress_expire", "test_stale_policies", **PARTIAL),
    ),
    bug(
        "double release",
        "quota_release.sql",
        "IF r.state <> 'open' THEN",
        "IF r.state NOT IN ('open', 'released') THEN",
        killed_by("test_release_progress_expire", "test_a_second_release_changes_nothing"),
    ),
    bug(
        "a release after the end",
        "quota_release.sql",
        "IF r.state <> 'open' THEN",
        "IF r.state NOT IN ('open', 'expired') THEN",
        killed_by(
            "test_release_progress_expire",
            "test_a_release_after_another_end_is_too_late",
            end="expire",
        ),
    ),
    bug(
        "a release keeps the completion",
        "quota_release.sql",
        "v_in, v_out, v_cost, v_used, v_now);",
        "v_in, v_out, v_cost, true, v_now);",
        killed_by(
            "test_release_progress_expire", "test_a_release_without_usage_gives_everything_back"
        ),
    ),
    bug(
        "a release keeps the token",
        "quota_release.sql",
        "IF NOT v_used AND r.token_taken THEN",
        "IF false THEN",
        killed_by("test_bucket", "test_a_release_gives_its_token_back_once"),
    ),
    bug(
        "a release with usage gives the token back",
        "quota_release.sql",
        "IF NOT v_used AND r.token_taken THEN",
        "IF r.token_taken THEN",
        killed_by("test_bucket", "test_a_release_with_usage_gives_no_token_back"),
    ),
    bug(
        "a release ignores the progress",
        "quota_release.sql",
        "IF r.progress_out_tokens > p_out_tokens THEN",
        "IF false THEN",
        killed_by("test_release_progress_expire", "test_a_release_is_never_less_than_the_progress"),
    ),
    bug(
        "early expiry",
        "quota_expire_overdue.sql",
        "quota_now(p_now) - make_interval(secs => p_wait_seconds)",
        "quota_now(p_now) + interval '1 minute'",
        killed_by("test_release_progress_expire", "test_nothing_ends_early"),
    ),
    bug(
        "expiry in any order",
        "quota_expire_overdue.sql",
        "ORDER BY r.expires_at LIMIT p_limit) q;",
        "ORDER BY r.request_id LIMIT p_limit) q;",
        killed_by(
            "test_release_progress_expire", "test_the_oldest_end_first_and_no_more_than_asked_for"
        ),
    ),
    bug(
        "batches of expiry mix the tenants",
        "quota_expire_overdue.sql",
        "(ORDER BY w.department_id, w.environment, w.tenant_id, w.place)",
        "(ORDER BY w.expires_at)",
        killed_by("test_expiry_places", "test_batches_are_of_few_tenants_and_of_the_oldest"),
    ),
    bug(
        "expiry without the state's recheck ends the settled once more",
        "quota_expire_overdue.sql",
        "r.ctid = ANY (p_places) AND r.tenant_id = d.tenant_id AND r.ended_at IS NULL"
        " AND r.expires_at <= p_until",
        "r.ctid = ANY (p_places) AND r.tenant_id = d.tenant_id",
        killed_by("test_expiry_places", "test_a_place_that_changed_hands_ends_only_what_is_due"),
    ),
    bug(
        "partial charges the estimated output",
        "quota_expire_overdue.sql",
        "WHEN 'partial' THEN r.progress_out_tokens",
        "WHEN 'partial' THEN r.estimated_out_tokens",
        killed_by("test_release_progress_expire", "test_stale_policies", **PARTIAL),
    ),
    bug(
        "a partial cost is rounded down",
        "quota_settle_judge.sql",
        "div(p_cost_nanos * p_part + p_whole - 1, p_whole)",
        "div(p_cost_nanos * p_part, p_whole)",
        killed_by("test_release_progress_expire", "test_a_partial_cost_is_rounded_up"),
    ),
    bug(
        "the policy release keeps the completion",
        "quota_expire_overdue.sql",
        "completion_counted = d.policy <> 'release',",
        "",
        killed_by(
            "test_release_progress_expire",
            "test_stale_policies",
            policy="release",
            streamed=0,
            charged=(0, 0, 0, 0),
        ),
    ),
    bug(
        "progress without an end",
        "quota_progress.sql",
        "interval '60 minutes'",
        "interval '600 minutes'",
        killed_by(
            "test_release_progress_expire",
            "test_progress_reaches_sixty_minutes_after_admission_at_most",
        ),
    ),
    bug(
        "progress moves the expiry backwards",
        "quota_progress.sql",
        "expires_at = greatest(r.expires_at, least(",
        "expires_at = greatest('-infinity', least(",
        killed_by("test_release_progress_expire", "test_progress_by_a_clock_behind_never_shortens"),
    ),
    bug(
        "progress keeps the last, not the greatest",
        "quota_progress.sql",
        "greatest(r.progress_out_tokens, p_out_tokens)",
        "p_out_tokens",
        killed_by(
            "test_release_progress_expire",
            "test_progress_extends_by_the_ttl_and_keeps_the_greatest",
        ),
    ),
    bug(
        "a settlement belongs to the day of its answer",
        "quota_settle.sql",
        "PERFORM quota_usage_add(p_tenant, v_day, 0, p_in_tokens - v_in",
        "PERFORM quota_usage_add(p_tenant, quota_day(v_now), 0, p_in_tokens - v_in",
        killed_by(
            "test_money_and_time",
            "test_a_settlement_after_midnight_belongs_to_the_day_of_admission",
        ),
    ),
    bug(
        "a settlement follows the tenant to its new department",
        "quota_settle.sql",
        "RETURNING r.period, r.department_id, r.environment,",
        "RETURNING r.period, (SELECT l.department_id FROM tenant_limits l"
        " WHERE l.tenant_id = r.tenant_id), r.environment,",
        killed_by("test_departments", "test_a_moved_tenants_open_requests_end_where_they_began"),
    ),
    bug(
        "only the last usage id is remembered",
        "quota_settle_judge.sql",
        "IF r.usage_id IS NOT NULL AND p_usage_id IS DISTINCT FROM r.usage_id THEN",
        "IF false THEN",
        killed_by("test_settle", "test_a_known_usage_id_replays_whatever_came_since"),
    ),
    bug(
        "a conflicting usage id corrects",
        "quota_settle_judge.sql",
        "ELSIF v_seen AND s.i IS NOT NULL\n",
        "ELSIF false AND s.i IS NOT NULL\n",
        killed_by(
            "test_settle",
            "test_other_figures_under_a_known_usage_id_conflict",
            usage_id="u1",
        ),
    ),
    bug(
        "no figures charge zero",
        "quota_settle_judge.sql",
        "in_tokens := r.estimated_in_tokens;",
        "in_tokens := 0;",
        killed_by("test_cases", "test_case_11_no_figures_never_charge_zero"),
    ),
    bug(
        "a correction after a release leaves the completion out",
        "quota_settle_judge.sql",
        "in_tokens, out_tokens, cost_nanos, true, p_now);",
        "in_tokens, out_tokens, cost_nanos, r.completion_counted, p_now);",
        killed_by("test_settle", LATER, end="release", usage_id=None),
    ),
    bug(
        "unreserved usage is no completion",
        "quota_settle_judge.sql",
        "PERFORM quota_usage_add(p_tenant, v_day, 1, in_tokens, out_tokens, cost_nanos, 0, 0, 0",
        "PERFORM quota_usage_add(p_tenant, v_day, 0, in_tokens, out_tokens, cost_nanos, 0, 0, 0",
        killed_by("test_settle", "test_unreserved_usage_is_posted_to_its_own_day_and_marked"),
    ),
    bug(
        "usage for a tenant that never existed is posted",
        "quota_settle_judge.sql",
        "outcome := 'invalid';\n        RETURN;",
        "NULL;",
        killed_by("test_bad_input", "test_usage_for_a_tenant_that_never_existed"),
    ),
    bug(
        "a guess beyond what one call may cost",
        "quota_settle_judge.sql",
        "p_whole), 1000000000000000)::bigint",
        "p_whole), 9223372036854775807)::bigint",
        killed_by("test_extremes", "test_a_stream_far_beyond_its_estimate_ends_every_way"),
    ),
    bug(
        "an older usage's cost overtakes the latest usage",
        "quota_settle_judge.sql",
        "ELSIF v_seen AND p_usage_id IS DISTINCT FROM r.usage_id THEN",
        "ELSIF false THEN",
        killed_by(
            "test_settle",
            "test_the_cost_of_an_older_usage_does_not_overtake_the_latest",
            latest="ub",
        ),
    ),
    bug(
        "one that can't end keeps its batch from ending",
        "quota_expire_overdue.sql",
        "    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR SQLSTATE 'QW002' THEN\n        v_apart",
        "    EXCEPTION WHEN SQLSTATE 'QW009' THEN\n        v_apart",
        killed_by("test_extremes", "test_what_can_not_end_stays_alone_and_is_named"),
    ),
]
