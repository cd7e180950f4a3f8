-- The month of the departments whose slots don't agree with the requests that were admitted under them plus the
-- legacy charges that were booked to them; none of a month whose requests upkeep removed. Internal to quota_audit and
-- quota_audit_repair.
CREATE OR REPLACE FUNCTION quota_audit_departments(p_month date, p_span tstzrange)
RETURNS TABLE (
    department_id text, environment text, dimension text, expected numeric, found numeric, request_id text, cause text
)
LANGUAGE sql STABLE
AS $$
    WITH months AS MATERIALIZED (
        SELECT d.*, d.used_t - d.right_t AS off_t, d.used_n - d.right_n AS off_n,
               d.held_t - d.holds_t AS hoff_t, d.held_n - d.holds_n AS hoff_n
          FROM (SELECT coalesce(s.department_id, q.department_id) AS department_id,
                       coalesce(s.environment, q.environment) AS environment,
                       coalesce(s.used_t, 0) AS used_t, coalesce(s.used_n, 0) AS used_n,
                       coalesce(s.held_t, 0) AS held_t, coalesce(s.held_n, 0) AS held_n,
                       coalesce(s.legacy_t, 0) + coalesce(q.used_t, 0) AS right_t,
                       coalesce(s.legacy_n, 0) + coalesce(q.used_n, 0) AS right_n,
                       coalesce(q.holds_t, 0) AS holds_t, coalesce(q.holds_n, 0) AS holds_n
                  FROM (SELECT k.department_id, k.environment, sum(k.tokens_used) AS used_t, sum(k.cost_used_nanos) AS used_n,
                               sum(k.tokens_held) AS held_t, sum(k.cost_held_nanos) AS held_n,
                               sum(k.legacy_tokens) AS legacy_t, sum(k.legacy_cost_nanos) AS legacy_n
                          FROM quota_department_slots k
                         WHERE k.month = p_month
                         GROUP BY k.department_id, k.environment) s
                  FULL JOIN (SELECT r.department_id, r.environment,
                                    sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                                             ELSE r.charged_in_tokens::numeric + r.charged_out_tokens END) AS used_t,
                                    sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos
                                             ELSE r.charged_cost_nanos END) AS used_n,
                                    sum(r.estimated_in_tokens::numeric + r.estimated_out_tokens)
                                        FILTER (WHERE r.state = 'open') AS holds_t,
                                    sum(r.estimated_cost_nanos) FILTER (WHERE r.state = 'open') AS holds_n
                               FROM quota_reservations r
                              WHERE r.department_id IS NOT NULL
                                AND r.period >= p_month AND r.period < (p_month + interval '1 month')::date
                                AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
                              GROUP BY r.department_id, r.environment) q
                    ON q.department_id = s.department_id AND q.environment = s.environment) d
         WHERE (d.used_t, d.used_n, d.held_t, d.held_n) <> (d.right_t, d.right_n, d.holds_t, d.holds_n)
           AND NOT quota_audit_removed(p_month)
    ), explained AS (
        -- one request's charge, twice or not at all
        SELECT DISTINCT ON (m.department_id, m.environment) m.department_id, m.environment, r.request_id, g.sign
          FROM months m
          JOIN quota_reservations r ON r.department_id = m.department_id AND r.environment = m.environment
         CROSS JOIN LATERAL (SELECT sign(coalesce(nullif(m.off_t, 0), m.off_n)) AS sign) g
         WHERE (m.off_t, m.off_n) <> (0, 0) AND r.state <> 'open'
           AND r.period >= p_month AND r.period < (p_month + interval '1 month')::date
           AND m.off_t = g.sign * (r.charged_in_tokens::numeric + r.charged_out_tokens)
           AND m.off_n = g.sign * r.charged_cost_nanos
           AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
         ORDER BY m.department_id, m.environment, r.admitted_at DESC, r.tenant_id, r.request_id
    )
    SELECT m.department_id, m.environment, v.dimension, v.expected, v.found, CASE WHEN v.is_used THEN e.request_id END,
           CASE WHEN v.is_used AND e.sign > 0 THEN format('request %s looks booked twice on the department''s slots', e.request_id)
                WHEN v.is_used AND e.sign < 0 THEN format('request %s looks not booked on the department''s slots', e.request_id)
                WHEN NOT v.is_used AND v.found > v.expected
                    THEN 'more is held than the department''s open requests ask: a hold that was not given back'
                WHEN NOT v.is_used THEN 'less is held than the department''s open requests ask'
                ELSE 'the department''s slots were changed by something other than the ledger''s functions' END
      FROM months m
      LEFT JOIN explained e ON e.department_id = m.department_id AND e.environment = m.environment
     CROSS JOIN LATERAL (VALUES
           ('tokens_used', true, m.right_t, m.used_t), ('cost_used_nanos', true, m.right_n, m.used_n),
           ('tokens_held', false, m.holds_t, m.held_t), ('cost_held_nanos', false, m.holds_n, m.held_n)
           ) AS v (dimension, is_used, expected, found)
     WHERE v.expected <> v.found
$$;

-- The departments whose slots note other legacy charges than their present tenants' days have (dimension as above). A
-- remark only: a tenant with such may have moved, and what a correction would have taken below zero stays with the
-- department. None where all departments together have what all tenants have: then moves explain it.
CREATE OR REPLACE FUNCTION quota_audit_legacy(p_month date)
RETURNS TABLE (department_id text, environment text, dimension text, expected numeric, found numeric, cause text)
LANGUAGE sql STABLE
AS $$
    WITH days AS MATERIALIZED (
        SELECT l.department_id, l.environment, sum(u.legacy_input_tokens::numeric + u.legacy_output_tokens) AS t,
               sum(u.legacy_cost_nanos) AS n
          FROM quota_usage u LEFT JOIN tenant_limits l ON l.tenant_id = u.tenant_id
         WHERE u.period >= p_month AND u.period < (p_month + interval '1 month')::date
           AND (u.legacy_input_tokens, u.legacy_output_tokens, u.legacy_cost_nanos) <> (0, 0, 0)
         GROUP BY l.department_id, l.environment
    ), slots AS MATERIALIZED (
        SELECT s.department_id, s.environment, sum(s.legacy_tokens) AS t, sum(s.legacy_cost_nanos) AS n
          FROM quota_department_slots s
         WHERE s.month = p_month
         GROUP BY s.department_id, s.environment
    ), compared AS (
        SELECT coalesce(d.department_id, s.department_id) AS department_id, coalesce(d.environment, s.environment) AS environment,
               v.dimension, v.expected, v.found,
               sum(v.found) OVER w AS booked, sum(v.expected) OVER w AS assigned
          FROM (SELECT * FROM days WHERE days.department_id IS NOT NULL) d
          FULL JOIN slots s ON s.department_id = d.department_id AND s.environment = d.environment
         CROSS JOIN LATERAL (VALUES ('tokens_used', coalesce(d.t, 0), coalesce(s.t, 0)),
                                    ('cost_used_nanos', coalesce(d.n, 0), coalesce(s.n, 0))) AS v (dimension, expected, found)
        WINDOW w AS (PARTITION BY v.dimension)
    )
    SELECT c.department_id, c.environment, c.dimension, c.expected, c.found,
           'the legacy charges booked on the department are not those of its tenants'' days: a tenant that has such moved, a '
           'correction would have taken a day below zero, or the slots were changed by something other than the ledger''s functions'
      FROM compared c
     CROSS JOIN (SELECT coalesce(sum(d.t), 0) AS t, coalesce(sum(d.n), 0) AS n FROM days d WHERE d.department_id IS NULL) f
     WHERE c.expected <> c.found AND c.booked <> c.assigned
       -- those of tenants that have no department, any more perhaps
       AND c.booked <> c.assigned + CASE c.dimension WHEN 'tokens_used' THEN f.t ELSE f.n END
$$;

-- How much more each department's slots note as legacy charges than its present tenants' days do, where they differ.
CREATE OR REPLACE FUNCTION quota_audit_legacy_off(p_month date)
RETURNS TABLE (department_id text, environment text, t numeric, n numeric)
LANGUAGE sql STABLE
AS $$
    SELECT q.department_id, q.environment, sum(q.t), sum(q.n)
      FROM (SELECT s.department_id, s.environment, s.legacy_tokens::numeric AS t, s.legacy_cost_nanos::numeric AS n
              FROM quota_department_slots s
             WHERE s.month = p_month
             UNION ALL
            SELECT l.department_id, l.environment, -(u.legacy_input_tokens::numeric + u.legacy_output_tokens), -u.legacy_cost_nanos
              FROM quota_usage u JOIN tenant_limits l ON l.tenant_id = u.tenant_id
             WHERE u.period >= p_month AND u.period < (p_month + interval '1 month')::date AND l.department_id IS NOT NULL
               AND (u.legacy_input_tokens, u.legacy_output_tokens, u.legacy_cost_nanos) <> (0, 0, 0)) q
     GROUP BY q.department_id, q.environment
    HAVING (sum(q.t), sum(q.n)) <> (0, 0)
$$;

-- The department to which a mend of a tenant's day belongs. p_tokens, p_cost_nanos: the change of legacy charges that are
-- dropped; they go where such are, among the departments under which the tenant's requests of the month were admitted
-- and its present one, since the tenant may have moved. Else the department of the day's requests, else the present one.
CREATE OR REPLACE FUNCTION quota_audit_owner(
    p_tenant text, p_month date, p_period date, p_tokens numeric, p_cost_nanos numeric,
    OUT department_id text, OUT environment text
)
LANGUAGE sql STABLE
AS $$
    SELECT c.department_id, c.environment
      FROM (SELECT q.department_id, q.environment, sum(q.requests) AS requests, bool_or(q.present) AS present
              FROM (SELECT r.department_id, r.environment, (r.period = p_period)::int AS requests, false AS present
                      FROM quota_reservations r
                     WHERE r.tenant_id = p_tenant AND r.period >= p_month AND r.period < (p_month + interval '1 month')::date
                     UNION ALL
                    SELECT l.department_id, l.environment, 0, true FROM tenant_limits l WHERE l.tenant_id = p_tenant) q
             GROUP BY q.department_id, q.environment) c
     CROSS JOIN LATERAL (SELECT coalesce(sum(s.legacy_tokens), 0) AS t, coalesce(sum(s.legacy_cost_nanos), 0) AS n
                           FROM quota_department_slots s
                          WHERE s.department_id = c.department_id AND s.environment = c.environment AND s.month = p_month) k
     ORDER BY (p_tokens, p_cost_nanos) <> (0, 0)
              AND (p_tokens = 0 OR sign(k.t) = -sign(p_tokens) AND abs(k.t) >= abs(p_tokens))
              AND (p_cost_nanos = 0 OR sign(k.n) = -sign(p_cost_nanos) AND abs(k.n) >= abs(p_cost_nanos)) DESC,
              c.requests DESC, c.present DESC, c.department_id, c.environment
     LIMIT 1
$$;
