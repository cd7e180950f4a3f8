-- The general path of a usage. Internal: the caller holds the tenant's lock and has checked the arguments.
-- Outcomes as quota_settle, and 'conflict' (a usage id seen with other figures), 'invalid' (no tenant ever).
-- The department's part is left to the caller, who books it last: quota_booking_book.
CREATE OR REPLACE FUNCTION quota_settle_judge(
    p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_usage_id text, p_model text, p_cached_in_tokens bigint, p_now timestamptz,
    OUT outcome text, OUT in_tokens bigint, OUT out_tokens bigint, OUT cost_nanos bigint, OUT booking quota_booking
) RETURNS record
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    r         quota_reservations;
    s         record;
    v_figures boolean := p_in_tokens IS NOT NULL;
    v_seen    boolean := false;
    v_same    boolean;
    v_model   text;
    v_cached  bigint;
    -- what the usage costs: as it came, else by the price table; NULL where that doesn't know
    v_cost    bigint := p_cost_nanos;
    v_guess   boolean;
BEGIN
    SELECT * INTO r FROM quota_reservations q WHERE q.tenant_id = p_tenant AND q.request_id = p_request_id;
    IF NOT FOUND THEN
        SELECT * INTO s
        FROM quota_settle_unreserved(p_tenant, p_request_id, p_in_tokens, p_out_tokens, p_cost_nanos, p_usage_id,
                                     p_model, p_cached_in_tokens, p_now);
        outcome := s.outcome;
        in_tokens := s.in_tokens;
        out_tokens := s.out_tokens;
        cost_nanos := s.cost_nanos;
        booking := s.booking;
        RETURN;
    END IF;
    in_tokens := r.charged_in_tokens;
    out_tokens := r.charged_out_tokens;
    cost_nanos := r.charged_cost_nanos;
    v_model := coalesce(p_model, r.model);
    v_cached := coalesce(p_cached_in_tokens, r.cached_in_tokens);

    IF p_usage_id IS NOT NULL AND r.state <> 'open' THEN
        SELECT u.in_tokens AS i, u.out_tokens AS o, u.cost_nanos AS c INTO s
        FROM (SELECT r.usage_id AS usage_id, r.usage_in_tokens AS in_tokens, r.usage_out_tokens AS out_tokens,
                     r.usage_cost_nanos AS cost_nanos
              UNION ALL
              SELECT q.usage_id, q.in_tokens, q.out_tokens, q.cost_nanos FROM quota_usage_ids q
              WHERE q.tenant_id = p_tenant AND q.request_id = p_request_id) u
        WHERE u.usage_id = p_usage_id LIMIT 1;
        v_seen := FOUND;
        -- The same id may bring what it lacked before, its figures or its cost, and repeat what it brought without them.
        IF v_seen AND (NOT v_figures
                       OR (s.i, s.o) = (p_in_tokens, p_out_tokens) AND coalesce(p_cost_nanos, s.c) IS NOT DISTINCT FROM s.c) THEN
            outcome := 'replayed';
            RETURN;
        ELSIF v_seen AND s.i IS NOT NULL
              AND NOT (s.c IS NULL AND (s.i, s.o) = (p_in_tokens, p_out_tokens)) THEN
            outcome := 'conflict';
            RETURN;
        ELSIF v_seen AND p_usage_id IS DISTINCT FROM r.usage_id THEN
            -- What a usage lacked comes, and a later usage has come meanwhile: that stays the charge.
            UPDATE quota_usage_ids q SET in_tokens = p_in_tokens, out_tokens = p_out_tokens, cost_nanos = p_cost_nanos
            WHERE q.tenant_id = p_tenant AND q.request_id = p_request_id AND q.usage_id = p_usage_id;
            outcome := 'replayed';
            RETURN;
        END IF;
    END IF;

    IF NOT v_figures THEN
        IF r.state <> 'open' THEN
            outcome := 'replayed';
            RETURN;
        END IF;
        outcome := 'estimated';
        in_tokens := r.estimated_in_tokens;
        out_tokens := r.estimated_out_tokens;
        cost_nanos := r.estimated_cost_nanos;
    ELSE
        -- A usage that comes again without its cost isn't priced again: prices may have changed since.
        IF v_cost IS NULL AND (r.state = 'open' OR NOT r.completion_counted
                OR (p_in_tokens, p_out_tokens) IS DISTINCT FROM (r.usage_in_tokens, r.usage_out_tokens)
                OR r.usage_cost_nanos IS NULL
                   AND (v_model, v_cached) IS DISTINCT FROM (r.model, r.cached_in_tokens)) THEN
            v_cost := quota_price(v_model, p_in_tokens, v_cached, p_out_tokens, r.admitted_at);
        END IF;
        v_same := r.state <> 'open' AND r.completion_counted
                  AND (p_in_tokens, p_out_tokens) IS NOT DISTINCT FROM (r.charged_in_tokens, r.charged_out_tokens)
                  AND coalesce(v_cost, r.charged_cost_nanos) = r.charged_cost_nanos;
        outcome := CASE
            WHEN r.state = 'open' THEN 'settled'
            WHEN v_same AND (r.state = 'settled' OR r.usage_in_tokens IS NOT NULL) THEN 'replayed'
            ELSE 'corrected' END;
        in_tokens := p_in_tokens;
        out_tokens := p_out_tokens;
        cost_nanos := coalesce(v_cost, CASE WHEN v_same THEN r.charged_cost_nanos
            ELSE quota_cost_share(r.estimated_cost_nanos, p_in_tokens::numeric + p_out_tokens,
                                  r.estimated_in_tokens::numeric + r.estimated_out_tokens) END);
    END IF;

    IF outcome = 'replayed' AND p_usage_id IS NULL AND NOT r.usage_missing AND NOT (r.unpriced AND v_cost IS NOT NULL) THEN
        RETURN;
    END IF;
    -- Neither a cost nor a price, unless the same tokens were charged by one before.
    v_guess := v_figures AND v_cost IS NULL AND (r.unpriced OR r.usage_in_tokens IS NULL OR NOT v_same);
    booking := quota_reservation_post(r, CASE WHEN r.state = 'open' THEN 'settled' ELSE r.state END,
                                      in_tokens, out_tokens, cost_nanos, true, p_now);
    UPDATE quota_reservations q SET
        usage_missing    = NOT v_figures,
        unpriced         = v_guess,
        late             = r.late OR r.state IN ('released', 'expired'),
        over             = v_figures AND NOT r.unreserved
                           AND (p_in_tokens > r.estimated_in_tokens OR p_out_tokens > r.estimated_out_tokens
                                OR cost_nanos > r.estimated_cost_nanos),
        model            = v_model,
        cached_in_tokens = v_cached,
        usage_id         = p_usage_id,
        usage_in_tokens  = p_in_tokens,
        usage_out_tokens = p_out_tokens,
        usage_cost_nanos = p_cost_nanos
    WHERE q.tenant_id = p_tenant AND q.request_id = p_request_id;
    IF v_guess THEN
        PERFORM quota_unpriced_note(p_tenant, p_request_id, v_model, p_in_tokens, r.admitted_at, p_now);
    ELSIF r.unpriced THEN
        DELETE FROM quota_unpriced w WHERE w.tenant_id = p_tenant AND w.request_id = p_request_id;
    END IF;
    -- The row remembers the latest usage with its id, if any; the ids before it move aside.
    IF r.usage_id IS NOT NULL AND p_usage_id IS DISTINCT FROM r.usage_id THEN
        INSERT INTO quota_usage_ids (tenant_id, request_id, usage_id, in_tokens, out_tokens, cost_nanos, seen_at)
        VALUES (p_tenant, p_request_id, r.usage_id, r.usage_in_tokens, r.usage_out_tokens, r.usage_cost_nanos, p_now)
        ON CONFLICT (tenant_id, request_id, usage_id) DO UPDATE SET
            in_tokens = excluded.in_tokens, out_tokens = excluded.out_tokens, cost_nanos = excluded.cost_nanos;
    END IF;
END $$;

-- p_cost_nanos × p_part ÷ p_whole, rounded up: what part of an estimate's cost falls on part of its tokens. At most
-- what one call may cost (10^15 nanos): tokens far beyond the estimate's are counted, and their cost is a guess.
CREATE OR REPLACE FUNCTION quota_cost_share(p_cost_nanos bigint, p_part numeric, p_whole numeric) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_whole = 0 THEN p_cost_nanos
                  ELSE least(div(p_cost_nanos * p_part + p_whole - 1, p_whole), 1000000000000000)::bigint END $$;

-- Usage that nobody reserved: posted to p_now's day, its completion too, and marked.
CREATE OR REPLACE FUNCTION quota_settle_unreserved(
    p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_usage_id text, p_model text, p_cached_in_tokens bigint, p_now timestamptz,
    OUT outcome text, OUT in_tokens bigint, OUT out_tokens bigint, OUT cost_nanos bigint, OUT booking quota_booking
) RETURNS record
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_dept text;
    v_env  text;
    v_day  date := quota_day(p_now);
    v_cost bigint := coalesce(p_cost_nanos, CASE WHEN p_in_tokens IS NOT NULL
                              THEN quota_price(p_model, p_in_tokens, p_cached_in_tokens, p_out_tokens, p_now) END);
BEGIN
    in_tokens := coalesce(p_in_tokens, 0);
    out_tokens := coalesce(p_out_tokens, 0);
    cost_nanos := coalesce(v_cost, 0);
    SELECT l.department_id, l.environment INTO v_dept, v_env FROM tenant_limits l WHERE l.tenant_id = p_tenant;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM quota_usage u WHERE u.tenant_id = p_tenant)
       AND NOT EXISTS (SELECT FROM quota_reservations q WHERE q.tenant_id = p_tenant) THEN
        outcome := 'invalid';
        RETURN;
    END IF;
    outcome := 'unreserved';
    v_env := coalesce(v_env, 'production');
    INSERT INTO quota_reservations (
        tenant_id, request_id, state, period, department_id, environment,
        estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos,
        charged_in_tokens, charged_out_tokens, charged_cost_nanos, cached_in_tokens, token_taken,
        usage_missing, unpriced, unreserved, ttl_seconds, admitted_at, expires_at, ended_at, model,
        usage_id, usage_in_tokens, usage_out_tokens, usage_cost_nanos)
    VALUES (
        p_tenant, p_request_id, 'settled', v_day, v_dept, v_env, 0, 0, 0, in_tokens, out_tokens, cost_nanos,
        p_cached_in_tokens, false, p_in_tokens IS NULL, p_in_tokens IS NOT NULL AND v_cost IS NULL, true, 0,
        p_now, p_now, p_now, p_model, p_usage_id, p_in_tokens, p_out_tokens, p_cost_nanos);
    IF p_in_tokens IS NOT NULL AND v_cost IS NULL THEN
        PERFORM quota_unpriced_note(p_tenant, p_request_id, p_model, p_in_tokens, p_now, p_now);
    END IF;
    PERFORM quota_usage_add(p_tenant, v_day, 1, in_tokens, out_tokens, cost_nanos, 0, 0, 0, false);
    booking := (v_dept, v_env, quota_month(v_day), in_tokens + out_tokens, cost_nanos, 0, 0)::quota_booking;
END $$;
