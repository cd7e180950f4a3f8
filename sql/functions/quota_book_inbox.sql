-- Books usage that gateways left in the inbox: one batch, oldest first.
--
-- One row out: taken (rows looked at), booked (settled, replayed, corrected, unreserved),
-- refused (conflict, invalid: kept with that outcome, for somebody to look at).
-- Each row is booked once: a second run takes only rows that wait. Two runs side by side
-- take different rows. Rows of tenants that are locked wait for the next run, so that one stuck tenant doesn't
-- hold up the others, whatever the number of its rows. p_limit is at most 1,000, the bound of quota_settle_batch, which
-- takes the locks (tenant, reservation, department, each sorted) after the inbox rows.
-- SQLSTATE: 55P03 when one of them stays locked; then nothing of the batch is booked.
CREATE OR REPLACE FUNCTION quota_book_inbox(
    p_limit      integer DEFAULT 1000,
    p_now        timestamptz DEFAULT NULL,
    OUT taken    integer,
    OUT booked   integer,
    OUT refused  integer
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_tenants text[];
BEGIN
    taken := 0;
    booked := 0;
    refused := 0;
    -- most of the time nothing waits: don't plan and call the batch for that
    IF NOT EXISTS (SELECT 1 FROM quota_usage_inbox i WHERE i.booked_at IS NULL) THEN
        RETURN;
    END IF;
    v_tenants := quota_inbox_lock();
    WITH waiting AS MATERIALIZED (
        SELECT i.tenant_id, i.inbox_id, i.request_id, i.usage_id, i.input_tokens,
               i.output_tokens, i.cached_in_tokens, i.cost_nanos, i.model, i.processing
          FROM quota_usage_inbox i
         WHERE i.booked_at IS NULL AND i.tenant_id = ANY (v_tenants)
         ORDER BY i.inbox_id
         LIMIT LEAST(p_limit, 1000)
           FOR UPDATE SKIP LOCKED
    ), numbered AS MATERIALIZED (
        SELECT w.*, row_number() OVER (ORDER BY w.inbox_id) AS ordinal FROM waiting w
    ), settled AS MATERIALIZED (
        SELECT s.ordinal, s.outcome
          FROM quota_settle_batch(
                   (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                               'tenant', n.tenant_id, 'request_id', n.request_id,
                               'in_tokens', n.input_tokens, 'out_tokens', n.output_tokens,
                               'cost_nanos', n.cost_nanos, 'usage_id', n.usage_id,
                               'model', CASE WHEN n.processing = 'batch' THEN quota_batch_model(n.tenant_id, n.request_id, n.model)
                                             ELSE n.model END,
                               'cached_in_tokens', n.cached_in_tokens)
                               ORDER BY n.ordinal), '[]')
                      FROM numbered n), p_now) s
    ), marked AS (
        UPDATE quota_usage_inbox i
           SET booked_at = COALESCE(p_now, clock_timestamp()), outcome = s.outcome
          FROM numbered n JOIN settled s ON s.ordinal = n.ordinal
         WHERE i.tenant_id = n.tenant_id AND i.inbox_id = n.inbox_id
        RETURNING i.outcome
    )
    SELECT count(*), count(*) FILTER (WHERE m.outcome NOT IN ('invalid', 'conflict')),
           count(*) FILTER (WHERE m.outcome IN ('invalid', 'conflict'))
      INTO taken, booked, refused
      FROM marked m;
END
$$;

-- Locks the tenants whose rows are booked next: of the oldest waiting rows, those that nobody has locked, 1,000 at
-- most. Where all have somebody's lock the rows behind them are looked at; where all of those do, too, waits for one.
CREATE OR REPLACE FUNCTION quota_inbox_lock() RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_stuck  text[] := '{}';
    v_new    text[];
    v_locked text[];
    v_from   bigint := 0;
    v_rows   bigint;
    -- one call reads so many times so many rows
    c_reads  CONSTANT int := 500;
    c_rows   CONSTANT int := 20000;
BEGIN
    FOR v_read IN 1 .. c_reads LOOP
        SELECT array_agg(DISTINCT w.tenant_id) FILTER (WHERE w.tenant_id <> ALL (v_stuck)), max(w.inbox_id), count(*)
          INTO v_new, v_from, v_rows
          FROM (SELECT i.tenant_id, i.inbox_id FROM quota_usage_inbox i
                 WHERE i.booked_at IS NULL AND i.inbox_id > v_from ORDER BY i.inbox_id LIMIT c_rows) w;
        v_locked := quota_lock_who_is_free(quota_tenants_free(v_new));
        IF v_locked <> '{}' THEN
            RETURN v_locked;
        END IF;
        v_stuck := v_stuck || v_new;
        EXIT WHEN v_rows < c_rows;
    END LOOP;
    RETURN quota_lock_free_tenants(v_stuck);
END $$;

-- The name under which a batch request's model has its price: the usage's model, else the reservation's, with the
-- suffix :batch; NULL where neither tells.
CREATE OR REPLACE FUNCTION quota_batch_model(p_tenant text, p_request_id text, p_model text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN lower(m.model) LIKE '%:batch' THEN m.model ELSE m.model || ':batch' END
    FROM (SELECT coalesce(p_model, (SELECT r.model FROM quota_reservations r
                                    WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id)) AS model) m
$$;
