-- Whether p_now lies in the quiet hours, in which only what is at 100 % is sent.
--
-- p_quiet: {"from": "22:00", "to": "08:00", "zone": "Asia/Shanghai"}, over midnight where from is later than to;
-- zone null: the billing zone. NULL or JSON null: never quiet. SQLSTATE 22023 for a zone that doesn't exist.
CREATE OR REPLACE FUNCTION quota_quiet(p_quiet jsonb, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT coalesce(CASE WHEN q.begins <= q.ends THEN q.local >= q.begins AND q.local < q.ends
                         ELSE q.local >= q.begins OR q.local < q.ends END, false)
      FROM (SELECT (p_quiet ->> 'from')::time AS begins, (p_quiet ->> 'to')::time AS ends,
                   (p_now AT TIME ZONE coalesce(p_quiet ->> 'zone', quota_zone()))::time AS local) q
$$;
