-- The general path of a request: judges everything exactly and charges. Internal: the caller holds the tenant's
-- lock and read p_now after it. Serves quota_reserve and the batch; with p_request_id NULL, a charge without a
-- request, quota_check_and_charge. Answers 'request_conflict' where quota_reserve raises QW001.
-- p_limits: the tenant's row as the caller read it, once, NULL where there is none: the department judged is the one
-- that the caller knows, whoever moves the tenant meanwhile.
-- Locks: department slots, one within its band or all in order. A refusal by the department judged from an
-- unlocked read is as true as of that moment; an admission is always judged under the lock.
CREATE OR REPLACE FUNCTION quota_reserve_judge(
    p_limits tenant_limits, p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_model text, p_app text, p_api_key text, p_end_user text, p_priority text, p_ttl_seconds int, p_now timestamptz,
    OUT allowed boolean, OUT reason text, OUT observed_reason text, OUT reservation_id bigint, OUT replayed boolean,
    OUT tier text, OUT model text, OUT notice text, OUT limit_name text, OUT limit_value bigint,
    OUT limit_used bigint, OUT resets_at timestamptz, OUT retry_after_seconds numeric
) RETURNS record
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    l        ALIAS FOR p_limits;
    d        record;
    k        record;
    v_known  quota_reservations;
    v_slot   smallint := pg_backend_pid() & 15;
    v_day    date := quota_day(p_now);
    v_month  date := quota_month(quota_day(p_now));
    v_live   date;
    v_tokens double precision;
    v_at     timestamptz;
    v_locked boolean := false;
    v_ttl    int;
    v_token  boolean;
BEGIN
    allowed := false;
    replayed := false;
    tier := 'normal';
    IF l.tenant_id IS NULL THEN
        reason := 'unknown_tenant';
        RETURN;
    END IF;

    SELECT r.* INTO v_known FROM quota_reservations r WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id;
    IF FOUND THEN
        IF NOT quota_request_repeats(v_known, p_in_tokens, p_out_tokens, p_cost_nanos, p_model) THEN
            reason := 'request_conflict';
            RETURN;
        END IF;
        allowed := true;
        reason := 'ok';
        replayed := true;
        observed_reason := v_known.observed_reason;
        reservation_id := v_known.reservation_id;
        tier := v_known.tier;
        model := quota_request_answered(v_known, p_model);
        notice := v_known.notice;
        RETURN;
    END IF;

    SELECT u.period, u.bucket_tokens, u.bucket_at INTO v_live, v_tokens, v_at
    FROM quota_usage u
    WHERE u.tenant_id = p_tenant AND u.bucket_tokens IS NOT NULL
    ORDER BY u.period DESC LIMIT 1;
    v_at := coalesce(v_at, p_now);
    v_tokens := greatest(least(l.bucket_capacity, coalesce(v_tokens, l.bucket_capacity) + l.bucket_refill_per_sec
                                                  * greatest(date_part('epoch', p_now - v_at), 0)), 0);
    v_at := greatest(v_at, p_now);

    LOOP
        -- a person's stop: in every mode, counted by itself, since no cap was used up. A look that costs little comes first
        IF EXISTS (SELECT FROM quota_blocks s WHERE s.subject IN (p_tenant, l.department_id) AND s.blocked_until > p_now) THEN
            SELECT f.* INTO reason, tier, notice, limit_name, limit_value, limit_used, resets_at, retry_after_seconds
            FROM quota_block_refusal(p_tenant, l.department_id, l.environment, l.locale, p_now) f;
            IF FOUND THEN
                model := p_model;
                PERFORM quota_refusal_count(p_tenant, v_day, 'blocked', p_now);
                PERFORM set_config('quota.refused', p_tenant, false), set_config('quota.blocked', p_tenant, false);
                RETURN;
            END IF;
            tier := 'normal';
        END IF;
        reason := 'ok';
        model := p_model;
        notice := NULL;
        IF l.department_id IS NOT NULL THEN
            SELECT * INTO d FROM quota_department_standing(l.department_id, l.environment, v_month, p_now);
            tier := quota_tier_name(d.tier);
            IF l.enforce <> 'off' THEN
                SELECT * INTO reason, limit_name, limit_value, limit_used, resets_at
                FROM quota_department_judge(d.tokens_used, d.budget_tokens, d.cost_used_nanos, d.budget_cost_nanos, d.tier,
                                            d.allowed_models, p_in_tokens + p_out_tokens, p_cost_nanos, p_model,
                                            p_priority, v_month);
            END IF;
            IF d.tier IN (2, 3) AND l.enforce = 'on'
               AND (d.downgrade_from IS NULL OR p_model = ANY (d.downgrade_from)) THEN
                model := coalesce(d.downgrade_model, p_model);
            END IF;
        END IF;
        IF reason = 'ok' AND l.enforce <> 'off' THEN
            SELECT * INTO k FROM quota_caps_judge(l, v_day, p_in_tokens, p_out_tokens, p_cost_nanos);
            IF FOUND THEN
                reason := k.reason;
                limit_name := k.limit_name;
                limit_value := k.limit_value;
                limit_used := k.limit_used;
                resets_at := quota_day_start(k.resets_on);
            ELSIF v_tokens < 1 - 1e-9 THEN
                SELECT * INTO reason, limit_name, limit_value, limit_used, resets_at, retry_after_seconds
                FROM quota_bucket_refusal(l.bucket_capacity, l.bucket_refill_per_sec, v_tokens, v_at, p_now);
            END IF;
        END IF;

        IF l.department_id IS NOT NULL AND l.enforce = 'on' THEN
            notice := quota_notice(d.tier, reason, p_model, model, quota_locale(l.locale, l.department_id));
        END IF;
        IF reason <> 'ok' THEN
            IF l.enforce = 'on' THEN
                IF resets_at IS NOT NULL AND retry_after_seconds IS NULL THEN
                    retry_after_seconds := greatest(extract(epoch FROM resets_at - p_now), 0);
                END IF;
                model := p_model;
                PERFORM quota_refusal_count(p_tenant, v_day, reason, p_now);
                PERFORM set_config('quota.refused', p_tenant, false);
                RETURN;
            END IF;
            observed_reason := reason;
            reason := 'ok';
            limit_name := NULL;
            limit_value := NULL;
            limit_used := NULL;
            resets_at := NULL;
            retry_after_seconds := NULL;
        END IF;

        EXIT WHEN l.department_id IS NULL;
        IF v_locked THEN
            PERFORM quota_slot_add(l.department_id, l.environment, v_month, v_slot, p_in_tokens + p_out_tokens, p_cost_nanos,
                                   CASE WHEN p_request_id IS NULL THEN 0 ELSE p_in_tokens + p_out_tokens END,
                                   CASE WHEN p_request_id IS NULL THEN 0 ELSE p_cost_nanos END);
            PERFORM quota_department_band(l.department_id, l.environment, v_month, p_now, p_in_tokens + p_out_tokens,
                                          p_cost_nanos);
            EXIT;
        END IF;
        EXIT WHEN quota_slot_admit(l.department_id, l.environment, v_month, v_slot, d.tier, p_now,
                                   p_in_tokens + p_out_tokens, p_cost_nanos, p_request_id IS NOT NULL);
        -- Near a line: lock all slots and judge once more, exactly.
        PERFORM quota_department_lock(l.department_id, l.environment, v_month);
        v_locked := true;
    END LOOP;

    v_token := l.enforce = 'on' OR l.enforce = 'observe' AND v_tokens >= 1 - 1e-9;
    PERFORM quota_usage_add(p_tenant, v_day, 1, p_in_tokens, p_out_tokens, p_cost_nanos,
                            CASE WHEN p_request_id IS NULL THEN 0 ELSE p_in_tokens END,
                            CASE WHEN p_request_id IS NULL THEN 0 ELSE p_out_tokens END,
                            CASE WHEN p_request_id IS NULL THEN 0 ELSE p_cost_nanos END, p_request_id IS NULL);
    PERFORM quota_bucket_put(p_tenant, v_day, v_live, CASE WHEN v_token THEN greatest(v_tokens - 1, 0) ELSE v_tokens END, v_at);
    PERFORM quota_ceilings_draw(l, v_day);

    allowed := true;
    IF p_request_id IS NULL THEN
        IF l.department_id IS NOT NULL THEN
            PERFORM quota_slot_legacy(l.department_id, l.environment, v_month, p_in_tokens + p_out_tokens, p_cost_nanos);
        END IF;
        RETURN;
    END IF;
    v_ttl := coalesce(p_ttl_seconds, l.reservation_ttl_seconds);
    INSERT INTO quota_reservations AS r (
        tenant_id, request_id, period, department_id, environment,
        estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos, token_taken, ttl_seconds, admitted_at, expires_at,
        requested_model, answered_model, model, app, api_key, end_user, priority, tier, notice, observed_reason)
    VALUES (
        p_tenant, p_request_id, v_day, l.department_id, l.environment,
        p_in_tokens, p_out_tokens, p_cost_nanos, v_token, v_ttl, p_now, p_now + v_ttl * interval '1 second',
        p_model, model, model, p_app, p_api_key, p_end_user, p_priority, tier, notice, observed_reason)
    RETURNING r.reservation_id INTO reservation_id;
END $$;

-- Does a request with a known id ask for the same once more? Usage that came before its request has no figures to differ.
CREATE OR REPLACE FUNCTION quota_request_repeats(
    r quota_reservations, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint, p_model text
) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT r.unreserved OR (r.estimated_in_tokens, r.estimated_out_tokens, r.estimated_cost_nanos, r.requested_model)
                           IS NOT DISTINCT FROM (p_in_tokens, p_out_tokens, p_cost_nanos, p_model)
$$;

-- The model that such a request is answered with.
CREATE OR REPLACE FUNCTION quota_request_answered(r quota_reservations, p_model text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN r.unreserved THEN p_model ELSE r.answered_model END $$;

-- What a department's month says to a request: 'ok' or the refusal, with the limit that it met.
CREATE OR REPLACE FUNCTION quota_department_judge(
    p_tokens_used numeric, p_budget_tokens numeric, p_cost_used_nanos numeric, p_budget_cost_nanos numeric, p_tier smallint,
    p_allowed_models text[], p_tokens bigint, p_cost_nanos bigint, p_model text, p_priority text, p_month date,
    OUT reason text, OUT limit_name text, OUT limit_value bigint, OUT limit_used bigint, OUT resets_at timestamptz
) RETURNS record
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_by_cost boolean;
    c_max     CONSTANT numeric := 9223372036854775807;
BEGIN
    reason := 'ok';
    IF p_allowed_models IS NOT NULL AND (p_model IS NULL OR p_model <> ALL (p_allowed_models)) THEN
        reason := 'model_not_allowed';
        limit_name := 'allowed_models';
        RETURN;
    END IF;
    IF p_tier = 4 THEN
        reason := 'department_budget_exhausted';
        v_by_cost := coalesce(p_tokens_used < p_budget_tokens, true);
    ELSIF p_tier = 3 AND p_priority <> 'high' THEN
        reason := 'department_protected';
        -- the fuller of the two
        v_by_cost := coalesce(p_cost_used_nanos * p_budget_tokens >= p_tokens_used * p_budget_cost_nanos,
                              p_budget_tokens IS NULL);
    ELSIF p_tokens_used + p_tokens > p_budget_tokens OR p_cost_used_nanos + p_cost_nanos > p_budget_cost_nanos THEN
        reason := 'department_budget_exhausted';
        v_by_cost := coalesce(p_tokens_used + p_tokens <= p_budget_tokens, true);
    ELSE
        RETURN;
    END IF;
    IF v_by_cost THEN
        limit_name := 'department_monthly_cost_cents';
        limit_value := least(p_budget_cost_nanos / 10000000, c_max);
        limit_used := least(floor(p_cost_used_nanos / 10000000), c_max);
    ELSE
        limit_name := 'department_monthly_tokens';
        limit_value := least(p_budget_tokens, c_max);
        limit_used := least(p_tokens_used, c_max);
    END IF;
    resets_at := quota_day_start((p_month + interval '1 month')::date);
END $$;

-- The language for a tenant: its own, its department's, the deployment's.
CREATE OR REPLACE FUNCTION quota_locale(p_locale text, p_department text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(p_locale, (SELECT e.locale FROM departments e WHERE e.department_id = p_department), g.locale)
    FROM quota_settings g
$$;

-- Writes the bucket into the live row, which moves on to p_day unless a later day has it already.
CREATE OR REPLACE FUNCTION quota_bucket_put(
    p_tenant text, p_day date, p_live date, p_tokens double precision, p_at timestamptz
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    UPDATE quota_usage u SET bucket_tokens = p_tokens, bucket_at = p_at
    WHERE u.tenant_id = p_tenant AND u.period = greatest(p_day, p_live);
    IF p_live < p_day THEN
        UPDATE quota_usage u SET bucket_tokens = NULL, bucket_at = NULL
        WHERE u.tenant_id = p_tenant AND u.period = p_live;
    END IF;
END $$;

