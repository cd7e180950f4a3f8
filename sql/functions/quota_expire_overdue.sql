-- quota_expire_stale for those that have been overdue for p_wait_seconds: younger ones wait for a usage source's answer.
CREATE OR REPLACE FUNCTION quota_expire_overdue(p_limit int, p_now timestamptz, p_wait_seconds int)
RETURNS TABLE (tenant_id text, policy text, ended bigint, in_tokens bigint, out_tokens bigint, cost_nanos bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_until  timestamptz := quota_overdue_until(p_now, p_wait_seconds);
    v_places tid[];
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_expire_stale: p_limit must be 1 to 100000';
    END IF;
    SELECT array_agg(q.place) INTO v_places
    FROM (SELECT r.ctid AS place FROM quota_reservations r
          WHERE r.state = 'open' AND r.expires_at <= v_until ORDER BY r.expires_at LIMIT p_limit) q;
    RETURN QUERY SELECT p.* FROM quota_expire_places(v_places, p_now, p_wait_seconds, true) p;
END $$;

-- Where the oldest overdue ones lie, at most p_limit, as batches for quota_expire_places of at most p_rows each: those
-- of a tenant and a department together, so that a batch locks few tenants for a short time, and writes few counters.
-- The batches with the oldest first. Takes no locks.
CREATE OR REPLACE FUNCTION quota_overdue_find(p_limit int, p_rows int, p_now timestamptz, p_wait_seconds int)
RETURNS TABLE (places tid[])
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    v_until timestamptz := quota_overdue_until(p_now, p_wait_seconds);
BEGIN
    RETURN QUERY
    SELECT array_agg(n.place)
    FROM (SELECT w.place, w.expires_at,
                 (row_number() OVER (ORDER BY w.department_id, w.environment, w.tenant_id, w.place) - 1) / p_rows AS batch
          FROM (SELECT r.ctid AS place, r.department_id, r.environment, r.tenant_id, r.expires_at FROM quota_reservations r
                WHERE r.state = 'open' AND r.expires_at <= v_until ORDER BY r.expires_at LIMIT p_limit) w) n
    GROUP BY n.batch ORDER BY min(n.expires_at), n.batch;
END $$;

-- Those whose time ran out by then are overdue for p_wait_seconds.
CREATE OR REPLACE FUNCTION quota_overdue_until(p_now timestamptz, p_wait_seconds int) RETURNS timestamptz
LANGUAGE sql VOLATILE
AS $$ SELECT quota_now(p_now) - make_interval(secs => p_wait_seconds) $$;

-- Ends those of the places that are (still) open and overdue. A place may hold another row by now: it ends if it is
-- due itself. Tenants that others have locked are left out; if all are, p_wait says whether to wait for one.
--
-- All at once; should the figures of one not allow that, tenant by tenant, and of that tenant one by one. What can't
-- be ended stays open, and holds up nothing else: its error is raised by a call that can end nothing (any more).
CREATE OR REPLACE FUNCTION quota_expire_places(p_places tid[], p_now timestamptz, p_wait_seconds int, p_wait boolean)
RETURNS TABLE (tenant_id text, policy text, ended bigint, in_tokens bigint, out_tokens bigint, cost_nanos bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
-- by key, many times: what pages cost at random is not what a planner without statistics fears
SET random_page_cost = 0.1
AS $$
DECLARE
    v_now    timestamptz := quota_now(p_now);
    v_until  timestamptz := quota_overdue_until(v_now, p_wait_seconds);
    v_due    text[];
    v_locked text[];
    v_ended  quota_expired[] := '{}';
    v_bookings quota_booking[] := '{}';
    v_some   record;
    v_tenant text;
    v_place  tid;
    v_state  text;
    v_fault  text;
    v_apart  boolean := false;
    v_whose  text;
BEGIN
    SELECT array_agg(DISTINCT r.tenant_id) INTO v_due FROM quota_reservations r
    WHERE r.ctid = ANY (p_places) AND r.ended_at IS NULL AND r.expires_at <= v_until;
    IF v_due IS NULL THEN
        RETURN;
    END IF;
    v_locked := CASE WHEN p_wait THEN quota_lock_free_tenants(v_due) ELSE quota_lock_who_is_free(v_due) END;

    BEGIN
        SELECT s.* INTO v_some FROM quota_expire_set(v_locked, p_places, v_until, v_now) s;
        v_ended := v_some.ended;
        v_bookings := v_some.bookings;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR SQLSTATE 'QW002' THEN
        v_apart := true;
        FOREACH v_tenant IN ARRAY v_locked LOOP
            BEGIN
                SELECT s.* INTO v_some FROM quota_expire_set(ARRAY[v_tenant], p_places, v_until, v_now) s;
                v_ended := v_ended || v_some.ended;
                v_bookings := v_bookings || v_some.bookings;
            EXCEPTION WHEN data_exception OR integrity_constraint_violation OR SQLSTATE 'QW002' THEN
                FOR v_place IN SELECT r.ctid FROM quota_reservations r
                               WHERE r.ctid = ANY (p_places) AND r.tenant_id = v_tenant AND r.ended_at IS NULL
                                 AND r.expires_at <= v_until ORDER BY r.expires_at LOOP
                    BEGIN
                        SELECT s.* INTO v_some FROM quota_expire_set(ARRAY[v_tenant], ARRAY[v_place], v_until, v_now) s;
                        v_ended := v_ended || v_some.ended;
                        v_bookings := v_bookings || v_some.bookings;
                    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR SQLSTATE 'QW002' THEN
                        IF v_fault IS NULL THEN
                            v_state := SQLSTATE;
                            v_fault := SQLERRM;
                            SELECT format('request %s of tenant %s', r.request_id, r.tenant_id) INTO v_whose
                            FROM quota_reservations r WHERE r.ctid = v_place;
                        END IF;
                    END;
                END LOOP;
            END;
        END LOOP;
    END;
    -- Departments last, each once, and outside of what may be undone (docs/adr/0006).
    IF v_apart THEN
        PERFORM quota_bookings_book(v_bookings, v_now);
    ELSE
        PERFORM quota_bookings_book_together(v_bookings, v_now);
    END IF;
    IF v_fault IS NOT NULL AND coalesce(v_ended, '{}') = '{}' THEN
        RAISE EXCEPTION USING ERRCODE = v_state, MESSAGE = format('%s can''t be ended: %s', v_whose, v_fault),
            HINT = 'Check the counters of its day in quota_usage for a wrong direct UPDATE: quota-worker audit.';
    END IF;

    RETURN QUERY
    SELECT e.tenant_id, e.policy, quota_clamp(sum(e.ended)), quota_clamp(sum(e.in_tokens)), quota_clamp(sum(e.out_tokens)),
           quota_clamp(sum(e.cost_nanos))
    FROM unnest(v_ended) e GROUP BY e.tenant_id, e.policy ORDER BY e.tenant_id, e.policy;
END $$;

-- Ends the tenants' own of the places, under their locks; departments are left to the caller, each month once.
--
-- Set-wise: reservations and days are a statement, whatever the number of tenants; only what is special about one
-- (a counter that a legacy program lowered) is done by itself.
CREATE OR REPLACE FUNCTION quota_expire_set(
    p_tenants text[], p_places tid[], p_until timestamptz, p_now timestamptz, OUT ended quota_expired[], OUT bookings quota_booking[]
) RETURNS record
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_booked text[];
    g        record;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT k.tenant_id, coalesce(l.stale_policy, 'estimate') AS policy
        FROM unnest(p_tenants) AS k (tenant_id) LEFT JOIN tenant_limits l USING (tenant_id)
    ), gone AS MATERIALIZED (
        UPDATE quota_reservations r SET
            state = 'expired',
            ended_at = p_now,
            stale_policy = d.policy,
            completion_counted = d.policy <> 'release',
            usage_missing = true,
            charged_in_tokens = CASE WHEN d.policy = 'release' THEN 0 ELSE r.estimated_in_tokens END,
            charged_out_tokens = CASE d.policy WHEN 'release' THEN 0 WHEN 'partial' THEN r.progress_out_tokens
                                               ELSE r.estimated_out_tokens END,
            charged_cost_nanos = CASE d.policy WHEN 'release' THEN 0 WHEN 'partial' THEN quota_partial_cost(r)
                                               ELSE r.estimated_cost_nanos END
        FROM due d
        -- by its place, not through the key's index; a row that changed since has moved and waits for the next look
        WHERE r.ctid = ANY (p_places) AND r.tenant_id = d.tenant_id AND r.ended_at IS NULL AND r.expires_at <= p_until
        RETURNING r.tenant_id, r.period, r.department_id, r.environment, r.stale_policy,
                  r.charged_in_tokens AS i, r.charged_out_tokens AS o, r.charged_cost_nanos AS c,
                  r.estimated_in_tokens AS ei, r.estimated_out_tokens AS eo, r.estimated_cost_nanos AS ec
    ), day AS MATERIALIZED (
        SELECT e.tenant_id, e.period, e.stale_policy AS policy, count(*) AS n,
               sum(e.i)::bigint AS i, sum(e.o)::bigint AS o, sum(e.c)::bigint AS c,
               sum(e.ei)::bigint AS ei, sum(e.eo)::bigint AS eo, sum(e.ec)::bigint AS ec
        FROM gone e GROUP BY e.tenant_id, e.period, e.stale_policy
    ), usage AS (
        -- as quota_usage_add does it; its conditions, too
        UPDATE quota_usage u SET
            completions          = u.completions - CASE WHEN d.policy = 'release' THEN d.n ELSE 0 END,
            input_tokens         = u.input_tokens + d.i - d.ei,
            output_tokens        = u.output_tokens + d.o - d.eo,
            cost_cents           = u.cost_cents + quota_cents(u.cost_subcent_nanos + d.c - d.ec),
            cost_subcent_nanos   = quota_subcent(u.cost_subcent_nanos + d.c - d.ec),
            held_input_tokens    = greatest(u.held_input_tokens - d.ei, 0),
            held_output_tokens   = greatest(u.held_output_tokens - d.eo, 0),
            held_cost_nanos      = greatest(u.held_cost_nanos - d.ec, 0),
            booked_completions   = u.booked_completions - CASE WHEN d.policy = 'release' THEN d.n ELSE 0 END,
            booked_input_tokens  = u.booked_input_tokens + d.i - d.ei,
            booked_output_tokens = u.booked_output_tokens + d.o - d.eo,
            booked_cost_nanos    = u.booked_cost_nanos + d.c - d.ec,
            -- perhaps back below a threshold: the next charge draws the ceilings anew
            limits_ctid          = CASE WHEN u.line_passed THEN NULL ELSE u.limits_ctid END
        FROM day d
        WHERE u.tenant_id = d.tenant_id AND u.period = d.period
          AND u.completions BETWEEN d.n AND 4000000000000000000
          AND u.input_tokens BETWEEN d.ei - d.i AND 4000000000000000000
          AND u.output_tokens BETWEEN d.eo - d.o AND 4000000000000000000
          AND u.cost_cents BETWEEN 0 AND 100000000000
          AND u.cost_cents * 10000000 + u.cost_subcent_nanos + d.c - d.ec >= 0
        RETURNING u.tenant_id, u.period
    )
    SELECT (SELECT array_agg((d.tenant_id, d.period, d.policy, d.n, d.i, d.o, d.c, d.ei, d.eo, d.ec)::quota_expired) FROM day d),
           (SELECT array_agg(u.tenant_id || u.period) FROM usage u),
           (SELECT array_agg(b.booking)
            FROM (SELECT (e.department_id, e.environment, quota_month(e.period), sum(e.i + e.o - e.ei - e.eo), sum(e.c - e.ec),
                          -sum(e.ei + e.eo), -sum(e.ec))::quota_booking AS booking
                  FROM gone e WHERE e.department_id IS NOT NULL
                  GROUP BY e.department_id, e.environment, quota_month(e.period)) b)
    INTO ended, v_booked, bookings;
    IF ended IS NULL THEN
        RETURN;
    END IF;

    IF cardinality(ended) > coalesce(cardinality(v_booked), 0) THEN
        FOR g IN SELECT * FROM unnest(ended) e WHERE e.tenant_id || e.period <> ALL (coalesce(v_booked, '{}'))
                 ORDER BY e.tenant_id, e.period LOOP
            PERFORM quota_usage_add(g.tenant_id, g.period, CASE WHEN g.policy = 'release' THEN -g.ended ELSE 0 END,
                                    g.in_tokens - g.held_in, g.out_tokens - g.held_out, g.cost_nanos - g.held_cost,
                                    -g.held_in, -g.held_out, -g.held_cost, false);
        END LOOP;
    END IF;
    -- Ceilings of later days of the month were drawn with these days' sums in them.
    IF EXISTS (SELECT FROM unnest(ended) e WHERE (e.in_tokens, e.out_tokens, e.cost_nanos)
                                                   <> (e.held_in, e.held_out, e.held_cost)) THEN
        UPDATE quota_usage u SET limits_ctid = NULL, limits_xmin = NULL
        FROM unnest(ended) e
        WHERE (e.in_tokens, e.out_tokens, e.cost_nanos) <> (e.held_in, e.held_out, e.held_cost)
          AND u.tenant_id = e.tenant_id AND u.period > e.period + 1
          AND u.period < (quota_month(e.period) + interval '1 month')::date AND u.limits_ctid IS NOT NULL;
    END IF;
END $$;

-- quota_bookings_book in one statement where every department stays within its slot's band; else one by one.
-- Each department's month at most once in p_bookings.
CREATE OR REPLACE FUNCTION quota_bookings_book_together(p_bookings quota_booking[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_slot smallint := pg_backend_pid() & 15;
    v_open bigint;
BEGIN
    IF p_bookings IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        WITH locked AS (
            SELECT b.*
            FROM unnest(p_bookings) b JOIN quota_department_slots s
              ON s.department_id = b.department_id AND s.environment = b.environment AND s.month = b.month
                 AND s.slot = v_slot
            ORDER BY s.department_id, s.environment, s.month FOR NO KEY UPDATE OF s
        ), booked AS (
            UPDATE quota_department_slots s SET
                tokens_used     = s.tokens_used + k.tokens,
                cost_used_nanos = s.cost_used_nanos + k.cost_nanos,
                tokens_held     = s.tokens_held + k.held_tokens,
                cost_held_nanos = s.cost_held_nanos + k.held_cost_nanos
            FROM locked k
            WHERE s.department_id = k.department_id AND s.environment = k.environment AND s.month = k.month
              AND s.slot = v_slot
              -- what changes nothing of what is used can't leave the band
              AND s.tokens_held BETWEEN -4000000000000000000 AND 4000000000000000000
              AND s.cost_held_nanos BETWEEN -4000000000000000000 AND 4000000000000000000
              AND ((k.tokens, k.cost_nanos) = (0, 0)
                   OR (s.tokens_used BETWEEN -4000000000000000000 AND 4000000000000000000
                       AND s.cost_used_nanos BETWEEN -4000000000000000000 AND 4000000000000000000
                       AND s.tokens_used + k.tokens BETWEEN s.tokens_floor AND s.tokens_ceiling
                       AND s.cost_used_nanos + k.cost_nanos BETWEEN s.cost_floor_nanos AND s.cost_ceiling_nanos))
            RETURNING 1
        )
        SELECT cardinality(p_bookings) - count(*) INTO v_open FROM booked;
        IF v_open = 0 THEN
            RETURN;
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'QW000', MESSAGE = 'outside a band';
    EXCEPTION WHEN SQLSTATE 'QW000' THEN
        NULL;
    END;
    PERFORM quota_bookings_book(p_bookings, p_now);
END $$;
