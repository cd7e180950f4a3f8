-- Tenants whose use, limits or refusals were written by transaction p_since or a later one: only they can have
-- passed a threshold since. Complete, by the row versions themselves: whatever wrote them, a plain UPDATE too.
--
-- p_since is the oldest transaction that was running at the last scan. It may name more than needed, never less:
-- a row's own xid outlives freezing, and one from before a wraparound at worst looks new. Reads each row's header
-- of the three tables (about 0.1 s per million rows) and judges only what moved. For tens of millions of rows:
-- replace this one function, for instance by a queue that the ledger's functions feed.
CREATE OR REPLACE FUNCTION quota_warn_moved(p_since xid8) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- by age() itself: what it counts from may be later than this snapshot. Over half a round of ids ago it means nothing.
    v_age bigint := CASE WHEN pg_snapshot_xmax(pg_current_snapshot())::text::numeric - p_since::text::numeric < 2000000000
                         THEN age(p_since::xid) ELSE 2147483647 END;
BEGIN
    RETURN QUERY
    SELECT u.tenant_id FROM quota_usage u WHERE age(u.xmin) <= v_age
    UNION SELECT l.tenant_id FROM tenant_limits l WHERE age(l.xmin) <= v_age
    UNION SELECT c.tenant_id FROM quota_refusal_counts c WHERE age(c.xmin) <= v_age;
END
$$;
