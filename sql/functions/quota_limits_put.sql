-- quota_limits_put: carries out changes that `limits apply` has judged: an array of at most 1,000 objects
-- {"kind": tenant | department | budget, "subject", "environment": of a budget, else '', "set": {column: value},
-- "remove": true}. A row that isn't there is made, with the columns' defaults for what "set" leaves out. An object with
-- nothing to set records only what others changed in its row meanwhile. The caller has called quota_limits_begin in the
-- same transaction, and commits.
--
-- Removing a row keeps what it owes: usage, reservations, slots and top-ups stay, and open requests are settled as ever.
-- Locks: each row. SQLSTATEs: QW002 a kind that there isn't; 23514 a value that a CHECK refuses; 55P03 (retry).
CREATE OR REPLACE FUNCTION quota_limits_put(p_changes jsonb, p_by text, p_file_name text, p_file_sha256 text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '10s'
AS $$
DECLARE
    c        record;
    v_before jsonb;
    v_after  jsonb;
BEGIN
    FOR c IN SELECT e ->> 'kind' AS kind, e ->> 'subject' AS subject, coalesce(e ->> 'environment', '') AS environment,
                    coalesce(e -> 'set', '{}') AS wanted, coalesce((e ->> 'remove')::boolean, false) AS is_removed
             FROM jsonb_array_elements(p_changes) WITH ORDINALITY AS x (e, n) ORDER BY x.n LOOP
        v_before := quota_limits_row(c.kind, c.subject, c.environment);
        v_after := v_before;
        IF c.is_removed THEN
            PERFORM quota_limits_remove(c.kind, c.subject, c.environment);
            v_after := NULL;
        ELSIF c.wanted <> '{}' THEN
            PERFORM quota_limits_set(c.kind, c.subject, c.environment, c.wanted);
            v_after := quota_limits_row(c.kind, c.subject, c.environment);
        END IF;
        PERFORM quota_limits_note(CASE WHEN c.is_removed THEN 'remove' ELSE 'apply' END, p_by, c.kind, c.subject, c.environment,
                                  v_before, v_after, NULL, p_file_name, p_file_sha256);
    END LOOP;
END $$;

-- One apply at a time: the second waits here, and then sees what the first has left. SQLSTATE 55P03 after a minute.
CREATE OR REPLACE FUNCTION quota_limits_begin() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '60s'
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('quota_limits', 2));
END $$;

-- The row of a subject, locked; NULL: there is none.
CREATE OR REPLACE FUNCTION quota_limits_row(p_kind text, p_subject text, p_environment text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    CASE p_kind
    WHEN 'tenant' THEN
        RETURN (SELECT to_jsonb(l) FROM tenant_limits l WHERE l.tenant_id = p_subject FOR UPDATE);
    WHEN 'department' THEN
        RETURN (SELECT to_jsonb(e) FROM departments e WHERE e.department_id = p_subject FOR UPDATE);
    WHEN 'budget' THEN
        RETURN (SELECT to_jsonb(b) FROM department_budgets b
                WHERE b.department_id = p_subject AND b.environment = p_environment FOR UPDATE);
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_limits_put: kind is tenant, department or budget';
    END CASE;
END $$;

-- Writes the columns that p_set names, in a row that is made where there is none.
CREATE OR REPLACE FUNCTION quota_limits_set(p_kind text, p_subject text, p_environment text, p_set jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF p_kind = 'tenant' THEN
        INSERT INTO tenant_limits (tenant_id) VALUES (p_subject) ON CONFLICT DO NOTHING;
        UPDATE tenant_limits l SET
            (department_id, environment, enforce, daily_completions, daily_input_tokens, daily_output_tokens, daily_tokens,
             daily_cost_cents, monthly_completions, monthly_tokens, monthly_cost_cents, bucket_capacity,
             bucket_refill_per_sec, soft_warn_pct, stale_policy, reservation_ttl_seconds, locale)
            = (SELECT n.department_id, n.environment, n.enforce, n.daily_completions, n.daily_input_tokens,
                      n.daily_output_tokens, n.daily_tokens, n.daily_cost_cents, n.monthly_completions, n.monthly_tokens,
                      n.monthly_cost_cents, n.bucket_capacity, n.bucket_refill_per_sec, n.soft_warn_pct, n.stale_policy,
                      n.reservation_ttl_seconds, n.locale
               FROM jsonb_populate_record(l, p_set) n)
        WHERE l.tenant_id = p_subject;
    ELSIF p_kind = 'department' THEN
        INSERT INTO departments (department_id) VALUES (p_subject) ON CONFLICT DO NOTHING;
        UPDATE departments e SET (name, locale, owner_emails, finance_emails)
            = (SELECT n.name, n.locale, n.owner_emails, n.finance_emails FROM jsonb_populate_record(e, p_set) n)
        WHERE e.department_id = p_subject;
    ELSE
        INSERT INTO department_budgets (department_id, environment) VALUES (p_subject, p_environment) ON CONFLICT DO NOTHING;
        UPDATE department_budgets b SET
            (monthly_tokens, monthly_cost_cents, warn_pct, downgrade_pct, protect_pct, downgrade_from, downgrade_model,
             allowed_models)
            = (SELECT n.monthly_tokens, n.monthly_cost_cents, n.warn_pct, n.downgrade_pct, n.protect_pct, n.downgrade_from,
                      n.downgrade_model, n.allowed_models
               FROM jsonb_populate_record(b, p_set) n)
        WHERE b.department_id = p_subject AND b.environment = p_environment;
    END IF;
END $$;

-- Takes the row away, and nothing else.
CREATE OR REPLACE FUNCTION quota_limits_remove(p_kind text, p_subject text, p_environment text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF p_kind = 'tenant' THEN
        DELETE FROM tenant_limits l WHERE l.tenant_id = p_subject;
    ELSIF p_kind = 'department' THEN
        DELETE FROM departments e WHERE e.department_id = p_subject;
    ELSE
        DELETE FROM department_budgets b WHERE b.department_id = p_subject AND b.environment = p_environment;
    END IF;
END $$;
