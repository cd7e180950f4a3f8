-- Which rows of a table upkeep removes: a condition on the row s, with $4 the bounds (quota_upkeep_bounds). Internal.
--
-- monthly: what it asks for changes only when another month may go. by_tenant: removed under the tenants' locks, as a
-- correction reads the row before it writes. least_days: what the contract and the other jobs need. NULLs: not a table of
-- upkeep's. Why each is kept so long: docs/upkeep.md. Takes no locks.
CREATE OR REPLACE FUNCTION quota_upkeep_rule(
    p_table text, OUT condition text, OUT monthly boolean, OUT by_tenant boolean, OUT least_days int
)
LANGUAGE sql STABLE
AS $$
    SELECT r.condition, r.monthly, r.relation = 'quota_reservations', r.least_days
      FROM (VALUES
        -- Remembered for 40 days after its end. Its month is closed, and was long ago. What still waits for a price is kept,
        -- and so is a row that no function leaves behind: the audit names it.
        ('quota_reservations', true, 40, $r$
            s.state IN ('settled', 'released', 'expired') AND s.ended_at < ($4).waiting_until
            AND s.period < ($4).before_day AND quota_month(s.period) = ANY (($4).months)
            AND s.admitted_at < ($4).before_at AND s.expires_at < ($4).before_at + interval '1 day'
            AND NOT s.unpriced AND num_nulls(s.charged_in_tokens, s.charged_out_tokens, s.charged_cost_nanos) = 0 $r$),
        -- what waits to be booked has no booked_at
        ('quota_usage_inbox', true, 40, $r$ s.booked_at < ($4).until AND s.received_at < ($4).before_at $r$),
        -- a storm's count stands in a sequence until it is over
        ('quota_refusal_counts', true, 40, $r$
            s.counter IS NULL AND s.period < ($4).before_day AND s.last_at < ($4).until $r$),
        ('quota_day_parts', true, 40, $r$ quota_month(s.day) = ANY (($4).months) $r$),
        -- Nothing that waits, for an attempt or for a digest, and nothing that somebody has still to look after; nor
        -- what such a message tells the failure of.
        ('quota_outbox', false, 30, $r$
            (s.state IN ('sent', 'superseded') OR s.state = 'stale' AND NOT s.digest_only
             OR s.state = 'dead' AND s.acked_at IS NOT NULL)
            AND greatest(s.created_at, s.sent_at, s.ended_at, s.failed_at, s.acked_at) < ($4).until
            AND NOT EXISTS (SELECT FROM quota_outbox f
                             WHERE f.fallback_of = s.outbox_id AND f.state IN ('pending', 'sending', 'dead', 'stale')) $r$),
        -- Rows of other programs have no subject_kind: theirs. The whole period, a month too, ended so long ago.
        ('quota_warn_log', false, 100, $r$
            s.subject_kind IS NOT NULL AND s.period_start < quota_month(quota_day(($4).until)) $r$),
        -- The last hundred of a job stay, and its last that was done: what status and metrics show.
        ('job_runs', false, 14, $r$
            s.started_at < ($4).until
            AND s.scheduled_for < (SELECT n.scheduled_for FROM job_runs n WHERE n.job = s.job AND n.scheduled_for <= ($4).at
                                    ORDER BY n.scheduled_for DESC OFFSET 99 LIMIT 1)
            AND s.scheduled_for < (SELECT max(d.scheduled_for) FROM job_runs d
                                    WHERE d.job = s.job AND d.outcome = 'done' AND d.scheduled_for <= ($4).at) $r$),
        -- The last asking stays: it says that sources are in use.
        ('quota_source_asks', false, 40, $r$
            s.asked_at < ($4).until
            AND NOT EXISTS (SELECT FROM quota_reservations o
                             WHERE o.tenant_id = s.tenant_id AND o.request_id = s.request_id AND o.ended_at IS NULL) $r$),
        ('quota_source_faults', false, 40, $r$ s.seen_at < ($4).until $r$),
        -- told again after seven days anyway
        ('quota_missing_told', false, 14, $r$ s.told_at < ($4).until $r$),
        ('quota_watch_told', false, 14, $r$ s.quiet_until < ($4).until AND s.told_at < ($4).until $r$),
        -- its job removes them after eight days, unless it was switched off
        ('quota_paces', false, 14, $r$ s.hour < ($4).until $r$)
      ) AS r (relation, monthly, least_days, condition)
     WHERE r.relation = p_table
    -- one row, of NULLs where there is none
    UNION ALL
    SELECT NULL, NULL, NULL, NULL
     LIMIT 1
$$;
