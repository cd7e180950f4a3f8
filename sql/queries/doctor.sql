-- Reads of `quota-worker doctor`: each bounded in time by doctor_bounds, nothing is written. The first three need no ledger.

-- name: doctor_bounds
-- For this transaction alone: no read waits longer than $1, nor behind a lock longer than $2 (milliseconds).
SELECT set_config('statement_timeout', $1::text, true) AS statement_milliseconds,
       set_config('lock_timeout', $2::text, true) AS lock_milliseconds;

-- name: doctor_server
-- The server and this session. Settings as the session began with them (reset_val): the transaction has bounds of its own.
SELECT clock_timestamp() AS at, current_setting('server_version_num')::int AS version_number,
       split_part(current_setting('server_version'), ' ', 1) AS version, current_database()::text AS database,
       current_user::text AS user_name, pg_backend_pid() AS process, pg_is_in_recovery() AS standby,
       n.nspname::text AS schema_name,
       -- pg_stat_activity hides others' from whoever may not see them
       (SELECT coalesce(sum(a.numbackends), 0)::bigint FROM pg_stat_database a) AS connections,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections_max,
       (SELECT json_object_agg(s.name, s.reset_val)::text FROM pg_settings s
         WHERE s.name IN ('default_transaction_read_only', 'synchronous_commit', 'fsync', 'full_page_writes',
                          'default_transaction_isolation', 'statement_timeout', 'server_encoding')) AS settings,
       -- other users' of this database: a gateway's may differ from ours
       ARRAY(SELECT coalesce(r.rolname::text, 'every user') FROM pg_db_role_setting d LEFT JOIN pg_roles r ON r.oid = d.setrole
              WHERE (d.setdatabase = 0 OR d.setdatabase = (SELECT b.oid FROM pg_database b WHERE b.datname = current_database()))
                AND 'synchronous_commit=off' = ANY (d.setconfig)
              ORDER BY 1 LIMIT 5) AS careless_users
  FROM (SELECT to_regclass('tenant_limits') AS oid) t
  LEFT JOIN pg_class c ON c.oid = t.oid
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace;

-- name: doctor_ledger
-- Whether migrate ever ran here: a tutorial's database has the first table alone.
SELECT to_regclass('quota_migrations') IS NOT NULL AS migrated;

-- name: doctor_schema
-- What migrate left here; of the functions the MD5 of their bodies, too.
SELECT ARRAY(SELECT m.name FROM quota_migrations m ORDER BY m.name) AS migrations,
       ARRAY(SELECT p.proname || ' ' || md5(p.prosrc) FROM pg_proc p
              WHERE p.pronamespace = (SELECT c.relnamespace FROM pg_class c WHERE c.oid = to_regclass('tenant_limits'))
              ORDER BY 1) AS functions;

-- name: doctor_rights
-- What this user (current_user) and the role quota_worker lack of what sql/roles.sql gives that role; which roles there are
-- not. Reads the catalogue alone, which anybody may.
WITH ledger AS (
    SELECT c.relnamespace AS oid FROM pg_class c WHERE c.oid = to_regclass('tenant_limits')
), who AS (
    SELECT r.rolname, r.oid, r.rolname = current_user AS is_me FROM pg_roles r
     WHERE r.rolname IN (current_user, 'quota_worker')
), thing AS (
    SELECT w.is_me, w.rolname, 'table' AS kind, c.relname::text AS name
      FROM who w
     CROSS JOIN ledger l
      JOIN pg_class c ON c.relnamespace = l.oid AND c.relkind IN ('r', 'p', 'v')
       AND (c.relname ~ '^(v_quota|v_department|quota)_'
            OR c.relname ~ '^(departments|department_|tenant_limits|rate_buckets|job_|tick_)')
     WHERE NOT has_table_privilege(w.oid, c.oid, 'SELECT')
        OR c.relkind <> 'v' AND NOT (has_table_privilege(w.oid, c.oid, 'INSERT')
                                     AND has_table_privilege(w.oid, c.oid, 'UPDATE')
                                     AND has_table_privilege(w.oid, c.oid, 'DELETE'))
    UNION ALL
    SELECT w.is_me, w.rolname, 'function', p.proname::text
      FROM who w
     CROSS JOIN ledger l
      JOIN pg_proc p ON p.pronamespace = l.oid AND p.prokind = 'f' AND p.proname ~ '^(quota|tick)_'
       AND p.prorettype <> 'trigger'::regtype
     WHERE NOT has_function_privilege(w.oid, p.oid, 'EXECUTE')
    UNION ALL
    SELECT w.is_me, w.rolname, 'schema', n.nspname::text
      FROM who w
     CROSS JOIN ledger l
      JOIN pg_namespace n ON n.oid = l.oid
     WHERE NOT has_schema_privilege(w.oid, n.oid, 'USAGE')
)
SELECT ARRAY(SELECT DISTINCT t.name FROM thing t WHERE t.is_me ORDER BY 1) AS lacks,
       ARRAY(SELECT DISTINCT t.name FROM thing t WHERE t.rolname = 'quota_worker' ORDER BY 1) AS role_lacks,
       ARRAY(SELECT n.name FROM unnest(ARRAY['quota_gateway', 'quota_reader', 'quota_worker']) AS n (name)
              WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = n.name) ORDER BY 1) AS missing_roles,
       EXISTS (SELECT FROM who w WHERE w.rolname = 'quota_worker' AND pg_has_role(current_user, w.oid, 'MEMBER')) AS is_member;

-- name: doctor_settings
SELECT g.billing_zone, quota_zone() AS functions_zone FROM quota_settings g;

-- name: doctor_offsets
-- The zone's offset to UTC, in seconds, at each of the instants, in their order. SQLSTATE 22023: no such zone here.
SELECT extract(epoch FROM (t.at AT TIME ZONE $1::text) - (t.at AT TIME ZONE 'UTC'))::int AS seconds
  FROM unnest($2::timestamptz[]) WITH ORDINALITY AS t (at, place)
 ORDER BY t.place;

-- name: doctor_ticks
SELECT clock_timestamp() AS at, NULLIF(l.renewed_at, '-infinity') AS last_at, l.expires_at > clock_timestamp() AS running
  FROM tick_lease l WHERE l.lease_name = 'tick';

-- name: doctor_jobs
-- Of each of the jobs its latest run that ended, and when it was done last and began at all; by the slot, so that runs that
-- judged by a later time (--as-of) don't count.
SELECT j.job, e.outcome, e.error, d.ended_at AS done_at, f.started_at AS first_at
  FROM unnest($1::text[]) AS j (job)
  LEFT JOIN LATERAL (
       SELECT r.outcome, r.error FROM job_runs r
        WHERE r.job = j.job AND r.scheduled_for <= clock_timestamp() AND r.outcome <> 'running'
        ORDER BY r.scheduled_for DESC LIMIT 1) AS e ON true
  LEFT JOIN LATERAL (
       SELECT r.ended_at FROM job_runs r
        WHERE r.job = j.job AND r.scheduled_for <= clock_timestamp() AND r.outcome = 'done'
        ORDER BY r.scheduled_for DESC LIMIT 1) AS d ON true
  LEFT JOIN LATERAL (
       SELECT r.started_at FROM job_runs r WHERE r.job = j.job ORDER BY r.scheduled_for LIMIT 1) AS f ON true
 ORDER BY j.job;

-- name: doctor_outbox
-- By channel what waits, since when, and how many of it for over an hour, outside of the quiet hours $1 (they may have
-- ended just now); what was given up and nobody has acknowledged. By the indexes of these states.
SELECT o.channel, count(*) FILTER (WHERE o.state <> 'dead') AS waiting,
       min(o.created_at) FILTER (WHERE o.state <> 'dead') AS waiting_since,
       count(*) FILTER (WHERE o.state <> 'dead' AND o.created_at < n.at - interval '1 hour' AND NOT n.quiet) AS overdue,
       count(*) FILTER (WHERE o.state = 'dead') AS dead, min(o.created_at) FILTER (WHERE o.state = 'dead') AS dead_since
  FROM quota_outbox o
 CROSS JOIN (SELECT c.at, quota_quiet($1::jsonb, c.at) OR quota_quiet($1::jsonb, c.at - interval '15 minutes') AS quiet
               FROM (SELECT clock_timestamp() AS at OFFSET 0) AS c) AS n
 WHERE o.state IN ('pending', 'sending') OR o.state = 'dead' AND o.acked_at IS NULL
 GROUP BY o.channel
 ORDER BY o.channel;

-- name: doctor_channels
-- Of each channel's messages of the last 24 hours: when one was sent last, and when an attempt failed last and why.
SELECT o.channel, max(o.sent_at) AS sent_at, max(o.failed_at) AS failed_at,
       (array_agg(o.last_failure ORDER BY o.failed_at DESC NULLS LAST))[1] AS cause
  FROM quota_outbox o
 WHERE o.created_at > clock_timestamp() - interval '24 hours'
 GROUP BY o.channel
 ORDER BY o.channel;

-- name: doctor_tenants
SELECT count(*) FILTER (WHERE l.enforce = 'on') AS enforcing, count(*) AS tenants,
       count(*) FILTER (WHERE l.department_id IS NOT NULL AND b.department_id IS NULL) AS without_budget,
       min(l.tenant_id) FILTER (WHERE l.department_id IS NOT NULL AND b.department_id IS NULL) AS one_without_budget
  FROM tenant_limits l
  LEFT JOIN department_budgets b ON b.department_id = l.department_id AND b.environment = l.environment;

-- name: doctor_odd_tenants
-- The first $1 tenants whose limits no new row may have, and how many there are. As migrate names them.
SELECT l.tenant_id AS subject, f.fault, count(*) OVER () AS found
  -- the odd ones alone, so that a million others cost little
  FROM (SELECT t.tenant_id, t.daily_completions, t.daily_input_tokens, t.daily_output_tokens, t.daily_tokens, t.daily_cost_cents,
               t.monthly_completions, t.monthly_tokens, t.monthly_cost_cents, t.soft_warn_pct, t.bucket_capacity,
               t.bucket_refill_per_sec
          FROM tenant_limits t
         WHERE t.daily_completions < 0 OR t.daily_input_tokens < 0 OR t.daily_output_tokens < 0 OR t.daily_tokens < 0
            OR t.daily_cost_cents < 0 OR t.monthly_completions < 0 OR t.monthly_tokens < 0 OR t.monthly_cost_cents < 0
            OR t.soft_warn_pct NOT BETWEEN 1 AND 100 OR NOT (t.bucket_capacity > 0 AND t.bucket_capacity < 'Infinity')
            OR NOT (t.bucket_refill_per_sec > 0 AND t.bucket_refill_per_sec < 'Infinity')) AS l
 CROSS JOIN LATERAL (VALUES
       (l.daily_completions < 0, 'daily_completions is ' || l.daily_completions),
       (l.daily_input_tokens < 0, 'daily_input_tokens is ' || l.daily_input_tokens),
       (l.daily_output_tokens < 0, 'daily_output_tokens is ' || l.daily_output_tokens),
       (l.daily_tokens < 0, 'daily_tokens is ' || l.daily_tokens),
       (l.daily_cost_cents < 0, 'daily_cost_cents is ' || l.daily_cost_cents),
       (l.monthly_completions < 0, 'monthly_completions is ' || l.monthly_completions),
       (l.monthly_tokens < 0, 'monthly_tokens is ' || l.monthly_tokens),
       (l.monthly_cost_cents < 0, 'monthly_cost_cents is ' || l.monthly_cost_cents),
       (l.soft_warn_pct NOT BETWEEN 1 AND 100, 'soft_warn_pct is ' || l.soft_warn_pct),
       (NOT (l.bucket_capacity > 0 AND l.bucket_capacity < 'Infinity'), 'bucket_capacity is ' || l.bucket_capacity),
       (NOT (l.bucket_refill_per_sec > 0 AND l.bucket_refill_per_sec < 'Infinity'),
        'bucket_refill_per_sec is ' || l.bucket_refill_per_sec)
       ) AS f (is_odd, fault)
 WHERE f.is_odd
 ORDER BY l.tenant_id, f.fault
 LIMIT $1::integer;

-- name: doctor_odd_budgets
-- The first $1 budgets that are odd, and how many there are.
SELECT b.department_id AS subject, b.environment, f.fault, count(*) OVER () AS found
  FROM department_budgets b
 CROSS JOIN LATERAL (VALUES
       (b.monthly_tokens < 0, 'monthly_tokens is ' || b.monthly_tokens),
       (b.monthly_cost_cents < 0, 'monthly_cost_cents is ' || b.monthly_cost_cents),
       (NOT (0 < b.warn_pct AND b.warn_pct <= b.downgrade_pct AND b.downgrade_pct <= b.protect_pct AND b.protect_pct <= 100),
        format('its percents are %s, %s, %s', b.warn_pct, b.downgrade_pct, b.protect_pct))
       ) AS f (is_odd, fault)
 WHERE f.is_odd
 ORDER BY b.department_id, b.environment, f.fault
 LIMIT $1::integer;

-- name: doctor_tiers
-- The first $1 budgets of tokens alone with a model to downgrade to, and how many there are.
SELECT b.department_id AS subject, b.environment, count(*) OVER () AS found
  FROM department_budgets b
 WHERE b.monthly_tokens IS NOT NULL AND b.monthly_cost_cents IS NULL AND b.downgrade_model IS NOT NULL
 ORDER BY b.department_id, b.environment
 LIMIT $1::integer;

-- name: doctor_ownerless
-- At most $1 departments with a budget and without any owner or finance address.
SELECT b.department_id, b.environment
  FROM department_budgets b
  LEFT JOIN departments d ON d.department_id = b.department_id
 WHERE coalesce(cardinality(d.owner_emails), 0) + coalesce(cardinality(d.finance_emails), 0) = 0
 ORDER BY b.department_id, b.environment
 LIMIT $1::integer;

-- name: doctor_subjects
-- The enforcing tenants and the departments with a budget, by what the routes can tell them apart by: the tenants $1 and
-- departments $2 that routes name, and the environment. At most $3 groups, each with one of its names.
SELECT s.kind, s.tenant, s.department, s.environment, count(*) AS subjects, min(s.subject) AS one
  FROM (SELECT 'tenant' AS kind, CASE WHEN l.tenant_id = ANY ($1::text[]) THEN l.tenant_id END AS tenant,
               CASE WHEN l.department_id = ANY ($2::text[]) THEN l.department_id END AS department, l.environment,
               l.tenant_id AS subject
          FROM tenant_limits l WHERE l.enforce = 'on'
        UNION ALL
        SELECT 'department', NULL, CASE WHEN b.department_id = ANY ($2) THEN b.department_id END, b.environment, b.department_id
          FROM department_budgets b) AS s
 GROUP BY s.kind, s.tenant, s.department, s.environment
 ORDER BY s.kind DESC, s.tenant, s.department, s.environment
 LIMIT $3::integer;

-- name: doctor_requests
-- The requests admitted in the last 24 hours, by the block-range index on admitted_at.
SELECT count(*) AS requests, count(*) FILTER (WHERE r.unreserved) AS unreserved,
       count(*) FILTER (WHERE r.usage_missing) AS usage_missing
  FROM quota_reservations r
 WHERE r.admitted_at > clock_timestamp() - interval '24 hours';

-- name: doctor_backlog
-- What waits to be ended ($1 seconds after its time: usage sources are asked first), booked, priced, told and closed.
SELECT c.at,
       (SELECT count(*) FROM quota_reservations r
         WHERE r.state = 'open' AND r.expires_at <= c.at - make_interval(secs => $1::double precision)) AS overdue,
       (SELECT min(r.expires_at) FROM quota_reservations r WHERE r.state = 'open') AS overdue_since,
       (SELECT count(*) FROM quota_usage_inbox i WHERE i.booked_at IS NULL) AS inbox,
       (SELECT min(i.received_at) FROM quota_usage_inbox i WHERE i.booked_at IS NULL) AS inbox_since,
       (SELECT count(*) FROM quota_unpriced) AS unpriced, (SELECT min(u.since) FROM quota_unpriced u) AS unpriced_since,
       (SELECT min(x.crossed_at) FROM quota_crossings x) AS crossed_at,
       (SELECT min(m.month) FROM quota_months m
         WHERE m.closed_at IS NULL AND quota_month_end(m.month) + interval '96 hours' < c.at) AS unclosed,
       (SELECT min(m.month) FROM quota_months m
         WHERE m.closed_clock < quota_month_end(m.month)
           AND (c.at < quota_month_end(m.month) OR EXISTS (SELECT FROM quota_audit_closed(m.month, NULL)))) AS closed_early
  FROM (SELECT clock_timestamp() AS at OFFSET 0) AS c;

-- name: doctor_sources
-- What was set aside of the usage sources' answers in the last 24 hours.
SELECT f.source, count(*) AS requests, count(DISTINCT f.reason) AS reasons, min(f.reason) AS one_reason
  FROM quota_source_faults f
 WHERE f.seen_at > clock_timestamp() - interval '24 hours'
 GROUP BY f.source
 ORDER BY f.source
 LIMIT 100;

-- name: doctor_drift
-- A cheap look at what audit proves: whether all holds together are the open reservations' estimates, in one snapshot, and
-- how many of the month's counters are below zero.
SELECT u.held_in = r.in_tokens AND u.held_out = r.out_tokens AND u.held_cost = r.cost_nanos AS holds_agree, u.below_zero
  FROM (SELECT coalesce(sum(u.held_input_tokens), 0) AS held_in, coalesce(sum(u.held_output_tokens), 0) AS held_out,
               coalesce(sum(u.held_cost_nanos), 0) AS held_cost,
               count(*) FILTER (WHERE u.period >= (SELECT quota_month(quota_day(clock_timestamp())))
                                  AND (u.completions < 0 OR u.input_tokens < 0 OR u.output_tokens < 0 OR u.cost_cents < 0)
                               ) AS below_zero
          FROM quota_usage u) AS u
 CROSS JOIN (SELECT coalesce(sum(r.estimated_in_tokens), 0) AS in_tokens, coalesce(sum(r.estimated_out_tokens), 0) AS out_tokens,
                    coalesce(sum(r.estimated_cost_nanos), 0) AS cost_nanos
               FROM quota_reservations r WHERE r.state = 'open') AS r;
