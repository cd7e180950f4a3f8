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
                   FROM quota_audit_booked(p_month, p_tenants) f
                  GROUP BY f.tenant_id) t ON t.tenant_id = d.tenant_id
     CROSS JOIN LATERAL (VALUES
           ('completions', coalesce(d.c, 0), coalesce(t.c, 0)), ('input_tokens', coalesce(d.i, 0), coalesce(t.i, 0)),
           ('output_tokens', coalesce(d.o, 0), coalesce(t.o, 0)), ('cost_nanos', coalesce(d.n, 0), coalesce(t.n, 0))
           ) AS v (dimension, expected, found)
     WHERE v.expected <> v.found
       AND quota_audit_is_closed(p_month)
$$;

-- What is booked for a closed month, by department ('': none): its frozen totals, and the adjustments that came after.
CREATE OR REPLACE FUNCTION quota_audit_booked(p_month date, p_tenants text[])
RETURNS TABLE (
    tenant_id text, department_id text, environment text,
    completions numeric, input_tokens numeric, output_tokens numeric, cost_nanos numeric
)
LANGUAGE sql STABLE
AS $$
    SELECT f.* FROM (
        SELECT q.tenant_id, q.department_id, q.environment, q.completions::numeric, q.input_tokens::numeric,
               q.output_tokens::numeric, q.cost_nanos::numeric
          FROM quota_monthly_totals q
         WHERE q.month = p_month AND q.belongs_to = p_month
         UNION ALL
        SELECT a.tenant_id, a.department_id, a.environment, a.completions, a.input_tokens, a.output_tokens, a.cost_nanos
          FROM quota_adjustments a JOIN quota_months m ON m.month = p_month
         WHERE a.period >= p_month AND a.period < (p_month + interval '1 month')::date
           -- what the closing saw is in the totals already
           AND (a.booked_month IS NOT NULL
                OR coalesce(NOT pg_visible_in_snapshot(a.adjusted_xid, m.closed_snapshot), true))) f
     WHERE p_tenants IS NULL OR f.tenant_id = ANY (p_tenants)
$$;

-- The department to which a closed month's difference of a tenant belongs: the one whose requests differ from what is
-- booked for it by just that; else the one where just that and the tenant's legacy charges are missing; else that of
-- most of its requests; else its present one. The tenant may have moved since.
CREATE OR REPLACE FUNCTION quota_audit_closed_owner(
    p_month date, p_tenant text, p_completions numeric, p_input_tokens numeric, p_output_tokens numeric, p_cost_nanos numeric,
    OUT department_id text, OUT environment text
)
LANGUAGE sql STABLE
AS $$
    SELECT d.department_id, d.environment
      FROM (SELECT q.department_id, q.environment, sum(q.requests) AS requests, bool_or(q.present) AS present,
                   sum(q.c) AS c, sum(q.i) AS i, sum(q.o) AS o, sum(q.n) AS n
              FROM (SELECT coalesce(r.department_id, '') AS department_id, r.environment, 1 AS requests, false AS present,
                           r.completion_counted::int::numeric AS c, r.charged_in_tokens::numeric AS i,
                           r.charged_out_tokens::numeric AS o, r.charged_cost_nanos::numeric AS n
                      FROM quota_reservations r
                     WHERE r.tenant_id = p_tenant AND r.period >= p_month AND r.period < (p_month + interval '1 month')::date
                     UNION ALL
                    SELECT b.department_id, b.environment, 0, false, -b.completions, -b.input_tokens, -b.output_tokens,
                           -b.cost_nanos
                      FROM quota_audit_booked(p_month, ARRAY[p_tenant]) b
                     UNION ALL
                    SELECT coalesce(l.department_id, ''), l.environment, 0, true, 0, 0, 0, 0
                      FROM tenant_limits l WHERE l.tenant_id = p_tenant) q
             GROUP BY q.department_id, q.environment) d
     CROSS JOIN (SELECT coalesce(sum(u.legacy_completions), 0) AS c, coalesce(sum(u.legacy_input_tokens), 0) AS i,
                        coalesce(sum(u.legacy_output_tokens), 0) AS o, coalesce(sum(u.legacy_cost_nanos), 0) AS n
                   FROM quota_usage u
                  WHERE u.tenant_id = p_tenant AND u.period >= p_month
                    AND u.period < (p_month + interval '1 month')::date) g
     ORDER BY (d.c, d.i, d.o, d.n) = (p_completions, p_input_tokens, p_output_tokens, p_cost_nanos) DESC,
              (d.c + g.c, d.i + g.i, d.o + g.o, d.n + g.n)
                  = (p_completions, p_input_tokens, p_output_tokens, p_cost_nanos) DESC,
              d.requests DESC, d.present DESC, d.department_id, d.environment
     LIMIT 1
$$;

-- A closed month's totals stay as they are: what its days say beyond them becomes an adjustment.
CREATE OR REPLACE FUNCTION quota_audit_mend_closed(p_month date, p_tenants text[], p_run uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_notes bigint;
BEGIN
    IF p_tenants = '{}' THEN
        RETURN;
    END IF;
    WITH off AS MATERIALIZED (
        SELECT k.* FROM quota_audit_closed(p_month, p_tenants) k
    ), tenants AS MATERIALIZED (
        SELECT t.*, d.department_id, d.environment
          FROM (SELECT o.tenant_id,
                       coalesce(sum(o.expected - o.found) FILTER (WHERE o.dimension = 'completions'), 0) AS c,
                       coalesce(sum(o.expected - o.found) FILTER (WHERE o.dimension = 'input_tokens'), 0) AS i,
                       coalesce(sum(o.expected - o.found) FILTER (WHERE o.dimension = 'output_tokens'), 0) AS o,
                       coalesce(sum(o.expected - o.found) FILTER (WHERE o.dimension = 'cost_nanos'), 0) AS n
                  FROM off o GROUP BY o.tenant_id) t
          LEFT JOIN LATERAL quota_audit_closed_owner(p_month, t.tenant_id, t.c, t.i, t.o, t.n) d ON true
    ), logged AS (
        INSERT INTO quota_repairs (run, repaired_at, month, kind, tenant_id, department_id, environment, period, dimension,
                                   expected, found, mended, cause)
        SELECT p_run, p_now, p_month, 'closed', o.tenant_id, nullif(t.department_id, ''), t.environment, p_month, o.dimension,
               o.expected, o.found, o.expected, 'the closed month''s totals and adjustments differed from its days'
          FROM off o JOIN tenants t ON t.tenant_id = o.tenant_id ORDER BY o.tenant_id, o.dimension
    )
    SELECT count(quota_adjustment_note(t.tenant_id, NULL, t.department_id, t.environment, p_month, t.c, t.i, t.o, t.n, p_now))
      INTO v_notes
      FROM tenants t;
END $$;
