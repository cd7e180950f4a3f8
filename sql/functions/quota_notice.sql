-- What a caller is told from tier downgrade on, in the tenant's language (tenant, department, deployment).
CREATE OR REPLACE FUNCTION quota_notice(p_tier int, p_reason text, p_model text, p_answered_model text, p_locale text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_tier < 2 THEN NULL WHEN p_locale = 'zh-CN' THEN
        CASE
            WHEN p_reason = 'department_budget_exhausted' THEN '部门本月预算已用完，请求被拒绝。请向部门负责人申请追加额度。'
            WHEN p_reason = 'department_protected' THEN '部门本月预算即将用完，只放行高优先级请求，本次请求被拒绝。'
            WHEN p_reason <> 'ok' THEN '部门本月预算紧张；本次请求因其他限制被拒绝（' || p_reason || '）。'
            WHEN p_answered_model IS DISTINCT FROM p_model
                THEN '部门本月预算紧张，模型 ' || coalesce(p_model, '（未指定）') || ' 已降级为 ' || p_answered_model || '。'
            WHEN p_tier = 3 THEN '部门本月预算即将用完，只放行高优先级请求；本次请求已放行，模型不变。'
            ELSE '部门本月预算紧张，部分模型会被降级；本次请求的模型不变。'
        END
    ELSE
        CASE
            WHEN p_reason = 'department_budget_exhausted' THEN
                'The department''s budget of this month is used up: the request was refused. Ask the department''s owner for an allowance.'
            WHEN p_reason = 'department_protected' THEN
                'The department''s budget of this month is nearly used up: only high-priority requests pass, this one was refused.'
            WHEN p_reason <> 'ok' THEN
                'The department''s budget of this month runs low; this request was refused by another limit (' || p_reason || ').'
            WHEN p_answered_model IS DISTINCT FROM p_model THEN
                'The department''s budget of this month runs low: model ' || coalesce(p_model, '(none given)')
                || ' was downgraded to ' || p_answered_model || '.'
            WHEN p_tier = 3 THEN
                'The department''s budget of this month is nearly used up: only high-priority requests pass; this one did, its model unchanged.'
            ELSE 'The department''s budget of this month runs low: some models are downgraded; this request''s model is unchanged.'
        END
    END
$$;
