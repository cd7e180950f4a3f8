-- How long to wait after the n-th failed attempt: 5 s, 30 s, 5 min, 30 min, 2 h, then 5 h each. n counts from 1.
CREATE OR REPLACE FUNCTION quota_outbox_wait(p_attempts int) RETURNS interval
LANGUAGE sql IMMUTABLE
AS $$
    SELECT (ARRAY[interval '5 seconds', '30 seconds', '5 minutes', '30 minutes', '2 hours', '5 hours'])
           [greatest(1, least(p_attempts, 6))]
$$;
