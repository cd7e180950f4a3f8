-- Does time alone bring work, while no row has changed? For tick_begin; p_now is the clock.
--
-- True: a hold ran out, a message or inbox row waits, a top-up began or ended, a day did, thresholds wait
-- for their second tick to be re-armed, a storm of refusals may be over, or the clock went back. Takes no locks.
CREATE OR REPLACE FUNCTION tick_time_brings(p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_scanned_at timestamptz := (SELECT s.scanned_at FROM quota_warn_scans s WHERE s.scan = 'soft_warn');
BEGIN
    RETURN v_scanned_at IS NULL OR v_scanned_at > p_now OR quota_day(v_scanned_at) <> quota_day(p_now)
        OR EXISTS (SELECT FROM quota_reservations r WHERE r.state = 'open' AND r.expires_at <= p_now)
        OR EXISTS (SELECT FROM quota_usage_inbox i WHERE i.booked_at IS NULL)
        OR EXISTS (SELECT FROM quota_outbox o WHERE o.state = 'pending' AND quota_outbox_ready(o.next_attempt_at, p_now))
        OR EXISTS (SELECT FROM quota_outbox o WHERE o.state = 'sending' AND quota_outbox_ready(o.lease_until, p_now))
        OR EXISTS (SELECT FROM quota_topups t
                    WHERE t.valid_from > v_scanned_at AND t.valid_from <= p_now
                       OR t.expires_at > v_scanned_at AND t.expires_at <= p_now)
        OR EXISTS (SELECT FROM quota_warn_log w
                    WHERE w.subject_kind IS NOT NULL AND w.rearmed_at IS NULL AND w.below_ticks > 0
                      AND w.period_start >= quota_month(quota_day(p_now)))
        OR EXISTS (SELECT FROM quota_refusal_counts c WHERE c.counter IS NOT NULL);
END
$$;
