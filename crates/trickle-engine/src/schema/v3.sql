-- Catalog, version 3: no role gains rights through a stream table, and no writer fails because of one.

-- Capture.
--
-- A trigger function runs with the rights of its owner over tables that others may alter. So it touches a value of a table only
-- while the table is what the function was made for: a cast, an operator or a check that somebody made since could run with those
-- rights otherwise. pgtrickle.misfit looks. It is declared IMMUTABLE and called with constants, so that the server calls it
-- when it plans the condition that guards the function, and again whenever the table was altered since, at no cost for each
-- statement; that condition names the table by a constant of type regclass, which is how the server knows of which table it
-- depends. It reads what the server's caches say now and not what the transaction's snapshot shows, runs no code of anybody's
-- (the values that it asks the types of are constants, NULL) and fails for no state of the table.

-- Why a table is not the one that these columns, by number, had these names and types in; NULL where it is. `place` is its
-- schema and its name, where these count too.
CREATE FUNCTION pgtrickle.misfit(relation oid, numbers int2[], names text[], types oid[], place text[] DEFAULT NULL)
RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held text[] := (pg_identify_object_as_address('pg_class'::regclass, relation, 0)).object_names;
    name text;
    list text := '';
    found oid[];
BEGIN
    IF held IS NULL THEN
        RETURN 'the table is gone';
    ELSIF place IS NOT NULL AND held <> place THEN
        RETURN format('table %I.%I is named %I.%I now', place[1], place[2], held[1], held[2]);
    ELSIF has_schema_privilege(to_regnamespace(quote_ident(held[1]))::oid, 'USAGE') IS NOT TRUE THEN
        RETURN format('role %I may not use schema %I', current_user, held[1]);
    END IF;
    FOR i IN 1 .. cardinality(numbers) LOOP
        name := ((pg_identify_object_as_address('pg_class'::regclass, relation, numbers[i])).object_names)[3];
        -- A column that was dropped has a name still, and no rights.
        IF name IS NULL OR has_column_privilege(relation, numbers[i], 'SELECT') IS NULL THEN
            RETURN format('column %I was dropped', names[i]);
        ELSIF name <> names[i] THEN
            RETURN format('column %I is named %I now', names[i], name);
        END IF;
        list := list || format(', pg_typeof(r.%I)::oid', name);
    END LOOP;
    IF list <> '' THEN
        EXECUTE format('SELECT ARRAY[%s] FROM (SELECT (NULL::%I.%I).*) r', substr(list, 3), held[1], held[2]) INTO found;
    END IF;
    FOR i IN 1 .. cardinality(numbers) LOOP
        IF found[i] IS DISTINCT FROM types[i] THEN
            RETURN format('column %I is of type %s now', names[i], format_type(found[i], NULL));
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle.misfit(oid, int2[], text[], oid[], text[]) IS 'Why a table is not what a trigger was made for; NULL where it is.';

-- These columns of a table as a list that a query selects from it under the alias r; NULL where one was dropped or has another type.
CREATE FUNCTION pgtrickle.columns_now(relation oid, numbers int2[], types oid[]) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[];
BEGIN
    SELECT array_agg(((pg_identify_object_as_address('pg_class'::regclass, relation, u.number)).object_names)[3] ORDER BY u.place)
        INTO names FROM unnest(numbers) WITH ORDINALITY u(number, place);
    IF array_position(names, NULL) IS NOT NULL OR pgtrickle.misfit(relation, numbers, names, types) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT string_agg(format('r.%I', u.name), ', ' ORDER BY u.place) FROM unnest(names) WITH ORDINALITY u(name, place));
END
$$;
COMMENT ON FUNCTION pgtrickle.columns_now(oid, int2[], oid[]) IS 'The captured columns of a table by the names that they have now.';

-- Tables that come make another home of the catalog; one that came with a dump is still one that did.
DO $$
DECLARE here bool;
BEGIN
    SELECT home = pgtrickle.home() INTO here FROM pgtrickle.pgt_catalog_version;
    CREATE TABLE pgtrickle.pgt_marks (
        source_relid oid NOT NULL,
        pgt_id bigint,
        reason text NOT NULL,
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    IF here THEN
        UPDATE pgtrickle.pgt_catalog_version SET home = pgtrickle.home();
    END IF;
END
$$;
-- Without a key, so that writers never wait for each other; what is deleted is told apart by all columns.
CREATE INDEX ON pgtrickle.pgt_marks (source_relid);
ALTER TABLE pgtrickle.pgt_marks REPLICA IDENTITY FULL;
COMMENT ON TABLE pgtrickle.pgt_marks IS 'Changes of a table that could not be captured: its readers are computed anew, for this reason.';
COMMENT ON COLUMN pgtrickle.pgt_marks.pgt_id IS 'The one stream table that it concerns, which writers keep (IMMEDIATE); NULL for all that read the buffer.';

-- Row security: a stream table holds what its owner may see.

ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN read_through oid[] NOT NULL DEFAULT '{0}', ADD COLUMN row_security text;
COMMENT ON COLUMN pgtrickle.pgt_dependencies.read_through IS 'The views that read it; 0: the query itself.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.row_security IS 'Which rows may be read there, as it was planned (pgtrickle.row_security); NULL: all.';
UPDATE pgtrickle.pgt_dependencies d SET read_through = '{0}' || ARRAY(
    SELECT v.source_relid FROM pgtrickle.pgt_dependencies v JOIN pg_catalog.pg_rewrite r ON r.ev_class = v.source_relid
    WHERE v.pgt_id = d.pgt_id AND v.source_type = 'VIEW' AND EXISTS (SELECT FROM pg_catalog.pg_depend p
        WHERE p.classid = 'pg_catalog.pg_rewrite'::regclass AND p.objid = r.oid
          AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = d.source_relid)
    ORDER BY 1);

-- Which rows of a relation row security lets a role read: another value, other rows. NULL where it is not active for that role. The
-- rule is the server's own (row_security_active, which asks for the current role alone). How a condition is stored says what it
-- means; what the functions that it calls do stands beside.
CREATE FUNCTION pgtrickle.row_security(relation oid, owner oid) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT md5(concat_ws(E'\n', owner, string_agg(concat_ws(E'\n', p.polname, p.polcmd, p.polpermissive, p.polqual,
            pgtrickle.functions_fingerprint(ARRAY(SELECT d.refobjid FROM pg_depend d WHERE d.classid = 'pg_policy'::regclass
                AND d.objid = p.oid AND d.refclassid = 'pg_proc'::regclass ORDER BY 1))), E'\n' ORDER BY p.polname)
            FILTER (WHERE p.oid IS NOT NULL)))
        FROM pg_class c JOIN pg_roles r ON r.oid = owner
        LEFT JOIN pg_policy p ON p.polrelid = c.oid AND p.polcmd IN ('r', '*') AND (0::oid = ANY (p.polroles)
            OR EXISTS (SELECT FROM unnest(p.polroles) o(role) WHERE pg_has_role(owner, o.role, 'USAGE')))
        WHERE c.oid = relation AND c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
          AND (c.relforcerowsecurity OR NOT pg_has_role(owner, c.relowner, 'USAGE'))
        HAVING count(*) > 0
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.row_security(oid, oid) IS 'Which rows of a relation row security lets a role read; NULL: all.';

-- The same for whoever a query of this owner reads the relation as: the owner of a view that reads it, or its own where the query
-- or a view with security_invoker does.
CREATE FUNCTION pgtrickle.row_security(relation oid, through oid[], owner oid) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT string_agg(pgtrickle.row_security(relation, x.reader), ' ' ORDER BY x.reader) FROM (
            SELECT DISTINCT CASE WHEN v.relkind = 'v' AND NOT EXISTS (SELECT FROM pg_options_to_table(v.reloptions) o
                WHERE o.option_name = 'security_invoker' AND o.option_value::bool) THEN v.relowner ELSE owner END AS reader
            FROM unnest(through) t(oid) LEFT JOIN pg_class v ON v.oid = t.oid) x
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.row_security(oid, oid[], oid) IS 'Which rows of a relation may be read by a query of a role, through these views; NULL: all.';


-- Names in generated SQL mean nothing that a stranger made.

-- The search path under which what belongs to a role is computed: of these schemas those in which nobody but that role and
-- superusers may create anything, behind the server's own. In another one somebody could make an operator or a function that fits
-- better than the server's, and have it run with that role's rights. Also not one to which a role of which the owner is a member
-- creates: the other members are not the owner.
CREATE FUNCTION pgtrickle.safe_path(path text[], owner oid) RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY['pg_catalog'] || ARRAY(
        SELECT p.name FROM unnest(path) WITH ORDINALITY p(name, n) JOIN pg_namespace s ON s.nspname = p.name
        WHERE NOT starts_with(p.name, 'pg_') AND NOT EXISTS (
            SELECT FROM (SELECT s.nspowner UNION ALL
                SELECT a.grantee FROM aclexplode(s.nspacl) a WHERE a.privilege_type = 'CREATE') m(role)
            CROSS JOIN LATERAL (SELECT CASE m.role WHEN 'pg_database_owner'::regrole
                THEN (SELECT d.datdba FROM pg_database d WHERE d.datname = current_database()) ELSE m.role END) w(role)
            WHERE w.role <> owner AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = w.role AND r.rolsuper))
        ORDER BY p.n) || ARRAY['pg_temp'];
END
$$;
COMMENT ON FUNCTION pgtrickle.safe_path(text[], oid) IS 'Of a search path what nobody but a role and superusers can put anything into.';

-- The same of settings as they are stored.
CREATE FUNCTION pgtrickle.safe_path(settings jsonb, owner oid) RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle.safe_path(ARRAY(SELECT jsonb_array_elements_text(s->'values') FROM jsonb_array_elements(settings) s
        WHERE s->>'name' = 'search_path'), owner);
END
$$;
COMMENT ON FUNCTION pgtrickle.safe_path(jsonb, oid) IS 'Of the search path among stored settings what nobody but a role and superusers can put anything into.';

CREATE OR REPLACE FUNCTION pgtrickle.definition(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT md5(jsonb_build_array(s.defining_query, s.refresh_mode, s.layout_hash, s.settings, s.functions_fingerprint,
            o.relowner, pgtrickle.safe_path(ARRAY(
                SELECT jsonb_array_elements_text(x->'values') FROM jsonb_array_elements(s.settings) x WHERE x->>'name' = 'search_path'),
                o.relowner), current_user,
            (SELECT jsonb_agg(jsonb_build_array(d.source_relid, d.columns_used, d.schema_fingerprint, b.capture, b.unlogged)
                ORDER BY d.source_relid)
             FROM pgtrickle.pgt_dependencies d LEFT JOIN pgtrickle.pgt_buffers b USING (source_relid)
             WHERE d.pgt_id = s.pgt_id))::text)
        FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class o ON o.oid = s.pgt_relid WHERE s.pgt_id = stream_table
    );
END
$$;

CREATE OR REPLACE FUNCTION pgtrickle.immediate_fingerprint(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        WITH RECURSIVE tree(oid) AS (
            SELECT d.source_relid FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = stream_table
            UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid)
        SELECT md5(concat_ws(E'\n', (SELECT concat_ws(' ', s.pgt_relid::regclass, pgtrickle.fingerprint(s.pgt_relid),
                pgtrickle.safe_path(s.settings, (SELECT c.relowner FROM pg_class c WHERE c.oid = s.pgt_relid))) FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table),
            string_agg(concat_ws(' ', g.tgrelid, g.tgname, g.tgenabled, g.xmin), ',' ORDER BY g.oid)))
        FROM tree JOIN pg_trigger g ON g.tgrelid = tree.oid JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, format('immediate_%s_', stream_table))
    );
END
$$;

-- A plan that is made anew runs nothing of a stranger's to which the owner of the stream table has not agreed.

ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN agreed oid[], ADD COLUMN agreed_by oid,
    ADD COLUMN types oid[] NOT NULL DEFAULT '{}', ADD COLUMN types_fingerprint text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed IS 'Functions of others than its owner and superusers that it may run; NULL: it was declared before that was noted.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed_by IS 'Who owned it when it was planned.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.types IS 'Types of others that its query can reach.';

-- What the owners of types can have run where values of them are written, compared or converted: casts, and conditions of domains.
CREATE FUNCTION pgtrickle.types_fingerprint(types oid[]) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN md5(concat_ws(E'\n',
        (SELECT string_agg(concat_ws(' ', k.castsource, k.casttarget, k.castfunc, k.castcontext), ',' ORDER BY k.oid)
         FROM pg_cast k WHERE k.castsource = ANY (types) OR k.casttarget = ANY (types)),
        (SELECT string_agg(concat_ws(' ', n.oid, n.xmin), ',' ORDER BY n.oid) FROM pg_constraint n WHERE n.contypid = ANY (types)),
        (SELECT string_agg(concat_ws(' ', a.attrelid, a.attnum, a.atttypid), ',' ORDER BY a.attrelid, a.attnum)
         FROM pg_type y JOIN pg_attribute a ON a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE y.oid = ANY (types))));
END
$$;
COMMENT ON FUNCTION pgtrickle.types_fingerprint(oid[]) IS 'What the owners of types have run where values of them are used.';

-- Those of these stream tables for which everything that their plans were made from, and what captures the changes that
-- they read, is as it was. Each relation is looked at once, however many read it.
CREATE OR REPLACE FUNCTION pgtrickle.unchanged(stream_tables bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        WITH read AS (
            SELECT d.* FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = ANY (stream_tables)
        ), sources AS MATERIALIZED (
            SELECT r.oid, n.nspname, c.relname, c.relrowsecurity, b.capture, pgtrickle.fingerprint(r.oid) AS fingerprint,
                b.capture = 'ON' AND (CASE WHEN b.capture = 'ON' THEN pgtrickle.triggers_fingerprint(r.oid) END
                        IS DISTINCT FROM b.triggers_fingerprint
                    OR to_regclass(format('pgtrickle_changes.changes_%s_%s', r.oid, b.segments->-1->>'number')) IS NULL
                    OR b.trigger_mode <> 'ROW'
                        AND CASE WHEN EXISTS (SELECT FROM pg_subscription_rel) THEN pgtrickle.is_subscribed(r.oid) END) AS cut
            FROM (SELECT DISTINCT source_relid FROM read) r(oid)
            LEFT JOIN pg_class c ON c.oid = r.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN pgtrickle.pgt_buffers b ON b.source_relid = r.oid
        )
        SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s
        WHERE s.pgt_id = ANY (stream_tables)
          AND NOT EXISTS (
            SELECT FROM read d JOIN sources r ON r.oid = d.source_relid
            WHERE d.pgt_id = s.pgt_id
              AND (r.fingerprint IS DISTINCT FROM d.schema_fingerprint
                OR r.nspname IS DISTINCT FROM d.source_schema OR r.relname IS DISTINCT FROM d.source_name
                OR CASE WHEN r.relrowsecurity THEN pgtrickle.row_security(d.source_relid, d.read_through,
                    (SELECT c.relowner FROM pg_class c WHERE c.oid = s.pgt_relid)) END IS DISTINCT FROM d.row_security
                OR s.refresh_mode <> 'IMMEDIATE' AND (r.cut OR r.capture = 'OFF' AND d.columns_used <> '{}')))
          AND (s.refresh_mode = 'IMMEDIATE' AND s.needs_reinit OR NOT EXISTS (SELECT FROM pgtrickle.pgt_marks) OR NOT EXISTS (
            SELECT FROM read d JOIN pgtrickle.pgt_marks m ON m.source_relid = d.source_relid
            WHERE d.pgt_id = s.pgt_id AND CASE s.refresh_mode WHEN 'IMMEDIATE' THEN m.pgt_id = s.pgt_id ELSE m.pgt_id IS NULL END))
          AND (s.refresh_mode <> 'IMMEDIATE' OR s.needs_reinit OR NOT s.is_populated
            OR EXISTS (SELECT FROM read d JOIN sources r ON r.oid = d.source_relid WHERE d.pgt_id = s.pgt_id AND r.capture = 'HELD')
            OR pgtrickle.immediate_fingerprint(s.pgt_id) IS NOT DISTINCT FROM s.triggers_fingerprint)
          AND (s.types = '{}' OR pgtrickle.types_fingerprint(s.types) IS NOT DISTINCT FROM s.types_fingerprint)
          AND (s.agreed IS NULL OR s.functions = '{}' AND s.types = '{}'
            OR (s.agreed_by = (SELECT c.relowner FROM pg_class c WHERE c.oid = s.pgt_relid)) IS NOT FALSE)
          AND (s.functions = '{}'
            OR pgtrickle.functions_fingerprint(s.functions) IS NOT DISTINCT FROM s.functions_fingerprint);
END
$$;

UPDATE pgtrickle.pgt_catalog_version SET version = 3;
