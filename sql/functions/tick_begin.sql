-- Takes the tick's lease and opens a run for each job that is due; or ends a tick that has nothing to do.
--
-- granted false: another tick holds the lease; nothing was written. Otherwise `due`
-- names the jobs to run, in the order given. A job is due in its slot (its interval,
-- aligned to the epoch) unless that slot's run is done; p_always makes it due anyway.
-- What was missed is caught up once: only the present slot counts.
-- p_now chooses the slot; the lease itself runs on real time.
--
-- idle true (only where p_may_idle, and by the clock): no job would find anything. Their runs are
-- written as done and the lease is free again: this call was the whole tick. Proven, not guessed:
-- the last tick found nothing (idle_xid is its last transaction, and still this row's version), no
-- transaction has ended since, whoever's, so no row of any table is another; and of what comes by
-- time alone nothing has come (tick_time_brings). A job with slots of its own that is due isn't idle.
-- Locks: tick_lease's row, then job_runs' rows in the order given. SQLSTATE: 55P03
-- when the lease's row stays locked for 2 s.
CREATE OR REPLACE FUNCTION tick_begin(
    p_owner             text,
    p_lease_seconds     integer,
    p_jobs              text[],
    p_interval_seconds  integer[],
    p_always            boolean[],
    p_now               timestamptz DEFAULT NULL,
    p_may_idle          boolean DEFAULT false,
    OUT granted         boolean,
    OUT fence           bigint,
    OUT lease_until     timestamptz,
    OUT due             text[],
    OUT idle            boolean
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_clock timestamptz;
    v_now   timestamptz;
    v_lease tick_lease%ROWTYPE;
    v_xmin  xid;
    v_own   xid8;
    v_seen  pg_snapshot;
BEGIN
    SELECT l.* INTO STRICT v_lease FROM tick_lease l WHERE l.lease_name = 'tick' FOR UPDATE;
    v_clock := clock_timestamp();
    v_now := COALESCE(p_now, v_clock);
    idle := false;
    IF v_lease.expires_at > v_clock THEN
        granted := false;
        fence := v_lease.fence;
        lease_until := v_lease.expires_at;
        due := '{}';
        RETURN;
    END IF;
    granted := true;
    fence := v_lease.fence + 1;
    -- after the lock: what the tick before us wrote is seen
    SELECT l.xmin, pg_current_xact_id(), pg_current_snapshot() INTO STRICT v_xmin, v_own, v_seen
      FROM tick_lease l WHERE l.lease_name = 'tick';
    IF p_may_idle AND p_now IS NULL AND v_xmin = v_lease.idle_xid::xid
       AND pg_snapshot_xmax(v_seen)::text::numeric = v_lease.idle_xid::text::numeric + 1 THEN
        idle := NOT tick_time_brings(v_now);
    END IF;

    WITH wanted AS (
        SELECT d.job, d.ordinal, d.scheduled_for, bool_and(d.always) OVER () AND idle AS done
          FROM tick_due(p_jobs, p_interval_seconds, p_always, v_now) d
    ), opened AS (
        INSERT INTO job_runs AS r (job, scheduled_for, outcome, fence, started_at, ended_at, seconds)
        SELECT w.job, w.scheduled_for, CASE WHEN w.done THEN 'done' ELSE 'running' END, tick_begin.fence, v_now,
               CASE WHEN w.done THEN v_now END, CASE WHEN w.done THEN 0 END
          FROM wanted w
         ORDER BY w.ordinal
        ON CONFLICT ON CONSTRAINT job_runs_pkey DO UPDATE
           SET outcome = EXCLUDED.outcome, attempts = r.attempts + 1, fence = EXCLUDED.fence,
               started_at = EXCLUDED.started_at, ended_at = EXCLUDED.ended_at, seconds = EXCLUDED.seconds,
               counts = EXCLUDED.counts, error = NULL
        RETURNING r.job, r.outcome
    )
    SELECT COALESCE(array_agg(w.job ORDER BY w.ordinal), '{}'), COALESCE(bool_and(o.outcome = 'done'), false)
      INTO due, idle
      FROM wanted w JOIN opened o ON o.job = w.job;

    lease_until := CASE WHEN idle THEN '-infinity' ELSE v_clock + make_interval(secs => p_lease_seconds) END;
    UPDATE tick_lease l
       SET owner = p_owner, fence = tick_begin.fence, expires_at = lease_until, renewed_at = v_clock,
           -- somebody older was running: what they commit is yet to come
           begun_xid = CASE WHEN p_now IS NULL AND pg_snapshot_xmin(v_seen) >= v_own THEN v_own END,
           idle_xid = CASE WHEN idle AND pg_snapshot_xmin(v_seen) >= v_own THEN v_own END
     WHERE l.lease_name = 'tick';
END
$$;
