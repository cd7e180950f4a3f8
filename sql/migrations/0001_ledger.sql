-- The ledger's tables: the five that a tutorial's database already has, taken over in place, and ours.
-- Additive only: constant defaults (no rewrite), CHECKs NOT VALID on tables that may hold old rows.

-- One row: what SQL and Python must agree on. The zone decides where days and months begin.
CREATE TABLE IF NOT EXISTS quota_settings (
    singleton    boolean NOT NULL DEFAULT true,
    billing_zone text    NOT NULL DEFAULT 'UTC',
    currency     text    NOT NULL DEFAULT 'USD',
    locale       text    NOT NULL DEFAULT 'en',
    CONSTRAINT quota_settings_pkey PRIMARY KEY (singleton),
    CONSTRAINT quota_settings_singleton CHECK (singleton),
    CONSTRAINT quota_settings_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT quota_settings_locale CHECK (locale IN ('en', 'zh-CN'))
);
INSERT INTO quota_settings (singleton) VALUES (true) ON CONFLICT DO NOTHING;

-- quota_zone(), the zone as a constant that the planner folds away (joining the row costs 9 % of a reservation).
-- STABLE, so that it is inlined, with a dependency that makes cached plans anew when it changes; as IMMUTABLE it
-- would be folded without one. The row stays the source: whoever changes it renews the function with it.
CREATE FUNCTION quota_settings_zone() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM now() AT TIME ZONE NEW.billing_zone;     -- an unknown zone is refused here
    EXECUTE format('CREATE OR REPLACE FUNCTION quota_zone() RETURNS text LANGUAGE sql STABLE AS %L',
                   format('SELECT %L::text', NEW.billing_zone));
    RETURN NULL;
END $$;
CREATE TRIGGER quota_settings_zone AFTER INSERT OR UPDATE ON quota_settings
    FOR EACH ROW EXECUTE FUNCTION quota_settings_zone();
UPDATE quota_settings SET billing_zone = billing_zone;

-- ---------------------------------------------------------------- tables that people already have

CREATE TABLE IF NOT EXISTS tenant_limits (
    tenant_id             text             NOT NULL,
    daily_completions     int              DEFAULT 1000,
    daily_input_tokens    bigint           DEFAULT 2000000,
    daily_output_tokens   bigint           DEFAULT 500000,
    daily_cost_cents      bigint           DEFAULT 5000,
    monthly_cost_cents    bigint           DEFAULT 50000,
    bucket_capacity       double precision NOT NULL DEFAULT 10,
    bucket_refill_per_sec double precision NOT NULL DEFAULT 1,
    soft_warn_pct         int              NOT NULL DEFAULT 80,
    CONSTRAINT tenant_limits_pkey PRIMARY KEY (tenant_id)
);
ALTER TABLE tenant_limits
    ALTER COLUMN daily_completions   DROP NOT NULL,
    ALTER COLUMN daily_input_tokens  DROP NOT NULL,
    ALTER COLUMN daily_output_tokens DROP NOT NULL,
    ALTER COLUMN daily_cost_cents    DROP NOT NULL,
    ALTER COLUMN monthly_cost_cents  DROP NOT NULL,
    ADD COLUMN IF NOT EXISTS enforce                 text   NOT NULL DEFAULT 'on',
    ADD COLUMN IF NOT EXISTS department_id           text,
    ADD COLUMN IF NOT EXISTS environment             text   NOT NULL DEFAULT 'production',
    ADD COLUMN IF NOT EXISTS daily_tokens            bigint,
    ADD COLUMN IF NOT EXISTS monthly_completions     bigint,
    ADD COLUMN IF NOT EXISTS monthly_tokens          bigint,
    ADD COLUMN IF NOT EXISTS stale_policy            text   NOT NULL DEFAULT 'estimate',
    ADD COLUMN IF NOT EXISTS reservation_ttl_seconds int    NOT NULL DEFAULT 600,
    ADD COLUMN IF NOT EXISTS locale                  text,
    -- new values only: odd limits of an old database are named by migrate, not refused
    ADD CONSTRAINT tenant_limits_enforce      CHECK (enforce IN ('on', 'observe', 'off')) NOT VALID,
    ADD CONSTRAINT tenant_limits_environment  CHECK (environment IN ('production', 'test')) NOT VALID,
    ADD CONSTRAINT tenant_limits_stale_policy CHECK (stale_policy IN ('estimate', 'partial', 'release')) NOT VALID,
    ADD CONSTRAINT tenant_limits_ttl          CHECK (reservation_ttl_seconds BETWEEN 1 AND 86400) NOT VALID,
    ADD CONSTRAINT tenant_limits_locale       CHECK (locale IN ('en', 'zh-CN')) NOT VALID;
ALTER TABLE tenant_limits
    ADD CONSTRAINT tenant_limits_bucket              CHECK (bucket_capacity BETWEEN 0 AND 1e15
                                                            AND bucket_refill_per_sec BETWEEN 0 AND 1e15) NOT VALID,
    ADD CONSTRAINT tenant_limits_soft_warn_pct       CHECK (soft_warn_pct BETWEEN 0 AND 100) NOT VALID,
    ADD CONSTRAINT tenant_limits_daily_completions   CHECK (daily_completions >= 0) NOT VALID,
    ADD CONSTRAINT tenant_limits_daily_input_tokens  CHECK (daily_input_tokens >= 0) NOT VALID,
    ADD CONSTRAINT tenant_limits_daily_output_tokens CHECK (daily_output_tokens >= 0) NOT VALID,
    ADD CONSTRAINT tenant_limits_daily_cost_cents    CHECK (daily_cost_cents >= 0) NOT VALID,
    ADD CONSTRAINT tenant_limits_monthly_cost_cents  CHECK (monthly_cost_cents >= 0) NOT VALID,
    ADD CONSTRAINT tenant_limits_daily_tokens        CHECK (daily_tokens >= 0) NOT VALID,
    ADD CONSTRAINT tenant_limits_monthly_completions CHECK (monthly_completions >= 0) NOT VALID,
    ADD CONSTRAINT tenant_limits_monthly_tokens      CHECK (monthly_tokens >= 0) NOT VALID;

-- A mirror for readers since the bucket moved into the tenant's latest usage row (docs/adr/0005).
CREATE TABLE IF NOT EXISTS rate_buckets (
    tenant_id      text             NOT NULL,
    tokens         double precision NOT NULL DEFAULT 0,
    capacity       double precision NOT NULL DEFAULT 10,
    refill_rate    double precision NOT NULL DEFAULT 1,
    last_refill_at timestamptz      NOT NULL DEFAULT now(),
    CONSTRAINT rate_buckets_pkey PRIMARY KEY (tenant_id)
);

CREATE TABLE IF NOT EXISTS quota_usage (
    tenant_id     text   NOT NULL,
    period        date   NOT NULL,
    completions   bigint NOT NULL DEFAULT 0,
    input_tokens  bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cost_cents    bigint NOT NULL DEFAULT 0,
    CONSTRAINT quota_usage_pkey PRIMARY KEY (tenant_id, period)
);
ALTER TABLE quota_usage
    -- used beyond whole cents; cost in nanos = cost_cents * 10^7 + cost_subcent_nanos
    ADD COLUMN IF NOT EXISTS cost_subcent_nanos   bigint NOT NULL DEFAULT 0,
    -- the part of used that open reservations hold
    ADD COLUMN IF NOT EXISTS held_input_tokens    bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS held_output_tokens   bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS held_cost_nanos      bigint NOT NULL DEFAULT 0,
    -- what our functions booked; used minus booked is what somebody wrote directly and reconcile has yet to fold in
    ADD COLUMN IF NOT EXISTS booked_completions   bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS booked_input_tokens  bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS booked_output_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS booked_cost_nanos    bigint NOT NULL DEFAULT 0,
    -- the token bucket: non-NULL only in the tenant's live row, its latest
    ADD COLUMN IF NOT EXISTS bucket_tokens        double precision,
    ADD COLUMN IF NOT EXISTS bucket_at            timestamptz,
    -- charges without a request: quota_check_and_charge and folded direct writes
    ADD COLUMN IF NOT EXISTS legacy_completions   bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS legacy_input_tokens  bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS legacy_output_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS legacy_cost_nanos    bigint NOT NULL DEFAULT 0,
    -- what the short path of quota_reserve may fill up to without looking at anything else, drawn from the
    -- versions of the limits row and of yesterday's row named here (docs/adr/0005); NULL = not known
    ADD COLUMN IF NOT EXISTS ceiling_completions   bigint,
    ADD COLUMN IF NOT EXISTS ceiling_input_tokens  bigint,
    ADD COLUMN IF NOT EXISTS ceiling_output_tokens bigint,
    ADD COLUMN IF NOT EXISTS ceiling_tokens        bigint,
    ADD COLUMN IF NOT EXISTS ceiling_cost_cents    bigint,
    ADD COLUMN IF NOT EXISTS limits_ctid           tid,
    ADD COLUMN IF NOT EXISTS limits_xmin           xid,
    ADD COLUMN IF NOT EXISTS eve_ctid              tid,
    ADD COLUMN IF NOT EXISTS eve_xmin              xid,
    -- the only CHECK here: each is read anew from the catalogue by every UPDATE, and costs 2 % of a reservation
    ADD CONSTRAINT quota_usage_subcent  CHECK (cost_subcent_nanos BETWEEN 0 AND 9999999) NOT VALID;
ALTER TABLE quota_usage
    ALTER COLUMN completions   SET DEFAULT 0,
    ALTER COLUMN input_tokens  SET DEFAULT 0,
    ALTER COLUMN output_tokens SET DEFAULT 0,
    ALTER COLUMN cost_cents    SET DEFAULT 0;
-- The hot row is updated in place (HOT) only while its page has room; old versions must not pile up.
ALTER TABLE quota_usage SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- ---------------------------------------------------------------- departments

CREATE TABLE departments (
    department_id  text NOT NULL,
    name           text,
    locale         text,
    owner_emails   text[] NOT NULL DEFAULT '{}',
    finance_emails text[] NOT NULL DEFAULT '{}',
    CONSTRAINT departments_pkey PRIMARY KEY (department_id),
    CONSTRAINT departments_locale CHECK (locale IN ('en', 'zh-CN'))
);

CREATE TABLE department_budgets (
    department_id      text   NOT NULL,
    environment        text   NOT NULL DEFAULT 'production',
    monthly_tokens     bigint,
    monthly_cost_cents bigint,
    warn_pct           int    NOT NULL DEFAULT 75,
    downgrade_pct      int    NOT NULL DEFAULT 90,
    protect_pct        int    NOT NULL DEFAULT 98,
    downgrade_from     text[],
    downgrade_model    text,
    allowed_models     text[],
    CONSTRAINT department_budgets_pkey PRIMARY KEY (department_id, environment),
    CONSTRAINT department_budgets_environment CHECK (environment IN ('production', 'test')),
    CONSTRAINT department_budgets_budget CHECK (monthly_tokens >= 0 AND monthly_cost_cents >= 0),
    CONSTRAINT department_budgets_pcts CHECK (0 < warn_pct AND warn_pct <= downgrade_pct
                                              AND downgrade_pct <= protect_pct AND protect_pct <= 100)
);

CREATE TABLE quota_topups (
    department_id   text        NOT NULL,
    environment     text        NOT NULL,
    idempotency_key text        NOT NULL,
    tokens          bigint      NOT NULL DEFAULT 0,
    cost_cents      bigint      NOT NULL DEFAULT 0,
    valid_from      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    approved_by     text        NOT NULL,
    reason          text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT quota_topups_pkey PRIMARY KEY (department_id, idempotency_key),
    CONSTRAINT quota_topups_environment CHECK (environment IN ('production', 'test')),
    CONSTRAINT quota_topups_amounts CHECK (tokens >= 0 AND cost_cents >= 0),
    CONSTRAINT quota_topups_window CHECK (valid_from < expires_at)
);

-- A department's month, spread over 16 rows so that its tenants don't queue behind one row (docs/adr/0006).
-- A slot whose counters stay within [floor, ceiling] can be booked without looking at the others: the
-- floors and ceilings of all slots together keep the department within the tier named by band_tier.
CREATE TABLE quota_department_slots (
    department_id           text        NOT NULL,
    environment             text        NOT NULL,
    month                   date        NOT NULL,
    slot                    smallint    NOT NULL,
    tokens_used             bigint      NOT NULL DEFAULT 0,
    cost_used_nanos         bigint      NOT NULL DEFAULT 0,
    tokens_held             bigint      NOT NULL DEFAULT 0,
    cost_held_nanos         bigint      NOT NULL DEFAULT 0,
    tokens_floor            bigint      NOT NULL DEFAULT 0,
    tokens_ceiling          bigint      NOT NULL DEFAULT -1,
    cost_floor_nanos        bigint      NOT NULL DEFAULT 0,
    cost_ceiling_nanos      bigint      NOT NULL DEFAULT -1,
    band_tier               smallint    NOT NULL DEFAULT 0,
    band_from               timestamptz NOT NULL DEFAULT '-infinity',
    band_until              timestamptz NOT NULL DEFAULT '-infinity',
    -- the budget that the band was made for: a change of it is noticed by comparing
    -- the short path may book here: tier normal or warning, any model allowed
    short                   boolean     NOT NULL DEFAULT false,
    -- the version of the budget row that the band was drawn for: any change of it is noticed by comparing
    budget_ctid             tid,
    budget_xmin             xid,
    CONSTRAINT quota_department_slots_pkey PRIMARY KEY (department_id, environment, month, slot)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- ---------------------------------------------------------------- reservations

-- No CHECKs on this and the slots: they are hot, and written by our functions alone; audit looks instead.
-- state: open, settled, released or expired.
CREATE TABLE quota_reservations (
    tenant_id             text        NOT NULL,
    request_id            text        NOT NULL,
    reservation_id        bigint      GENERATED BY DEFAULT AS IDENTITY (CACHE 32),
    state                 text        NOT NULL DEFAULT 'open',
    period                date        NOT NULL,
    department_id         text,
    environment           text        NOT NULL,
    estimated_in_tokens   bigint      NOT NULL,
    estimated_out_tokens  bigint      NOT NULL,
    estimated_cost_nanos  bigint      NOT NULL,
    charged_in_tokens     bigint,
    charged_out_tokens    bigint,
    charged_cost_nanos    bigint,
    cached_in_tokens      bigint,
    progress_out_tokens   bigint      NOT NULL DEFAULT 0,
    stale_policy          text,
    completion_counted    boolean     NOT NULL DEFAULT true,
    token_taken           boolean     NOT NULL DEFAULT true,
    usage_missing         boolean     NOT NULL DEFAULT false,
    unpriced              boolean     NOT NULL DEFAULT false,
    unreserved            boolean     NOT NULL DEFAULT false,
    late                  boolean     NOT NULL DEFAULT false,
    over                  boolean     NOT NULL DEFAULT false,
    ttl_seconds           int         NOT NULL,
    admitted_at           timestamptz NOT NULL,
    expires_at            timestamptz NOT NULL,
    ended_at              timestamptz,
    updated_at            timestamptz,
    requested_model       text,
    answered_model        text,
    model                 text,
    app                   text,
    api_key               text,
    end_user              text,
    priority              text        NOT NULL DEFAULT 'normal',
    tier                  text        NOT NULL DEFAULT 'normal',
    notice                text,
    observed_reason       text,
    usage_id              text,
    usage_in_tokens       bigint,
    usage_out_tokens      bigint,
    usage_cost_nanos      bigint,
    CONSTRAINT quota_reservations_pkey PRIMARY KEY (tenant_id, request_id)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX quota_reservations_overdue ON quota_reservations (expires_at) WHERE state = 'open';
-- For upkeep and the last hour's views: rows arrive in time order, so a block-range index does and costs next to nothing.
CREATE INDEX quota_reservations_admitted ON quota_reservations USING brin (admitted_at) WITH (pages_per_range = 32);

-- Usage ids beyond the first of a request, with the figures that each brought.
CREATE TABLE quota_usage_ids (
    tenant_id  text        NOT NULL,
    request_id text        NOT NULL,
    usage_id   text        NOT NULL,
    in_tokens  bigint,
    out_tokens bigint,
    cost_nanos bigint,
    seen_at    timestamptz NOT NULL,
    CONSTRAINT quota_usage_ids_pkey PRIMARY KEY (tenant_id, request_id, usage_id)
);

-- ---------------------------------------------------------------- refusals

-- Counted without a row version per refusal: in a storm the count lives in a sequence (docs/adr/0007);
-- read it through the view quota_refusals.
CREATE TABLE quota_refusal_counts (
    tenant_id    text        NOT NULL,
    period       date        NOT NULL,
    reason       text        NOT NULL,
    first_at     timestamptz NOT NULL,
    last_at      timestamptz NOT NULL,
    counted      bigint      NOT NULL DEFAULT 1,
    burst        int         NOT NULL DEFAULT 0,
    burst_at     timestamptz NOT NULL DEFAULT '-infinity',
    counter      regclass,
    counter_base bigint,
    CONSTRAINT quota_refusal_counts_pkey PRIMARY KEY (tenant_id, period, reason)
) WITH (fillfactor = 70);
CREATE INDEX quota_refusal_counts_counter ON quota_refusal_counts (counter) WHERE counter IS NOT NULL;
DO $$
BEGIN
    FOR i IN 0..31 LOOP
        EXECUTE format('CREATE UNLOGGED SEQUENCE quota_refusal_counter_%s', lpad(i::text, 2, '0'));
    END LOOP;
END $$;

-- ---------------------------------------------------------------- shapes of the batches

CREATE TYPE quota_request AS (
    ordinal     int,
    fault       text,
    tenant      text,
    request_id  text,
    in_tokens   bigint,
    out_tokens  bigint,
    cost_nanos  bigint,
    model       text,
    app         text,
    api_key     text,
    end_user    text,
    priority    text,
    ttl_seconds int
);

CREATE TYPE quota_answer AS (
    allowed             boolean,
    reason              text,
    observed_reason     text,
    reservation_id      bigint,
    replayed            boolean,
    tier                text,
    model               text,
    notice              text,
    limit_name          text,
    limit_value         bigint,
    limit_used          bigint,
    resets_at           timestamptz,
    retry_after_seconds numeric,
    ordinal             int
);

-- A batch by tenant: parallel arrays.
CREATE TYPE quota_batch_groups AS (
    tenants text[],
    depts   text[],
    envs    text[],
    ttls    int[],
    tiers   text[],
    ns      bigint[],
    ins     bigint[],
    outs    bigint[],
    costs   bigint[],
    fits    boolean[]
);

-- What of a batch was admitted in one go: parallel arrays, in the batch's order.
CREATE TYPE quota_batch_done AS (
    ordinals        int[],
    reservation_ids bigint[],
    tiers           text[]
);

-- What an end or a correction changes in a department's month; department_id NULL: nothing.
CREATE TYPE quota_booking AS (
    department_id   text,
    environment     text,
    month           date,
    tokens          bigint,
    cost_nanos      bigint,
    held_tokens     bigint,
    held_cost_nanos bigint
);

CREATE TYPE quota_usage_report AS (
    ordinal          int,
    fault            text,
    tenant           text,
    request_id       text,
    in_tokens        bigint,
    out_tokens       bigint,
    cost_nanos       bigint,
    usage_id         text,
    model            text,
    cached_in_tokens bigint
);
