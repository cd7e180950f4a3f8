-- A month's days by the tenants' present department and environment: what counts (used; at the closing, booked).
-- p_days: only these; NULL: all. As the calling statement sees them; takes no locks. Internal to quota_roll_month.
--
-- A function of its own so that it may run in several processes: a statement that writes may not.
CREATE OR REPLACE FUNCTION quota_roll_curve(p_month date, p_closing boolean, p_days date[])
RETURNS TABLE (day date, department_id text, environment text,
               completions numeric, input_tokens numeric, output_tokens numeric, cost_nanos numeric)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_next date := (p_month + interval '1 month')::date;
BEGIN
    RETURN QUERY
    SELECT u.period, coalesce(l.department_id, ''), coalesce(l.environment, 'production'),
           coalesce(sum(CASE WHEN p_closing THEN u.booked_completions ELSE u.completions END), 0),
           coalesce(sum(CASE WHEN p_closing THEN u.booked_input_tokens ELSE u.input_tokens END), 0),
           coalesce(sum(CASE WHEN p_closing THEN u.booked_output_tokens ELSE u.output_tokens END), 0),
           coalesce(sum(CASE WHEN p_closing THEN 0 ELSE u.cost_cents END), 0) * 10000000
               + sum(CASE WHEN p_closing THEN u.booked_cost_nanos ELSE u.cost_subcent_nanos END)
      FROM quota_usage u
      LEFT JOIN tenant_limits l ON l.tenant_id = u.tenant_id
     WHERE u.period >= p_month AND u.period < v_next AND (p_days IS NULL OR u.period = ANY (p_days))
     GROUP BY 1, 2, 3;
END $$;
