-- The views that people and programs read. Columns are only ever added at the end.

-- A day's counters as enforcement reads them: what a legacy correction took below zero counts as zero, or as
-- what is held. cost_nanos is numeric, since cost_cents may be any bigint.
CREATE OR REPLACE VIEW v_quota_usage AS
SELECT u.tenant_id, u.period,
       greatest(u.completions, 0) AS completions,
       greatest(u.input_tokens, u.held_input_tokens, 0) AS input_tokens,
       greatest(u.output_tokens, u.held_output_tokens, 0) AS output_tokens,
       greatest(coalesce(u.cost_cents, 0)::numeric * 10000000 + u.cost_subcent_nanos, u.held_cost_nanos, 0) AS cost_nanos,
       u.held_input_tokens, u.held_output_tokens, u.held_cost_nanos
FROM quota_usage u;

-- One row per tenant, today. The tutorial's columns first, in its order. Calls no function of ours: its readers
-- may be programs of the tutorial, which have a right to the view and to nothing else. Percentages: NULL without
-- a cap, 100 for a cap of 0; one decimal, cut, so that 100.0 never shows while something is left.
CREATE OR REPLACE VIEW v_quota_status AS
SELECT l.tenant_id,
       t.day AS period,
       least(d.completions, k.far)::bigint AS completions_used,
       l.daily_completions AS completions_cap,
       CASE WHEN l.daily_completions <= 0 THEN 100.0 ELSE trunc(d.completions * 100 / l.daily_completions, 1) END AS completions_pct,
       least(floor(d.cost_nanos / 10000000), k.far)::bigint AS cost_used_cents,
       l.daily_cost_cents AS cost_cap_cents,
       CASE WHEN l.daily_cost_cents <= 0 THEN 100.0 ELSE trunc(d.cost_nanos / 100000 / l.daily_cost_cents, 1) END AS cost_pct,
       l.soft_warn_pct,
       least(d.input_tokens, k.far)::bigint AS daily_input_tokens_used, l.daily_input_tokens AS daily_input_tokens_cap,
       CASE WHEN l.daily_input_tokens <= 0 THEN 100.0 ELSE trunc((d.input_tokens) * 100 / l.daily_input_tokens, 1) END AS daily_input_tokens_pct,
       least(d.output_tokens, k.far)::bigint AS daily_output_tokens_used, l.daily_output_tokens AS daily_output_tokens_cap,
       CASE WHEN l.daily_output_tokens <= 0 THEN 100.0 ELSE trunc((d.output_tokens) * 100 / l.daily_output_tokens, 1) END AS daily_output_tokens_pct,
       least(d.input_tokens + d.output_tokens, k.far)::bigint AS daily_tokens_used, l.daily_tokens AS daily_tokens_cap,
       CASE WHEN l.daily_tokens <= 0 THEN 100.0 ELSE trunc((d.input_tokens + d.output_tokens) * 100 / l.daily_tokens, 1) END AS daily_tokens_pct,
       least(m.completions, k.far)::bigint AS monthly_completions_used, l.monthly_completions AS monthly_completions_cap,
       CASE WHEN l.monthly_completions <= 0 THEN 100.0 ELSE trunc((m.completions) * 100 / l.monthly_completions, 1) END AS monthly_completions_pct,
       least(m.input_tokens + m.output_tokens, k.far)::bigint AS monthly_tokens_used, l.monthly_tokens AS monthly_tokens_cap,
       CASE WHEN l.monthly_tokens <= 0 THEN 100.0 ELSE trunc((m.input_tokens + m.output_tokens) * 100 / l.monthly_tokens, 1) END AS monthly_tokens_pct,
       least(floor(m.cost_nanos / 10000000), k.far)::bigint AS monthly_cost_used_cents, l.monthly_cost_cents AS monthly_cost_cap_cents,
       CASE WHEN l.monthly_cost_cents <= 0 THEN 100.0 ELSE trunc(m.cost_nanos / 100000 / l.monthly_cost_cents, 1) END AS monthly_cost_pct,
       d.cost_nanos, m.cost_nanos AS monthly_cost_nanos,
       l.enforce, l.department_id, l.environment
FROM tenant_limits l
    CROSS JOIN (SELECT (clock_timestamp() AT TIME ZONE g.billing_zone)::date AS day FROM quota_settings g) t
    CROSS JOIN (SELECT 9223372036854775807::numeric AS far) k
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(u.completions), 0) AS completions, coalesce(sum(u.input_tokens), 0) AS input_tokens,
               coalesce(sum(u.output_tokens), 0) AS output_tokens, coalesce(sum(u.cost_nanos), 0) AS cost_nanos
        FROM v_quota_usage u WHERE u.tenant_id = l.tenant_id AND u.period = t.day) d
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(u.completions), 0) AS completions, coalesce(sum(u.input_tokens), 0) AS input_tokens,
               coalesce(sum(u.output_tokens), 0) AS output_tokens, coalesce(sum(u.cost_nanos), 0) AS cost_nanos
        FROM v_quota_usage u
        WHERE u.tenant_id = l.tenant_id AND u.period >= date_trunc('month', t.day::timestamp)::date
          AND u.period < (date_trunc('month', t.day::timestamp) + interval '1 month')::date) m;

-- The current month of every department's pool, with live top-ups. pct: the higher of tokens and cost.
CREATE OR REPLACE VIEW v_department_status AS
SELECT k.department_id, k.environment, t.month,
       d.tokens_used, c.tokens_held, d.cost_used_nanos, c.cost_held_nanos,
       d.base_tokens AS budget_tokens, d.base_cost_cents AS budget_cost_cents,
       d.budget_tokens - d.base_tokens AS topup_tokens,
       trunc(d.budget_cost_nanos / 10000000) - d.base_cost_cents AS topup_cost_cents,
       greatest(quota_pct(d.tokens_used, d.budget_tokens), quota_pct(d.cost_used_nanos, d.budget_cost_nanos)) AS pct,
       quota_tier_name(d.tier) AS tier
FROM (SELECT b.department_id, b.environment FROM department_budgets b
      UNION SELECT s.department_id, s.environment FROM quota_department_slots s) k
    CROSS JOIN (SELECT clock_timestamp() AS now, quota_month((clock_timestamp() AT TIME ZONE quota_zone())::date) AS month) t
    CROSS JOIN LATERAL quota_department_read(k.department_id, k.environment, t.month, t.now) d
    CROSS JOIN LATERAL (
        SELECT greatest(coalesce(sum(s.tokens_held), 0), 0) AS tokens_held,
               greatest(coalesce(sum(s.cost_held_nanos), 0), 0) AS cost_held_nanos
        FROM quota_department_slots s
        WHERE s.department_id = k.department_id AND s.environment = k.environment AND s.month = t.month) c;

-- Refusals by tenant, day and reason, those of a running storm included.
CREATE OR REPLACE VIEW quota_refusals AS
SELECT c.tenant_id, c.period, c.reason, c.first_at, c.last_at,
       c.counted + CASE WHEN c.counter IS NULL THEN 0 ELSE quota_refusal_pending(c.counter, c.counter_base) END AS count
FROM quota_refusal_counts c;
