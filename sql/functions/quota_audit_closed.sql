-- A closed month's tenants whose days differ from the frozen totals plus what came after (quota_adjustments).
-- None where the month is open: its totals are computed anew at each run. Internal to quota_audit and its repair.
CREATE OR REPLACE FUNCTION quota_audit_closed(p_month date, p_tenants text[])
RETURNS TABLE (tenant_id text, dimension text, expected numeric, found numeric)
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(d.tenant_id, t.tenant_id), v.dimension, v.expected, v.found
      FROM (SELECT u.tenant_id, sum(u.booked_completions) AS c, sum(u.booked_input_tokens) AS i,
                   sum(u.booked_output_tokens) AS o, sum(u.booked_cost_nanos) AS n
              FROM quota_usage u
             WHERE u.period >= p_month AND u.period < (p_month + interval '1 month')::date
               AND (p_tenants IS NULL OR u.tenant_id = ANY (p_tenants))
             GROUP BY u.tenant_id) d
      FULL JOIN (SELECT f.tenant_id, sum(f.completions) AS c, sum(f.input_tokens) AS i, sum(f.output_tokens) AS o,
                        sum(f.cost_nanos) AS n
                   FROM (SELECT q.tenant_id, q.completions, q.input_tokens, q.output_tokens, q.cost_nanos
                           FROM quota_monthly_totals q
                          WHERE q.month = p_month AND q.belongs_to = p_month
                         UNION ALL
                         SELECT a.tenant_id, a.completions, a.input_tokens, a.output_tokens, a.cost_nanos
                           FROM quota_adjustments a JOIN quota_months m ON m.month = p_month
                          WHERE a.period >= p_month AND a.period < (p_month + interval '1 month')::date
                            -- what the closing saw is in the totals already
                            AND (a.booked_month IS NOT NULL
                                 OR coalesce(NOT pg_visible_in_snapshot(a.adjusted_xid, m.closed_snapshot), true))) f
                  WHERE p_tenants IS NULL OR f.tenant_id = ANY (p_tenants)
                  GROUP BY f.tenant_id) t ON t.tenant_id = d.tenant_id
     CROSS JOIN LATERAL (VALUES
           ('completions', coalesce(d.c, 0), coalesce(t.c, 0)), ('input_tokens', coalesce(d.i, 0), coalesce(t.i, 0)),
           ('output_tokens', coalesce(d.o, 0), coalesce(t.o, 0)), ('cost_nanos', coalesce(d.n, 0), coalesce(t.n, 0))
           ) AS v (dimension, expected, found)
     WHERE v.expected <> v.found
       AND EXISTS (SELECT FROM quota_months m WHERE m.month = p_month AND m.closed_at IS NOT NULL)
$$;
