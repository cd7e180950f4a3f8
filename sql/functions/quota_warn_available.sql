-- Tells subjects that had been told as exhausted that they are available again; returns how many. Off by default.
--
-- Available: a period ended, or a cap or allowance was raised or taken away, and no cap of the subject is full now.
-- Once for each exhaustion (quota_warn_log.told_available_at), of those told since this was switched on
-- (quota_warn_scans, scan 'available'; p_routes.available false forgets it). Routed as the exhaustion was.
-- A correction alone, without an allowance or a new period, says nothing. Runs in the caller's transaction.
-- Lock order: quota_warn_log rows sorted by key, quota_outbox.
CREATE OR REPLACE FUNCTION quota_warn_available(p_now timestamptz, p_routes jsonb) RETURNS int
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    v_day   date := quota_day(p_now);
    v_month date := quota_month(quota_day(p_now));
    v_since timestamptz;
    v_told  int;
BEGIN
    IF NOT coalesce((p_routes ->> 'available')::boolean, false) THEN
        DELETE FROM quota_warn_scans s WHERE s.scan = 'available';
        RETURN 0;
    END IF;
    SELECT s.scanned_at INTO v_since FROM quota_warn_scans s WHERE s.scan = 'available';
    IF NOT FOUND THEN
        INSERT INTO quota_warn_scans (scan, scanned_at, scanned_xid) VALUES ('available', p_now, pg_current_xact_id())
        ON CONFLICT DO NOTHING;
        RETURN 0;
    END IF;

    WITH open AS MATERIALIZED (
        SELECT w.subject_kind, w.subject, w.environment, w.dimension, w.period_kind, w.period_start, w.generation, w.cap,
               quota_warn_period_end(w.period_kind, w.period_start) <= v_day AS ended
          FROM quota_warn_log w
         WHERE w.subject_kind IS NOT NULL AND w.threshold = 100 AND w.state = 'told' AND w.told_available_at IS NULL
           AND w.logged_at >= v_since AND w.period_start >= v_month - 62
         ORDER BY w.subject_kind, w.subject, w.environment, w.dimension, w.period_kind, w.period_start, w.generation
           FOR UPDATE
    ), stand AS MATERIALIZED (
        SELECT 'tenant' AS subject_kind, p.kind AS period_kind, p.start AS period_start, s.*
          FROM (VALUES ('day', v_day), ('month', v_month)) AS p (kind, start)
         CROSS JOIN LATERAL quota_warn_tenants(
                    ARRAY(SELECT DISTINCT o.subject FROM open o WHERE o.subject_kind = 'tenant'), p.kind, p.start) s
        UNION ALL
        SELECT 'department', 'month', v_month, s.*
          FROM quota_warn_departments(v_month, p_now,
                    ARRAY(SELECT DISTINCT o.subject FROM open o WHERE o.subject_kind = 'department')) s
    ), free AS MATERIALIZED (
        SELECT o.subject_kind, o.subject, o.environment, bool_and(o.ended) AS by_period,
               jsonb_agg(quota_warn_dimension_facts(s.dimension, s.period_kind, s.period_start, s.used, s.held, s.cap, 100,
                             NULL, NULL, quota_day_start(quota_warn_period_end(s.period_kind, s.period_start)), p_now)
                         ORDER BY s.period_kind, s.dimension) FILTER (WHERE s.dimension IS NOT NULL) AS dimensions,
               string_agg(concat_ws(E'\x1f', o.dimension, o.period_kind, o.period_start, o.generation), E'\x1e'
                          ORDER BY o.dimension, o.period_kind, o.period_start, o.generation) AS key
          FROM open o
          LEFT JOIN stand s ON s.subject_kind = o.subject_kind AND s.subject = o.subject
               AND s.environment = o.environment AND s.dimension = o.dimension AND s.period_kind = o.period_kind
         WHERE o.ended OR s.cap IS NULL OR s.cap > o.cap
         GROUP BY o.subject_kind, o.subject, o.environment
    ), told AS MATERIALIZED (
        SELECT f.*, l.department_id, l.enforce, l.locale AS tenant_locale
          FROM free f
          LEFT JOIN tenant_limits l ON f.subject_kind = 'tenant' AND l.tenant_id = f.subject
         WHERE NOT EXISTS (SELECT FROM stand s
                            WHERE s.subject_kind = f.subject_kind AND s.subject = f.subject
                              AND s.environment = f.environment AND s.used >= s.cap)
           -- a cap of 0 stands nowhere, and lets nothing through
           AND (least(l.daily_completions, l.daily_input_tokens, l.daily_output_tokens, l.daily_tokens, l.daily_cost_cents,
                      l.monthly_completions, l.monthly_tokens, l.monthly_cost_cents, 1) > 0 AND l.tenant_id IS NOT NULL
                OR EXISTS (SELECT FROM department_budgets b
                            CROSS JOIN LATERAL quota_department_standing(b.department_id, b.environment, v_month, p_now) u
                            WHERE f.subject_kind = 'department' AND b.department_id = f.subject
                              AND b.environment = f.environment
                              AND least(u.budget_tokens, u.budget_cost_nanos, 1) > 0))
    ), marked AS (
        UPDATE quota_warn_log w
           SET told_available_at = p_now
          FROM told t
         WHERE w.subject_kind = t.subject_kind AND w.subject = t.subject AND w.environment = t.environment
           AND w.threshold = 100 AND w.state = 'told' AND w.told_available_at IS NULL AND w.logged_at >= v_since
    ), message AS (
        SELECT t.subject_kind, t.subject, t.environment, t.department_id,
               'qa-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', t.subject_kind, t.subject, t.environment, t.key),
                                                      'UTF8')), 'hex'), 32) AS message_key,
               coalesce(d.locale, t.tenant_locale, g.locale) AS locale,
               jsonb_build_object(
                   'subject_kind', t.subject_kind, 'subject', t.subject, 'environment', t.environment,
                   'department_id', CASE t.subject_kind WHEN 'tenant' THEN t.department_id ELSE t.subject END,
                   'department_name', d.name, 'severity', 'available', 'threshold', 100, 'past', false, 'decided_at', p_now,
                   'reason', CASE WHEN t.by_period THEN 'period' ELSE 'allowance' END,
                   'zone', g.billing_zone, 'currency', g.currency, 'dimensions', coalesce(t.dimensions, '[]'),
                   'enforce', t.enforce, 'tier', NULL, 'downgrade_model', NULL, 'downgrade_from', NULL, 'top_apps', NULL,
                   'owner_emails', quota_texts(d.owner_emails), 'finance_emails', quota_texts(d.finance_emails))
               AS facts
          FROM told t
         CROSS JOIN quota_settings g
          LEFT JOIN departments d ON d.department_id
                                     = CASE t.subject_kind WHEN 'tenant' THEN t.department_id ELSE t.subject END
    ), queued AS (
        INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, recipient, severity, urgency, locale, facts,
                                  subject_kind, subject, environment, next_attempt_at, created_at)
        SELECT 'qa-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', m.message_key, r.channel, r.recipient),
                                                      'UTF8')), 'hex'), 40),
               m.message_key, 'available', r.channel, r.recipient, 'available', 3, m.locale, m.facts,
               m.subject_kind, m.subject, m.environment, p_now, p_now
          FROM message m
         CROSS JOIN LATERAL quota_route(p_routes, m.subject_kind, m.subject, m.facts ->> 'department_id',
                                        m.environment, 'exhausted') r
         ORDER BY m.message_key, r.channel, r.recipient
        ON CONFLICT ON CONSTRAINT quota_outbox_dedupe DO NOTHING
    )
    SELECT count(*) INTO v_told FROM message;
    RETURN v_told;
END
$$;
