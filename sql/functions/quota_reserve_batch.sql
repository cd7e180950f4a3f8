-- quota_reserve_batch: up to 1,000 requests in one call; decisions exactly as of the calls one after another.
--
-- Returns the rows of quota_reserve in order, with their ordinal (from 1). Reasons beyond quota_reserve's:
-- invalid (a bad element), conflict (a request id used with other figures); neither spoils the rest.
-- Lock order: tenants, then department slots, each sorted.
-- SQLSTATEs: QW002 not an array, or more than 1,000; 55P03 lock wait over 2 s: nothing was done, retry.
--
-- A tenant whose requests fit all together fits in any order, so it is charged in one go. Whoever doesn't
-- (a limit near, a replay, a mode), and every tenant of a department where one doesn't, goes one by one.
CREATE OR REPLACE FUNCTION quota_reserve_batch(p_requests jsonb, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (
    allowed boolean, reason text, observed_reason text, reservation_id bigint, replayed boolean,
    tier text, model text, notice text, limit_name text, limit_value bigint,
    limit_used bigint, resets_at timestamptz, retry_after_seconds numeric, ordinal int
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now     timestamptz;
    v_all     quota_request[];
    v_fit     text[];
    v_answers quota_answer[] := '{}';
    v_answer  quota_answer;
    q         quota_request;
BEGIN
    PERFORM quota_batch_check(p_requests, 'quota_reserve_batch');
    v_all := quota_requests_parse(p_requests);
    IF v_all IS NULL THEN
        RETURN;
    END IF;
    PERFORM quota_lock_tenants(ARRAY(SELECT DISTINCT r.tenant FROM unnest(v_all) r WHERE r.fault IS NULL));
    v_now := coalesce(p_now, clock_timestamp());
    v_fit := quota_batch_fit(v_all, v_now);

    IF v_fit <> '{}' THEN
        v_answers := quota_batch_charge(v_all, v_fit, v_now);
    END IF;

    IF cardinality(v_answers) < cardinality(v_all) THEN
        FOR q IN SELECT (r).* FROM unnest(v_all) r
                 WHERE (r).fault IS NOT NULL OR NOT (r).tenant = ANY (v_fit) ORDER BY (r).ordinal LOOP
            v_answer := NULL;
            IF q.fault IS NULL THEN
                BEGIN
                    SELECT j.*, q.ordinal INTO v_answer
                    FROM quota_reserve_judge(q.tenant, q.request_id, q.in_tokens, q.out_tokens, q.cost_nanos, q.model, q.app,
                                             q.api_key, q.end_user, q.priority, q.ttl_seconds, v_now) j;
                EXCEPTION WHEN SQLSTATE 'QW002' THEN
                    q.fault := 'overflow';
                END;
            END IF;
            IF q.fault IS NOT NULL OR v_answer.reason = 'request_conflict' THEN
                v_answer := NULL;
                v_answer.allowed := false;
                v_answer.replayed := false;
                v_answer.reason := CASE WHEN q.fault IS NULL THEN 'conflict' ELSE 'invalid' END;
                v_answer.ordinal := q.ordinal;
            END IF;
            v_answers := v_answers || v_answer;
        END LOOP;
    END IF;
    RETURN QUERY SELECT (a).* FROM unnest(v_answers) a ORDER BY (a).ordinal;
END $$;

-- The tenants of a batch whose requests all pass together, in any order, with nothing special about them; their
-- departments' slots are booked already. All slots of the other departments are locked, in order.
CREATE OR REPLACE FUNCTION quota_batch_fit(p_requests quota_request[], p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_day     date := quota_day(p_now);
    v_month   date := quota_month(quota_day(p_now));
    v_slot    smallint := pg_backend_pid() & 15;
    v_tenants text[];
    v_depts   text[];
    v_envs    text[];
    v_fits    boolean[];
    v_slow    text[] := '{}';
    v_booked  int;
    d         record;
BEGIN
    SELECT array_agg(g.tenant), array_agg(l.department_id), array_agg(l.environment),
           array_agg(coalesce(
               g.n = g.ids AND u.limits_ctid = l.ctid AND u.limits_xmin = l.xmin
               AND u.completions >= 0
               AND u.input_tokens >= u.held_input_tokens
               AND u.output_tokens >= u.held_output_tokens
               AND u.cost_cents >= u.held_cost_nanos / 10000000
               AND u.completions + g.n <= u.ceiling_completions
               AND u.input_tokens + g.i < u.ceiling_input_tokens
               AND u.output_tokens + g.o < u.ceiling_output_tokens
               AND u.input_tokens + u.output_tokens + g.i + g.o < u.ceiling_tokens
               AND u.cost_cents + g.c / 10000000 + 1 < u.ceiling_cost_cents
               AND u.bucket_tokens IS NOT NULL
               AND least(l.bucket_capacity, u.bucket_tokens + l.bucket_refill_per_sec
                         * greatest(date_part('epoch', p_now - u.bucket_at), 0)) >= g.n
               AND NOT EXISTS (SELECT FROM quota_usage n
                               WHERE n.tenant_id = g.tenant AND n.period >= v_day - 1 AND n.period <> v_day
                                 AND (n.ctid, n.xmin) IS DISTINCT FROM (u.eve_ctid, u.eve_xmin))
               AND NOT EXISTS (SELECT FROM unnest(g.request_ids) i
                               JOIN quota_reservations r ON r.tenant_id = g.tenant AND r.request_id = i)
               , false))
    INTO v_tenants, v_depts, v_envs, v_fits
    FROM (SELECT q.tenant, count(*) AS n, count(DISTINCT q.request_id) AS ids, array_agg(q.request_id) AS request_ids,
                 sum(q.in_tokens)::bigint AS i, sum(q.out_tokens)::bigint AS o, sum(q.cost_nanos)::bigint AS c
          FROM unnest(p_requests) q WHERE q.fault IS NULL GROUP BY q.tenant) g
        LEFT JOIN tenant_limits l ON l.tenant_id = g.tenant
        LEFT JOIN quota_usage u ON u.tenant_id = g.tenant AND u.period = v_day;

    -- Departments: all in one statement, in order; should one be outside its band, one by one.
    BEGIN
        WITH want AS (
            SELECT t.dept, t.env, sum(g.t)::bigint AS tokens, sum(g.c)::bigint AS cost_nanos, bool_and(t.fits) AS fits
            FROM unnest(v_tenants, v_depts, v_envs, v_fits) AS t (tenant, dept, env, fits)
                JOIN (SELECT q.tenant, sum(q.in_tokens + q.out_tokens) AS t, sum(q.cost_nanos) AS c
                      FROM unnest(p_requests) q WHERE q.fault IS NULL GROUP BY q.tenant) g USING (tenant)
            WHERE t.dept IS NOT NULL
            GROUP BY t.dept, t.env
        ), locked AS (
            SELECT s.department_id, s.environment FROM want w JOIN quota_department_slots s
              ON s.department_id = w.dept AND s.environment = w.env AND s.month = v_month AND s.slot = v_slot
            WHERE (SELECT bool_and(fits) FROM want)
            ORDER BY s.department_id, s.environment FOR NO KEY UPDATE OF s
        ), booked AS (
            UPDATE quota_department_slots s SET
                tokens_used     = s.tokens_used + w.tokens,
                cost_used_nanos = s.cost_used_nanos + w.cost_nanos,
                tokens_held     = s.tokens_held + w.tokens,
                cost_held_nanos = s.cost_held_nanos + w.cost_nanos
            FROM want w JOIN locked k ON k.department_id = w.dept AND k.environment = w.env
                LEFT JOIN department_budgets b ON b.department_id = w.dept AND b.environment = w.env
            WHERE s.department_id = w.dept AND s.environment = w.env AND s.month = v_month AND s.slot = v_slot
              AND s.short AND s.band_from <= p_now AND p_now < s.band_until
              AND s.tokens_used + w.tokens <= s.tokens_ceiling
              AND s.cost_used_nanos + w.cost_nanos <= s.cost_ceiling_nanos
              AND s.budget_ctid IS NOT DISTINCT FROM b.ctid AND s.budget_xmin IS NOT DISTINCT FROM b.xmin
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM want) - (SELECT count(*) FROM booked) INTO v_booked;
        IF v_booked <> 0 THEN
            RAISE EXCEPTION USING ERRCODE = 'QW000', MESSAGE = 'outside the band';
        END IF;
    EXCEPTION WHEN SQLSTATE 'QW000' THEN
        v_slow := quota_batch_book_departments(p_requests, v_tenants, v_depts, v_envs, v_fits, v_month, v_slot, p_now);
    END;
    RETURN ARRAY(SELECT t.tenant FROM unnest(v_tenants, v_depts, v_envs, v_fits) AS t (tenant, dept, env, fits)
                 WHERE t.fits AND NOT coalesce(t.dept || ' ' || t.env, '') = ANY (v_slow));
END $$;

-- Department by department, in order: those whose tenants all fit and whose band has room are booked; of the
-- others all slots are locked. Returns the latter, as 'department environment'.
CREATE OR REPLACE FUNCTION quota_batch_book_departments(
    p_requests quota_request[], p_tenants text[], p_depts text[], p_envs text[], p_fits boolean[],
    p_month date, p_slot smallint, p_now timestamptz
) RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_slow text[] := '{}';
    v_tier smallint;
    d      record;
BEGIN
    FOR d IN SELECT t.dept, t.env, sum(q.in_tokens + q.out_tokens)::bigint AS tokens, sum(q.cost_nanos)::bigint AS cost_nanos,
                    bool_and(t.fits) AS fits
             FROM unnest(p_tenants, p_depts, p_envs, p_fits) AS t (tenant, dept, env, fits)
                 JOIN unnest(p_requests) q ON q.tenant = t.tenant AND q.fault IS NULL
             WHERE t.dept IS NOT NULL GROUP BY t.dept, t.env ORDER BY t.dept, t.env LOOP
        v_tier := NULL;
        IF d.fits THEN
            SELECT s.band_tier INTO v_tier FROM quota_department_slots s
            WHERE s.department_id = d.dept AND s.environment = d.env AND s.month = p_month AND s.slot = p_slot AND s.short;
        END IF;
        IF v_tier IS NULL OR NOT quota_slot_admit(d.dept, d.env, p_month, p_slot, v_tier, p_now, d.tokens, d.cost_nanos, true) THEN
            PERFORM quota_department_lock(d.dept, d.env, p_month);
            v_slow := v_slow || (d.dept || ' ' || d.env);
        END IF;
    END LOOP;
    RETURN v_slow;
END $$;

-- Charges the tenants that fit, in one statement each for usage and reservations, and answers for them.
CREATE OR REPLACE FUNCTION quota_batch_charge(p_requests quota_request[], p_fit text[], p_now timestamptz)
RETURNS quota_answer[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_day     date := quota_day(p_now);
    v_answers quota_answer[];
BEGIN
    UPDATE quota_usage u SET
        completions          = u.completions + g.n,
        input_tokens         = u.input_tokens + g.i,
        output_tokens        = u.output_tokens + g.o,
        cost_cents           = u.cost_cents + (u.cost_subcent_nanos + g.c) / 10000000,
        cost_subcent_nanos   = (u.cost_subcent_nanos + g.c) % 10000000,
        held_input_tokens    = u.held_input_tokens + g.i,
        held_output_tokens   = u.held_output_tokens + g.o,
        held_cost_nanos      = u.held_cost_nanos + g.c,
        booked_completions   = u.booked_completions + g.n,
        booked_input_tokens  = u.booked_input_tokens + g.i,
        booked_output_tokens = u.booked_output_tokens + g.o,
        booked_cost_nanos    = u.booked_cost_nanos + g.c,
        bucket_tokens        = least(l.bucket_capacity, u.bucket_tokens + l.bucket_refill_per_sec
                                     * greatest(date_part('epoch', p_now - u.bucket_at), 0)) - g.n,
        bucket_at            = greatest(u.bucket_at, p_now)
    FROM (SELECT q.tenant, count(*) AS n, sum(q.in_tokens)::bigint AS i, sum(q.out_tokens)::bigint AS o,
                 sum(q.cost_nanos)::bigint AS c
          FROM unnest(p_requests) q WHERE q.fault IS NULL AND q.tenant = ANY (p_fit) GROUP BY q.tenant) g
        JOIN tenant_limits l ON l.tenant_id = g.tenant
    WHERE u.tenant_id = g.tenant AND u.period = v_day;

    WITH stored AS (
        INSERT INTO quota_reservations AS r (
            tenant_id, request_id, period, department_id, environment,
            estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos, ttl_seconds, admitted_at, expires_at,
            requested_model, answered_model, model, app, api_key, end_user, priority, tier)
        SELECT q.tenant, q.request_id, v_day, l.department_id, l.environment, q.in_tokens, q.out_tokens, q.cost_nanos,
               coalesce(q.ttl_seconds, l.reservation_ttl_seconds), p_now,
               p_now + coalesce(q.ttl_seconds, l.reservation_ttl_seconds) * interval '1 second',
               q.model, q.model, q.model, q.app, q.api_key, q.end_user, q.priority, quota_tier_name(s.band_tier)
        FROM unnest(p_requests) q JOIN tenant_limits l ON l.tenant_id = q.tenant
            LEFT JOIN quota_department_slots s ON s.department_id = l.department_id AND s.environment = l.environment
                AND s.month = quota_month(v_day) AND s.slot = pg_backend_pid() & 15
        WHERE q.fault IS NULL AND q.tenant = ANY (p_fit)
        ORDER BY q.ordinal
        RETURNING r.tenant_id, r.request_id, r.reservation_id, r.tier
    )
    SELECT array_agg((true, 'ok', NULL, s.reservation_id, false, s.tier, q.model, NULL, NULL, NULL, NULL, NULL, NULL,
                      q.ordinal)::quota_answer)
    INTO v_answers
    FROM stored s JOIN unnest(p_requests) q ON q.tenant = s.tenant_id AND q.request_id = s.request_id AND q.fault IS NULL;
    RETURN v_answers;
END $$;
