-- Caps that fall long before their period ends, at the pace of the last hour: one row per cap.
--
-- Told where all of this holds: the cap isn't reached; at the pace of the last hour, and at that of the last five
-- minutes too, it is reached within p_day_hours (caps of the day) or p_month_hours (of the month), before the period
-- ends; that pace is at least p_times the one that would use up the cap evenly; the last hour had at least p_requests
-- requests, since fewer are chance and no pace; no threshold of the same cap was told within the last hour, whose message
-- has a forecast; and it is not quiet (quota_watch_told). Two windows, so that a spike that is over pages nobody. pace and short_pace are per hour, in the dimension's unit (completions, tokens,
-- nanos). Paces are of what was admitted, as charged or held; direct writes of legacy programs have none.
-- Takes no locks; reads one hour of reservations through the block-range index on admitted_at, then only tenants and
-- departments that are that fast, by their keys.
CREATE OR REPLACE FUNCTION quota_watch_burning(
    p_now timestamptz, p_day_hours int, p_month_hours int, p_times int, p_requests int)
RETURNS TABLE (subject_kind text, subject text, environment text, dimension text, period_kind text, period_start date,
               ends_at timestamptz, used numeric, held numeric, cap numeric, pace numeric, short_pace numeric,
               times_even numeric)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
-- before statistics are known, too: the hour by its block-range index, whose cost is guessed too high
SET enable_seqscan = off
AS $$
    WITH period AS MATERIALIZED (
        SELECT b.period_kind, b.starts, b.ends_at, date_part('epoch', b.ends_at - b.starts_at)::numeric / 3600 AS hours,
               b.within_hours
          FROM (SELECT 'day' AS period_kind, quota_day(p_now) AS starts, quota_day_start(quota_day(p_now)) AS starts_at,
                       quota_day_start(quota_day(p_now) + 1) AS ends_at, p_day_hours AS within_hours
                 UNION ALL
                SELECT 'month', quota_month(quota_day(p_now)), quota_day_start(quota_month(quota_day(p_now))),
                       quota_day_start(quota_warn_period_end('month', quota_month(quota_day(p_now)))), p_month_hours) b
    ), recent AS MATERIALIZED (
        SELECT r.tenant_id, r.department_id, r.environment, count(*) AS requests,
               sum(r.completion_counted::int) AS completions, sum(a.in_tokens) AS in_tokens,
               sum(a.out_tokens) AS out_tokens, sum(a.cost_nanos) AS cost_nanos,
               coalesce(sum(r.completion_counted::int) FILTER (WHERE a.short), 0) AS short_completions,
               coalesce(sum(a.in_tokens) FILTER (WHERE a.short), 0) AS short_in_tokens,
               coalesce(sum(a.out_tokens) FILTER (WHERE a.short), 0) AS short_out_tokens,
               coalesce(sum(a.cost_nanos) FILTER (WHERE a.short), 0) AS short_cost_nanos
          FROM quota_reservations r
         CROSS JOIN LATERAL (
            SELECT CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END AS in_tokens,
                   CASE WHEN r.state = 'open' THEN r.estimated_out_tokens ELSE r.charged_out_tokens END AS out_tokens,
                   CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END AS cost_nanos,
                   r.admitted_at > p_now - interval '5 minutes' AS short) a
         WHERE r.admitted_at > p_now - interval '1 hour' AND r.admitted_at <= p_now
         GROUP BY r.tenant_id, r.department_id, r.environment
    ), pace AS MATERIALIZED (
        -- per hour; of tenants only those that go on, and are fast enough for one of their caps
        SELECT s.subject_kind, s.subject, s.environment, d.dimension, d.pace, d.short_pace
          FROM (SELECT 'tenant' AS subject_kind, t.tenant_id AS subject, l.environment, t.completions, t.in_tokens,
                       t.out_tokens, t.cost_nanos, t.short_completions, t.short_in_tokens, t.short_out_tokens,
                       t.short_cost_nanos
                  FROM (SELECT r.tenant_id, sum(r.completions) AS completions, sum(r.in_tokens) AS in_tokens,
                               sum(r.out_tokens) AS out_tokens, sum(r.cost_nanos) AS cost_nanos,
                               sum(r.short_completions) AS short_completions,
                               sum(r.short_in_tokens) AS short_in_tokens,
                               sum(r.short_out_tokens) AS short_out_tokens,
                               sum(r.short_cost_nanos) AS short_cost_nanos
                          FROM recent r
                         GROUP BY r.tenant_id
                        HAVING sum(r.requests) >= p_requests
                           AND (sum(r.short_completions) > 0 OR sum(r.short_in_tokens) > 0
                                OR sum(r.short_out_tokens) > 0 OR sum(r.short_cost_nanos) > 0)) t
                  JOIN tenant_limits l ON l.tenant_id = t.tenant_id
                 CROSS JOIN (SELECT p_times / max(p.hours) FILTER (WHERE p.period_kind = 'day') AS day,
                                    p_times / max(p.hours) FILTER (WHERE p.period_kind = 'month') AS month
                               FROM period p) least
                 WHERE t.completions >= least.day * l.daily_completions
                    OR t.completions >= least.month * l.monthly_completions
                    OR t.in_tokens >= least.day * l.daily_input_tokens
                    OR t.out_tokens >= least.day * l.daily_output_tokens
                    OR t.in_tokens + t.out_tokens >= least.day * l.daily_tokens
                    OR t.in_tokens + t.out_tokens >= least.month * l.monthly_tokens
                    OR t.cost_nanos >= least.day * l.daily_cost_cents * 10000000
                    OR t.cost_nanos >= least.month * l.monthly_cost_cents * 10000000
                 UNION ALL
                SELECT 'department', r.department_id, r.environment, sum(r.completions), sum(r.in_tokens),
                       sum(r.out_tokens), sum(r.cost_nanos), sum(r.short_completions), sum(r.short_in_tokens),
                       sum(r.short_out_tokens), sum(r.short_cost_nanos)
                  FROM recent r
                 WHERE r.department_id IS NOT NULL
                 GROUP BY r.department_id, r.environment
                HAVING sum(r.requests) >= p_requests) s
         CROSS JOIN LATERAL (VALUES
            ('completions', s.completions::numeric, s.short_completions::numeric * 12),
            ('cost', s.cost_nanos, s.short_cost_nanos * 12),
            ('input_tokens', s.in_tokens, s.short_in_tokens * 12),
            ('output_tokens', s.out_tokens, s.short_out_tokens * 12),
            ('tokens', s.in_tokens + s.out_tokens, (s.short_in_tokens + s.short_out_tokens) * 12)
         ) AS d (dimension, pace, short_pace)
         WHERE d.pace > 0 AND d.short_pace > 0
    ), stand AS MATERIALIZED (
        SELECT 'tenant' AS subject_kind, p.period_kind, s.subject, s.environment, s.dimension, s.used, s.held, s.cap
          FROM period p
         CROSS JOIN LATERAL quota_warn_tenants(
                ARRAY(SELECT DISTINCT e.subject FROM pace e WHERE e.subject_kind = 'tenant'), p.period_kind, p.starts) s
        UNION ALL
        SELECT 'department', 'month', s.subject, s.environment, s.dimension, s.used, s.held, s.cap
          FROM period p
         CROSS JOIN LATERAL quota_warn_departments(
                p.starts, p_now, ARRAY(SELECT DISTINCT e.subject FROM pace e WHERE e.subject_kind = 'department')) s
         WHERE p.period_kind = 'month'
    )
    SELECT s.subject_kind, s.subject, s.environment, s.dimension, s.period_kind, p.starts, p.ends_at, s.used, s.held,
           s.cap, e.pace, e.short_pace, trunc(e.pace * p.hours / s.cap, 1)
      FROM stand s
      JOIN period p ON p.period_kind = s.period_kind
      JOIN pace e ON e.subject_kind = s.subject_kind AND e.subject = s.subject AND e.environment = s.environment
                 AND e.dimension = s.dimension
     WHERE s.used < s.cap
       AND s.cap - s.used <= least(e.pace, e.short_pace) * p.within_hours
       AND (s.cap - s.used) / e.pace * 3600 < date_part('epoch', p.ends_at - p_now)::numeric
       AND e.pace * p.hours >= p_times * s.cap
       AND NOT EXISTS (SELECT FROM quota_warn_log w
                        WHERE w.subject_kind = s.subject_kind AND w.subject = s.subject
                          AND w.environment = s.environment AND w.dimension = s.dimension
                          AND w.period_kind = s.period_kind AND w.period_start = p.starts
                          AND w.logged_at > p_now - interval '1 hour')
       AND NOT EXISTS (SELECT FROM quota_watch_told t
                        WHERE t.trouble = 'burn' AND t.subject_kind = s.subject_kind AND t.subject = s.subject
                          AND t.environment = s.environment AND t.about = s.dimension AND t.detail = s.period_kind
                          AND NOT quota_watch_due(t.told_at, t.quiet_until, p_now))
$$;

-- Whether what was told may be told again. What was told by a clock that ran ahead counts as not told.
CREATE OR REPLACE FUNCTION quota_watch_due(p_told_at timestamptz, p_quiet_until timestamptz, p_now timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT p_quiet_until <= p_now OR p_told_at > p_now + interval '10 minutes' $$;
