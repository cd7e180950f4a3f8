-- The first cap of a tenant that refuses a request, in the contract's order; no row: all let it pass.
-- Unlocked it is a snapshot; under the tenant's lock it is exact. Counters below zero (a legacy correction)
-- count as zero, or as what is held. Caps may be any bigint, so the arithmetic is numeric.
-- limit_value and limit_used of cost are whole cents.
CREATE OR REPLACE FUNCTION quota_caps_judge(
    p_limits tenant_limits, p_day date, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    OUT reason text, OUT limit_name text, OUT limit_value bigint, OUT limit_used bigint, OUT resets_on date
) RETURNS SETOF record
LANGUAGE sql STABLE ROWS 1
AS $$
    WITH used AS (
        SELECT u.period = p_day AS today,
               greatest(u.completions, 0)::numeric AS completions,
               greatest(u.input_tokens, u.held_input_tokens, 0)::numeric AS input,
               greatest(u.output_tokens, u.held_output_tokens, 0)::numeric AS output,
               greatest(coalesce(u.cost_cents, 0)::numeric * 10000000 + u.cost_subcent_nanos, u.held_cost_nanos, 0) AS cost
        FROM quota_usage u
        WHERE u.tenant_id = p_limits.tenant_id
          AND u.period >= quota_month(p_day) AND u.period < (quota_month(p_day) + interval '1 month')::date
    ), d AS (
        SELECT coalesce(sum(completions), 0) AS completions, coalesce(sum(input), 0) AS input,
               coalesce(sum(output), 0) AS output, coalesce(sum(cost), 0) AS cost
        FROM used WHERE today
    ), m AS (
        SELECT coalesce(sum(completions), 0) AS completions, coalesce(sum(input + output), 0) AS tokens,
               coalesce(sum(cost), 0) AS cost
        FROM used
    )
    SELECT c.reason, c.limit_name, c.cap, least(floor(c.used / c.unit), 9223372036854775807)::bigint,
           CASE WHEN c.n <= 5 THEN p_day + 1 ELSE (quota_month(p_day) + interval '1 month')::date END
    FROM d, m, LATERAL (VALUES
        (1, 'daily_cap_reached', 'daily_completions', p_limits.daily_completions::bigint, d.completions, 1::numeric, 1),
        (2, 'daily_input_tokens_reached', 'daily_input_tokens', p_limits.daily_input_tokens, d.input, p_in_tokens, 1),
        (3, 'daily_output_tokens_reached', 'daily_output_tokens', p_limits.daily_output_tokens, d.output, p_out_tokens, 1),
        (4, 'daily_tokens_reached', 'daily_tokens', p_limits.daily_tokens, d.input + d.output,
            p_in_tokens + p_out_tokens, 1),
        (5, 'daily_cost_reached', 'daily_cost_cents', p_limits.daily_cost_cents, d.cost, p_cost_nanos, 10000000),
        (6, 'monthly_completions_reached', 'monthly_completions', p_limits.monthly_completions, m.completions, 1, 1),
        (7, 'monthly_tokens_reached', 'monthly_tokens', p_limits.monthly_tokens, m.tokens, p_in_tokens + p_out_tokens, 1),
        (8, 'monthly_cost_reached', 'monthly_cost_cents', p_limits.monthly_cost_cents, m.cost, p_cost_nanos, 10000000)
    ) AS c (n, reason, limit_name, cap, used, estimate, unit)
    WHERE c.used >= c.cap::numeric * c.unit OR c.used + c.estimate > c.cap::numeric * c.unit
    ORDER BY c.n
    LIMIT 1
$$;
