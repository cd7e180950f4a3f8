-- The billing calendar, in one place for SQL and Python. The zone stands in quota_settings; quota_zone() is
-- made from it (migration 0001).
-- Functions without a search_path of their own are called by ours, under theirs; so the planner can inline them.

CREATE OR REPLACE FUNCTION quota_day(p_at timestamptz) RETURNS date
LANGUAGE sql STABLE
AS $$ SELECT (p_at AT TIME ZONE quota_zone())::date $$;

-- The first instant of a local day. Where midnight happens twice (clocks go back over it) it is the earlier
-- one; where it is skipped, the first instant after the gap.
CREATE OR REPLACE FUNCTION quota_day_start(p_day date) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN ((c.at - interval '2 hours') AT TIME ZONE quota_zone())::date = p_day THEN c.at - interval '2 hours'
        WHEN ((c.at - interval '1 hour') AT TIME ZONE quota_zone())::date = p_day THEN c.at - interval '1 hour'
        WHEN ((c.at - interval '30 minutes') AT TIME ZONE quota_zone())::date = p_day THEN c.at - interval '30 minutes'
        ELSE c.at END
    FROM (SELECT p_day::timestamp AT TIME ZONE quota_zone() AS at) c
$$;

CREATE OR REPLACE FUNCTION quota_month(p_day date) RETURNS date
LANGUAGE sql IMMUTABLE
AS $$ SELECT p_day - (date_part('day', p_day)::int - 1) $$;

-- The time of a call: the clock's unless given. Called after the lock is held. SQLSTATE QW002 outside 2000 to 2200:
-- such a time is a mistake, and a row of such a day would outlive it.
CREATE OR REPLACE FUNCTION quota_now(p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF p_now NOT BETWEEN '2000-01-01T00:00:00Z' AND '2200-01-01T00:00:00Z' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'p_now must lie between 2000 and 2200, or be left out';
    END IF;
    RETURN coalesce(p_now, clock_timestamp());
END $$;
