-- The counters of the month's tenant days that are wrong, each with what speaks for its cause, and the value that
-- used is to become. Internal to quota_audit and quota_audit_repair. Of one counter at most two rows: held, and
-- one of the others. expected, found: of held what is held; of posted and direct_write what is posted (used minus
-- what open requests hold); else used, or what was booked. charged: what the requests say of used.
--
--   held          held differs from the open requests' estimates
--   posted        used differs from the requests' charges plus legacy charges
--   direct_write  the same, what was booked doesn't, and no request explains it: somebody wrote into the row
--   booked        used is right, what was booked isn't; or legacy charges are noted that there never were: expected
--                 is 0 then, found what is noted
--   negative      a counter below zero
--   orphan        requests of a day that has no row
-- None of a month whose requests upkeep removed.
CREATE OR REPLACE FUNCTION quota_audit_counters(p_month date, p_tenants text[], p_span tstzrange)
RETURNS TABLE (
    tenant_id text, period date, dimension text, kind text, expected numeric, found numeric, request_id text,
    cause text, target numeric, charged numeric, holds numeric
)
LANGUAGE sql STABLE
AS $$
    WITH days AS MATERIALIZED (
        -- a day more on either side: a charge may stand on the neighbouring day, in another month
        SELECT d.*, g.ghost_c, g.ghost_i, g.ghost_o, g.ghost_n, f.off_c, f.off_i, f.off_o, f.off_n, f.hoff_i, f.hoff_o, f.hoff_n,
               -- what of it a wrong hold doesn't explain
               CASE WHEN f.off_i = f.hoff_i THEN 0 ELSE f.off_i END AS post_i,
               CASE WHEN f.off_o = f.hoff_o THEN 0 ELSE f.off_o END AS post_o,
               CASE WHEN f.off_n = f.hoff_n THEN 0 ELSE f.off_n END AS post_n
          FROM (SELECT q.* FROM quota_audit_days(p_month - 1, (p_month + interval '1 month')::date + 1, p_tenants, p_span) q
                 WHERE NOT quota_audit_removed(p_month)) d
         CROSS JOIN LATERAL (SELECT quota_audit_ghost(d.used_c, d.booked_c, d.legacy_c, d.charged_c) AS ghost_c,
                                    quota_audit_ghost(d.used_i, d.booked_i, d.legacy_i, d.charged_i) AS ghost_i,
                                    quota_audit_ghost(d.used_o, d.booked_o, d.legacy_o, d.charged_o) AS ghost_o,
                                    quota_audit_ghost(d.used_n, d.booked_n, d.legacy_n, d.charged_n) AS ghost_n) g
         CROSS JOIN LATERAL (SELECT d.used_c - d.charged_c - d.legacy_c + g.ghost_c AS off_c,
                                    d.used_i - d.charged_i - d.legacy_i + g.ghost_i AS off_i,
                                    d.used_o - d.charged_o - d.legacy_o + g.ghost_o AS off_o,
                                    d.used_n - d.charged_n - d.legacy_n + g.ghost_n AS off_n,
                                    d.held_i - d.holds_i AS hoff_i, d.held_o - d.holds_o AS hoff_o,
                                    d.held_n - d.holds_n AS hoff_n) f
    ), twins AS (
        -- the same amounts too much here and too little on a neighbouring day, or the other way round
        SELECT DISTINCT ON (a.tenant_id, a.period) a.tenant_id, a.period, b.period AS twin
          FROM days a JOIN days b ON b.tenant_id = a.tenant_id AND b.post_i = -a.post_i AND b.post_o = -a.post_o
                                 AND b.post_n = -a.post_n AND b.off_c = -a.off_c
         WHERE abs(b.period - a.period) = 1 AND (a.post_i, a.post_o, a.post_n) <> (0, 0, 0)
           -- a day whose row is gone lacks everything
           AND a.is_there AND b.is_there
         ORDER BY a.tenant_id, a.period, b.period
    ), posts AS (
        -- one ended request's charge, in full or at least in every dimension that is off
        SELECT DISTINCT ON (a.tenant_id, a.period) a.tenant_id, a.period, r.request_id, g.sign,
               (a.post_i, a.post_o, a.post_n)
                   = (g.sign * r.charged_in_tokens, g.sign * r.charged_out_tokens, g.sign * r.charged_cost_nanos) AS whole
          FROM days a
          JOIN quota_reservations r ON r.tenant_id = a.tenant_id AND r.period = a.period
         CROSS JOIN LATERAL (SELECT sign(coalesce(nullif(a.post_i, 0), nullif(a.post_o, 0), a.post_n)) AS sign) g
         WHERE a.is_there AND (a.post_i, a.post_o, a.post_n) <> (0, 0, 0) AND r.state <> 'open'
           AND a.post_i IN (0, g.sign * r.charged_in_tokens) AND a.post_o IN (0, g.sign * r.charged_out_tokens)
           AND a.post_n IN (0, g.sign * r.charged_cost_nanos) AND a.off_c IN (0, g.sign)
           AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
         ORDER BY a.tenant_id, a.period, whole DESC, r.admitted_at DESC, r.request_id
    ), ghosts AS MATERIALIZED (
        -- days whose notes of legacy charges are all wrong, and so no sign of other programs
        SELECT a.tenant_id, a.period FROM days a
         WHERE (a.ghost_c, a.ghost_i, a.ghost_o, a.ghost_n) <> (0, 0, 0, 0)
           AND (a.ghost_c, a.ghost_i, a.ghost_o, a.ghost_n) = (a.legacy_c, a.legacy_i, a.legacy_o, a.legacy_n)
    ), keepers AS (
        -- other programs write for these tenants, and mean it: they have legacy charges, or a row that none of
        -- our functions ever booked on, or nothing but direct writes
        SELECT a.tenant_id FROM days a
         WHERE a.is_there AND a.requests = 0
           AND (a.booked_c, a.booked_i, a.booked_o, a.booked_n, a.legacy_c, a.legacy_i, a.legacy_o, a.legacy_n)
               = (0, 0, 0, 0, 0, 0, 0, 0)
           AND NOT EXISTS (SELECT FROM twins t WHERE t.tenant_id = a.tenant_id AND t.period = a.period)
        UNION
        SELECT k.tenant_id FROM (SELECT DISTINCT a.tenant_id FROM days a) k
         WHERE EXISTS (SELECT FROM quota_usage u
                        WHERE u.tenant_id = k.tenant_id AND u.period >= (p_month - interval '1 month')::date
                          AND u.period < (p_month + interval '1 month')::date
                          AND (u.legacy_completions, u.legacy_input_tokens, u.legacy_output_tokens, u.legacy_cost_nanos)
                              <> (0, 0, 0, 0)
                          AND (u.tenant_id, u.period) NOT IN (SELECT g.tenant_id, g.period FROM ghosts g))
            OR NOT EXISTS (SELECT FROM quota_reservations r
                            WHERE r.tenant_id = k.tenant_id AND r.period >= p_month
                              AND r.period < (p_month + interval '1 month')::date)
    ), held AS (
        -- one request's estimate: it is open and not held, or ended and still held
        SELECT DISTINCT ON (a.tenant_id, a.period) a.tenant_id, a.period, r.request_id
          FROM days a
          JOIN quota_reservations r ON r.tenant_id = a.tenant_id AND r.period = a.period
         CROSS JOIN LATERAL (SELECT sign(coalesce(nullif(a.hoff_i, 0), nullif(a.hoff_o, 0), a.hoff_n)) AS sign) g
         WHERE a.is_there AND (a.hoff_i, a.hoff_o, a.hoff_n) <> (0, 0, 0) AND (r.state = 'open') = (g.sign < 0)
           AND a.hoff_i IN (0, g.sign * r.estimated_in_tokens) AND a.hoff_o IN (0, g.sign * r.estimated_out_tokens)
           AND a.hoff_n IN (0, g.sign * r.estimated_cost_nanos)
           AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
         ORDER BY a.tenant_id, a.period, r.admitted_at DESC, r.request_id
    ), counters AS (
        SELECT a.tenant_id, a.period, a.is_there, t.twin, p.request_id AS post_request, p.sign AS post_sign, p.whole,
               h.request_id AS held_request, v.dimension, v.used, v.booked, v.charged, v.held, v.holds, v.post, v.ghost,
               v.charged + v.legacy - v.ghost AS right_used,
               -- a direct write that stays, whatever it equals
               k.tenant_id IS NOT NULL AND v.booked = v.charged + v.legacy AS keeps
          FROM days a
          LEFT JOIN twins t ON t.tenant_id = a.tenant_id AND t.period = a.period
          LEFT JOIN posts p ON p.tenant_id = a.tenant_id AND p.period = a.period
          LEFT JOIN held h ON h.tenant_id = a.tenant_id AND h.period = a.period
          LEFT JOIN keepers k ON k.tenant_id = a.tenant_id
         CROSS JOIN LATERAL (VALUES
               ('completions', a.used_c, a.booked_c, a.legacy_c, a.charged_c, 0, 0, a.off_c, a.ghost_c),
               ('input_tokens', a.used_i, a.booked_i, a.legacy_i, a.charged_i, a.held_i, a.holds_i, a.post_i, a.ghost_i),
               ('output_tokens', a.used_o, a.booked_o, a.legacy_o, a.charged_o, a.held_o, a.holds_o, a.post_o, a.ghost_o),
               ('cost_nanos', a.used_n, a.booked_n, a.legacy_n, a.charged_n, a.held_n, a.holds_n, a.post_n, a.ghost_n)
               ) AS v (dimension, used, booked, legacy, charged, held, holds, post, ghost)
         WHERE a.period >= p_month AND a.period < (p_month + interval '1 month')::date
    )
    SELECT c.tenant_id, c.period, c.dimension, f.kind, f.expected, f.found, f.request_id, f.cause,
           -- as far as a counter goes
           least(CASE WHEN c.used < 0 OR c.right_used < 0 THEN c.charged
                      WHEN c.post <> 0 AND c.keeps THEN c.used
                      ELSE c.right_used END, 4000000000000000000), c.charged, c.holds
      FROM counters c
     CROSS JOIN LATERAL (
        SELECT 'orphan' AS kind, c.charged AS expected, 0::numeric AS found, NULL::text AS request_id,
               'the day has requests and no row in quota_usage: somebody deleted it' AS cause
         WHERE NOT c.is_there AND (c.charged <> 0 OR c.dimension = 'completions')
        UNION ALL
        SELECT CASE WHEN c.held < 0 THEN 'negative' ELSE 'held' END, c.holds, c.held, c.held_request,
               CASE WHEN c.held_request IS NOT NULL AND c.held < c.holds
                        THEN format('less is held than open requests ask: as much as request %s, which is open, ought to hold',
                                    c.held_request)
                    WHEN c.held_request IS NOT NULL
                        THEN format('more is held than open requests ask: as much as request %s held, which has ended',
                                    c.held_request)
                    WHEN c.held > c.holds THEN 'more is held than open requests ask: a hold without a reservation, '
                                               'or changed by something other than the ledger''s functions'
                    ELSE 'less is held than open requests ask: changed by something other than the ledger''s functions' END
         WHERE c.is_there AND c.held <> c.holds
        UNION ALL
        SELECT 'negative', c.charged, c.used, NULL,
               'a direct correction took it below zero; the mend is what the requests were charged'
         WHERE c.is_there AND c.used < 0
        UNION ALL
        SELECT CASE WHEN c.keeps OR c.booked = c.right_used AND c.twin IS NULL AND c.post_request IS NULL THEN 'direct_write'
                    ELSE 'posted' END,
               c.right_used - c.holds, c.used - c.holds,
               CASE WHEN c.keeps AND c.whole OR c.twin IS NULL AND NOT c.keeps THEN c.post_request END,
               CASE WHEN c.keeps
                        THEN 'written directly by another program and not folded in yet; the mend keeps it as a '
                             'legacy charge, since this tenant has such writes, or nothing else'
                             || CASE WHEN c.whole AND c.post_sign > 0
                                         THEN format('. It equals the charge of request %s: a double post, unless it was meant',
                                                     c.post_request)
                                     ELSE '' END
                    WHEN c.twin IS NOT NULL AND c.post > 0
                        THEN format('posted to the wrong day: the same is missing on %s', c.twin)
                    WHEN c.twin IS NOT NULL THEN format('posted to the wrong day: it stands on %s', c.twin)
                    WHEN c.post_sign > 0 THEN format('request %s looks posted twice', c.post_request)
                    WHEN c.post_sign < 0 THEN format('the charge of request %s looks dropped', c.post_request)
                    WHEN c.booked <> c.right_used THEN 'changed by something other than the ledger''s functions'
                    ELSE 'written directly, by something other than the ledger''s functions; the mend takes it back, '
                         'since all of this tenant''s charges come from requests' END
         WHERE c.is_there AND c.used >= 0 AND c.post <> 0
        UNION ALL
        SELECT 'booked', CASE WHEN c.ghost = 0 THEN c.right_used ELSE 0 END,
               CASE WHEN c.ghost = 0 THEN c.booked ELSE c.ghost END, NULL,
               CASE WHEN c.ghost = 0
                        THEN 'used is right, but the note of what was booked (booked_*) was changed by something other than '
                             'the ledger''s functions; reconcile would fold in a direct write that was none'
                    ELSE 'used is what the requests say, but legacy charges are noted (legacy_*): the note, or booked_* before a '
                         'reconcile, was changed by something other than the ledger''s functions' END
         WHERE c.is_there AND c.used >= 0 AND c.used = c.right_used AND (c.booked <> c.right_used OR c.ghost <> 0)
     ) f
$$;

-- How much of a counter's noted legacy charges there never was: all of it where used is what the requests say, but for a
-- direct write that took back what is noted. Of a day without a row nothing is noted.
CREATE OR REPLACE FUNCTION quota_audit_ghost(p_used numeric, p_booked numeric, p_legacy numeric, p_charged numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_used = p_charged AND p_booked <> p_charged + p_legacy THEN p_legacy ELSE 0 END $$;
