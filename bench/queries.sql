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

-- name: load_for_expiry
SELECT load_for_expiry($1, $2)

-- name: warm_for_expiry
CALL warm_for_expiry($1)

-- name: load_overdue
SELECT load_overdue($1, $2, $3)

-- name: load_old
SELECT load_old($1, $2, $3)

-- name: old_requests
SELECT count(*) FROM quota_reservations r WHERE r.ended_at < clock_timestamp() - interval '45 days'

-- name: reservation_blocks
SELECT pg_relation_size('quota_reservations') / current_setting('block_size')::bigint

-- name: delete_bare
DELETE FROM quota_reservations r
 WHERE r.ctid >= $1::text::tid AND r.ctid < $2::text::tid AND r.ended_at < clock_timestamp() - interval '45 days'

-- name: overdue
SELECT count(*) FROM quota_reservations r WHERE r.state = 'open' AND r.expires_at <= clock_timestamp()

-- name: expire_bare
UPDATE quota_reservations r
   SET state = 'expired', ended_at = clock_timestamp(), charged_in_tokens = r.estimated_in_tokens,
       charged_out_tokens = r.estimated_out_tokens, charged_cost_nanos = r.estimated_cost_nanos
  FROM (SELECT x.ctid AS place FROM quota_reservations x
         WHERE x.state = 'open' AND x.expires_at <= clock_timestamp() ORDER BY x.expires_at LIMIT $1) d
 WHERE r.ctid = d.place

-- name: disagreeing_counters
WITH requests AS (
    SELECT r.tenant_id, r.period, count(*) FILTER (WHERE r.completion_counted) AS n,
           sum(coalesce(r.charged_in_tokens, r.estimated_in_tokens)) AS i,
           sum(coalesce(r.charged_out_tokens, r.estimated_out_tokens)) AS o,
           sum(coalesce(r.charged_cost_nanos, r.estimated_cost_nanos)) AS c,
           coalesce(sum(r.estimated_in_tokens) FILTER (WHERE r.state = 'open'), 0) AS hi,
           coalesce(sum(r.estimated_out_tokens) FILTER (WHERE r.state = 'open'), 0) AS ho,
           coalesce(sum(r.estimated_cost_nanos) FILTER (WHERE r.state = 'open'), 0) AS hc
      FROM quota_reservations r GROUP BY 1, 2
), slots AS (
    SELECT s.department_id, s.month, sum(s.tokens_used) AS t, sum(s.cost_used_nanos) AS c, sum(s.tokens_held) AS ht,
           sum(s.cost_held_nanos) AS hc
      FROM quota_department_slots s GROUP BY 1, 2
), months AS (
    SELECT l.department_id, quota_month(q.period) AS month, sum(q.i + q.o) AS t, sum(q.c) AS c, sum(q.hi + q.ho) AS ht,
           sum(q.hc) AS hc
      FROM requests q JOIN tenant_limits l ON l.tenant_id = q.tenant_id GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM requests q FULL JOIN quota_usage u ON u.tenant_id = q.tenant_id AND u.period = q.period
         WHERE (q.n, q.i, q.o, q.c, q.hi, q.ho, q.hc) IS DISTINCT FROM
               (u.completions, u.input_tokens, u.output_tokens, u.cost_cents * 10000000 + u.cost_subcent_nanos,
                u.held_input_tokens, u.held_output_tokens, u.held_cost_nanos))
     + (SELECT count(*) FROM slots s FULL JOIN months m ON m.department_id = s.department_id AND m.month = s.month
         WHERE (s.t, s.c, s.ht, s.hc) IS DISTINCT FROM (m.t, m.c, m.ht, m.hc))

-- name: held
SELECT (SELECT coalesce(sum(u.held_input_tokens + u.held_output_tokens + u.held_cost_nanos), 0) FROM quota_usage u)
     + (SELECT coalesce(sum(s.tokens_held + s.cost_held_nanos), 0) FROM quota_department_slots s)

-- name: load_for_roll
SELECT load_for_roll($1, $2, $3)

-- name: load_requests_for_roll
SELECT load_requests_for_roll($1, $2, $3)

-- name: roll_bare
INSERT INTO bare_totals (tenant_id, month, completions, input_tokens, output_tokens, cost_nanos)
SELECT u.tenant_id, '2026-09-01', sum(u.completions), sum(u.input_tokens), sum(u.output_tokens),
       sum(u.cost_cents) * 10000000 + sum(u.cost_subcent_nanos)
FROM quota_usage u
WHERE u.period >= '2026-09-01' AND u.period < '2026-10-01'
GROUP BY u.tenant_id

-- name: roll_empty_bare
TRUNCATE bare_totals

-- name: roll_forget
WITH m AS (DELETE FROM quota_months), d AS (DELETE FROM quota_day_parts), p AS (DELETE FROM quota_month_parts),
     y AS (DELETE FROM quota_month_days), b AS (DELETE FROM quota_month_budgets)
DELETE FROM quota_monthly_totals

-- name: roll
SELECT rows, closed FROM quota_roll_month('2026-09-01', $1::timestamptz)

-- name: roll_disagreeing
SELECT count(*)
FROM (SELECT u.tenant_id, sum(u.completions) AS c, sum(u.input_tokens) AS i, sum(u.output_tokens) AS o,
             sum(u.cost_cents::numeric * 10000000 + u.cost_subcent_nanos) AS n
      FROM quota_usage u GROUP BY 1) d
    FULL JOIN (SELECT q.tenant_id, sum(q.completions) AS c, sum(q.input_tokens) AS i, sum(q.output_tokens) AS o,
                      sum(q.cost_nanos) AS n
               FROM quota_monthly_totals q GROUP BY 1) t USING (tenant_id)
    FULL JOIN (SELECT q.tenant_id, sum(q.completions) AS c, sum(q.input_tokens) AS i, sum(q.output_tokens) AS o,
                      sum(q.cost_nanos) AS n
               FROM quota_month_parts q GROUP BY 1) p USING (tenant_id)
WHERE (d.c, d.i, d.o, d.n) IS DISTINCT FROM (t.c, t.i, t.o, t.n)
   OR (d.c, d.i, d.o, d.n) IS DISTINCT FROM (p.c, p.i, p.o, p.n)

-- name: roll_touch_day
UPDATE quota_usage u SET completions = u.completions + 1, booked_completions = u.booked_completions + 1,
                         legacy_completions = u.legacy_completions + 1
WHERE u.period = '2026-09-30' AND right(u.tenant_id, 2) = '07'

-- name: load_for_reports
SELECT load_for_reports($1)

-- name: reports_made
SELECT (SELECT count(*) FROM quota_reports WHERE month = '2026-09-01') AS reports,
       (SELECT count(*) FROM quota_outbox WHERE kind = 'roi-report') AS mails

-- name: tenants_over_threshold
SELECT count(*)
  FROM tenant_limits l
  LEFT JOIN quota_usage u ON u.tenant_id = l.tenant_id AND u.period = current_date
 WHERE u.completions::numeric * 100 >= 80::numeric * l.daily_completions

-- name: load_for_watch
SELECT load_for_watch($1, $2)

-- name: hour_by_app_and_key
SELECT r.tenant_id, r.app, r.api_key, count(*), sum(r.charged_in_tokens), sum(r.charged_out_tokens), sum(r.charged_cost_nanos)
  FROM quota_reservations r
 WHERE r.admitted_at > now() - interval '1 hour'
 GROUP BY r.tenant_id, r.app, r.api_key
