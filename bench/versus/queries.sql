-- name: tenants
-- Tenants that are warned of one cap, and that no rate limit holds up.
INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens, daily_output_tokens, daily_cost_cents,
                           monthly_cost_cents, bucket_capacity, bucket_refill_per_sec, soft_warn_pct, daily_tokens)
SELECT format('alert-%s', n), NULL, NULL, NULL, NULL, NULL, 1000, 1000, 80, 1000
  FROM generate_series(1, $1::int) AS n

-- name: reserve
SELECT r.allowed FROM quota_reserve($1, $1 || '-request', 850, 0, 0, 'model', 'app') AS r

-- name: settle
SELECT s.outcome FROM quota_settle($1, $1 || '-request', 850, 0, 0) AS s

-- name: waiting
SELECT o.subject FROM quota_outbox o WHERE o.state IN ('pending', 'sending')

-- name: attempts
SELECT coalesce(sum(o.attempts), 0)::int FROM quota_outbox o

-- name: analyze
ANALYZE
