-- Reports: which months were closed before they were over.

-- When a month was closed by the database's clock, whatever time the roll was given (closed_at is that); NULL: before
-- this version.
ALTER TABLE quota_months ADD COLUMN closed_clock timestamptz;
