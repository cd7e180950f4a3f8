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

CREATE OR REPLACE FUNCTION quota_requests_parse(p_requests jsonb) RETURNS quota_request[]
LANGUAGE sql IMMUTABLE
AS $$
    SELECT array_agg((q.ordinal, coalesce(q.fault,
               quota_request_fault(q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos),
               quota_labels_fault(q.model, q.app, q.api_key, q.end_user, q.priority, CASE WHEN q.ttl BETWEEN 1 AND 86400 THEN q.ttl::int WHEN q.ttl IS NOT NULL THEN 0 END)),
               q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.model, q.app, q.api_key, q.end_user,
               q.priority, CASE WHEN q.ttl BETWEEN 1 AND 86400 THEN q.ttl::int END)::quota_request ORDER BY q.ordinal)
    FROM (SELECT n AS ordinal,
                 quota_json_fault(e, '{tenant,request_id,model,app,api_key,end_user,priority}',
                                  '{in_tokens,out_tokens,cost_nanos,ttl_seconds}') AS fault,
                 e ->> 'tenant' AS tenant, e ->> 'request_id' AS request_id,
                 quota_json_count(e -> 'in_tokens') AS in_tokens, quota_json_count(e -> 'out_tokens') AS out_tokens,
                 quota_json_count(e -> 'cost_nanos') AS cost_nanos,
                 e ->> 'model' AS model, e ->> 'app' AS app, e ->> 'api_key' AS api_key, e ->> 'end_user' AS end_user,
                 coalesce(e ->> 'priority', 'normal') AS priority,
                 quota_json_count(e -> 'ttl_seconds') AS ttl
          FROM jsonb_array_elements(p_requests) WITH ORDINALITY AS a (e, n)) q
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
