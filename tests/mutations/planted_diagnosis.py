"""Planted bugs of the diagnosis: what counts, who is told, how often; and of the fitted estimates."""

from __future__ import annotations

from mutations.planting import bug, killed_by

DIAGNOSIS = "test_diagnosis"
ESTIMATES = "acceptance.test_estimates"
COUNTS = killed_by(DIAGNOSIS, "test_what_counts_as_a_request_without_usage")
THRESHOLD = killed_by(DIAGNOSIS, "test_the_threshold_is_passed_and_not_met")
AGAIN = killed_by(DIAGNOSIS, "test_a_group_is_told_again_after_a_week_or_at_twice_the_share")
SORTED = killed_by(ESTIMATES, "test_rows_are_sorted_by_how_far_they_are_off")
EXACT = killed_by(ESTIMATES, "test_figures_are_those_of_a_full_computation")

BUGS = [
    bug(
        "the threshold of missing usage is met, not passed",
        "quota_diagnosis_groups.sql",
        "* 100 > p_missing_pct",
        "* 100 >= p_missing_pct",
        THRESHOLD,
    ),
    bug(
        "the last request of 24 hours ago counts",
        "quota_diagnosis_groups.sql",
        "r.admitted_at > p_now - interval '24 hours'",
        "r.admitted_at >= p_now - interval '24 hours'",
        THRESHOLD,
    ),
    bug(
        "usage that nobody reserved makes a group",
        "quota_diagnosis_groups.sql",
        " AND NOT r.unreserved",
        "",
        COUNTS,
    ),
    bug(
        "the answer's name for its model tears groups",
        "quota_diagnosis_groups.sql",
        "coalesce(r.answered_model, r.requested_model, '')",
        "coalesce(r.model, '')",
        COUNTS,
    ),
    bug(
        "told again at more than twice the share",
        "quota_diagnosis_groups.sql",
        ">= 2 * p_told_missing",
        "> 2 * p_told_missing",
        AGAIN,
    ),
    bug(
        "what a clock ahead told is never told again",
        "quota_diagnosis_groups.sql",
        " OR p_told_at > p_now + interval '10 minutes'",
        "",
        AGAIN,
    ),
    bug(
        "two workers tell the same group",
        "quota_diagnose.sql",
        "WHERE quota_diagnosis_due(t.told_at, t.requests, t.missing, EXCLUDED.requests, EXCLUDED.missing, v_now)",
        "WHERE true",
        killed_by(DIAGNOSIS, "test_of_two_workers_one_tells"),
    ),
    bug(
        "a second telling has the first one's key",
        "quota_diagnose.sql",
        ", l.api_key, l.requests, l.missing)",
        ", l.api_key)",
        killed_by(DIAGNOSIS, "test_twice_the_share_at_the_same_moment_is_told_too"),
    ),
    bug(
        "one absurd figure rules the factor",
        "quota_estimates.sql",
        "sum(h.used) FILTER (WHERE abs(h.step - h.middle) <= 230)\n",
        "sum(h.used)\n",
        EXACT,
    ),
    bug(
        "a percentile a step too low",
        "quota_estimates.sql",
        "100 * o.up_to >= 95 * o.total",
        "100 * o.up_to >= 94 * o.total",
        EXACT,
    ),
    bug(
        "figures out of too few requests",
        "quota_estimates.sql",
        "HAVING sum(h.n) >= p_min_requests",
        "HAVING sum(h.n) > 0",
        SORTED,
    ),
    bug(
        "estimates that are too high are no fault",
        "quota_estimates.sql",
        "1 / nullif(i.factor, 0), ",
        "",
        SORTED,
    ),
]
