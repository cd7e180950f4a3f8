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
