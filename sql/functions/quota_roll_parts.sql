-- The one statement of a roll, and so one look at the ledger: the month's totals, what they are made of, its days.
-- rows: totals written or removed. snapshot: what was seen. Internal to quota_roll_month, which holds the month's row.
--
-- changed   the days to be read anew: those of which a row in quota_usage was written by a transaction of at most
--           p_age (whatever is charged or corrected writes its day's row), or all where that is NULL
-- requests  by day and labels: of changed days from the reservations, of others as kept from the last roll
-- tenants   the tenants' months: what counts (used; at the closing, booked)
-- days      the same by day and present department (quota_roll_curve)
-- again     days whose curve is drawn anew: those that changed, or all where a tenant may be elsewhere than at the last
--           roll (one whose limits were deleted can't be told from one that never had any)
-- asked     the requests summed in these two ways: what counts minus asked is what no request explains
-- place     legacy charges of an earlier department (quota_legacy_moved), from the present one to that
-- Everything is written as a difference: rows that stay the same aren't touched.
CREATE OR REPLACE FUNCTION quota_roll_parts(
    p_month date, p_closing boolean, p_age bigint, p_now timestamptz, OUT rows bigint, OUT snapshot pg_snapshot
) RETURNS record
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_next date := (p_month + interval '1 month')::date;
BEGIN
    WITH changed AS MATERIALIZED (
        SELECT p_month + n AS day FROM generate_series(0, v_next - p_month - 1) n WHERE p_age IS NULL
        UNION ALL
        SELECT DISTINCT u.period FROM quota_usage u
         WHERE p_age IS NOT NULL AND u.period >= p_month AND u.period < v_next AND age(u.xmin) <= p_age
    ), fresh AS MATERIALIZED (
        SELECT f.* FROM changed c CROSS JOIN LATERAL quota_roll_day(c.day) f
    ), requests AS MATERIALIZED (
        SELECT f.* FROM fresh f
        UNION ALL
        SELECT k.* FROM quota_day_parts k
         WHERE k.day >= p_month AND k.day < v_next AND k.day NOT IN (SELECT c.day FROM changed c)
    ), tenants AS MATERIALIZED (
        SELECT u.tenant_id,
               coalesce(sum(CASE WHEN p_closing THEN u.booked_completions ELSE u.completions END), 0) AS completions,
               coalesce(sum(CASE WHEN p_closing THEN u.booked_input_tokens ELSE u.input_tokens END), 0) AS input_tokens,
               coalesce(sum(CASE WHEN p_closing THEN u.booked_output_tokens ELSE u.output_tokens END), 0) AS output_tokens,
               -- sums of bigint are exact (numeric): multiplied once, not per row
               coalesce(sum(CASE WHEN p_closing THEN 0 ELSE u.cost_cents END), 0) * 10000000
                   + sum(CASE WHEN p_closing THEN u.booked_cost_nanos ELSE u.cost_subcent_nanos END) AS cost_nanos,
               -- Tokens and day in one number, so that a maximum does without a sort: the greatest tokens win, then
               -- the earliest day. Beyond 10^17 tokens in or out (direct writes gone wrong) all are equal.
               max((least(greatest(u.input_tokens, 0), 100000000000000000)
                    + least(greatest(u.output_tokens, 0), 100000000000000000)) * 32 + (31 - (u.period - p_month))) AS peak
          FROM quota_usage u
         WHERE u.period >= p_month AND u.period < v_next
         GROUP BY u.tenant_id
    ), again AS MATERIALIZED (
        SELECT p_month + n AS day FROM generate_series(0, v_next - p_month - 1) n
         WHERE p_age IS NULL OR EXISTS (SELECT FROM tenant_limits l WHERE age(l.xmin) <= p_age)
               OR EXISTS (SELECT FROM quota_legacy_places p WHERE age(p.xmin) <= p_age)
               OR EXISTS (SELECT FROM tenants t WHERE NOT EXISTS (SELECT FROM tenant_limits l WHERE l.tenant_id = t.tenant_id))
        UNION
        SELECT c.day FROM changed c
    ), days AS MATERIALIZED (
        SELECT c.*
          FROM (SELECT CASE WHEN count(*) < v_next - p_month THEN coalesce(array_agg(n.day), '{}') END AS days FROM again n) a
         CROSS JOIN LATERAL quota_roll_curve(p_month, p_closing, a.days) c
    ), asked AS MATERIALIZED (
        SELECT r.tenant_id, r.day, coalesce(l.department_id, '') AS department_id,
               coalesce(l.environment, 'production') AS environment, sum(r.completions) AS completions,
               sum(r.input_tokens) AS input_tokens, sum(r.output_tokens) AS output_tokens, sum(r.cost_nanos) AS cost_nanos
          FROM requests r
          LEFT JOIN tenant_limits l ON l.tenant_id = r.tenant_id
         GROUP BY GROUPING SETS ((r.tenant_id), (r.day, coalesce(l.department_id, ''), coalesce(l.environment, 'production')))
    ), place AS MATERIALIZED (
        SELECT m.* FROM quota_legacy_moved(p_month, p_closing) m
    ), plain AS MATERIALIZED (
        -- tenants without requests, and in one place all month: by far the most where nothing but legacy programs charge
        SELECT u.tenant_id, coalesce(l.department_id, '') AS department_id,
               coalesce(l.environment, 'production') AS environment, u.completions, u.input_tokens, u.output_tokens,
               u.cost_nanos, u.peak
          FROM tenants u
          LEFT JOIN tenant_limits l ON l.tenant_id = u.tenant_id
         WHERE u.tenant_id NOT IN (SELECT q.tenant_id FROM asked q WHERE q.tenant_id IS NOT NULL)
           AND u.tenant_id NOT IN (SELECT m.tenant_id FROM place m)
    ), mixed AS MATERIALIZED (
        SELECT p_month AS belongs_to, a.tenant_id, a.department_id, a.environment, a.model, a.app,
               sum(a.completions) AS completions, sum(a.input_tokens) AS input_tokens,
               sum(a.cached_in_tokens) AS cached_in_tokens, sum(a.output_tokens) AS output_tokens,
               sum(a.cost_nanos) AS cost_nanos, sum(a.stale_count)::bigint AS stale_count,
               sum(a.stale_cost_nanos) AS stale_cost_nanos, sum(a.released_count)::bigint AS released_count,
               sum(a.unpriced_count)::bigint AS unpriced_count, sum(a.downgraded_count)::bigint AS downgraded_count,
               sum(a.downgraded_tokens) AS downgraded_tokens
          FROM (SELECT r.tenant_id, r.department_id, r.environment, r.model, r.app,
                       r.completions, r.input_tokens, r.cached_in_tokens, r.output_tokens, r.cost_nanos, r.stale_count,
                       r.stale_cost_nanos, r.released_count, r.unpriced_count, r.downgraded_count, r.downgraded_tokens
                  FROM requests r
                UNION ALL
                SELECT u.tenant_id, coalesce(l.department_id, ''), coalesce(l.environment, 'production'), '', '',
                       u.completions - coalesce(q.completions, 0), u.input_tokens - coalesce(q.input_tokens, 0), 0,
                       u.output_tokens - coalesce(q.output_tokens, 0), u.cost_nanos - coalesce(q.cost_nanos, 0),
                       0, 0, 0, 0, 0, 0
                  FROM tenants u
                  LEFT JOIN tenant_limits l ON l.tenant_id = u.tenant_id
                  LEFT JOIN asked q ON q.tenant_id = u.tenant_id
                 WHERE u.tenant_id NOT IN (SELECT p.tenant_id FROM plain p)
                UNION ALL
                SELECT m.tenant_id, m.department_id, m.environment, '', '', m.completions, m.input_tokens, 0,
                       m.output_tokens, m.cost_nanos, 0, 0, 0, 0, 0, 0
                  FROM place m) a
         GROUP BY a.tenant_id, a.department_id, a.environment, a.model, a.app
        HAVING (sum(a.completions), sum(a.input_tokens), sum(a.output_tokens), sum(a.cost_nanos), sum(a.released_count))
               <> (0, 0, 0, 0, 0)
        UNION ALL
        SELECT quota_month(j.period), j.tenant_id, j.department_id, j.environment, j.model, j.app, sum(j.completions),
               sum(j.input_tokens), 0, sum(j.output_tokens), sum(j.cost_nanos), 0, 0, 0, 0, 0, 0
          FROM quota_adjustments j
         WHERE j.booked_month = p_month
         GROUP BY j.tenant_id, j.department_id, j.environment, j.model, j.app, quota_month(j.period)
        HAVING (sum(j.completions), sum(j.input_tokens), sum(j.output_tokens), sum(j.cost_nanos)) <> (0, 0, 0, 0)
    ), parts AS MATERIALIZED (
        SELECT * FROM mixed
        UNION ALL
        SELECT p_month, p.tenant_id, p.department_id, p.environment, '', '', p.completions, p.input_tokens, 0,
               p.output_tokens, p.cost_nanos, 0, 0, 0, 0, 0, 0
          FROM plain p
    ), totals AS MATERIALIZED (
        SELECT p.tenant_id, p.department_id, p.environment, p_month AS belongs_to, p.completions, p.input_tokens,
               p.output_tokens, p.cost_nanos, 0::bigint AS stale_count, 0::numeric AS stale_cost_nanos,
               p_month + (31 - (p.peak % 32)::int) AS peak_day
          FROM plain p
        UNION ALL
        SELECT a.tenant_id, a.department_id, a.environment, a.belongs_to, sum(a.completions), sum(a.input_tokens),
               sum(a.output_tokens), sum(a.cost_nanos), sum(a.stale_count)::bigint, sum(a.stale_cost_nanos),
               CASE WHEN a.belongs_to = p_month THEN min(p_month + (31 - (k.peak % 32)::int)) END
          FROM mixed a
          LEFT JOIN tenants k ON k.tenant_id = a.tenant_id
         GROUP BY a.tenant_id, a.department_id, a.environment, a.belongs_to
    ), extra AS MATERIALIZED (
        SELECT a.day, a.department_id, a.environment,
               sum(a.completions) AS completions, sum(a.input_tokens) AS input_tokens,
               sum(a.cached_in_tokens) AS cached_in_tokens, sum(a.output_tokens) AS output_tokens,
               sum(a.cost_nanos) AS cost_nanos, sum(a.stale_count)::bigint AS stale_count,
               sum(a.stale_cost_nanos) AS stale_cost_nanos, sum(a.released_count)::bigint AS released_count,
               sum(a.unpriced_count)::bigint AS unpriced_count, sum(a.downgraded_count)::bigint AS downgraded_count,
               sum(a.downgraded_tokens) AS downgraded_tokens
          FROM (SELECT r.day, r.department_id, r.environment,
                       r.completions, r.input_tokens, r.cached_in_tokens, r.output_tokens, r.cost_nanos, r.stale_count,
                       r.stale_cost_nanos, r.released_count, r.unpriced_count, r.downgraded_count, r.downgraded_tokens
                  FROM requests r
                UNION ALL
                SELECT q.day, q.department_id, q.environment, -q.completions, -q.input_tokens, 0, -q.output_tokens,
                       -q.cost_nanos, 0, 0, 0, 0, 0, 0
                  FROM asked q WHERE q.day IS NOT NULL
                UNION ALL
                SELECT m.day, m.department_id, m.environment, m.completions, m.input_tokens, 0, m.output_tokens,
                       m.cost_nanos, 0, 0, 0, 0, 0, 0
                  FROM place m) a
         WHERE a.day IN (SELECT n.day FROM again n)
         GROUP BY a.day, a.department_id, a.environment
    ), month_days AS MATERIALIZED (
        SELECT k.*
          FROM (SELECT day, department_id, environment,
                       coalesce(d.completions, 0) + coalesce(x.completions, 0) AS completions,
                       coalesce(d.input_tokens, 0) + coalesce(x.input_tokens, 0) AS input_tokens,
                       coalesce(x.cached_in_tokens, 0) AS cached_in_tokens,
                       coalesce(d.output_tokens, 0) + coalesce(x.output_tokens, 0) AS output_tokens,
                       coalesce(d.cost_nanos, 0) + coalesce(x.cost_nanos, 0) AS cost_nanos,
                       coalesce(x.stale_count, 0) AS stale_count, coalesce(x.stale_cost_nanos, 0) AS stale_cost_nanos,
                       coalesce(x.released_count, 0) AS released_count,
                       coalesce(x.unpriced_count, 0) AS unpriced_count,
                       coalesce(x.downgraded_count, 0) AS downgraded_count,
                       coalesce(x.downgraded_tokens, 0) AS downgraded_tokens
                  FROM days d FULL JOIN extra x USING (day, department_id, environment)) k
         WHERE (k.completions, k.input_tokens, k.output_tokens, k.cost_nanos, k.released_count) <> (0, 0, 0, 0, 0)
    ), requests_gone AS (
        DELETE FROM quota_day_parts q
         WHERE q.day >= p_month AND q.day < v_next
           AND q.day IN (SELECT c.day FROM changed c)
           -- a closed month keeps none
           AND NOT EXISTS (
               SELECT FROM fresh f
                WHERE NOT p_closing AND (f.day, f.tenant_id, f.department_id, f.environment, f.model, f.app)
                    = (q.day, q.tenant_id, q.department_id, q.environment, q.model, q.app)
                  AND (f.completions, f.input_tokens, f.cached_in_tokens, f.output_tokens, f.cost_nanos, f.stale_count,
                       f.stale_cost_nanos, f.released_count, f.unpriced_count, f.downgraded_count, f.downgraded_tokens)
                      IS NOT DISTINCT FROM
                      (q.completions, q.input_tokens, q.cached_in_tokens, q.output_tokens, q.cost_nanos, q.stale_count,
                       q.stale_cost_nanos, q.released_count, q.unpriced_count, q.downgraded_count, q.downgraded_tokens))
    ), requests_new AS (
        INSERT INTO quota_day_parts
        SELECT f.* FROM fresh f
         WHERE NOT p_closing AND NOT EXISTS (
               SELECT FROM quota_day_parts q
                WHERE q.day >= p_month AND q.day < v_next
                  AND (f.day, f.tenant_id, f.department_id, f.environment, f.model, f.app)
                    = (q.day, q.tenant_id, q.department_id, q.environment, q.model, q.app)
                  AND (f.completions, f.input_tokens, f.cached_in_tokens, f.output_tokens, f.cost_nanos, f.stale_count,
                       f.stale_cost_nanos, f.released_count, f.unpriced_count, f.downgraded_count, f.downgraded_tokens)
                      IS NOT DISTINCT FROM
                      (q.completions, q.input_tokens, q.cached_in_tokens, q.output_tokens, q.cost_nanos, q.stale_count,
                       q.stale_cost_nanos, q.released_count, q.unpriced_count, q.downgraded_count, q.downgraded_tokens))
    ), parts_gone AS (
        DELETE FROM quota_month_parts q
         WHERE q.month = p_month
           AND NOT EXISTS (
               SELECT FROM parts n
                WHERE (n.belongs_to, n.tenant_id, n.department_id, n.environment, n.model, n.app)
                    = (q.belongs_to, q.tenant_id, q.department_id, q.environment, q.model, q.app)
                  AND (n.completions, n.input_tokens, n.cached_in_tokens, n.output_tokens, n.cost_nanos, n.stale_count,
                       n.stale_cost_nanos, n.released_count, n.unpriced_count, n.downgraded_count, n.downgraded_tokens)
                      IS NOT DISTINCT FROM
                      (q.completions, q.input_tokens, q.cached_in_tokens, q.output_tokens, q.cost_nanos, q.stale_count,
                       q.stale_cost_nanos, q.released_count, q.unpriced_count, q.downgraded_count, q.downgraded_tokens))
    ), parts_new AS (
        INSERT INTO quota_month_parts (month, belongs_to, tenant_id, department_id, environment, model, app,
               completions, input_tokens, cached_in_tokens, output_tokens, cost_nanos, stale_count, stale_cost_nanos,
               released_count, unpriced_count, downgraded_count, downgraded_tokens)
        SELECT p_month, n.* FROM parts n
         WHERE NOT EXISTS (
               SELECT FROM quota_month_parts q
                WHERE q.month = p_month
                  AND (n.belongs_to, n.tenant_id, n.department_id, n.environment, n.model, n.app)
                    = (q.belongs_to, q.tenant_id, q.department_id, q.environment, q.model, q.app)
                  AND (n.completions, n.input_tokens, n.cached_in_tokens, n.output_tokens, n.cost_nanos, n.stale_count,
                       n.stale_cost_nanos, n.released_count, n.unpriced_count, n.downgraded_count, n.downgraded_tokens)
                      IS NOT DISTINCT FROM
                      (q.completions, q.input_tokens, q.cached_in_tokens, q.output_tokens, q.cost_nanos, q.stale_count,
                       q.stale_cost_nanos, q.released_count, q.unpriced_count, q.downgraded_count, q.downgraded_tokens))
    ), days_gone AS (
        DELETE FROM quota_month_days q
         WHERE q.month = p_month AND q.day IN (SELECT n.day FROM again n)
           AND NOT EXISTS (SELECT FROM month_days d WHERE d.day = q.day AND d.department_id = q.department_id
                                                AND d.environment = q.environment)
    ), days_changed AS (
        UPDATE quota_month_days q
           SET completions = d.completions, input_tokens = d.input_tokens, cached_in_tokens = d.cached_in_tokens,
               output_tokens = d.output_tokens, cost_nanos = d.cost_nanos, stale_count = d.stale_count,
               stale_cost_nanos = d.stale_cost_nanos, released_count = d.released_count,
               unpriced_count = d.unpriced_count, downgraded_count = d.downgraded_count,
               downgraded_tokens = d.downgraded_tokens
          FROM month_days d
         WHERE q.month = p_month AND d.day = q.day AND d.department_id = q.department_id AND d.environment = q.environment
           AND (q.completions, q.input_tokens, q.cached_in_tokens, q.output_tokens, q.cost_nanos, q.stale_count,
                q.stale_cost_nanos, q.released_count, q.unpriced_count, q.downgraded_count, q.downgraded_tokens)
               <> (d.completions, d.input_tokens, d.cached_in_tokens, d.output_tokens, d.cost_nanos, d.stale_count,
                   d.stale_cost_nanos, d.released_count, d.unpriced_count, d.downgraded_count, d.downgraded_tokens)
    ), days_new AS (
        INSERT INTO quota_month_days (month, day, department_id, environment,
               completions, input_tokens, cached_in_tokens, output_tokens, cost_nanos, stale_count, stale_cost_nanos,
               released_count, unpriced_count, downgraded_count, downgraded_tokens)
        SELECT p_month, d.* FROM month_days d
         WHERE NOT EXISTS (SELECT FROM quota_month_days q
                            WHERE q.month = p_month AND q.day = d.day AND q.department_id = d.department_id
                              AND q.environment = d.environment)
    ), gone AS (
        DELETE FROM quota_monthly_totals q
         WHERE q.month = p_month
           AND NOT EXISTS (SELECT FROM totals c
                            WHERE c.tenant_id = q.tenant_id AND c.department_id = q.department_id
                              AND c.environment = q.environment AND c.belongs_to = q.belongs_to)
        RETURNING 1
    ), rewritten AS (
        UPDATE quota_monthly_totals q
           SET completions = c.completions, input_tokens = c.input_tokens, output_tokens = c.output_tokens,
               cost_nanos = c.cost_nanos, stale_count = c.stale_count, stale_cost_nanos = c.stale_cost_nanos,
               peak_day = c.peak_day, closed = p_closing, closed_at = CASE WHEN p_closing THEN p_now END
          FROM totals c
         WHERE q.month = p_month AND c.tenant_id = q.tenant_id AND c.department_id = q.department_id
           AND c.environment = q.environment AND c.belongs_to = q.belongs_to
           AND (q.completions, q.input_tokens, q.output_tokens, q.cost_nanos, q.stale_count, q.stale_cost_nanos,
                q.peak_day, q.closed)
               IS DISTINCT FROM
               (c.completions, c.input_tokens, c.output_tokens, c.cost_nanos, c.stale_count, c.stale_cost_nanos,
                c.peak_day, p_closing)
        RETURNING 1
    ), written AS (
        INSERT INTO quota_monthly_totals
               (tenant_id, month, department_id, environment, adjusts_month, completions, input_tokens, output_tokens,
                cost_nanos, stale_count, stale_cost_nanos, peak_day, closed, closed_at)
        SELECT c.tenant_id, p_month, c.department_id, c.environment, nullif(c.belongs_to, p_month), c.completions,
               c.input_tokens, c.output_tokens, c.cost_nanos, c.stale_count, c.stale_cost_nanos, c.peak_day, p_closing,
               CASE WHEN p_closing THEN p_now END
          FROM totals c
         WHERE NOT EXISTS (SELECT FROM quota_monthly_totals q
                            WHERE q.month = p_month AND q.tenant_id = c.tenant_id AND q.department_id = c.department_id
                              AND q.environment = c.environment AND q.belongs_to = c.belongs_to)
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM written) + (SELECT count(*) FROM rewritten) + (SELECT count(*) FROM gone),
           pg_current_snapshot() INTO rows, snapshot;
END $$;
