-- Asks to send one request on a channel now: 0 when granted, else the seconds to wait before asking again.
--
-- At most p_per_second grants in any 1.2 seconds (they arrive apart, though some take longer on their way) and
-- p_per_minute in any minute, over all workers. Real time always: the service's limits are. p_now is for tests. A clock that was set back can't block: grants from the future are
-- forgotten. Lock: the channel's row. SQLSTATE: 55P03 when it isn't free for 2 s; 22023 for limits below 1.
CREATE OR REPLACE FUNCTION quota_channel_slot(
    p_channel text, p_per_second int, p_per_minute int, p_now timestamptz DEFAULT NULL) RETURNS double precision
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now     timestamptz;
    v_granted timestamptz[];
    v_free_at timestamptz;
BEGIN
    IF p_per_second < 1 OR p_per_minute < 1 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'quota_channel_slot: limits must be at least 1';
    END IF;
    INSERT INTO quota_channel_rates (channel) VALUES (p_channel) ON CONFLICT DO NOTHING;
    SELECT r.granted_at INTO v_granted FROM quota_channel_rates r WHERE r.channel = p_channel FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    SELECT coalesce(array_agg(g ORDER BY g DESC), '{}') INTO v_granted
      FROM unnest(v_granted) AS g WHERE g <= v_now AND g > v_now - interval '1 minute';
    v_free_at := greatest(v_granted[p_per_second] + interval '1.2 seconds', v_granted[p_per_minute] + interval '1 minute');
    IF v_free_at > v_now THEN
        RETURN date_part('epoch', v_free_at - v_now);
    END IF;
    UPDATE quota_channel_rates r SET granted_at = array_prepend(v_now, v_granted) WHERE r.channel = p_channel;
    RETURN 0;
END
$$;
