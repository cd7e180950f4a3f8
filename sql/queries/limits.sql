-- Limits as they are, the changes that a file makes, blocks, and the record of changes.

-- name: one_snapshot
-- The first statement of a transaction: what is shown is of one moment, however long it is.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: begin_apply
SELECT quota_limits_begin();

-- name: limits_rows
-- Each row of $1 kinds, $2 subjects, $3 environments, locked, and as it was recorded last.
SELECT w.n, quota_limits_row(w.kind, w.subject, w.environment) AS row, r.after AS recorded, r.changed_at AS recorded_at
  FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (kind, subject, environment, n)
  LEFT JOIN LATERAL (SELECT c.after, c.changed_at FROM quota_limit_changes c
                      WHERE c.subject = w.subject AND c.subject_kind = w.kind AND c.environment = w.environment
                        AND c.action IN ('apply', 'remove', 'found')
                      ORDER BY c.change_id DESC LIMIT 1) AS r ON true
 ORDER BY w.n;

-- name: known_departments
SELECT e.department_id FROM departments e WHERE e.department_id = ANY ($1::text[]);

-- name: some_departments
-- For a word of advice: at most $1.
SELECT e.department_id FROM departments e ORDER BY e.department_id LIMIT $1::bigint;

-- name: tenants_of
-- Who belongs to departments that are to go, at most $2.
SELECT l.department_id, l.tenant_id FROM tenant_limits l WHERE l.department_id = ANY ($1::text[]) LIMIT $2::bigint;

-- name: put_limits
SELECT quota_limits_put($1::jsonb, $2::text, $3::text, $4::text);

-- name: budgets_of
SELECT b.department_id, b.environment FROM department_budgets b WHERE b.department_id = ANY ($1::text[]) ORDER BY 1, 2;

-- name: departments_page
-- From the one after $1 on, NULL: from the first; at most $2; $3: only these, NULL: all.
SELECT e.department_id AS subject, '' AS environment, to_jsonb(e) AS row, k.blocked_at, k.blocked_until, k.blocked_by, k.reason
  FROM departments e
  LEFT JOIN quota_blocks k ON k.subject = e.department_id AND k.subject_kind = 'department' AND k.blocked_until > now()
 WHERE e.department_id >= coalesce($1::text, '') AND ($1 IS NULL OR e.department_id <> $1)
   AND ($3::text[] IS NULL OR e.department_id = ANY ($3::text[]))
 ORDER BY e.department_id
 LIMIT $2::bigint;

-- name: budgets_page
SELECT b.department_id AS subject, b.environment, to_jsonb(b) AS row, NULL::timestamptz AS blocked_at, NULL::timestamptz AS blocked_until,
       NULL::text AS blocked_by, NULL::text AS reason
  FROM department_budgets b
 WHERE (b.department_id, b.environment) > (coalesce($1::text, ''), coalesce($4::text, ''))
   AND ($3::text[] IS NULL OR b.department_id = ANY ($3::text[]))
 ORDER BY b.department_id, b.environment
 LIMIT $2::bigint;

-- name: tenants_page
SELECT l.tenant_id AS subject, '' AS environment, to_jsonb(l) AS row, k.blocked_at, k.blocked_until, k.blocked_by, k.reason
  FROM tenant_limits l
  LEFT JOIN quota_blocks k ON k.subject = l.tenant_id AND k.subject_kind = 'tenant' AND k.blocked_until > now()
 WHERE l.tenant_id >= coalesce($1::text, '') AND ($1 IS NULL OR l.tenant_id <> $1)
   AND ($3::text[] IS NULL OR l.tenant_id = ANY ($3::text[]))
 ORDER BY l.tenant_id
 LIMIT $2::bigint;

-- name: kinds_of
-- Whether a tenant and whether a department is called $1.
SELECT quota_limits_subject('tenant', $1::text) AS is_tenant, quota_limits_subject('department', $1::text) AS is_department;

-- name: names_near
-- At most 5000 names of tenants and departments that may be meant by $1.
SELECT n.name
  FROM (SELECT l.tenant_id AS name FROM tenant_limits l UNION SELECT e.department_id FROM departments e) AS n
 WHERE strpos(lower(n.name), lower($1::text)) > 0 OR strpos(lower($1), lower(n.name)) > 0
    OR abs(length(n.name) - length($1)) <= 3
       AND (left(lower(n.name), 2) = left(lower($1), 2) OR right(lower(n.name), 2) = right(lower($1), 2))
 ORDER BY abs(length(n.name) - length($1)), n.name
 LIMIT 5000;

-- name: block
SELECT outcome, blocked_until, former_until
  FROM quota_limits_block($1::text, $2::text, $3::bigint, $4::text, $5::text);

-- name: unblock
SELECT outcome, former_until FROM quota_limits_unblock($1::text, $2::text, $3::text, $4::text);

-- name: blocks_in_force
-- Those that end last first, at most $1; of one name where $2 isn't NULL.
SELECT k.subject_kind, k.subject, k.blocked_at, k.blocked_at, k.blocked_until, k.blocked_by, k.reason
  FROM quota_blocks k
 WHERE k.blocked_until > clock_timestamp() AND ($2::text IS NULL OR k.subject = $2::text)
 ORDER BY k.blocked_until DESC, k.subject, k.subject_kind
 LIMIT $1::bigint;

-- name: changes
-- The latest changes first, at most $1; of one name where $2 isn't NULL.
SELECT c.change_id, c.changed_at, c.changed_by, c.database_user, c.action, c.subject_kind, c.subject, c.environment,
       c.before, c.after, c.reason, c.file_name, c.file_sha256
  FROM quota_limit_changes c
 WHERE $2::text IS NULL OR c.subject = $2::text
 ORDER BY c.change_id DESC
 LIMIT $1::bigint;

-- name: topup
SELECT quota_limits_topup($1::text, $2::text, $3::bigint, $4::bigint, $5::text, $6::text, $7::text, $8::timestamptz,
                          $9::text);

-- name: day_end
-- The first instant after a day of the billing zone.
SELECT quota_day_start($1::date + 1);

-- name: local_instant
-- What a clock of the billing zone shows as $1; the later of two where it shows it twice.
SELECT $1::timestamp AT TIME ZONE quota_zone();

-- name: clock
SELECT clock_timestamp() AS at, s.billing_zone, s.currency FROM quota_settings s;
