-- name: status_memory
-- For this transaction alone: a million tenants' limits in memory, instead of twice on the disk.
SELECT set_config('work_mem', '128MB', true) WHERE pg_size_bytes(current_setting('work_mem')) < 134217728;

-- name: status_day_worst
-- The $1 worst tenants by what they used of the caps of the day $2, and by caps of 0 of any period; worst first, as
-- in v_quota_status: NULL without a cap, 100 for a cap of 0, one decimal, cut. A monthly cap counts as unused here.
-- One pass over the limits. No function of ours: they would keep it from running in parallel.
SELECT l.tenant_id,
       greatest(
           CASE WHEN l.daily_completions <= 0 THEN 100.0
                ELSE trunc(coalesce(u.completions, 0)::numeric * 100 / l.daily_completions, 1) END,
           CASE WHEN l.daily_input_tokens <= 0 THEN 100.0
                ELSE trunc(coalesce(u.input_tokens, 0)::numeric * 100 / l.daily_input_tokens, 1) END,
           CASE WHEN l.daily_output_tokens <= 0 THEN 100.0
                ELSE trunc(coalesce(u.output_tokens, 0)::numeric * 100 / l.daily_output_tokens, 1) END,
           CASE WHEN l.daily_tokens <= 0 THEN 100.0
                ELSE trunc((coalesce(u.input_tokens, 0)::numeric + coalesce(u.output_tokens, 0)) * 100
                           / l.daily_tokens, 1) END,
           CASE WHEN l.daily_cost_cents <= 0 THEN 100.0
                ELSE trunc(coalesce(u.cost_nanos, 0) / 100000 / l.daily_cost_cents, 1) END,
           CASE WHEN l.monthly_completions <= 0 OR l.monthly_tokens <= 0 OR l.monthly_cost_cents <= 0 THEN 100.0
                WHEN coalesce(l.monthly_completions, l.monthly_tokens, l.monthly_cost_cents) IS NOT NULL THEN 0.0
           END) AS pct
  FROM tenant_limits l
  LEFT JOIN v_quota_usage u ON u.tenant_id = l.tenant_id AND u.period = $2::date
 ORDER BY pct DESC NULLS LAST, l.tenant_id
 LIMIT $1::integer;

-- name: status_month_worst
-- The $1 worst tenants by the caps of the month from $3 to before $4, of those that reach $2 percent of one. Whoever
-- reaches it used at least a 31st of that on one of the days: so only their rows are added up. The least caps of all
-- tenants come first: most rows need no look at their own tenant's. Double precision, and a little less than exact:
-- the sums below are exact.
WITH least_caps AS (
    SELECT min(l.monthly_completions) FILTER (WHERE l.monthly_completions > 0) * $2::double precision * 0.000322 AS completions,
           min(l.monthly_tokens) FILTER (WHERE l.monthly_tokens > 0) * $2 * 0.000322 AS tokens,
           min(l.monthly_cost_cents) FILTER (WHERE l.monthly_cost_cents > 0) * $2 * 0.000322 AS cost_cents
      FROM tenant_limits l
), candidate AS (
    SELECT u.tenant_id
      FROM (SELECT u.tenant_id, u.completions, greatest(u.input_tokens, u.held_input_tokens, 0)::double precision
                   + greatest(u.output_tokens, u.held_output_tokens, 0) AS tokens,
                   greatest(u.cost_cents + 1.0::double precision, u.held_cost_nanos / 1e7::double precision) AS cost_cents
              FROM quota_usage u
             WHERE u.period >= $3::date AND u.period < $4::date) AS u
      JOIN tenant_limits l ON l.tenant_id = u.tenant_id
     WHERE (u.completions >= (SELECT c.completions FROM least_caps c)
            OR u.tokens >= (SELECT c.tokens FROM least_caps c)
            OR u.cost_cents >= (SELECT c.cost_cents FROM least_caps c))
       AND (u.completions >= $2 * 0.000322 * l.monthly_completions
            OR u.tokens >= $2 * 0.000322 * l.monthly_tokens
            OR u.cost_cents >= $2 * 0.000322 * l.monthly_cost_cents)
     GROUP BY u.tenant_id
)
SELECT l.tenant_id,
       greatest(
           CASE WHEN l.monthly_completions > 0 THEN trunc(u.completions * 100 / l.monthly_completions, 1) END,
           CASE WHEN l.monthly_tokens > 0 THEN trunc(u.tokens * 100 / l.monthly_tokens, 1) END,
           CASE WHEN l.monthly_cost_cents > 0 THEN trunc(u.cost_nanos / 100000 / l.monthly_cost_cents, 1) END) AS pct
  FROM candidate c
  JOIN tenant_limits l ON l.tenant_id = c.tenant_id
 CROSS JOIN LATERAL (
       SELECT sum(u.completions) AS completions, sum(u.input_tokens) + sum(u.output_tokens) AS tokens,
              sum(u.cost_nanos) AS cost_nanos
         FROM v_quota_usage u
        WHERE u.tenant_id = l.tenant_id AND u.period >= $3 AND u.period < $4) AS u
 ORDER BY pct DESC NULLS LAST, l.tenant_id
 LIMIT $1::integer;

-- name: status_rows
-- The $1 worst of the tenants $7 and of all departments, worst first; each with its worst dimension of today or
-- this month. $7 NULL: no tenants. $2: only this department and its tenant's; NULL: all. $3 is now, $4 its billing
-- day, $5 the next month's first. $6: only subjects of this kind; NULL: both.
WITH standing AS MATERIALIZED (
    SELECT v.department_id, v.environment, v.tier, v.tokens_used, v.cost_used_nanos,
           v.budget_tokens + v.topup_tokens AS budget_tokens,
           v.budget_cost_cents + v.topup_cost_cents AS budget_cost_cents
      FROM v_department_status v
     WHERE $2::text IS NULL OR v.department_id = $2
        OR v.department_id = (SELECT l.department_id FROM tenant_limits l WHERE l.tenant_id = $2)
), department AS MATERIALIZED (
    SELECT DISTINCT ON (v.department_id, v.environment) v.department_id AS subject, v.environment,
           CASE WHEN d.pct IS NOT NULL THEN d.dimension END AS dimension,
           CASE WHEN d.pct IS NOT NULL THEN d.used END AS used, d.cap, d.pct
      FROM standing v
     CROSS JOIN LATERAL (VALUES
           ('monthly_tokens', v.tokens_used::numeric, v.budget_tokens::numeric),
           ('monthly_cost', v.cost_used_nanos / 10000000.0, v.budget_cost_cents::numeric)
           ) AS c (dimension, used, cap)
     CROSS JOIN LATERAL (VALUES (c.dimension, c.used, c.cap,
           CASE WHEN c.cap <= 0 THEN 100 ELSE trunc(c.used * 100 / c.cap, 1) END)
           ) AS d (dimension, used, cap, pct)
     WHERE ($2 IS NULL OR v.department_id = $2) AND ($6::text IS NULL OR $6 = 'department')
     ORDER BY v.department_id, v.environment, d.pct DESC NULLS LAST, d.dimension
), subject AS (
    SELECT 'tenant' AS kind, v.tenant_id AS subject, v.environment, v.department_id, v.enforce,
           CASE WHEN d.pct IS NOT NULL THEN d.dimension END AS dimension,
           CASE WHEN d.pct IS NOT NULL THEN d.used END AS used, d.cap, d.pct
      FROM unnest($7::text[]) AS w (subject)
      JOIN v_quota_status v ON v.tenant_id = w.subject
     CROSS JOIN LATERAL (
           SELECT c.dimension, c.used, c.cap, c.pct
             FROM (VALUES
           ('daily_completions', v.completions_used::numeric, v.completions_cap::numeric, v.completions_pct::numeric),
           ('daily_input_tokens', v.daily_input_tokens_used, v.daily_input_tokens_cap, v.daily_input_tokens_pct),
           ('daily_output_tokens', v.daily_output_tokens_used, v.daily_output_tokens_cap, v.daily_output_tokens_pct),
           ('daily_tokens', v.daily_tokens_used, v.daily_tokens_cap, v.daily_tokens_pct),
           ('daily_cost', v.cost_nanos / 10000000, v.cost_cap_cents, v.cost_pct),
           ('monthly_completions', v.monthly_completions_used, v.monthly_completions_cap, v.monthly_completions_pct),
           ('monthly_tokens', v.monthly_tokens_used, v.monthly_tokens_cap, v.monthly_tokens_pct),
           ('monthly_cost', v.monthly_cost_nanos / 10000000, v.monthly_cost_cap_cents, v.monthly_cost_pct)
             ) AS c (dimension, used, cap, pct)
            ORDER BY c.pct DESC NULLS LAST, c.dimension
            LIMIT 1) AS d
    UNION ALL
    SELECT 'department', d.subject, d.environment, d.subject, 'on', d.dimension, d.used, d.cap, d.pct
      FROM department d
), shown AS MATERIALIZED (
    SELECT s.* FROM subject s ORDER BY s.pct DESC NULLS LAST, s.subject, s.kind, s.environment LIMIT $1::integer
), open_hold AS (
    SELECT r.tenant_id, count(*) AS holds FROM quota_reservations r WHERE r.state = 'open' GROUP BY r.tenant_id
), open_department AS (
    SELECT r.department_id, r.environment, count(*) AS holds
      FROM quota_reservations r WHERE r.state = 'open' GROUP BY r.department_id, r.environment
), refused_department AS (
    SELECT l.department_id, l.environment, sum(q.count) AS refusals
      FROM quota_refusals q
      JOIN tenant_limits l ON l.tenant_id = q.tenant_id
     WHERE q.period = $4::date
     GROUP BY l.department_id, l.environment
)
SELECT s.kind, s.subject, s.environment, s.department_id, s.enforce, s.dimension, s.used, s.cap, s.pct,
       CASE WHEN $2 IS NULL AND $6 IS NULL
            THEN (SELECT count(*) FROM tenant_limits) + (SELECT count(*) FROM department) END AS subjects,
       t.tier,
       least(l.bucket_capacity, b.bucket_tokens + l.bucket_refill_per_sec
             * greatest(extract(epoch FROM $3::timestamptz - b.bucket_at)::double precision, 0)) AS bucket_tokens,
       l.bucket_capacity, COALESCE(h.holds, 0) AS holds, COALESCE(f.refusals, 0)::bigint AS refusals,
       CASE WHEN s.dimension LIKE 'daily%' THEN quota_day_start($4 + 1)
            WHEN s.dimension LIKE 'monthly%' THEN quota_day_start($5::date)
       END AS resets_at
  FROM shown s
  LEFT JOIN tenant_limits l ON s.kind = 'tenant' AND l.tenant_id = s.subject
  LEFT JOIN LATERAL (SELECT u.bucket_tokens, u.bucket_at FROM quota_usage u
                      WHERE s.kind = 'tenant' AND u.tenant_id = s.subject AND u.bucket_tokens IS NOT NULL
                      ORDER BY u.period DESC LIMIT 1) AS b ON true
  LEFT JOIN standing t ON t.department_id = s.department_id AND t.environment = s.environment
  LEFT JOIN LATERAL (SELECT CASE s.kind WHEN 'tenant'
                       THEN (SELECT o.holds FROM open_hold o WHERE o.tenant_id = s.subject)
                       ELSE (SELECT o.holds FROM open_department o
                              WHERE o.department_id = s.subject AND o.environment = s.environment)
                      END AS holds) AS h ON true
  LEFT JOIN LATERAL (SELECT CASE s.kind WHEN 'tenant'
                       THEN (SELECT sum(q.count) FROM quota_refusals q
                              WHERE q.tenant_id = s.subject AND q.period = $4)
                       ELSE (SELECT o.refusals FROM refused_department o
                              WHERE o.department_id = s.subject AND o.environment = s.environment)
                      END AS refusals) AS f ON true
 ORDER BY s.pct DESC NULLS LAST, s.subject, s.kind, s.environment;

-- name: status_hours
-- The 24 hours before $8 of the subjects $1 to $3 (kind, id, environment), in the unit of each one's dimension $4
-- (tokens without one; cost in cents): what was charged or is held of the requests admitted in each hour, oldest
-- first. observed: of them, would-be refusals. expected_at: when $6, the cap, is reached from $5, used, before $7, the
-- reset, at the pace of the last of these hours: the alerts' forecast. Charges without a request aren't in it.
-- Two branches: a tenant's requests can go by its key; departments' by the block-range index on admitted_at.
WITH subject AS MATERIALIZED (
    SELECT s.place, s.kind, s.subject, s.environment, split_part(s.dimension, '_', 1) AS period,
           substr(s.dimension, strpos(s.dimension, '_') + 1) AS quantity, s.used, s.cap, s.resets_at
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::numeric[], $6::numeric[], $7::timestamptz[])
           WITH ORDINALITY AS s (kind, subject, environment, dimension, used, cap, resets_at, place)
), request AS (
    SELECT s.place, s.quantity, r.admitted_at, r.state, r.completion_counted, r.estimated_in_tokens, r.estimated_out_tokens,
           r.estimated_cost_nanos, r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos, r.observed_reason
      FROM quota_reservations r
      JOIN subject s ON s.kind = 'tenant' AND s.subject = r.tenant_id
     WHERE r.admitted_at > $8::timestamptz - interval '24 hours' AND r.admitted_at <= $8
       AND r.tenant_id = ANY (ARRAY(SELECT s.subject FROM subject s WHERE s.kind = 'tenant'))
    UNION ALL
    SELECT s.place, s.quantity, r.admitted_at, r.state, r.completion_counted, r.estimated_in_tokens, r.estimated_out_tokens,
           r.estimated_cost_nanos, r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos, r.observed_reason
      FROM quota_reservations r
      JOIN subject s ON s.kind = 'department' AND s.subject = r.department_id AND s.environment = r.environment
     WHERE r.admitted_at > $8 - interval '24 hours' AND r.admitted_at <= $8
       AND EXISTS (SELECT FROM subject s WHERE s.kind = 'department')
), hour AS MATERIALIZED (
    SELECT r.place, 23 - floor(extract(epoch FROM $8 - r.admitted_at) / 3600)::int AS hour,
           count(r.observed_reason) AS observed,
           sum(CASE r.quantity
               WHEN 'completions' THEN r.completion_counted::int
               WHEN 'cost' THEN CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END / 10000000.0
               WHEN 'input_tokens' THEN CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END
               WHEN 'output_tokens' THEN CASE WHEN r.state = 'open' THEN r.estimated_out_tokens ELSE r.charged_out_tokens END
               ELSE CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                         ELSE r.charged_in_tokens::numeric + r.charged_out_tokens END END) AS amount
      FROM request r
     GROUP BY 1, 2
)
SELECT s.place, h.hours, coalesce(h.observed, 0)::bigint AS observed,
       CASE WHEN s.cap IS NOT NULL THEN quota_forecast(s.used, s.cap, h.hours[24], s.resets_at, $8) END AS expected_at
  FROM subject s
 CROSS JOIN LATERAL (
       SELECT array_agg(coalesce(h.amount, 0) ORDER BY n.hour) AS hours, sum(h.observed) AS observed
         FROM generate_series(0, 23) AS n (hour)
         LEFT JOIN hour h ON h.place = s.place AND h.hour = n.hour) AS h
 ORDER BY s.place;

-- name: status_deployment
-- The clock, the billing day and month, and how the latest tick went: of each job its latest run, by the fence. The
-- runs' own times may be another's than the clock's (--as-of): the lease's and the fence's order are real.
SELECT c.at, quota_day(c.at) AS today, quota_month(quota_day(c.at)) AS month,
       (quota_month(quota_day(c.at)) + interval '1 month')::date AS next_month,
       s.billing_zone, s.currency, NULLIF(l.renewed_at, '-infinity') AS last_tick_at,
       COALESCE(l.expires_at > c.at, false) AS ticking, j.failed_jobs, j.unfinished_jobs, j.interrupted_jobs
  FROM quota_settings s
 CROSS JOIN (SELECT clock_timestamp() AS at OFFSET 0) AS c
  LEFT JOIN tick_lease l ON l.lease_name = 'tick'
 CROSS JOIN LATERAL (
       SELECT COALESCE(array_agg(j.job ORDER BY j.job) FILTER (WHERE j.outcome = 'failed'), '{}') AS failed_jobs,
              COALESCE(array_agg(j.job ORDER BY j.job) FILTER (WHERE j.outcome = 'unfinished'), '{}') AS unfinished_jobs,
              -- still open, though nobody holds the lease any more
              COALESCE(array_agg(j.job ORDER BY j.job)
                       FILTER (WHERE j.outcome = 'running' AND l.expires_at <= c.at), '{}') AS interrupted_jobs
         FROM (SELECT DISTINCT ON (r.job) r.job, r.outcome FROM job_runs r ORDER BY r.job, r.fence DESC) AS j) AS j;

-- name: outbox_oldest
-- Since when the oldest message waits; NULL: none does.
SELECT min(o.created_at) AS waiting_since FROM quota_outbox o WHERE o.state IN ('pending', 'sending');

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

-- name: status_blocks
-- Stops in force at $3, at most $1; of the subject of this name, its department's too, where $2 isn't NULL.
SELECT k.subject_kind AS kind, k.subject, k.blocked_until AS until, k.blocked_by AS by, k.reason
  FROM quota_blocks k
 WHERE k.blocked_until > $3::timestamptz
   AND ($2::text IS NULL OR k.subject = $2
        OR k.subject_kind = 'department'
           AND k.subject = (SELECT l.department_id FROM tenant_limits l WHERE l.tenant_id = $2))
 ORDER BY k.blocked_until DESC, k.subject, k.subject_kind
 LIMIT $1::bigint;

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
