-- Did p_added take p_used, which includes it, over p_pct % of a cap? Never where there is no cap (NULL, or 0, of which
-- nothing is told), nor for a percentage that is no threshold. Pure.
CREATE OR REPLACE FUNCTION quota_line_passed(p_used numeric, p_added numeric, p_cap numeric, p_pct int) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT coalesce(p_added > 0 AND p_cap > 0 AND p_pct BETWEEN 1 AND 100
                    AND p_used * 100 >= p_cap * p_pct AND (p_used - p_added) * 100 < p_cap * p_pct, false)
$$;

-- The next line above p_used on the way to a cap: that of p_pct %, else the cap. What is whole and below it has not
-- reached it. NULL without a cap. Pure.
CREATE OR REPLACE FUNCTION quota_line_ahead(p_used numeric, p_cap numeric, p_pct int) RETURNS numeric
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_pct BETWEEN 1 AND 99 AND p_used * 100 < p_cap * p_pct THEN p_cap * p_pct / 100 ELSE p_cap END
$$;
