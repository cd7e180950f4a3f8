-- What the migrate command asks besides its script.

-- name: transaction_schema
SELECT current_schema()::text AS schema_name

-- name: applied_migrations
SELECT name FROM quota_migrations ORDER BY name

-- name: missing_roles
SELECT r.rolname
  FROM unnest(ARRAY['quota_gateway', 'quota_worker', 'quota_reader']) AS r (rolname)
 WHERE NOT EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r.rolname)
 ORDER BY 1
