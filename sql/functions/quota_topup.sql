-- quota_topup: an extra allowance for a department's budget, from now until it expires. The key makes it
-- idempotent: the same key and values again add nothing.
--
-- Outcomes: added, replayed. Locks: department slots, all in order (the tiers are judged anew).
-- SQLSTATEs: QW001 the key was used with other values; QW002 unusable arguments; 55P03 (retry).
CREATE OR REPLACE FUNCTION quota_topup(
    p_department text, p_environment text, p_tokens bigint, p_cost_cents bigint, p_idempotency_key text,
    p_approved_by text, p_reason text, p_expires_at timestamptz, p_now timestamptz DEFAULT NULL,
    OUT outcome text
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now   timestamptz := quota_now(p_now);
    v_fault text;
    v_month date;
BEGIN
    v_fault := CASE
        WHEN quota_id_fault(p_department) IS NOT NULL THEN 'department ' || quota_id_fault(p_department)
        WHEN p_environment IS NULL OR p_environment NOT IN ('production', 'test')
            THEN 'unknown environment: use production or test'
        WHEN NOT EXISTS (SELECT FROM departments e WHERE e.department_id = p_department)
             AND NOT EXISTS (SELECT FROM department_budgets b WHERE b.department_id = p_department)
            THEN 'no such department'
        WHEN quota_id_fault(p_idempotency_key) IS NOT NULL THEN 'idempotency key ' || quota_id_fault(p_idempotency_key)
        WHEN p_approved_by IS NULL OR btrim(p_approved_by) = '' THEN 'say who approved it'
        WHEN p_reason IS NULL OR btrim(p_reason) = '' THEN 'give a reason'
        WHEN coalesce(p_tokens, 0) < 0 OR coalesce(p_cost_cents, 0) < 0 THEN 'an amount is negative'
        WHEN coalesce(p_tokens, 0) = 0 AND coalesce(p_cost_cents, 0) = 0 THEN 'give tokens, cost_cents, or both'
        WHEN p_tokens > 1000000000000000 OR p_cost_cents > 100000000000 THEN 'more than 10^15 tokens or 10^11 cents at once'
    END;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_topup: ' || v_fault;
    END IF;
    SELECT CASE WHEN (t.environment, t.tokens, t.cost_cents, t.approved_by, t.reason, t.expires_at)
                     = (p_environment, coalesce(p_tokens, 0), coalesce(p_cost_cents, 0), p_approved_by, p_reason, p_expires_at)
                THEN 'replayed' ELSE 'conflict' END
    INTO outcome
    FROM quota_topups t WHERE t.department_id = p_department AND t.idempotency_key = p_idempotency_key;
    IF outcome IS NULL THEN
        IF p_expires_at IS NULL OR p_expires_at <= v_now THEN
            RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_topup: it must expire in the future';
        END IF;
        INSERT INTO quota_topups (department_id, environment, idempotency_key, tokens, cost_cents, valid_from, expires_at,
                                  approved_by, reason)
        VALUES (p_department, p_environment, p_idempotency_key, coalesce(p_tokens, 0), coalesce(p_cost_cents, 0), v_now,
                p_expires_at, p_approved_by, p_reason)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            -- another session was first; its row is committed and visible to the next look
            outcome := (SELECT CASE WHEN (t.environment, t.tokens, t.cost_cents, t.approved_by, t.reason, t.expires_at)
                         = (p_environment, coalesce(p_tokens, 0), coalesce(p_cost_cents, 0), p_approved_by, p_reason, p_expires_at)
                         THEN 'replayed' ELSE 'conflict' END
                        FROM quota_topups t
                        WHERE t.department_id = p_department AND t.idempotency_key = p_idempotency_key);
        END IF;
    END IF;
    IF outcome = 'conflict' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW001', MESSAGE = 'quota_topup: this idempotency key was used with other values',
            HINT = 'Use a new key for another allowance.';
    ELSIF outcome IS NULL THEN
        outcome := 'added';
        -- this month's slots are made if need be: a first request meanwhile waits, and judges with the allowance
        FOR v_month IN SELECT s.month FROM quota_department_slots s
                       WHERE s.department_id = p_department AND s.environment = p_environment
                         AND s.month >= quota_month(quota_day(v_now) - 31)
                       UNION SELECT quota_month(quota_day(v_now)) ORDER BY 1 LOOP
            PERFORM quota_department_lock(p_department, p_environment, v_month);
            PERFORM quota_department_band(p_department, p_environment, v_month, v_now);
        END LOOP;
    END IF;
END $$;
