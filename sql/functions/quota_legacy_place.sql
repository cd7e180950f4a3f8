-- Notes where the tenants' charges without a request belong from now on, unless that is known (quota_legacy_places).
-- p_day: today. Called before they are booked; the caller holds the tenants' locks.
CREATE OR REPLACE FUNCTION quota_legacy_place(p_tenants text[], p_day date) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    INSERT INTO quota_legacy_places (tenant_id, from_day, department_id, environment, before_completions,
                                     before_input_tokens, before_output_tokens, before_cost_nanos)
    SELECT l.tenant_id, coalesce(greatest(p.from_day, p_day), '0001-01-01'), coalesce(l.department_id, ''), l.environment,
           coalesce(u.legacy_completions - b.completions, 0), coalesce(u.legacy_input_tokens - b.input_tokens, 0),
           coalesce(u.legacy_output_tokens - b.output_tokens, 0), coalesce(u.legacy_cost_nanos - b.cost_nanos, 0)
      FROM tenant_limits l
      LEFT JOIN LATERAL (SELECT q.from_day, q.department_id, q.environment FROM quota_legacy_places q
                          WHERE q.tenant_id = l.tenant_id ORDER BY q.place_id DESC LIMIT 1) p ON true
      LEFT JOIN quota_usage u ON u.tenant_id = l.tenant_id AND u.period = greatest(p.from_day, p_day) AND p.from_day IS NOT NULL
      LEFT JOIN LATERAL (SELECT coalesce(sum(q.before_completions), 0) AS completions,
                                coalesce(sum(q.before_input_tokens), 0) AS input_tokens,
                                coalesce(sum(q.before_output_tokens), 0) AS output_tokens,
                                coalesce(sum(q.before_cost_nanos), 0) AS cost_nanos
                           FROM quota_legacy_places q
                          WHERE q.tenant_id = l.tenant_id AND q.from_day = u.period) b ON u.tenant_id IS NOT NULL
     WHERE l.tenant_id = ANY (p_tenants)
       AND (p.department_id, p.environment) IS DISTINCT FROM (coalesce(l.department_id, ''), l.environment)
$$;

-- What of a month's charges without a request belongs elsewhere than to the tenants' present department and
-- environment: rows to be added, each amount once to where it belongs and once, negative, to the present place. Tenants
-- that were never moved have none. p_closing: what was booked counts, else what is used. As the calling statement sees it.
CREATE OR REPLACE FUNCTION quota_legacy_moved(p_month date, p_closing boolean)
RETURNS TABLE (tenant_id text, day date, department_id text, environment text,
               completions numeric, input_tokens numeric, output_tokens numeric, cost_nanos numeric)
LANGUAGE sql STABLE
AS $$
    WITH places AS MATERIALIZED (
        SELECT p.*, lead(p.from_day, 1, 'infinity') OVER w AS until_day, lag(p.department_id) OVER w AS department_before,
               lag(p.environment) OVER w AS environment_before, coalesce(l.department_id, '') AS department_now,
               coalesce(l.environment, 'production') AS environment_now
          FROM quota_legacy_places p
          LEFT JOIN tenant_limits l ON l.tenant_id = p.tenant_id
         WHERE p.tenant_id IN (SELECT q.tenant_id FROM quota_legacy_places q
                                 LEFT JOIN tenant_limits k ON k.tenant_id = q.tenant_id
                                WHERE (q.department_id, q.environment)
                                      <> (coalesce(k.department_id, ''), coalesce(k.environment, 'production')))
        WINDOW w AS (PARTITION BY p.tenant_id ORDER BY p.place_id)
    ), days AS MATERIALIZED (
        -- what is booked as such, and while the month is open what is still to be folded in
        SELECT t.tenant_id, u.*
          FROM (SELECT DISTINCT p.tenant_id FROM places p) t
         CROSS JOIN LATERAL (
               SELECT x.period AS day,
                      x.legacy_completions + CASE WHEN p_closing THEN 0 ELSE coalesce(x.completions, 0)::numeric - x.booked_completions END AS c,
                      x.legacy_input_tokens + CASE WHEN p_closing THEN 0 ELSE coalesce(x.input_tokens, 0)::numeric - x.booked_input_tokens END AS i,
                      x.legacy_output_tokens + CASE WHEN p_closing THEN 0 ELSE coalesce(x.output_tokens, 0)::numeric - x.booked_output_tokens END AS o,
                      x.legacy_cost_nanos + CASE WHEN p_closing THEN 0
                          ELSE coalesce(x.cost_cents, 0)::numeric * 10000000 + x.cost_subcent_nanos - x.booked_cost_nanos END AS n
                 FROM quota_usage x
                WHERE x.tenant_id = t.tenant_id AND x.period >= p_month AND x.period < (p_month + interval '1 month')::date
               OFFSET 0) u
    ), moves AS (
        -- a day's charges belong to where the tenant was at its end, those before a move on that day to where it was then
        SELECT d.tenant_id, d.day, p.department_id, p.environment, p.department_now, p.environment_now, d.c, d.i, d.o, d.n
          FROM days d JOIN places p ON p.tenant_id = d.tenant_id AND p.from_day <= d.day AND d.day < p.until_day
        UNION ALL
        SELECT b.tenant_id, b.from_day, k.department_id, k.environment, b.department_now, b.environment_now,
               k.sign * b.before_completions, k.sign * b.before_input_tokens, k.sign * b.before_output_tokens,
               k.sign * b.before_cost_nanos
          FROM places b
          JOIN days d ON d.tenant_id = b.tenant_id AND d.day = b.from_day
          JOIN places e ON e.tenant_id = b.tenant_id AND e.from_day <= b.from_day AND b.from_day < e.until_day
         CROSS JOIN LATERAL (VALUES (1, b.department_before, b.environment_before),
                                    (-1, e.department_id, e.environment)) AS k (sign, department_id, environment)
    )
    SELECT m.tenant_id, m.day, k.department_id, k.environment, sum(k.sign * m.c), sum(k.sign * m.i), sum(k.sign * m.o),
           sum(k.sign * m.n)
      FROM moves m
     CROSS JOIN LATERAL (VALUES (1, m.department_id, m.environment),
                                (-1, m.department_now, m.environment_now)) AS k (sign, department_id, environment)
     GROUP BY m.tenant_id, m.day, k.department_id, k.environment
    HAVING (sum(k.sign * m.c), sum(k.sign * m.i), sum(k.sign * m.o), sum(k.sign * m.n)) <> (0, 0, 0, 0)
$$;
