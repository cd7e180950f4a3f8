-- quota_settle_batch: up to 1,000 usages in one call, booked exactly as of the calls one after another.
--
-- Returns the rows of quota_settle in order, with their ordinal (from 1). Outcomes beyond quota_settle's:
-- invalid (a bad element, or a tenant that never existed), conflict; neither spoils the rest.
-- Lock order: tenants, reservations, department slots, each sorted.
-- SQLSTATEs: QW002 not an array, or more than 1,000; 55P03 lock wait over 2 s: nothing was done, retry.
CREATE OR REPLACE FUNCTION quota_settle_batch(p_usages jsonb, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outcome text, in_tokens bigint, out_tokens bigint, cost_nanos bigint, ordinal int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now timestamptz;
    v_all quota_usage_report[];
    q     quota_usage_report;
    d     record;
BEGIN
    PERFORM quota_batch_check(p_usages, 'quota_settle_batch');
    v_all := quota_usages_parse(p_usages);
    IF v_all IS NULL THEN
        RETURN;
    END IF;
    PERFORM quota_lock_tenants(ARRAY(SELECT DISTINCT r.tenant FROM unnest(v_all) r WHERE r.fault IS NULL));
    v_now := coalesce(p_now, clock_timestamp());
    -- Whoever books twice in a department's month must not wait for its slots the second time.
    FOR d IN
        SELECT k.department_id, k.environment, k.month
        FROM (SELECT r.department_id, r.environment, quota_month(r.period) AS month
              FROM unnest(v_all) u JOIN quota_reservations r ON r.tenant_id = u.tenant AND r.request_id = u.request_id
              WHERE u.fault IS NULL
              UNION ALL
              SELECT l.department_id, l.environment, quota_month(quota_day(v_now))
              FROM unnest(v_all) u JOIN tenant_limits l ON l.tenant_id = u.tenant
              WHERE u.fault IS NULL AND NOT EXISTS (SELECT FROM quota_reservations r
                                                    WHERE r.tenant_id = u.tenant AND r.request_id = u.request_id)) k
        WHERE k.department_id IS NOT NULL GROUP BY 1, 2, 3 HAVING count(*) > 1 ORDER BY 1, 2, 3
    LOOP
        PERFORM quota_department_lock(d.department_id, d.environment, d.month);
    END LOOP;
    FOREACH q IN ARRAY v_all LOOP
        outcome := 'invalid';
        in_tokens := NULL;
        out_tokens := NULL;
        cost_nanos := NULL;
        ordinal := q.ordinal;
        IF q.fault IS NULL THEN
            BEGIN
                SELECT s.* INTO outcome, in_tokens, out_tokens, cost_nanos
                FROM quota_settle_judge(q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.usage_id, q.model,
                                        q.cached_in_tokens, v_now) s;
                IF outcome IN ('conflict', 'invalid') THEN
                    in_tokens := NULL;
                    out_tokens := NULL;
                    cost_nanos := NULL;
                END IF;
            EXCEPTION WHEN SQLSTATE 'QW002' THEN
                outcome := 'invalid';
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
