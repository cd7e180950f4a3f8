"""Planted bugs of what is told, to whom, and how often."""

from __future__ import annotations

from contract.test_outbox import QUIET
from mutations.planting import bug, killed_by

OUTBOX = "contract.test_outbox"
WARN = "acceptance.test_soft_warn"
REARM = "acceptance.test_rearm"
ROUTES = "acceptance.test_warn_routes"
ODD = "acceptance.test_warn_odd"

BUGS = [
    bug(
        "a warning threshold is passed, not reached",
        "quota_warn_untold.sql",
        "WHERE (s.used * 100 >= t.threshold * s.cap",
        "WHERE (s.used * 100 > t.threshold * s.cap",
        killed_by(WARN, "test_the_threshold_is_exact", used=800, told=1),
    ),
    bug(
        "exactly five points below re-arm",
        "quota_warn_rearm.sql",
        "s.used * 100 < (w.threshold - 5) * s.cap AS below",
        "s.used * 100 <= (w.threshold - 5) * s.cap AS below",
        killed_by(REARM, "test_exactly_five_points_below_is_not_enough"),
    ),
    bug(
        "corrections re-arm at once",
        "quota_warn_rearm.sql",
        "w.below_ticks >= 1 AND p_now >= w.below_at",
        "p_now >= coalesce(w.below_at, p_now) OR p_now >= w.below_at",
        killed_by(REARM, "test_one_tick_below_is_not_two_in_a_row"),
    ),
    bug(
        "a pass by a clock ahead is believed",
        "quota_soft_warn.sql",
        "IF v_since IS NULL OR v_since > v_now + interval '10 minutes' THEN",
        "IF v_since IS NULL THEN",
        killed_by(ODD, "test_one_clock_ahead_and_then_nobody_for_a_day"),
    ),
    bug(
        "the last rule that matches decides",
        "quota_route.sql",
        "ORDER BY r.place LIMIT 1",
        "ORDER BY r.place DESC LIMIT 1",
        killed_by(
            ROUTES,
            "test_the_first_rule_that_matches_decides",
            rule={"tenants": ["x", "t"]},
            matches=True,
        ),
    ),
    bug(
        "another cap's higher threshold supersedes",
        "quota_warn_enqueue.sql",
        "AND h.dimension = t.dimension AND h.period_kind",
        "AND h.period_kind",
        killed_by(ROUTES, "test_what_tells_another_cap_too_is_not_superseded"),
    ),
    bug(
        "a cap of nothing is available",
        "quota_warn_available.sql",
        "l.monthly_cost_cents, 1) > 0 AND l.tenant_id IS NOT NULL",
        "l.monthly_cost_cents, 1) >= 0 AND l.tenant_id IS NOT NULL",
        killed_by("acceptance.test_warn_available", "test_a_cap_of_nothing_lets_nothing_through"),
    ),
    bug(
        "anybody finishes",
        "quota_outbox_finish.sql",
        " AND o.lease_token = p_lease_token",
        "",
        killed_by(OUTBOX, "test_only_the_holder_of_the_lease_finishes"),
    ),
    bug(
        "ten are a digest",
        "quota_outbox_claim.sql",
        "v_waiting > p_digest_over",
        "v_waiting >= p_digest_over",
        killed_by(OUTBOX, "test_no_more_than_ten_go_one_by_one"),
    ),
    bug(
        "what may have arrived is collected anew",
        "quota_outbox_fail.sql",
        "p_cause IN ('timeout', 'unknown_answer', 'server_error'",
        "p_cause IN ('unknown_answer', 'server_error'",
        killed_by(
            OUTBOX,
            "test_what_may_have_arrived_is_repeated_as_it_was",
            cause="timeout",
            again="the same",
        ),
    ),
    bug(
        "each dead channel tells the fallback",
        "quota_outbox_fail.sql",
        "concat_ws(E'\\x1f', o.message_key, f.channel, f.recipient)",
        "concat_ws(E'\\x1f', o.dedupe_key, f.channel, f.recipient)",
        killed_by(OUTBOX, "test_of_several_dead_channels_one_tells_the_fallback"),
    ),
    bug(
        "quiet hours end at midnight",
        "quota_quiet.sql",
        "ELSE q.local >= q.begins OR q.local < q.ends END",
        "ELSE q.local >= q.begins END",
        killed_by(OUTBOX, "test_when_it_is_quiet", quiet=QUIET, utc="23:59:59", expected=True),
    ),
]
