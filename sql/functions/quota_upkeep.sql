-- Removes one batch of a table's rows that nobody needs any more: at most p_limit rows of the next p_blocks blocks.
--
-- Out: removed; done: this walk through the table is over, or there is nothing to walk for. Which rows: quota_upkeep_rule.
-- p_days: how long they are kept. Call it again until done; where it stopped it goes on, in another process too. A time to
-- come removes nothing more than the present does: what is removed is gone.
-- Tables whose rows go by the month are walked once a month may go, and again on later calls after the end while rows
-- were passed over. Requests take their usage ids along, and their month is marked (quota_months.requests_removed_at).
-- Safe beside gateways and beside itself: of two calls for one table the second is done at once. Rows that somebody
-- holds, and requests of tenants that are locked, are passed over and left to a later walk; nobody is waited for but the
-- gate of many tenants. Lock order: the walk's row, tenants (those that are free), closed months, the rows.
-- SQLSTATE: 55P03 lock wait over 2 s, nothing was done (retry); QW002 a table that has no rule, fewer days than the
-- contract's, a limit below 300 (a block must never hold as many rows).
CREATE OR REPLACE FUNCTION quota_upkeep(
    p_table text, p_days int, p_now timestamptz DEFAULT NULL, p_limit int DEFAULT 1000, p_blocks int DEFAULT 4096,
    OUT removed bigint, OUT done boolean
) RETURNS record
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
SET jit = off
AS $$
DECLARE
    v_rule    record;
    v_bounds  quota_upkeep_bounds;
    v_walk    quota_upkeep_walks;
    v_end     bigint;
    v_until   bigint;
    v_places  tid[];
    v_tenants text[];
BEGIN
    SELECT * INTO v_rule FROM quota_upkeep_rule(p_table) r;
    IF v_rule.condition IS NULL OR p_days IS NULL OR p_days < v_rule.least_days OR p_limit < 300 OR p_blocks < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002',
            MESSAGE = format('quota_upkeep: %s of %s days, %s rows, %s blocks can''t be asked for', p_table, p_days, p_limit, p_blocks);
    END IF;
    removed := 0;
    done := true;
    v_bounds := quota_upkeep_bounds(p_days, p_now);
    IF v_rule.monthly AND v_bounds.before_day IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO v_walk FROM quota_upkeep_walks w WHERE w.relation = p_table FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM quota_upkeep_walks w WHERE w.relation = p_table) THEN
            RETURN;     -- somebody is at it
        END IF;
        INSERT INTO quota_upkeep_walks AS w (relation, walked_at) VALUES (p_table, v_bounds.at)
            ON CONFLICT DO NOTHING RETURNING w.* INTO v_walk;
    END IF;
    IF v_walk.relation IS NULL OR v_rule.monthly AND v_walk.horizon >= v_bounds.before_day THEN
        RETURN;
    END IF;
    v_end := pg_relation_size(p_table::regclass) / current_setting('block_size')::bigint;
    v_until := least(v_walk.next_block + p_blocks, v_end);
    IF v_walk.next_block = 0 THEN
        v_walk.passed_over := 0;
    END IF;

    EXECUTE format('SELECT array_agg(f.ctid), %s FROM (SELECT s.* , s.ctid FROM %I s WHERE s.ctid >= $1 AND s.ctid < $2 AND (%s) LIMIT $3) f',
                   CASE WHEN v_rule.by_tenant THEN 'array_agg(DISTINCT f.tenant_id)' ELSE 'NULL' END, p_table, v_rule.condition)
       INTO v_places, v_tenants
      USING format('(%s,0)', v_walk.next_block)::tid, format('(%s,0)', v_until)::tid, p_limit, v_bounds;
    IF v_places IS NOT NULL THEN
        IF v_rule.by_tenant THEN
            v_tenants := quota_lock_who_is_free(v_tenants);
            UPDATE quota_months m SET requests_removed_at = v_bounds.at
             WHERE m.requests_removed_at IS NULL AND m.month = ANY (v_bounds.months) AND v_tenants <> '{}';
        END IF;
        -- looked at once more, under the lock
        EXECUTE format('WITH gone AS (DELETE FROM %1$I t WHERE t.ctid = ANY (ARRAY('
                       '    SELECT s.ctid FROM %1$I s WHERE s.ctid = ANY ($1) AND (%2$s) %3$s FOR UPDATE SKIP LOCKED)) RETURNING t.*) %4$s',
                       p_table, v_rule.condition, CASE WHEN v_rule.by_tenant THEN 'AND s.tenant_id = ANY ($3)' ELSE '' END,
                       CASE WHEN v_rule.by_tenant
                            THEN ', ids AS (DELETE FROM quota_usage_ids d USING gone g'
                                 ' WHERE d.tenant_id = g.tenant_id AND d.request_id = g.request_id) SELECT count(*) FROM gone'
                            ELSE 'SELECT count(*) FROM gone' END)
           INTO removed
          USING v_places, NULL, v_tenants, v_bounds;
        v_walk.passed_over := v_walk.passed_over + cardinality(v_places) - removed;
        IF cardinality(v_places) = p_limit THEN    -- the last block may have more
            SELECT split_part(ltrim(max(p)::text, '('), ',', 1)::bigint INTO v_until FROM unnest(v_places) p;
        END IF;
    END IF;

    done := v_until >= v_end;
    UPDATE quota_upkeep_walks w
       SET next_block = CASE WHEN done THEN 0 ELSE v_until END, passed_over = v_walk.passed_over,
           removed = w.removed + quota_upkeep.removed, walked_at = v_bounds.at,
           horizon = CASE WHEN done AND v_rule.monthly AND v_walk.passed_over = 0 THEN v_bounds.before_day ELSE w.horizon END
     WHERE w.relation = p_table;
END $$;

-- How many rows quota_upkeep would remove: counted to p_limit, in the next p_blocks blocks. Changes nothing, locks nothing.
CREATE OR REPLACE FUNCTION quota_upkeep_count(
    p_table text, p_days int, p_now timestamptz DEFAULT NULL, p_limit int DEFAULT 10000, p_blocks int DEFAULT 65536
) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    v_rule   record;
    v_bounds quota_upkeep_bounds := quota_upkeep_bounds(p_days, p_now);
    v_walk   quota_upkeep_walks;
    v_found  bigint;
BEGIN
    SELECT * INTO v_rule FROM quota_upkeep_rule(p_table) r;
    SELECT * INTO v_walk FROM quota_upkeep_walks w WHERE w.relation = p_table;
    IF v_rule.condition IS NULL OR v_rule.monthly AND coalesce(v_walk.horizon >= v_bounds.before_day, v_bounds.before_day IS NULL) THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %I s WHERE s.ctid >= $1 AND s.ctid < $2 AND (%s) LIMIT $3) f',
                   p_table, v_rule.condition)
       INTO v_found
      USING format('(%s,0)', coalesce(v_walk.next_block, 0))::tid,
            format('(%s,0)', coalesce(v_walk.next_block, 0) + p_blocks)::tid, p_limit, v_bounds;
    RETURN v_found;
END $$;
