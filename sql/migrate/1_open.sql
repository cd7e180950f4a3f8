-- Opens a migration: one transaction, one migrator at a time, one schema.
-- Wants READ COMMITTED: what the migrator before us did must be visible after the lock.
SET LOCAL client_min_messages = warning;
SET LOCAL check_function_bodies = off;  -- functions may name one another in any order
SET LOCAL statement_timeout = 0;

DO $quota_open$
BEGIN
    IF current_setting('server_version_num')::int < 150000 THEN
        RAISE EXCEPTION USING ERRCODE = 'QW004', MESSAGE = format(
            'the server is PostgreSQL %s: quota-worker needs 15 or newer, upgrade the server',
            current_setting('server_version'));
    END IF;
    -- The migrator before us may take a while; nothing is held while we wait here.
    PERFORM set_config('lock_timeout', '120s', true);
    PERFORM pg_advisory_xact_lock(hashtextextended('quota-worker migrate', 0));
    -- From here on a wait would hold up the gateways that queue behind it: give up soon
    -- and try again from the start.
    PERFORM set_config('lock_timeout', '500ms', true);
END
$quota_open$;

-- The schema: where tenant_limits is found, else the first of the search_path.
DO $quota_open$
DECLARE
    v_found  text[];
    v_schema text;
BEGIN
    SELECT array_agg(n.nspname::text ORDER BY array_position(current_schemas(false), n.nspname))
      INTO v_found
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relname = 'tenant_limits' AND c.relkind IN ('r', 'p')
       AND n.nspname = ANY (current_schemas(false));
    IF v_found IS NULL THEN
        SELECT array_agg(n.nspname::text ORDER BY n.nspname)
          INTO v_found
          FROM pg_class c
          JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relname = 'tenant_limits' AND c.relkind IN ('r', 'p')
           AND n.nspname NOT LIKE 'pg\_%';
        IF cardinality(v_found) > 1 THEN
            RAISE EXCEPTION USING ERRCODE = 'QW005', MESSAGE = format(
                'tenant_limits lies in the schemas %s: put the right one first in the search_path',
                array_to_string(v_found, ', '));
        END IF;
    END IF;
    v_schema := COALESCE(v_found[1], current_schema());
    IF v_schema IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW005', MESSAGE =
            'no schema of the search_path exists: create one, or set another search_path';
    END IF;
    IF v_schema LIKE 'pg\_%' OR v_schema = 'information_schema' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW005', MESSAGE = format(
            'the search_path begins with %s: put the schema for the ledger first', v_schema);
    END IF;
    PERFORM set_config('search_path', format('%I, pg_temp', v_schema), true);
END
$quota_open$;

CREATE TABLE IF NOT EXISTS quota_migrations (
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT quota_migrations_pkey PRIMARY KEY (name)
);

DO $quota_open$
DECLARE
    v_known   text[] := {{known}}::text[];
    v_unknown text;
BEGIN
    SELECT string_agg(name, ', ' ORDER BY name) INTO v_unknown
      FROM quota_migrations
     WHERE name <> ALL (v_known);
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW003', MESSAGE = format(
            'the schema is newer than this program (it has %s): install the newer quota-worker',
            v_unknown);
    END IF;
END
$quota_open$;

-- Who may call and read what, before anything is replaced: 3_close.sql gives it back where a
-- DROP and CREATE lost it.
CREATE TEMPORARY TABLE quota_grants_before ON COMMIT DROP AS
SELECT 'function'::text AS kind, p.proname::text AS name,
       oidvectortypes(p.proargtypes) AS arguments,
       a.grantee, a.privilege_type, a.is_grantable
  FROM pg_proc p,
       LATERAL aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
 WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
   AND a.grantee <> p.proowner
 UNION ALL
SELECT 'view', c.relname::text, '', a.grantee, a.privilege_type, a.is_grantable
  FROM pg_class c, LATERAL aclexplode(c.relacl) a
 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'v'
   AND a.grantee <> c.relowner;

-- Tables of others that charges couldn't be booked in are refused before anything is changed.
DO $quota_open$
DECLARE
    v_table record;
    v_odd   text;
BEGIN
    FOR v_table IN
        SELECT c.oid, w.relname, w.key
          FROM (VALUES ('quota_usage', ARRAY['period', 'tenant_id']),
                       ('tenant_limits', ARRAY['tenant_id'])) AS w (relname, key)
          JOIN pg_class c ON c.relname = w.relname AND c.relkind IN ('r', 'p')
                         AND c.relnamespace = quote_ident(current_schema())::regnamespace
    LOOP
        IF NOT EXISTS (
            SELECT FROM pg_index i
             WHERE i.indrelid = v_table.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
               AND i.indpred IS NULL AND i.indexprs IS NULL
               AND v_table.key = (SELECT array_agg(a.attname::text ORDER BY a.attname::text)
                                    FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                                    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                   WHERE k.place <= i.indnkeyatts)) THEN
            v_odd := array_to_string(ARRAY(SELECT unnest(v_table.key) ORDER BY 1 DESC), ', ');
            RAISE EXCEPTION USING ERRCODE = 'QW006', MESSAGE = format(
                '%1$s has no unique key on (%2$s), without which charges would be lost or doubled: run '
                'ALTER TABLE %1$s ADD UNIQUE (%2$s), then quota-worker migrate again', v_table.relname, v_odd);
        END IF;
        CONTINUE WHEN v_table.relname <> 'quota_usage';
        SELECT string_agg(i.indexrelid::regclass::text, ', ') INTO v_odd
          FROM pg_index i WHERE i.indrelid = v_table.oid AND NOT i.indimmediate;
        IF v_odd IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'QW006', MESSAGE = format(
                'quota_usage has the deferrable key %s, and no charge can be booked with one: run '
                'ALTER TABLE quota_usage DROP CONSTRAINT for it, then quota-worker migrate again', v_odd);
        END IF;
        SELECT string_agg(a.attname::text, ', ' ORDER BY a.attnum) INTO v_odd
          FROM pg_attribute a
          JOIN pg_type t ON t.oid = a.atttypid
         WHERE a.attrelid = v_table.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL
           AND a.attname NOT IN ('tenant_id', 'period', 'completions', 'input_tokens', 'output_tokens', 'cost_cents');
        IF v_odd IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'QW006', MESSAGE = format(
                'quota_usage wants a value for %s, which no charge gives: ALTER TABLE quota_usage with '
                'SET DEFAULT or DROP NOT NULL for it, then run quota-worker migrate again', v_odd);
        END IF;
    END LOOP;
END
$quota_open$;
