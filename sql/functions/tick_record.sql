-- Writes how jobs ended, and gives the lease back when p_release.
--
-- p_runs: an array of objects job, outcome (done, unfinished, failed), counts, error,
-- seconds. Only runs opened under p_fence are written, so a stalled tick can't overwrite
-- its successor's. The run's end is p_now, or the clock. Returns how many were written.
-- Locks: job_runs' rows, then tick_lease's row. SQLSTATE: 55P03 when a row stays locked
-- for 2 s.
CREATE OR REPLACE FUNCTION tick_record(
    p_fence    bigint,
    p_runs     jsonb,
    p_release  boolean,
    p_now      timestamptz DEFAULT NULL
)
RETURNS integer
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_written integer;
BEGIN
    UPDATE job_runs r
       SET outcome = e.outcome, counts = COALESCE(e.counts, '{}'), error = e.error,
           seconds = e.seconds, ended_at = COALESCE(p_now, clock_timestamp())
      FROM jsonb_to_recordset(p_runs)
           AS e (job text, outcome text, counts jsonb, error text, seconds double precision)
     WHERE r.job = e.job AND r.fence = p_fence AND r.outcome = 'running';
    GET DIAGNOSTICS v_written = ROW_COUNT;
    IF p_release THEN
        UPDATE tick_lease l SET expires_at = '-infinity'
         WHERE l.lease_name = 'tick' AND l.fence = p_fence;
    END IF;
    RETURN v_written;
END
$$;
