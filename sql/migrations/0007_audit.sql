-- The audit: what of a department's month is legacy charges, and the log of mends.

-- How much of each department's month no request explains. Computed before the slots are locked, so that gateways
-- wait for the columns only.
CREATE TEMPORARY TABLE quota_audit_legacy AS
SELECT k.department_id, k.environment, k.month,
       k.tokens_used - coalesce(q.tokens, 0) AS tokens, k.cost_used_nanos - coalesce(q.cost_nanos, 0) AS cost_nanos
  FROM (SELECT s.department_id, s.environment, s.month, sum(s.tokens_used) AS tokens_used,
               sum(s.cost_used_nanos) AS cost_used_nanos
          FROM quota_department_slots s
         GROUP BY s.department_id, s.environment, s.month) k
  LEFT JOIN (SELECT r.department_id, r.environment, date_trunc('month', r.period)::date AS month,
                    sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                             ELSE r.charged_in_tokens::numeric + r.charged_out_tokens END) AS tokens,
                    sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END) AS cost_nanos
               FROM quota_reservations r
              WHERE r.department_id IS NOT NULL
              GROUP BY 1, 2, 3) q USING (department_id, environment, month);

-- The part of used that no request was charged: as in quota_usage. Like all of a slot only the sums mean anything.
ALTER TABLE quota_department_slots
    ADD COLUMN legacy_tokens     bigint NOT NULL DEFAULT 0,
    ADD COLUMN legacy_cost_nanos bigint NOT NULL DEFAULT 0;
UPDATE quota_department_slots s
   SET legacy_tokens = least(greatest(k.tokens, -4000000000000000000), 4000000000000000000),
       legacy_cost_nanos = least(greatest(k.cost_nanos, -4000000000000000000), 4000000000000000000)
  FROM quota_audit_legacy k
 WHERE s.department_id = k.department_id AND s.environment = k.environment AND s.month = k.month AND s.slot = 0
   AND (k.tokens, k.cost_nanos) <> (0, 0);
DROP TABLE quota_audit_legacy;

-- Every mend of audit --repair: a row per counter, or per request's row, with what it was and what it became.
-- run: the mends of one transaction. tenant_id is NULL for a department's mends.
CREATE TABLE quota_repairs (
    repair_id     bigint      GENERATED ALWAYS AS IDENTITY,
    run           uuid        NOT NULL,
    repaired_at   timestamptz NOT NULL,
    month         date        NOT NULL,
    kind          text        NOT NULL,
    tenant_id     text,
    department_id text,
    environment   text,
    period        date,
    dimension     text,
    expected      numeric,
    found         numeric,
    mended        numeric,
    request_id    text,
    cause         text        NOT NULL,
    CONSTRAINT quota_repairs_pkey PRIMARY KEY (repair_id)
);
CREATE INDEX quota_repairs_run ON quota_repairs (run);

-- A parameter more; the file in sql/functions makes it anew.
DROP FUNCTION IF EXISTS quota_bookings_book(quota_booking[], timestamptz);
