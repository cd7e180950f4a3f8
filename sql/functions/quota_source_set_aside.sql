-- Sets answers of a usage source aside by name, for somebody to look at: a row for each request and reason.
--
-- p_faults: an array of at most 1,000 objects {tenant, request_id, reason, excerpt}; ids that the ledger couldn't hold are
-- cut to 200 characters. Seen again, a row's count goes up and its excerpt is the latest. Locks: the rows, in the order of
-- their keys. SQLSTATEs: QW002 not such an array; 55P03.
CREATE OR REPLACE FUNCTION quota_source_set_aside(p_source text, p_faults jsonb, p_now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now  timestamptz := quota_now(p_now);
    v_kept int;
    c_excerpt CONSTANT int := 300;
BEGIN
    PERFORM quota_batch_check(p_faults, 'quota_source_set_aside');
    INSERT INTO quota_source_faults AS f (tenant_id, request_id, source, reason, excerpt, first_seen_at, seen_at)
    SELECT DISTINCT ON (q.tenant_id, q.request_id, q.reason)
           q.tenant_id, q.request_id, p_source, q.reason, q.excerpt, v_now, v_now
    FROM (SELECT left(coalesce(e ->> 'tenant', ''), 200) AS tenant_id, left(coalesce(e ->> 'request_id', ''), 200) AS request_id,
                 e ->> 'reason' AS reason, left(coalesce(e ->> 'excerpt', ''), c_excerpt) AS excerpt, n
          FROM jsonb_array_elements(p_faults) WITH ORDINALITY AS a (e, n)) q
    ORDER BY q.tenant_id, q.request_id, q.reason, q.n DESC
    ON CONFLICT (tenant_id, request_id, source, reason) DO UPDATE SET
        excerpt = excluded.excerpt, seen_at = excluded.seen_at, times = f.times + 1;
    GET DIAGNOSTICS v_kept = ROW_COUNT;
    RETURN v_kept;
END $$;
