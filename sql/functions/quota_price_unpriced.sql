-- quota_price_unpriced: prices requests whose usage came without a cost, once their price is known.
--
-- Corrects at most p_limit of them (250 at once) by the difference, on the day of their admission. Answers how many
-- rows of the list it worked off, and how many of them it priced; 0 worked off: none is left that can be tried. A
-- usage that got its cost meanwhile just leaves the list. Each is tried once per change of prices or rates, so that
-- what can't be priced costs nothing at later calls. Safe beside itself and beside settles. Rows of tenants that are
-- locked are passed over, and wait for a later call.
-- Looks without a lock first. Lock order: tenants (those that are free), reservations, department slots; rows of
-- the list that stay are marked last, when nothing is waited for any more. SQLSTATE 55P03: lock wait over 2 s.
CREATE OR REPLACE FUNCTION quota_price_unpriced(
    p_limit int DEFAULT 1000, p_now timestamptz DEFAULT NULL, OUT worked int, OUT priced int
) RETURNS record
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_changed  timestamptz;
    v_now      timestamptz;
    -- a batch's tenants are locked while it is booked: a fraction of a second
    v_limit    int := least(greatest(p_limit, 1), 250);
    v_look     record;
    v_tried    quota_unpriced[];
    v_tenants  text[];
    v_bookings quota_booking[] := '{}';
    v_marked   int;
    v_waited   boolean := false;
    c_few      CONSTANT int := 128;
    v_cost     bigint;
    u          quota_unpriced;
    r          quota_reservations;
BEGIN
    worked := 0;
    priced := 0;
    IF NOT EXISTS (SELECT FROM quota_unpriced) THEN
        RETURN;
    END IF;
    SELECT greatest(max(p.loaded_at), (SELECT max(c.loaded_at) FROM quota_currency_rates c)) INTO v_changed
    FROM quota_prices p;
    SELECT l.* INTO v_look FROM quota_unpriced_look(v_limit, v_changed) l;
    IF v_look.ready = '{}' AND v_look.tried = '{}' AND v_look.held IS NOT NULL THEN
        -- all that is left belongs to tenants that others have locked: wait for one
        PERFORM pg_advisory_xact_lock(hashtextextended(v_look.held, 1));
        v_waited := true;
        SELECT l.* INTO v_look FROM quota_unpriced_look(v_limit, v_changed) l;
    END IF;
    v_tried := v_look.tried;

    v_tenants := ARRAY(SELECT DISTINCT n.tenant_id FROM unnest(v_look.ready) n ORDER BY n.tenant_id);
    -- nobody is waited for with a tenant in hand, nor is the gate of many tenants
    v_tenants := CASE WHEN v_waited THEN quota_lock_who_is_free(v_tenants[1:c_few]) ELSE quota_lock_free_tenants(v_tenants) END;
    v_now := quota_now(p_now);
    FOR u IN SELECT n.* FROM unnest(v_look.ready) n WHERE n.tenant_id = ANY (v_tenants) LOOP
        SELECT * INTO r FROM quota_reservations q
        WHERE q.tenant_id = u.tenant_id AND q.request_id = u.request_id AND q.unpriced;
        IF NOT FOUND THEN
            DELETE FROM quota_unpriced n WHERE n.tenant_id = u.tenant_id AND n.request_id = u.request_id;
            worked := worked + 1;
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
            priced := priced + 1;
        EXCEPTION WHEN SQLSTATE 'QW002' OR numeric_value_out_of_range THEN
            v_tried := v_tried || u;        -- a counter would overflow
        END;
    END LOOP;
    -- Departments, each once.
    PERFORM quota_bookings_book(v_bookings, v_now);
    WITH kept AS MATERIALIZED (
        SELECT m.tenant_id, m.request_id, k.reason
        FROM unnest(v_tried) k
        JOIN quota_unpriced m ON m.tenant_id = k.tenant_id AND m.request_id = k.request_id
                             AND m.model IS NOT DISTINCT FROM k.model
        FOR UPDATE OF m SKIP LOCKED
    )
    UPDATE quota_unpriced n SET tried_at = v_changed, reason = t.reason
    FROM kept t WHERE n.tenant_id = t.tenant_id AND n.request_id = t.request_id;
    GET DIAGNOSTICS v_marked = ROW_COUNT;
    worked := worked + priced + v_marked;
END $$;

-- What waits for the prices of p_changed, oldest try first: ready, at most p_limit that may be priced now, and tried,
-- those of the rows before them that can't. A model that has no price at all is looked up once in so many rows.
-- Rows of locked tenants are passed over; held: one of these tenants. Takes no locks.
CREATE OR REPLACE FUNCTION quota_unpriced_look(
    p_limit int, p_changed timestamptz, OUT ready quota_unpriced[], OUT tried quota_unpriced[], OUT held text
) RETURNS record
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_rows   quota_unpriced[];
    v_free   text[];
    v_from   quota_unpriced;
    -- why a model has no price at all; NULL: it has one
    v_none   jsonb;
    v_name   text;
    v_fault  text;
    w        record;
    u        quota_unpriced;
    -- one call reads so many times so many rows, and tries so many that can't be priced
    c_reads  CONSTANT int := 1000;
    c_rows   CONSTANT int := 1000;
    c_tries  CONSTANT int := 5000;
BEGIN
    ready := '{}';
    tried := '{}';
    v_from.tried_at := '-infinity';
    v_from.tenant_id := '';
    v_from.request_id := '';
    FOR v_read IN 1 .. c_reads LOOP
        SELECT array_agg(l ORDER BY l.tried_at, l.tenant_id, l.request_id) INTO v_rows
        FROM (SELECT n.* FROM quota_unpriced n
              WHERE n.tried_at < p_changed
                AND (n.tried_at, n.tenant_id, n.request_id) > (v_from.tried_at, v_from.tenant_id, v_from.request_id)
              ORDER BY n.tried_at, n.tenant_id, n.request_id LIMIT c_rows) l;
        EXIT WHEN v_rows IS NULL;
        v_none := '{}';
        v_from := v_rows[cardinality(v_rows)];
        v_free := quota_tenants_free(ARRAY(SELECT DISTINCT n.tenant_id FROM unnest(v_rows) n));
        IF held IS NULL THEN
            SELECT n.tenant_id INTO held FROM unnest(v_rows) n WHERE n.tenant_id <> ALL (v_free) LIMIT 1;
        END IF;
        FOR u IN SELECT n.* FROM unnest(v_rows) n WHERE n.tenant_id = ANY (v_free) LOOP
            EXIT WHEN cardinality(ready) >= p_limit;
            SELECT q.unpriced, q.charged_in_tokens, q.admitted_at INTO w
            FROM quota_reservations q WHERE q.tenant_id = u.tenant_id AND q.request_id = u.request_id;
            IF w.unpriced IS NOT TRUE THEN
                ready := ready || u;        -- has its cost, or is gone: to be taken off the list
                CONTINUE;
            END IF;
            v_name := coalesce('=' || u.model, '');
            IF NOT v_none ? v_name THEN
                SELECT f.fault INTO v_fault FROM quota_price_find(u.model, 0, 'infinity') f;
                v_none := v_none || jsonb_build_object(
                    v_name, CASE WHEN v_fault IN ('no_model', 'unknown_model') THEN v_fault END);
            END IF;
            v_fault := v_none ->> v_name;
            IF v_fault IS NULL THEN
                SELECT f.fault INTO v_fault FROM quota_price_find(u.model, w.charged_in_tokens, w.admitted_at) f;
            END IF;
            IF v_fault IS NULL THEN
                ready := ready || u;
            ELSE
                u.reason := v_fault;
                tried := tried || u;
            END IF;
        END LOOP;
        EXIT WHEN cardinality(ready) >= p_limit OR cardinality(tried) >= c_tries;
    END LOOP;
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
