-- The outcomes in force, one row per month, department and metric. Columns are only ever added at the end.
CREATE OR REPLACE VIEW v_quota_outcomes AS
SELECT o.month, o.department_id, o.metric, o.value, o.import_id
FROM quota_outcomes o
WHERE o.superseded_by IS NULL;
