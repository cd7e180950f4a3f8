"""Planted bugs of the audit and its repair."""

from __future__ import annotations

from mutations.planting import bug, killed_by

AUDIT = "test_audit"
BESIDE = "test_audit_beside"
REQUESTS = "test_audit_requests"
DEPARTMENTS = "test_audit_departments"
NOTES = "test_audit_notes"

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
        "quota_audit_days(p_month - 1, (p_month + interval '1 month')::date + 1, p_tenants, p_span) q",
        "quota_audit_days(p_month, (p_month + interval '1 month')::date, p_tenants, p_span) q",
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
        "a mend forgets the usage that is known",
        "quota_audit_repair.sql",
        "WHEN s.known THEN 'settled'\n",
        "",
        killed_by(REQUESTS, "test_a_repair_charges_the_latest_usage"),
    ),
    bug(
        "a charge that is not the latest usage is nobody's business",
        "quota_audit_requests.sql",
        "WHEN r.usage_in_tokens IS NOT NULL\n             AND (r.charged_in_tokens",
        "WHEN false AND (r.charged_in_tokens",
        killed_by(
            REQUESTS,
            "test_a_charge_that_is_not_the_latest_usage_though_all_counters_agree",
        ),
    ),
    bug(
        "a request that was moved to another month is looked for in its own",
        "quota_audit_requests.sql",
        "OR quota_audit_home(r) >= p_month AND",
        "OR false AND",
        killed_by(REQUESTS, "test_a_request_whose_day_or_admission_was_moved_goes_home"),
    ),
    bug(
        "every month's days are held against today's zone",
        "quota_audit_requests.sql",
        "AND (r.period >= p_open\n",
        "AND (true\n",
        killed_by(REQUESTS, "test_days_of_an_older_zone_are_no_drift"),
    ),
    bug(
        "a request of a closed month is open again",
        "quota_audit_repair.sql",
        "WHEN quota_audit_is_closed(quota_month(s.home)) THEN 'settled'",
        "WHEN false THEN 'settled'",
        killed_by(REQUESTS, "test_a_repair_opens_nothing_in_a_closed_month"),
    ),
    bug(
        "legacy charges that go are the present department's",
        "quota_audit_repair.sql",
        "CASE WHEN k.keeps THEN l.department_id ELSE o.department_id END AS department_id",
        "l.department_id AS department_id",
        killed_by(DEPARTMENTS, "test_a_mend_after_a_move_goes_to_the_department_that_was_charged"),
    ),
    bug(
        "a closed month's difference is the present department's",
        "quota_audit_closed.sql",
        "ORDER BY (d.c, d.i, d.o, d.n) = (p_completions, p_input_tokens, p_output_tokens, p_cost_nanos) DESC,",
        "ORDER BY d.present DESC,",
        killed_by(DEPARTMENTS, "test_so_does_the_adjustment_of_a_closed_month"),
    ),
    bug(
        "slots are only made where there are none",
        "quota_department.sql",
        "IF v_slots < 16 THEN",
        "IF v_slots = 0 THEN",
        killed_by(
            DEPARTMENTS,
            "test_slots_that_somebody_deleted_are_made_by_every_booking_and_by_a_repair",
        ),
    ),
    bug(
        "a keeper's write that equals a request is a double post",
        "quota_audit_counters.sql",
        "k.tenant_id IS NOT NULL AND v.booked = v.charged + v.legacy AS keeps",
        "k.tenant_id IS NOT NULL AND v.booked = v.charged + v.legacy"
        " AND p.whole IS NOT TRUE AND t.twin IS NULL AS keeps",
        killed_by(DEPARTMENTS, "test_a_keepers_direct_write_stays_whatever_it_equals"),
    ),
    bug(
        "a wrong note is a charge",
        "quota_audit_counters.sql",
        "WHEN p_used = p_charged AND p_booked <> p_charged + p_legacy THEN p_legacy ELSE 0 END",
        "WHEN false THEN p_legacy ELSE 0 END",
        killed_by(NOTES, "test_no_note_becomes_a_charge"),
    ),
    bug(
        "a wrong note is a sign of other programs",
        "quota_audit_counters.sql",
        "AND (u.tenant_id, u.period) NOT IN (SELECT g.tenant_id, g.period FROM ghosts g))",
        ")",
        killed_by(NOTES, "test_a_wrong_note_makes_no_keeper"),
    ),
    bug(
        "a department pays back what it never had",
        "quota_audit_repair.sql",
        "CASE WHEN s.ghost_n AND sign(h.n) = sign(s.dropped_n)",
        "CASE WHEN false",
        killed_by(NOTES, "test_no_note_becomes_a_charge"),
    ),
    bug(
        "the expiry tells nothing where day and admission agree",
        "quota_audit_requests.sql",
        "AND quota_audit_ended_by(r) AND isfinite(r.admitted_at)",
        "AND false",
        killed_by(REQUESTS, "test_where_day_and_admission_were_both_changed_the_expiry_tells"),
    ),
    bug(
        "a repair knows no worst",
        "quota_audit_repair.sql",
        "ORDER BY sum(q.off) DESC, q.tenant_id LIMIT p_limit",
        "ORDER BY q.tenant_id LIMIT p_limit",
        killed_by(BESIDE, "test_only_so_many_tenants_are_mended_at_once_the_worst_first"),
    ),
]
