-- Writes how jobs ended, and gives the lease back when p_release.
--
-- p_runs: an array of objects job, outcome (done, unfinished, failed), counts, error,
-- seconds. Only runs opened under p_fence are written, so a stalled tick can't overwrite
-- its successor's. The run's end is p_now, or the clock. Returns how many were written.
-- p_idle: every job was done and found nothing. Noted for the next tick_begin (idle_xid) only if
-- nobody else can have written meanwhile: nothing older ran when this tick began, and of the
-- transactions since, none but soft_warn's mark is another's than this one.
-- Locks: job_runs' rows, then tick_lease's row. SQLSTATE: 55P03 when a row stays locked
-- for 2 s.
CREATE OR REPLACE FUNCTION tick_record(
    p_fence    bigint,
    p_runs     jsonb,
    p_release  boolean,
    p_now      timestamptz DEFAULT NULL,
    p_idle     boolean DEFAULT false
)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_written integer;
    v_own     xid8;
    v_others  numeric;
BEGIN
    UPDATE job_runs r
       SET outcome = e.outcome, counts = COALESCE(e.counts, '{}'), error = e.error,
           seconds = e.seconds, ended_at = COALESCE(p_now, clock_timestamp())
      FROM jsonb_to_recordset(p_runs)
           AS e (job text, outcome text, counts jsonb, error text, seconds double precision)
     WHERE r.job = e.job AND r.fence = p_fence AND r.outcome = 'running';
    GET DIAGNOSTICS v_written = ROW_COUNT;
    IF p_release THEN
        v_own := pg_current_xact_id();
        IF p_idle AND p_now IS NULL THEN
            -- null: not known, because the row is another version than the one that began
            SELECT v_own::text::numeric - l.begun_xid::text::numeric - 1
                   - (SELECT count(*) FROM quota_warn_scans s
                       WHERE s.scan = 'soft_warn' AND age(s.xmin) < age(l.xmin) AND age(s.xmin) > age(v_own::xid))
              INTO v_others
              FROM tick_lease l
             WHERE l.lease_name = 'tick' AND l.fence = p_fence AND l.xmin = l.begun_xid::xid;
        END IF;
        UPDATE tick_lease l
           SET expires_at = '-infinity', idle_xid = CASE WHEN v_others = 0 THEN v_own END
         WHERE l.lease_name = 'tick' AND l.fence = p_fence;
    END IF;
    RETURN v_written;
END
$$;
