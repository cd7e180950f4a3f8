-- quota_release: the caller gave up. It states what was consumed; with nothing consumed everything goes back.
--
-- Outcomes: released, replayed (the same release again), already_final (ended otherwise), unknown.
-- Lock order: tenant, reservation, department slot.
-- SQLSTATEs: QW002 unusable arguments; 55P03 lock wait over 2 s (retry).
CREATE OR REPLACE FUNCTION quota_release(
    p_tenant text, p_request_id text, p_in_tokens bigint DEFAULT 0, p_out_tokens bigint DEFAULT 0,
    p_cost_nanos bigint DEFAULT 0, p_now timestamptz DEFAULT NULL,
    OUT outcome text
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_fault text := quota_request_fault(p_tenant, p_request_id, p_in_tokens, p_out_tokens, p_cost_nanos);
    v_now   timestamptz;
    r       quota_reservations;
    v_in    bigint := p_in_tokens;
    v_out   bigint := p_out_tokens;
    v_cost  bigint := p_cost_nanos;
    v_used  boolean;
    v_booking quota_booking;
BEGIN
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_release: ' || v_fault;
    END IF;
    IF pg_advisory_xact_lock(hashtextextended(p_tenant, 1)) IS NULL THEN NULL; END IF;
    v_now := quota_now(p_now);
    SELECT * INTO r FROM quota_reservations q WHERE q.tenant_id = p_tenant AND q.request_id = p_request_id;
    IF NOT FOUND THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    -- Never less than the stream reported: then its input was read, too.
    IF r.progress_out_tokens > p_out_tokens THEN
        v_in := greatest(p_in_tokens, r.estimated_in_tokens);
        v_out := r.progress_out_tokens;
        v_cost := greatest(p_cost_nanos, quota_partial_cost(r));
    END IF;
    v_used := v_in > 0 OR v_out > 0 OR v_cost > 0;
    IF r.state <> 'open' THEN
        outcome := CASE WHEN r.state = 'released' AND r.usage_in_tokens IS NULL
            AND (v_in, v_out, v_cost) = (r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos)
            THEN 'replayed' ELSE 'already_final' END;
        RETURN;
    END IF;
    v_booking := quota_reservation_post(r, 'released', v_in, v_out, v_cost, v_used, v_now);
    IF NOT v_used AND r.token_taken THEN
        UPDATE quota_usage u SET bucket_tokens = least(l.bucket_capacity, u.bucket_tokens + 1)
        FROM tenant_limits l
        WHERE l.tenant_id = p_tenant AND u.tenant_id = p_tenant AND u.bucket_tokens IS NOT NULL;
    END IF;
    PERFORM quota_booking_book(v_booking, v_now);
    outcome := 'released';
END $$;

-- The cost of what a stream reported so far: the estimate's, in proportion to input + streamed, rounded up.
CREATE OR REPLACE FUNCTION quota_partial_cost(r quota_reservations) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT quota_cost_share(r.estimated_cost_nanos, r.estimated_in_tokens::numeric + r.progress_out_tokens,
                              r.estimated_in_tokens::numeric + r.estimated_out_tokens) $$;
