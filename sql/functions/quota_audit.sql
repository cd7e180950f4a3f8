-- quota_audit: what of a billing month (default: the open one) breaks the ledger's invariants, with the likely cause.
--
-- A row per counter that is off (severity drift), and per thing to look at that is no drift (severity remark).
-- kind: held, posted, direct_write, booked, negative, orphan (quota_audit_counters), impossible (a request's row in a
-- state that no function leaves), usage (a request's charge isn't its latest usage), department, closed; remarks:
-- overdue, unpriced, usage_missing, inbox, source, folded, legacy, removed.
-- period: the day; the month's first where the row is about the month. dimension: of a tenant's day completions,
-- input_tokens, output_tokens, cost_nanos; of a department's month the column. expected, found: NULL where the row
-- is no counter. request_id: the request that explains it, if one does.
-- Changes nothing, takes no locks. All of it is read from the snapshot of the calling statement (STABLE), so
-- that traffic in between is no drift. SQLSTATE QW002: p_month is no first of a month, or in the future.
CREATE OR REPLACE FUNCTION quota_audit(p_month date DEFAULT NULL, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (
    severity text, kind text, tenant_id text, department_id text, environment text, period date, dimension text,
    expected numeric, found numeric, request_id text, cause text
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    v_now    timestamptz := quota_now(p_now);
    v_month  date := quota_audit_month(p_month, v_now);
    v_span   tstzrange := quota_audit_span(v_month);
    -- worked out once, since they are asked for each row
    v_open   date := quota_audit_open();
    v_closed boolean := quota_audit_is_closed(v_month);
BEGIN
    RETURN QUERY
    SELECT 'drift', c.kind, c.tenant_id, l.department_id, l.environment, c.period, c.dimension, c.expected, c.found,
           c.request_id, c.cause
      FROM quota_audit_counters(v_month, NULL, v_span) c
      LEFT JOIN tenant_limits l ON l.tenant_id = c.tenant_id;
    RETURN QUERY
    SELECT 'drift', i.kind, i.tenant_id, i.department_id, i.environment, i.period, 'request', NULL::numeric,
           NULL::numeric, i.request_id, i.cause
      FROM quota_audit_impossible(v_month, v_open, v_closed) i;
    RETURN QUERY
    SELECT 'drift', 'department', NULL::text, d.department_id, d.environment, v_month, d.dimension, d.expected, d.found,
           d.request_id, d.cause
      FROM quota_audit_departments(v_month, v_span) d;
    RETURN QUERY
    SELECT 'drift', 'closed', c.tenant_id, l.department_id, l.environment, v_month, c.dimension, c.expected, c.found,
           NULL::text,
           CASE WHEN EXISTS (SELECT FROM quota_months m WHERE m.month = v_month AND m.closed_clock < quota_month_end(v_month))
                THEN 'the month was closed before it was over: what was charged in it after that is in no totals yet'
                ELSE 'the closed month''s totals and adjustments differ from its days: a day was changed by something '
                     'other than the ledger''s functions' END
      FROM quota_audit_closed(v_month, NULL) c
      LEFT JOIN tenant_limits l ON l.tenant_id = c.tenant_id;
    RETURN QUERY
    SELECT 'remark', m.kind, m.tenant_id, m.department_id, m.environment, m.period, 'requests', NULL::numeric, m.found,
           m.request_id, m.cause
      FROM quota_audit_remarks(v_month, v_now, v_span) m;
    RETURN QUERY
    SELECT 'remark', 'legacy', NULL::text, g.department_id, g.environment, v_month, g.dimension, g.expected, g.found,
           NULL::text, g.cause
      FROM quota_audit_legacy(v_month) g;
END $$;

-- When the month's requests were admitted: with some days to spare on either side, for the neighbouring days, and for
-- those that were admitted under another zone. Worked out once, since it would be asked for each row.
CREATE OR REPLACE FUNCTION quota_audit_span(p_month date) RETURNS tstzrange
LANGUAGE sql STABLE
AS $$ SELECT tstzrange(quota_day_start(p_month - 3), quota_day_start((p_month + interval '1 month')::date + 3)) $$;

-- The month that is audited. SQLSTATE QW002.
CREATE OR REPLACE FUNCTION quota_audit_month(p_month date, p_now timestamptz) RETURNS date
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_open date := quota_month(quota_day(p_now));
BEGIN
    IF p_month <> quota_month(p_month) THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = format('quota_audit: %s is no first day of a month', p_month);
    ELSIF p_month > v_open THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = format(
            'quota_audit: %s has not begun: the open month is %s', to_char(p_month, 'YYYY-MM'), to_char(v_open, 'YYYY-MM'));
    END IF;
    RETURN coalesce(p_month, v_open);
END $$;

-- How a month stands: open; closed; no_charges, a past one without any; not_closed, a past one that isn't yet.
CREATE OR REPLACE FUNCTION quota_audit_state(p_month date, p_now timestamptz) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_next date := (p_month + interval '1 month')::date;
    v_span tstzrange := quota_audit_span(p_month);
BEGIN
    IF p_month = quota_month(quota_day(p_now)) THEN
        RETURN 'open';
    ELSIF quota_audit_is_closed(p_month) THEN
        RETURN 'closed';
    ELSIF EXISTS (SELECT FROM quota_usage u WHERE u.period >= p_month AND u.period < v_next)
          OR EXISTS (SELECT FROM quota_reservations r WHERE r.period >= p_month AND r.period < v_next
                        AND r.admitted_at >= lower(v_span) AND r.admitted_at < upper(v_span)) THEN
        RETURN 'not_closed';
    END IF;
    RETURN 'no_charges';
END $$;
