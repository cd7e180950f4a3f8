-- Delivery to many: recipients, digests, what a message is about, and what people did with it.

ALTER TABLE quota_outbox
    -- whom the message is about, as in its facts; empty for messages about nobody
    ADD COLUMN subject_kind  text,
    ADD COLUMN subject       text,
    ADD COLUMN environment   text,
    -- the address, on channels that serve many (e-mail); else the channel is the recipient
    ADD COLUMN recipient     text,
    -- the id of the request it went out in, while it may have arrived: its own dedupe_key, or a digest's. Repeated
    -- under the same id with the same members, so that a service that knows ids takes it once.
    ADD COLUMN request_key   text,
    -- request_key stays whatever the next attempt comes to: an earlier one may have arrived, or its digest was refused
    ADD COLUMN key_stays     boolean NOT NULL DEFAULT false,
    -- how many workers were lost with it, one after the other
    ADD COLUMN lost_workers  int     NOT NULL DEFAULT 0,
    -- never a message of its own: a line of the recipient's next digest
    ADD COLUMN digest_only   boolean NOT NULL DEFAULT false,
    -- when the last period that it tells of ends
    ADD COLUMN told_until    timestamptz,
    ADD COLUMN superseded_by text,
    ADD COLUMN acked_at      timestamptz,
    ADD COLUMN acked_by      text,
    ADD COLUMN ack_note      text,
    DROP CONSTRAINT quota_outbox_severity,
    DROP CONSTRAINT quota_outbox_failure,
    ADD CONSTRAINT quota_outbox_severity CHECK (severity IN ('warning', 'downgrade', 'protected', 'exhausted', 'available')),
    ADD CONSTRAINT quota_outbox_failure CHECK (last_failure IN (
        'timeout', 'unreachable', 'rate_limited', 'server_error', 'bad_signature', 'keyword_missing',
        'bot_removed', 'address_refused', 'too_large', 'rejected', 'unknown_answer', 'command_missing',
        'command_failed', 'not_configured', 'not_rendered', 'worker_lost', 'recipient_refused', 'login_refused',
        'no_permission', 'content_refused')),
    ADD CONSTRAINT quota_outbox_request_key CHECK (length(request_key) BETWEEN 1 AND 50);

UPDATE quota_outbox o
   SET subject_kind = o.facts ->> 'subject_kind', subject = o.facts ->> 'subject',
       environment = o.facts ->> 'environment';

-- A dead message may be told on several fallbacks, each once.
DROP INDEX quota_outbox_told_once;
CREATE UNIQUE INDEX quota_outbox_told_once ON quota_outbox (fallback_of, channel, coalesce(recipient, ''))
    WHERE fallback_of IS NOT NULL;
DROP INDEX quota_outbox_due;
CREATE INDEX quota_outbox_due ON quota_outbox (channel, urgency, created_at, outbox_id) WHERE state = 'pending';
CREATE INDEX quota_outbox_for_digest ON quota_outbox (channel, created_at) WHERE state = 'stale' AND digest_only;
CREATE INDEX quota_outbox_told_until ON quota_outbox (told_until) WHERE state = 'pending' AND attempts = 0;
-- What a higher threshold may supersede.
CREATE INDEX quota_outbox_waiting ON quota_outbox (subject) WHERE state = 'pending';
CREATE INDEX quota_outbox_request ON quota_outbox (request_key) WHERE state IN ('pending', 'sending');
CREATE INDEX quota_outbox_subject ON quota_outbox (subject, created_at);
-- The history, newest first.
CREATE INDEX quota_outbox_made ON quota_outbox (created_at, outbox_id);
-- What is still to be looked after by somebody.
CREATE INDEX quota_outbox_dead ON quota_outbox (created_at) WHERE state = 'dead' AND acked_at IS NULL;

-- When a subject that had been told as exhausted was told as available again.
ALTER TABLE quota_warn_log ADD COLUMN IF NOT EXISTS told_available_at timestamptz;
CREATE INDEX quota_warn_log_exhausted ON quota_warn_log (period_start)
    WHERE subject_kind IS NOT NULL AND threshold = 100 AND told_available_at IS NULL;

-- Functions whose parameters or results changed; the files in sql/functions make them anew.
DROP FUNCTION IF EXISTS quota_soft_warn(timestamptz, text[], int);
DROP FUNCTION IF EXISTS quota_warn_candidates(text, date);
DROP FUNCTION IF EXISTS quota_warn_facts(text[], timestamptz);
DROP FUNCTION IF EXISTS quota_outbox_claim(text, text[], int, int, timestamptz);
DROP FUNCTION IF EXISTS quota_outbox_finish(bigint, uuid, timestamptz);
DROP FUNCTION IF EXISTS quota_outbox_fail(bigint, uuid, text, text, boolean, text, timestamptz);
DROP FUNCTION IF EXISTS quota_department_top_apps(text, text, timestamptz, int);
