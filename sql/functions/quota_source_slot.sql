-- Asks when one request may go to a usage source: the seconds to wait, counted over all workers; NULL: later than
-- p_wait_seconds, and no request is counted.
--
-- Requests are 1 / p_per_second apart. Real time always: the other side's limit is; p_now is for tests. A clock that was
-- set back can't block: what lies more than a minute ahead is forgotten. Lock: the source's row.
-- SQLSTATEs: QW002 a rate or wait that can't be; 55P03 when the row isn't free for 2 s.
CREATE OR REPLACE FUNCTION quota_source_slot(
    p_source text, p_per_second int, p_wait_seconds double precision, p_now timestamptz DEFAULT NULL)
RETURNS double precision
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now  timestamptz;
    v_next timestamptz;
BEGIN
    IF (p_per_second >= 1 AND p_wait_seconds >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_source_slot: the rate must be at least 1, the wait 0';
    END IF;
    INSERT INTO quota_source_rates (source, next_at) VALUES (p_source, '-infinity') ON CONFLICT DO NOTHING;
    SELECT q.next_at INTO v_next FROM quota_source_rates q WHERE q.source = p_source FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    IF v_next < v_now OR v_next > v_now + interval '1 minute' THEN
        v_next := v_now;
    END IF;
    IF v_next > v_now + make_interval(secs => p_wait_seconds) THEN
        RETURN NULL;
    END IF;
    UPDATE quota_source_rates q SET next_at = v_next + make_interval(secs => 1.0 / p_per_second) WHERE q.source = p_source;
    RETURN date_part('epoch', v_next - v_now);
END $$;
