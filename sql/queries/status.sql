-- name: status_rows
-- The $1 worst subjects, worst first; each with its worst dimension of today or this month.
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
  LEFT JOIN LATERAL (SELECT sum(q.count) AS refusals FROM quota_refusals q
                      WHERE w.kind = 'tenant' AND q.tenant_id = w.subject AND q.period = clock.today) AS f ON true
 ORDER BY w.pct DESC NULLS LAST, w.subject, w.kind;

-- name: status_deployment
SELECT clock_timestamp() AS at, s.billing_zone, s.currency,
       (SELECT r.ended_at FROM job_runs r WHERE r.ended_at IS NOT NULL
         ORDER BY r.started_at DESC LIMIT 1) AS last_tick_at,
       (SELECT COALESCE(array_agg(j.job ORDER BY j.job), '{}')
          FROM (SELECT DISTINCT ON (r.job) r.job, r.outcome FROM job_runs r
                 ORDER BY r.job, r.scheduled_for DESC) AS j
         WHERE j.outcome = 'failed') AS failed_jobs
  FROM quota_settings s;

-- name: outbox_counts
SELECT o.state, count(*) AS messages FROM quota_outbox o GROUP BY o.state ORDER BY o.state;
