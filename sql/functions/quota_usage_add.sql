-- Adds to one day of a tenant: the only place, beside the short path of quota_reserve, that changes counters.
-- The caller holds the tenant's lock. Amounts may be negative; a counter that a legacy program lowered stops
-- at zero, and what was cut is kept in legacy_*, so that used = held + charged + legacy stays true.
-- p_legacy: the charge has no request. SQLSTATE QW002 where a counter would overflow.
-- What is added may pass a threshold: that is told at once (quota_crossing_tenant), asked for only where the ceilings of
-- the day don't rule it out.
CREATE OR REPLACE FUNCTION quota_usage_add(
    p_tenant text, p_period date,
    p_completions bigint, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_held_in_tokens bigint, p_held_out_tokens bigint, p_held_cost_nanos bigint, p_legacy boolean
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_later boolean;
    v_more  boolean := p_completions > 0 OR p_in_tokens > 0 OR p_out_tokens > 0 OR p_cost_nanos > 0;
    v_less  boolean := p_completions < 0 OR p_in_tokens < 0 OR p_out_tokens < 0 OR p_cost_nanos < 0;
    c_max   CONSTANT numeric := 9223372036854775807;
BEGIN
    IF NOT p_legacy THEN
        UPDATE quota_usage u SET
            completions          = u.completions + p_completions,
            input_tokens         = u.input_tokens + p_in_tokens,
            output_tokens        = u.output_tokens + p_out_tokens,
            cost_cents           = u.cost_cents + quota_cents(u.cost_subcent_nanos + p_cost_nanos),
            cost_subcent_nanos   = quota_subcent(u.cost_subcent_nanos + p_cost_nanos),
            held_input_tokens    = greatest(u.held_input_tokens + p_held_in_tokens, 0),
            held_output_tokens   = greatest(u.held_output_tokens + p_held_out_tokens, 0),
            held_cost_nanos      = greatest(u.held_cost_nanos + p_held_cost_nanos, 0),
            booked_completions   = u.booked_completions + p_completions,
            booked_input_tokens  = u.booked_input_tokens + p_in_tokens,
            booked_output_tokens = u.booked_output_tokens + p_out_tokens,
            booked_cost_nanos    = u.booked_cost_nanos + p_cost_nanos
        WHERE u.tenant_id = p_tenant AND u.period = p_period
          AND u.completions BETWEEN greatest(-p_completions, 0) AND 4000000000000000000
          AND u.input_tokens BETWEEN greatest(-p_in_tokens, 0) AND 4000000000000000000
          AND u.output_tokens BETWEEN greatest(-p_out_tokens, 0) AND 4000000000000000000
          AND u.cost_cents BETWEEN 0 AND 100000000000
          AND u.cost_cents * 10000000 + u.cost_subcent_nanos + p_cost_nanos >= 0
        RETURNING EXISTS (SELECT FROM quota_usage f WHERE f.tenant_id = p_tenant AND f.period > u.period + 1),
                  v_less AND u.line_passed
        INTO v_later, v_less;
    END IF;

    IF p_legacy OR NOT FOUND THEN
        -- Rare: a first row, a charge without a request, a counter near zero or near its end.
        INSERT INTO quota_usage (tenant_id, period) VALUES (p_tenant, p_period) ON CONFLICT DO NOTHING;
        IF p_legacy THEN
            PERFORM quota_legacy_place(ARRAY[p_tenant], p_period);
        END IF;
        IF EXISTS (SELECT FROM quota_usage u WHERE u.tenant_id = p_tenant AND u.period = p_period AND (
                       u.completions::numeric + p_completions > c_max
                       OR u.input_tokens::numeric + p_in_tokens > c_max
                       OR u.output_tokens::numeric + p_out_tokens > c_max
                       OR greatest(u.booked_cost_nanos, u.legacy_cost_nanos)::numeric + p_cost_nanos > c_max
                       OR u.cost_cents::numeric * 10000000 + p_cost_nanos > c_max * 10000000)) THEN
            RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'the amounts would overflow a counter of this tenant''s day',
                HINT = 'Check the amounts, and the counters in quota_usage for a wrong direct UPDATE.';
        END IF;
        -- cut_*: how much of a lowering is not carried out, so that no counter falls below zero
        UPDATE quota_usage u SET
            completions          = coalesce(u.completions, 0) + p_completions + k.cut_completions,
            input_tokens         = coalesce(u.input_tokens, 0) + p_in_tokens + k.cut_in,
            output_tokens        = coalesce(u.output_tokens, 0) + p_out_tokens + k.cut_out,
            cost_cents           = coalesce(u.cost_cents, 0)
                                   + quota_cents(u.cost_subcent_nanos + p_cost_nanos + k.cut_cost),
            cost_subcent_nanos   = quota_subcent(u.cost_subcent_nanos + p_cost_nanos + k.cut_cost),
            held_input_tokens    = greatest(u.held_input_tokens + p_held_in_tokens, 0),
            held_output_tokens   = greatest(u.held_output_tokens + p_held_out_tokens, 0),
            held_cost_nanos      = greatest(u.held_cost_nanos + p_held_cost_nanos, 0),
            booked_completions   = u.booked_completions + p_completions + k.cut_completions,
            booked_input_tokens  = u.booked_input_tokens + p_in_tokens + k.cut_in,
            booked_output_tokens = u.booked_output_tokens + p_out_tokens + k.cut_out,
            booked_cost_nanos    = u.booked_cost_nanos + p_cost_nanos + k.cut_cost,
            legacy_completions   = u.legacy_completions + k.cut_completions + CASE WHEN p_legacy THEN p_completions ELSE 0 END,
            legacy_input_tokens  = u.legacy_input_tokens + k.cut_in + CASE WHEN p_legacy THEN p_in_tokens ELSE 0 END,
            legacy_output_tokens = u.legacy_output_tokens + k.cut_out + CASE WHEN p_legacy THEN p_out_tokens ELSE 0 END,
            legacy_cost_nanos    = u.legacy_cost_nanos + k.cut_cost + CASE WHEN p_legacy THEN p_cost_nanos ELSE 0 END
        FROM (SELECT least(greatest(-(coalesce(o.completions, 0)::numeric + p_completions), 0),
                           greatest(-p_completions, 0))::bigint AS cut_completions,
                     least(greatest(-(coalesce(o.input_tokens, 0)::numeric + p_in_tokens), 0),
                           greatest(-p_in_tokens, 0))::bigint AS cut_in,
                     least(greatest(-(coalesce(o.output_tokens, 0)::numeric + p_out_tokens), 0),
                           greatest(-p_out_tokens, 0))::bigint AS cut_out,
                     least(greatest(-(coalesce(o.cost_cents, 0)::numeric * 10000000 + o.cost_subcent_nanos + p_cost_nanos), 0),
                           greatest(-p_cost_nanos, 0))::bigint AS cut_cost
              FROM quota_usage o WHERE o.tenant_id = p_tenant AND o.period = p_period) k
        WHERE u.tenant_id = p_tenant AND u.period = p_period
        RETURNING EXISTS (SELECT FROM quota_usage f WHERE f.tenant_id = p_tenant AND f.period > u.period + 1)
        INTO v_later;
    END IF;

    -- Ceilings of later days of the month were drawn with this day's sum in them.
    IF v_later THEN
        UPDATE quota_usage u SET limits_ctid = NULL, limits_xmin = NULL
        WHERE u.tenant_id = p_tenant AND u.period > p_period + 1
          AND u.period < (quota_month(p_period) + interval '1 month')::date AND u.limits_ctid IS NOT NULL;
    END IF;

    IF v_more AND NOT quota_ceilings_hold(p_tenant, p_period) THEN
        PERFORM quota_crossing_tenant(p_tenant, p_period, p_completions, p_in_tokens, p_out_tokens, p_cost_nanos);
    END IF;
    IF v_less THEN
        -- perhaps back below a threshold: the ceilings are to end there again
        PERFORM quota_ceilings_draw((SELECT l FROM tenant_limits l WHERE l.tenant_id = p_tenant), p_period);
    END IF;
END $$;

-- Whole cents of a count of nanos, and the rest (0 to 9,999,999), rounding down for negatives too.
CREATE OR REPLACE FUNCTION quota_cents(p_nanos bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT (p_nanos - ((p_nanos % 10000000) + 10000000) % 10000000) / 10000000 $$;

CREATE OR REPLACE FUNCTION quota_subcent(p_nanos bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT ((p_nanos % 10000000) + 10000000) % 10000000 $$;
