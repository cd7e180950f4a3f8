-- The apps of a department's pool that used most in the 24 hours before p_now, as a JSON array, most costly first.
--
-- Per app: tokens and cost_nanos (charged, or held while open), its share of the pool in percent (of cost, or of
-- tokens where nothing was priced) and its models, most used first. An app without a name is ''. Takes no locks;
-- reads one day of reservations through the block-range index on admitted_at.
CREATE OR REPLACE FUNCTION quota_department_top_apps(
    p_department text, p_environment text, p_now timestamptz, p_limit int DEFAULT 5) RETURNS jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH models AS (
        SELECT coalesce(r.app, '') AS app, coalesce(r.model, r.requested_model) AS model,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                        ELSE coalesce(r.charged_in_tokens, 0)::numeric + coalesce(r.charged_out_tokens, 0) END) AS tokens,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos
                        ELSE coalesce(r.charged_cost_nanos, 0) END) AS cost_nanos
          FROM quota_reservations r
         WHERE r.admitted_at > p_now - interval '24 hours' AND r.admitted_at <= p_now
           AND r.department_id = p_department AND r.environment = p_environment
         GROUP BY 1, 2
    ), apps AS (
        SELECT m.app, sum(m.tokens) AS tokens, sum(m.cost_nanos) AS cost_nanos,
               coalesce(jsonb_agg(m.model ORDER BY m.tokens DESC, m.model) FILTER (WHERE m.model IS NOT NULL),
                        '[]') AS models
          FROM models m GROUP BY m.app
    ), shared AS (
        SELECT a.*, CASE WHEN sum(a.cost_nanos) OVER () > 0
                         THEN round(a.cost_nanos * 100 / sum(a.cost_nanos) OVER (), 1)
                         ELSE round(a.tokens * 100 / nullif(sum(a.tokens) OVER (), 0), 1) END AS share_pct
          FROM apps a
    ), top AS (
        SELECT s.* FROM shared s
         WHERE s.tokens > 0 OR s.cost_nanos > 0
         ORDER BY s.cost_nanos DESC, s.tokens DESC, s.app LIMIT p_limit
    )
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'app', t.app, 'tokens', t.tokens, 'cost_nanos', t.cost_nanos,
               'share_pct', t.share_pct, 'models', t.models)
               ORDER BY t.cost_nanos DESC, t.tokens DESC, t.app), '[]')
      FROM top t
$$;
