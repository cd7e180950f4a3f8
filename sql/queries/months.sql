-- name: now
-- By the clock; the billing zone and currency.
SELECT clock_timestamp() AS now, s.billing_zone, s.currency
  FROM quota_settings s;

-- name: months
-- The latest $1 months of which there are totals or that were begun, the latest first. What was used is the months'
-- own; adjustments are what they have of earlier ones. open_requests keep a month from closing.
WITH months AS (
    SELECT m.month, m.rolled_at, m.closed_at, m.closed_clock FROM quota_months m ORDER BY m.month DESC LIMIT $1::integer
)
SELECT m.month, quota_month_end(m.month) AS ends_at, m.rolled_at, m.closed_at, t.completions, t.input_tokens, t.output_tokens, t.cost_nanos,
       t.tenants, t.departments, t.adjustments, t.adjusted_tokens, t.adjusted_cost_nanos,
       CASE WHEN m.closed_at IS NULL
            THEN (SELECT count(*) FROM quota_reservations r
                   WHERE r.state = 'open' AND r.period >= m.month AND r.period < (m.month + interval '1 month')::date)
            ELSE 0 END AS open_requests,
       coalesce(m.closed_clock < quota_month_end(m.month) + interval '72 hours', false) AS closed_early
  FROM months m
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(q.completions) FILTER (WHERE q.adjusts_month IS NULL), 0) AS completions,
              coalesce(sum(q.input_tokens) FILTER (WHERE q.adjusts_month IS NULL), 0) AS input_tokens,
              coalesce(sum(q.output_tokens) FILTER (WHERE q.adjusts_month IS NULL), 0) AS output_tokens,
              coalesce(sum(q.cost_nanos) FILTER (WHERE q.adjusts_month IS NULL), 0) AS cost_nanos,
              count(DISTINCT q.tenant_id) FILTER (WHERE q.adjusts_month IS NULL) AS tenants,
              count(DISTINCT q.department_id) FILTER (WHERE q.adjusts_month IS NULL AND q.department_id <> '') AS departments,
              count(q.adjusts_month) AS adjustments,
              coalesce(sum(q.input_tokens + q.output_tokens) FILTER (WHERE q.adjusts_month IS NOT NULL), 0) AS adjusted_tokens,
              coalesce(sum(q.cost_nanos) FILTER (WHERE q.adjusts_month IS NOT NULL), 0) AS adjusted_cost_nanos
         FROM quota_monthly_totals q WHERE q.month = m.month) t
 ORDER BY m.month DESC;
