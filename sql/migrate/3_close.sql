-- Others' functions of our names stay, and are named: a call whose arguments fit one better ends there.
DO $quota_close$
DECLARE
    v_other record;
BEGIN
    FOR v_other IN
        SELECT format('%s(%s)', p.proname, oidvectortypes(p.proargtypes)) AS signature
          FROM pg_proc p
         WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
           AND p.xmin <> pg_current_xact_id()::xid
           AND EXISTS (SELECT FROM pg_proc o
                        WHERE o.pronamespace = p.pronamespace AND o.proname = p.proname AND o.oid <> p.oid
                          AND o.xmin = pg_current_xact_id()::xid)
         ORDER BY 1
    LOOP
        RAISE WARNING 'another function has a name of ours: %: calls that fit it better pass by the quotas, drop or rename it',
            v_other.signature;
    END LOOP;
END
$quota_close$;

-- EXECUTE is for those who were given it. Functions that this transaction made or replaced are
-- ours. quota_check_and_charge keeps the grants it had: the tutorial's programs call it as anybody.
DO $quota_close$
DECLARE
    v_item      record;
    v_was_there boolean := EXISTS (
        SELECT FROM quota_grants_before WHERE kind = 'function' AND name = 'quota_check_and_charge');
BEGIN
    FOR v_item IN
        SELECT p.oid::regprocedure AS signature
          FROM pg_proc p
         WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
           AND p.prokind = 'f'
           AND (p.xmin = pg_current_xact_id()::xid OR p.proname = ANY ({{functions}}::text[]))
           AND (p.proname <> 'quota_check_and_charge' OR NOT v_was_there
                OR NOT EXISTS (SELECT FROM quota_grants_before b
                                WHERE b.kind = 'function' AND b.name = p.proname AND b.grantee = 0))
         ORDER BY 1
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_item.signature);
    END LOOP;
    FOR v_item IN
        SELECT b.kind, p.oid::regprocedure::text AS object, b.grantee, b.privilege_type, b.is_grantable
          FROM quota_grants_before b
          JOIN pg_proc p ON b.kind = 'function' AND p.proname = b.name
                        AND p.pronamespace = quote_ident(current_schema())::regnamespace
                        AND oidvectortypes(p.proargtypes) = b.arguments
         WHERE NOT EXISTS (SELECT FROM aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
                            WHERE a.grantee = b.grantee AND a.privilege_type = b.privilege_type)
           AND (b.grantee <> 0 OR p.proname = 'quota_check_and_charge')
         UNION ALL
        SELECT b.kind, format('%I', c.relname), b.grantee, b.privilege_type, b.is_grantable
          FROM quota_grants_before b
          JOIN pg_class c ON b.kind = 'view' AND c.relname = b.name AND c.relkind = 'v'
                         AND c.relnamespace = quote_ident(current_schema())::regnamespace
         WHERE NOT EXISTS (SELECT FROM aclexplode(c.relacl) a
                            WHERE a.grantee = b.grantee AND a.privilege_type = b.privilege_type)
    LOOP
        EXECUTE format('GRANT %s ON %s %s TO %s%s',
                       v_item.privilege_type,
                       CASE v_item.kind WHEN 'function' THEN 'FUNCTION' ELSE 'TABLE' END,
                       v_item.object,
                       CASE v_item.grantee WHEN 0 THEN 'PUBLIC'
                            ELSE format('%I', pg_get_userbyid(v_item.grantee)) END,
                       CASE WHEN v_item.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
END
$quota_close$;

-- Odd limits of an old database are named, not refused.
DO $quota_close$
DECLARE
    v_odd   record;
    v_count bigint := 0;
BEGIN
    IF to_regclass('tenant_limits') IS NULL THEN
        RETURN;
    END IF;
    FOR v_odd IN
        SELECT l.tenant_id, f.fault
          FROM tenant_limits l
         CROSS JOIN LATERAL (VALUES
               (l.daily_completions < 0,     format('daily_completions is %s', l.daily_completions)),
               (l.daily_input_tokens < 0,    format('daily_input_tokens is %s', l.daily_input_tokens)),
               (l.daily_output_tokens < 0,   format('daily_output_tokens is %s', l.daily_output_tokens)),
               (l.daily_cost_cents < 0,      format('daily_cost_cents is %s', l.daily_cost_cents)),
               (l.monthly_cost_cents < 0,    format('monthly_cost_cents is %s', l.monthly_cost_cents)),
               (l.soft_warn_pct NOT BETWEEN 1 AND 100, format('soft_warn_pct is %s', l.soft_warn_pct)),
               (NOT (l.bucket_capacity > 0 AND l.bucket_capacity < 'Infinity'),
                format('bucket_capacity is %s', l.bucket_capacity)),
               (NOT (l.bucket_refill_per_sec > 0 AND l.bucket_refill_per_sec < 'Infinity'),
                format('bucket_refill_per_sec is %s', l.bucket_refill_per_sec))
               ) AS f (is_odd, fault)
         WHERE f.is_odd
         ORDER BY l.tenant_id, f.fault
    LOOP
        v_count := v_count + 1;
        IF v_count <= 20 THEN
            RAISE WARNING 'odd limit kept: tenant %: %',
                left(regexp_replace(v_odd.tenant_id, '[[:cntrl:]]', '?', 'g'), 80), v_odd.fault;
        END IF;
    END LOOP;
    IF v_count > 20 THEN
        RAISE WARNING 'odd limits kept: % more like these', v_count - 20;
    END IF;
END
$quota_close$;
