-- Records a change of limits. First what somebody did to the row since the last record of it, with other tools: an
-- UPDATE by hand has no author here, but shows. Columns that one of the two doesn't know are left out of the comparison.
-- The caller holds the row. Answers the keys that were found changed.
CREATE OR REPLACE FUNCTION quota_limits_note(
    p_action text, p_by text, p_kind text, p_subject text, p_environment text, p_before jsonb, p_after jsonb,
    p_reason text, p_file_name text DEFAULT NULL, p_file_sha256 text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_last jsonb := quota_limits_recorded(p_kind, p_subject, p_environment);
BEGIN
    IF p_action IN ('apply', 'remove') AND v_last IS NOT NULL
       AND (p_before IS NULL OR quota_limits_differ(v_last, p_before)) THEN
        INSERT INTO quota_limit_changes (changed_by, action, subject_kind, subject, environment, before, after)
        VALUES ('(not known)', 'found', p_kind, p_subject, p_environment, v_last, p_before);
    END IF;
    IF p_after IS DISTINCT FROM p_before THEN
        INSERT INTO quota_limit_changes (changed_by, action, subject_kind, subject, environment, before, after, reason,
                                         file_name, file_sha256)
        VALUES (p_by, p_action, p_kind, p_subject, p_environment, p_before, p_after, p_reason, p_file_name, p_file_sha256);
    END IF;
END $$;

-- The row as the last record of it left it; NULL: never recorded, or removed.
CREATE OR REPLACE FUNCTION quota_limits_recorded(p_kind text, p_subject text, p_environment text) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT c.after FROM quota_limit_changes c
    WHERE c.subject = p_subject AND c.subject_kind = p_kind AND c.environment = p_environment
      AND c.action IN ('apply', 'remove', 'found')
    ORDER BY c.change_id DESC LIMIT 1
$$;

-- Do two rows differ in a column that both have?
CREATE OR REPLACE FUNCTION quota_limits_differ(p_old jsonb, p_new jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$ SELECT EXISTS (SELECT FROM jsonb_each(p_old) o WHERE p_new ? o.key AND p_new -> o.key <> o.value) $$;
