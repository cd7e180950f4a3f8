-- Watch: the usual pace of tenants' apps and keys, and which trouble beyond thresholds was told.

-- What each app and API key of a tenant was admitted in a complete hour ('' is a label that nobody gave): the usual
-- that the present is held against. minutes: how many of the hour's 60 had a request. Kept for eight days.
CREATE TABLE quota_paces (
    tenant_id   text        NOT NULL,
    app         text        NOT NULL,
    api_key     text        NOT NULL,
    hour        timestamptz NOT NULL,
    requests    bigint      NOT NULL,
    minutes     smallint    NOT NULL,
    tokens      numeric     NOT NULL,
    cost_nanos  numeric     NOT NULL,
    CONSTRAINT quota_paces_pkey PRIMARY KEY (tenant_id, app, api_key, hour),
    CONSTRAINT quota_paces_minutes CHECK (minutes BETWEEN 1 AND 60 AND minutes <= requests)
);
CREATE INDEX quota_paces_hour ON quota_paces USING brin (hour) WITH (pages_per_range = 32);

-- What was told: a row per trouble ('burn', 'runaway') of a subject, with what it is about: for a burn the dimension
-- and 'day' or 'month', for a runaway the app and the API key. Not told again before quiet_until.
CREATE TABLE quota_watch_told (
    trouble      text        NOT NULL,
    subject_kind text        NOT NULL,
    subject      text        NOT NULL,
    environment  text        NOT NULL,
    about        text        NOT NULL,
    detail       text        NOT NULL,
    told_at      timestamptz NOT NULL,
    quiet_until  timestamptz NOT NULL,
    CONSTRAINT quota_watch_told_pkey PRIMARY KEY (subject, trouble, subject_kind, environment, about, detail),
    CONSTRAINT quota_watch_told_trouble CHECK (trouble IN ('burn', 'runaway')),
    CONSTRAINT quota_watch_told_subject_kind CHECK (subject_kind IN ('tenant', 'department'))
);
CREATE INDEX quota_watch_told_quiet ON quota_watch_told (quiet_until);
