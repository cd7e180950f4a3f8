-- Notes and tells apps and keys that quota_watch found running away: one message a tenant, written with the note. For
-- quota_watch, whose head says what is kept; p_found are quota_watch_runaways' rows as a JSON array, in their order.
--
-- Facts of the message: findings (the ten costliest, as quota_watch_runaways has them; of all keys of an app together
-- how many they are, key_count), finding_count, and the sums of all. All keys of an app are noted as E'\x1f', which no key is. Routed as a message about the tenant. Lock order and SQLSTATEs: as quota_watch.
CREATE OR REPLACE FUNCTION quota_watch_tell_runaways(
    p_found jsonb, p_routes jsonb, p_now timestamptz, OUT told int, OUT messages int
) RETURNS record
LANGUAGE sql
SET search_path FROM CURRENT
-- before statistics are known, too: the hour by its block-range index
SET enable_seqscan = off
AS $$
    WITH called AS MATERIALIZED (
        SELECT r.tenant_id, coalesce(r.app, '') AS app, count(DISTINCT coalesce(r.api_key, '')) AS keys
          FROM quota_reservations r
         WHERE r.admitted_at > p_now - interval '1 hour' AND r.admitted_at <= p_now AND NOT r.unreserved
           AND EXISTS (SELECT FROM jsonb_array_elements(p_found) f WHERE f ->> 'api_key' IS NULL)
         GROUP BY 1, 2
    ), found AS MATERIALIZED (
        SELECT f.row ->> 'tenant_id' AS tenant_id, f.row ->> 'environment' AS environment,
               f.row ->> 'department_id' AS department_id, f.row ->> 'app' AS app,
               coalesce(f.row ->> 'api_key', E'\x1f') AS api_key,
               f.row - ARRAY['tenant_id', 'environment', 'department_id', 'place']
               || CASE WHEN f.row ->> 'api_key' IS NULL THEN jsonb_build_object('api_key', '', 'key_count', k.keys) ELSE '{}' END AS evidence,
               f.place
          FROM jsonb_array_elements(p_found) WITH ORDINALITY AS f (row, place)
          LEFT JOIN called k ON k.tenant_id = f.row ->> 'tenant_id' AND k.app = f.row ->> 'app'
    ), noted AS (
        INSERT INTO quota_watch_told AS t (trouble, subject_kind, subject, environment, about, detail, told_at, quiet_until)
        SELECT 'runaway', 'tenant', f.tenant_id, '', f.app, f.api_key, p_now, p_now + interval '24 hours'
          FROM found f
         ORDER BY f.tenant_id, f.app, f.api_key
        ON CONFLICT ON CONSTRAINT quota_watch_told_pkey DO UPDATE
           SET told_at = EXCLUDED.told_at, quiet_until = EXCLUDED.quiet_until
         -- but for what another pass has just told
         WHERE quota_watch_due(t.told_at, t.quiet_until, p_now)
        RETURNING t.subject, t.about, t.detail
    ), placed AS (
        SELECT f.*, row_number() OVER (PARTITION BY f.tenant_id ORDER BY f.place) AS rank
          FROM found f
          JOIN noted n ON n.subject = f.tenant_id AND n.about = f.app AND n.detail = f.api_key
    ), listed AS MATERIALIZED (
        SELECT p.tenant_id, count(*)::int AS told, (array_agg(p.environment ORDER BY p.place))[1] AS environment,
               (array_agg(p.department_id ORDER BY p.place))[1] AS department_id,
               'qr-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', p.tenant_id, p_now,
                   string_agg(concat_ws(E'\x1f', p.app, p.api_key), E'\x1e' ORDER BY p.place)), 'UTF8')), 'hex'), 32)
                   AS message_key,
               jsonb_build_object(
                   'finding_count', count(*), 'requests', sum((p.evidence ->> 'requests')::numeric),
                   'tokens', sum((p.evidence ->> 'tokens')::numeric),
                   'cost_nanos', sum((p.evidence ->> 'cost_nanos')::numeric),
                   'findings', jsonb_agg(p.evidence ORDER BY p.place) FILTER (WHERE p.rank <= 10)) AS facts
          FROM placed p
         GROUP BY p.tenant_id
    ), written AS (
        INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, recipient, severity, urgency, locale, facts,
                                  subject_kind, subject, environment, next_attempt_at, created_at)
        SELECT 'qw-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', l.message_key, t.channel, t.recipient),
                                                      'UTF8')), 'hex'), 40),
               l.message_key, 'runaway', t.channel, t.recipient, 'warning', 1, coalesce(d.locale, k.locale, g.locale),
               l.facts || jsonb_build_object(
                   'subject_kind', 'tenant', 'subject', l.tenant_id, 'environment', l.environment,
                   'department_id', l.department_id, 'department_name', d.name, 'severity', 'warning',
                   'decided_at', p_now, 'zone', g.billing_zone, 'currency', g.currency,
                   'dimensions', '[]'::jsonb, 'top_apps', NULL),
               'tenant', l.tenant_id, l.environment, p_now, p_now
          FROM listed l
         CROSS JOIN quota_settings g
          LEFT JOIN tenant_limits k ON k.tenant_id = l.tenant_id
          LEFT JOIN departments d ON d.department_id = l.department_id
         CROSS JOIN LATERAL quota_route(p_routes, 'tenant', l.tenant_id, l.department_id, l.environment, 'warning') t
         ORDER BY l.tenant_id, t.channel, t.recipient
        ON CONFLICT ON CONSTRAINT quota_outbox_dedupe DO NOTHING
    )
    SELECT coalesce(sum(l.told), 0)::int, count(*)::int FROM listed l
$$;
