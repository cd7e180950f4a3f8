-- The database of the tutorial that many users started from, with its faults.
CREATE TABLE rate_buckets (
    tenant_id      text PRIMARY KEY,
    tokens         double precision NOT NULL DEFAULT 0,
    capacity       double precision NOT NULL DEFAULT 10,
    refill_rate    double precision NOT NULL DEFAULT 1,
    last_refill_at timestamptz      NOT NULL DEFAULT now()
);

CREATE TABLE quota_usage (
    tenant_id     text   NOT NULL,
    period        date   NOT NULL,
    completions   bigint NOT NULL DEFAULT 0,
    input_tokens  bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cost_cents    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, period)
);

CREATE TABLE tenant_limits (
    tenant_id             text PRIMARY KEY,
    daily_completions     int              NOT NULL DEFAULT 1000,
    daily_input_tokens    bigint           NOT NULL DEFAULT 2000000,
    daily_output_tokens   bigint           NOT NULL DEFAULT 500000,
    daily_cost_cents      bigint           NOT NULL DEFAULT 5000,
    monthly_cost_cents    bigint           NOT NULL DEFAULT 50000,
    bucket_capacity       double precision NOT NULL DEFAULT 10,
    bucket_refill_per_sec double precision NOT NULL DEFAULT 1,
    soft_warn_pct         int              NOT NULL DEFAULT 80
);

CREATE OR REPLACE FUNCTION quota_check_and_charge(
    p_tenant text, p_in_tokens bigint, p_out_tokens bigint, p_cost_cents bigint
) RETURNS TABLE (allowed boolean, reason text) LANGUAGE plpgsql AS $$
DECLARE
    v_limits tenant_limits%ROWTYPE;
    v_bucket rate_buckets%ROWTYPE;
    v_usage  quota_usage%ROWTYPE;
    v_tokens double precision;
BEGIN
    SELECT * INTO v_limits FROM tenant_limits WHERE tenant_id = p_tenant;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, 'unknown_tenant'; RETURN;
    END IF;
    SELECT * INTO v_bucket FROM rate_buckets WHERE tenant_id = p_tenant FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO rate_buckets (tenant_id, tokens, capacity, refill_rate)
        VALUES (p_tenant, v_limits.bucket_capacity, v_limits.bucket_capacity, v_limits.bucket_refill_per_sec)
        ON CONFLICT DO NOTHING;
        v_tokens := v_limits.bucket_capacity;
    ELSE
        v_tokens := LEAST(v_bucket.capacity, v_bucket.tokens
            + EXTRACT(EPOCH FROM now() - v_bucket.last_refill_at) * v_bucket.refill_rate);
    END IF;
    IF v_tokens < 1 THEN
        RETURN QUERY SELECT false, 'rate_limited'; RETURN;
    END IF;
    UPDATE rate_buckets SET tokens = v_tokens - 1, last_refill_at = now() WHERE tenant_id = p_tenant;
    SELECT * INTO v_usage FROM quota_usage
     WHERE tenant_id = p_tenant AND period = CURRENT_DATE FOR UPDATE;
    IF FOUND AND v_usage.completions >= v_limits.daily_completions THEN
        RETURN QUERY SELECT false, 'daily_cap_reached'; RETURN;
    END IF;
    INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens, cost_cents)
    VALUES (p_tenant, CURRENT_DATE, 1, p_in_tokens, p_out_tokens, p_cost_cents)
    ON CONFLICT (tenant_id, period) DO UPDATE
       SET completions = quota_usage.completions + 1,
           input_tokens = quota_usage.input_tokens + EXCLUDED.input_tokens,
           output_tokens = quota_usage.output_tokens + EXCLUDED.output_tokens,
           cost_cents = quota_usage.cost_cents + EXCLUDED.cost_cents;
    RETURN QUERY SELECT true, 'ok';
END;
$$;

CREATE OR REPLACE VIEW v_quota_status AS
SELECT l.tenant_id,
       CURRENT_DATE AS period,
       COALESCE(u.completions, 0) AS completions_used,
       l.daily_completions AS completions_cap,
       ROUND(100.0 * COALESCE(u.completions, 0) / NULLIF(l.daily_completions, 0), 1) AS completions_pct,
       COALESCE(u.cost_cents, 0) AS cost_used_cents,
       l.daily_cost_cents AS cost_cap_cents,
       ROUND(100.0 * COALESCE(u.cost_cents, 0) / NULLIF(l.daily_cost_cents, 0), 1) AS cost_pct
  FROM tenant_limits l
  LEFT JOIN quota_usage u ON u.tenant_id = l.tenant_id AND u.period = CURRENT_DATE;

INSERT INTO tenant_limits (tenant_id, daily_completions, daily_cost_cents, bucket_capacity, bucket_refill_per_sec)
VALUES ('tenant-free', 50, 200, 2, 0.5), ('tenant-pro', 2000, 5000, 10, 2), ('tenant-abuser', 5, 100, 1, 0.1);
INSERT INTO tenant_limits (tenant_id, daily_completions, soft_warn_pct) VALUES ('tenant-odd', -3, 500);
INSERT INTO rate_buckets (tenant_id, tokens, capacity, refill_rate) VALUES ('tenant-free', 1.5, 2, 0.5);
INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens, cost_cents)
VALUES ('tenant-free', CURRENT_DATE - 1, 12, 1200, 340, 60), ('tenant-free', CURRENT_DATE, 41, 4100, 900, 82),
       ('tenant-pro', CURRENT_DATE, 7, 70000, 9000, 410), ('tenant-pro', DATE '2025-01-31', -1, 5, -6, 0);
