-- Recomputes the totals of one open billing month, and closes it after its grace.
--
-- One row out: rows (written or changed), closed (whether the month is closed now).
-- A closed month is left as it is, whatever its usage says since: (0, true).
-- It closes once the month's local end plus p_grace_hours is past and no reservation of
-- it is open; then its rows are frozen as they stand in this transaction. What legacy programs wrote
-- directly counts then as far as it was folded in (quota_book_legacy_month, before); what is folded in later is an
-- adjustment. By a p_now to come a month closes before its time: closed_clock tells so. adjusts_month names the closed month in rows of adjustments (quota_book_adjustments).
--
-- A tenant's month is the sum of its days in quota_usage (used: posted and held). What
-- its requests were charged goes to the department, environment, model and app of their
-- admission (quota_month_parts); the rest, charges without a request, to the department
-- that the tenant belonged to when they came, with no model or app. So the rows of a
-- tenant always add up to its days, and the parts to the rows. quota_month_days has the
-- month by day, quota_month_budgets what budgets were in force.
-- stale_*: charged by estimate or partial after a reservation ran out, with no usage
-- since. peak_day: the tenant's day with most tokens, the earliest of equals.
--
-- Set-wise and idempotent: unchanged rows aren't rewritten, and of the requests only
-- those of days that changed since the last roll are read. Lock: the month's row in
-- quota_months, so that runs side by side take turns. SQLSTATE: 55P03 when that row
-- stays locked for 2 s; QW002 for a p_month that is no first of a month.
CREATE OR REPLACE FUNCTION quota_roll_month(
    p_month        date,
    p_now          timestamptz DEFAULT NULL,
    p_grace_hours  integer DEFAULT 72,
    OUT rows       bigint,
    OUT closed     boolean
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
-- Sets of which nothing is known while they are made must not be joined row by row.
SET enable_nestloop = off
-- PostgreSQL before 18 takes what is off for dear, and would compile each statement for seconds
SET jit = off
-- Groups by tenant stay in memory: at most a few of these, hourly.
SET work_mem = '128MB'
AS $$
DECLARE
    v_now        timestamptz;
    v_next       date := (p_month + interval '1 month')::date;
    v_seen       pg_snapshot;
    v_age        bigint;
    v_closed_at  timestamptz;
    v_closing    boolean;
    v_snapshot   pg_snapshot;
BEGIN
    IF p_month IS NULL OR p_month <> date_trunc('month', p_month)::date THEN
        RAISE EXCEPTION 'p_month must be the first day of a month, not %', p_month
            USING ERRCODE = 'QW002';
    END IF;
    INSERT INTO quota_months (month) VALUES (p_month) ON CONFLICT DO NOTHING;
    SELECT m.closed_at, m.rolled_snapshot INTO STRICT v_closed_at, v_seen
      FROM quota_months m WHERE m.month = p_month FOR UPDATE;
    IF v_closed_at IS NOT NULL THEN
        rows := 0;
        closed := true;
        RETURN;
    END IF;
    v_now := COALESCE(p_now, clock_timestamp());
    v_closing := quota_month_end(p_month) + make_interval(hours => p_grace_hours) <= v_now
        AND NOT EXISTS (SELECT 1 FROM quota_reservations r
                         WHERE r.state = 'open' AND r.period >= p_month AND r.period < v_next);

    -- A day that no transaction wrote since the last roll keeps its parts. All are read anew at the closing, at first,
    -- and where transaction ids can't be compared: after a restore, or 2 thousand million of them.
    v_age := CASE
        WHEN v_closing OR v_seen IS NULL THEN NULL
        WHEN pg_snapshot_xmin(v_seen) > pg_snapshot_xmax(pg_current_snapshot())
             OR pg_snapshot_xmax(pg_current_snapshot())::text::numeric - pg_snapshot_xmin(v_seen)::text::numeric > 2000000000
            THEN NULL
        ELSE age(pg_snapshot_xmin(v_seen)::xid) END;
    SELECT p.rows, p.snapshot INTO rows, v_snapshot FROM quota_roll_parts(p_month, v_closing, v_age, v_now) p;
    PERFORM quota_roll_budgets(p_month);

    UPDATE quota_months m
       SET rolled_at = v_now, rolled_snapshot = v_snapshot, closed_at = CASE WHEN v_closing THEN v_now END,
           closed_snapshot = CASE WHEN v_closing THEN v_snapshot END,
           closed_clock = CASE WHEN v_closing THEN clock_timestamp() END
     WHERE m.month = p_month;
    closed := v_closing;
END
$$;
