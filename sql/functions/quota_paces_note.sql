-- Notes what was admitted in each complete hour, by tenant, app and API key, in quota_paces.
--
-- An hour is complete two minutes after its end. At most p_hours hours a call, oldest first, from where the last call
-- ended; what lies more than seven days back is left out. Out: hours (noted), rows (written), removed (of more than
-- eight days ago, at most 100,000 a call). Nothing is written where no hour is complete. What was admitted counts as
-- charged, or as held while open; usage that nobody reserved has no app and no key, and is left out.
-- Idempotent: an hour noted again has the same rows. Safe beside itself: the second waits for the first, and finds it done.
-- Lock order: quota_warn_scans' row 'paces', quota_paces. Reads hours through the block-range index on admitted_at.
-- SQLSTATE: 55P03 when another call holds the row for 30 s (retry).
CREATE OR REPLACE FUNCTION quota_paces_note(
    p_now timestamptz DEFAULT NULL, p_hours int DEFAULT 24, OUT hours int, OUT rows int, OUT removed int
) RETURNS record
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '30s'
SET jit = off
-- before statistics are known, too: an hour by its block-range index, whose cost is guessed too high
SET enable_seqscan = off
AS $$
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_end   timestamptz := date_trunc('hour', v_now - interval '2 minutes', 'UTC');
    v_from  timestamptz := quota_paces_from(v_now);
BEGIN
    hours := 0;
    rows := 0;
    removed := 0;
    IF v_from >= v_end THEN
        RETURN;
    END IF;
    INSERT INTO quota_warn_scans (scan, scanned_at, scanned_xid)
    VALUES ('paces', v_from, pg_current_xact_id())
    ON CONFLICT ON CONSTRAINT quota_warn_scans_pkey DO NOTHING;
    PERFORM FROM quota_warn_scans s WHERE s.scan = 'paces' FOR UPDATE;
    -- after the lock: what another call noted meanwhile is done
    v_from := quota_paces_from(v_now);
    v_end := least(v_end, v_from + make_interval(hours => p_hours));
    IF v_from >= v_end THEN
        RETURN;
    END IF;

    INSERT INTO quota_paces AS p (tenant_id, app, api_key, hour, requests, minutes, tokens, cost_nanos)
    SELECT r.tenant_id, coalesce(r.app, ''), coalesce(r.api_key, ''), date_trunc('hour', r.admitted_at, 'UTC'),
           count(*),
           bit_count(bit_or(1::bigint << date_part('minute', r.admitted_at)::int)::bit(64)),
           sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                    ELSE r.charged_in_tokens::numeric + r.charged_out_tokens END),
           sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END)
      FROM quota_reservations r
     WHERE r.admitted_at >= v_from AND r.admitted_at < v_end AND NOT r.unreserved
     GROUP BY 1, 2, 3, 4
    ON CONFLICT ON CONSTRAINT quota_paces_pkey DO UPDATE
       SET requests = EXCLUDED.requests, minutes = EXCLUDED.minutes, tokens = EXCLUDED.tokens,
           cost_nanos = EXCLUDED.cost_nanos;
    GET DIAGNOSTICS rows = ROW_COUNT;
    hours := date_part('epoch', v_end - v_from)::int / 3600;

    DELETE FROM quota_paces p
     WHERE p.ctid = ANY (ARRAY(SELECT o.ctid FROM quota_paces o WHERE o.hour < v_now - interval '8 days' LIMIT 100000));
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE quota_warn_scans s
       SET scanned_at = v_end, scanned_xid = pg_current_xact_id()
     WHERE s.scan = 'paces';
END
$$;

-- The beginning of the first hour that is still to be noted: where the last call ended, at most seven days ago. What
-- was noted by a clock that ran ahead counts as not noted.
CREATE OR REPLACE FUNCTION quota_paces_from(p_now timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT greatest(coalesce((SELECT s.scanned_at FROM quota_warn_scans s
                               WHERE s.scan = 'paces' AND s.scanned_at <= p_now), '-infinity'),
                    date_trunc('hour', p_now - interval '7 days', 'UTC'))
$$;
