-- Reads of `quota-worker metrics`: each bounded by what is open, by a day, or by a limit. Nothing is written.

-- name: metric_departments
-- The $1 worst pools of departments, and how many there are. Costs in nanos; budgets with live top-ups, NULL: no limit.
SELECT v.department_id, v.environment, v.tier, v.tokens_used, v.tokens_held, v.cost_used_nanos, v.cost_held_nanos,
       v.budget_tokens + v.topup_tokens AS budget_tokens,
       (v.budget_cost_cents + v.topup_cost_cents) * 10000000 AS budget_cost_nanos,
       count(*) OVER () AS pools
  FROM v_department_status v
 ORDER BY v.pct DESC NULLS LAST, v.department_id, v.environment
 LIMIT $1::integer;

-- name: metric_tenants
SELECT l.enforce, count(*) AS tenants FROM tenant_limits l GROUP BY l.enforce ORDER BY l.enforce;

-- name: metric_used
-- What all tenants used on the day $1. One pass over the rows; no function of ours, so that it runs in parallel.
SELECT sum(u.completions) AS completions, sum(u.input_tokens) AS input_tokens, sum(u.output_tokens) AS output_tokens,
       sum(u.cost_nanos) AS cost_nanos
  FROM v_quota_usage u
 WHERE u.period = $1::date;

-- name: metric_open
-- What open reservations hold, and how many of them are overdue at $1 and since when.
SELECT count(*) AS reservations, sum(r.estimated_in_tokens) AS input_tokens, sum(r.estimated_out_tokens) AS output_tokens,
       sum(r.estimated_cost_nanos) AS cost_nanos, count(*) FILTER (WHERE r.expires_at <= $1::timestamptz) AS overdue,
       min(r.expires_at) FILTER (WHERE r.expires_at <= $1) AS overdue_since
  FROM quota_reservations r
 WHERE r.state = 'open';

-- name: metric_requests
-- The requests admitted in the 24 hours before $1, in one pass through the block-range index on admitted_at. By
-- outcome; by model and by app, the $2 with the most requests of each, the rest as 'other'; by the reason for which
-- they would have been refused. '' is a label that nobody gave. Tokens and cost are charges, of open ones 0.
-- used and estimated: of those with usage and an estimate, as in quota_estimates.
WITH grouped AS MATERIALIZED (
    SELECT CASE WHEN r.unreserved THEN 'unreserved'
                WHEN r.state = 'settled' AND r.usage_missing THEN 'estimated'
                WHEN r.state = 'expired' AND r.late THEN 'corrected'
                ELSE r.state END AS outcome,
           coalesce(r.answered_model, r.requested_model, r.model, '') AS model, coalesce(r.app, '') AS app,
           coalesce(r.observed_reason, '') AS observed_reason, count(*) AS requests,
           sum(r.charged_in_tokens) AS input_tokens, sum(r.charged_out_tokens) AS output_tokens,
           sum(r.charged_cost_nanos) AS cost_nanos,
           sum(r.usage_in_tokens) FILTER (WHERE r.usage_in_tokens IS NOT NULL AND r.estimated_in_tokens > 0) AS used_in,
           sum(r.estimated_in_tokens) FILTER (WHERE r.usage_in_tokens IS NOT NULL) AS estimated_in,
           sum(r.usage_out_tokens) FILTER (WHERE r.usage_out_tokens IS NOT NULL AND r.estimated_out_tokens > 0) AS used_out,
           sum(r.estimated_out_tokens) FILTER (WHERE r.usage_out_tokens IS NOT NULL) AS estimated_out
      FROM quota_reservations r
     WHERE r.admitted_at > $1::timestamptz - interval '24 hours' AND r.admitted_at <= $1
     GROUP BY 1, 2, 3, 4
), model AS (
    SELECT g.model, row_number() OVER (ORDER BY sum(g.requests) DESC, g.model) AS place FROM grouped g GROUP BY g.model
), app AS (
    SELECT g.app, row_number() OVER (ORDER BY sum(g.requests) DESC, g.app) AS place FROM grouped g GROUP BY g.app
), labelled AS (
    SELECT g.outcome, CASE WHEN m.place <= $2::integer THEN g.model ELSE 'other' END AS model,
           CASE WHEN a.place <= $2 THEN g.app ELSE 'other' END AS app, g.observed_reason, g.requests, g.input_tokens,
           g.output_tokens, g.cost_nanos, g.used_in, g.estimated_in, g.used_out, g.estimated_out
      FROM grouped g
      JOIN model m ON m.model = g.model
      JOIN app a ON a.app = g.app
)
SELECT CASE grouping(l.outcome, l.model, l.app, l.observed_reason)
            WHEN 7 THEN 'outcome' WHEN 11 THEN 'model' WHEN 13 THEN 'app' ELSE 'observed' END AS label,
       coalesce(l.outcome, l.model, l.app, l.observed_reason) AS value,
       sum(l.requests)::bigint AS requests, coalesce(sum(l.input_tokens), 0) AS input_tokens,
       coalesce(sum(l.output_tokens), 0) AS output_tokens, coalesce(sum(l.cost_nanos), 0) AS cost_nanos,
       sum(l.used_in) AS used_in, sum(l.estimated_in) AS estimated_in,
       sum(l.used_out) AS used_out, sum(l.estimated_out) AS estimated_out
  FROM labelled l
 GROUP BY GROUPING SETS ((l.outcome), (l.model), (l.app), (l.observed_reason))
 ORDER BY 1, 2;

-- name: metric_refusals
-- The refusals of the billing day $1 by reason.
SELECT q.reason, sum(q.count)::bigint AS refusals FROM quota_refusals q WHERE q.period = $1::date GROUP BY q.reason;

-- name: metric_alerts
-- The messages made in the 24 hours before $1 by severity and by what became of them, and by the latest failure.
SELECT o.severity, o.state, o.last_failure, count(*) AS messages
  FROM quota_outbox o
 WHERE o.created_at > $1::timestamptz - interval '24 hours' AND o.created_at <= $1
 GROUP BY o.severity, o.state, o.last_failure
 ORDER BY o.severity, o.state, o.last_failure;

-- name: metric_outbox
-- What waits, and what was given up and nobody has acknowledged, by channel.
SELECT o.channel, count(*) FILTER (WHERE o.state <> 'dead') AS waiting,
       min(o.created_at) FILTER (WHERE o.state <> 'dead') AS waiting_since,
       count(*) FILTER (WHERE o.state = 'dead') AS dead
  FROM quota_outbox o
 WHERE o.state IN ('pending', 'sending') OR o.state = 'dead' AND o.acked_at IS NULL
 GROUP BY o.channel
 ORDER BY o.channel;

-- name: metric_jobs
-- Of each of the jobs $1 its latest run that ended and its latest that was done, before $2: by the slot, so that runs
-- that judged by another time (--as-of) don't count.
SELECT j.job, e.outcome, e.seconds, d.ended_at AS done_at
  FROM unnest($1::text[]) AS j (job)
  LEFT JOIN LATERAL (
       SELECT r.outcome, r.seconds FROM job_runs r
        WHERE r.job = j.job AND r.scheduled_for <= $2::timestamptz AND r.outcome <> 'running'
        ORDER BY r.scheduled_for DESC LIMIT 1) AS e ON true
  LEFT JOIN LATERAL (
       SELECT r.ended_at FROM job_runs r
        WHERE r.job = j.job AND r.scheduled_for <= $2 AND r.outcome = 'done' AND r.ended_at <= $2
        ORDER BY r.scheduled_for DESC LIMIT 1) AS d ON true
 ORDER BY j.job;

-- name: metric_backlog
-- What waits to be booked, and what waits for a price.
SELECT (SELECT count(*) FROM quota_usage_inbox i WHERE i.booked_at IS NULL) AS inbox,
       (SELECT min(i.received_at) FROM quota_usage_inbox i WHERE i.booked_at IS NULL) AS inbox_since,
       (SELECT count(*) FROM quota_unpriced) AS unpriced;
