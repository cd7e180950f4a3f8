-- name: lock_prices
SELECT pg_advisory_xact_lock(hashtextextended('quota_prices', 2));

-- name: drop_prices
DELETE FROM quota_prices WHERE origin = $1::text;

-- name: drop_rules
DELETE FROM quota_price_rules;

-- name: drop_names
DELETE FROM quota_price_names;

-- name: add_prices
-- A day is the billing zone's; a time has its own offset.
INSERT INTO quota_prices (origin, provider, model, processing, valid_from, from_time, input_above, currency, input,
                          cached_input, output, source)
SELECT $1::text, p.provider, p.model, p.processing,
       CASE WHEN p.valid_from ~ '^\d{4}-\d{2}-\d{2}$' THEN quota_day_start(p.valid_from::date)
            ELSE p.valid_from::timestamptz END,
       p.from_time, p.input_above, p.currency, p.input, p.cached_input, p.output, $2::text
  FROM jsonb_to_recordset($3::jsonb) AS p (
           provider text, model text, processing text, valid_from text, from_time time, input_above bigint,
           currency text, input numeric, cached_input numeric, output numeric);

-- name: add_rules
INSERT INTO quota_price_rules (scope, place, part, clause, kind, literal, provider, model)
SELECT r.scope, r.place, r.part, r.clause, r.kind, r.literal, r.provider, r.model
  FROM jsonb_to_recordset($1::jsonb) AS r (
           scope text, place int, part int, clause int, kind text, literal text, provider text, model text);

-- name: add_names
INSERT INTO quota_price_names (name, provider, model)
SELECT n.name, n.provider, n.model
  FROM jsonb_to_recordset($1::jsonb) AS n (name text, provider text, model text);

-- name: put_rates
INSERT INTO quota_currency_rates (currency, valid_from, rate)
SELECT r.currency, r.valid_from, r.rate
  FROM jsonb_to_recordset($1::jsonb) AS r (currency text, valid_from date, rate numeric)
    ON CONFLICT (currency, valid_from) DO UPDATE SET rate = excluded.rate, loaded_at = clock_timestamp();

-- name: list_rates
SELECT r.currency, r.valid_from, r.rate, r.loaded_at
  FROM quota_currency_rates r
 WHERE $1::text IS NULL OR r.currency = upper($1::text)
 ORDER BY r.valid_from DESC, r.currency
 LIMIT $2::integer;

-- name: list_prices
SELECT p.origin, p.provider, p.model, p.processing, nullif(p.valid_from, '-infinity') AS valid_from, p.from_time,
       p.input_above, p.currency, p.input, p.cached_input, p.output, p.source, p.loaded_at
  FROM quota_prices p
  LEFT JOIN quota_price_find($1::text, 0, clock_timestamp()) f ON $1::text IS NOT NULL
 WHERE $1::text IS NULL OR position(lower($1::text) IN lower(p.model)) > 0
    OR (p.origin, p.provider, p.model) = (f.origin, f.provider, f.model)
 ORDER BY p.model, p.provider, p.origin, p.processing DESC, p.valid_from, p.from_time, p.input_above
 LIMIT $2::integer;

-- name: price_models
SELECT DISTINCT p.model FROM quota_prices p ORDER BY p.model LIMIT $1::integer;

-- name: price_of
SELECT f.fault, f.origin, f.provider, f.model, f.processing, nullif(f.valid_from, '-infinity') AS valid_from, f.from_time,
       f.input_above, f.currency, f.input, f.cached_input, f.output, f.source, f.rate, f.rate_from,
       s.currency AS billing_currency, t.at,
       quota_price($1::text, $2::bigint, $3::bigint, $4::bigint, t.at) AS cost_nanos
  FROM (SELECT COALESCE($5::timestamptz, clock_timestamp()) AS at) t
 CROSS JOIN quota_settings s
 CROSS JOIN quota_price_find($1::text, $2::bigint, t.at) f;

-- name: list_unpriced
-- As prices stand: reason NULL, the next reconcile prices them.
SELECT g.model, f.fault AS reason, g.requests, g.since, g.in_tokens, g.out_tokens, g.first_admitted_at, f.currency
  FROM (SELECT u.model, count(*) AS requests, min(u.since) AS since,
               sum(r.charged_in_tokens)::bigint AS in_tokens, sum(r.charged_out_tokens)::bigint AS out_tokens,
               min(r.admitted_at) AS first_admitted_at
          FROM quota_unpriced u
          LEFT JOIN quota_reservations r ON r.tenant_id = u.tenant_id AND r.request_id = u.request_id
         GROUP BY u.model
         ORDER BY count(*) DESC, u.model
         LIMIT $1::integer) g
 CROSS JOIN LATERAL quota_price_find(g.model, 0, COALESCE(g.first_admitted_at, clock_timestamp())) f
 ORDER BY g.requests DESC, g.model;

-- name: price_settings
SELECT s.currency,
       EXISTS (SELECT FROM quota_prices p WHERE p.origin = 'package') AS has_package,
       (SELECT count(*) FROM quota_unpriced) AS waiting
  FROM quota_settings s;
