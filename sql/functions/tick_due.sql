-- The jobs that are due at p_now, with the slot they are due in: those of p_always, and those whose slot
-- (their interval, aligned to the epoch) has no run that is done. ordinal is the order given. Takes no locks.
CREATE OR REPLACE FUNCTION tick_due(
    p_jobs text[], p_interval_seconds integer[], p_always boolean[], p_now timestamptz
)
RETURNS TABLE (job text, ordinal bigint, scheduled_for timestamptz, always boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT s.job, s.ordinal, s.scheduled_for, s.always
      FROM (SELECT j.job, j.ordinal, j.always,
                   to_timestamp(floor(extract(epoch FROM p_now) / j.seconds) * j.seconds) AS scheduled_for
              FROM unnest(p_jobs, p_interval_seconds, p_always)
                   WITH ORDINALITY AS j (job, seconds, always, ordinal)) s
     WHERE s.always
        OR NOT EXISTS (SELECT 1 FROM job_runs d
                        WHERE d.job = s.job AND d.scheduled_for = s.scheduled_for AND d.outcome = 'done')
$$;
