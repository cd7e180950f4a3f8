-- The demo's own database; its server is in a folder that serves nothing else.
-- name: drop_database
DROP DATABASE IF EXISTS quota WITH (FORCE);

-- name: create_database
CREATE DATABASE quota;

-- name: tenants
INSERT INTO tenant_limits (tenant_id, daily_completions, daily_cost_cents, bucket_capacity,
                           bucket_refill_per_sec, department_id)
VALUES ('tenant-free',       50,  200,  2, 0.5, NULL),
       ('tenant-pro',      2000, 5000, 10, 2,   NULL),
       ('tenant-abuser',      5,  100,  1, 0.1, NULL),
       ('marketing-copy',  1000, 5000, 10, 1,   'marketing'),
       ('marketing-seo',   1000, 5000, 10, 1,   'marketing');

-- name: department
INSERT INTO departments (department_id, name, owner_emails)
VALUES ('marketing', 'Marketing', ARRAY['owner@marketing.example']);

-- name: budget
INSERT INTO department_budgets (department_id, environment, monthly_cost_cents, downgrade_model)
VALUES ('marketing', 'production', 120, 'small');

-- name: morning
-- Nine o'clock of the billing day that is today.
SELECT (quota_day(clock_timestamp()) + interval '9 hours') AT TIME ZONE s.billing_zone AS at
  FROM quota_settings s;

-- name: open_holds
SELECT count(*) AS holds FROM quota_reservations r WHERE r.state = 'open';
