"""Planted bugs of prices: the arithmetic, which price is meant, and what waits for one."""

from __future__ import annotations

from mutations.planting import bug, killed_by

FIGURES = killed_by("test_prices", "test_cached_input_tiers_batch_and_the_price_in_force")
CURRENCY = killed_by(
    "test_prices", "test_another_currency_is_converted_by_the_rate_of_the_day_of_admission"
)
NAMES = killed_by("test_prices", "test_overrides_beat_the_package_and_the_nearest_beats_the_others")
ONCE = killed_by(
    "test_prices", "test_usage_without_a_cost_is_priced_once_and_a_cost_that_comes_later_wins"
)
WAITING = killed_by(
    "test_prices", "test_what_can_not_be_priced_hides_nothing_and_is_tried_once_per_change"
)

BUGS = [
    bug(
        "cached input charged twice",
        "quota_price.sql",
        "(p_in_tokens - c.cached) * p_input",
        "p_in_tokens * p_input",
        FIGURES,
    ),
    bug(
        "cached input without a price is free",
        "quota_price.sql",
        "coalesce(p_cached_input, p_input)",
        "coalesce(p_cached_input, 0)",
        FIGURES,
    ),
    bug("a cost rounded down", "quota_price.sql", "SELECT round(((", "SELECT floor(((", FIGURES),
    bug(
        "a tier begins at its bound",
        "quota_price.sql",
        "p.input_above < p_in_tokens OR",
        "p.input_above <= p_in_tokens OR",
        FIGURES,
    ),
    bug(
        "batch charged the standard price",
        "quota_price.sql",
        "THEN 'batch' ELSE 'standard' END;",
        "THEN 'standard' ELSE 'standard' END;",
        FIGURES,
    ),
    bug(
        "a price in force before it begins",
        "quota_price.sql",
        "AND p.valid_from <= p_at\n",
        "\n",
        FIGURES,
    ),
    bug(
        "the time of day read in another zone",
        "quota_price.sql",
        "(p_at AT TIME ZONE 'UTC')::time",
        "(p_at AT TIME ZONE 'Asia/Shanghai')::time",
        FIGURES,
    ),
    bug(
        "a price over the largest amount is charged",
        "quota_price.sql",
        "CASE WHEN c.nanos <= 1000000000000000 THEN c.nanos::bigint END",
        "least(c.nanos, 9000000000000000000)::bigint",
        FIGURES,
    ),
    bug(
        "the package beats an override",
        "quota_price.sql",
        "SELECT q.*, 7 FROM",
        "SELECT q.*, 0 FROM",
        NAMES,
    ),
    bug(
        "the rate of the UTC day",
        "quota_price.sql",
        "c.valid_from <= quota_day(p_at)",
        "c.valid_from <= (p_at AT TIME ZONE 'UTC')::date",
        CURRENCY,
    ),
    bug(
        "the first rate for ever",
        "quota_price.sql",
        "ORDER BY c.valid_from DESC LIMIT 1",
        "ORDER BY c.valid_from LIMIT 1",
        CURRENCY,
    ),
    bug(
        "a repeated usage is priced anew",
        "quota_settle_judge.sql",
        "IF v_cost IS NULL AND (r.state = 'open'",
        "IF v_cost IS NULL AND (true OR r.state = 'open'",
        ONCE,
    ),
    bug(
        "unpriced usage is not listed",
        "quota_settle_judge.sql",
        "        PERFORM quota_unpriced_note(p_tenant, p_request_id, v_model, p_in_tokens, r.admitted_at, p_now);",
        "        NULL;",
        ONCE,
    ),
    bug(
        "a cost that came leaves the request listed",
        "quota_settle_judge.sql",
        "    ELSIF r.unpriced THEN\n",
        "    ELSIF false THEN\n",
        ONCE,
    ),
    bug(
        "pricing later books no department",
        "quota_price_unpriced.sql",
        "    PERFORM quota_bookings_book(v_bookings, v_now);",
        "",
        ONCE,
    ),
    bug(
        "what has no price is tried again and again",
        "quota_price_unpriced.sql",
        "SET tried_at = v_changed, reason",
        "SET reason",
        WAITING,
    ),
    bug(
        "an overflow spoils the batch",
        "quota_price_unpriced.sql",
        "EXCEPTION WHEN SQLSTATE 'QW002' OR",
        "EXCEPTION WHEN SQLSTATE 'QW009' OR",
        WAITING,
    ),
    bug(
        "the inbox forgets that it was a batch",
        "quota_book_inbox.sql",
        "CASE WHEN n.processing = 'batch' THEN",
        "CASE WHEN false THEN",
        killed_by("test_prices", "test_batches_and_the_inbox_price_alike"),
    ),
    bug(
        "a locked tenant's rows are all that is looked at",
        "quota_price_unpriced.sql",
        "WHERE n.tenant_id = ANY (v_free) LOOP",
        "LOOP",
        killed_by(
            "test_beside_locked",
            "test_prices_are_given_beside_a_tenant_with_many_rows_that_is_locked",
        ),
    ),
    bug(
        "what can't be priced isn't told as worked off",
        "quota_price_unpriced.sql",
        "worked := worked + priced + v_marked;",
        "worked := worked + priced;",
        killed_by("test_beside_locked", "test_thousands_that_have_no_price_hide_none_that_has"),
    ),
    bug(
        "the inbox looks at its oldest rows alone",
        "quota_book_inbox.sql",
        "c_reads  CONSTANT int := 500;",
        "c_reads  CONSTANT int := 1;",
        killed_by(
            "test_beside_locked",
            "test_the_inbox_is_booked_beside_a_tenant_with_many_rows_that_is_locked",
        ),
    ),
    bug(
        "a batch model in capitals gets its suffix twice",
        "quota_book_inbox.sql",
        "CASE WHEN lower(m.model) LIKE",
        "CASE WHEN m.model LIKE",
        killed_by("test_inbox", "test_any_name_the_ledger_takes_is_a_batch_models_name"),
    ),
]
