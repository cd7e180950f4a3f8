-- name: status_rows
-- The $1 worst subjects, worst first; each with its worst dimension of today or this month. $2: only the tenant
-- and the department of this name, found by their keys (the plan is made for the value); NULL: all.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at, quota_day(clock_timestamp()) AS today
), tenant_dimension AS (
    SELECT v.tenant_id, v.environment, v.department_id, v.enforce, d.dimension, d.used, d.cap, d.pct
      FROM v_quota_status v
     CROSS JOIN LATERAL (VALUES
           ('daily_completions', v.completions_used::numeric, v.completions_cap::numeric, v.completions_pct::numeric),
           ('daily_input_tokens', v.daily_input_tokens_used, v.daily_input_tokens_cap, v.daily_input_tokens_pct),
           ('daily_output_tokens', v.daily_output_tokens_used, v.daily_output_tokens_cap, v.daily_output_tokens_pct),
           ('daily_tokens', v.daily_tokens_used, v.daily_tokens_cap, v.daily_tokens_pct),
           ('daily_cost', v.cost_used_cents, v.cost_cap_cents, v.cost_pct),
           ('monthly_completions', v.monthly_completions_used, v.monthly_completions_cap, v.monthly_completions_pct),
           ('monthly_tokens', v.monthly_tokens_used, v.monthly_tokens_cap, v.monthly_tokens_pct),
           ('monthly_cost', v.monthly_cost_used_cents, v.monthly_cost_cap_cents, v.monthly_cost_pct)
           ) AS d (dimension, used, cap, pct)
     WHERE $2::text IS NULL OR v.tenant_id = $2
), tenant_worst AS (
    SELECT DISTINCT ON (d.tenant_id)
           'tenant' AS kind, d.tenant_id AS subject, d.environment, d.department_id, d.enforce,
           CASE WHEN d.pct IS NOT NULL THEN d.dimension END AS dimension,
           CASE WHEN d.pct IS NOT NULL THEN d.used END AS used, d.cap, d.pct
      FROM tenant_dimension d
     ORDER BY d.tenant_id, d.pct DESC NULLS LAST, d.dimension
), department_worst AS (
    SELECT DISTINCT ON (v.department_id, v.environment)
           'department' AS kind, v.department_id AS subject, v.environment,
           v.department_id, 'on' AS enforce,
           CASE WHEN d.pct IS NOT NULL THEN d.dimension END AS dimension,
           CASE WHEN d.pct IS NOT NULL THEN d.used END AS used, d.cap, d.pct
      FROM v_department_status v
     CROSS JOIN LATERAL (VALUES
           ('monthly_tokens', v.tokens_used::numeric, v.budget_tokens + v.topup_tokens),
           ('monthly_cost', v.cost_used_nanos / 10000000.0, v.budget_cost_cents + v.topup_cost_cents)
           ) AS c (dimension, used, cap)
     CROSS JOIN LATERAL (VALUES (c.dimension, c.used, c.cap::numeric,
           CASE WHEN c.cap <= 0 THEN 100 ELSE round(c.used * 100 / c.cap, 1) END)
           ) AS d (dimension, used, cap, pct)
     WHERE $2::text IS NULL OR v.department_id = $2
     ORDER BY v.department_id, v.environment, d.pct DESC NULLS LAST, d.dimension
), subject AS (
    SELECT w.*, count(*) OVER () AS subjects
      FROM (SELECT * FROM tenant_worst UNION ALL SELECT * FROM department_worst) AS w
), worst AS (
    SELECT s.* FROM subject s ORDER BY s.pct DESC NULLS LAST, s.subject, s.kind LIMIT $1::integer
), open_hold AS (
    SELECT r.tenant_id, count(*) AS holds FROM quota_reservations r WHERE r.state = 'open' GROUP BY r.tenant_id
), open_department AS (
    SELECT r.department_id, r.environment, count(*) AS holds
      FROM quota_reservations r WHERE r.state = 'open' GROUP BY r.department_id, r.environment
), refused_department AS (
    SELECT l.department_id, l.environment, sum(q.count) AS refusals
      FROM quota_refusals q
      JOIN tenant_limits l ON l.tenant_id = q.tenant_id
     WHERE q.period = (SELECT clock.today FROM clock)
     GROUP BY l.department_id, l.environment
)
SELECT w.kind, w.subject, w.environment, w.department_id, w.enforce, w.dimension, w.used, w.cap,
       w.pct, w.subjects, t.tier,
       least(l.bucket_capacity, b.bucket_tokens + l.bucket_refill_per_sec
             * greatest(extract(epoch FROM clock.at - b.bucket_at)::double precision, 0)) AS bucket_tokens,
       l.bucket_capacity, COALESCE(h.holds, 0) AS holds, COALESCE(f.refusals, 0)::bigint AS refusals,
       CASE WHEN w.dimension LIKE 'daily%' THEN quota_day_start(clock.today + 1)
            WHEN w.dimension LIKE 'monthly%'
            THEN quota_day_start((date_trunc('month', clock.today) + interval '1 month')::date)
       END AS resets_at
  FROM worst w
 CROSS JOIN clock
  LEFT JOIN tenant_limits l ON w.kind = 'tenant' AND l.tenant_id = w.subject
  LEFT JOIN LATERAL (SELECT u.bucket_tokens, u.bucket_at FROM quota_usage u
                      WHERE w.kind = 'tenant' AND u.tenant_id = w.subject AND u.bucket_tokens IS NOT NULL
                      ORDER BY u.period DESC LIMIT 1) AS b ON true
  LEFT JOIN v_department_status t
         ON t.department_id = w.department_id AND t.environment = w.environment
  LEFT JOIN LATERAL (SELECT CASE w.kind WHEN 'tenant'
                       THEN (SELECT o.holds FROM open_hold o WHERE o.tenant_id = w.subject)
                       ELSE (SELECT o.holds FROM open_department o
                              WHERE o.department_id = w.subject AND o.environment = w.environment)
                      END AS holds) AS h ON true
  LEFT JOIN LATERAL (SELECT CASE w.kind WHEN 'tenant'
                       THEN (SELECT sum(q.count) FROM quota_refusals q
                              WHERE q.tenant_id = w.subject AND q.period = clock.today)
                       ELSE (SELECT o.refusals FROM refused_department o
                              WHERE o.department_id = w.subject AND o.environment = w.environment)
                      END AS refusals) AS f ON true
 ORDER BY w.pct DESC NULLS LAST, w.subject, w.kind;

-- name: status_deployment
-- The runs' own times may be another's than the clock's (--as-of): the lease's and the fence's order are real.
SELECT clock_timestamp() AS at, s.billing_zone, s.currency,
       (SELECT NULLIF(l.renewed_at, '-infinity') FROM tick_lease l WHERE l.lease_name = 'tick') AS last_tick_at,
       (SELECT COALESCE(array_agg(j.job ORDER BY j.job), '{}')
          FROM (SELECT DISTINCT ON (r.job) r.job, r.outcome FROM job_runs r
                 ORDER BY r.job, r.fence DESC) AS j
         WHERE j.outcome = 'failed') AS failed_jobs
  FROM quota_settings s;

-- name: outbox_counts
-- What was given up and acknowledged is a count of its own: nobody needs to look after it any more.
SELECT CASE WHEN o.state = 'dead' AND o.acked_at IS NOT NULL THEN 'dead_acknowledged' ELSE o.state END AS state,
       count(*) AS messages
  FROM quota_outbox o
 GROUP BY 1
 ORDER BY 1;

-- name: last_hour
-- The hour before $4 of one subject by app, key and model, most costly first: $1 tenant or department, $2 its id,
-- $3 the department's environment. Charged, or held while open. A bound time lets the block-range index on
-- admitted_at leave out all but the last hour; a tenant with few requests may be read by its key instead.
SELECT r.app, r.api_key, COALESCE(r.model, r.requested_model) AS model, count(*) AS requests,
       sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                ELSE COALESCE(r.charged_in_tokens, 0)::numeric + COALESCE(r.charged_out_tokens, 0) END) AS tokens,
       sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos
                ELSE COALESCE(r.charged_cost_nanos, 0) END) AS cost_nanos,
       count(*) FILTER (WHERE r.state = 'expired' AND NOT r.late) AS stale,
       count(*) FILTER (WHERE r.observed_reason IS NOT NULL) AS observed
  FROM quota_reservations r
 WHERE r.admitted_at > $4::timestamptz - interval '1 hour' AND r.admitted_at <= $4
   AND ($1::text = 'tenant' AND r.tenant_id = $2::text
        OR $1 = 'department' AND r.department_id = $2 AND r.environment = $3::text)
 GROUP BY r.app, r.api_key, COALESCE(r.model, r.requested_model)
 ORDER BY 6 DESC, 5 DESC, 1, 2, 3;

-- name: refusals_today
-- What the subject's tenants were refused on the billing day of $4, most often first. Refusals are counted by
-- tenant and reason: no app, key or model is known of them.
SELECT q.reason, sum(q.count)::bigint AS refusals, max(q.last_at) AS last_at
  FROM quota_refusals q
  JOIN tenant_limits l ON l.tenant_id = q.tenant_id
 WHERE q.period = quota_day($4::timestamptz)
   AND ($1::text = 'tenant' AND q.tenant_id = $2::text
        OR $1 = 'department' AND l.department_id = $2 AND l.environment = $3::text)
 GROUP BY q.reason
 ORDER BY 2 DESC, 1;

-- name: similar_names
-- At most 5000 names that may be meant by $1, for a closer look: one holds the other, or about as long with the
-- same beginning or end.
SELECT n.name
  FROM (SELECT l.tenant_id AS name FROM tenant_limits l
        UNION SELECT d.department_id FROM v_department_status d) AS n
 WHERE strpos(lower(n.name), lower($1::text)) > 0 OR strpos(lower($1), lower(n.name)) > 0
    OR abs(length(n.name) - length($1)) <= 3
       AND (left(lower(n.name), 2) = left(lower($1), 2) OR right(lower(n.name), 2) = right(lower($1), 2))
 ORDER BY abs(length(n.name) - length($1)), n.name
 LIMIT 5000;

-- name: names_like
-- At most 50 names that fit $1, a regular expression of what an alert may have shown in another form.
SELECT n.name
  FROM (SELECT l.tenant_id AS name FROM tenant_limits l
        UNION SELECT d.department_id FROM v_department_status d) AS n
 WHERE n.name ~ $1::text
 ORDER BY n.name
 LIMIT 50;
