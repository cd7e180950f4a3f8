-- The billing calendar, in one place for SQL and Python. The zone stands in quota_settings; quota_zone() is
-- made from it (migration 0001).

CREATE OR REPLACE FUNCTION quota_day(p_at timestamptz) RETURNS date
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT (p_at AT TIME ZONE quota_zone())::date $$;

-- The first instant of a local day. Where midnight happens twice (clocks go back over it) it is the
-- earlier one; where it is skipped, the first instant after the gap.
CREATE OR REPLACE FUNCTION quota_day_start(p_day date) RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT min(c.at)
    FROM (SELECT (p_day::timestamp AT TIME ZONE quota_zone()) - make_interval(mins => m) AS at
          FROM unnest(ARRAY[0, 30, 60, 120]) AS m) c
    WHERE (c.at AT TIME ZONE quota_zone())::date = p_day
$$;

CREATE OR REPLACE FUNCTION quota_month(p_day date) RETURNS date
LANGUAGE sql IMMUTABLE
AS $$ SELECT p_day - (date_part('day', p_day)::int - 1) $$;
