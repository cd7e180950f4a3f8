-- The monthly report: what the totals are made of, outcomes, and the reports themselves.

-- ---------------------------------------------------------------- outcomes

-- Each import of outcomes: who (the user that logged in), when, which file, and what it changed.
-- rows = added + changed + unchanged; removed: values of the file's months and metrics that it no longer has.
CREATE TABLE quota_outcome_imports (
    import_id   bigint      GENERATED ALWAYS AS IDENTITY,
    imported_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    imported_by text        NOT NULL DEFAULT session_user,
    file_name   text        NOT NULL,
    file_sha256 text        NOT NULL,
    rows        bigint      NOT NULL,
    added       bigint      NOT NULL DEFAULT 0,
    changed     bigint      NOT NULL DEFAULT 0,
    unchanged   bigint      NOT NULL DEFAULT 0,
    removed     bigint      NOT NULL DEFAULT 0,
    CONSTRAINT quota_outcome_imports_pkey PRIMARY KEY (import_id)
);

-- What a department achieved in a month. The values in force have superseded_by NULL: read v_quota_outcomes.
-- import_id: the import that brought the value; superseded_by: the one that changed or removed it.
CREATE TABLE quota_outcomes (
    department_id text    NOT NULL,
    month         date    NOT NULL,
    metric        text    NOT NULL,
    value         numeric NOT NULL,
    import_id     bigint  NOT NULL,
    superseded_by bigint,
    CONSTRAINT quota_outcomes_pkey PRIMARY KEY (department_id, month, metric, import_id),
    CONSTRAINT quota_outcomes_month CHECK (extract(day FROM month) = 1),
    CONSTRAINT quota_outcomes_value CHECK (value >= 0 AND value < 'Infinity')
);
CREATE UNIQUE INDEX quota_outcomes_in_force ON quota_outcomes (month, metric, department_id) WHERE superseded_by IS NULL;

-- The rows of a file while it is read: empty again when the import's transaction ends.
CREATE TABLE quota_outcome_drafts (
    line          integer NOT NULL,
    month         date    NOT NULL,
    department_id text    NOT NULL,
    metric        text    NOT NULL,
    value         numeric NOT NULL
);

-- ---------------------------------------------------------------- what the months' totals are made of

-- The request's model and app, as they were told; '' where the change has no request, or none was told.
ALTER TABLE quota_adjustments
    ADD COLUMN model text NOT NULL DEFAULT '',
    ADD COLUMN app   text NOT NULL DEFAULT '';
DROP FUNCTION IF EXISTS quota_adjustment_note(text, text, text, text, date, numeric, numeric, numeric, numeric, timestamptz);

-- What the last roll of an open month saw: days that no later transaction wrote keep their parts.
ALTER TABLE quota_months ADD COLUMN rolled_snapshot pg_snapshot;

-- What requests charged on a day of an open month, kept from roll to roll; a closed month has none.
CREATE TABLE quota_day_parts (
    day               date    NOT NULL,
    tenant_id         text    NOT NULL,
    department_id     text    NOT NULL,
    environment       text    NOT NULL,
    model             text    NOT NULL,
    app               text    NOT NULL,
    completions       numeric NOT NULL,
    input_tokens      numeric NOT NULL,
    cached_in_tokens  numeric NOT NULL,
    output_tokens     numeric NOT NULL,
    cost_nanos        numeric NOT NULL,
    stale_count       bigint  NOT NULL,
    stale_cost_nanos  numeric NOT NULL,
    released_count    bigint  NOT NULL,
    unpriced_count    bigint  NOT NULL,
    downgraded_count  bigint  NOT NULL,
    downgraded_tokens numeric NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX quota_day_parts_day ON quota_day_parts (day);

-- A row of quota_monthly_totals by model and app: the sums of its parts are that row. '' none was told, or the
-- charge has no request; cached_in_tokens are part of input_tokens; released_count: gave everything back, and is no
-- completion; unpriced: the cost is a guess; downgraded: answered by another model than was asked for.
CREATE TABLE quota_month_parts (
    month             date    NOT NULL,
    belongs_to        date    NOT NULL,
    adjusts_month     date    GENERATED ALWAYS AS (nullif(belongs_to, month)) STORED,
    tenant_id         text    NOT NULL,
    department_id     text    NOT NULL,
    environment       text    NOT NULL,
    model             text    NOT NULL,
    app               text    NOT NULL,
    completions       numeric NOT NULL,
    input_tokens      numeric NOT NULL,
    cached_in_tokens  numeric NOT NULL,
    output_tokens     numeric NOT NULL,
    cost_nanos        numeric NOT NULL,
    stale_count       bigint  NOT NULL,
    stale_cost_nanos  numeric NOT NULL,
    released_count    bigint  NOT NULL,
    unpriced_count    bigint  NOT NULL,
    downgraded_count  bigint  NOT NULL,
    downgraded_tokens numeric NOT NULL
);
-- No key over all the labels: five of 200 characters may be more than an index row holds.
CREATE INDEX quota_month_parts_month ON quota_month_parts (month, department_id);

-- The month's own days of a department and environment, adjustments left out.
CREATE TABLE quota_month_days (
    month             date    NOT NULL,
    day               date    NOT NULL,
    department_id     text    NOT NULL,
    environment       text    NOT NULL,
    completions       numeric NOT NULL,
    input_tokens      numeric NOT NULL,
    cached_in_tokens  numeric NOT NULL,
    output_tokens     numeric NOT NULL,
    cost_nanos        numeric NOT NULL,
    stale_count       bigint  NOT NULL,
    stale_cost_nanos  numeric NOT NULL,
    released_count    bigint  NOT NULL,
    unpriced_count    bigint  NOT NULL,
    downgraded_count  bigint  NOT NULL,
    downgraded_tokens numeric NOT NULL,
    CONSTRAINT quota_month_days_pkey PRIMARY KEY (month, department_id, environment, day)
);

-- Budgets as they were in force; NULL: no limit. topup_*: allowances whose time met the month's.
CREATE TABLE quota_month_budgets (
    month              date    NOT NULL,
    department_id      text    NOT NULL,
    environment        text    NOT NULL,
    monthly_tokens     bigint,
    monthly_cost_cents bigint,
    warn_pct           int,
    downgrade_pct      int,
    protect_pct        int,
    topups             int     NOT NULL,
    topup_tokens       numeric NOT NULL,
    topup_cost_cents   numeric NOT NULL,
    CONSTRAINT quota_month_budgets_pkey PRIMARY KEY (month, department_id, environment)
);

-- Where a tenant's charges without a request belonged: from which day to which department and environment ('' none).
-- A row when the first is booked, and when one is booked after the tenant was moved. before_*: such charges of
-- from_day itself that came before the move, less those that earlier rows of that day have.
CREATE TABLE quota_legacy_places (
    tenant_id            text   NOT NULL,
    place_id             bigint GENERATED ALWAYS AS IDENTITY,
    from_day             date   NOT NULL,
    department_id        text   NOT NULL,
    environment          text   NOT NULL,
    before_completions   numeric NOT NULL DEFAULT 0,
    before_input_tokens  numeric NOT NULL DEFAULT 0,
    before_output_tokens numeric NOT NULL DEFAULT 0,
    before_cost_nanos    numeric NOT NULL DEFAULT 0,
    CONSTRAINT quota_legacy_places_pkey PRIMARY KEY (tenant_id, place_id)
);

-- ---------------------------------------------------------------- the reports themselves

-- A revision of a closed month's report: of a department, '' of all. figures: what it told by name, exact, from which
-- changes are found; changes: [{"figure", "old", "new"}] to the revision before. seen_import: outcomes up to this
-- import were looked at; the same in all revisions of one report.
CREATE TABLE quota_reports (
    month         date        NOT NULL,
    department_id text        NOT NULL,
    revision      int         NOT NULL,
    built_at      timestamptz NOT NULL,
    fingerprint   text        NOT NULL,
    seen_import   bigint      NOT NULL,
    locale        text        NOT NULL,
    figures       jsonb       NOT NULL,
    summary       jsonb       NOT NULL,
    changes       jsonb       NOT NULL DEFAULT '[]',
    CONSTRAINT quota_reports_pkey PRIMARY KEY (month, department_id, revision)
);
CREATE INDEX quota_reports_seen ON quota_reports (month, seen_import);
