-- name: billing_rules
SELECT s.billing_zone, s.currency FROM quota_settings s;

-- name: lost_migrations
-- Those of the migrations $1 that this database doesn't have yet.
SELECT n.name FROM unnest($1::text[]) AS n(name)
 WHERE n.name NOT IN (SELECT m.name FROM quota_migrations m)
 ORDER BY n.name;

-- name: requests_removed
-- Since when the month of $1 lacks requests, by the billing day; NULL: it has all.
SELECT (m.requests_removed_at AT TIME ZONE quota_zone())::date AS removed
  FROM quota_months m
 WHERE m.month = $1::date;

-- name: ledger_cells
-- The month of $1 by day and model, as it was answered: by billing days, or by days that begin at the instants $3 (the
-- month's, and the end's as one more), each with the billing day that it lay on; either may be of another month. The
-- bounds of admitted_at, two days wider than the month, let the block-range index leave out what is older; as
-- sub-selects they are worked out once, and not for each row. At most $2 rows.
SELECT r.period AS billed, z.day, COALESCE(r.model, r.answered_model, r.requested_model, '') AS model,
       count(*) FILTER (WHERE r.ended_at IS NOT NULL) AS charged,
       sum(r.charged_in_tokens) FILTER (WHERE r.ended_at IS NOT NULL) AS charged_in,
       sum(least(COALESCE(r.cached_in_tokens, 0), r.charged_in_tokens)) FILTER (WHERE r.ended_at IS NOT NULL) AS charged_cached,
       sum(r.charged_out_tokens) FILTER (WHERE r.ended_at IS NOT NULL) AS charged_out,
       sum(r.charged_cost_nanos) FILTER (WHERE r.ended_at IS NOT NULL) AS charged_cost,
       count(*) FILTER (WHERE p.stale) AS stale, sum(r.charged_in_tokens) FILTER (WHERE p.stale) AS stale_in,
       sum(r.charged_out_tokens) FILTER (WHERE p.stale) AS stale_out,
       sum(r.charged_cost_nanos) FILTER (WHERE p.stale) AS stale_cost,
       count(*) FILTER (WHERE p.unreserved) AS unreserved,
       sum(r.charged_in_tokens) FILTER (WHERE p.unreserved) AS unreserved_in,
       sum(r.charged_out_tokens) FILTER (WHERE p.unreserved) AS unreserved_out,
       sum(r.charged_cost_nanos) FILTER (WHERE p.unreserved) AS unreserved_cost,
       count(*) FILTER (WHERE p.unpriced) AS unpriced,
       sum(r.charged_in_tokens) FILTER (WHERE p.unpriced) AS unpriced_in,
       sum(r.charged_out_tokens) FILTER (WHERE p.unpriced) AS unpriced_out,
       sum(r.charged_cost_nanos) FILTER (WHERE p.unpriced) AS unpriced_cost,
       count(*) FILTER (WHERE r.ended_at IS NULL) AS held,
       sum(r.estimated_in_tokens) FILTER (WHERE r.ended_at IS NULL) AS held_in,
       sum(r.estimated_out_tokens) FILTER (WHERE r.ended_at IS NULL) AS held_out,
       sum(r.estimated_cost_nanos) FILTER (WHERE r.ended_at IS NULL) AS held_cost,
       count(*) FILTER (WHERE p.dropped) AS dropped,
       sum(r.estimated_in_tokens) FILTER (WHERE p.dropped) AS dropped_in,
       sum(r.estimated_out_tokens) FILTER (WHERE p.dropped) AS dropped_out,
       sum(r.estimated_cost_nanos) FILTER (WHERE p.dropped) AS dropped_cost
  FROM quota_reservations r
 CROSS JOIN LATERAL (
       SELECT r.ended_at IS NOT NULL AND r.usage_missing AND r.stale_policy IS DISTINCT FROM 'release' AS stale,
              r.ended_at IS NOT NULL AND r.usage_missing AND r.stale_policy = 'release' AS dropped,
              r.ended_at IS NOT NULL AND r.unreserved AS unreserved,
              r.ended_at IS NOT NULL AND r.unpriced AS unpriced) AS p
 CROSS JOIN LATERAL (
       SELECT CASE WHEN $3::timestamptz[] IS NULL THEN r.period
                   ELSE $1::date + width_bucket(r.admitted_at, $3::timestamptz[]) - 1 END AS day) AS z
 WHERE r.admitted_at >= (SELECT quota_day_start($1::date) - interval '2 days')
   AND r.admitted_at < (SELECT quota_day_start(($1 + interval '1 month')::date) + interval '2 days')
   AND ((r.period >= $1 AND r.period < $1 + interval '1 month') OR (z.day >= $1 AND z.day < $1 + interval '1 month'))
 GROUP BY 1, 2, 3
 ORDER BY 1, 2, 3
 LIMIT $2::integer;

-- name: ledger_days
-- What the days' counters say: all that was booked, and of it what has no request. What a legacy program wrote and
-- no reconcile has folded in yet counts as both.
SELECT u.period AS day,
       sum(u.legacy_input_tokens::numeric + k.fresh_in) AS legacy_in,
       sum(u.legacy_output_tokens::numeric + k.fresh_out) AS legacy_out,
       sum(u.legacy_cost_nanos::numeric + k.fresh_cost) AS legacy_cost,
       sum(u.booked_input_tokens::numeric + k.fresh_in) AS used_in,
       sum(u.booked_output_tokens::numeric + k.fresh_out) AS used_out,
       sum(u.booked_cost_nanos::numeric + k.fresh_cost) AS used_cost
  FROM quota_usage u
 CROSS JOIN LATERAL (
       SELECT COALESCE(u.input_tokens, 0)::numeric - u.booked_input_tokens AS fresh_in,
              COALESCE(u.output_tokens, 0)::numeric - u.booked_output_tokens AS fresh_out,
              COALESCE(u.cost_cents, 0)::numeric * 10000000 + u.cost_subcent_nanos - u.booked_cost_nanos AS fresh_cost) AS k
 WHERE u.period >= $1::date AND u.period < $1 + interval '1 month'
 GROUP BY u.period
 ORDER BY u.period;

-- name: ledger_times
-- What was charged by half hours of admission, from two days before the month of $1 to two days after it: of the
-- models named by $2, NULL: of all.
SELECT date_bin('30 minutes', r.admitted_at, TIMESTAMPTZ '2000-01-01T00:00:00Z') AS at,
       sum(r.charged_in_tokens) AS charged_in, sum(r.charged_out_tokens) AS charged_out,
       sum(r.charged_cost_nanos) AS charged_cost
  FROM quota_reservations r
 WHERE r.admitted_at >= (SELECT quota_day_start($1::date) - interval '2 days')
   AND r.admitted_at < (SELECT quota_day_start(($1 + interval '1 month')::date) + interval '2 days')
   AND r.ended_at IS NOT NULL
   AND ($2::text[] IS NULL OR COALESCE(r.model, r.answered_model, r.requested_model, '') = ANY ($2))
 GROUP BY 1
 ORDER BY 1;

-- name: currency_rates
-- The rates of the currencies $1 that a day of the month of $2 may need.
SELECT c.currency, c.valid_from, c.rate
  FROM quota_currency_rates c
 WHERE c.currency = ANY ($1::text[]) AND c.valid_from < $2::date + interval '1 month'
 ORDER BY c.currency, c.valid_from;
