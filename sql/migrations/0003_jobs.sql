-- What the worker itself keeps: its tick lease, its runs, the months' totals, and the
-- inbox for usage that a gateway could not settle inline.

-- One row. Lease times are the database's real time even when jobs judge by another
-- (--as-of), because two ticks compete in real time. The fence rises with every grant,
-- so what a stalled holder does late can be told from what its successor does.
CREATE TABLE tick_lease (
    lease_name  text        NOT NULL,
    owner       text,
    fence       bigint      NOT NULL DEFAULT 0,
    expires_at  timestamptz NOT NULL DEFAULT '-infinity',
    renewed_at  timestamptz NOT NULL DEFAULT '-infinity',
    -- the transaction that began this tick, if no older one was running then; and the one that
    -- ended the last, if that found nothing to do and nobody else had written (see tick_begin)
    begun_xid   xid8,
    idle_xid    xid8,
    CONSTRAINT tick_lease_pkey PRIMARY KEY (lease_name),
    CONSTRAINT tick_lease_single CHECK (lease_name = 'tick')
);

INSERT INTO tick_lease (lease_name) VALUES ('tick') ON CONFLICT DO NOTHING;

-- A row per job and slot of its schedule. A slot that failed, or whose process died
-- (still 'running' under an older fence), is due again at the next tick.
CREATE TABLE job_runs (
    job            text             NOT NULL,
    scheduled_for  timestamptz      NOT NULL,
    outcome        text             NOT NULL,
    attempts       integer          NOT NULL DEFAULT 1,
    fence          bigint           NOT NULL,
    started_at     timestamptz      NOT NULL,
    ended_at       timestamptz,
    seconds        double precision,
    counts         jsonb            NOT NULL DEFAULT '{}',
    error          text,
    CONSTRAINT job_runs_pkey PRIMARY KEY (job, scheduled_for),
    CONSTRAINT job_runs_outcome_known
        CHECK (outcome IN ('running', 'done', 'unfinished', 'failed'))
);

CREATE INDEX job_runs_started_idx ON job_runs (started_at);
CREATE INDEX job_runs_running_idx ON job_runs (fence) WHERE outcome = 'running';

-- Which billing months have been totalled, and which are closed for good. A month
-- without a row is open. Small: one row per month of the deployment's life.
CREATE TABLE quota_months (
    month      date        NOT NULL,
    rolled_at  timestamptz,
    closed_at  timestamptz,
    CONSTRAINT quota_months_pkey PRIMARY KEY (month),
    CONSTRAINT quota_months_first_day CHECK (month = date_trunc('month', month)::date)
);

-- Used (posted and, while the month is open, held) per tenant, department and
-- environment. A department of '' means none: a key column can't be NULL.
CREATE TABLE quota_monthly_totals (
    tenant_id         text        NOT NULL,
    month             date        NOT NULL,
    department_id     text        NOT NULL DEFAULT '',
    environment       text        NOT NULL DEFAULT 'production',
    completions       numeric     NOT NULL,
    input_tokens      numeric     NOT NULL,
    output_tokens     numeric     NOT NULL,
    cost_nanos        numeric     NOT NULL,
    stale_count       bigint      NOT NULL DEFAULT 0,
    stale_cost_nanos  numeric     NOT NULL DEFAULT 0,
    peak_day          date,
    closed            boolean     NOT NULL DEFAULT false,
    closed_at         timestamptz,
    CONSTRAINT quota_monthly_totals_pkey
        PRIMARY KEY (tenant_id, month, department_id, environment),
    CONSTRAINT quota_monthly_totals_first_day
        CHECK (month = date_trunc('month', month)::date),
    CONSTRAINT quota_monthly_totals_closed_with_time
        CHECK (closed = (closed_at IS NOT NULL))
);

CREATE INDEX quota_monthly_totals_month_idx
    ON quota_monthly_totals (month, department_id, environment);

-- Raw usage, appended by gateways that could not settle; cost NULL where unknown.
-- Rows are kept after booking, with what became of them.
CREATE TABLE quota_usage_inbox (
    inbox_id          bigint      GENERATED ALWAYS AS IDENTITY,
    tenant_id         text        NOT NULL,
    request_id        text        NOT NULL,
    usage_id          text,
    input_tokens      bigint      NOT NULL,
    output_tokens     bigint      NOT NULL,
    cached_in_tokens  bigint,
    cost_nanos        bigint,
    model             text,
    occurred_at       timestamptz,
    received_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    booked_at         timestamptz,
    outcome           text,
    CONSTRAINT quota_usage_inbox_pkey PRIMARY KEY (tenant_id, inbox_id)
);

CREATE INDEX quota_usage_inbox_waiting_idx
    ON quota_usage_inbox (inbox_id) WHERE booked_at IS NULL;
