-- For v_department_status: where a department's month stands, for readers who may see the view but not the
-- tables below it (a view reads its tables with its owner's rights, but calls functions with the reader's).
-- Takes no locks.
CREATE OR REPLACE FUNCTION quota_department_read(
    p_department text, p_environment text, p_month date, p_now timestamptz,
    OUT tokens_used numeric, OUT cost_used_nanos numeric, OUT budget_tokens numeric, OUT budget_cost_nanos numeric,
    OUT tier smallint, OUT base_tokens bigint, OUT base_cost_cents bigint
) RETURNS record
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
    SELECT s.tokens_used, s.cost_used_nanos, s.budget_tokens, s.budget_cost_nanos, s.tier, s.base_tokens,
           s.base_cost_cents
    FROM quota_department_standing(p_department, p_environment, p_month, p_now) s
$$;
