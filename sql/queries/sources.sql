-- name: begin_asking
SELECT quota_source_begin($1::timestamptz) AS begun_at;

-- name: due_reservations
SELECT tenant_id, request_id, expires_at
  FROM quota_source_due($1::boolean, $2::timestamptz, $3::timestamptz, $4::integer, $5::timestamptz);

-- name: note_asked
SELECT quota_source_asked($1::text[], $2::text[], $3::timestamptz) AS noted;

-- name: settle_told
SELECT ordinal, outcome FROM quota_source_settle($1::text, $2::text::jsonb, $3::boolean, $4::timestamptz);

-- name: set_aside
SELECT quota_source_set_aside($1::text, $2::text::jsonb, $3::timestamptz) AS kept;

-- name: source_slot
SELECT quota_source_slot($1::text, $2::integer, $3::double precision) AS wait_seconds;

-- name: limit_statement
-- For the transaction on the source's own database, whichever pooler stands before it.
SELECT set_config('statement_timeout', $1::text, true) AS milliseconds;

-- name: source_faults
-- Times as the billing zone's clocks show them.
SELECT f.seen_at AT TIME ZONE quota_zone() AS seen_local, quota_zone() AS zone, f.source, f.reason, f.tenant_id, f.request_id,
       f.times, f.excerpt
  FROM quota_source_faults f
 WHERE $1::text IS NULL OR f.source = $1::text
 ORDER BY f.seen_at DESC, f.tenant_id, f.request_id, f.source, f.reason
 LIMIT $2::integer;

-- name: fault_sources
SELECT DISTINCT f.source FROM quota_source_faults f ORDER BY f.source LIMIT $1::integer;
