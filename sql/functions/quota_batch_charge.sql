-- Charges, in a statement each for departments, usage and reservations, the tenants whose requests all pass
-- together, in any order, with nothing special about them. All slots of the other tenants' departments are locked,
-- in order. Every request id is new, and none twice: what is charged here is not undone. (Undoing
-- gives a slot's lock back, but whoever waits for the slot goes on waiting: docs/adr/0006.)
CREATE OR REPLACE FUNCTION quota_batch_charge(p_requests quota_request[], p_now timestamptz) RETURNS quota_batch_done
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_day   date := quota_day(p_now);
    v_month date := quota_month(quota_day(p_now));
    v_slot  smallint := pg_backend_pid() & 15;
    g       quota_batch_groups;
    v_slow  text[] := '{}';
    v_open  int;
    v_done  quota_batch_done;
BEGIN
    g := quota_batch_group(p_requests, v_day, p_now);

    -- Departments: all in one statement, in order; should one be outside its band, one by one.
    BEGIN
        WITH want AS (
            SELECT t.dept, t.env, sum(t.i + t.o)::bigint AS tokens, sum(t.c)::bigint AS cost_nanos
            FROM unnest(g.depts, g.envs, g.ins, g.outs, g.costs) AS t (dept, env, i, o, c)
            WHERE t.dept IS NOT NULL GROUP BY t.dept, t.env
        ), locked AS (
            SELECT w.dept, w.env, w.tokens, w.cost_nanos FROM want w JOIN quota_department_slots s
              ON s.department_id = w.dept AND s.environment = w.env AND s.month = v_month AND s.slot = v_slot
            WHERE NOT false = ANY (g.fits)
            ORDER BY s.department_id, s.environment FOR NO KEY UPDATE OF s
        ), booked AS (
            UPDATE quota_department_slots s SET
                tokens_used     = s.tokens_used + k.tokens,
                cost_used_nanos = s.cost_used_nanos + k.cost_nanos,
                tokens_held     = s.tokens_held + k.tokens,
                cost_held_nanos = s.cost_held_nanos + k.cost_nanos
            FROM locked k
                LEFT JOIN department_budgets b ON b.department_id = k.dept AND b.environment = k.env
            WHERE s.department_id = k.dept AND s.environment = k.env AND s.month = v_month AND s.slot = v_slot
              AND s.short AND s.band_from <= p_now AND p_now < s.band_until
              AND s.tokens_used + k.tokens <= s.tokens_ceiling
              AND s.cost_used_nanos + k.cost_nanos <= s.cost_ceiling_nanos
              AND s.budget_ctid IS NOT DISTINCT FROM b.ctid AND s.budget_xmin IS NOT DISTINCT FROM b.xmin
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM want) - (SELECT count(*) FROM booked) INTO v_open;
        IF v_open <> 0 THEN
            RAISE EXCEPTION USING ERRCODE = 'QW000', MESSAGE = 'outside the band';
        END IF;
    EXCEPTION WHEN SQLSTATE 'QW000' THEN
        v_slow := quota_batch_book_departments(g, v_month, v_slot, p_now);
    END;
    IF v_slow <> '{}' THEN
        g.fits := ARRAY(SELECT t.fits AND NOT coalesce(t.dept || ' ' || t.env, '') = ANY (v_slow)
                        FROM unnest(g.depts, g.envs, g.fits) WITH ORDINALITY AS t (dept, env, fits, n) ORDER BY t.n);
    END IF;
    v_done.limits := g.limits;
    IF NOT true = ANY (g.fits) THEN
        RETURN v_done;
    END IF;

    UPDATE quota_usage u SET
        completions          = u.completions + t.n,
        input_tokens         = u.input_tokens + t.i,
        output_tokens        = u.output_tokens + t.o,
        cost_cents           = u.cost_cents + (u.cost_subcent_nanos + t.c) / 10000000,
        cost_subcent_nanos   = (u.cost_subcent_nanos + t.c) % 10000000,
        held_input_tokens    = u.held_input_tokens + t.i,
        held_output_tokens   = u.held_output_tokens + t.o,
        held_cost_nanos      = u.held_cost_nanos + t.c,
        booked_completions   = u.booked_completions + t.n,
        booked_input_tokens  = u.booked_input_tokens + t.i,
        booked_output_tokens = u.booked_output_tokens + t.o,
        booked_cost_nanos    = u.booked_cost_nanos + t.c,
        bucket_tokens        = least(l.bucket_capacity, u.bucket_tokens + l.bucket_refill_per_sec
                                     * greatest(date_part('epoch', p_now - u.bucket_at), 0)) - t.n,
        bucket_at            = greatest(u.bucket_at, p_now)
    FROM unnest(g.tenants, g.fits, g.ns, g.ins, g.outs, g.costs) AS t (tenant, fits, n, i, o, c)
        JOIN unnest(g.limits) l ON l.tenant_id = t.tenant
    WHERE t.fits AND u.tenant_id = t.tenant AND u.period = v_day;

    WITH stored AS (
        INSERT INTO quota_reservations AS r (
            tenant_id, request_id, period, department_id, environment,
            estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos, ttl_seconds, admitted_at, expires_at,
            requested_model, answered_model, model, app, api_key, end_user, priority, tier)
        SELECT q.tenant, q.request_id, v_day, t.dept, t.env, q.in_tokens, q.out_tokens, q.cost_nanos,
               coalesce(q.ttl_seconds, t.ttl), p_now, p_now + coalesce(q.ttl_seconds, t.ttl) * interval '1 second',
               q.model, q.model, q.model, q.app, q.api_key, q.end_user, q.priority, t.tier
        FROM unnest(p_requests) q
            JOIN unnest(g.tenants, g.fits, g.depts, g.envs, g.ttls, g.tiers) AS t (tenant, fits, dept, env, ttl, tier)
              ON t.tenant = q.tenant
        WHERE q.fault IS NULL AND t.fits
        ORDER BY q.ordinal
        RETURNING r.reservation_id, r.tier
    )
    SELECT array_agg(s.reservation_id), array_agg(s.tier) INTO v_done.reservation_ids, v_done.tiers FROM stored s;
    v_done.ordinals := ARRAY(
        SELECT q.ordinal FROM unnest(p_requests) q JOIN unnest(g.tenants, g.fits) AS t (tenant, fits) ON t.tenant = q.tenant
        WHERE q.fault IS NULL AND t.fits ORDER BY q.ordinal);
    RETURN v_done;
END $$;

-- The tenants of a batch, what each asks for in total, and whether that fits under its day's ceilings and bucket; their
-- limits, NULL where there are none: read once, so that each is judged in the department that is locked for it.
CREATE OR REPLACE FUNCTION quota_batch_group(p_requests quota_request[], p_day date, p_now timestamptz)
RETURNS quota_batch_groups
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    g quota_batch_groups;
BEGIN
    SELECT array_agg(a.tenant), array_agg(l.department_id), array_agg(l.environment), array_agg(l.reservation_ttl_seconds),
           array_agg(quota_tier_name(s.band_tier)), array_agg(a.n), array_agg(a.i), array_agg(a.o), array_agg(a.c),
           array_agg(coalesce(
               u.limits_ctid = l.ctid AND u.limits_xmin = l.xmin
               AND u.completions >= 0
               AND u.input_tokens >= u.held_input_tokens
               AND u.output_tokens >= u.held_output_tokens
               AND u.cost_cents >= u.held_cost_nanos / 10000000
               AND u.completions <= u.ceiling_completions - a.n
               AND u.input_tokens < u.ceiling_input_tokens - a.i
               AND u.output_tokens < u.ceiling_output_tokens - a.o
               AND u.input_tokens + u.output_tokens + a.i + a.o < u.ceiling_tokens
               AND u.cost_cents < u.ceiling_cost_cents - a.c / 10000000 - 1
               AND greatest(u.booked_completions, u.booked_input_tokens, u.booked_output_tokens, u.booked_cost_nanos)
                   < 4000000000000000000
               AND u.bucket_tokens IS NOT NULL
               AND least(l.bucket_capacity, u.bucket_tokens + l.bucket_refill_per_sec
                         * greatest(date_part('epoch', p_now - u.bucket_at), 0)) >= a.n
               AND NOT EXISTS (SELECT FROM quota_usage n
                               WHERE n.tenant_id = a.tenant AND n.period >= p_day - 1 AND n.period <> p_day
                                 AND (n.ctid, n.xmin) IS DISTINCT FROM (u.eve_ctid, u.eve_xmin))
               , false)), array_agg(l)
    INTO g.tenants, g.depts, g.envs, g.ttls, g.tiers, g.ns, g.ins, g.outs, g.costs, g.fits, g.limits
    FROM (SELECT q.tenant, count(*) AS n, sum(q.in_tokens)::bigint AS i, sum(q.out_tokens)::bigint AS o,
                 sum(q.cost_nanos)::bigint AS c
          FROM unnest(p_requests) q WHERE q.fault IS NULL GROUP BY q.tenant) a
        LEFT JOIN tenant_limits l ON l.tenant_id = a.tenant
        LEFT JOIN quota_usage u ON u.tenant_id = a.tenant AND u.period = p_day
        LEFT JOIN quota_department_slots s ON s.department_id = l.department_id AND s.environment = l.environment
            AND s.month = quota_month(p_day) AND s.slot = pg_backend_pid() & 15;
    RETURN g;
END $$;

-- Department by department, in order: those whose tenants all fit and whose band has room are booked; of the
-- others all slots are locked. Returns the latter, as 'department environment'.
CREATE OR REPLACE FUNCTION quota_batch_book_departments(
    g quota_batch_groups, p_month date, p_slot smallint, p_now timestamptz
) RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_slow text[] := '{}';
    v_tier smallint;
    d      record;
BEGIN
    FOR d IN SELECT t.dept, t.env, sum(t.i + t.o)::bigint AS tokens, sum(t.c)::bigint AS cost_nanos, bool_and(t.fits) AS fits
             FROM unnest(g.depts, g.envs, g.ins, g.outs, g.costs, g.fits) AS t (dept, env, i, o, c, fits)
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
