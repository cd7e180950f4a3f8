-- quota_reserve: may this request go to the model? If so its estimate is held until it ends.
--
-- Outcomes: the reasons of the contract, in the contract's order of checks; a refusal writes no ledger row.
-- Lock order: tenant (advisory, by hash), reservation, department slot. Each wait is bounded by lock_timeout.
-- SQLSTATEs: QW001 same request id with other figures; QW002 unusable arguments; 55P03 lock wait over 2 s (retry).
--
-- This is the short path: one UPDATE that judges every limit in its WHERE and charges at once. Whatever is
-- unusual (a first request of a day, a replay, a limit near, a mode, a tier) matches no row and is left to
-- quota_reserve_judge, which decides from scratch under the same tenant lock. So the WHERE may be stricter
-- than the contract, never laxer. Each table is met by its key: at the usual random_page_cost a budget table of a
-- hundred rows is hashed whole at every call, and a plan cached while a table was small stays. (enable_seqscan = off
-- would add 10^10 to the cost of plans that have no choice, and so start the JIT compiler.)
CREATE OR REPLACE FUNCTION quota_reserve(
    p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_model text DEFAULT NULL, p_app text DEFAULT NULL, p_api_key text DEFAULT NULL, p_end_user text DEFAULT NULL,
    p_priority text DEFAULT 'normal', p_ttl_seconds int DEFAULT NULL, p_now timestamptz DEFAULT NULL,
    OUT allowed boolean, OUT reason text, OUT observed_reason text, OUT reservation_id bigint, OUT replayed boolean,
    OUT tier text, OUT model text, OUT notice text, OUT limit_name text, OUT limit_value bigint,
    OUT limit_used bigint, OUT resets_at timestamptz, OUT retry_after_seconds numeric
) RETURNS record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
SET random_page_cost = 0.1
AS $$
DECLARE
    v_ids   text := concat(p_request_id, p_model, p_app, p_api_key, p_end_user);
    -- Are the arguments surely fine? Words for what is wrong are looked for later, if something is. A tenant that
    -- matches a row below is known, and its id was looked at when it was first admitted today.
    v_plain boolean := coalesce(
        (p_in_tokens | p_out_tokens) BETWEEN 0 AND 500000000000 AND p_cost_nanos BETWEEN 0 AND 1000000000000000
        AND p_request_id <> '' AND octet_length(v_ids) <= 200 AND v_ids !~ '[\x01-\x1f\x7f-\x9f]'
        AND p_priority IN ('normal', 'high', 'low') AND p_ttl_seconds IS NULL, false);
    v_slot  smallint := pg_backend_pid() & 15;
    v_fault text;
    v_now   timestamptz;
    v_day   date;
    v_month date;
    v_dept  text;
    v_env   text;
    v_tier  smallint;
    v_ttl   int;
BEGIN
    IF p_tenant IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_reserve: tenant id is empty';
    END IF;
    -- Only a hint, this session's own: after a refusal the next call of the same tenant is likely refused, too.
    IF v_plain AND current_setting('quota.refused', true) = p_tenant THEN
        SELECT f.* INTO reason, tier, limit_name, limit_value, limit_used, resets_at, retry_after_seconds
        FROM quota_refuse_short(p_tenant, p_request_id, p_in_tokens, p_out_tokens, p_cost_nanos,
                                coalesce(p_now, clock_timestamp())) f;
        IF reason IS NOT NULL THEN
            allowed := false;
            replayed := false;
            model := p_model;
            IF limit_name = 'blocked' THEN
                notice := (SELECT f.notice FROM tenant_limits l
                               CROSS JOIN LATERAL quota_block_refusal(l.tenant_id, l.department_id, l.environment, l.locale,
                                                                      coalesce(p_now, clock_timestamp())) f
                           WHERE l.tenant_id = p_tenant);
            END IF;
            RETURN;
        END IF;
        PERFORM set_config('quota.refused', '', false);
    END IF;
    IF pg_advisory_xact_lock(hashtextextended(p_tenant, 1)) IS NULL THEN NULL; END IF;
    v_now := coalesce(p_now, clock_timestamp());
    v_day := (v_now AT TIME ZONE quota_zone())::date;
    v_month := quota_month(v_day);

    <<short>>
    BEGIN
        EXIT short WHEN NOT v_plain;
        UPDATE quota_usage u SET
            completions          = u.completions + 1,
            input_tokens         = u.input_tokens + p_in_tokens,
            output_tokens        = u.output_tokens + p_out_tokens,
            cost_cents           = u.cost_cents + (u.cost_subcent_nanos + p_cost_nanos) / 10000000,
            cost_subcent_nanos   = (u.cost_subcent_nanos + p_cost_nanos) % 10000000,
            held_input_tokens    = u.held_input_tokens + p_in_tokens,
            held_output_tokens   = u.held_output_tokens + p_out_tokens,
            held_cost_nanos      = u.held_cost_nanos + p_cost_nanos,
            booked_completions   = u.booked_completions + 1,
            booked_input_tokens  = u.booked_input_tokens + p_in_tokens,
            booked_output_tokens = u.booked_output_tokens + p_out_tokens,
            booked_cost_nanos    = u.booked_cost_nanos + p_cost_nanos,
            bucket_tokens        = least(l.bucket_capacity, u.bucket_tokens + l.bucket_refill_per_sec
                                         * greatest(date_part('epoch', v_now - u.bucket_at), 0)) - 1,
            bucket_at            = greatest(u.bucket_at, v_now)
        FROM tenant_limits l
            LEFT JOIN department_budgets b ON b.department_id = l.department_id AND b.environment = l.environment
            LEFT JOIN quota_department_slots s ON s.department_id = l.department_id AND s.environment = l.environment
                AND s.month = v_month
                AND s.slot = v_slot
        WHERE l.tenant_id = p_tenant
          AND u.tenant_id = p_tenant
          AND u.period = v_day
          -- the caps, by the ceilings drawn from them, if these still hold; counters below zero or below what is
          -- held (a legacy correction) are read differently. No sum here can overflow: ceilings are 10^18 at most.
          AND u.limits_ctid = l.ctid AND u.limits_xmin = l.xmin
          AND u.completions >= 0 AND u.completions < u.ceiling_completions
          AND u.input_tokens >= u.held_input_tokens AND u.input_tokens < u.ceiling_input_tokens - p_in_tokens
          AND u.output_tokens >= u.held_output_tokens AND u.output_tokens < u.ceiling_output_tokens - p_out_tokens
          AND u.input_tokens + u.output_tokens + p_in_tokens + p_out_tokens < u.ceiling_tokens
          AND u.cost_cents >= u.held_cost_nanos / 10000000 AND u.cost_cents < u.ceiling_cost_cents - p_cost_nanos / 10000000 - 1
          AND NOT EXISTS (SELECT FROM quota_usage n
                          WHERE n.tenant_id = p_tenant AND n.period >= u.period - 1 AND n.period <> u.period
                            AND (n.ctid, n.xmin) IS DISTINCT FROM (u.eve_ctid, u.eve_xmin))
          -- the bucket, in the tenant's live row
          AND u.bucket_tokens IS NOT NULL
          AND least(l.bucket_capacity, u.bucket_tokens + l.bucket_refill_per_sec
                    * greatest(date_part('epoch', v_now - u.bucket_at), 0)) >= 1
          AND NOT EXISTS (SELECT FROM quota_reservations r WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id)
          -- the department: within its slot's band, in a tier in which nothing changes for callers
          AND (l.department_id IS NULL
               OR s.short AND s.band_from <= v_now AND v_now < s.band_until
                  AND s.tokens_used + p_in_tokens + p_out_tokens <= s.tokens_ceiling
                  AND s.cost_used_nanos + p_cost_nanos <= s.cost_ceiling_nanos
                  AND s.budget_ctid IS NOT DISTINCT FROM b.ctid AND s.budget_xmin IS NOT DISTINCT FROM b.xmin)
        RETURNING l.department_id, l.environment, l.reservation_ttl_seconds, s.band_tier
        INTO v_dept, v_env, v_ttl, v_tier;
        EXIT short WHEN NOT FOUND;

        IF v_dept IS NOT NULL THEN
            -- A subtransaction, because an UPDATE that waited and then fails its recheck keeps the row's lock;
            -- going on to lock all slots with one in hand would deadlock. Undone, it holds nothing.
            BEGIN
                UPDATE quota_department_slots s SET
                    tokens_used     = s.tokens_used + p_in_tokens + p_out_tokens,
                    cost_used_nanos = s.cost_used_nanos + p_cost_nanos,
                    tokens_held     = s.tokens_held + p_in_tokens + p_out_tokens,
                    cost_held_nanos = s.cost_held_nanos + p_cost_nanos
                WHERE s.department_id = v_dept AND s.environment = v_env AND s.month = v_month
                  AND s.slot = v_slot AND s.band_tier = v_tier
                  AND s.tokens_used + p_in_tokens + p_out_tokens <= s.tokens_ceiling
                  AND s.cost_used_nanos + p_cost_nanos <= s.cost_ceiling_nanos;
                IF NOT FOUND THEN
                    RAISE EXCEPTION USING ERRCODE = 'QW000', MESSAGE = 'the band moved';
                END IF;
            EXCEPTION WHEN SQLSTATE 'QW000' THEN
                PERFORM quota_usage_add(p_tenant, v_day, -1, -p_in_tokens, -p_out_tokens, -p_cost_nanos,
                                        -p_in_tokens, -p_out_tokens, -p_cost_nanos, false);
                UPDATE quota_usage u SET bucket_tokens = u.bucket_tokens + 1
                WHERE u.tenant_id = p_tenant AND u.period = v_day;
                EXIT short;
            END;
        END IF;

        INSERT INTO quota_reservations AS r (
            tenant_id, request_id, period, department_id, environment,
            estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos, ttl_seconds, admitted_at, expires_at,
            requested_model, answered_model, model, app, api_key, end_user, priority, tier)
        VALUES (
            p_tenant, p_request_id, v_day, v_dept, v_env,
            p_in_tokens, p_out_tokens, p_cost_nanos, v_ttl, v_now, v_now + v_ttl * interval '1 second',
            p_model, p_model, p_model, p_app, p_api_key, p_end_user, p_priority, CASE v_tier WHEN 1 THEN 'warning' ELSE 'normal' END)
        RETURNING r.reservation_id, r.tier INTO reservation_id, tier;
        allowed := true;
        reason := 'ok';
        replayed := false;
        model := p_model;
        RETURN;
    END;

    v_now := quota_now(v_now);
    v_fault := coalesce(quota_request_fault(p_tenant, p_request_id, p_in_tokens, p_out_tokens, p_cost_nanos),
                        quota_labels_fault(p_model, p_app, p_api_key, p_end_user, p_priority, p_ttl_seconds));
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_reserve: ' || v_fault;
    END IF;
    SELECT j.* INTO allowed, reason, observed_reason, reservation_id, replayed, tier, model, notice,
                    limit_name, limit_value, limit_used, resets_at, retry_after_seconds
    FROM quota_reserve_judge((SELECT l FROM tenant_limits l WHERE l.tenant_id = p_tenant), p_tenant, p_request_id,
                             p_in_tokens, p_out_tokens, p_cost_nanos, p_model, p_app, p_api_key, p_end_user,
                             p_priority, p_ttl_seconds, v_now) j;
    IF reason = 'request_conflict' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW001',
            MESSAGE = 'quota_reserve: this request_id was used with other figures',
            HINT = 'Use a new request_id for a new call; repeat the same figures and model to ask again.';
    END IF;
END $$;
