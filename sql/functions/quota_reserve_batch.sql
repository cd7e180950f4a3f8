-- quota_reserve_batch: up to 1,000 requests in one call; decisions exactly as of the calls one after another.
--
-- Returns the rows of quota_reserve in order, with their ordinal (from 1). Reasons beyond quota_reserve's:
-- invalid (a bad element), conflict (a request id used with other figures); neither spoils the rest.
-- Lock order: tenants, then department slots, each sorted.
-- SQLSTATEs: QW002 not an array, or more than 1,000; 55P03 lock wait over 2 s: nothing was done, retry.
--
-- What charges nothing (a repeated request, a bad element) is told apart before anything is charged. Of the others a
-- tenant whose requests fit all together fits in any order, so it is charged in one go. Whoever doesn't (a limit near, a
-- mode), and every tenant of a department where one doesn't, goes one by one, under all the locks of its department.
-- The plans are generic and go by key: planning for each batch's arrays anew takes longer than the batch.
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
    v_new     int[];
    v_done    quota_batch_done;
    v_answers quota_answer[];
    v_answer  quota_answer;
    q         quota_request;
    w         record;
BEGIN
    PERFORM quota_batch_check(p_requests, 'quota_reserve_batch');
    v_all := quota_requests_parse(p_requests);
    IF v_all IS NULL THEN
        RETURN;
    END IF;
    PERFORM quota_lock_tenants(ARRAY(SELECT DISTINCT r.tenant FROM unnest(v_all) r WHERE r.fault IS NULL));
    v_now := quota_now(p_now);
    v_new := quota_batch_new(v_all);
    IF v_new <> '{}' THEN
        v_done := quota_batch_charge(
            CASE WHEN cardinality(v_new) = cardinality(v_all) THEN v_all
                 ELSE ARRAY(SELECT r FROM unnest(v_all) r JOIN unnest(v_new) n ON n = r.ordinal ORDER BY r.ordinal) END,
            v_now);
    END IF;

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
    v_answers := v_answers || quota_batch_repeats(v_all, v_done.ordinals);

    FOR w IN SELECT r AS request, l AS limits
             FROM unnest(v_all) r
                 LEFT JOIN unnest(v_answers) a ON a.ordinal = r.ordinal
                 LEFT JOIN unnest(v_done.limits) l ON l.tenant_id = r.tenant
             WHERE a.ordinal IS NULL ORDER BY r.ordinal LOOP
        q := w.request;
        v_answer := NULL;
        IF q.fault IS NULL THEN
            BEGIN
                SELECT j.*, q.ordinal INTO v_answer
                FROM quota_reserve_judge(w.limits, q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.model,
                                         q.app, q.api_key, q.end_user, q.priority, q.ttl_seconds, v_now) j;
            EXCEPTION WHEN SQLSTATE 'QW002' OR numeric_value_out_of_range THEN
                q.fault := 'overflow';
            END;
        END IF;
        IF q.fault IS NOT NULL THEN
            v_answer := quota_answer_none('invalid', q.ordinal);
        ELSIF v_answer.reason = 'request_conflict' THEN
            v_answer := quota_answer_none('conflict', q.ordinal);
        END IF;
        v_answers := v_answers || v_answer;
    END LOOP;
    RETURN QUERY SELECT a.* FROM unnest(v_answers) a ORDER BY a.ordinal;
END $$;

-- The ordinals of those whose request id is new, of several with one id the first; the caller has the tenants locked.
CREATE OR REPLACE FUNCTION quota_batch_new(p_requests quota_request[]) RETURNS int[]
LANGUAGE sql VOLATILE
AS $$
    SELECT coalesce(array_agg(f.ordinal), '{}')
    FROM (SELECT q.tenant, q.request_id, min(q.ordinal) AS ordinal FROM unnest(p_requests) q
          WHERE q.fault IS NULL GROUP BY q.tenant, q.request_id) f
    WHERE NOT EXISTS (SELECT FROM quota_reservations r WHERE r.tenant_id = f.tenant AND r.request_id = f.request_id)
$$;

-- The answers to those, but the ones just charged, whose request id has a reservation by now. They charge nothing,
-- whatever else is in the batch, so they are answered together, as quota_reserve_judge would.
CREATE OR REPLACE FUNCTION quota_batch_repeats(p_requests quota_request[], p_charged int[]) RETURNS quota_answer[]
LANGUAGE sql VOLATILE
AS $$
    SELECT array_agg(
        CASE WHEN quota_request_repeats(r, q.in_tokens, q.out_tokens, q.cost_nanos, q.model)
             THEN (true, 'ok', r.observed_reason, r.reservation_id, true, r.tier, quota_request_answered(r, q.model),
                   r.notice, NULL, NULL, NULL, NULL, NULL, q.ordinal)::quota_answer
             ELSE quota_answer_none('conflict', q.ordinal) END)
    FROM unnest(p_requests) q
        LEFT JOIN unnest(p_charged) c ON c = q.ordinal
        JOIN quota_reservations r ON r.tenant_id = q.tenant AND r.request_id = q.request_id
    WHERE q.fault IS NULL AND c IS NULL
      AND EXISTS (SELECT FROM tenant_limits l WHERE l.tenant_id = q.tenant)
$$;

-- The answer to an element that can't be judged.
CREATE OR REPLACE FUNCTION quota_answer_none(p_reason text, p_ordinal int) RETURNS quota_answer
LANGUAGE sql IMMUTABLE
AS $$
    SELECT (false, p_reason, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, p_ordinal)::quota_answer
$$;
