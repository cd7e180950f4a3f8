-- The deployment's settings: billing zone, currency, locale.

-- name: show
SELECT billing_zone, currency, locale
  FROM quota_settings

-- name: lock
-- Admissions wait while the zone changes: the first lock against new charges, then the row.
LOCK TABLE quota_usage, quota_reservations IN SHARE MODE

-- name: lock_timeout
SELECT set_config('lock_timeout', '2s', true)

-- name: zone_exists
SELECT EXISTS (SELECT FROM pg_timezone_names WHERE name = $1::text) AS zone_exists

-- name: charge_that_would_move
-- The first charge of an open month whose day, or whose day's bounds where the charge carries no
-- time of its own, differ in the other zone.
WITH zones AS (
    SELECT billing_zone AS old_zone, $1::text AS new_zone FROM quota_settings
), open_usage AS (
    SELECT u.tenant_id, u.period,
           u.legacy_completions <> 0 OR u.legacy_input_tokens <> 0 OR u.legacy_output_tokens <> 0
               OR u.legacy_cost_nanos <> 0
               OR u.completions <> u.booked_completions OR u.input_tokens <> u.booked_input_tokens
               OR u.output_tokens <> u.booked_output_tokens
               OR u.cost_cents::numeric * 10000000 + u.cost_subcent_nanos <> u.booked_cost_nanos
               AS has_untimed
      FROM quota_usage u
     WHERE NOT EXISTS (SELECT FROM quota_months m
                        WHERE m.month = date_trunc('month', u.period)::date AND m.closed_at IS NOT NULL)
), moving AS (
    SELECT o.tenant_id, o.period
      FROM open_usage o, zones z
     WHERE o.has_untimed
       AND (o.period::timestamp AT TIME ZONE z.old_zone <> o.period::timestamp AT TIME ZONE z.new_zone
            OR (o.period + 1)::timestamp AT TIME ZONE z.old_zone
               <> (o.period + 1)::timestamp AT TIME ZONE z.new_zone)
     UNION ALL
    SELECT r.tenant_id, r.period
      FROM quota_reservations r, zones z
     WHERE (r.admitted_at AT TIME ZONE z.new_zone)::date <> r.period
       AND NOT EXISTS (SELECT FROM quota_months m
                        WHERE m.month = date_trunc('month', r.period)::date AND m.closed_at IS NOT NULL)
)
SELECT tenant_id, period FROM moving ORDER BY period, tenant_id LIMIT 1

-- name: set_zone
UPDATE quota_settings SET billing_zone = $1

-- name: set_currency
UPDATE quota_settings SET currency = $1

-- name: set_locale
UPDATE quota_settings SET locale = $1
