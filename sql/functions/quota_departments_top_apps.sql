-- The apps of departments' pools that used most in the 24 hours before p_now: a JSON array per pool, most costly first.
--
-- p_departments and p_environments name the pools, pairwise. Per app: tokens and cost_nanos (charged, or held while
-- open), its share of the pool in percent (of cost, or of tokens where nothing was priced) and its models, most used
-- first. An app without a name is ''. A pool without use has no row. Takes no locks; reads one day of reservations
-- once for all pools, through the block-range index on admitted_at.
CREATE OR REPLACE FUNCTION quota_departments_top_apps(
    p_departments text[], p_environments text[], p_now timestamptz, p_limit int DEFAULT 5)
RETURNS TABLE (department_id text, environment text, top_apps jsonb)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH models AS (
        SELECT r.department_id, r.environment, coalesce(r.app, '') AS app, coalesce(r.model, r.requested_model) AS model,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                        ELSE coalesce(r.charged_in_tokens, 0)::numeric + coalesce(r.charged_out_tokens, 0) END) AS tokens,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos
                        ELSE coalesce(r.charged_cost_nanos, 0) END) AS cost_nanos
          FROM quota_reservations r
         WHERE r.admitted_at > p_now - interval '24 hours' AND r.admitted_at <= p_now
           AND r.department_id = ANY (p_departments) AND cardinality(p_departments) > 0
         GROUP BY 1, 2, 3, 4
    ), apps AS (
        SELECT m.department_id, m.environment, m.app, sum(m.tokens) AS tokens, sum(m.cost_nanos) AS cost_nanos,
               coalesce(jsonb_agg(m.model ORDER BY m.tokens DESC, m.model) FILTER (WHERE m.model IS NOT NULL),
                        '[]') AS models
          FROM models m
          JOIN unnest(p_departments, p_environments) AS p (department_id, environment)
            ON p.department_id = m.department_id AND p.environment = m.environment
         GROUP BY m.department_id, m.environment, m.app
    ), shared AS (
        SELECT a.*,
               CASE WHEN sum(a.cost_nanos) OVER pool > 0
                    THEN round(a.cost_nanos * 100 / sum(a.cost_nanos) OVER pool, 1)
                    ELSE round(a.tokens * 100 / nullif(sum(a.tokens) OVER pool, 0), 1) END AS share_pct,
               row_number() OVER (PARTITION BY a.department_id, a.environment
                                  ORDER BY a.cost_nanos DESC, a.tokens DESC, a.app) AS place
          FROM apps a
         WHERE a.tokens > 0 OR a.cost_nanos > 0
        WINDOW pool AS (PARTITION BY a.department_id, a.environment)
    )
    SELECT s.department_id, s.environment,
           jsonb_agg(jsonb_build_object(
               'app', s.app, 'tokens', s.tokens, 'cost_nanos', s.cost_nanos,
               'share_pct', s.share_pct, 'models', s.models) ORDER BY s.place)
      FROM shared s
     WHERE s.place <= p_limit
     GROUP BY s.department_id, s.environment
$$;
