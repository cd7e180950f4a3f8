-- Recomputes the totals of one open billing month, and closes it after its grace.
--
-- One row out: rows (written or changed), closed (whether the month is closed now).
-- A closed month is left as it is, whatever its usage says since: (0, true).
-- It closes once the month's local end plus p_grace_hours is past and no reservation of
-- it is open; then its rows are frozen as they stand in this transaction. What legacy programs wrote
-- directly counts then as far as it was folded in (quota_book_legacy_month, before); what is folded in later is an
-- adjustment. adjusts_month names the closed month in rows of adjustments (quota_book_adjustments).
--
-- A tenant's month is the sum of its days in quota_usage (used: posted and held). What
-- was admitted under another department or environment than the tenant's present one
-- stands in rows of its own, by its reservations; the rest, legacy charges included,
-- goes to the present one. So the rows of a tenant always add up to its days.
-- stale_*: charged by estimate or partial after a reservation ran out, with no usage
-- since. peak_day: the tenant's day with most tokens, the earliest of equals.
--
-- Set-wise and idempotent: unchanged rows aren't rewritten. Lock: the month's row in
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
AS $$
DECLARE
    v_now        timestamptz;
    v_next       date := (p_month + interval '1 month')::date;
    -- the month's instants with a day to spare on either side
    v_from       timestamptz := quota_day_start(p_month - 1);
    v_until      timestamptz := quota_day_start((p_month + interval '1 month')::date + 1);
    v_closed_at  timestamptz;
    v_closing    boolean;
    v_snapshot   pg_snapshot;
BEGIN
    IF p_month IS NULL OR p_month <> date_trunc('month', p_month)::date THEN
        RAISE EXCEPTION 'p_month must be the first day of a month, not %', p_month
            USING ERRCODE = 'QW002';
    END IF;
    INSERT INTO quota_months (month) VALUES (p_month) ON CONFLICT DO NOTHING;
    SELECT m.closed_at INTO STRICT v_closed_at
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

    WITH days AS (
        SELECT u.tenant_id,
               coalesce(sum(CASE WHEN v_closing THEN u.booked_completions ELSE u.completions END), 0) AS completions,
               coalesce(sum(CASE WHEN v_closing THEN u.booked_input_tokens ELSE u.input_tokens END), 0) AS input_tokens,
               coalesce(sum(CASE WHEN v_closing THEN u.booked_output_tokens ELSE u.output_tokens END), 0) AS output_tokens,
               -- sums of bigint are exact (numeric): multiplied once, not per row
               CASE WHEN v_closing THEN coalesce(sum(u.booked_cost_nanos), 0)
                    ELSE coalesce(sum(u.cost_cents), 0) * 10000000 + sum(u.cost_subcent_nanos) END AS cost_nanos,
               -- tokens and day in one number, so that a maximum does without a sort:
               -- the greatest tokens win, then the earliest day of the month
               max((GREATEST(u.input_tokens, 0)::numeric + GREATEST(u.output_tokens, 0)) * 32
                   + (31 - (u.period - p_month))) AS peak
          FROM quota_usage u
         WHERE u.period >= p_month AND u.period < v_next
         GROUP BY u.tenant_id
    ), tenant_month AS MATERIALIZED (
        SELECT d.tenant_id, d.completions, d.input_tokens, d.output_tokens, d.cost_nanos,
               p_month + (31 - (d.peak % 32)::integer) AS peak_day,
               COALESCE(l.department_id, '') AS department_id,
               COALESCE(l.environment, 'production') AS environment
          FROM days d
          LEFT JOIN tenant_limits l ON l.tenant_id = d.tenant_id
    ), apart AS MATERIALIZED (
        -- The limits are joined by key while the reservations are read, not tenant_month:
        -- fresh tables have no statistics, and a nested loop over a CTE would be quadratic.
        SELECT r.tenant_id, COALESCE(r.department_id, '') AS department_id, r.environment,
               COALESCE(l.department_id, '') = COALESCE(r.department_id, '')
                   AND COALESCE(l.environment, 'production') = r.environment AS home,
               count(*) FILTER (WHERE r.completion_counted) AS completions,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens
                        ELSE r.charged_in_tokens END) AS input_tokens,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_out_tokens
                        ELSE r.charged_out_tokens END) AS output_tokens,
               sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos
                        ELSE r.charged_cost_nanos END) AS cost_nanos,
               count(*) FILTER (WHERE r.state = 'expired' AND NOT r.late
                                  AND r.charged_cost_nanos + r.charged_in_tokens
                                      + r.charged_out_tokens > 0) AS stale_count,
               COALESCE(sum(r.charged_cost_nanos)
                   FILTER (WHERE r.state = 'expired' AND NOT r.late), 0) AS stale_cost_nanos
          FROM quota_reservations r
          LEFT JOIN tenant_limits l ON l.tenant_id = r.tenant_id
         WHERE r.period >= p_month AND r.period < v_next
           -- implied by period; said for the block-range index
           AND r.admitted_at >= v_from AND r.admitted_at < v_until
           AND ((r.state = 'expired' AND NOT r.late)
                OR COALESCE(l.department_id, '') <> COALESCE(r.department_id, '')
                OR COALESCE(l.environment, 'production') <> r.environment)
         GROUP BY r.tenant_id, COALESCE(r.department_id, ''), r.environment,
                  COALESCE(l.department_id, ''), COALESCE(l.environment, 'production')
    ), moved AS (
        SELECT a.tenant_id, sum(a.completions) AS completions,
               sum(a.input_tokens) AS input_tokens, sum(a.output_tokens) AS output_tokens,
               sum(a.cost_nanos) AS cost_nanos
          FROM apart a WHERE NOT a.home GROUP BY a.tenant_id
    ), computed AS (
        SELECT m.tenant_id, m.department_id, m.environment, NULL::date AS adjusts_month,
               m.completions - COALESCE(v.completions, 0) AS completions,
               m.input_tokens - COALESCE(v.input_tokens, 0) AS input_tokens,
               m.output_tokens - COALESCE(v.output_tokens, 0) AS output_tokens,
               m.cost_nanos - COALESCE(v.cost_nanos, 0) AS cost_nanos,
               COALESCE(h.stale_count, 0) AS stale_count,
               COALESCE(h.stale_cost_nanos, 0) AS stale_cost_nanos, m.peak_day
          FROM tenant_month m
          LEFT JOIN moved v ON v.tenant_id = m.tenant_id
          LEFT JOIN apart h ON h.tenant_id = m.tenant_id AND h.home
        UNION ALL
        SELECT a.tenant_id, a.department_id, a.environment, NULL, a.completions, a.input_tokens,
               a.output_tokens, a.cost_nanos, a.stale_count, a.stale_cost_nanos, m.peak_day
          FROM apart a
          JOIN tenant_month m ON m.tenant_id = a.tenant_id
         WHERE NOT a.home
        UNION ALL
        SELECT j.tenant_id, j.department_id, j.environment, quota_month(j.period), sum(j.completions), sum(j.input_tokens),
               sum(j.output_tokens), sum(j.cost_nanos), 0, 0, NULL
          FROM quota_adjustments j
         WHERE j.booked_month = p_month
         GROUP BY j.tenant_id, j.department_id, j.environment, quota_month(j.period)
        HAVING (sum(j.completions), sum(j.input_tokens), sum(j.output_tokens), sum(j.cost_nanos)) <> (0, 0, 0, 0)
    ), gone AS (
        DELETE FROM quota_monthly_totals q
         WHERE q.month = p_month
           AND NOT EXISTS (SELECT 1 FROM computed c
                            WHERE c.tenant_id = q.tenant_id
                              AND c.department_id = q.department_id
                              AND c.environment = q.environment
                              AND coalesce(c.adjusts_month, p_month) = q.belongs_to)
        RETURNING 1
    ), written AS (
        INSERT INTO quota_monthly_totals AS q
               (tenant_id, month, department_id, environment, adjusts_month, completions, input_tokens,
                output_tokens, cost_nanos, stale_count, stale_cost_nanos, peak_day,
                closed, closed_at)
        SELECT c.tenant_id, p_month, c.department_id, c.environment, c.adjusts_month, c.completions,
               c.input_tokens, c.output_tokens, c.cost_nanos, c.stale_count,
               c.stale_cost_nanos, c.peak_day, v_closing,
               CASE WHEN v_closing THEN v_now END
          FROM computed c
        ON CONFLICT ON CONSTRAINT quota_monthly_totals_pkey DO UPDATE
           SET completions = EXCLUDED.completions, input_tokens = EXCLUDED.input_tokens,
               output_tokens = EXCLUDED.output_tokens, cost_nanos = EXCLUDED.cost_nanos,
               stale_count = EXCLUDED.stale_count,
               stale_cost_nanos = EXCLUDED.stale_cost_nanos, peak_day = EXCLUDED.peak_day,
               closed = EXCLUDED.closed, closed_at = EXCLUDED.closed_at
         WHERE (q.completions, q.input_tokens, q.output_tokens, q.cost_nanos, q.stale_count,
                q.stale_cost_nanos, q.peak_day, q.closed)
               IS DISTINCT FROM
               (EXCLUDED.completions, EXCLUDED.input_tokens, EXCLUDED.output_tokens,
                EXCLUDED.cost_nanos, EXCLUDED.stale_count, EXCLUDED.stale_cost_nanos,
                EXCLUDED.peak_day, EXCLUDED.closed)
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM written) + (SELECT count(*) FROM gone), pg_current_snapshot() INTO rows, v_snapshot;

    UPDATE quota_months m
       SET rolled_at = v_now, closed_at = CASE WHEN v_closing THEN v_now END,
           closed_snapshot = CASE WHEN v_closing THEN v_snapshot END
     WHERE m.month = p_month;
    closed := v_closing;
END
$$;
