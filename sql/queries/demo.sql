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

-- name: zone
-- A billing zone in which the hour and a half before $1, and the minutes after it, are one day: UTC, or around
-- its midnight Shanghai's, where it is eight o'clock in the morning.
UPDATE quota_settings
   SET billing_zone = CASE WHEN ($1::timestamptz AT TIME ZONE 'UTC')::time BETWEEN '02:00' AND '23:50'
                           THEN 'UTC' ELSE 'Asia/Shanghai' END
RETURNING billing_zone;

-- name: begin
-- When the seventy minutes of traffic begin, so that ten minutes after them their holds have run out by $1.
SELECT date_bin('5 minutes', $1::timestamptz - interval '83 minutes', timestamptz '2000-01-01 00:00Z') AS at;

-- name: open_holds
SELECT count(*) AS holds FROM quota_reservations r WHERE r.state = 'open';
