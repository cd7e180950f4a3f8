-- Takes the tick's lease and opens a run for each job that is due.
--
-- granted false: another tick holds the lease; nothing was written. Otherwise `due`
-- names the jobs to run, in the order given. A job is due in its slot (its interval,
-- aligned to the epoch) unless that slot's run is done; p_always makes it due anyway.
-- What was missed is caught up once: only the present slot counts.
-- p_now chooses the slot; the lease itself runs on real time.
-- Locks: tick_lease's row, then job_runs' rows in the order given. SQLSTATE: 55P03
-- when the lease's row stays locked for 2 s.
CREATE OR REPLACE FUNCTION tick_begin(
    p_owner             text,
    p_lease_seconds     integer,
    p_jobs              text[],
    p_interval_seconds  integer[],
    p_always            boolean[],
    p_now               timestamptz DEFAULT NULL,
    OUT granted         boolean,
    OUT fence           bigint,
    OUT lease_until     timestamptz,
    OUT due             text[]
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_clock timestamptz;
    v_now   timestamptz;
    v_lease tick_lease%ROWTYPE;
BEGIN
    SELECT l.* INTO STRICT v_lease FROM tick_lease l WHERE l.lease_name = 'tick' FOR UPDATE;
    v_clock := clock_timestamp();
    v_now := COALESCE(p_now, v_clock);
    IF v_lease.expires_at > v_clock THEN
        granted := false;
        fence := v_lease.fence;
        lease_until := v_lease.expires_at;
        due := '{}';
        RETURN;
    END IF;
    granted := true;
    fence := v_lease.fence + 1;
    lease_until := v_clock + make_interval(secs => p_lease_seconds);
    UPDATE tick_lease l
       SET owner = p_owner, fence = tick_begin.fence, expires_at = lease_until, renewed_at = v_clock
     WHERE l.lease_name = 'tick';

    WITH slot AS (
        SELECT j.job, j.ordinal, j.always,
               to_timestamp(floor(extract(epoch FROM v_now) / j.seconds) * j.seconds) AS scheduled_for
          FROM unnest(p_jobs, p_interval_seconds, p_always)
               WITH ORDINALITY AS j (job, seconds, always, ordinal)
    ), opened AS (
        INSERT INTO job_runs AS r (job, scheduled_for, outcome, fence, started_at)
        SELECT s.job, s.scheduled_for, 'running', tick_begin.fence, v_now
          FROM slot s
         WHERE s.always
            OR NOT EXISTS (SELECT 1 FROM job_runs d
                            WHERE d.job = s.job AND d.scheduled_for = s.scheduled_for
                              AND d.outcome = 'done')
         ORDER BY s.ordinal
        ON CONFLICT ON CONSTRAINT job_runs_pkey DO UPDATE
           SET outcome = 'running', attempts = r.attempts + 1, fence = EXCLUDED.fence,
               started_at = EXCLUDED.started_at, ended_at = NULL, seconds = NULL, error = NULL
        RETURNING r.job
    )
    SELECT COALESCE(array_agg(s.job ORDER BY s.ordinal), '{}') INTO due
      FROM slot s JOIN opened o ON o.job = s.job;
END
$$;
