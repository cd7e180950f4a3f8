-- Upkeep: how far the removal of old rows has come, and of which months requests were removed.

-- When upkeep removed the first of a closed month's requests; NULL: all that the ledger remembers are there. From then on
-- the audit can't hold the month's days against its requests, only against its frozen totals.
ALTER TABLE quota_months ADD COLUMN requests_removed_at timestamptz;

-- A row per table that upkeep walks through, block by block, in batches of a transaction each. next_block: where the
-- next batch begins, 0 between two walks. passed_over: rows of the present or the last walk that somebody held locked.
-- horizon: the walk to the end that met no such row had removed what lies before this day; only tables whose rows go by
-- the month have it, and aren't walked again before another month may go.
CREATE TABLE quota_upkeep_walks (
    relation    text        NOT NULL,
    next_block  bigint      NOT NULL DEFAULT 0,
    passed_over bigint      NOT NULL DEFAULT 0,
    removed     bigint      NOT NULL DEFAULT 0,
    walked_at   timestamptz NOT NULL,
    horizon     date,
    CONSTRAINT quota_upkeep_walks_pkey PRIMARY KEY (relation)
);

-- What may go: see the function of the same name.
CREATE TYPE quota_upkeep_bounds AS (
    at            timestamptz,
    until         timestamptz,
    waiting_until timestamptz,
    months        date[],
    before_day    date,
    before_at     timestamptz
);

