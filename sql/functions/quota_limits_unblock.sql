-- quota_limits_unblock: ends a block now. The next request is admitted.
--
-- Outcomes: unblocked, with the end that it would have had; not_blocked (there was none, or it is over).
-- Lock order: tenant; or department slots, all in order. SQLSTATEs: QW002 unusable arguments; 55P03 (retry).
CREATE OR REPLACE FUNCTION quota_limits_unblock(
    p_kind text, p_subject text, p_by text, p_reason text DEFAULT NULL, p_now timestamptz DEFAULT NULL,
    OUT outcome text, OUT former_until timestamptz
) RETURNS record
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now    timestamptz;
    v_before jsonb;
    v_fault  text := CASE
        WHEN p_kind IS NULL OR p_kind NOT IN ('tenant', 'department') THEN 'say tenant or department'
        WHEN quota_id_fault(p_subject) IS NOT NULL THEN p_kind || ' ' || quota_id_fault(p_subject)
        WHEN quota_words_fault(p_by) IS NOT NULL THEN 'who unblocks ' || quota_words_fault(p_by)
        WHEN p_reason IS NOT NULL AND quota_words_fault(p_reason) IS NOT NULL THEN 'the reason ' || quota_words_fault(p_reason)
    END;
BEGIN
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_limits_unblock: ' || v_fault;
    END IF;
    PERFORM quota_limits_hold(p_kind, p_subject, quota_now(p_now));
    v_now := quota_now(p_now);
    DELETE FROM quota_blocks k WHERE k.subject = p_subject AND k.subject_kind = p_kind AND k.blocked_until > v_now
    RETURNING to_jsonb(k), k.blocked_until INTO v_before, former_until;
    IF NOT FOUND THEN
        outcome := 'not_blocked';
        RETURN;
    END IF;
    outcome := 'unblocked';
    PERFORM quota_limits_free(p_kind, p_subject, v_now);
    PERFORM quota_limits_note('unblock', p_by, p_kind, p_subject, '', v_before, NULL, p_reason);
END $$;
