-- quota_limits_topup: quota_topup by a person's command: with a record of who gave it. The same key and values again add
-- nothing and record nothing.
--
-- Outcomes and SQLSTATEs: those of quota_topup. Locks: department slots, all in order.
CREATE OR REPLACE FUNCTION quota_limits_topup(
    p_department text, p_environment text, p_tokens bigint, p_cost_cents bigint, p_idempotency_key text,
    p_approved_by text, p_reason text, p_expires_at timestamptz, p_by text, p_now timestamptz DEFAULT NULL,
    OUT outcome text
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    outcome := quota_topup(p_department, p_environment, p_tokens, p_cost_cents, p_idempotency_key, p_approved_by, p_reason,
                           p_expires_at, p_now);
    IF outcome = 'added' THEN
        PERFORM quota_limits_note('topup', p_by, 'budget', p_department, p_environment, NULL, to_jsonb(t), p_reason)
        FROM quota_topups t WHERE t.department_id = p_department AND t.idempotency_key = p_idempotency_key;
    END IF;
END $$;
