-- What may go, as seen at p_now, or at the clock where that is earlier: at, the time that is judged by; until, so many days
-- before it; waiting_until, the same before the oldest usage that waits in the inbox was received, since that may belong
-- to a request as old; months, those that were closed for so long; before_day and before_at, the first day that is kept,
-- and its begin. NULL: no month may go. Changes nothing, takes no locks.
--
-- A month waits for all that are earlier. Its last three days go with the next one: an audit looks at the neighbouring
-- days, and an invoice in another zone is held against the hours around the month.
CREATE OR REPLACE FUNCTION quota_upkeep_bounds(p_days int, p_now timestamptz DEFAULT NULL) RETURNS quota_upkeep_bounds
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT (t.at, t.until,
            t.until - (t.at - least(t.at, (SELECT i.received_at FROM quota_usage_inbox i WHERE i.booked_at IS NULL
                                            ORDER BY i.inbox_id LIMIT 1))),
            c.months, h.day, quota_day_start(h.day))::quota_upkeep_bounds
      FROM (SELECT n.at, n.at - make_interval(days => p_days) AS until
              FROM (SELECT least(coalesce(p_now, clock_timestamp()), clock_timestamp()) AS at) n) t
     CROSS JOIN LATERAL (SELECT min(m.month) FILTER (WHERE (m.closed_at < t.until) IS NOT TRUE) AS kept,
                                max(m.month) FILTER (WHERE m.closed_at < t.until) AS closed
                           FROM quota_months m) k
     CROSS JOIN LATERAL (SELECT (least(k.kept, k.closed + interval '1 month')::date - 3) AS day
                          WHERE k.closed IS NOT NULL
                          UNION ALL SELECT NULL LIMIT 1) h
     CROSS JOIN LATERAL (SELECT array_agg(m.month) AS months FROM quota_months m
                          WHERE m.closed_at < t.until AND m.month <= h.day) c
$$;
