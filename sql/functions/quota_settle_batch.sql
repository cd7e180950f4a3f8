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
    v_end      record;
    v_bookings quota_booking[] := '{}';
BEGIN
    PERFORM quota_batch_check(p_usages, 'quota_settle_batch');
    v_all := quota_usages_parse(p_usages);
    IF v_all IS NULL THEN
        RETURN;
    END IF;
    PERFORM quota_lock_tenants(ARRAY(SELECT DISTINCT r.tenant FROM unnest(v_all) r WHERE r.fault IS NULL));
    v_now := quota_now(p_now);
    FOREACH q IN ARRAY v_all LOOP
        outcome := 'invalid';
        in_tokens := NULL;
        out_tokens := NULL;
        cost_nanos := NULL;
        ordinal := q.ordinal;
        IF q.fault IS NULL THEN
            BEGIN
                SELECT s.* INTO v_end
                FROM quota_settle_judge(q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.usage_id, q.model,
                                        q.cached_in_tokens, v_now) s;
                outcome := v_end.outcome;
                IF outcome NOT IN ('conflict', 'invalid') THEN
                    in_tokens := v_end.in_tokens;
                    out_tokens := v_end.out_tokens;
                    cost_nanos := v_end.cost_nanos;
                    v_bookings := v_bookings || v_end.booking;
                END IF;
            EXCEPTION WHEN SQLSTATE 'QW002' OR numeric_value_out_of_range THEN
                outcome := 'invalid';
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
    -- Departments last, each once.
    PERFORM quota_bookings_book(v_bookings, v_now);
END $$;
