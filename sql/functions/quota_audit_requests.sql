-- The day to which a request belongs. Where its day and the time of its admission contradict each other: the one of the
-- two that agrees with its expiry, which lies a time to live after the admission, up to an hour where it was streamed.
-- Where neither does: what its end speaks for, as most requests end soon; else the day that the expiry tells. STABLE, as
-- all of these that are asked for each row: so that the planner can inline them.
CREATE OR REPLACE FUNCTION quota_audit_home(r quota_reservations) RETURNS date
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN r.expires_at >= r.admitted_at + r.ttl_seconds * interval '1 second'
             AND r.expires_at <= r.admitted_at + greatest(r.ttl_seconds, 3600) * interval '1 second'
             AND isfinite(r.admitted_at) THEN quota_day(r.admitted_at)
        WHEN r.period BETWEEN quota_day(r.expires_at - greatest(r.ttl_seconds, 3600) * interval '1 second')
                          AND quota_day(r.expires_at - r.ttl_seconds * interval '1 second') THEN r.period
        -- perhaps a day of another zone, as below
        WHEN quota_day(r.expires_at - r.ttl_seconds * interval '1 second') BETWEEN r.period - 2 AND r.period + 2
             AND r.period < quota_audit_open() THEN r.period
        WHEN quota_audit_ended_by(r) THEN quota_day(r.expires_at - r.ttl_seconds * interval '1 second')
        WHEN r.ended_at >= r.admitted_at AND r.ended_at < r.admitted_at + interval '24 hours' THEN quota_day(r.admitted_at)
        WHEN r.period = quota_day(r.ended_at) THEN r.period
        WHEN isfinite(r.expires_at) AND r.period <> quota_day(r.admitted_at)
             AND coalesce(r.ended_at >= r.expires_at - greatest(r.ttl_seconds, 3600) * interval '1 second', true)
            THEN quota_day(r.expires_at - r.ttl_seconds * interval '1 second')
        WHEN NOT isfinite(r.admitted_at) THEN r.period
        ELSE quota_day(r.admitted_at) END
$$;

-- Whether a request's end speaks for its expiry: it ended while it lived by that, or within a day after.
CREATE OR REPLACE FUNCTION quota_audit_ended_by(r quota_reservations) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT isfinite(r.expires_at) AND r.ended_at >= r.expires_at - greatest(r.ttl_seconds, 3600) * interval '1 second'
           AND r.ended_at <= r.expires_at + interval '24 hours'
$$;

-- Whether a request lies on another day than that of its admission. p_open: quota_audit_open. Days from it on are those of
-- today's zone; requests before it were admitted perhaps under another, whose days begin up to 26 hours earlier or later.
-- Also where both agree, yet its expiry and its end both say that it was admitted a day or more earlier or later.
CREATE OR REPLACE FUNCTION quota_audit_astray(r quota_reservations, p_open date) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT r.period <> quota_day(r.admitted_at)
           AND (r.period >= p_open
                OR r.period NOT BETWEEN quota_day(r.admitted_at) - 2 AND quota_day(r.admitted_at) + 2)
        OR r.expires_at NOT BETWEEN r.admitted_at AND r.admitted_at + interval '24 hours'
           AND NOT (r.ended_at >= r.admitted_at AND r.ended_at < r.admitted_at + interval '24 hours')
           AND quota_audit_ended_by(r) AND isfinite(r.admitted_at)
$$;

-- What is wrong with a request's row, in words, or NULL. The table has no CHECKs: the audit looks instead. p_open: as
-- above. p_closed: whether its month is closed, and so nothing of it may be open.
CREATE OR REPLACE FUNCTION quota_audit_fault(r quota_reservations, p_open date, p_closed boolean) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN quota_audit_astray(r, p_open) AND quota_audit_home(r) <> r.period
            THEN format('it lies on the wrong day: it was admitted on %s', quota_audit_home(r))
        WHEN quota_audit_astray(r, p_open)
            THEN format('its time of admission, on %s, was changed: its day and its expiry contradict it', quota_day(r.admitted_at))
        WHEN r.state NOT IN ('open', 'settled', 'released', 'expired') THEN format('its state is %s, which is none', r.state)
        WHEN r.state = 'open' AND r.ended_at IS NOT NULL THEN 'it is open, yet has an end'
        WHEN r.state = 'open' AND num_nonnulls(r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos) > 0
            THEN 'it is open, yet charged'
        WHEN r.state = 'open' AND r.usage_in_tokens IS NOT NULL THEN 'it is open, yet has usage'
        WHEN r.state = 'open' AND r.expires_at > r.admitted_at + interval '24 hours' THEN 'it is open, and would never be overdue'
        WHEN r.state = 'open' AND p_closed THEN 'it is open, yet its month is closed'
        WHEN r.state <> 'open' AND r.ended_at IS NULL THEN 'it ended, at no time'
        WHEN r.state <> 'open' AND num_nulls(r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos) > 0
            THEN 'it ended without a charge'
        WHEN r.state = 'expired' AND coalesce(r.stale_policy NOT IN ('estimate', 'partial', 'release'), true)
            THEN 'it expired by a policy that is none'
        WHEN least(r.estimated_in_tokens, r.estimated_out_tokens, r.estimated_cost_nanos,
                   r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos,
                   r.usage_in_tokens, r.usage_out_tokens, r.usage_cost_nanos) < 0 THEN 'an amount is below zero'
    END
$$;

-- What an ended request, whose row is possible otherwise, is to be charged by its row, in words where it isn't, or NULL.
-- Its latest usage; the cost of usage that came without one is not judged, as prices may have changed since. Without
-- usage as its end says: the estimate, or by the stale policy; a release names its amounts itself.
CREATE OR REPLACE FUNCTION quota_audit_mischarge(r quota_reservations) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN r.usage_in_tokens IS NOT NULL
             AND (r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos)
                 <> (r.usage_in_tokens, r.usage_out_tokens, coalesce(r.usage_cost_nanos, r.charged_cost_nanos))
            THEN format('it is charged %s input and %s output tokens and %s nanos, its latest usage is %s, %s and %s',
                        r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos,
                        r.usage_in_tokens, r.usage_out_tokens, coalesce(r.usage_cost_nanos, r.charged_cost_nanos))
        WHEN r.usage_in_tokens IS NULL
             AND (r.state = 'settled' OR r.state = 'expired' AND r.stale_policy = 'estimate')
             AND (r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos)
                 <> (r.estimated_in_tokens, r.estimated_out_tokens, r.estimated_cost_nanos)
            THEN 'it ended without usage, and is not charged its estimate'
        WHEN r.usage_in_tokens IS NULL AND r.state = 'expired' AND r.stale_policy = 'release'
             AND (r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos) <> (0, 0, 0)
            THEN 'it expired by the policy release, and is charged'
        WHEN r.usage_in_tokens IS NULL AND r.state = 'expired' AND r.stale_policy = 'partial'
             AND (r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos)
                 <> (r.estimated_in_tokens, r.progress_out_tokens, quota_partial_cost(r))
            THEN 'it expired by the policy partial, and is not charged its estimated input and what was streamed'
        WHEN NOT r.completion_counted
             AND (r.usage_in_tokens IS NOT NULL OR r.state = 'settled' OR r.state = 'expired' AND r.stale_policy <> 'release')
            THEN 'it is charged, and its completion is not counted'
    END
$$;

-- The month's requests in a state that no function leaves behind (kind impossible), or whose charge isn't what their own
-- row says (kind usage): those on its days, and those that belong there. All requests of the ledger are read, since the
-- time of an admission may be what is wrong. Internal to quota_audit and quota_audit_repair.
CREATE OR REPLACE FUNCTION quota_audit_impossible(p_month date, p_open date, p_closed boolean)
RETURNS TABLE (kind text, tenant_id text, department_id text, environment text, period date, request_id text, cause text)
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN quota_audit_fault(r, p_open, p_closed) IS NULL THEN 'usage' ELSE 'impossible' END,
           r.tenant_id, r.department_id, r.environment, r.period, r.request_id,
           coalesce('the request''s row is impossible: ' || quota_audit_fault(r, p_open, p_closed),
                    'the request''s charge is wrong: ' || quota_audit_mischarge(r))
      FROM quota_reservations r
     WHERE (r.period >= p_month AND r.period < (p_month + interval '1 month')::date
            OR quota_audit_home(r) >= p_month AND quota_audit_home(r) < (p_month + interval '1 month')::date)
       AND (quota_audit_fault(r, p_open, p_closed) IS NOT NULL OR quota_audit_mischarge(r) IS NOT NULL)
$$;

-- The first month of those after the last closed one. A zone in which a request of a month that isn't closed would lie on
-- another day is refused (settings set).
CREATE OR REPLACE FUNCTION quota_audit_open() RETURNS date
LANGUAGE sql STABLE
AS $$
    SELECT coalesce((max(m.month) + interval '1 month')::date, '-infinity')
      FROM quota_months m WHERE m.closed_at IS NOT NULL
$$;

-- Whether a month is closed, so that nothing of it may be open any more.
CREATE OR REPLACE FUNCTION quota_audit_is_closed(p_month date) RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT EXISTS (SELECT FROM quota_months m WHERE m.month = p_month AND m.closed_at IS NOT NULL) $$;

-- Whether upkeep removed requests of a month: its counters can't be held against them any more.
CREATE OR REPLACE FUNCTION quota_audit_removed(p_month date) RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT EXISTS (SELECT FROM quota_months m WHERE m.month = p_month AND m.requests_removed_at IS NOT NULL) $$;

-- What usage without a cost is charged, and why, in words. p_reason: as in quota_unpriced; NULL: it isn't listed there.
CREATE OR REPLACE FUNCTION quota_audit_unpriced(p_model text, p_reason text, p_unreserved boolean) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('usage of %s without a cost is charged %s: %s',
                  coalesce('model ' || p_model, 'an unnamed model'),
                  CASE WHEN p_unreserved THEN 'nothing, as nobody reserved it' ELSE 'in proportion to its estimate' END,
                  CASE p_reason WHEN 'no_rate' THEN 'its price is known, the rate of the price''s currency is missing'
                                WHEN 'no_model' THEN 'a price needs the model''s name'
                                ELSE 'no price is known' END)
$$;

-- Whether a row that was set aside needs no look any more, but for rows behind it in the inbox: usage of its request was
-- settled later, or the ledger has no such request and 40 days are over.
CREATE OR REPLACE FUNCTION quota_audit_inbox_mended(p_row quota_usage_inbox, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    r      quota_reservations;
    c_keep CONSTANT interval := '40 days';
BEGIN
    SELECT * INTO r FROM quota_reservations q WHERE q.tenant_id = p_row.tenant_id AND q.request_id = p_row.request_id;
    IF NOT FOUND THEN
        RETURN p_row.received_at <= p_now - c_keep;
    ELSIF p_row.outcome = 'invalid' THEN
        RETURN r.usage_in_tokens IS NOT NULL AND greatest(r.ended_at, r.updated_at) > p_row.booked_at;
    END IF;
    -- another usage took the place of the one that it was in conflict with
    RETURN EXISTS (SELECT FROM quota_usage_ids d
                    WHERE d.tenant_id = p_row.tenant_id AND d.request_id = p_row.request_id AND d.seen_at > p_row.booked_at);
END $$;

-- The inbox's rows that were received in that time, set aside, and need a look still.
CREATE OR REPLACE FUNCTION quota_audit_set_aside(p_from timestamptz, p_until timestamptz, p_now timestamptz)
RETURNS SETOF quota_usage_inbox
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
-- One pass over the inbox, also where statistics know nothing of it yet: a tenant's rows for each row would be squares.
SET enable_nestloop = off
SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT i.* FROM quota_usage_inbox i
     WHERE i.outcome IN ('invalid', 'conflict') AND i.received_at >= p_from AND i.received_at < p_until
       AND NOT quota_audit_inbox_mended(i, p_now)
       -- right figures that were appended behind it: those of a conflict under another usage id
       AND NOT EXISTS (SELECT FROM quota_usage_inbox j
                        WHERE j.tenant_id = i.tenant_id AND j.request_id = i.request_id AND j.inbox_id > i.inbox_id
                          AND j.outcome NOT IN ('invalid', 'conflict')
                          AND (i.outcome = 'invalid' OR j.usage_id IS DISTINCT FROM i.usage_id));
END $$;

-- What is no drift, and for somebody to look at: a row per tenant (and model; of folded: and day), found being how many;
-- 'removed' is of the month.
CREATE OR REPLACE FUNCTION quota_audit_remarks(p_month date, p_now timestamptz, p_span tstzrange)
RETURNS TABLE (
    kind text, tenant_id text, department_id text, environment text, period date, found numeric, request_id text, cause text
)
LANGUAGE sql STABLE
AS $$
    WITH months AS MATERIALIZED (
        SELECT (p_month + interval '1 month')::date AS next_month, quota_day_start(p_month) AS from_at,
               quota_day_start((p_month + interval '1 month')::date) AS until_at
    )
    SELECT 'overdue', r.tenant_id, r.department_id, r.environment, p_month, count(*),
           (array_agg(r.request_id ORDER BY r.expires_at))[1],
           format('open past its time, the oldest since %s: reconcile asks the usage sources, if any, then ends it',
                  to_char(min(r.expires_at) AT TIME ZONE quota_zone(), 'YYYY-MM-DD HH24:MI'))
      FROM quota_reservations r, months m
     WHERE r.state = 'open' AND r.expires_at <= p_now AND r.period >= p_month AND r.period < m.next_month
     GROUP BY r.tenant_id, r.department_id, r.environment
    UNION ALL
    SELECT 'unpriced', r.tenant_id, r.department_id, r.environment, p_month, count(*), max(r.request_id),
           quota_audit_unpriced(r.model, w.reason, r.unreserved)
      FROM months m, quota_reservations r
      LEFT JOIN quota_unpriced w ON w.tenant_id = r.tenant_id AND w.request_id = r.request_id
     WHERE r.unpriced AND r.period >= p_month AND r.period < m.next_month
       AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
     GROUP BY r.tenant_id, r.department_id, r.environment, r.model, w.reason, r.unreserved
    UNION ALL
    SELECT 'usage_missing', r.tenant_id, r.department_id, r.environment, p_month, count(*), max(r.request_id),
           'ended without usage: charged by estimate or by the stale policy until usage comes'
      FROM quota_reservations r, months m
     WHERE r.usage_missing AND r.period >= p_month AND r.period < m.next_month
       AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
     GROUP BY r.tenant_id, r.department_id, r.environment
    UNION ALL
    SELECT 'inbox', i.tenant_id, NULL, NULL, p_month, count(*), max(i.request_id),
           CASE i.outcome WHEN 'conflict' THEN 'usage in the inbox was set aside: its usage id came before with other figures'
                          ELSE 'usage in the inbox was set aside: the tenant never existed, or the figures are unusable' END
      FROM months m, quota_audit_set_aside(m.from_at, m.until_at, p_now) i
     GROUP BY i.tenant_id, i.outcome
    UNION ALL
    SELECT 'folded', f.tenant_id, f.department_id, f.environment, f.period, 1, f.request_id,
           format('the day''s legacy charges equal the charge of request %s: posted twice and folded in, unless it was meant',
                  f.request_id)
      FROM (SELECT DISTINCT ON (u.tenant_id, u.period) u.tenant_id, u.period, r.department_id, r.environment, r.request_id
              FROM quota_usage u JOIN quota_reservations r ON r.tenant_id = u.tenant_id AND r.period = u.period, months m
             WHERE u.period >= p_month AND u.period < m.next_month
               AND (u.legacy_input_tokens, u.legacy_output_tokens, u.legacy_cost_nanos) <> (0, 0, 0)
               AND r.charged_in_tokens = u.legacy_input_tokens AND r.charged_out_tokens = u.legacy_output_tokens
               AND r.charged_cost_nanos = u.legacy_cost_nanos
               AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
             ORDER BY u.tenant_id, u.period, r.admitted_at DESC, r.request_id) f
    UNION ALL
    SELECT 'source', s.tenant_id, NULL, NULL, p_month, count(*), max(s.request_id),
           format('an answer of the usage source %s was set aside: %s', s.source, s.reason)
      FROM quota_source_faults s, months m
     WHERE s.seen_at >= m.from_at AND s.seen_at < m.until_at AND s.seen_at > p_now - interval '40 days'
       -- until the request has its usage; where the cost was left out, until the charge was corrected
       AND NOT EXISTS (SELECT FROM quota_reservations r
                        WHERE r.tenant_id = s.tenant_id AND r.request_id = s.request_id AND r.ended_at IS NOT NULL
                          AND NOT r.usage_missing AND NOT r.unpriced
                          AND (s.reason NOT IN ('no_rate', 'unknown_currency') OR r.updated_at > s.seen_at))
     GROUP BY s.tenant_id, s.source, s.reason
    UNION ALL
    SELECT 'removed', NULL, NULL, NULL, p_month, NULL, NULL,
           format('upkeep has removed requests of this month since %s: its days are held against its frozen totals alone',
                  to_char(n.requests_removed_at AT TIME ZONE quota_zone(), 'YYYY-MM-DD'))
      FROM quota_months n
     WHERE n.month = p_month AND n.requests_removed_at IS NOT NULL
$$;
