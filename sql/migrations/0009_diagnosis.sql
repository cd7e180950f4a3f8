-- Diagnosis: which groups of requests were told to come without usage.

-- A row per group, with what was told of it last. '' is a label that nobody gave, as in the messages.
CREATE TABLE quota_missing_told (
    model       text        NOT NULL,
    app         text        NOT NULL,
    api_key     text        NOT NULL,
    told_at     timestamptz NOT NULL,
    requests    bigint      NOT NULL,
    missing     bigint      NOT NULL,
    CONSTRAINT quota_missing_told_pkey PRIMARY KEY (model, app, api_key)
);
