-- A percentage with one decimal; NULL without a cap, 100 for a cap of 0 or less (nothing is allowed).
-- Rounded down, so that 100.0 is never shown while something is left.
CREATE OR REPLACE FUNCTION quota_pct(p_used numeric, p_cap numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_cap <= 0 THEN 100.0 ELSE trunc(p_used * 100 / p_cap, 1) END $$;
