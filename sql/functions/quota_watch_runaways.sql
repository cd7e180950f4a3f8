-- Apps and API keys of tenants that run away: one row per (tenant, app, key), with the rule that it breaks and why; and
-- one per app whose keys do so together and none of them alone, with api_key NULL.
--
-- The last hour before p_now is held against the hours noted in quota_paces ('' is a label that nobody gave). Rules, the first that holds:
--   tight_loop     at least p_min_requests requests in the last ten minutes, 80 % of them with the same number of
--                  input tokens, and at least twice its usual requests of an hour (or it has no history)
--   every_minute   on the days before it ran in at most 3 hours and 10 minutes of a day, and now in 30 minutes of an hour
--   times_usual    at least p_min_requests requests, and p_times its usual requests, tokens or cost of an hour
-- Its usual is the 95th percentile of the hours in which it ran within the last seven days, the last hour left out;
-- times_usual needs one noted 24 hours ago, every_minute two days. Only who goes on is named: a request in the last ten minutes.
-- figure: what stands out (requests, tokens, cost); present, usual: of an hour, in its unit (nanos for cost); usual is
-- NULL without history. same_in_tokens, same, recent: how many of the last ten minutes' requests had so many input
-- tokens. usual_minutes: of a day, for every_minute. end_users: how many in the last ten minutes. department_id and environment: where its last request was
-- admitted. Left out is what is quiet (quota_watch_told). The costliest first.
-- An app as a whole must stand out against its keys' sum in this hour of the seven days before, too.
-- Takes no locks; reads one hour of reservations through the block-range index on admitted_at, of quota_paces seven hours
-- where apps have several keys, and the groups that are fast enough for a rule, by the key.
CREATE OR REPLACE FUNCTION quota_watch_runaways(p_now timestamptz, p_times int, p_min_requests int)
RETURNS TABLE (tenant_id text, environment text, department_id text, app text, api_key text, rule text, figure text,
               present numeric, usual numeric, requests bigint, minutes int, tokens numeric, cost_nanos numeric,
               recent bigint, same bigint, same_in_tokens bigint, usual_minutes numeric, end_users bigint, models jsonb)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
-- before statistics are known, too: the hour by its block-range index, whose cost is guessed too high
SET enable_seqscan = off
-- whatever its caller has set: history by the keys
SET enable_nestloop = on
AS $$
    WITH called AS MATERIALIZED (
        SELECT r.tenant_id, coalesce(r.app, '') AS app, coalesce(r.api_key, '') AS api_key, count(*) AS requests,
               bit_or(1::bigint << date_part('minute', r.admitted_at)::int) AS minutes,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END)
               + sum(CASE WHEN r.state = 'open' THEN r.estimated_out_tokens ELSE r.charged_out_tokens END) AS tokens,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END) AS cost_nanos,
               count(*) FILTER (WHERE r.admitted_at > p_now - interval '10 minutes') AS recent
          FROM quota_reservations r
         WHERE r.admitted_at > p_now - interval '1 hour' AND r.admitted_at <= p_now AND NOT r.unreserved
         GROUP BY 1, 2, 3
    ), together AS MATERIALIZED (
        -- all keys of an app
        SELECT c.tenant_id, c.app, sum(c.requests)::bigint AS requests,
               bit_count(bit_or(c.minutes)::bit(64))::int AS minutes, sum(c.tokens) AS tokens,
               sum(c.cost_nanos) AS cost_nanos, sum(c.recent)::bigint AS recent
          FROM called c
         GROUP BY c.tenant_id, c.app
        HAVING count(*) > 1 AND sum(c.requests) >= p_min_requests AND sum(c.recent) > 0
           AND NOT EXISTS (SELECT FROM quota_watch_told t
                            WHERE t.trouble = 'runaway' AND t.subject_kind = 'tenant' AND t.subject = c.tenant_id
                              AND t.about = c.app AND NOT quota_watch_due(t.told_at, t.quiet_until, p_now))
    ), most AS MATERIALIZED (
        -- what they made in this hour of the days before: a whole history is a row per key and hour, too many to read
        -- of every app
        SELECT d.tenant_id, d.app, max(d.requests) AS requests, max(d.tokens) AS tokens, max(d.cost_nanos) AS cost_nanos
          FROM (SELECT k.tenant_id, k.app, k.hour, sum(k.requests) AS requests, sum(k.tokens) AS tokens,
                       sum(k.cost_nanos) AS cost_nanos
                  FROM quota_paces k
                 WHERE k.hour = ANY (ARRAY(SELECT date_trunc('hour', p_now - interval '30 minutes', 'UTC') - interval '24 hours' * n
                                             FROM generate_series(1, 7) n))
                   AND EXISTS (SELECT FROM together)
                 GROUP BY k.tenant_id, k.app, k.hour) d
         GROUP BY d.tenant_id, d.app
    ), loops AS MATERIALIZED (
        SELECT DISTINCT c.tenant_id, c.app
          FROM (SELECT a.tenant_id, a.app, a.recent, count(*) AS same
                  FROM together a
                  JOIN quota_reservations r ON r.tenant_id = a.tenant_id AND coalesce(r.app, '') = a.app
                 WHERE a.recent >= p_min_requests AND NOT r.unreserved
                   AND r.admitted_at > p_now - interval '10 minutes' AND r.admitted_at <= p_now
                 GROUP BY a.tenant_id, a.app, a.recent,
                          CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END) c
         WHERE c.same * 5 >= c.recent * 4
    ), busy AS MATERIALIZED (
        -- who can break one of the rules at all; E'\x1f', which no key is, stands for all keys of an app
        SELECT c.tenant_id, c.app, c.api_key, c.requests, bit_count(c.minutes::bit(64))::int AS minutes, c.tokens,
               c.cost_nanos, c.recent
          FROM called c
         WHERE (c.requests >= p_min_requests OR bit_count(c.minutes::bit(64)) >= 30) AND c.recent > 0
        UNION ALL
        SELECT a.tenant_id, a.app, E'\x1f', a.requests, a.minutes, a.tokens, a.cost_nanos, a.recent
          FROM together a
          LEFT JOIN most m ON m.tenant_id = a.tenant_id AND m.app = a.app
          LEFT JOIN loops l ON l.tenant_id = a.tenant_id AND l.app = a.app
         WHERE l.app IS NOT NULL AND a.requests >= 2 * coalesce(m.requests, 0)
            OR a.requests >= p_times * coalesce(m.requests, 0) OR a.tokens >= p_times * coalesce(m.tokens, 0)
            OR a.cost_nanos >= p_times * coalesce(m.cost_nanos, 0)
    ), held AS MATERIALIZED (
        SELECT b.*, h.first_hour, h.requests AS usual_requests, h.tokens AS usual_tokens,
               h.cost_nanos AS usual_cost_nanos, h.hours, h.days, h.all_minutes
          FROM busy b
         CROSS JOIN LATERAL (
            SELECT min(p.hour) AS first_hour, count(*) AS hours, count(DISTINCT quota_day(p.hour)) AS days,
                   sum(p.minutes) AS all_minutes,
                   percentile_disc(0.95) WITHIN GROUP (ORDER BY p.requests) AS requests,
                   percentile_disc(0.95) WITHIN GROUP (ORDER BY p.tokens) AS tokens,
                   percentile_disc(0.95) WITHIN GROUP (ORDER BY p.cost_nanos) AS cost_nanos
              FROM (SELECT k.hour, k.requests::numeric, k.minutes::int, k.tokens, k.cost_nanos
                      FROM quota_paces k
                     WHERE b.api_key <> E'\x1f' AND k.tenant_id = b.tenant_id AND k.app = b.app AND k.api_key = b.api_key
                       AND k.hour >= p_now - interval '7 days' AND k.hour < p_now - interval '2 hours'
                    UNION ALL
                    SELECT k.hour, sum(k.requests), least(sum(k.minutes), 60)::int, sum(k.tokens), sum(k.cost_nanos)
                      FROM quota_paces k
                     WHERE b.api_key = E'\x1f' AND k.tenant_id = b.tenant_id AND k.app = b.app
                       AND k.hour >= p_now - interval '7 days' AND k.hour < p_now - interval '2 hours'
                     GROUP BY k.hour) p) h
    ), suspect AS MATERIALIZED (
        SELECT h.*, f.figure, f.present, f.usual, f.ratio,
               h.recent >= p_min_requests AND h.requests >= 2 * coalesce(h.usual_requests, 0) AS may_loop,
               h.first_hour <= p_now - interval '2 days' AND h.minutes >= 30
                   AND h.hours <= 3 * h.days AND h.all_minutes <= 10 * h.days AS every_minute,
               h.first_hour <= p_now - interval '1 day' AND h.requests >= p_min_requests
                   AND f.ratio >= p_times AS times_usual
          FROM held h
         CROSS JOIN LATERAL (
            SELECT v.figure, v.present, v.usual, v.present / nullif(v.usual, 0) AS ratio
              FROM (VALUES ('cost', h.cost_nanos, h.usual_cost_nanos, 1),
                           ('tokens', h.tokens, h.usual_tokens, 2),
                           ('requests', h.requests::numeric, h.usual_requests::numeric, 3)) AS v (figure, present, usual, place)
             ORDER BY v.present / nullif(v.usual, 0) DESC NULLS LAST, v.place
             LIMIT 1) f
         WHERE NOT EXISTS (SELECT FROM quota_watch_told t
                            WHERE t.trouble = 'runaway' AND t.subject_kind = 'tenant' AND t.subject = h.tenant_id
                              AND t.about = h.app AND t.detail = h.api_key
                              AND NOT quota_watch_due(t.told_at, t.quiet_until, p_now))
    ), recent AS MATERIALIZED (
        -- the last ten minutes of the suspects alone, once
        SELECT s.tenant_id, s.app, s.api_key, r.environment,
               r.department_id, r.admitted_at, r.end_user, coalesce(r.answered_model, r.model, r.requested_model) AS model,
               CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END AS in_tokens
          FROM quota_reservations r
          JOIN suspect s ON s.tenant_id = r.tenant_id AND s.app = coalesce(r.app, '')
                        AND s.api_key IN (coalesce(r.api_key, ''), E'\x1f')
         WHERE r.admitted_at > p_now - interval '10 minutes' AND r.admitted_at <= p_now AND NOT r.unreserved
           AND (s.may_loop OR s.every_minute OR s.times_usual)
    ), alike AS (
        SELECT DISTINCT ON (c.tenant_id, c.app, c.api_key) c.tenant_id, c.app, c.api_key, c.in_tokens, c.same
          FROM (SELECT r.tenant_id, r.app, r.api_key, r.in_tokens, count(*) AS same
                  FROM recent r GROUP BY r.tenant_id, r.app, r.api_key, r.in_tokens) c
         ORDER BY c.tenant_id, c.app, c.api_key, c.same DESC, c.in_tokens DESC
    ), shown AS (
        SELECT r.tenant_id, r.app, r.api_key, count(DISTINCT r.end_user) AS end_users,
               (array_agg(r.environment ORDER BY r.admitted_at DESC))[1] AS environment,
               (array_agg(r.department_id ORDER BY r.admitted_at DESC))[1] AS department_id,
               coalesce(jsonb_agg(DISTINCT r.model) FILTER (WHERE r.model IS NOT NULL), '[]') AS models
          FROM recent r GROUP BY r.tenant_id, r.app, r.api_key
    ), ruled AS (
        SELECT s.*, w.environment, w.department_id, w.end_users, w.models, a.in_tokens, a.same,
               CASE WHEN s.may_loop AND a.same * 5 >= s.recent * 4 THEN 'tight_loop'
                    WHEN s.every_minute THEN 'every_minute'
                    WHEN s.times_usual THEN 'times_usual' END AS rule
          FROM suspect s
          JOIN shown w ON w.tenant_id = s.tenant_id AND w.app = s.app AND w.api_key = s.api_key
          JOIN alike a ON a.tenant_id = s.tenant_id AND a.app = s.app AND a.api_key = s.api_key
    )
    SELECT u.tenant_id, u.environment, u.department_id, u.app, nullif(u.api_key, E'\x1f'), u.rule,
           CASE WHEN u.rule = 'times_usual' THEN u.figure ELSE 'requests' END,
           CASE WHEN u.rule = 'times_usual' THEN u.present ELSE u.requests END,
           CASE WHEN u.rule = 'times_usual' THEN u.usual ELSE u.usual_requests END,
           u.requests, u.minutes, u.tokens, u.cost_nanos, u.recent, u.same, u.in_tokens,
           round(u.all_minutes::numeric / nullif(u.days, 0), 1), u.end_users, u.models
      FROM ruled u
     WHERE u.rule IS NOT NULL
       -- an app whose key is named needs no row of its own
       AND (u.api_key <> E'\x1f'
            OR NOT EXISTS (SELECT FROM ruled k
                            WHERE k.tenant_id = u.tenant_id AND k.app = u.app AND k.api_key <> u.api_key
                              AND k.rule IS NOT NULL))
     ORDER BY u.cost_nanos DESC, u.tokens DESC, u.tenant_id, u.app, u.api_key
$$;
