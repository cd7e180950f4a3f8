-- Locks several tenants, in the order of their keys. Many at once go through one gate, so that the lock table
-- (max_locks_per_transaction) can't be filled by wide batches side by side.
CREATE OR REPLACE FUNCTION quota_lock_tenants(p_tenants text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_keys bigint[] := ARRAY(SELECT DISTINCT hashtextextended(t, 1) AS k FROM unnest(p_tenants) t ORDER BY k);
    v_key  bigint;
    c_many CONSTANT int := 128;
BEGIN
    IF cardinality(v_keys) > c_many THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('quota_wide_batch', 2));
    END IF;
    FOREACH v_key IN ARRAY v_keys LOOP
        PERFORM pg_advisory_xact_lock(v_key);
    END LOOP;
END $$;

-- The same for work that can wait: takes those that are free, and only if none is, waits for the first.
-- So one stuck tenant doesn't hold up the work of the others. Returns the tenants locked, 1,000 at most.
CREATE OR REPLACE FUNCTION quota_lock_free_tenants(p_tenants text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_locked text[] := quota_lock_who_is_free(p_tenants);
    v_tenant text;
BEGIN
    IF v_locked = '{}' THEN
        SELECT t INTO v_tenant FROM unnest(p_tenants) t ORDER BY hashtextextended(t, 1), t LIMIT 1;
        IF FOUND THEN
            PERFORM pg_advisory_xact_lock(hashtextextended(v_tenant, 1));
            v_locked := ARRAY[v_tenant];
        END IF;
    END IF;
    RETURN v_locked;
END $$;

-- Takes those that are free and never waits for a tenant. Returns the tenants locked, 1,000 at most: the lock
-- table is shared.
CREATE OR REPLACE FUNCTION quota_lock_who_is_free(p_tenants text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_tenants text[] := ARRAY(SELECT DISTINCT ON (hashtextextended(t, 1), t) t FROM unnest(p_tenants) t
                              ORDER BY hashtextextended(t, 1), t LIMIT 1000);
    v_locked  text[];
BEGIN
    IF cardinality(v_tenants) > 128 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('quota_wide_batch', 2));
    END IF;
    -- in a statement, not a loop: a thousand calls cost a third of the time
    SELECT coalesce(array_agg(k.tenant), '{}') INTO v_locked
    FROM (SELECT t AS tenant, pg_try_advisory_xact_lock(hashtextextended(t, 1)) AS locked
          FROM unnest(v_tenants) WITH ORDINALITY AS u (t, place) ORDER BY u.place OFFSET 0) k
    WHERE k.locked;
    RETURN v_locked;
END $$;

-- Those of the tenants that nobody has locked at the moment. Keeps no lock: to look what could be done.
CREATE OR REPLACE FUNCTION quota_tenants_free(p_tenants text[]) RETURNS text[]
LANGUAGE sql VOLATILE
AS $$
    SELECT coalesce(array_agg(t), '{}') FROM unnest(p_tenants) t
     WHERE CASE WHEN pg_try_advisory_lock_shared(hashtextextended(t, 1))
                THEN pg_advisory_unlock_shared(hashtextextended(t, 1)) ELSE false END
$$;
