-- Prices, rates of currencies, and the list of usage that waits for them. See docs/prices.md.

-- What a million tokens cost. Of a model's rows the latest that has begun is in force, and of it the row of the
-- highest tier that the input is above. origin: package (from genai-prices) or file (overrides, which win).
-- provider '': any. from_time: the time of day (UTC) from which the row counts; 00:00 alone means all day.
-- input_above: the row is for requests with more input tokens than this, and for all of their tokens.
-- input NULL: a price that is known to have conditions that this table can't carry, so there is none.
-- cached_input NULL: cached tokens cost what input costs.
CREATE TABLE quota_prices (
    origin       text        NOT NULL,
    provider     text        NOT NULL DEFAULT '',
    model        text        NOT NULL,
    processing   text        NOT NULL DEFAULT 'standard',
    valid_from   timestamptz NOT NULL DEFAULT '-infinity',
    from_time    time        NOT NULL DEFAULT '00:00',
    input_above  bigint      NOT NULL DEFAULT 0,
    currency     text        NOT NULL,
    input        numeric,
    cached_input numeric,
    output       numeric,
    source       text        NOT NULL DEFAULT '',
    loaded_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT quota_prices_pkey
        PRIMARY KEY (model, origin, provider, processing, valid_from, from_time, input_above),
    CONSTRAINT quota_prices_origin CHECK (origin IN ('package', 'file')),
    CONSTRAINT quota_prices_processing CHECK (processing IN ('standard', 'batch')),
    CONSTRAINT quota_prices_input_above CHECK (input_above >= 0),
    CONSTRAINT quota_prices_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT quota_prices_amounts CHECK (input >= 0 AND cached_input >= 0 AND output >= 0),
    CONSTRAINT quota_prices_whole CHECK ((input IS NULL) = (output IS NULL))
);

-- Which names mean which of the package's models: a model's first place whose clauses all hold in one of its parts.
-- scope: the provider whose models are searched; '' finds the provider of a name, '/' the provider of a prefix.
CREATE TABLE quota_price_rules (
    scope    text NOT NULL,
    place    int  NOT NULL,
    part     int  NOT NULL,
    clause   int  NOT NULL,
    kind     text NOT NULL,
    literal  text NOT NULL,
    provider text NOT NULL,
    model    text NOT NULL DEFAULT '',
    CONSTRAINT quota_price_rules_pkey PRIMARY KEY (scope, place, part, clause),
    CONSTRAINT quota_price_rules_kind CHECK (kind IN ('is', 'starts', 'ends', 'holds', 'regex'))
);

-- What the rules answer for the names that they spell out, so that those needn't be worked out at each usage.
CREATE TABLE quota_price_names (
    name     text NOT NULL,
    provider text NOT NULL,
    model    text NOT NULL,
    CONSTRAINT quota_price_names_pkey PRIMARY KEY (name)
);

-- One unit of the currency in the billing currency, from the start of that billing day on.
CREATE TABLE quota_currency_rates (
    currency   text        NOT NULL,
    valid_from date        NOT NULL,
    rate       numeric     NOT NULL,
    loaded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT quota_currency_rates_pkey PRIMARY KEY (currency, valid_from),
    CONSTRAINT quota_currency_rates_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT quota_currency_rates_rate CHECK (rate > 0)
);

-- Requests marked unpriced: their cost is a guess until a price is known. tried_at: the state of prices and rates
-- that they were last tried with.
CREATE TABLE quota_unpriced (
    tenant_id  text        NOT NULL,
    request_id text        NOT NULL,
    model      text,
    reason     text        NOT NULL,
    since      timestamptz NOT NULL,
    tried_at   timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT quota_unpriced_pkey PRIMARY KEY (tenant_id, request_id),
    CONSTRAINT quota_unpriced_reason CHECK (reason IN ('unknown_model', 'no_rate', 'no_model'))
);
CREATE INDEX quota_unpriced_tried ON quota_unpriced (tried_at, tenant_id, request_id);

INSERT INTO quota_unpriced (tenant_id, request_id, model, reason, since)
SELECT r.tenant_id, r.request_id, r.model, CASE WHEN r.model IS NULL THEN 'no_model' ELSE 'unknown_model' END,
       coalesce(r.updated_at, r.ended_at, r.admitted_at)
  FROM quota_reservations r
 WHERE r.unpriced;

-- Last, since it keeps gateways from appending until the migration is over.
ALTER TABLE quota_usage_inbox
    ADD COLUMN processing text NOT NULL DEFAULT 'standard',
    ADD CONSTRAINT quota_usage_inbox_processing CHECK (processing IN ('standard', 'batch')) NOT VALID;
