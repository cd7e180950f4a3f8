-- Looks at what was noted as changed in days of other months (quota_adjustments), once their month is closed.
--
-- What the closing saw is in the frozen totals, and is forgotten, at the first call after it: from then on whatever is
-- there came later, and no transaction's id is asked for (after a dump and restore they begin anew, and would be taken
-- for ones that the closing saw). What came after it is booked in the month in
-- which it came, or where that is closed, too, in the first open one after all that are: roll_month makes a row
-- of that month of it, which names the month it belongs to. Changes of months that are open wait.
-- Returns how many were booked. Idempotent. Locks: quota_months rows, ascending (those just closed; then shared, a
-- closing waits, and is waited for). SQLSTATE: 55P03 when one stays locked for 2 s: nothing was done.
CREATE OR REPLACE FUNCTION quota_book_adjustments(p_now timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_month  date;
    v_target date;
    v_seen   pg_snapshot;
    v_rows   bigint;
    v_booked bigint := 0;
BEGIN
    FOR v_month, v_seen IN
        SELECT m.month, m.closed_snapshot FROM quota_months m
         WHERE m.closed_snapshot IS NOT NULL ORDER BY m.month FOR NO KEY UPDATE
    LOOP
        DELETE FROM quota_adjustments a
         WHERE a.booked_month IS NULL AND quota_month(a.period) = v_month AND pg_visible_in_snapshot(a.adjusted_xid, v_seen);
        UPDATE quota_months m SET closed_snapshot = NULL WHERE m.month = v_month;
    END LOOP;
    IF NOT EXISTS (SELECT FROM quota_adjustments a JOIN quota_months m ON m.month = quota_month(a.period)
                    WHERE a.booked_month IS NULL AND m.closed_at IS NOT NULL) THEN
        RETURN 0;
    END IF;
    FOR v_month IN
        SELECT DISTINCT quota_month(quota_day(a.adjusted_at))
          FROM quota_adjustments a JOIN quota_months m ON m.month = quota_month(a.period)
         WHERE a.booked_month IS NULL AND m.closed_at IS NOT NULL ORDER BY 1
    LOOP
        v_target := quota_month_open(v_month);
        UPDATE quota_adjustments a SET booked_month = v_target
          FROM quota_months m
         WHERE a.booked_month IS NULL AND m.month = quota_month(a.period) AND m.closed_at IS NOT NULL
           AND quota_month(quota_day(a.adjusted_at)) = v_month;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        v_booked := v_booked + v_rows;
    END LOOP;
    RETURN v_booked;
END $$;

-- p_month if it is open, else the month after the last closed one; it can't be closed until the transaction ends.
CREATE OR REPLACE FUNCTION quota_month_open(p_month date) RETURNS date
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_month  date := p_month;
    v_closed timestamptz;
BEGIN
    FOR i IN 1..3 LOOP
        INSERT INTO quota_months (month) VALUES (v_month) ON CONFLICT DO NOTHING;
        SELECT m.closed_at INTO STRICT v_closed FROM quota_months m WHERE m.month = v_month FOR SHARE;
        EXIT WHEN v_closed IS NULL;
        SELECT (max(m.month) + interval '1 month')::date INTO v_month FROM quota_months m WHERE m.closed_at IS NOT NULL;
    END LOOP;
    RETURN v_month;
END $$;
