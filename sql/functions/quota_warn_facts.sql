-- The facts of messages whose crossings are in quota_warn_log, one row per message: what a template needs, no words.
--
-- dimensions: daily completions and cost first, as in the known line, then the others that this message tells or
-- that are over their threshold; a department's told ones first. tier and top_apps only for departments. locale: department, tenant, deployment.
-- for_digest: ended unseen below 100 %, a line of the next digest only.
-- urgency 0 (100 %) to 3 orders the delivery. The forecasts go by what was admitted in the last hour, read through
-- the block-range index on admitted_at. Takes no locks.
CREATE OR REPLACE FUNCTION quota_warn_facts(p_message_keys text[], p_now timestamptz)
RETURNS TABLE (message_key text, kind text, severity text, urgency smallint, locale text, facts jsonb,
               for_digest boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
-- The planner can't know how many messages there are; thousands of them by nested loops take minutes.
SET enable_nestloop = off
AS $$
    WITH told AS MATERIALIZED (
        SELECT DISTINCT ON (w.message_key, w.dimension, w.period_kind, w.period_start) w.*,
               array_position(ARRAY['exhausted', 'protected', 'downgrade', 'warning'], w.severity) AS rank
          FROM quota_warn_log w
         WHERE w.message_key = ANY (p_message_keys) AND w.state <> 'superseded'
         ORDER BY w.message_key, w.dimension, w.period_kind, w.period_start, w.threshold DESC
    ), message AS MATERIALIZED (
        SELECT t.message_key, t.subject_kind, t.subject, t.environment, bool_or(t.state <> 'told') AS past,
               bool_or(t.state = 'digest') AS for_digest,
               max(t.threshold) AS threshold, min(t.rank) AS rank
          FROM told t GROUP BY t.message_key, t.subject_kind, t.subject, t.environment
    ), stand AS MATERIALIZED (
        SELECT m.message_key, 'day' AS period_kind, quota_day(p_now) AS period_start, s.*
          FROM quota_warn_tenants(ARRAY(SELECT m.subject FROM message m WHERE m.subject_kind = 'tenant' AND NOT m.past),
                                  'day', quota_day(p_now)) s
          JOIN message m ON m.subject_kind = 'tenant' AND m.subject = s.subject AND m.environment = s.environment
               AND NOT m.past
        UNION ALL
        SELECT m.message_key, 'month', quota_month(quota_day(p_now)), s.*
          FROM quota_warn_tenants(ARRAY(SELECT m.subject FROM message m WHERE m.subject_kind = 'tenant' AND NOT m.past),
                                  'month', quota_month(quota_day(p_now))) s
          JOIN message m ON m.subject_kind = 'tenant' AND m.subject = s.subject AND m.environment = s.environment
               AND NOT m.past
        UNION ALL
        SELECT m.message_key, 'month', quota_month(quota_day(p_now)), s.*
          FROM quota_warn_departments(quota_month(quota_day(p_now)), p_now,
                    ARRAY(SELECT m.subject FROM message m WHERE m.subject_kind = 'department' AND NOT m.past)) s
          JOIN message m ON m.subject_kind = 'department' AND m.subject = s.subject AND m.environment = s.environment
               AND NOT m.past
    ), last_hour AS (
        -- what was admitted: as settled, or as held. Two branches: a tenant's can go by its own index too.
        SELECT m.message_key, r.completion_counted::int AS completions, a.*
          FROM quota_reservations r
          JOIN message m ON m.subject_kind = 'tenant' AND NOT m.past AND m.subject = r.tenant_id
         CROSS JOIN LATERAL (
            SELECT CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END AS input_tokens,
                   CASE WHEN r.state = 'open' THEN r.estimated_out_tokens ELSE r.charged_out_tokens END AS output_tokens,
                   CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END AS cost_nanos) a
         WHERE r.admitted_at > p_now - interval '1 hour' AND r.admitted_at <= p_now
           AND r.tenant_id = ANY (ARRAY(SELECT m.subject FROM message m WHERE m.subject_kind = 'tenant' AND NOT m.past))
        UNION ALL
        SELECT m.message_key, r.completion_counted::int, a.*
          FROM quota_reservations r
          JOIN message m ON m.subject_kind = 'department' AND NOT m.past AND m.subject = r.department_id
               AND m.environment = r.environment
         CROSS JOIN LATERAL (
            SELECT CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END AS input_tokens,
                   CASE WHEN r.state = 'open' THEN r.estimated_out_tokens ELSE r.charged_out_tokens END AS output_tokens,
                   CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END AS cost_nanos) a
         WHERE r.admitted_at > p_now - interval '1 hour' AND r.admitted_at <= p_now
           AND EXISTS (SELECT FROM message m WHERE m.subject_kind = 'department' AND NOT m.past)
    ), shown AS (
        SELECT t.message_key, t.dimension, t.period_kind, t.period_start, t.used, t.held, t.cap, t.threshold, t.refused_at
          FROM told t
        UNION ALL
        SELECT s.message_key, s.dimension, s.period_kind, s.period_start, s.used, s.held, s.cap, NULL, s.refused_at
          FROM stand s JOIN message m ON m.message_key = s.message_key
         WHERE (m.subject_kind = 'department' OR s.period_kind = 'day' AND s.dimension IN ('completions', 'cost')
                OR s.pcts[1] BETWEEN 1 AND 99 AND s.used * 100 >= s.pcts[1] * s.cap OR s.used >= s.cap)
           AND NOT EXISTS (SELECT FROM told t WHERE t.message_key = s.message_key AND t.dimension = s.dimension
                              AND t.period_kind = s.period_kind AND t.period_start = s.period_start)
    ), pace AS MATERIALIZED (
        SELECT h.message_key, sum(h.completions) AS completions, sum(h.input_tokens) AS input_tokens,
               sum(h.output_tokens) AS output_tokens, sum(h.cost_nanos) AS cost_nanos
          FROM last_hour h GROUP BY h.message_key
    ), bounds AS MATERIALIZED (
        SELECT p.period_kind, p.period_start,
               quota_day_start(quota_warn_period_end(p.period_kind, p.period_start)) AS ends_at
          FROM (SELECT DISTINCT h.period_kind, h.period_start FROM shown h) p
    ), listed AS (
        SELECT h.message_key,
               jsonb_agg(quota_warn_dimension_facts(h.dimension, h.period_kind, h.period_start, h.used, h.held, h.cap,
                                                    h.threshold, h.refused_at,
                                                    CASE h.dimension
                                                        WHEN 'completions' THEN e.completions
                                                        WHEN 'cost' THEN e.cost_nanos
                                                        WHEN 'input_tokens' THEN e.input_tokens
                                                        WHEN 'output_tokens' THEN e.output_tokens
                                                        ELSE e.input_tokens + e.output_tokens END,
                                                    b.ends_at, p_now)
                         ORDER BY m.subject_kind = 'department' AND h.threshold IS NULL, h.period_kind = 'month',
                                  array_position(ARRAY['completions', 'cost', 'input_tokens', 'output_tokens', 'tokens'],
                                                 h.dimension), h.period_start) AS dimensions
          FROM shown h
          JOIN message m ON m.message_key = h.message_key
          JOIN bounds b ON b.period_kind = h.period_kind AND b.period_start = h.period_start
          LEFT JOIN pace e ON e.message_key = h.message_key
         GROUP BY h.message_key
    ), tier AS (
        SELECT s.message_key,
               CASE WHEN bool_or(s.used >= s.cap) THEN 'exhausted'
                    WHEN bool_or(s.used * 100 >= s.pcts[3] * s.cap) THEN 'protected'
                    WHEN bool_or(s.used * 100 >= s.pcts[2] * s.cap) THEN 'downgrade'
                    WHEN bool_or(s.used * 100 >= s.pcts[1] * s.cap) THEN 'warning'
                    ELSE 'normal' END AS tier
          FROM stand s JOIN message m ON m.message_key = s.message_key AND m.subject_kind = 'department'
         GROUP BY s.message_key
    )
    SELECT m.message_key, m.subject_kind || '-warn',
           (ARRAY['exhausted', 'protected', 'downgrade', 'warning'])[m.rank], (m.rank - 1)::smallint,
           coalesce(d.locale, l.locale, g.locale),
           jsonb_build_object(
               'subject_kind', m.subject_kind, 'subject', m.subject, 'environment', m.environment,
               'department_id', d.department_id, 'department_name', d.name,
               'severity', (ARRAY['exhausted', 'protected', 'downgrade', 'warning'])[m.rank],
               'threshold', m.threshold, 'past', m.past, 'decided_at', p_now, 'zone', g.billing_zone,
               'currency', g.currency, 'dimensions', i.dimensions,
               'enforce', CASE m.subject_kind WHEN 'tenant' THEN l.enforce END,
               'tier', CASE m.subject_kind WHEN 'department' THEN coalesce(t.tier, 'normal') END,
               'downgrade_pct', b.downgrade_pct, 'protect_pct', b.protect_pct,
               'downgrade_model', b.downgrade_model, 'downgrade_from', CASE WHEN b.downgrade_from IS NOT NULL THEN quota_texts(b.downgrade_from) END,
               'owner_emails', quota_texts(d.owner_emails), 'finance_emails', quota_texts(d.finance_emails),
               'top_apps', CASE m.subject_kind WHEN 'department' THEN coalesce(a.top_apps, '[]') END),
           m.for_digest
      FROM message m
     CROSS JOIN quota_settings g
      JOIN listed i ON i.message_key = m.message_key
      LEFT JOIN tier t ON t.message_key = m.message_key
      LEFT JOIN quota_departments_top_apps(
                    ARRAY(SELECT m.subject FROM message m WHERE m.subject_kind = 'department'
                           ORDER BY m.subject, m.environment),
                    ARRAY(SELECT m.environment FROM message m WHERE m.subject_kind = 'department'
                           ORDER BY m.subject, m.environment), p_now) a
             ON m.subject_kind = 'department' AND a.department_id = m.subject AND a.environment = m.environment
      -- by the key: a join would read every tenant's limits
      LEFT JOIN LATERAL (
        SELECT l.department_id, l.enforce, l.locale FROM tenant_limits l
         WHERE m.subject_kind = 'tenant' AND l.tenant_id = m.subject OFFSET 0) l ON true
      LEFT JOIN departments d ON d.department_id = CASE m.subject_kind WHEN 'tenant' THEN l.department_id ELSE m.subject END
      LEFT JOIN department_budgets b ON m.subject_kind = 'department' AND b.department_id = m.subject
           AND b.environment = m.environment
$$;
