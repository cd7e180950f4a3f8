-- quota_limits_block: no request of the tenant, or of any tenant of the department, is admitted for p_seconds from now.
-- A block that stands is replaced: so it is made longer or shorter. What is open is settled as ever.
--
-- Outcomes: blocked, changed (there was one), with its end and that of the former. When this has committed, nobody is
-- admitted any more: a tenant's requests wait for its lock, a department's for its slots.
-- Lock order: tenant; or department slots, all in order, of this month and later ones.
-- SQLSTATEs: QW002 unusable arguments or no such subject; 55P03 lock wait over 2 s: nothing was done, retry.
CREATE OR REPLACE FUNCTION quota_limits_block(
    p_kind text, p_subject text, p_seconds bigint, p_by text, p_reason text, p_now timestamptz DEFAULT NULL,
    OUT outcome text, OUT blocked_until timestamptz, OUT former_until timestamptz
) RETURNS record
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now    timestamptz;
    v_before jsonb;
    v_after  jsonb;
    v_fault  text := CASE
        WHEN p_kind IS NULL OR p_kind NOT IN ('tenant', 'department') THEN 'say tenant or department'
        WHEN quota_id_fault(p_subject) IS NOT NULL THEN p_kind || ' ' || quota_id_fault(p_subject)
        WHEN p_seconds IS NULL OR p_seconds NOT BETWEEN 1 AND 31622400 THEN 'for 1 second to 366 days'
        WHEN quota_words_fault(p_by) IS NOT NULL THEN 'who blocks ' || quota_words_fault(p_by)
        WHEN quota_words_fault(p_reason) IS NOT NULL THEN 'the reason ' || quota_words_fault(p_reason)
    END;
BEGIN
    IF v_fault IS NULL AND NOT quota_limits_subject(p_kind, p_subject) THEN
        v_fault := 'no such ' || p_kind;
    END IF;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_limits_block: ' || v_fault;
    END IF;
    PERFORM quota_limits_hold(p_kind, p_subject, quota_now(p_now));
    v_now := quota_now(p_now);

    SELECT to_jsonb(k), k.blocked_until INTO v_before, former_until FROM quota_blocks k
    WHERE k.subject = p_subject AND k.subject_kind = p_kind AND k.blocked_until > v_now FOR UPDATE;
    outcome := CASE WHEN v_before IS NULL THEN 'blocked' ELSE 'changed' END;
    INSERT INTO quota_blocks AS k (subject, subject_kind, blocked_at, blocked_until, blocked_by, reason)
    VALUES (p_subject, p_kind, v_now, v_now + p_seconds * interval '1 second', p_by, p_reason)
    ON CONFLICT (subject, subject_kind) DO UPDATE SET
        blocked_at = excluded.blocked_at, blocked_until = excluded.blocked_until, blocked_by = excluded.blocked_by,
        reason = excluded.reason
    RETURNING k.blocked_until, to_jsonb(k) INTO blocked_until, v_after;
    PERFORM quota_limits_free(p_kind, p_subject, v_now);
    PERFORM quota_limits_note('block', p_by, p_kind, p_subject, '', v_before, v_after, p_reason);
END $$;

-- Waits until nobody is being admitted, and lets nobody be until the transaction ends.
CREATE OR REPLACE FUNCTION quota_limits_hold(p_kind text, p_subject text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    d record;
BEGIN
    IF p_kind = 'tenant' THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_subject, 1));
        RETURN;
    END IF;
    FOR d IN SELECT * FROM quota_limits_months(p_subject, p_now) LOOP
        IF d.is_there THEN
            PERFORM quota_department_lock(p_subject, d.environment, d.month);
        ELSE
            -- whoever makes the month's slots takes this lock first, and judges once more with it in hand
            PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws(chr(31), p_subject, d.environment, d.month), 3));
        END IF;
    END LOOP;
END $$;

-- Takes away what the short paths would go by: the tenant's ceilings; the department's bands, which are drawn anew.
CREATE OR REPLACE FUNCTION quota_limits_free(p_kind text, p_subject text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    d record;
BEGIN
    IF p_kind = 'tenant' THEN
        UPDATE quota_usage u SET limits_ctid = NULL, limits_xmin = NULL
        WHERE u.tenant_id = p_subject AND u.period >= quota_day(p_now) - 2 AND u.limits_ctid IS NOT NULL;
        RETURN;
    END IF;
    FOR d IN SELECT * FROM quota_limits_months(p_subject, p_now) m WHERE m.is_there LOOP
        PERFORM quota_department_band(p_subject, d.environment, d.month, p_now);
    END LOOP;
END $$;

-- The department's months in which a request may be admitted from now on, in the order of locks. is_there: it has slots.
CREATE OR REPLACE FUNCTION quota_limits_months(
    p_department text, p_now timestamptz, OUT environment text, OUT month date, OUT is_there boolean
) RETURNS SETOF record
LANGUAGE sql STABLE
AS $$
    SELECT m.environment, m.month, bool_or(m.is_there)
    FROM (SELECT s.environment, s.month, true AS is_there FROM quota_department_slots s
          WHERE s.department_id = p_department AND s.month >= quota_month(quota_day(p_now) - 2)
          UNION ALL
          SELECT e, quota_month(quota_day(p_now)), false FROM unnest(ARRAY['production', 'test']) e) m
    GROUP BY m.environment, m.month
    ORDER BY m.environment, m.month
$$;

-- Is there such a tenant, or a department that a row of its own, a budget or a tenant names?
CREATE OR REPLACE FUNCTION quota_limits_subject(p_kind text, p_subject text) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT CASE p_kind
        WHEN 'tenant' THEN EXISTS (SELECT FROM tenant_limits l WHERE l.tenant_id = p_subject)
        ELSE EXISTS (SELECT FROM departments e WHERE e.department_id = p_subject)
             OR EXISTS (SELECT FROM department_budgets b WHERE b.department_id = p_subject)
             OR EXISTS (SELECT FROM tenant_limits l WHERE l.department_id = p_subject)
        END
$$;

-- What is wrong with words that a caller will read; NULL: nothing.
CREATE OR REPLACE FUNCTION quota_words_fault(p_words text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN p_words IS NULL OR btrim(p_words) = '' THEN 'is empty'
        WHEN char_length(p_words) > 200 THEN 'is longer than 200 characters'
        WHEN p_words ~ '[\x01-\x1f\x7f-\x9f]' THEN 'has control characters'
    END
$$;
