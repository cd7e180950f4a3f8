-- name: audit_frame
SELECT quota_audit_month($1::date, quota_now($2::timestamptz)) AS month, quota_now($2::timestamptz) AS at,
       g.billing_zone, g.currency,
       quota_audit_state(quota_audit_month($1::date, quota_now($2::timestamptz)), quota_now($2::timestamptz)) AS state
  FROM quota_settings g;

-- name: audit_rows
-- drifts first; places whose counters are off by most first, the rows of a place together
WITH found AS MATERIALIZED (
    SELECT a.severity, a.kind, a.tenant_id, a.department_id, a.environment, a.period, a.dimension, a.expected, a.found,
           a.request_id, a.cause
      FROM quota_audit($1::date, $2::timestamptz) a
), counted AS (
    SELECT count(*) FILTER (WHERE f.severity = 'drift') AS drifts, count(*) FILTER (WHERE f.severity = 'remark') AS remarks
      FROM found f
)
SELECT f.severity, f.kind, f.tenant_id, f.department_id, f.environment, f.period, f.dimension, f.expected, f.found,
       f.request_id, f.cause, c.drifts, c.remarks
  FROM found f CROSS JOIN counted c
 ORDER BY f.severity, max(abs(coalesce(f.found, 0) - coalesce(f.expected, 0)))
                          OVER (PARTITION BY f.severity, f.tenant_id, f.department_id, f.environment) DESC,
          f.tenant_id NULLS LAST, f.department_id, f.environment, f.period, f.kind, f.cause, f.request_id, f.dimension
 LIMIT $3::integer;

-- name: audit_repair
SELECT r.run, r.kind, r.tenant_id, r.department_id, r.environment, r.period, r.dimension, r.expected, r.found, r.mended,
       r.request_id, r.cause
  FROM quota_audit_repair($1::date, $2::integer, $3::timestamptz) r
 ORDER BY r.repair_id;
