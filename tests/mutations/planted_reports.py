"""Planted bugs of the monthly report: when it is due, what makes a revision, who gets a mail."""

from __future__ import annotations

from mutations.planting import bug, killed_by

TOLD = killed_by("test_reports", "test_a_closed_month_is_told_once_and_again_where_it_changed")
STORED = killed_by(
    "test_reports", "test_only_what_is_closed_is_stored_and_nothing_older_replaces_it"
)
NOTHING = killed_by(
    "test_reports",
    "test_a_month_of_nothing_is_told_where_a_budget_was_set_and_while_it_is_the_last",
)
DIGEST = killed_by("test_reports", "test_reports_are_never_collected_in_a_digest")
RESTORED = killed_by(
    "test_adjustments",
    "test_usage_that_comes_after_a_restore_is_not_taken_for_what_the_closing_saw",
)
CORRECTED = killed_by(
    "test_roll_places", "test_a_correction_of_a_closed_month_belongs_to_who_had_the_charge"
)
EMPTY = killed_by(
    "test_roll_places", "test_a_month_without_usage_between_others_is_a_month_of_nothing"
)
ZONES = killed_by(
    "test_roll_places",
    "test_a_day_keeps_its_requests_whatever_the_billing_zone_becomes",
    zones=("Pacific/Kiritimati", "Pacific/Niue"),
)

DUE, STORE = "quota_report_due.sql", "quota_report_store.sql"
BUGS = [
    bug("a report is due before its day", DUE, "WHERE c.due_at <= p_now\n", "WHERE true\n", TOLD),
    bug(
        "months of nothing are told long after",
        DUE,
        "OR c.month >= quota_month(quota_day(p_now)) - interval '1 month'",
        "OR true",
        NOTHING,
    ),
    bug(
        "a month of nothing needs no budget",
        DUE,
        "AND EXISTS (SELECT FROM quota_month_budgets b\n",
        "AND EXISTS (SELECT 1 UNION ALL SELECT 1 FROM quota_month_budgets b\n",
        NOTHING,
    ),
    bug(
        "outcomes of an old month make no revision",
        DUE,
        "OR EXISTS (SELECT FROM quota_reports r WHERE r.month = c.month AND r.seen_import < c.import_id)",
        "",
        TOLD,
    ),
    bug("a report is looked at once", DUE, "AND r.seen_import >= d.import_id)", ")", TOLD),
    bug(
        "the same figures are a new revision",
        STORE,
        " OR p_fingerprint = v_last.fingerprint)",
        ")",
        TOLD,
    ),
    bug(
        "older outcomes replace newer ones",
        STORE,
        "(p_seen_import < v_last.seen_import OR ",
        "(",
        STORED,
    ),
    bug("an open month is told", STORE, " AND m.closed_at IS NOT NULL) THEN", ") THEN", STORED),
    bug(
        "an address in capitals is another one",
        STORE,
        "lower(a.address)), 'UTF8'))",
        "a.address), 'UTF8'))",
        STORED,
    ),
    bug(
        "a corrected report is not mailed",
        STORE,
        "concat_ws(E'\\x1f', p_month, p_department_id, revision,",
        "concat_ws(E'\\x1f', p_month, p_department_id,",
        TOLD,
    ),
    bug(
        "finance gets every department's report",
        STORE,
        "SELECT unnest(p_to) WHERE p_department_id = ''",
        "SELECT unnest(p_to)",
        TOLD,
    ),
    bug(
        "finance addresses of a department get nothing",
        STORE,
        "quota_texts(d.owner_emails) || quota_texts(d.finance_emails)",
        "quota_texts(d.owner_emails)",
        TOLD,
    ),
    bug(
        "a change tells the new value as the old one",
        STORE,
        "'old', v_last.figures -> k.name",
        "'old', p_figures -> k.name",
        TOLD,
    ),
    bug(
        "what was looked at is looked at again",
        STORE,
        "UPDATE quota_reports r SET seen_import = p_seen_import",
        "UPDATE quota_reports r SET seen_import = r.seen_import",
        TOLD,
    ),
    bug(
        "reports are collected in a digest",
        STORE,
        "nullif(p_department_id, ''), k.key, true",
        "nullif(p_department_id, ''), NULL, true",
        DIGEST,
    ),
    bug(
        "after a restore late usage was seen by the closing",
        "quota_book_adjustments.sql",
        "UPDATE quota_months m SET closed_snapshot = NULL WHERE m.month = v_month;",
        "",
        RESTORED,
    ),
    bug(
        "a late correction is the present department's",
        "quota_book_legacy.sql",
        "f.place_department, f.place_environment, f.period",
        "f.department_id, f.environment, f.period",
        CORRECTED,
    ),
    bug(
        "a month without usage is missing",
        "quota_months_to_roll.sql",
        "v_this - interval '1 month', '1 month') g",
        "b.month - interval '1 month', '1 month') g",
        EMPTY,
    ),
    bug(
        "a day loses requests when the zone is another one",
        "quota_roll_day.sql",
        "quota_day_start(p_day - 1) - interval '3 hours'",
        "quota_day_start(p_day - 1)",
        ZONES,
    ),
]
