-- name: load
SELECT bench.load($1, $2, $3, $4)

-- name: settings
SELECT s.name, current_setting(s.name) AS value
FROM pg_settings s
WHERE s.name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method', 'shared_buffers',
                 'max_wal_size', 'checkpoint_timeout', 'autovacuum', 'server_version')
ORDER BY s.name

-- name: reservations
SELECT count(*) FROM quota_reservations r

-- name: settled
SELECT count(*) FROM quota_reservations r WHERE r.state = 'settled'

-- name: refusals
SELECT coalesce(sum(f.count), 0)::bigint FROM quota_refusals f

-- name: two_table_calls
SELECT sum(u.completions)::bigint FROM bench.usage u

-- name: floor_calls
SELECT sum(f.used)::bigint FROM bench.floor f

-- name: department_tiers
SELECT coalesce(string_agg(DISTINCT v.tier, ', '), 'none') FROM v_department_status v

-- name: next_transaction_id
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- name: table_sizes
SELECT c.oid::regclass::text AS name, pg_total_relation_size(c.oid) AS bytes
FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
ORDER BY 1

-- name: table_updates
SELECT t.relname AS name, t.n_tup_upd AS updates, t.n_tup_hot_upd AS hot_updates, t.n_dead_tup AS dead,
       t.n_live_tup AS live, t.autovacuum_count AS vacuums, pg_total_relation_size(t.relid) AS bytes
FROM pg_stat_user_tables t
WHERE t.schemaname = 'public' AND t.relname IN ('quota_usage', 'quota_department_slots', 'quota_reservations')
ORDER BY t.relname

-- name: server_may_read_proc
SELECT (pg_stat_file('/proc/self/stat', true)).size IS NOT NULL

-- name: cpu
CALL bench.cpu($1, $2, $3, NULL)

-- name: load_for_warning
SELECT load_for_warning($1)

-- name: move_for_warning
SELECT move_for_warning($1)

-- name: scanned_xid
SELECT s.scanned_xid::text::bigint FROM quota_warn_scans s WHERE s.scan = 'soft_warn'

-- name: moved_rows
SELECT count(*) FROM quota_usage u
 WHERE age(u.xmin) <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint - $1::bigint

-- name: moved_over_threshold
SELECT u.tenant_id, u.completions
  FROM quota_usage u JOIN tenant_limits l ON l.tenant_id = u.tenant_id
 WHERE age(u.xmin) <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint - $1::bigint
   AND (u.completions * 100 >= l.soft_warn_pct * l.daily_completions
        OR u.input_tokens * 100 >= l.soft_warn_pct * l.daily_input_tokens
        OR u.output_tokens * 100 >= l.soft_warn_pct * l.daily_output_tokens
        OR u.cost_cents * 100 >= l.soft_warn_pct * l.daily_cost_cents)
