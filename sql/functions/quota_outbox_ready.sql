-- Whether an instant that delivery waits for has come: an attempt's time, or the end of a lease.
--
-- One that lies further ahead than any wait does was set by a clock that ran ahead, and has come too. Pure.
CREATE OR REPLACE FUNCTION quota_outbox_ready(p_at timestamptz, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT p_at <= p_now OR p_at > p_now + interval '6 hours' $$;
