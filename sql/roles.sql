-- The three roles and their rights. Idempotent; for the schema where tenant_limits is found
-- through the search_path. Run by migrate, or by an administrator where migrate's user may not
-- create roles. Nobody is made a member: GRANT quota_gateway TO your_gateway_user;
--
--   quota_gateway  executes the ledger's functions, appends to the usage inbox, reads nothing
--   quota_worker   what the worker needs
--   quota_reader   reads the views and the months' totals, and may ask for the billing day
DO $quota_roles$
DECLARE
    v_role    text;
    v_missing text[] := '{}';
BEGIN
    FOREACH v_role IN ARRAY ARRAY['quota_gateway', 'quota_worker', 'quota_reader'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = v_role) THEN
            CONTINUE;
        END IF;
        IF NOT EXISTS (SELECT FROM pg_roles
                        WHERE rolname = current_user AND (rolsuper OR rolcreaterole)) THEN
            v_missing := v_missing || v_role;
            CONTINUE;
        END IF;
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- another database's migrate was faster
        END;
    END LOOP;
    IF cardinality(v_missing) > 0 THEN
        RAISE WARNING 'the roles % are missing and % may not create them: let an administrator run sql/roles.sql',
            array_to_string(v_missing, ', '), current_user;
    END IF;
END
$quota_roles$;

DO $quota_roles$
DECLARE
    v_schema  name := COALESCE((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                                 WHERE c.oid = to_regclass('tenant_limits')), current_schema());
    v_gateway text[] := ARRAY['quota_reserve', 'quota_settle', 'quota_release', 'quota_progress',
                              'quota_expire_stale', 'quota_reserve_batch', 'quota_settle_batch',
                              'quota_check_and_charge', 'quota_topup'];
    v_item    record;
BEGIN
    FOR v_item IN
        SELECT rolname FROM pg_roles WHERE rolname IN ('quota_gateway', 'quota_worker', 'quota_reader')
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', v_schema, v_item.rolname);
    END LOOP;

    -- Functions: ours are those whose owner took EXECUTE from PUBLIC, and the tutorial's.
    FOR v_item IN
        SELECT p.oid::regprocedure::text AS signature, r.rolname
          FROM pg_proc p
         CROSS JOIN pg_roles r
         WHERE p.pronamespace = quote_ident(v_schema)::regnamespace AND p.prokind = 'f'
           AND p.prorettype <> 'trigger'::regtype
           AND ((r.rolname = 'quota_gateway' AND p.proname = ANY (v_gateway))
                OR (r.rolname = 'quota_worker'
                    AND (p.proname = 'quota_check_and_charge'
                         OR NOT EXISTS (SELECT FROM aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
                                         WHERE a.grantee = 0)))
                -- A view runs the functions it names with its reader's rights; a report asks for the billing day.
                OR (r.rolname = 'quota_reader'
                    AND (p.proname IN ('quota_zone', 'quota_day', 'quota_day_start', 'quota_month')
                         OR EXISTS (SELECT FROM pg_depend d
                                      JOIN pg_rewrite w ON w.oid = d.objid
                                      JOIN pg_class v ON v.oid = w.ev_class
                                     WHERE d.classid = 'pg_rewrite'::regclass
                                       AND d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
                                       AND v.relkind = 'v' AND v.relnamespace = p.pronamespace
                                       AND v.relname ~ '^(v_quota|v_department|quota)_'))))
           -- as postgres stands: a second run grants nothing anew
           AND NOT EXISTS (SELECT FROM aclexplode(p.proacl) a
                            WHERE a.grantee = r.oid AND a.privilege_type = 'EXECUTE')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', v_item.signature, v_item.rolname);
    END LOOP;

    IF to_regclass('quota_usage_inbox') IS NOT NULL AND EXISTS (SELECT FROM pg_roles WHERE rolname = 'quota_gateway') THEN
        EXECUTE format('GRANT INSERT ON TABLE %I.quota_usage_inbox TO quota_gateway', v_schema);
    END IF;

    FOR v_item IN
        SELECT c.relname, c.relkind, r.rolname,
               CASE WHEN c.relkind = 'S' THEN 'USAGE, SELECT'
                    WHEN r.rolname = 'quota_worker' AND c.relkind <> 'v' THEN 'SELECT, INSERT, UPDATE, DELETE'
                    ELSE 'SELECT' END AS rights
          FROM pg_class c
         CROSS JOIN pg_roles r
         WHERE c.relnamespace = quote_ident(v_schema)::regnamespace
           AND ((r.rolname = 'quota_worker' AND c.relkind IN ('r', 'p', 'v', 'S')
                 AND (c.relname ~ '^(v_quota|v_department|quota)_'
                      OR c.relname ~ '^(departments|department_|tenant_limits|rate_buckets|job_|tick_)'))
                OR (r.rolname = 'quota_reader'
                    AND (c.relname IN ('quota_monthly_totals', 'quota_month_parts', 'quota_month_days', 'quota_month_budgets')
                         OR c.relkind = 'v' AND c.relname ~ '^(v_quota|v_department|quota)_')))
    LOOP
        EXECUTE format('GRANT %s ON %s %I.%I TO %I', v_item.rights,
                       CASE WHEN v_item.relkind = 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                       v_schema, v_item.relname, v_item.rolname);
    END LOOP;
END
$quota_roles$;
