-- name: report_frame
-- What all reports of month $1 share. today: the billing day; seen_import: the last import that touched its outcomes.
SELECT s.billing_zone, s.currency, s.locale, quota_day(t.now) AS today, m.closed_at, m.rolled_at,
       (SELECT coalesce(max(greatest(o.import_id, o.superseded_by)), 0)
          FROM quota_outcomes o WHERE o.month = $1::date) AS seen_import
  FROM quota_settings s
 CROSS JOIN (SELECT clock_timestamp() AS now) AS t
  LEFT JOIN quota_months m ON m.month = $1::date;

-- name: report_months
-- The months from $1 to $2 that are recorded.
SELECT m.month FROM quota_months m
 WHERE m.month BETWEEN $1::date AND $2::date AND m.rolled_at IS NOT NULL;

-- name: report_departments
-- Every department that is known by name, by its limits, budget or totals.
SELECT k.department_id, d.name, d.locale
  FROM (SELECT a.department_id FROM departments a
        UNION SELECT b.department_id FROM department_budgets b
        UNION SELECT l.department_id FROM tenant_limits l WHERE l.department_id IS NOT NULL
        UNION SELECT t.department_id FROM quota_monthly_totals t
               WHERE t.month BETWEEN $1::date AND $2::date) k
  LEFT JOIN departments d ON d.department_id = k.department_id
 WHERE k.department_id <> ''
 ORDER BY k.department_id;

-- name: report_totals
-- Months $1 to $2 as they were told: a row per department and month, own usage and adjustments apart.
SELECT t.month, t.department_id, t.adjusts_month IS NULL AS own,
       sum(t.completions) AS completions, sum(t.input_tokens) AS input_tokens, sum(t.output_tokens) AS output_tokens,
       sum(t.cost_nanos) AS cost_nanos, sum(t.stale_count) AS stale_count, sum(t.stale_cost_nanos) AS stale_cost_nanos
  FROM quota_monthly_totals t
 WHERE t.month BETWEEN $1::date AND $2::date
 GROUP BY 1, 2, 3;

-- name: report_outcomes
SELECT o.month, o.department_id, o.metric, o.value
  FROM v_quota_outcomes o
 WHERE o.month BETWEEN $1::date AND $2::date;

-- name: report_prices
-- Of the models of month $1, as they were at its end, for a million tokens in the billing currency.
SELECT k.model, f.input * f.rate AS input, f.output * f.rate AS output, f.cached_input * f.rate AS cached_input
  FROM (SELECT DISTINCT p.model FROM quota_month_parts p WHERE p.month = $1::date AND p.model <> '') k
 CROSS JOIN LATERAL quota_price_find(k.model, 1000, quota_month_end($1::date) - interval '1 microsecond') f
 WHERE f.fault IS NULL AND f.input IS NOT NULL AND f.output IS NOT NULL;

-- name: report_owners
-- The departments that have parts in month $1, '' for those without one.
SELECT t.department_id FROM quota_monthly_totals t WHERE t.month = $1::date
UNION
SELECT p.department_id FROM quota_month_parts p WHERE p.month = $1::date
 ORDER BY 1;

-- name: report_parts
-- Of the departments $2. A month that was closed before there were parts has its totals instead.
SELECT p.department_id, p.environment, p.tenant_id, p.model, p.app, p.belongs_to, p.completions, p.input_tokens,
       p.cached_in_tokens, p.output_tokens, p.cost_nanos, p.stale_count, p.stale_cost_nanos, p.released_count,
       p.unpriced_count, p.downgraded_count, p.downgraded_tokens
  FROM quota_month_parts p
 WHERE p.month = $1::date AND p.department_id = ANY ($2::text[])
UNION ALL
SELECT t.department_id, t.environment, t.tenant_id, '', '', t.belongs_to, t.completions, t.input_tokens, 0,
       t.output_tokens, t.cost_nanos, t.stale_count, t.stale_cost_nanos, 0, 0, 0, 0
  FROM quota_monthly_totals t
 WHERE t.month = $1::date AND t.department_id = ANY ($2::text[])
   AND NOT EXISTS (SELECT FROM quota_month_parts p WHERE p.month = $1::date);

-- name: report_days
SELECT d.environment, d.day, sum(d.completions) AS completions, sum(d.input_tokens) AS input_tokens,
       sum(d.cached_in_tokens) AS cached_in_tokens, sum(d.output_tokens) AS output_tokens,
       sum(d.cost_nanos) AS cost_nanos, sum(d.stale_count) AS stale_count, sum(d.stale_cost_nanos) AS stale_cost_nanos,
       sum(d.released_count) AS released_count, sum(d.unpriced_count) AS unpriced_count,
       sum(d.downgraded_count) AS downgraded_count, sum(d.downgraded_tokens) AS downgraded_tokens
  FROM quota_month_days d
 WHERE d.month = $1::date AND ($2::text IS NULL OR d.department_id = $2::text)
 GROUP BY d.environment, d.day;

-- name: report_budgets
SELECT b.department_id, b.environment, b.monthly_tokens, b.monthly_cost_cents, b.topup_tokens, b.topup_cost_cents
  FROM quota_month_budgets b
 WHERE b.month = $1::date AND ($2::text IS NULL OR b.department_id = $2::text);

-- name: report_store
SELECT revision, made, messages
  FROM quota_report_store($1::date, $2::text, $3::bigint, $4::text, $5::text, $6::jsonb, $7::jsonb, $8::jsonb,
                          $9::text, $10::text[], $11::timestamptz);

-- name: report_due
SELECT d.month, d.department_id
  FROM quota_report_due(coalesce($1::timestamptz, clock_timestamp()), $2::integer, $3::date, $4::text, $5::integer) d;

-- name: count_reports_due
SELECT count(*) FROM quota_report_due(coalesce($1::timestamptz, clock_timestamp()), $2::integer);
