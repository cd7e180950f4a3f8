-- First days of the months that have usage, or adjustments to show, and aren't closed, oldest first; and of months without
-- any between such and this one, of the last c_empty, so that a month's report knows of the one before that nothing was
-- used, and not that nothing is known.
--
-- Where quota_usage is large it has no index that says which months it has, and is read whole only until roll_month has
-- been through once on this billing day: after that it is this month, and those begun and not closed (quota_months). A
-- direct write into a month that nobody rolled yet waits until tomorrow at most. Changes nothing, locks nothing.
CREATE OR REPLACE FUNCTION quota_months_to_roll(p_now timestamptz DEFAULT NULL) RETURNS SETOF date
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_now   timestamptz := quota_now(p_now);
    -- about a million rows: a third of a second
    c_quick CONSTANT bigint := 200 * 1024 * 1024;
    v_this  date := quota_month(quota_day(v_now));
    c_empty CONSTANT int := 24;
    v_all   boolean;
BEGIN
    v_all := pg_relation_size('quota_usage') < c_quick
        OR NOT EXISTS (SELECT FROM job_runs r WHERE r.job = 'roll_month' AND r.outcome = 'done'
                                                AND r.scheduled_for >= quota_day_start(quota_day(v_now)));
    RETURN QUERY
    WITH known AS MATERIALIZED (
        SELECT quota_month(d.period) AS month FROM (SELECT DISTINCT u.period FROM quota_usage u WHERE v_all) d
        UNION SELECT v_this WHERE NOT v_all
        UNION SELECT q.month FROM quota_months q
        UNION SELECT a.booked_month FROM quota_adjustments a WHERE a.booked_month IS NOT NULL
    ), begun AS (
        SELECT greatest(min(n.month), (v_this - make_interval(months => c_empty))::date) AS month FROM known n
        HAVING count(*) > 0
    )
    SELECT k.month
      FROM (SELECT n.month FROM known n
            UNION
            SELECT g::date FROM begun b CROSS JOIN LATERAL generate_series(b.month::timestamp, v_this - interval '1 month', '1 month') g) k
     WHERE NOT EXISTS (SELECT FROM quota_months m WHERE m.month = k.month AND m.closed_at IS NOT NULL)
     ORDER BY k.month;
END $$;
