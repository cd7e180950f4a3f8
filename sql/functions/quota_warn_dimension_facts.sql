-- One dimension of an alert as JSON. Amounts: completions, tokens, or nanos where dimension is cost.
--
-- pct has one decimal, as in v_quota_status. expected_at: at the period's pace so far, when the cap is reached;
-- null when that is after the period's end, or past. crossed: this message tells it; else it is context.
CREATE OR REPLACE FUNCTION quota_warn_dimension_facts(
    p_dimension text, p_period_kind text, p_period_start date, p_used numeric, p_held numeric, p_cap numeric,
    p_threshold int, p_refused_at timestamptz, p_now timestamptz) RETURNS jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT jsonb_build_object(
               'dimension', p_dimension, 'period_kind', p_period_kind, 'period_start', p_period_start,
               'resets_at', e.ends_at, 'used', p_used, 'held', p_held, 'cap', p_cap,
               'pct', quota_pct(p_used, p_cap), 'threshold', p_threshold,
               'crossed', p_threshold IS NOT NULL, 'refused_at', p_refused_at,
               'expected_at',
               CASE WHEN p_used > 0 AND p_used < p_cap AND e.seconds > 0 AND p_now < e.ends_at
                         AND (p_cap - p_used) / p_used * e.seconds < date_part('epoch', e.ends_at - p_now)
                    THEN date_trunc('minute', p_now
                         + make_interval(secs => ((p_cap - p_used) / p_used * e.seconds)::double precision)) END)
      FROM (SELECT quota_day_start(quota_warn_period_end(p_period_kind, p_period_start)) AS ends_at,
                   date_part('epoch', p_now - quota_day_start(p_period_start))::numeric AS seconds) e
$$;
