-- One pass of the diagnosis: the groups of requests that come without usage are told in one message, in this one
-- transaction with the note that they were.
--
-- Out: groups (told now), messages (0 or 1; it becomes one quota_outbox row per channel and address, as quota_route
-- says of a message about nobody). The message lists the ten costliest groups, and counts and sums all.
-- Idempotent: a second pass over the same state tells nothing. Safe beside itself: of two passes that find the same
-- group, one writes its row of quota_missing_told, and only what was written here is told here. p_limit bounds the
-- groups of one pass, the costliest first. Which groups: quota_diagnosis_groups.
-- Lock order: quota_missing_told, sorted; quota_outbox.
-- SQLSTATE: 55P03 when another pass holds a lock for 30 s (retry); 22023 without routes.
CREATE OR REPLACE FUNCTION quota_diagnose(
    p_now timestamptz DEFAULT NULL, p_routes jsonb DEFAULT '{"default": {"to": [{"channel": "console"}]}}',
    p_missing_pct int DEFAULT 5, p_min_requests int DEFAULT 20, p_limit int DEFAULT 10000,
    OUT groups int, OUT messages int
) RETURNS record
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '30s'
SET jit = off
AS $$
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_key   text;
    v_facts jsonb;
BEGIN
    IF p_routes -> 'default' IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'quota_diagnose: p_routes needs a default';
    END IF;

    WITH found AS MATERIALIZED (
        SELECT f.*
          FROM quota_diagnosis_groups(v_now, p_missing_pct, p_min_requests)
               WITH ORDINALITY AS f (model, app, api_key, requests, missing, uncharged, tokens, cost_nanos,
                                     department_id, place)
         LIMIT p_limit
    ), told AS (
        INSERT INTO quota_missing_told AS t (model, app, api_key, told_at, requests, missing)
        SELECT f.model, f.app, f.api_key, v_now, f.requests, f.missing
          FROM found f ORDER BY f.model, f.app, f.api_key
        ON CONFLICT ON CONSTRAINT quota_missing_told_pkey DO UPDATE
           SET told_at = EXCLUDED.told_at, requests = EXCLUDED.requests, missing = EXCLUDED.missing
         -- but for a group that another pass has just told
         WHERE quota_diagnosis_due(t.told_at, t.requests, t.missing, EXCLUDED.requests, EXCLUDED.missing, v_now)
        RETURNING t.model, t.app, t.api_key
    ), listed AS (
        SELECT f.*, d.name AS department_name, row_number() OVER (ORDER BY f.place) AS rank
          FROM found f
          JOIN told t ON t.model = f.model AND t.app = f.app AND t.api_key = f.api_key
          LEFT JOIN departments d ON d.department_id = f.department_id
    )
    SELECT count(*),
           'qm-' || left(encode(sha256(convert_to(
               concat(v_now, string_agg(concat_ws(E'\x1f', '', l.model, l.app, l.api_key, l.requests, l.missing),
                                        E'\x1e' ORDER BY l.rank)), 'UTF8')), 'hex'), 32),
           jsonb_build_object(
               'severity', 'warning', 'decided_at', v_now, 'dimensions', '[]'::jsonb, 'top_apps', NULL,
               'hours', 24, 'missing_pct', p_missing_pct, 'group_count', count(*),
               'requests', sum(l.requests), 'missing', sum(l.missing), 'uncharged', sum(l.uncharged),
               'tokens', sum(l.tokens), 'cost_nanos', sum(l.cost_nanos),
               'groups', jsonb_agg(jsonb_build_object(
                   'model', l.model, 'app', l.app, 'api_key', l.api_key, 'requests', l.requests,
                   'missing', l.missing, 'share_pct', round(l.missing * 100.0 / l.requests, 1), 'tokens', l.tokens,
                   'cost_nanos', l.cost_nanos, 'department_id', l.department_id,
                   'department_name', l.department_name) ORDER BY l.rank) FILTER (WHERE l.rank <= 10))
      INTO groups, v_key, v_facts
      FROM listed l;

    messages := (groups > 0)::int;
    IF messages > 0 THEN
        INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, recipient, severity, urgency, locale, facts,
                                  next_attempt_at, created_at)
        SELECT 'qw-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', v_key, r.channel, r.recipient), 'UTF8')),
                                    'hex'), 40),
               v_key, 'usage-missing', r.channel, r.recipient, 'warning', 3, g.locale,
               v_facts || jsonb_build_object('zone', g.billing_zone, 'currency', g.currency), v_now, v_now
          FROM quota_settings g
         CROSS JOIN quota_route(p_routes, NULL, NULL, NULL, NULL, 'warning') r
         ORDER BY r.channel, r.recipient
        ON CONFLICT ON CONSTRAINT quota_outbox_dedupe DO NOTHING;
    END IF;
END
$$;
