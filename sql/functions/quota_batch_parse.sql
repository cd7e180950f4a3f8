-- Reads the elements of a batch, bad ones too: their fault is kept beside them and spoils nothing else.
-- A count must be a JSON number without fraction, a text a JSON string; null is as if left out.
-- SQLSTATE QW002 where the batch itself is unusable.

CREATE OR REPLACE FUNCTION quota_batch_check(p_batch jsonb, p_what text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF p_batch IS NULL OR jsonb_typeof(p_batch) <> 'array' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = p_what || ': give a JSON array of objects';
    ELSIF jsonb_array_length(p_batch) > 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002',
            MESSAGE = p_what || ': ' || jsonb_array_length(p_batch) || ' elements, at most 1000 are taken at once';
    END IF;
END $$;

-- A whole number, or NULL where it is none (quota_json_fault has told so by then).
CREATE OR REPLACE FUNCTION quota_json_count(p_value jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN jsonb_typeof(p_value) = 'number' AND abs((p_value #>> '{}')::numeric) < 9000000000000000000
                  THEN (p_value #>> '{}')::numeric::bigint END $$;

CREATE OR REPLACE FUNCTION quota_json_fault(p_element jsonb, p_texts text[], p_counts text[]) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN jsonb_typeof(p_element) <> 'object' THEN 'not an object'
        ELSE (SELECT CASE
                  WHEN NOT e.key = ANY (p_texts || p_counts) THEN 'unknown key ' || left(e.key, 40)
                  WHEN e.key = ANY (p_texts) THEN left(e.key, 40) || ' must be a string'
                  ELSE left(e.key, 40) || ' must be a whole number' END
              FROM jsonb_each(p_element) e
              WHERE jsonb_typeof(e.value) <> 'null' AND NOT (
                        e.key = ANY (p_texts) AND jsonb_typeof(e.value) = 'string'
                        OR e.key = ANY (p_counts) AND jsonb_typeof(e.value) = 'number'
                           AND abs((e.value #>> '{}')::numeric) < 9000000000000000000
                           AND mod((e.value #>> '{}')::numeric, 1) = 0)
                 OR NOT e.key = ANY (p_texts || p_counts)
              LIMIT 1)
    END
$$;

-- All elements at once where the batch is plain; with the faults of the bad ones, one by one, where it isn't.
-- Plain: an element equals what is read from it, so it has no unknown key, no null and no value of another type.
CREATE OR REPLACE FUNCTION quota_requests_parse(p_requests jsonb) RETURNS quota_request[]
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN (
        SELECT array_agg((k.n, CASE
                WHEN k.e IS DISTINCT FROM jsonb_strip_nulls(jsonb_build_object(
                         'tenant', k.tenant, 'request_id', k.request_id, 'in_tokens', k.in_tokens, 'out_tokens', k.out_tokens,
                         'cost_nanos', k.cost_nanos, 'model', k.model, 'app', k.app, 'api_key', k.api_key,
                         'end_user', k.end_user, 'priority', k.priority, 'ttl_seconds', k.ttl_seconds))
                     OR ((k.in_tokens | k.out_tokens) BETWEEN 0 AND 500000000000
                         AND k.cost_nanos BETWEEN 0 AND 1000000000000000 AND k.tenant <> '' AND k.request_id <> ''
                         AND octet_length(concat(k.tenant, k.request_id, k.model, k.app, k.api_key, k.end_user)) <= 200
                         AND concat(k.tenant, k.request_id, k.model, k.app, k.api_key, k.end_user) !~ '[\x01-\x1f\x7f-\x9f]'
                         AND coalesce(k.priority, 'normal') IN ('normal', 'high', 'low') AND k.ttl_seconds IS NULL) IS NOT TRUE
                THEN (quota_request_parse(k.e, k.n::int)).fault END,
                k.tenant, k.request_id, k.in_tokens, k.out_tokens, k.cost_nanos, k.model, k.app, k.api_key, k.end_user,
                coalesce(k.priority, 'normal'), k.ttl_seconds)::quota_request)
        FROM ROWS FROM (jsonb_array_elements(p_requests),
                        jsonb_to_recordset(p_requests) AS (
                            tenant text, request_id text, in_tokens bigint, out_tokens bigint, cost_nanos bigint, model text,
                            app text, api_key text, end_user text, priority text, ttl_seconds int))
                 WITH ORDINALITY AS k (e, tenant, request_id, in_tokens, out_tokens, cost_nanos, model, app, api_key,
                                       end_user, priority, ttl_seconds, n)
    );
EXCEPTION WHEN data_exception THEN
    RETURN (SELECT array_agg(quota_request_parse(a.e, a.n::int) ORDER BY a.n)
            FROM jsonb_array_elements(p_requests) WITH ORDINALITY AS a (e, n));
END $$;

-- One element, good or bad, with its fault.
CREATE OR REPLACE FUNCTION quota_request_parse(p_element jsonb, p_ordinal int) RETURNS quota_request
LANGUAGE sql IMMUTABLE
AS $$
    SELECT (p_ordinal, coalesce(q.fault,
               quota_request_fault(q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos),
               quota_labels_fault(q.model, q.app, q.api_key, q.end_user, q.priority,
                                  CASE WHEN q.ttl BETWEEN 1 AND 86400 THEN q.ttl::int WHEN q.ttl IS NOT NULL THEN 0 END)),
               q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.model, q.app, q.api_key, q.end_user,
               q.priority, CASE WHEN q.ttl BETWEEN 1 AND 86400 THEN q.ttl::int END)::quota_request
    FROM (SELECT quota_json_fault(p_element, '{tenant,request_id,model,app,api_key,end_user,priority}',
                                  '{in_tokens,out_tokens,cost_nanos,ttl_seconds}') AS fault,
                 p_element ->> 'tenant' AS tenant, p_element ->> 'request_id' AS request_id,
                 quota_json_count(p_element -> 'in_tokens') AS in_tokens,
                 quota_json_count(p_element -> 'out_tokens') AS out_tokens,
                 quota_json_count(p_element -> 'cost_nanos') AS cost_nanos,
                 p_element ->> 'model' AS model, p_element ->> 'app' AS app, p_element ->> 'api_key' AS api_key,
                 p_element ->> 'end_user' AS end_user, coalesce(p_element ->> 'priority', 'normal') AS priority,
                 quota_json_count(p_element -> 'ttl_seconds') AS ttl) q
$$;

CREATE OR REPLACE FUNCTION quota_usages_parse(p_usages jsonb) RETURNS quota_usage_report[]
LANGUAGE sql IMMUTABLE
AS $$
    SELECT array_agg((q.ordinal, coalesce(q.fault,
               quota_usage_fault(q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.usage_id, q.model, q.cached)),
               q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.usage_id, q.model,
               q.cached)::quota_usage_report ORDER BY q.ordinal)
    FROM (SELECT n AS ordinal,
                 quota_json_fault(e, '{tenant,request_id,usage_id,model}',
                                  '{in_tokens,out_tokens,cost_nanos,cached_in_tokens}') AS fault,
                 e ->> 'tenant' AS tenant, e ->> 'request_id' AS request_id,
                 quota_json_count(e -> 'in_tokens') AS in_tokens, quota_json_count(e -> 'out_tokens') AS out_tokens,
                 quota_json_count(e -> 'cost_nanos') AS cost_nanos, e ->> 'usage_id' AS usage_id, e ->> 'model' AS model,
                 quota_json_count(e -> 'cached_in_tokens') AS cached
          FROM jsonb_array_elements(p_usages) WITH ORDINALITY AS a (e, n)) q
$$;
