-- name: outcome_departments
-- Those with a name, a budget or tenants, and those that had tenants in some month: each may have usage to be compared.
SELECT k.department_id, d.name
  FROM (SELECT department_id FROM departments
        UNION SELECT department_id FROM department_budgets
        UNION SELECT department_id FROM tenant_limits
        UNION SELECT department_id FROM quota_monthly_totals) k
  LEFT JOIN departments d ON d.department_id = k.department_id
 WHERE k.department_id <> ''
 ORDER BY k.department_id
 LIMIT $1::bigint;

-- name: outcome_frame
-- The running month and the last one that is over, of the billing zone.
SELECT s.currency, quota_month(t.day) AS month, quota_month(quota_month(t.day) - 1) AS last_month
  FROM quota_settings s
 CROSS JOIN (SELECT quota_day(clock_timestamp()) AS day) t;

-- name: outcome_metrics
-- Each metric that has values: one step of the index per month and metric.
WITH RECURSIVE p AS (
    (SELECT o.month, o.metric FROM quota_outcomes o
      WHERE o.superseded_by IS NULL ORDER BY o.month, o.metric LIMIT 1)
     UNION ALL
    SELECT n.month, n.metric
      FROM p
     CROSS JOIN LATERAL (SELECT o.month, o.metric FROM quota_outcomes o
                          WHERE o.superseded_by IS NULL AND (o.month, o.metric) > (p.month, p.metric)
                          ORDER BY o.month, o.metric LIMIT 1) n)
SELECT DISTINCT p.metric FROM p ORDER BY p.metric LIMIT $1::bigint;

-- name: settle_plans
-- For this transaction: drafts have no statistics, and no plan may go through them once per row.
SELECT set_config('enable_nestloop', 'off', true);

-- name: draft_twice
-- Rows that say again what an earlier one says.
SELECT d.line, f.line AS first_line, d.month, d.department_id, d.metric, d.value, f.value AS first_value,
       count(*) OVER () AS rows
  FROM (SELECT t.month, t.department_id, t.metric, min(t.line) AS line
          FROM quota_outcome_drafts t
         GROUP BY t.month, t.department_id, t.metric
        HAVING count(*) > 1) f0
  JOIN quota_outcome_drafts f ON f.line = f0.line
  JOIN quota_outcome_drafts d ON (d.month, d.department_id, d.metric) = (f0.month, f0.department_id, f0.metric)
 WHERE d.line > f.line
 ORDER BY d.line
 LIMIT $1::bigint;

-- name: lock_outcomes
SELECT pg_advisory_xact_lock(hashtextextended('quota_outcomes', 2));

-- name: add_import
INSERT INTO quota_outcome_imports (file_name, file_sha256, rows)
SELECT $1::text, $2::text, count(*) FROM quota_outcome_drafts
RETURNING import_id, rows;

-- name: supersede_changed
WITH done AS (
    UPDATE quota_outcomes o SET superseded_by = $1::bigint
      FROM quota_outcome_drafts d
     WHERE (o.month, o.metric, o.department_id) = (d.month, d.metric, d.department_id)
       AND o.superseded_by IS NULL AND o.value <> d.value
    RETURNING 1)
SELECT count(*) FROM done;

-- name: supersede_removed
-- What the file's months and metrics have of departments that it doesn't name.
WITH done AS (
    UPDATE quota_outcomes o SET superseded_by = $1::bigint
     WHERE o.superseded_by IS NULL
       AND (o.month, o.metric) IN (SELECT d.month, d.metric FROM quota_outcome_drafts d)
       AND NOT EXISTS (SELECT FROM quota_outcome_drafts d
                        WHERE (d.month, d.metric, d.department_id) = (o.month, o.metric, o.department_id))
    RETURNING 1)
SELECT count(*) FROM done;

-- name: add_outcomes
WITH done AS (
    INSERT INTO quota_outcomes (department_id, month, metric, value, import_id)
    SELECT d.department_id, d.month, d.metric, d.value, $1::bigint
      FROM quota_outcome_drafts d
     WHERE NOT EXISTS (SELECT FROM quota_outcomes o
                        WHERE (o.month, o.metric, o.department_id) = (d.month, d.metric, d.department_id)
                          AND o.superseded_by IS NULL)
     ORDER BY d.month, d.metric, d.department_id
    RETURNING 1)
SELECT count(*) FROM done;

-- name: note_import
UPDATE quota_outcome_imports i
   SET added = $2::bigint, changed = $3::bigint, unchanged = $4::bigint, removed = $5::bigint
 WHERE i.import_id = $1::bigint;

-- name: draft_groups
-- What the file brought, by month and metric, the latest months first.
SELECT g.month, g.metric, g.departments, g.total, m.closed_at IS NOT NULL AS closed,
       EXISTS (SELECT FROM quota_reports r WHERE r.month = g.month) AS reported,
       count(*) OVER () AS groups
  FROM (SELECT d.month, d.metric, count(*) AS departments, sum(d.value) AS total
          FROM quota_outcome_drafts d
         GROUP BY d.month, d.metric) g
  LEFT JOIN quota_months m ON m.month = g.month
 ORDER BY g.month DESC, g.metric
 LIMIT $1::bigint;

-- name: removed_outcomes
SELECT o.month, o.metric, o.department_id
  FROM quota_outcomes o
 WHERE o.superseded_by = $1::bigint
   AND NOT EXISTS (SELECT FROM quota_outcome_drafts d
                    WHERE (d.month, d.metric, d.department_id) = (o.month, o.metric, o.department_id))
 ORDER BY o.month, o.metric, o.department_id
 LIMIT $2::bigint;

-- name: drop_drafts
DELETE FROM quota_outcome_drafts;

-- name: list_outcomes
-- In force; with history all that ever was. superseded_at: when it was changed or removed.
SELECT o.month, o.department_id, d.name, o.metric, o.value, o.import_id, i.imported_at, o.superseded_by,
       s.imported_at AS superseded_at
  FROM quota_outcomes o
  JOIN quota_outcome_imports i ON i.import_id = o.import_id
  LEFT JOIN quota_outcome_imports s ON s.import_id = o.superseded_by
  LEFT JOIN departments d ON d.department_id = o.department_id
 WHERE ($1::date IS NULL OR o.month = $1::date)
   AND ($2::text IS NULL OR o.department_id = $2::text)
   AND ($3::boolean OR o.superseded_by IS NULL)
 ORDER BY o.month DESC, o.department_id, o.metric, o.import_id DESC
 LIMIT $4::bigint;

-- name: list_imports
SELECT i.import_id, i.imported_at, i.imported_by, i.file_name, i.file_sha256, i.rows, i.added, i.changed, i.unchanged,
       i.removed
  FROM quota_outcome_imports i
 ORDER BY i.import_id DESC
 LIMIT $1::bigint;

-- name: outcomes_of_month
SELECT o.department_id, o.metric, o.value FROM v_quota_outcomes o WHERE o.month = $1::date;
