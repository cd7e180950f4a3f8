"""Planted bugs of when a charge says that it passed a line."""

from __future__ import annotations

from mutations.planting import bug, killed_by

CROSSINGS = "sql.test_crossings"
RANDOM = "test_whatever_passes_a_line_is_told_and_nothing_else"

BUGS = [
    bug(
        "a line is passed beyond it, not at it",
        "quota_line_passed.sql",
        "p_used * 100 >= p_cap * p_pct",
        "p_used * 100 > p_cap * p_pct",
        killed_by(CROSSINGS, "test_every_mode_tells", mode="on"),
    ),
    bug(
        "the ceilings end at the cap alone",
        "quota_line_passed.sql",
        "p_pct BETWEEN 1 AND 99 AND p_used * 100 < p_cap * p_pct",
        "p_pct < 1",
        killed_by(CROSSINGS, "test_every_mode_tells", mode="on"),
    ),
    bug(
        "every charge near a line is told",
        "quota_line_passed.sql",
        " AND (p_used - p_added) * 100 < p_cap * p_pct",
        "",
        killed_by(CROSSINGS, RANDOM, seed=1),
    ),
    bug(
        "usage beyond the estimate is not looked at",
        "quota_usage_add.sql",
        "IF v_more AND NOT quota_ceilings_hold",
        "IF p_completions > 0 AND NOT quota_ceilings_hold",
        killed_by(CROSSINGS, "test_usage_beyond_the_estimate_tells_it_too"),
    ),
    bug(
        "ceilings stay high when usage falls",
        "quota_usage_add.sql",
        "v_less AND u.line_passed",
        "false",
        killed_by(CROSSINGS, RANDOM, seed=2),
    ),
    bug(
        "a department's settlement is not looked at",
        "quota_department.sql",
        "v_slot;\n    PERFORM quota_department_band(p_department, p_environment, p_month, p_now, p_tokens, p_cost_nanos);",
        "v_slot;\n    PERFORM quota_department_band(p_department, p_environment, p_month, p_now);",
        killed_by(CROSSINGS, RANDOM, seed=1),
    ),
    bug(
        "a pass takes what it did not look at",
        "quota_soft_warn.sql",
        "        DELETE FROM quota_crossings c",
        "        TRUNCATE quota_crossings; DELETE FROM quota_crossings c",
        killed_by(
            CROSSINGS, "test_a_pass_takes_what_it_looked_at_and_leaves_what_is_not_committed"
        ),
    ),
]
