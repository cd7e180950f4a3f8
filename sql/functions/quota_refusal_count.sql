-- Counts a refusal. The first of a tenant, day and reason is a row; a storm (more than 10 within a second) gets
-- one of 32 unlogged sequences: nextval needs no transaction id and makes no row version. The row itself is
-- brought up to date once a second; the view quota_refusals adds the sequence, so it lags by nothing.
-- After a crash of the server at most the last second of a storm is missing.
-- The first refusal by a cap or a budget is told at once, as a crossing: of a day's cap once a day, of a month's once a
-- month, of a department's budget once a day and tenant.
CREATE OR REPLACE FUNCTION quota_refusal_count(p_tenant text, p_period date, p_reason text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_counter regclass;
    v_value   bigint;
    v_last    timestamptz;
    v_key     text := concat(p_period, ' ', p_reason, ' ', p_tenant);
    v_until   double precision;
    v_first   boolean;
    c_storm   CONSTANT int := 10;
BEGIN
    -- In a storm this session knows the counter from its last look, at most a second ago.
    -- (Settings that a client tampered with are passed over.)
    IF current_setting('quota.counted', true) = v_key
       AND current_setting('quota.counter', true) ~ '^([0-2][0-9]|3[01])$'
       AND current_setting('quota.counted_until', true) ~ '^[0-9]{1,12}([.][0-9]{1,9})?$' THEN
        v_until := current_setting('quota.counted_until', true)::double precision;
    END IF;
    IF v_until > date_part('epoch', clock_timestamp()) THEN
        v_value := nextval(('quota_refusal_counter_' || current_setting('quota.counter', true))::regclass);
        RETURN;
    END IF;

    SELECT c.counter, c.last_at INTO v_counter, v_last
    FROM quota_refusal_counts c
    WHERE c.tenant_id = p_tenant AND c.period = p_period AND c.reason = p_reason;

    IF v_counter IS NOT NULL THEN
        v_value := nextval(v_counter);
        PERFORM set_config('quota.counted', v_key, false), set_config('quota.counter', right(v_counter::text, 2), false),
                set_config('quota.counted_until', (date_part('epoch', clock_timestamp()) + 1)::text, false);
        IF abs(date_part('epoch', p_now - v_last)) < 1 THEN
            RETURN;
        END IF;
        -- One flush is enough: whoever finds the row locked leaves it to the other.
        PERFORM FROM quota_refusal_counts c
        WHERE c.tenant_id = p_tenant AND c.period = p_period AND c.reason = p_reason AND c.counter = v_counter
        FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM quota_refusal_flush(p_tenant, p_period, p_reason, p_now);
        END IF;
        RETURN;
    END IF;

    INSERT INTO quota_refusal_counts AS c (tenant_id, period, reason, first_at, last_at, burst, burst_at)
    VALUES (p_tenant, p_period, p_reason, p_now, p_now, 1, p_now)
    ON CONFLICT (tenant_id, period, reason) DO UPDATE SET
        counted  = c.counted + 1,
        last_at  = greatest(c.last_at, p_now),
        burst    = CASE WHEN abs(date_part('epoch', p_now - c.burst_at)) < 1 THEN c.burst + 1 ELSE 1 END,
        burst_at = CASE WHEN abs(date_part('epoch', p_now - c.burst_at)) < 1 THEN c.burst_at ELSE p_now END
    RETURNING c.burst, c.counted = 1 INTO v_value, v_first;

    IF v_value > c_storm THEN
        PERFORM quota_refusal_counter_take(p_tenant, p_period, p_reason);
    END IF;
    IF v_first AND (p_reason = 'department_budget_exhausted' OR p_reason ~ '^daily_'
                    OR p_reason ~ '^monthly_'
                       AND NOT EXISTS (SELECT FROM quota_refusal_counts c
                                       WHERE c.tenant_id = p_tenant AND c.reason = p_reason AND c.period <> p_period
                                         AND c.period >= quota_month(p_period)
                                         AND c.period < (quota_month(p_period) + interval '1 month')::date)) THEN
        PERFORM quota_crossing_tell(CASE WHEN p_reason ~ '^department' THEN 'department' ELSE 'tenant' END);
    END IF;
END $$;

-- Brings a counted row up to date from its sequence; the caller has the row locked. A sequence below its base
-- means that the server crashed and the sequence began anew.
CREATE OR REPLACE FUNCTION quota_refusal_flush(p_tenant text, p_period date, p_reason text, p_now timestamptz) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    UPDATE quota_refusal_counts c SET
        counted      = c.counted + v.value - CASE WHEN v.value < c.counter_base THEN 0 ELSE c.counter_base END,
        counter_base = v.value,
        last_at      = greatest(c.last_at, p_now)
    FROM (SELECT x.counter, coalesce(pg_sequence_last_value(x.counter), 0) AS value FROM quota_refusal_counts x
          WHERE x.tenant_id = p_tenant AND x.period = p_period AND x.reason = p_reason) v
    WHERE c.tenant_id = p_tenant AND c.period = p_period AND c.reason = p_reason AND c.counter = v.counter
$$;

-- What stands in a row's sequence and not yet in the row. For the view: readers may not look at sequences.
CREATE OR REPLACE FUNCTION quota_refusal_pending(p_counter regclass, p_base bigint) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
    SELECT v - CASE WHEN v < p_base THEN 0 ELSE p_base END
    FROM (SELECT coalesce(pg_sequence_last_value(p_counter), 0) AS v) s
$$;

-- Gives a storm a free counter, if one is left. One taker at a time; others go on counting by rows meanwhile.
CREATE OR REPLACE FUNCTION quota_refusal_counter_take(p_tenant text, p_period date, p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_counter regclass;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('quota_refusal_counter', 2)) THEN
        RETURN;
    END IF;
    SELECT q.oid::regclass INTO v_counter
    FROM pg_class q
    WHERE q.relkind = 'S' AND q.relname LIKE 'quota\_refusal\_counter\___'
      AND q.relnamespace = (SELECT t.relnamespace FROM pg_class t WHERE t.oid = 'quota_refusal_counts'::regclass)
      AND NOT EXISTS (SELECT FROM quota_refusal_counts x WHERE x.counter = q.oid::regclass)
    LIMIT 1;
    IF v_counter IS NOT NULL THEN
        UPDATE quota_refusal_counts c SET counter = v_counter, counter_base = coalesce(pg_sequence_last_value(v_counter), 0)
        WHERE c.tenant_id = p_tenant AND c.period = p_period AND c.reason = p_reason AND c.counter IS NULL;
    END IF;
END $$;

-- Takes counters back from storms that have been over for ten minutes. Reconcile calls it; returns how many.
CREATE OR REPLACE FUNCTION quota_refusal_counters_free(p_now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_free int := 0;
    c      record;
BEGIN
    FOR c IN SELECT x.tenant_id, x.period, x.reason FROM quota_refusal_counts x
             WHERE x.counter IS NOT NULL AND x.last_at < v_now - interval '10 minutes'
             ORDER BY x.tenant_id, x.period, x.reason FOR UPDATE SKIP LOCKED LOOP
        PERFORM quota_refusal_flush(c.tenant_id, c.period, c.reason, '-infinity');
        UPDATE quota_refusal_counts x SET counter = NULL, counter_base = NULL, burst = 0
        WHERE x.tenant_id = c.tenant_id AND x.period = c.period AND x.reason = c.reason;
        v_free := v_free + 1;
    END LOOP;
    RETURN v_free;
END $$;
