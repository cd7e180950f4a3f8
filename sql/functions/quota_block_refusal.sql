-- The refusal of a request whose tenant or department is blocked at p_now; no row: neither is. Of two blocks that which
-- ends later. Judged by time: a block that is over needs nobody to take it away.
--
-- The contract's list of reasons is closed and has none for a stop. This is a cap of no completions until a time, so it
-- answers as one; limit_name 'blocked' tells it from a cap that was used up (docs/adr/0017). The notice says who, why and
-- until when, in the tenant's language. Takes no locks.
CREATE OR REPLACE FUNCTION quota_block_refusal(
    p_tenant text, p_department text, p_environment text, p_locale text, p_now timestamptz,
    OUT reason text, OUT tier text, OUT notice text, OUT limit_name text, OUT limit_value bigint, OUT limit_used bigint,
    OUT resets_at timestamptz, OUT retry_after_seconds numeric
) RETURNS SETOF record
LANGUAGE sql STABLE ROWS 1
AS $$
    SELECT 'daily_cap_reached',
           quota_tier_name((SELECT max(s.band_tier) FROM quota_department_slots s
                            WHERE s.department_id = p_department AND s.environment = p_environment
                              AND s.month = quota_month(quota_day(p_now)))),
           quota_block_notice(k.subject_kind, k.blocked_by, k.reason, k.blocked_until, quota_locale(p_locale, p_department)),
           'blocked', 0::bigint, 0::bigint, k.blocked_until, extract(epoch FROM k.blocked_until - p_now)
    FROM quota_blocks k
    WHERE (k.subject_kind = 'tenant' AND k.subject = p_tenant OR k.subject_kind = 'department' AND k.subject = p_department)
      AND k.blocked_until > p_now
    ORDER BY k.blocked_until DESC
    LIMIT 1
$$;

-- What a blocked caller is told; the time is the billing zone's.
CREATE OR REPLACE FUNCTION quota_block_notice(
    p_kind text, p_by text, p_reason text, p_until timestamptz, p_locale text
) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_locale = 'zh-CN'
        THEN format('%s已被 %s 停用至 %s（%s），原因：%s。到时自动恢复。',
                    CASE p_kind WHEN 'department' THEN '部门' ELSE '租户' END, p_by, t.until, quota_zone(), p_reason)
        ELSE format('%s was blocked by %s until %s (%s): %s. Requests pass again then.',
                    CASE p_kind WHEN 'department' THEN 'The department' ELSE 'The tenant' END, p_by, t.until, quota_zone(),
                    p_reason)
        END
    FROM (SELECT to_char(date_trunc('minute', p_until + interval '59.999999 seconds') AT TIME ZONE quota_zone(),
                         'YYYY-MM-DD HH24:MI') AS until) t
$$;

-- Is this tenant itself blocked at p_now?
CREATE OR REPLACE FUNCTION quota_tenant_blocked(p_tenant text, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT EXISTS (SELECT FROM quota_blocks k
                     WHERE k.subject = p_tenant AND k.subject_kind = 'tenant' AND k.blocked_until > p_now) $$;

-- Is this department blocked at p_now?
CREATE OR REPLACE FUNCTION quota_department_blocked(p_department text, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT EXISTS (SELECT FROM quota_blocks k
                     WHERE k.subject = p_department AND k.subject_kind = 'department' AND k.blocked_until > p_now) $$;
