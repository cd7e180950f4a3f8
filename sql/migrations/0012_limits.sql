-- Limits by command: stops that end by themselves, and a record of changes.

-- A person's stop of a tenant or a whole department: no request is admitted until blocked_until, in any mode. Who asks
-- compares the time; nothing has to run for it to end. A table of its own, for a CHECK would refuse to touch the row of a
-- tenant whose old limits are odd, and a block stays when that row is deleted and made anew (docs/adr/0017).
CREATE TABLE quota_blocks (
    subject       text        NOT NULL,
    subject_kind  text        NOT NULL,
    blocked_at    timestamptz NOT NULL,
    blocked_until timestamptz NOT NULL,
    blocked_by    text        NOT NULL,
    reason        text        NOT NULL,
    CONSTRAINT quota_blocks_pkey PRIMARY KEY (subject, subject_kind),
    CONSTRAINT quota_blocks_kind CHECK (subject_kind IN ('tenant', 'department')),
    CONSTRAINT quota_blocks_window CHECK (blocked_at < blocked_until)
);
CREATE INDEX quota_blocks_until ON quota_blocks (blocked_until);

-- What commands changed: the whole row before and after; NULL: there was none, or is none any more. environment: of a
-- budget or an allowance, else ''. changed_by is what the person said or the system knew, database_user who logged in.
-- action found: a change that no command made, noticed by the next one; who made it and when isn't known.
CREATE TABLE quota_limit_changes (
    change_id     bigint      GENERATED ALWAYS AS IDENTITY,
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by    text        NOT NULL,
    database_user text        NOT NULL DEFAULT session_user,
    action        text        NOT NULL,
    subject_kind  text        NOT NULL,
    subject       text        NOT NULL,
    environment   text        NOT NULL DEFAULT '',
    before        jsonb,
    after         jsonb,
    reason        text,
    file_name     text,
    file_sha256   text,
    CONSTRAINT quota_limit_changes_pkey PRIMARY KEY (change_id),
    CONSTRAINT quota_limit_changes_action CHECK (action IN ('apply', 'remove', 'block', 'unblock', 'topup', 'found')),
    CONSTRAINT quota_limit_changes_kind CHECK (subject_kind IN ('tenant', 'department', 'budget'))
);
CREATE INDEX quota_limit_changes_subject ON quota_limit_changes (subject, change_id);
