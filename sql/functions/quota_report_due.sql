-- Which reports of closed months are to be built, by month and department ('' of all), after the last one of the batch before.
--
-- A month's reports are due once it is closed, and on day p_day of the month after it (NULL: at once), for 35 days:
-- what was closed before reports were switched on is not told. Later, only a month that has reports, where outcomes of
-- it were imported since. A month in which nothing was used is told where there was a budget, and while it is the last
-- month: "nothing" is an answer, but one of a month long ago helps nobody. Departments: those with usage, a budget or a top-up, or an adjustment in that month.
-- Changes nothing, takes no locks.
CREATE OR REPLACE FUNCTION quota_report_due(
    p_now timestamptz, p_day int DEFAULT NULL, p_after_month date DEFAULT NULL, p_after_department text DEFAULT NULL,
    p_limit int DEFAULT NULL)
RETURNS TABLE (month date, department_id text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH closed AS MATERIALIZED (
        SELECT c.month, c.due_at,
               (SELECT coalesce(max(greatest(o.import_id, o.superseded_by)), 0)
                  FROM quota_outcomes o WHERE o.month = c.month) AS import_id
          FROM (SELECT m.month, greatest(m.closed_at, CASE WHEN p_day IS NOT NULL THEN
                           quota_day_start((m.month + interval '1 month')::date + p_day - 1) END) AS due_at
                  FROM quota_months m
                 WHERE m.closed_at <= p_now AND (p_after_month IS NULL OR m.month >= p_after_month)) c
         WHERE c.due_at <= p_now
    ), due AS MATERIALIZED (
        SELECT c.month, c.import_id
          FROM closed c
         WHERE c.due_at > p_now - interval '35 days'
           AND (EXISTS (SELECT FROM quota_month_parts p WHERE p.month = c.month)
                OR c.month >= quota_month(quota_day(p_now)) - interval '1 month'
                   AND EXISTS (SELECT FROM quota_month_budgets b
                                WHERE b.month = c.month
                                  AND (b.monthly_tokens IS NOT NULL OR b.monthly_cost_cents IS NOT NULL OR b.topups > 0)))
            OR EXISTS (SELECT FROM quota_reports r WHERE r.month = c.month AND r.seen_import < c.import_id)
    )
    SELECT d.month, k.department_id
      FROM due d
     CROSS JOIN LATERAL (
           SELECT b.department_id FROM quota_month_budgets b WHERE b.month = d.month
           UNION
           SELECT t.department_id FROM quota_monthly_totals t
            WHERE t.month = d.month AND t.adjusts_month IS NOT NULL
           UNION
           SELECT '') k
     WHERE (p_after_month IS NULL OR (d.month, k.department_id) > (p_after_month, p_after_department))
       AND NOT EXISTS (SELECT FROM quota_reports r
                        WHERE r.month = d.month AND r.department_id = k.department_id AND r.seen_import >= d.import_id)
     ORDER BY d.month, k.department_id
     LIMIT p_limit
$$;
