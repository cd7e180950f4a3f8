"""Planted bugs of corrections, of closed months and of the inbox, found by races."""

from __future__ import annotations

from mutations.planting import bug, killed_by
from reconcile.plan import NOVEMBER

CLOSING = killed_by(
    "test_adjustments",
    "test_a_correction_that_races_the_closing_is_in_the_totals_or_an_adjustment",
)
RACES = killed_by(
    "reconcile.test_races",
    "test_the_last_usage_is_the_charge_whatever_happens_on_the_way",
    closes_amid=(NOVEMBER,),
)

BUGS = [
    bug(
        "a correction of another month is no adjustment",
        "quota_reservation_post.sql",
        "IF quota_month(r.period) <> quota_month(quota_day(p_now)) THEN",
        "IF false THEN",
        CLOSING,
    ),
    bug(
        "what the closing saw is adjusted, too",
        "quota_book_adjustments.sql",
        "AND pg_visible_in_snapshot(a.adjusted_xid, v_seen)",
        "AND false",
        RACES,
    ),
    bug(
        "what the closing didn't see is no adjustment",
        "quota_book_adjustments.sql",
        "AND pg_visible_in_snapshot(a.adjusted_xid, v_seen)",
        "",
        CLOSING,
    ),
    bug(
        "an adjustment has no department",
        "quota_reservation_post.sql",
        "SELECT p_tenant, p_request_id, coalesce(p_department, '')",
        "SELECT p_tenant, p_request_id, ''",
        RACES,
    ),
    bug(
        "usage ids before the last are forgotten",
        "quota_settle_judge.sql",
        "IF r.usage_id IS NOT NULL AND p_usage_id IS DISTINCT FROM r.usage_id THEN",
        "IF false THEN",
        RACES,
    ),
    bug(
        "a batch of the inbox is booked newest first",
        "quota_book_inbox.sql",
        "row_number() OVER (ORDER BY w.inbox_id)",
        "row_number() OVER (ORDER BY w.inbox_id DESC)",
        RACES,
    ),
    bug(
        "a batch of usages takes no tenant's lock",
        "quota_settle_batch.sql",
        "PERFORM quota_lock_tenants(ARRAY(SELECT DISTINCT r.tenant FROM unnest(v_all) r WHERE r.fault IS NULL));",
        "",
        RACES,
        tries=3,
    ),
    bug(
        "usage after a release counts no completion",
        "quota_settle_judge.sql",
        "in_tokens, out_tokens, cost_nanos, true, p_now);",
        "in_tokens, out_tokens, cost_nanos, r.completion_counted, p_now);",
        RACES,
    ),
    bug(
        "the department doesn't hear of unreserved usage",
        "quota_settle_judge.sql",
        "booking := (v_dept, v_env, quota_month(v_day), in_tokens + out_tokens, cost_nanos, 0, 0)::quota_booking;",
        "booking := NULL;",
        RACES,
    ),
]
