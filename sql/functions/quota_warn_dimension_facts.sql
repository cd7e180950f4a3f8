-- One dimension of an alert as JSON. Amounts: completions, tokens, or nanos where dimension is cost.
--
-- pct has one decimal, as in v_quota_status. p_pace: what the last hour brought, in the
-- dimension's unit. expected_at: at that pace, when the cap is reached (quota_forecast). crossed: this message tells it; else it is context.
-- Pure; without settings of its own, so that callers inline it.
CREATE OR REPLACE FUNCTION quota_warn_dimension_facts(
    p_dimension text, p_period_kind text, p_period_start date, p_used numeric, p_held numeric, p_cap numeric,
    p_threshold int, p_refused_at timestamptz, p_pace numeric, p_ends_at timestamptz, p_now timestamptz
) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
               'dimension', p_dimension, 'period_kind', p_period_kind, 'period_start', p_period_start,
               'resets_at', p_ends_at, 'used', p_used, 'held', p_held, 'cap', p_cap,
               'pct', CASE WHEN p_cap <= 0 THEN 100.0 ELSE trunc(p_used * 100 / p_cap, 1) END,
               'threshold', p_threshold, 'crossed', p_threshold IS NOT NULL, 'refused_at', p_refused_at,
               'expected_at', quota_forecast(p_used, p_cap, p_pace, p_ends_at, p_now))
$$;
