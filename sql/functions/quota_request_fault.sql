-- What is wrong with a request's arguments, in words, or NULL. One place for singles and batches.
-- Called only from our functions, under their search_path: without a SET of their own these are inlined.
-- Bounds: ids of 1 to 200 characters without control characters; 10^12 tokens and 10^15 nanos a call.
CREATE OR REPLACE FUNCTION quota_id_fault(p_id text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN p_id IS NULL OR p_id = '' THEN 'is empty'
        WHEN length(p_id) > 200 THEN 'has more than 200 characters'
        WHEN p_id ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'has control characters'
    END
$$;

CREATE OR REPLACE FUNCTION quota_request_fault(
    p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint
) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN quota_id_fault(p_tenant) IS NOT NULL THEN 'tenant id ' || quota_id_fault(p_tenant)
        WHEN quota_id_fault(p_request_id) IS NOT NULL THEN 'request id ' || quota_id_fault(p_request_id)
        WHEN p_in_tokens IS NULL OR p_out_tokens IS NULL OR p_cost_nanos IS NULL
            THEN 'an amount is missing: give tokens and cost, 0 where there is none'
        WHEN p_in_tokens < 0 OR p_out_tokens < 0 OR p_cost_nanos < 0 THEN 'an amount is negative'
        WHEN p_in_tokens > 1000000000000 OR p_out_tokens > 1000000000000
            THEN 'more than 10^12 tokens in one call'
        WHEN p_cost_nanos > 1000000000000000 THEN 'more than 10^15 nanos in one call'
    END
$$;

-- For the optional labels of a request (model, app, API key, end user): NULL and '' are fine.
CREATE OR REPLACE FUNCTION quota_labels_fault(
    p_model text, p_app text, p_api_key text, p_end_user text, p_priority text, p_ttl_seconds int
) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN p_priority IS NULL OR p_priority NOT IN ('high', 'normal', 'low')
            THEN 'unknown priority: use high, normal or low'
        WHEN p_ttl_seconds < 1 OR p_ttl_seconds > 86400 THEN 'the TTL must be 1 to 86400 seconds'
        WHEN p_model <> '' AND quota_id_fault(p_model) IS NOT NULL THEN 'model ' || quota_id_fault(p_model)
        WHEN p_app <> '' AND quota_id_fault(p_app) IS NOT NULL THEN 'app ' || quota_id_fault(p_app)
        WHEN p_api_key <> '' AND quota_id_fault(p_api_key) IS NOT NULL
            THEN 'API key label ' || quota_id_fault(p_api_key)
        WHEN p_end_user <> '' AND quota_id_fault(p_end_user) IS NOT NULL
            THEN 'end user ' || quota_id_fault(p_end_user)
    END
$$;
