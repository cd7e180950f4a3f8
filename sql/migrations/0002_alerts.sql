-- What was told, and the messages on their way. Additive: a quota_warn_log that somebody made from the
-- tutorial keeps its columns, its rows and its programs.

-- A row per crossing of a threshold, written in the transaction that writes the message it causes.
-- state: told (a message), past (told after its period had ended), superseded (a higher threshold of the
-- same cap was told instead), digest (ended unseen below 100 %: for the digest only).
CREATE TABLE IF NOT EXISTS quota_warn_log (
    subject_kind text   NOT NULL,
    subject      text   NOT NULL,
    environment  text   NOT NULL,
    dimension    text   NOT NULL,
    period_kind  text   NOT NULL,
    period_start date   NOT NULL,
    threshold    int    NOT NULL,
    generation   int    NOT NULL DEFAULT 0
);

-- An older table of the same name: its NOT NULL columns would refuse our rows, which leave them empty.
-- Its primary key becomes a UNIQUE constraint of the same name, so that its own ON CONFLICT goes on working.
DO $$
DECLARE
    v_table oid := to_regclass('quota_warn_log');
    v_key   record;
    v_column record;
BEGIN
    SELECT c.conname, pg_get_constraintdef(c.oid) AS definition INTO v_key
      FROM pg_constraint c WHERE c.conrelid = v_table AND c.contype = 'p';
    IF FOUND THEN
        EXECUTE format('ALTER TABLE quota_warn_log DROP CONSTRAINT %I, ADD CONSTRAINT %I %s',
                       v_key.conname, v_key.conname, replace(v_key.definition, 'PRIMARY KEY', 'UNIQUE'));
    END IF;
    FOR v_column IN
        SELECT a.attname FROM pg_attribute a
         WHERE a.attrelid = v_table AND a.attnum > 0 AND NOT a.attisdropped
           AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
           -- what our rows always fill; ours from the start has no other
           AND a.attname <> ALL (ARRAY['subject_kind', 'subject', 'environment', 'dimension', 'period_kind',
                                       'period_start', 'threshold', 'generation'])
    LOOP
        EXECUTE format('ALTER TABLE quota_warn_log ALTER COLUMN %I DROP NOT NULL', v_column.attname);
    END LOOP;
END $$;

ALTER TABLE quota_warn_log
    ADD COLUMN IF NOT EXISTS subject_kind text,
    ADD COLUMN IF NOT EXISTS subject      text,
    ADD COLUMN IF NOT EXISTS environment  text,
    ADD COLUMN IF NOT EXISTS dimension    text,
    ADD COLUMN IF NOT EXISTS period_kind  text,
    ADD COLUMN IF NOT EXISTS period_start date,
    ADD COLUMN IF NOT EXISTS threshold    int,
    ADD COLUMN IF NOT EXISTS generation   int,
    ADD COLUMN IF NOT EXISTS state        text,
    ADD COLUMN IF NOT EXISTS severity     text,
    -- which message tells it; of several channels' outbox rows all carry it
    ADD COLUMN IF NOT EXISTS message_key  text,
    -- as it was when the crossing was found: counts, tokens or nanos, by dimension
    ADD COLUMN IF NOT EXISTS used         numeric,
    ADD COLUMN IF NOT EXISTS held         numeric,
    ADD COLUMN IF NOT EXISTS cap          numeric,
    ADD COLUMN IF NOT EXISTS refused_at   timestamptz,
    ADD COLUMN IF NOT EXISTS logged_at    timestamptz,
    -- re-arming: the cap last seen, for how many ticks usage has lain below, and when it could be told again
    ADD COLUMN IF NOT EXISTS cap_seen     numeric,
    ADD COLUMN IF NOT EXISTS below_ticks  int,
    ADD COLUMN IF NOT EXISTS below_at     timestamptz,
    ADD COLUMN IF NOT EXISTS rearmed_at   timestamptz,
    ADD COLUMN IF NOT EXISTS rearmed_by   text;

-- What an older table can't share with us is refused here, before a single alert depends on it.
DO $$
DECLARE
    v_table  oid := to_regclass('quota_warn_log');
    v_column record;
    v_key    record;
BEGIN
    SELECT c.name, c.wanted, format_type(a.atttypid, a.atttypmod) AS found, a.attgenerated <> '' AS generated
      INTO v_column
      FROM unnest(
           ARRAY['subject_kind', 'subject', 'environment', 'dimension', 'period_kind', 'period_start', 'threshold',
                 'generation', 'state', 'severity', 'message_key', 'used', 'held', 'cap', 'refused_at', 'logged_at',
                 'cap_seen', 'below_ticks', 'below_at', 'rearmed_at', 'rearmed_by'],
           ARRAY['text', 'text', 'text', 'text', 'text', 'date', 'integer',
                 'integer', 'text', 'text', 'text', 'numeric', 'numeric', 'numeric', 'timestamp with time zone',
                 'timestamp with time zone', 'numeric', 'integer', 'timestamp with time zone',
                 'timestamp with time zone', 'text']) WITH ORDINALITY AS c (name, wanted, place)
      JOIN pg_attribute a ON a.attrelid = v_table AND a.attname = c.name AND NOT a.attisdropped
     WHERE format_type(a.atttypid, a.atttypmod) <> c.wanted OR a.attgenerated <> ''
     ORDER BY c.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'quota_warn_log has a column % of its own, % where quota-worker needs %: %',
            v_column.name, CASE WHEN v_column.generated THEN 'generated' ELSE v_column.found END, v_column.wanted,
            'rename that column or the table';
    END IF;
    -- Two of our rows can't meet in a unique key with a column that they leave NULL or that numbers them, nor
    -- in one with all of our key. Any other would let the first alert keep out the next.
    SELECT coalesce(n.conname, r.relname) AS name, n.conname IS NOT NULL AS is_constraint INTO v_key
      FROM pg_index i
      JOIN pg_class r ON r.oid = i.indexrelid
      LEFT JOIN pg_constraint n ON n.conindid = i.indexrelid AND n.conrelid = v_table AND n.contype IN ('p', 'u', 'x')
     WHERE i.indrelid = v_table AND (i.indisunique OR i.indisexclusion)
       AND NOT EXISTS (
           SELECT FROM generate_series(0, i.indnkeyatts - 1) AS place
             JOIN pg_attribute a ON a.attrelid = v_table AND a.attnum = i.indkey[place]
             LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attname <> ALL (ARRAY['subject_kind', 'subject', 'environment', 'dimension', 'period_kind',
                      'period_start', 'threshold', 'generation', 'state', 'severity', 'message_key', 'used', 'held',
                      'cap', 'refused_at', 'logged_at', 'cap_seen', 'below_ticks', 'below_at', 'rearmed_at',
                      'rearmed_by'])
              AND a.attgenerated = ''
              AND (a.attidentity <> ''
                   OR d.oid IS NULL AND NOT i.indnullsnotdistinct
                   OR pg_get_expr(d.adbin, d.adrelid) ~ '(nextval|gen_random_uuid|uuid_generate_v[14]|uuidv[47])\('))
       AND (i.indisexclusion OR (
           SELECT count(*) FROM pg_attribute a
            WHERE a.attrelid = v_table AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
              AND a.attname = ANY (ARRAY['subject_kind', 'subject', 'environment', 'dimension', 'period_kind',
                                         'period_start', 'threshold', 'generation'])) < 8)
     ORDER BY 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'quota_warn_log has the unique % %, which would keep alerts out: drop it (%) or rename the table',
            CASE WHEN v_key.is_constraint THEN 'constraint' ELSE 'index' END, v_key.name,
            CASE WHEN v_key.is_constraint THEN format('ALTER TABLE quota_warn_log DROP CONSTRAINT %I', v_key.name)
                 ELSE format('DROP INDEX %I', v_key.name) END;
    END IF;
END $$;

ALTER TABLE quota_warn_log
    ADD CONSTRAINT quota_warn_log_state CHECK (subject_kind IS NULL OR state IN ('told', 'past', 'superseded', 'digest')) NOT VALID,
    ADD CONSTRAINT quota_warn_log_rearmed CHECK (subject_kind IS NULL OR rearmed_by IN ('cap', 'usage')) NOT VALID;

-- The one thing that makes a crossing told once, whoever finds it and however often.
CREATE UNIQUE INDEX IF NOT EXISTS quota_warn_log_once ON quota_warn_log
    (subject_kind, subject, environment, dimension, period_kind, period_start, threshold, generation)
    WHERE subject_kind IS NOT NULL;
CREATE INDEX IF NOT EXISTS quota_warn_log_message ON quota_warn_log (message_key) WHERE message_key IS NOT NULL;
-- What can still be re-armed: the rows of open periods.
CREATE INDEX IF NOT EXISTS quota_warn_log_open ON quota_warn_log (period_start)
    WHERE subject_kind IS NOT NULL AND rearmed_at IS NULL;

-- How far each kind of scan has looked: what ended after scanned_at is told as past, and rows written by
-- scanned_xid or a later transaction are looked at again.
CREATE TABLE quota_warn_scans (
    scan        text        NOT NULL,
    scanned_at  timestamptz NOT NULL,
    scanned_xid xid8        NOT NULL,
    CONSTRAINT quota_warn_scans_pkey PRIMARY KEY (scan)
);

-- One row per message and channel. A row is worked on only by the holder of its lease.
CREATE TABLE quota_outbox (
    outbox_id       bigint      GENERATED BY DEFAULT AS IDENTITY,
    dedupe_key      text        NOT NULL,
    message_key     text        NOT NULL,
    kind            text        NOT NULL,
    channel         text        NOT NULL,
    severity        text        NOT NULL,
    urgency         smallint    NOT NULL,
    locale          text        NOT NULL DEFAULT 'en',
    facts           jsonb       NOT NULL,
    state           text        NOT NULL DEFAULT 'pending',
    attempts        int         NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    lease_token     uuid,
    lease_until     timestamptz,
    created_at      timestamptz NOT NULL,
    first_attempt_at timestamptz,
    sent_at         timestamptz,
    ended_at        timestamptz,
    last_failure    text,
    last_detail     text,
    failed_at       timestamptz,
    -- the message whose failure this one tells
    fallback_of     bigint,
    CONSTRAINT quota_outbox_pkey PRIMARY KEY (outbox_id),
    CONSTRAINT quota_outbox_dedupe UNIQUE (dedupe_key),
    CONSTRAINT quota_outbox_dedupe_size CHECK (length(dedupe_key) BETWEEN 1 AND 50),
    CONSTRAINT quota_outbox_fallback FOREIGN KEY (fallback_of) REFERENCES quota_outbox (outbox_id) ON DELETE SET NULL,
    CONSTRAINT quota_outbox_state CHECK (state IN ('pending', 'sending', 'sent', 'dead', 'superseded', 'stale')),
    CONSTRAINT quota_outbox_severity CHECK (severity IN ('warning', 'downgrade', 'protected', 'exhausted')),
    CONSTRAINT quota_outbox_lease CHECK ((state = 'sending') = (lease_token IS NOT NULL)
                                         AND (lease_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT quota_outbox_sent CHECK ((state = 'sent') = (sent_at IS NOT NULL)),
    CONSTRAINT quota_outbox_failure CHECK (last_failure IN (
        'timeout', 'unreachable', 'rate_limited', 'server_error', 'bad_signature', 'keyword_missing',
        'bot_removed', 'address_refused', 'too_large', 'rejected', 'unknown_answer', 'command_missing',
        'command_failed', 'not_configured', 'not_rendered', 'worker_lost'))
) WITH (fillfactor = 80);
CREATE INDEX quota_outbox_due ON quota_outbox (urgency, created_at) WHERE state = 'pending';
CREATE INDEX quota_outbox_leased ON quota_outbox (lease_until) WHERE state = 'sending';
CREATE INDEX quota_outbox_message ON quota_outbox (message_key);
CREATE UNIQUE INDEX quota_outbox_told_once ON quota_outbox (fallback_of) WHERE fallback_of IS NOT NULL;

-- The rate of each channel's bot, shared by all workers: the instants of the latest grants, newest first,
-- at most as many as a minute allows. An exact window: a token bucket lets nearly twice its rate through
-- in the second after a pause. Real time, whatever time the jobs judge by: the service's clock is real.
CREATE TABLE quota_channel_rates (
    channel    text          NOT NULL,
    granted_at timestamptz[] NOT NULL DEFAULT '{}',
    CONSTRAINT quota_channel_rates_pkey PRIMARY KEY (channel)
) WITH (fillfactor = 50);
