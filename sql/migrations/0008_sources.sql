-- Usage sources: whoever may know the usage of a request whose last chunk never came.

-- Which overdue reservations the sources were asked for, and when last: so that those come first that were never
-- asked. Rows of reservations that have ended are cleared by the next asking.
CREATE TABLE quota_source_asks (
    tenant_id  text        NOT NULL,
    request_id text        NOT NULL,
    asked_at   timestamptz NOT NULL,
    asks       int         NOT NULL DEFAULT 1,
    CONSTRAINT quota_source_asks_pkey PRIMARY KEY (tenant_id, request_id)
);
CREATE INDEX quota_source_asks_asked ON quota_source_asks (asked_at);

-- Answers that were set aside: the newest 10,000, of at most 40 days. The excerpt holds no secret.
CREATE TABLE quota_source_faults (
    tenant_id     text        NOT NULL,
    request_id    text        NOT NULL,
    source        text        NOT NULL,
    reason        text        NOT NULL,
    excerpt       text        NOT NULL,
    times         int         NOT NULL DEFAULT 1,
    first_seen_at timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    CONSTRAINT quota_source_faults_pkey PRIMARY KEY (tenant_id, request_id, source, reason)
);
CREATE INDEX quota_source_faults_seen ON quota_source_faults (seen_at);

-- When each source may be asked next, over all workers.
CREATE TABLE quota_source_rates (
    source  text        NOT NULL,
    next_at timestamptz NOT NULL,
    CONSTRAINT quota_source_rates_pkey PRIMARY KEY (source)
);
