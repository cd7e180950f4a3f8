-- Settles what a usage source told, through quota_settle_batch: at most 1,000 usages in one transaction.
--
-- p_usages: an array of objects {tenant, request_id, usage_id, in_tokens, out_tokens, cached_in_tokens, model, cost,
-- currency}; cost is a decimal text in the currency, NULL where unknown; currency NULL: the billing currency.
-- Outcomes, with the ordinal (from 1): those of quota_settle_batch, and
--   overtaken  usage has come from elsewhere while the source was asked: that stays
--   locked     somebody holds the tenant: nothing was done, call again; with p_keep
--   kept       it was put into the usage inbox, which the next reconcile books
-- A cost in a currency without a rate is left out, and the usage settled without it; that, conflict and invalid are
-- set aside by name in the same transaction.
-- Lock order: tenants, reservations, department slots, each sorted; then the notes. SQLSTATEs: QW002, 55P03.
CREATE OR REPLACE FUNCTION quota_source_settle(
    p_source text, p_usages jsonb, p_keep boolean DEFAULT false, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (ordinal int, outcome text)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now    timestamptz;
    v_free   text[];
    v_told   jsonb;
    v_ends   jsonb;
    v_faults jsonb;
BEGIN
    PERFORM quota_batch_check(p_usages, 'quota_source_settle');
    IF p_keep THEN
        -- nothing is lost without a wait; the setting ends with this function
        PERFORM set_config('lock_timeout', '100ms', true);
    END IF;
    BEGIN
        v_free := quota_lock_free_tenants(ARRAY(SELECT DISTINCT e ->> 'tenant' FROM jsonb_array_elements(p_usages) e));
    EXCEPTION WHEN lock_not_available THEN
        v_free := '{}';  -- somebody holds them all
    END;
    v_now := quota_now(p_now);
    -- Under the lock: does the reservation still lack its usage?
    SELECT jsonb_agg(e || jsonb_build_object(
               'ordinal', n,
               'passed', CASE WHEN (e ->> 'tenant' = ANY (v_free)) IS NOT TRUE
                                   THEN CASE WHEN p_keep THEN 'kept' ELSE 'locked' END
                              WHEN (r.ended_at IS NULL OR r.usage_missing) IS NOT TRUE OR r.tenant_id IS NULL THEN 'overtaken' END,
               'cost_nanos', quota_source_cost((e ->> 'cost')::numeric, e ->> 'currency', r.period)) ORDER BY n)
      INTO v_told
      FROM jsonb_array_elements(p_usages) WITH ORDINALITY AS a (e, n)
          LEFT JOIN quota_reservations r ON r.tenant_id = e ->> 'tenant' AND r.request_id = e ->> 'request_id';

    INSERT INTO quota_usage_inbox (tenant_id, request_id, usage_id, input_tokens, output_tokens, cached_in_tokens, cost_nanos, model)
    SELECT u ->> 'tenant', u ->> 'request_id', u ->> 'usage_id', (u ->> 'in_tokens')::bigint, (u ->> 'out_tokens')::bigint,
           (u ->> 'cached_in_tokens')::bigint, (u ->> 'cost_nanos')::bigint, u ->> 'model'
    FROM jsonb_array_elements(v_told) AS u WHERE u ->> 'passed' = 'kept';

    WITH lacking AS MATERIALIZED (
        SELECT u, (u ->> 'ordinal')::int AS told_ordinal, row_number() OVER (ORDER BY (u ->> 'ordinal')::int) AS batch_ordinal
        FROM jsonb_array_elements(v_told) AS u WHERE u ->> 'passed' IS NULL
    ), ended AS MATERIALIZED (
        SELECT s.ordinal AS batch_ordinal, s.outcome
        FROM quota_settle_batch((SELECT coalesce(jsonb_agg(jsonb_build_object(
                     'tenant', k.u -> 'tenant', 'request_id', k.u -> 'request_id', 'usage_id', k.u -> 'usage_id',
                     'in_tokens', k.u -> 'in_tokens', 'out_tokens', k.u -> 'out_tokens', 'cost_nanos', k.u -> 'cost_nanos',
                     'cached_in_tokens', k.u -> 'cached_in_tokens', 'model', k.u -> 'model') ORDER BY k.batch_ordinal), '[]')
                     FROM lacking k), v_now) s
    )
    SELECT jsonb_object_agg(k.told_ordinal, s.outcome) INTO v_ends FROM lacking k JOIN ended s USING (batch_ordinal);

    SELECT jsonb_agg(jsonb_build_object('tenant', u -> 'tenant', 'request_id', u -> 'request_id') || CASE
               WHEN v_ends ->> (u ->> 'ordinal') IN ('conflict', 'invalid') THEN jsonb_build_object(
                   'reason', v_ends ->> (u ->> 'ordinal'),
                   'excerpt', CASE v_ends ->> (u ->> 'ordinal')
                       WHEN 'conflict' THEN 'this usage id came with other figures before'
                       ELSE 'beyond what the ledger takes, 10^15 nanos of cost' END)
               ELSE jsonb_build_object('reason', 'no_rate',
                   'excerpt', 'no rate for ' || (u ->> 'currency') || ' on the day of the request: settled without its cost')
               END)
      INTO v_faults
      FROM jsonb_array_elements(v_told) AS u
     WHERE u ->> 'passed' IS NULL
       AND (v_ends ->> (u ->> 'ordinal') IN ('conflict', 'invalid')
            OR u ->> 'cost' IS NOT NULL AND u ->> 'cost_nanos' IS NULL);
    IF v_faults IS NOT NULL THEN
        PERFORM quota_source_set_aside(p_source, v_faults, v_now);
    END IF;

    RETURN QUERY
    SELECT (u ->> 'ordinal')::int, coalesce(u ->> 'passed', v_ends ->> (u ->> 'ordinal'))
    FROM jsonb_array_elements(v_told) AS u ORDER BY 1;
END $$;

-- A source's cost in nanos of the billing currency, to the nearest nano (half a nano up), by the latest rate of the day or
-- before it; NULL where there is none. One that no bigint holds is the largest, which the ledger refuses.
CREATE OR REPLACE FUNCTION quota_source_cost(p_cost numeric, p_currency text, p_day date) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_rate numeric := 1;
BEGIN
    IF p_cost IS NULL THEN
        RETURN NULL;
    END IF;
    IF p_currency <> (SELECT s.currency FROM quota_settings s) THEN
        SELECT q.rate INTO v_rate FROM quota_currency_rates q
        WHERE q.currency = p_currency AND q.valid_from <= p_day ORDER BY q.valid_from DESC LIMIT 1;
    END IF;
    -- least() would pass over a rate that isn't there
    RETURN CASE WHEN v_rate IS NOT NULL THEN least(round(p_cost * v_rate * 1000000000), 8000000000000000000)::bigint END;
END $$;
