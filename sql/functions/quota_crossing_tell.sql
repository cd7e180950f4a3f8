-- Says that this transaction's charge passed a threshold, or was the first refusal of its kind: a row for those who
-- poll or come later, and a notification on the channel quota_crossing for those who listen, sent when it commits.
-- p_kind: tenant or department; the payload is that word alone.
--
-- To be called on a crossing only: commits with a notification wait for one another, in the whole cluster.
-- Internal. Locks: none but those of its own new row.
CREATE OR REPLACE FUNCTION quota_crossing_tell(p_kind text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    INSERT INTO quota_crossings (subject_kind) VALUES (p_kind);
    PERFORM pg_notify('quota_crossing', p_kind);
END $$;
