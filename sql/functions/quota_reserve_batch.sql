-- quota_reserve_batch: up to 1,000 requests in one call; decisions exactly as of the calls one after another.
--
-- Returns the rows of quota_reserve in order, with their ordinal (from 1). Reasons beyond quota_reserve's:
-- invalid (a bad element), conflict (a request id used with other figures); neither spoils the rest.
-- Lock order: tenants, then department slots, each sorted.
-- SQLSTATEs: QW002 not an array, or more than 1,000; 55P03 lock wait over 2 s: nothing was done, retry.
--
-- A tenant whose requests fit all together fits in any order, so it is charged in one go. Whoever doesn't
-- (a limit near, a mode), and every tenant of a department where one doesn't, goes one by one; after a replay all
-- do. The plans are generic and go by key: planning for each batch's arrays anew takes longer than the batch.
CREATE OR REPLACE FUNCTION quota_reserve_batch(p_requests jsonb, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (
    allowed boolean, reason text, observed_reason text, reservation_id bigint, replayed boolean,
    tier text, model text, notice text, limit_name text, limit_value bigint,
    limit_used bigint, resets_at timestamptz, retry_after_seconds numeric, ordinal int
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET random_page_cost = 0.1
SET enable_mergejoin = off
AS $$
DECLARE
    v_now     timestamptz;
    v_all     quota_request[];
    v_done    quota_batch_done;
    v_answers quota_answer[];
    v_answer  quota_answer;
    q         quota_request;
BEGIN
    PERFORM quota_batch_check(p_requests, 'quota_reserve_batch');
    v_all := quota_requests_parse(p_requests);
    IF v_all IS NULL THEN
        RETURN;
    END IF;
    PERFORM quota_lock_tenants(ARRAY(SELECT DISTINCT r.tenant FROM unnest(v_all) r WHERE r.fault IS NULL));
    v_now := quota_now(p_now);
    BEGIN
        v_done := quota_batch_charge(v_all, v_now);
    EXCEPTION WHEN SQLSTATE 'QW000' THEN
        -- A request id seen before, or twice in the batch: then all go one by one.
        v_done := NULL;
        PERFORM quota_batch_lock_departments(v_all, quota_month(quota_day(v_now)));
    END;

    IF cardinality(v_done.ordinals) = cardinality(v_all) THEN
        RETURN QUERY
        SELECT true, 'ok', NULL::text, d.id, false, d.tier, d.model, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
               NULL::timestamptz, NULL::numeric, d.ordinal
        FROM ROWS FROM (unnest(v_all), unnest(v_done.reservation_ids), unnest(v_done.tiers))
             AS d (ordinal, fault, tenant, request_id, in_tokens, out_tokens, cost_nanos, model, app, api_key, end_user,
                   priority, ttl_seconds, id, tier);
        RETURN;
    END IF;

    v_answers := ARRAY(
        SELECT (true, 'ok', NULL, d.id, false, d.tier, (v_all[d.ordinal]).model, NULL, NULL, NULL, NULL, NULL, NULL,
                d.ordinal)::quota_answer
        FROM unnest(v_done.ordinals, v_done.reservation_ids, v_done.tiers) AS d (ordinal, id, tier));
    FOR q IN SELECT r.* FROM unnest(v_all) r WHERE NOT r.ordinal = ANY (coalesce(v_done.ordinals, '{}')) ORDER BY r.ordinal LOOP
        v_answer := NULL;
        IF q.fault IS NULL THEN
            BEGIN
                SELECT j.*, q.ordinal INTO v_answer
                FROM quota_reserve_judge(q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.model, q.app,
                                         q.api_key, q.end_user, q.priority, q.ttl_seconds, v_now) j;
            EXCEPTION WHEN SQLSTATE 'QW002' THEN
                q.fault := 'overflow';
            END;
        END IF;
        IF q.fault IS NOT NULL OR v_answer.reason = 'request_conflict' THEN
            v_answer := NULL;
            v_answer.allowed := false;
            v_answer.replayed := false;
            v_answer.reason := CASE WHEN q.fault IS NULL THEN 'conflict' ELSE 'invalid' END;
            v_answer.ordinal := q.ordinal;
        END IF;
        v_answers := v_answers || v_answer;
    END LOOP;
    RETURN QUERY SELECT a.* FROM unnest(v_answers) a ORDER BY a.ordinal;
END $$;
