-- The thresholds that are passed at p_now, or were in a period that ended after p_since, and not yet told.
--
-- State, not edges: reached <=> used * 100 >= threshold * cap, and a refusal by a cap counts as its 100 %, but
-- not as the thresholds below, which usage may yet reach. A threshold is told while quota_warn_log has a row for
-- it that isn't re-armed; generation is the next to use. told_higher: usage has passed a higher one of the same
-- cap that is told already, so this one goes without a message. refused_at: only with the 100 % that it may have
-- caused. A refusal from before the re-arming says nothing new. Looks back over at most 35 days and 2 months.
-- p_moved: judge only these tenants (and every department); NULL: all that may have something to tell.
-- Takes no locks.
CREATE OR REPLACE FUNCTION quota_warn_untold(p_now timestamptz, p_since timestamptz, p_moved text[] DEFAULT NULL)
RETURNS TABLE (subject_kind text, subject text, environment text, dimension text, period_kind text,
               period_start date, past boolean, threshold int, severity text, generation int,
               told_higher boolean, used numeric, held numeric, cap numeric, refused_at timestamptz)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
-- Row estimates of functions are far too high here: compiling would take a second, running takes milliseconds.
SET jit = off
AS $$
    WITH today AS MATERIALIZED (
        SELECT quota_day(p_now) AS day, quota_month(quota_day(p_now)) AS month,
               quota_day(least(p_since, p_now)) AS since
    ), periods AS MATERIALIZED (
        SELECT 'day' AS kind, t.day - n AS start, n > 0 AS past
          FROM today t, generate_series(0, least(t.day - t.since, 35)) AS n
        UNION ALL
        SELECT 'month', (t.month - make_interval(months => n))::date, n > 0
          FROM today t, generate_series(0, least(2,
              ((date_part('year', t.month) - date_part('year', t.since)) * 12
               + date_part('month', t.month) - date_part('month', t.since))::int)) AS n
    ), stand AS (
        SELECT 'tenant' AS subject_kind, p.kind AS period_kind, p.start AS period_start, p.past, s.*
          FROM periods p
         CROSS JOIN LATERAL quota_warn_tenants(
                    ARRAY(SELECT c FROM quota_warn_candidates(p.kind, p.start, p_moved) c), p.kind, p.start) s
        UNION ALL
        SELECT 'department', p.kind, p.start, p.past, s.*
          FROM periods p
         CROSS JOIN LATERAL quota_warn_departments(p.start,
                    least(p_now, quota_day_start(quota_warn_period_end('month', p.start)) - interval '1 microsecond')) s
         WHERE p.kind = 'month'
    ), passed AS (
        SELECT s.*, t.threshold, t.severity
          FROM stand s
         CROSS JOIN LATERAL (
            -- of two names for one percentage the stricter stays
            SELECT DISTINCT ON (c.threshold) c.threshold, c.severity
              FROM unnest(s.pcts, s.severities) WITH ORDINALITY AS c (threshold, severity, place)
             WHERE c.threshold BETWEEN 1 AND 100
             ORDER BY c.threshold, c.place DESC) t
         WHERE (s.used * 100 >= t.threshold * s.cap OR t.threshold = 100 AND s.refused_at IS NOT NULL)
           -- longer names, which only direct writes can make, don't fit into an index
           AND octet_length(s.subject) <= 2000
    )
    SELECT p.subject_kind, p.subject, p.environment, p.dimension, p.period_kind, p.period_start, p.past,
           p.threshold, p.severity, coalesce(w.generation + 1, 0), coalesce(w.told_higher, false),
           p.used, p.held, p.cap, CASE WHEN p.threshold = 100 THEN p.refused_at END
      FROM passed p
     CROSS JOIN LATERAL (
        SELECT max(w.generation) FILTER (WHERE w.threshold = p.threshold) AS generation,
               bool_or(w.rearmed_at IS NULL) FILTER (WHERE w.threshold = p.threshold) AS told,
               max(w.rearmed_at) FILTER (WHERE w.threshold = p.threshold) AS rearmed_at,
               -- what a refusal told early is no higher than usage
               bool_or(w.rearmed_at IS NULL
                       AND (w.used * 100 >= w.threshold * w.cap OR p.used * 100 >= w.threshold * p.cap))
                   FILTER (WHERE w.threshold > p.threshold) AS told_higher
          FROM quota_warn_log w
         WHERE w.subject_kind = p.subject_kind AND w.subject = p.subject AND w.environment = p.environment
           AND w.dimension = p.dimension AND w.period_kind = p.period_kind
           AND w.period_start = p.period_start) w
     WHERE w.told IS NOT TRUE
       AND (p.used * 100 >= p.threshold * p.cap
            OR p.refused_at > coalesce(w.rearmed_at, '-infinity')
               -- a pool's refusal was told of the dimension that was the fuller one then
               AND NOT EXISTS (SELECT FROM quota_warn_log o
                                WHERE p.subject_kind = 'department' AND o.subject_kind = p.subject_kind
                                  AND o.subject = p.subject AND o.environment = p.environment
                                  AND o.dimension <> p.dimension AND o.period_kind = p.period_kind
                                  AND o.period_start = p.period_start AND o.refused_at >= p.refused_at))
$$;
