-- A view of that name whose columns have other types can't be replaced: it is dropped and made anew.
-- 3_close.sql gives its grants back.
DO {{tag}}
DECLARE
    v_ours   text[] := {{views}}::text[];
    v_others text;
    v_item   text;
BEGIN
    EXECUTE {{body}};
EXCEPTION WHEN invalid_table_definition THEN
    SELECT string_agg(DISTINCT d.objid::regclass::text, ', ') INTO v_others
      FROM (SELECT w.ev_class AS objid
              FROM pg_depend p
              JOIN pg_rewrite w ON w.oid = p.objid AND p.classid = 'pg_rewrite'::regclass
              JOIN pg_class v ON v.oid = p.refobjid AND p.refclassid = 'pg_class'::regclass
             WHERE v.relnamespace = quote_ident(current_schema())::regnamespace
               AND v.relkind = 'v' AND v.relname = ANY (v_ours)
               AND w.ev_class NOT IN (SELECT o.oid FROM pg_class o
                                       WHERE o.relnamespace = v.relnamespace AND o.relname = ANY (v_ours))) d;
    IF v_others IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW006', MESSAGE = format(
            'a view of ours has other columns here (%s), and these depend on it: %s: drop them, '
            'run quota-worker migrate again, then make them anew', SQLERRM, v_others);
    END IF;
    SELECT string_agg(format('%I', c.relname), ', ') INTO v_item
      FROM pg_class c
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
       AND c.relkind = 'v' AND c.relname = ANY (v_ours);
    EXECUTE 'DROP VIEW ' || v_item;  -- together: they may depend on one another
    EXECUTE {{body}};
END
{{tag}};
