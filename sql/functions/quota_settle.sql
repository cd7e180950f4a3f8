-- quota_settle: usage arrived. The charge becomes this usage, on the day of admission, over the cap too.
--
-- A cost that is NULL is taken from the price table (quota_price); where that doesn't know, the estimate's in
-- proportion, at most 10^15 nanos, marked unpriced and listed in quota_unpriced.
-- Outcomes: settled, estimated, corrected, replayed, unreserved; with them what is now charged.
-- Lock order: tenant, reservation, department slot.
-- SQLSTATEs: QW001 other figures under a usage id already seen; QW002 unusable arguments, a tenant that never
-- existed, an overflowing counter; 55P03 lock wait over 2 s (retry).
CREATE OR REPLACE FUNCTION quota_settle(
    p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_usage_id text DEFAULT NULL, p_model text DEFAULT NULL, p_cached_in_tokens bigint DEFAULT NULL,
    p_now timestamptz DEFAULT NULL,
    OUT outcome text, OUT in_tokens bigint, OUT out_tokens bigint, OUT cost_nanos bigint
) RETURNS record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_fault text := quota_usage_fault(p_tenant, p_request_id, p_in_tokens, p_out_tokens, p_cost_nanos, p_usage_id,
                                      p_model, p_cached_in_tokens);
    v_now   timestamptz;
    v_day   date;
    v_dept  text;
    v_env   text;
    v_in    bigint;
    v_out   bigint;
    v_cost  bigint;
    v_end   record;
BEGIN
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_settle: ' || v_fault;
    END IF;
    IF pg_advisory_xact_lock(hashtextextended(p_tenant, 1)) IS NULL THEN NULL; END IF;
    v_now := quota_now(p_now);

    -- The usual end: an open reservation and whole figures. Not asked for by state = 'open', which would let a plan
    -- read the whole index of open reservations.
    IF p_cost_nanos IS NOT NULL AND p_in_tokens IS NOT NULL THEN
        UPDATE quota_reservations r SET
            state = 'settled', ended_at = v_now,
            charged_in_tokens = p_in_tokens, charged_out_tokens = p_out_tokens, charged_cost_nanos = p_cost_nanos,
            usage_in_tokens = p_in_tokens, usage_out_tokens = p_out_tokens, usage_cost_nanos = p_cost_nanos,
            usage_id = p_usage_id, cached_in_tokens = p_cached_in_tokens, model = coalesce(p_model, r.model),
            over = p_in_tokens > r.estimated_in_tokens OR p_out_tokens > r.estimated_out_tokens
                   OR p_cost_nanos > r.estimated_cost_nanos
        WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id AND r.ended_at IS NULL
        RETURNING r.period, r.department_id, r.environment, r.estimated_in_tokens, r.estimated_out_tokens, r.estimated_cost_nanos
        INTO v_day, v_dept, v_env, v_in, v_out, v_cost;
        IF FOUND THEN
            PERFORM quota_usage_add(p_tenant, v_day, 0, p_in_tokens - v_in, p_out_tokens - v_out, p_cost_nanos - v_cost,
                                    -v_in, -v_out, -v_cost, false);
            IF v_dept IS NOT NULL THEN
                PERFORM quota_department_book(v_dept, v_env, quota_month(v_day), v_now,
                                              p_in_tokens + p_out_tokens - v_in - v_out, p_cost_nanos - v_cost,
                                              -v_in - v_out, -v_cost);
            END IF;
            outcome := 'settled';
            in_tokens := p_in_tokens;
            out_tokens := p_out_tokens;
            cost_nanos := p_cost_nanos;
            RETURN;
        END IF;
    END IF;

    SELECT s.* INTO v_end
    FROM quota_settle_judge(p_tenant, p_request_id, p_in_tokens, p_out_tokens, p_cost_nanos, p_usage_id, p_model,
                            p_cached_in_tokens, v_now) s;
    outcome := v_end.outcome;
    in_tokens := v_end.in_tokens;
    out_tokens := v_end.out_tokens;
    cost_nanos := v_end.cost_nanos;
    IF outcome = 'conflict' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW001', MESSAGE = 'quota_settle: this usage_id came before with other figures',
            HINT = 'A correction needs a new usage_id, or none.';
    ELSIF outcome = 'invalid' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_settle: no such tenant, and there never was one';
    END IF;
    PERFORM quota_booking_book(v_end.booking, v_now);
END $$;

-- What is wrong with a usage, in words, or NULL.
CREATE OR REPLACE FUNCTION quota_usage_fault(
    p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_usage_id text, p_model text, p_cached_in_tokens bigint
) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN (p_in_tokens IS NULL) <> (p_out_tokens IS NULL) OR p_in_tokens IS NULL AND p_cost_nanos IS NOT NULL
            THEN 'figures are incomplete: give all three, or no cost, or none'
        WHEN p_usage_id IS NOT NULL AND quota_id_fault(p_usage_id) IS NOT NULL THEN 'usage id ' || quota_id_fault(p_usage_id)
        -- a name that is just short enough may have the suffix besides
        WHEN p_model IS NOT NULL AND quota_id_fault(p_model) IS NOT NULL
             AND NOT (lower(right(p_model, 6)) = ':batch' AND quota_id_fault(left(p_model, -6)) IS NULL)
            THEN 'model ' || quota_id_fault(p_model)
        WHEN p_cached_in_tokens < 0 OR p_cached_in_tokens > p_in_tokens THEN 'cached input tokens must lie within the input tokens'
        ELSE quota_request_fault(p_tenant, p_request_id, coalesce(p_in_tokens, 0), coalesce(p_out_tokens, 0),
                                 coalesce(p_cost_nanos, 0))
    END
$$;
