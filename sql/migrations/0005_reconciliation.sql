-- Corrections to months that are over, and the wait for usage sources.

-- What a correction changed in a day of another month than its own: an event per change, written with it.
-- While the day's month is open its totals have the change anyway; roll_month deletes the event when the month
-- is closed with it. What came after the closing stays, in booked_month, the month that was open then.
-- booked_month NULL: not looked at yet. request_id NULL: a legacy program's direct write, or a mend of audit's.
CREATE TABLE quota_adjustments (
    tenant_id      text        NOT NULL,
    adjustment_id  bigint      GENERATED ALWAYS AS IDENTITY,
    request_id     text,
    department_id  text        NOT NULL DEFAULT '',
    environment    text        NOT NULL,
    period         date        NOT NULL,
    completions    numeric     NOT NULL,
    input_tokens   numeric     NOT NULL,
    output_tokens  numeric     NOT NULL,
    cost_nanos     numeric     NOT NULL,
    adjusted_at    timestamptz NOT NULL,
    -- which transaction: whether the closing saw it
    adjusted_xid   xid8        NOT NULL DEFAULT pg_current_xact_id(),
    booked_month   date,
    CONSTRAINT quota_adjustments_pkey PRIMARY KEY (tenant_id, adjustment_id)
);
CREATE INDEX quota_adjustments_waiting ON quota_adjustments (period) WHERE booked_month IS NULL;
CREATE INDEX quota_adjustments_booked ON quota_adjustments (booked_month) WHERE booked_month IS NOT NULL;

-- What the transaction that closed a month could see.
ALTER TABLE quota_months ADD COLUMN closed_snapshot pg_snapshot;

-- An adjustment is a row of the open month that names the closed month it belongs to; any other row belongs to its own.
ALTER TABLE quota_monthly_totals
    ADD COLUMN adjusts_month date,
    ADD COLUMN belongs_to    date GENERATED ALWAYS AS (coalesce(adjusts_month, month)) STORED,
    DROP CONSTRAINT quota_monthly_totals_pkey,
    ADD CONSTRAINT quota_monthly_totals_pkey
        PRIMARY KEY (tenant_id, month, department_id, environment, belongs_to),
    ADD CONSTRAINT quota_monthly_totals_adjusts
        CHECK (adjusts_month < month AND adjusts_month = date_trunc('month', adjusts_month)::date);

-- What expired of a tenant's day under one policy: how many, what they are charged, and what they held.
CREATE TYPE quota_expired AS (
    tenant_id  text,
    period     date,
    policy     text,
    ended      bigint,
    in_tokens  bigint,
    out_tokens bigint,
    cost_nanos bigint,
    held_in    bigint,
    held_out   bigint,
    held_cost  bigint
);

-- A batch reads each tenant's limits once (sql/functions/quota_batch_charge.sql).
ALTER TYPE quota_batch_groups ADD ATTRIBUTE limits tenant_limits[];
ALTER TYPE quota_batch_done ADD ATTRIBUTE limits tenant_limits[];
DROP FUNCTION IF EXISTS quota_batch_lock_departments(quota_request[], date);
DROP FUNCTION IF EXISTS quota_reserve_judge(
    text, text, bigint, bigint, bigint, text, text, text, text, text, int, timestamptz);
