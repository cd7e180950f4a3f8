-- quota_price_unpriced: prices requests whose usage came without a cost, once their price is known.
--
-- Corrects at most p_limit of them (250 at once) by the difference, on the day of their admission, and answers how many; a usage
-- that got its cost meanwhile just leaves the list. Each is tried once per change of prices or rates, so that what
-- can't be priced costs nothing at later calls. Safe beside itself and beside settles. Rows of tenants that are
-- locked wait for the next call.
-- Looks without a lock first. Lock order: tenants (those that are free), reservations, department slots; rows of
-- the list that stay are marked last, when nothing is waited for any more. SQLSTATE 55P03: lock wait over 2 s.
CREATE OR REPLACE FUNCTION quota_price_unpriced(p_limit int DEFAULT 1000, p_now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_changed  timestamptz;
    v_now      timestamptz;
    -- a batch's tenants are locked while it is booked: a fraction of a second
    v_limit    int := least(greatest(p_limit, 1), 250);
    v_ready    quota_unpriced[] := '{}';
    v_tried    quota_unpriced[] := '{}';
    v_tenants  text[];
    v_bookings quota_booking[] := '{}';
    v_priced   int := 0;
    v_found    boolean := false;
    v_cost     bigint;
    v_from     record;
    w          record;
    u          quota_unpriced;
    r          quota_reservations;
    -- how many times that many rows one call looks at while none of them can be priced
    c_rounds   CONSTANT int := 40;
BEGIN
    IF NOT EXISTS (SELECT FROM quota_unpriced) THEN
        RETURN 0;
    END IF;
    SELECT greatest(max(p.loaded_at), (SELECT max(c.loaded_at) FROM quota_currency_rates c)) INTO v_changed
    FROM quota_prices p;
    SELECT '-infinity'::timestamptz AS tried_at, '' AS tenant_id, '' AS request_id INTO v_from;
    FOR v_round IN 1 .. c_rounds LOOP
        FOR w IN SELECT l AS waiting, q.unpriced, f.fault
                 FROM (SELECT n.* FROM quota_unpriced n
                       WHERE n.tried_at < v_changed
                         AND (n.tried_at, n.tenant_id, n.request_id) > (v_from.tried_at, v_from.tenant_id, v_from.request_id)
                       ORDER BY n.tried_at, n.tenant_id, n.request_id LIMIT v_limit) l
                 LEFT JOIN quota_reservations q ON q.tenant_id = l.tenant_id AND q.request_id = l.request_id
                 LEFT JOIN LATERAL quota_price_find(l.model, q.charged_in_tokens, q.admitted_at) f ON true
                 ORDER BY l.tried_at, l.tenant_id, l.request_id LOOP
            u := w.waiting;
            v_from := u;
            IF w.fault IS NULL OR w.unpriced IS NOT TRUE THEN
                v_ready := v_ready || u;
                v_found := v_found OR w.fault IS NULL AND w.unpriced IS TRUE;
            ELSE
                u.reason := w.fault;
                v_tried := v_tried || u;
            END IF;
        END LOOP;
        EXIT WHEN NOT FOUND OR v_found;
    END LOOP;

    v_tenants := quota_lock_free_tenants(ARRAY(SELECT DISTINCT n.tenant_id FROM unnest(v_ready) n));
    v_now := quota_now(p_now);
    FOR u IN SELECT n.* FROM unnest(v_ready) n WHERE n.tenant_id = ANY (v_tenants) LOOP
        SELECT * INTO r FROM quota_reservations q
        WHERE q.tenant_id = u.tenant_id AND q.request_id = u.request_id AND q.unpriced;
        IF NOT FOUND THEN
            DELETE FROM quota_unpriced n WHERE n.tenant_id = u.tenant_id AND n.request_id = u.request_id;
            CONTINUE;
        END IF;
        v_cost := quota_price(r.model, r.charged_in_tokens, r.cached_in_tokens, r.charged_out_tokens, r.admitted_at);
        IF v_cost IS NULL THEN              -- more than one call may cost, or another model meanwhile
            v_tried := v_tried || u;
            CONTINUE;
        END IF;
        BEGIN
            v_bookings := v_bookings || quota_reservation_post(
                r, r.state, r.charged_in_tokens, r.charged_out_tokens, v_cost, r.completion_counted, v_now);
            UPDATE quota_reservations q SET
                unpriced = false,
                over = NOT q.unreserved AND (q.charged_in_tokens > q.estimated_in_tokens
                           OR q.charged_out_tokens > q.estimated_out_tokens OR v_cost > q.estimated_cost_nanos)
            WHERE q.tenant_id = u.tenant_id AND q.request_id = u.request_id;
            DELETE FROM quota_unpriced n WHERE n.tenant_id = u.tenant_id AND n.request_id = u.request_id;
            v_priced := v_priced + 1;
        EXCEPTION WHEN SQLSTATE 'QW002' THEN
            v_tried := v_tried || u;        -- a counter would overflow
        END;
    END LOOP;
    -- Departments, each once.
    PERFORM quota_bookings_book(v_bookings, v_now);
    UPDATE quota_unpriced n SET tried_at = v_changed, reason = t.reason
    FROM unnest(v_tried) t
    WHERE (n.tenant_id, n.request_id) IN (
              SELECT m.tenant_id, m.request_id
              FROM unnest(v_tried) k
              JOIN quota_unpriced m ON m.tenant_id = k.tenant_id AND m.request_id = k.request_id
                                   AND m.model IS NOT DISTINCT FROM k.model
              FOR UPDATE OF m SKIP LOCKED)
      AND n.tenant_id = t.tenant_id AND n.request_id = t.request_id;
    RETURN v_priced;
END $$;

-- Puts a request on the list of those that wait for a price. Internal: under the tenant's lock.
CREATE OR REPLACE FUNCTION quota_unpriced_note(
    p_tenant text, p_request_id text, p_model text, p_in_tokens bigint, p_admitted_at timestamptz, p_now timestamptz
) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    INSERT INTO quota_unpriced (tenant_id, request_id, model, reason, since)
    SELECT p_tenant, p_request_id, p_model, coalesce(f.fault, 'unknown_model'), p_now
      FROM quota_price_find(p_model, p_in_tokens, p_admitted_at) f
        ON CONFLICT (tenant_id, request_id) DO UPDATE SET
           model = excluded.model, reason = excluded.reason, tried_at = '-infinity'
$$;
