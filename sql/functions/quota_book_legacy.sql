-- Folds in what legacy programs wrote directly into quota_usage (an UPDATE, or a row of their own): the
-- difference between a row's counters and what our functions booked goes to legacy_*, to the month of the
-- tenant's present department, and later days' ceilings are dropped. Looks at this month and the last, and at all
-- others, too, where that is quick (c_quick bytes), or until a reconcile has done so today.
-- Returns the number of rows folded; fewer than p_limit: done. Locks: tenants, department slots, each sorted.
CREATE OR REPLACE FUNCTION quota_book_legacy(p_limit int DEFAULT 1000, p_now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now  timestamptz := quota_now(p_now);
    v_from date := quota_month(quota_month(quota_day(v_now)) - 1);
    -- about a million rows: a third of a second
    c_quick CONSTANT bigint := 200 * 1024 * 1024;
BEGIN
    IF pg_relation_size('quota_usage') < c_quick
       OR NOT EXISTS (SELECT FROM job_runs r WHERE r.job = 'reconcile' AND r.outcome = 'done'
                                               AND r.scheduled_for >= quota_day_start(quota_day(v_now))) THEN
        v_from := '-infinity';
    END IF;
    RETURN quota_fold_legacy(v_from, 'infinity', p_limit, v_now);
END $$;

-- The same for one month that is about to be closed, so that it closes with all that was written; 0 while it isn't due.
CREATE OR REPLACE FUNCTION quota_book_legacy_month(
    p_month date, p_limit int DEFAULT 1000, p_now timestamptz DEFAULT NULL, p_grace_hours int DEFAULT 72
) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now timestamptz := quota_now(p_now);
BEGIN
    IF quota_month_end(p_month) + make_interval(hours => p_grace_hours) > v_now
       OR EXISTS (SELECT FROM quota_months m WHERE m.month = p_month AND m.closed_at IS NOT NULL) THEN
        RETURN 0;
    END IF;
    RETURN quota_fold_legacy(p_month, (p_month + interval '1 month')::date, p_limit, v_now);
END $$;

-- When the month is over: its local end.
CREATE OR REPLACE FUNCTION quota_month_end(p_month date) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$ SELECT quota_day_start((p_month + interval '1 month')::date) $$;

-- Folds rows of days in [p_from, p_until).
CREATE OR REPLACE FUNCTION quota_fold_legacy(p_from date, p_until date, p_limit int, p_now timestamptz) RETURNS int
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_tenants text[];
    v_days    date[];
    v_locked  text[];
    v_count   int;
    v_bookings quota_booking[];
BEGIN
    SELECT array_agg(q.tenant_id), array_agg(q.period) INTO v_tenants, v_days
    FROM (SELECT u.tenant_id, u.period FROM quota_usage u
          WHERE u.period >= p_from AND u.period < p_until
            -- quota_unbooked, written out: a call per row of two months would take twice as long
            AND (u.completions <> u.booked_completions OR u.input_tokens <> u.booked_input_tokens
                 OR u.output_tokens <> u.booked_output_tokens
                 OR CASE WHEN abs(u.cost_cents) < 400000000000
                         THEN u.cost_cents * 10000000 + u.cost_subcent_nanos <> u.booked_cost_nanos END)
          LIMIT p_limit) q;
    IF v_tenants IS NULL THEN
        RETURN 0;
    END IF;
    v_locked := quota_lock_free_tenants(v_tenants);
    PERFORM quota_legacy_place(v_locked, quota_day(p_now));

    WITH found AS (
        -- place: where the tenant was on that day (quota_legacy_places), which is whose month is corrected
        SELECT u.tenant_id, u.period, l.department_id, l.environment,
               CASE WHEN w.place_id IS NULL THEN l.department_id ELSE w.department_id END AS place_department,
               coalesce(w.environment, l.environment) AS place_environment,
               quota_clamp(coalesce(u.completions, 0)::numeric - u.booked_completions) AS c,
               quota_clamp(coalesce(u.input_tokens, 0)::numeric - u.booked_input_tokens) AS i,
               quota_clamp(coalesce(u.output_tokens, 0)::numeric - u.booked_output_tokens) AS o,
               quota_clamp(coalesce(u.cost_cents, 0)::numeric * 10000000 + u.cost_subcent_nanos - u.booked_cost_nanos) AS n
        FROM unnest(v_tenants, v_days) AS d (tenant_id, period)
            JOIN unnest(v_locked) AS k (tenant_id) USING (tenant_id)
            JOIN quota_usage u USING (tenant_id, period)
            LEFT JOIN tenant_limits l USING (tenant_id)
            LEFT JOIN LATERAL (SELECT p.place_id, p.department_id, p.environment FROM quota_legacy_places p
                                WHERE p.tenant_id = u.tenant_id AND p.from_day <= u.period
                                ORDER BY p.place_id DESC LIMIT 1) w ON true
        WHERE quota_unbooked(u)
    ), folded AS (
        UPDATE quota_usage u SET
            booked_completions   = u.booked_completions + f.c,
            booked_input_tokens  = u.booked_input_tokens + f.i,
            booked_output_tokens = u.booked_output_tokens + f.o,
            booked_cost_nanos    = u.booked_cost_nanos + f.n,
            legacy_completions   = u.legacy_completions + f.c,
            legacy_input_tokens  = u.legacy_input_tokens + f.i,
            legacy_output_tokens = u.legacy_output_tokens + f.o,
            legacy_cost_nanos    = u.legacy_cost_nanos + f.n
        FROM found f
        WHERE u.tenant_id = f.tenant_id AND u.period = f.period
        RETURNING f.*
    ), noted AS (
        SELECT count(quota_adjustment_note(f.tenant_id, NULL, f.place_department, f.place_environment, f.period, f.c, f.i, f.o, f.n, p_now))
        FROM folded f WHERE quota_month(f.period) <> quota_month(quota_day(p_now))
    )
    SELECT count(*) + 0 * (SELECT * FROM noted), array_agg((f.department_id, f.environment, quota_month(f.period),
                                quota_clamp(f.i::numeric + f.o), f.n, 0, 0)::quota_booking)
    INTO v_count, v_bookings
    FROM folded f;
    PERFORM quota_bookings_book(v_bookings, p_now, true);
    -- later days' ceilings were drawn with these days' sums in them: the tenants' next requests draw new ones
    UPDATE quota_usage u SET limits_ctid = NULL, limits_xmin = NULL
    FROM unnest(v_tenants, v_days) AS d (tenant_id, period) JOIN unnest(v_locked) AS k (tenant_id) USING (tenant_id)
    WHERE u.tenant_id = d.tenant_id AND u.period > d.period + 1
      AND u.period < (quota_month(d.period) + interval '1 month')::date AND u.limits_ctid IS NOT NULL;
    RETURN v_count;
END $$;

-- Does the row hold something that no function of ours booked?
CREATE OR REPLACE FUNCTION quota_unbooked(u quota_usage) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT coalesce(u.completions, 0) <> u.booked_completions OR coalesce(u.input_tokens, 0) <> u.booked_input_tokens
        OR coalesce(u.output_tokens, 0) <> u.booked_output_tokens
        OR (CASE WHEN abs(coalesce(u.cost_cents, 0)) < 400000000000
                 THEN coalesce(u.cost_cents, 0) * 10000000 + u.cost_subcent_nanos <> u.booked_cost_nanos ELSE false END)
$$;

-- Brings rate_buckets, a mirror for the tutorial's readers, up to the live buckets, and takes counters back from
-- storms of refusals that are over. Returns the buckets written.
CREATE OR REPLACE FUNCTION quota_mirror_buckets(p_limit int DEFAULT 10000, p_now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_rows int;
BEGIN
    INSERT INTO rate_buckets AS b (tenant_id, tokens, capacity, refill_rate, last_refill_at)
    SELECT u.tenant_id, u.bucket_tokens, l.bucket_capacity, l.bucket_refill_per_sec, u.bucket_at
    FROM quota_usage u JOIN tenant_limits l USING (tenant_id) LEFT JOIN rate_buckets o USING (tenant_id)
    WHERE u.bucket_tokens IS NOT NULL
      AND (o.tokens, o.capacity, o.refill_rate, o.last_refill_at)
          IS DISTINCT FROM (u.bucket_tokens, l.bucket_capacity, l.bucket_refill_per_sec, u.bucket_at)
    ORDER BY u.tenant_id
    LIMIT p_limit
    ON CONFLICT (tenant_id) DO UPDATE SET
        tokens = excluded.tokens, capacity = excluded.capacity, refill_rate = excluded.refill_rate,
        last_refill_at = excluded.last_refill_at;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    PERFORM quota_refusal_counters_free(p_now);
    RETURN v_rows;
END $$;
