-- What quota_reserve is measured against. Everything lies in the schema bench, next to the ledger.

CREATE SCHEMA bench;

-- What people have today: one bucket row per tenant, one usage row per tenant and day. The caps stand in
-- the bucket's row, so that exactly two tables are touched: leaner than a function with a table of limits.
CREATE TABLE bench.buckets (
    tenant_id           text             NOT NULL,
    tokens              double precision NOT NULL,
    capacity            double precision NOT NULL,
    refill_rate         double precision NOT NULL,
    last_refill_at      timestamptz      NOT NULL DEFAULT now(),
    daily_completions   bigint           NOT NULL,
    daily_input_tokens  bigint           NOT NULL,
    daily_output_tokens bigint           NOT NULL,
    daily_cost_cents    bigint           NOT NULL,
    CONSTRAINT buckets_pkey PRIMARY KEY (tenant_id)
);

CREATE TABLE bench.usage (
    tenant_id     text   NOT NULL,
    period        date   NOT NULL,
    completions   bigint NOT NULL DEFAULT 0,
    input_tokens  bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cost_cents    bigint NOT NULL DEFAULT 0,
    CONSTRAINT usage_pkey PRIMARY KEY (tenant_id, period)
);

-- Locks the bucket, checks the day's caps and the bucket, takes a token, adds to the day. A refusal locks
-- the bucket's row, as it must, and writes nothing else.
CREATE FUNCTION bench.two_table(p_tenant text, p_in_tokens bigint, p_out_tokens bigint, p_cost_cents bigint)
RETURNS TABLE (allowed boolean, reason text)
LANGUAGE plpgsql
AS $$
DECLARE
    v_bucket bench.buckets;
    v_usage  bench.usage;
    v_tokens double precision;
BEGIN
    SELECT b.* INTO v_bucket FROM bench.buckets b WHERE b.tenant_id = p_tenant FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, 'unknown_tenant';
        RETURN;
    END IF;
    SELECT u.* INTO v_usage FROM bench.usage u WHERE u.tenant_id = p_tenant AND u.period = current_date;
    IF coalesce(v_usage.completions, 0) + 1 > v_bucket.daily_completions THEN
        RETURN QUERY SELECT false, 'daily_cap_reached';
        RETURN;
    ELSIF coalesce(v_usage.input_tokens, 0) + p_in_tokens > v_bucket.daily_input_tokens THEN
        RETURN QUERY SELECT false, 'daily_input_tokens_reached';
        RETURN;
    ELSIF coalesce(v_usage.output_tokens, 0) + p_out_tokens > v_bucket.daily_output_tokens THEN
        RETURN QUERY SELECT false, 'daily_output_tokens_reached';
        RETURN;
    ELSIF coalesce(v_usage.cost_cents, 0) + p_cost_cents > v_bucket.daily_cost_cents THEN
        RETURN QUERY SELECT false, 'daily_cost_reached';
        RETURN;
    END IF;
    v_tokens := least(v_bucket.capacity, v_bucket.tokens
                      + extract(epoch FROM now() - v_bucket.last_refill_at) * v_bucket.refill_rate);
    IF v_tokens < 1 THEN
        RETURN QUERY SELECT false, 'rate_limited';
        RETURN;
    END IF;
    UPDATE bench.buckets b SET tokens = v_tokens - 1, last_refill_at = now() WHERE b.tenant_id = p_tenant;
    INSERT INTO bench.usage AS u (tenant_id, period, completions, input_tokens, output_tokens, cost_cents)
    VALUES (p_tenant, current_date, 1, p_in_tokens, p_out_tokens, p_cost_cents)
    ON CONFLICT (tenant_id, period) DO UPDATE SET
        completions   = u.completions + 1,
        input_tokens  = u.input_tokens + p_in_tokens,
        output_tokens = u.output_tokens + p_out_tokens,
        cost_cents    = u.cost_cents + p_cost_cents;
    RETURN QUERY SELECT true, 'ok';
END $$;

-- The floor: one row, one column, one durable commit.
CREATE TABLE bench.floor (
    tenant_id text   NOT NULL,
    used      bigint NOT NULL DEFAULT 0,
    CONSTRAINT floor_pkey PRIMARY KEY (tenant_id)
);
