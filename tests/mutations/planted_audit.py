"""Planted bugs of the audit and its repair."""

from __future__ import annotations

from mutations.planting import bug, killed_by

AUDIT = "test_audit"
BESIDE = "test_audit_beside"

BUGS = [
    bug(
        "a charge without a request is none of the department's legacy charges",
        "quota_reserve_judge.sql",
        "IF l.department_id IS NOT NULL THEN\n            PERFORM quota_slot_legacy(",
        "IF false THEN\n            PERFORM quota_slot_legacy(",
        killed_by(BESIDE, "test_direct_writes_of_a_tenant_with_legacy_charges_are_kept"),
    ),
    bug(
        "a folded write is none of the department's legacy charges",
        "quota_book_legacy.sql",
        "PERFORM quota_bookings_book(v_bookings, p_now, true);",
        "PERFORM quota_bookings_book(v_bookings, p_now);",
        killed_by(BESIDE, "test_legacy_charges_moves_and_corrections_are_no_drift"),
    ),
    bug(
        "other programs' rows are taken back",
        "quota_audit_counters.sql",
        "WHEN c.post <> 0 AND c.keeps THEN c.used",
        "WHEN c.post <> 0 AND NOT c.keeps THEN c.used",
        killed_by(BESIDE, "test_rows_of_the_tutorials_programs_are_kept"),
    ),
    bug(
        "the neighbouring day is looked for in its month alone",
        "quota_audit_counters.sql",
        "FROM quota_audit_days(p_month - 1, (p_month + interval '1 month')::date + 1, p_tenants, p_span) d",
        "FROM quota_audit_days(p_month, (p_month + interval '1 month')::date, p_tenants, p_span) d",
        killed_by(AUDIT, "test_the_wrong_day_lies_in_the_month_before"),
    ),
    bug(
        "what came after the closing is forgotten",
        "quota_audit_closed.sql",
        "OR coalesce(NOT pg_visible_in_snapshot(a.adjusted_xid, m.closed_snapshot), true)",
        "OR false",
        killed_by(BESIDE, "test_a_closed_months_difference_becomes_an_adjustment"),
    ),
    bug(
        "a closed month's difference is mended nowhere",
        "quota_audit_closed.sql",
        "INTO v_notes\n      FROM tenants t;",
        "INTO v_notes\n      FROM tenants t WHERE false;",
        killed_by(BESIDE, "test_a_closed_months_difference_becomes_an_adjustment"),
    ),
    bug(
        "the department doesn't learn what became of a tenant's legacy charges",
        "quota_audit_repair.sql",
        "PERFORM quota_bookings_book(p_bookings, p_now, true);",
        "",
        killed_by(BESIDE, "test_direct_writes_of_a_tenant_with_legacy_charges_are_kept"),
    ),
    bug(
        "a repair knows no worst",
        "quota_audit_repair.sql",
        "ORDER BY sum(q.off) DESC, q.tenant_id LIMIT p_limit",
        "ORDER BY q.tenant_id LIMIT p_limit",
        killed_by(BESIDE, "test_only_so_many_tenants_are_mended_at_once_the_worst_first"),
    ),
]
