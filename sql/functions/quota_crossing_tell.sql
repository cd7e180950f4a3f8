-- Says that this transaction's charge passed a threshold, or was the first refusal of its kind: a row for those who
-- poll or come later, and a notification on the channel quota_crossing for those who listen, sent when it commits.
-- p_kind: tenant or department; the payload is that word alone.
--
-- To be called on a crossing only: commits with a notification wait for one another, in the whole cluster. All its
-- databases share one queue of notifications, which fills up while any program that listens stands still in a
-- transaction; a commit that finds it full fails. So that no charge does, a queue that is half full gets none of ours:
-- the row is found by the next look.
-- Internal. Locks: none but those of its own new row.
CREATE OR REPLACE FUNCTION quota_crossing_tell(p_kind text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    INSERT INTO quota_crossings (subject_kind) VALUES (p_kind);
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify('quota_crossing', p_kind);
    END IF;
END $$;
