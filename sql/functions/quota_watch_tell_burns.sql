-- Notes and tells caps that quota_watch found burning: one message a subject, written with the note. For quota_watch,
-- whose head says what is kept; p_found are quota_watch_burning's rows as a JSON array.
--
-- Facts of the message: dimensions as in an alert (quota_warn_dimension_facts, with pace, short_pace per hour and
-- times_even), and callers: what used most of the last hour, by app and API key. For a department its owner and
-- finance addresses too. Lock order and SQLSTATEs: as quota_watch.
CREATE OR REPLACE FUNCTION quota_watch_tell_burns(
    p_found jsonb, p_routes jsonb, p_now timestamptz, OUT told int, OUT messages int
) RETURNS record
LANGUAGE sql
SET search_path FROM CURRENT
-- before statistics are known, too: the hour by its block-range index
SET enable_seqscan = off
AS $$
    WITH found AS MATERIALIZED (
        SELECT f.* FROM jsonb_to_recordset(p_found) AS f (
            subject_kind text, subject text, environment text, dimension text, period_kind text, period_start date,
            ends_at timestamptz, used numeric, held numeric, cap numeric, pace numeric, short_pace numeric,
            times_even numeric)
    ), noted AS (
        INSERT INTO quota_watch_told AS t (trouble, subject_kind, subject, environment, about, detail, told_at, quiet_until)
        SELECT 'burn', f.subject_kind, f.subject, f.environment, f.dimension, f.period_kind, p_now,
               CASE f.period_kind WHEN 'day' THEN f.ends_at ELSE p_now + interval '24 hours' END
          FROM found f
         ORDER BY f.subject, f.subject_kind, f.environment, f.dimension, f.period_kind
        ON CONFLICT ON CONSTRAINT quota_watch_told_pkey DO UPDATE
           SET told_at = EXCLUDED.told_at, quiet_until = EXCLUDED.quiet_until
         -- but for what another pass has just told
         WHERE quota_watch_due(t.told_at, t.quiet_until, p_now)
        RETURNING t.subject_kind, t.subject, t.environment, t.about, t.detail
    ), listed AS MATERIALIZED (
        SELECT f.subject_kind, f.subject, f.environment, count(*)::int AS told,
               'qb-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', f.subject_kind, f.subject, f.environment, p_now,
                   string_agg(concat_ws(E'\x1f', f.dimension, f.period_kind), E'\x1e'
                              ORDER BY f.dimension, f.period_kind)), 'UTF8')), 'hex'), 32) AS message_key,
               jsonb_agg(quota_warn_dimension_facts(f.dimension, f.period_kind, f.period_start, f.used, f.held, f.cap,
                                                    NULL, NULL, f.pace, f.ends_at, p_now)
                         || jsonb_build_object('pace', f.pace, 'short_pace', f.short_pace, 'times_even', f.times_even)
                         ORDER BY (f.cap - f.used) / f.pace, f.period_kind, f.dimension) AS dimensions
          FROM found f
          JOIN noted n ON n.subject_kind = f.subject_kind AND n.subject = f.subject AND n.environment = f.environment
                      AND n.about = f.dimension AND n.detail = f.period_kind
         GROUP BY f.subject_kind, f.subject, f.environment
    ), called AS MATERIALIZED (
        -- the hour once, not once a subject
        SELECT r.tenant_id, r.department_id, r.environment, coalesce(r.app, '') AS app, coalesce(r.api_key, '') AS api_key,
               count(*) AS requests,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                        ELSE r.charged_in_tokens::numeric + r.charged_out_tokens END) AS tokens,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END) AS cost_nanos
          FROM quota_reservations r
         WHERE r.admitted_at > p_now - interval '1 hour' AND r.admitted_at <= p_now AND EXISTS (SELECT FROM listed)
         GROUP BY 1, 2, 3, 4, 5
    ), callers AS MATERIALIZED (
        SELECT c.subject_kind, c.subject, c.environment,
               jsonb_agg(jsonb_build_object('app', c.app, 'api_key', c.api_key, 'requests', c.requests,
                                            'tokens', c.tokens, 'cost_nanos', c.cost_nanos, 'share_pct',
                                            round(c.tokens * 100 / nullif(c.all_tokens, 0), 1)) ORDER BY c.place)
                   FILTER (WHERE c.place <= 5) AS callers
          FROM (SELECT r.subject_kind, r.subject, r.environment, r.app, r.api_key, sum(r.requests)::bigint AS requests,
                       sum(r.tokens) AS tokens, sum(r.cost_nanos) AS cost_nanos,
                       sum(sum(r.tokens)) OVER (PARTITION BY r.subject_kind, r.subject, r.environment) AS all_tokens,
                       row_number() OVER (PARTITION BY r.subject_kind, r.subject, r.environment
                                          ORDER BY sum(r.cost_nanos) DESC, sum(r.tokens) DESC, r.app, r.api_key) AS place
                  FROM (SELECT k.subject_kind, k.subject, k.environment, h.app, h.api_key, h.requests, h.tokens, h.cost_nanos
                          FROM listed k
                          JOIN called h ON h.tenant_id = k.subject
                         WHERE k.subject_kind = 'tenant'
                        UNION ALL
                        SELECT k.subject_kind, k.subject, k.environment, h.app, h.api_key, h.requests, h.tokens, h.cost_nanos
                          FROM listed k
                          JOIN called h ON h.department_id = k.subject AND h.environment = k.environment
                         WHERE k.subject_kind = 'department') r
                 GROUP BY r.subject_kind, r.subject, r.environment, r.app, r.api_key) c
         GROUP BY c.subject_kind, c.subject, c.environment
    ), written AS (
        INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, recipient, severity, urgency, locale, facts,
                                  subject_kind, subject, environment, next_attempt_at, created_at)
        SELECT 'qw-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', l.message_key, t.channel, t.recipient),
                                                      'UTF8')), 'hex'), 40),
               l.message_key, 'burn-rate', t.channel, t.recipient, 'warning', 1, coalesce(d.locale, k.locale, g.locale),
               jsonb_build_object(
                   'subject_kind', l.subject_kind, 'subject', l.subject, 'environment', l.environment,
                   'department_id', d.department_id, 'department_name', d.name, 'severity', 'warning',
                   'decided_at', p_now, 'zone', g.billing_zone, 'currency', g.currency, 'dimensions', l.dimensions,
                   'callers', coalesce(c.callers, '[]'), 'top_apps', NULL,
                   'owner_emails', quota_texts(d.owner_emails), 'finance_emails', quota_texts(d.finance_emails)),
               l.subject_kind, l.subject, l.environment, p_now, p_now
          FROM listed l
         CROSS JOIN quota_settings g
          LEFT JOIN callers c ON c.subject_kind = l.subject_kind AND c.subject = l.subject
                             AND c.environment = l.environment
          LEFT JOIN tenant_limits k ON l.subject_kind = 'tenant' AND k.tenant_id = l.subject
          LEFT JOIN departments d ON d.department_id = CASE l.subject_kind WHEN 'tenant' THEN k.department_id
                                                                           ELSE l.subject END
         CROSS JOIN LATERAL quota_route(p_routes, l.subject_kind, l.subject, d.department_id, l.environment, 'warning') t
         ORDER BY l.subject_kind, l.subject, l.environment, t.channel, t.recipient
        ON CONFLICT ON CONSTRAINT quota_outbox_dedupe DO NOTHING
    )
    SELECT coalesce(sum(l.told), 0)::int, count(*)::int FROM listed l
$$;
