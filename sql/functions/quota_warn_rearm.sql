-- Lets thresholds of open periods be told again whose ground is gone; returns how many.
--
-- A told threshold is re-armed when usage lies more than 5 points below it and its cap changed since the last
-- look, or when usage has fallen so far by corrections (more than 5 points below what was used, where a refusal
-- told it early): then at the second tick in a row, at most three times a period. Ticks less than a minute apart
-- are one. Only looks at rows of quota_warn_log; the cap last seen is kept there, so one change counts once.
-- p_moved: of the tenants, only these and those that lay below at the last tick; NULL: all.
-- Lock order: quota_warn_log rows sorted by key. SQLSTATE 55P03 as of the caller's lock_timeout.
CREATE OR REPLACE FUNCTION quota_warn_rearm(p_now timestamptz, p_moved text[] DEFAULT NULL) RETURNS int
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_day     date := quota_day(p_now);
    v_month   date := quota_month(quota_day(p_now));
    v_rearmed int;
BEGIN
    WITH watched AS MATERIALIZED (
        SELECT w.subject_kind, w.period_kind, array_agg(DISTINCT w.subject) AS subjects
          FROM quota_warn_log w
         WHERE w.subject_kind IS NOT NULL AND w.rearmed_at IS NULL
           AND (w.period_kind = 'day' AND w.period_start = v_day
                OR w.period_kind = 'month' AND w.period_start = v_month)
           AND (p_moved IS NULL OR w.subject_kind <> 'tenant' OR w.below_ticks > 0 OR w.subject = ANY (p_moved))
         GROUP BY w.subject_kind, w.period_kind
    ), stand AS MATERIALIZED (
        SELECT 'tenant' AS subject_kind, o.period_kind, p.start AS period_start, s.subject, s.environment,
               s.dimension, s.used, s.cap
          FROM watched o
          JOIN (VALUES ('day', v_day), ('month', v_month)) AS p (kind, start) ON p.kind = o.period_kind
         CROSS JOIN LATERAL quota_warn_tenants(o.subjects, o.period_kind, p.start) s
         WHERE o.subject_kind = 'tenant'
        UNION ALL
        SELECT 'department', 'month', v_month, s.subject, s.environment, s.dimension, s.used, s.cap
          FROM watched o
         CROSS JOIN LATERAL quota_warn_departments(v_month, p_now, o.subjects) s
         WHERE o.subject_kind = 'department'
    ), judged AS MATERIALIZED (
        SELECT w.subject_kind, w.subject, w.environment, w.dimension, w.period_kind, w.period_start, w.threshold,
               w.generation, s.cap, b.below,
               w.cap_seen IS DISTINCT FROM s.cap AS cap_changed,
               b.fallen
          FROM quota_warn_log w
          JOIN stand s ON s.subject_kind = w.subject_kind AND s.subject = w.subject AND s.environment = w.environment
               AND s.dimension = w.dimension AND s.period_kind = w.period_kind AND s.period_start = w.period_start
         CROSS JOIN LATERAL (
            SELECT s.used * 100 < (w.threshold - 5) * s.cap AS below,
                   s.used < w.used AND s.used * 100 * w.cap
                       < (least(w.threshold * w.cap, w.used * 100) - 5 * w.cap) * s.cap AS fallen) b
         WHERE w.rearmed_at IS NULL
           AND (b.fallen OR w.below_ticks > 0 OR w.cap_seen IS DISTINCT FROM s.cap)
         ORDER BY w.subject_kind, w.subject, w.environment, w.dimension, w.period_kind, w.period_start,
                  w.threshold, w.generation
           FOR UPDATE OF w
    ), settled AS (
        SELECT j.*,
               CASE WHEN j.below AND j.cap_changed THEN 'cap'
                    WHEN j.fallen AND w.below_ticks >= 1 AND p_now >= w.below_at + interval '1 minute'
                         AND (SELECT count(*) FROM quota_warn_log e
                               WHERE e.subject_kind = j.subject_kind AND e.subject = j.subject
                                 AND e.environment = j.environment AND e.dimension = j.dimension
                                 AND e.period_kind = j.period_kind AND e.period_start = j.period_start
                                 AND e.threshold = j.threshold AND e.rearmed_by = 'usage') < 3 THEN 'usage'
               END AS rearmed_by
          FROM judged j
          JOIN quota_warn_log w USING (subject_kind, subject, environment, dimension, period_kind, period_start,
                                       threshold, generation)
    ), changed AS (
        UPDATE quota_warn_log w
           SET cap_seen    = j.cap,
               below_ticks = CASE WHEN NOT j.fallen THEN 0 ELSE 1 END,
               below_at    = CASE WHEN NOT j.fallen THEN NULL
                                  WHEN w.below_ticks >= 1 THEN w.below_at ELSE p_now END,
               rearmed_at  = CASE WHEN j.rearmed_by IS NOT NULL THEN p_now END,
               rearmed_by  = j.rearmed_by
          FROM settled j
         WHERE w.subject_kind = j.subject_kind AND w.subject = j.subject AND w.environment = j.environment
           AND w.dimension = j.dimension AND w.period_kind = j.period_kind AND w.period_start = j.period_start
           AND w.threshold = j.threshold AND w.generation = j.generation AND w.rearmed_at IS NULL
           -- nothing to note: no write
           AND (j.cap_changed OR j.rearmed_by IS NOT NULL OR j.fallen IS DISTINCT FROM (w.below_ticks > 0))
        RETURNING w.rearmed_by
    )
    SELECT count(c.rearmed_by) INTO v_rearmed FROM changed c;
    RETURN v_rearmed;
END
$$;
