-- name: reserve
SELECT allowed, reason, observed_reason, replayed, tier, model
  FROM quota_reserve($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint,
                     p_model => $6::text, p_app => $7::text, p_priority => $8::text,
                     p_now => $9::timestamptz);

-- name: progress
SELECT outcome FROM quota_progress($1::text, $2::text, $3::bigint, $4::timestamptz);

-- name: settle
SELECT outcome, in_tokens, out_tokens, cost_nanos
  FROM quota_settle($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint,
                    p_now => $6::timestamptz);

-- name: release
SELECT outcome FROM quota_release($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint,
                                  $6::timestamptz);

-- name: create_tenants
INSERT INTO tenant_limits (tenant_id)
SELECT t.tenant_id FROM unnest($1::text[]) AS t (tenant_id)
ON CONFLICT DO NOTHING;

-- name: missing_tenants
SELECT t.tenant_id
  FROM unnest($1::text[]) AS t (tenant_id)
 WHERE NOT EXISTS (SELECT 1 FROM tenant_limits l WHERE l.tenant_id = t.tenant_id)
 ORDER BY t.tenant_id;

-- name: lanes
SELECT l.tenant_id,
       CASE WHEN l.department_id IS NULL THEN 'tenant ' || l.tenant_id
            ELSE 'department ' || l.department_id || ' ' || l.environment END AS lane
  FROM tenant_limits l
 WHERE l.tenant_id = ANY ($1::text[]);
