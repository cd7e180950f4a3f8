-- Stores a closed month's report as a new revision where its figures changed, and queues its mails in the same transaction.
--
-- p_figures: the figures by name, exact, of which p_fingerprint is a hash: the same ones make no new revision, others
-- one that says what changed, [{"figure", "old", "new"}]. p_seen_import: outcomes up to this import are in them; where
-- the stored ones are of a later import nothing is done. p_department_id '': of all.
-- Mails: with p_channel a row of quota_outbox for each address, once per (address, department, month, revision), also for
-- addresses that came later: a department's owner and finance addresses, of all p_to. request_key keeps a report out of
-- digests. p_facts: what each mail says in a line; the summary is joined to it when it is sent.
-- Out: revision (the latest now), made (whether this call made it), messages (how many were queued now). Idempotent.
-- Lock order: quota_reports (the latest revision), quota_outbox. SQLSTATE: QW002 for a month that isn't closed;
-- 55P03 when another store of the same report holds its row for 10 s.
CREATE OR REPLACE FUNCTION quota_report_store(
    p_month date, p_department_id text, p_seen_import bigint, p_locale text, p_fingerprint text, p_figures jsonb,
    p_summary jsonb, p_facts jsonb, p_channel text DEFAULT NULL, p_to text[] DEFAULT '{}',
    p_now timestamptz DEFAULT NULL,
    OUT revision int, OUT made boolean, OUT messages int
) RETURNS record
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '10s'
AS $$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_last quota_reports%ROWTYPE;
BEGIN
    IF NOT EXISTS (SELECT FROM quota_months m WHERE m.month = p_month AND m.closed_at IS NOT NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002',
            MESSAGE = format('%s is not closed yet: its report can change', to_char(p_month, 'YYYY-MM'));
    END IF;
    made := false;
    LOOP
        SELECT r.* INTO v_last FROM quota_reports r
         WHERE r.month = p_month AND r.department_id = p_department_id
         ORDER BY r.revision DESC LIMIT 1 FOR UPDATE;
        -- a summary of older outcomes than the stored one, or of the same figures
        EXIT WHEN FOUND AND (p_seen_import < v_last.seen_import OR p_fingerprint = v_last.fingerprint);
        INSERT INTO quota_reports AS r (month, department_id, revision, built_at, fingerprint, seen_import, locale,
                                        figures, summary, changes)
        SELECT p_month, p_department_id, coalesce(v_last.revision, 0) + 1, v_now, p_fingerprint, p_seen_import,
               p_locale, p_figures, p_summary,
               CASE WHEN v_last.revision IS NULL THEN '[]'::jsonb ELSE coalesce((
                   SELECT jsonb_agg(jsonb_build_object('figure', k.name, 'old', v_last.figures -> k.name,
                                                       'new', p_figures -> k.name) ORDER BY k.name)
                     FROM (SELECT jsonb_object_keys(v_last.figures) UNION SELECT jsonb_object_keys(p_figures)) k (name)
                    WHERE v_last.figures -> k.name IS DISTINCT FROM p_figures -> k.name), '[]') END
            ON CONFLICT ON CONSTRAINT quota_reports_pkey DO NOTHING
        RETURNING r.* INTO v_last;
        made := FOUND;
        EXIT WHEN made;
        -- another was faster: its revision is looked at
    END LOOP;
    revision := v_last.revision;
    UPDATE quota_reports r SET seen_import = p_seen_import
     WHERE r.month = p_month AND r.department_id = p_department_id AND r.seen_import < p_seen_import;

    INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, recipient, severity, urgency, locale, facts,
                              subject_kind, subject, request_key, key_stays, next_attempt_at, created_at)
    SELECT k.key, k.key, 'roi-report', p_channel, k.address, 'available', 5, v_last.locale,
           p_facts || jsonb_build_object('month', to_char(p_month, 'YYYY-MM'), 'department_id', p_department_id,
                                         'revision', revision, 'changes', v_last.changes, 'decided_at', v_now),
           CASE WHEN p_department_id <> '' THEN 'department' END, nullif(p_department_id, ''), k.key, true, v_now, v_now
      FROM (SELECT DISTINCT ON (lower(a.address)) a.address,
                   'rr-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', p_month, p_department_id, revision,
                                                                    lower(a.address)), 'UTF8')), 'hex'), 40) AS key
              FROM (SELECT unnest(p_to) WHERE p_department_id = ''
                    UNION ALL
                    SELECT unnest(quota_texts(d.owner_emails) || quota_texts(d.finance_emails))
                      FROM departments d WHERE d.department_id = p_department_id) a (address)
             ORDER BY lower(a.address), a.address) k
     WHERE p_channel IS NOT NULL
     ORDER BY k.key
        ON CONFLICT ON CONSTRAINT quota_outbox_dedupe DO NOTHING;
    GET DIAGNOSTICS messages = ROW_COUNT;
END
$$;
