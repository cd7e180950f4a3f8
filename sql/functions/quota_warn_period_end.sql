-- The day after the last of a billing period ('day' or 'month') that begins on p_start.
CREATE OR REPLACE FUNCTION quota_warn_period_end(p_period_kind text, p_start date) RETURNS date
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE p_period_kind WHEN 'day' THEN p_start + 1 ELSE (p_start + interval '1 month')::date END $$;
