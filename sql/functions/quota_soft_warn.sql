-- One pass of the warning decision: every untold crossing is logged and told once, in this one transaction.
--
-- Out: crossings (log rows written), messages (subjects told; each becomes one quota_outbox row per channel and
-- address, as quota_route says), superseded (logged under a higher threshold of the same cap), rearmed (thresholds
-- that may be told again). What ended unseen below 100 % becomes a line of each recipient's next digest. A message
-- that still waits is superseded where the same recipient gets one with a higher threshold of each of its caps.
-- With p_routes.available who is available again is told as well, among messages.
-- Idempotent: a second pass over the same state writes nothing. Safe beside itself: quota_warn_log_once lets
-- one of two passes log a crossing, and only what was logged here is told here. p_limit bounds the subjects of
-- one pass, in the order of their names; the scan's mark moves only when none was left out. The cost grows with
-- the tenants that moved since the last pass, but for the first of a day.
-- By the clock, it takes what waits in quota_crossings: whoever wrote that has committed before this pass looks.
-- Lock order: quota_crossings (none is waited for), quota_warn_log (re-arming, sorted), quota_warn_log (inserts,
-- sorted), quota_outbox, quota_warn_scans.
-- SQLSTATE: 55P03 when another pass holds a lock for 30 s (retry); 22023 without routes; 23505 when somebody gave quota_warn_log a unique key of their own that two of our rows share (drop it).
CREATE OR REPLACE FUNCTION quota_soft_warn(
    p_now timestamptz DEFAULT NULL, p_routes jsonb DEFAULT '{"default": {"to": [{"channel": "console"}]}}',
    p_limit int DEFAULT 10000,
    OUT crossings int, OUT messages int, OUT superseded int, OUT rearmed int
) RETURNS record
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '30s'
SET jit = off
AS $$
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_since timestamptz;
    v_xid   xid8;
    v_moved text[];
    v_seen  xid8 := pg_snapshot_xmin(pg_current_snapshot());
    v_keys  text[];
    v_left  boolean;
BEGIN
    IF p_routes -> 'default' IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'quota_soft_warn: p_routes needs a default';
    END IF;
    IF p_now IS NULL THEN
        DELETE FROM quota_crossings c
         WHERE c.crossing_id IN (SELECT w.crossing_id FROM quota_crossings w FOR UPDATE SKIP LOCKED);
    END IF;
    SELECT s.scanned_at, s.scanned_xid INTO v_since, v_xid FROM quota_warn_scans s WHERE s.scan = 'soft_warn';
    -- Going by what moved is right while the day is the one that was judged, by the settings of now, in the same
    -- cluster. Else everybody is judged: at the first pass, once a day, or by a time before the last.
    IF v_since <= v_now AND quota_day(v_since) = quota_day(v_now) AND v_xid <= v_seen
       AND NOT EXISTS (SELECT FROM quota_settings g
                        WHERE age(g.xmin) <= pg_snapshot_xmax(pg_current_snapshot())::text::numeric
                                             - v_xid::text::numeric) THEN
        v_moved := ARRAY(SELECT quota_warn_moved(v_xid));
    END IF;
    -- At the very first pass, and after one by a clock that ran ahead: what ended within the last day.
    IF v_since IS NULL OR v_since > v_now + interval '10 minutes' THEN
        v_since := v_now - interval '1 day';
    END IF;
    rearmed := quota_warn_rearm(v_now, v_moved);

    WITH untold AS MATERIALIZED (
        SELECT u.* FROM quota_warn_untold(v_now, v_since, v_moved) u
    ), placed AS MATERIALIZED (
        SELECT u.*,
               dense_rank() OVER (ORDER BY u.past, u.subject_kind, u.subject, u.environment) AS place,
               max(u.threshold) OVER (PARTITION BY u.subject_kind, u.subject, u.environment, u.dimension,
                                                   u.period_kind, u.period_start) AS highest
          FROM untold u
    ), chosen AS MATERIALIZED (
        SELECT p.*,
               CASE WHEN p.threshold < p.highest OR p.told_higher THEN 'superseded'
                    WHEN p.past AND p.threshold < 100 THEN 'digest'
                    WHEN p.past THEN 'past'
                    ELSE 'told' END AS state
          FROM placed p WHERE p.place <= p_limit
    ), keyed AS (
        SELECT c.past, c.state = 'digest' AS for_digest, c.subject_kind, c.subject, c.environment,
               'qw-' || left(encode(sha256(convert_to(c.subject_kind || E'\x1f' || c.subject || E'\x1f' || c.environment
                   || string_agg(concat_ws(E'\x1f', '', c.dimension, c.period_kind, c.period_start, c.threshold,
                                           c.generation), E'\x1e'
                                 ORDER BY c.dimension, c.period_kind, c.period_start), 'UTF8')), 'hex'), 32)
                   AS message_key
          FROM chosen c WHERE c.state <> 'superseded'
         GROUP BY c.past, c.state = 'digest', c.subject_kind, c.subject, c.environment
    ), logged AS (
        INSERT INTO quota_warn_log AS w (subject_kind, subject, environment, dimension, period_kind, period_start,
                                         threshold, generation, state, severity, message_key, used, held, cap,
                                         refused_at, logged_at, cap_seen, below_ticks)
        SELECT c.subject_kind, c.subject, c.environment, c.dimension, c.period_kind, c.period_start,
               c.threshold, c.generation, c.state, c.severity, k.message_key, c.used, c.held, c.cap,
               c.refused_at, v_now, c.cap, 0
          FROM chosen c
          LEFT JOIN keyed k ON k.past = c.past AND k.for_digest = (c.state = 'digest') AND c.state <> 'superseded'
                           AND k.subject_kind = c.subject_kind AND k.subject = c.subject
                           AND k.environment = c.environment
         ORDER BY c.subject_kind, c.subject, c.environment, c.dimension, c.period_kind, c.period_start,
                  c.threshold, c.generation
        -- quota_warn_log_once and no other: a key that isn't ours must raise, not swallow an alert
        ON CONFLICT (subject_kind, subject, environment, dimension, period_kind, period_start, threshold, generation)
            WHERE subject_kind IS NOT NULL DO NOTHING
        RETURNING w.state, w.message_key
    )
    SELECT count(*), count(*) FILTER (WHERE g.state = 'superseded'),
           coalesce(array_agg(DISTINCT g.message_key) FILTER (WHERE g.state <> 'superseded'), '{}'),
           count(DISTINCT g.message_key) FILTER (WHERE g.state IN ('told', 'past')),
           (SELECT coalesce(max(p.place) > p_limit, false) FROM placed p)
      INTO crossings, superseded, v_keys, messages, v_left
      FROM logged g;

    IF cardinality(v_keys) > 0 THEN
        PERFORM quota_warn_enqueue(v_keys, p_routes, v_now);
    END IF;

    messages := messages + quota_warn_available(v_now, p_routes);
    -- No digest came by within a day: they make one.
    UPDATE quota_outbox o
       SET state = 'pending', next_attempt_at = v_now
     WHERE o.outbox_id IN (SELECT l.outbox_id FROM quota_outbox l
                            WHERE l.state = 'stale' AND l.digest_only AND l.created_at <= v_now - interval '1 day'
                              FOR UPDATE SKIP LOCKED);

    IF NOT v_left THEN
        INSERT INTO quota_warn_scans AS s (scan, scanned_at, scanned_xid) VALUES ('soft_warn', v_now, v_seen)
        ON CONFLICT ON CONSTRAINT quota_warn_scans_pkey DO UPDATE
           SET scanned_at = EXCLUDED.scanned_at, scanned_xid = EXCLUDED.scanned_xid
         -- but for a pass that was overtaken; far back, the last one was by a clock that ran ahead
         WHERE s.scanned_at <= EXCLUDED.scanned_at OR s.scanned_at > EXCLUDED.scanned_at + interval '10 minutes';
    END IF;
END
$$;
