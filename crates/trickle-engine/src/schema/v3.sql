-- Catalog, version 3: no role gains rights through a stream table, and no writer fails because of one.

-- Readers of the catalog begin with this table. A change of the catalog does too, so that the two never wait for each other in a circle.
LOCK TABLE pgtrickle.pgt_stream_tables IN ACCESS EXCLUSIVE MODE;

-- Rows that belong to a stream table go with its row by a trigger. Foreign keys between tables of an extension are there before the rows
-- of a dump are, and pg_restore -j brings those in any order. A lease is never deleted, so its term needs no trigger.
ALTER TABLE pgtrickle.pgt_dependencies DROP CONSTRAINT pgt_dependencies_pgt_id_fkey;
ALTER TABLE pgtrickle.pgt_refresh_history DROP CONSTRAINT pgt_refresh_history_pgt_id_fkey;
ALTER TABLE pgtrickle.pgt_lease_terms DROP CONSTRAINT pgt_lease_terms_role_fkey;
CREATE FUNCTION pgtrickle.forget() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = OLD.pgt_id;
    DELETE FROM pgtrickle.pgt_refresh_history h WHERE h.pgt_id = OLD.pgt_id;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.forget() FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.forget() IS 'Deletes what the catalog holds of a stream table whose row was deleted.';
CREATE TRIGGER forget AFTER DELETE ON pgtrickle.pgt_stream_tables FOR EACH ROW EXECUTE FUNCTION pgtrickle.forget();

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

-- The same of a table that was a child of the one that the columns are of, whose columns have the same names and other numbers.
CREATE FUNCTION pgtrickle.child_misfit(relation oid, names text[], types oid[]) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    numbers int2[] := array_fill(NULL::int2, ARRAY[cardinality(names)]);
    name text;
    place int;
BEGIN
    FOR number IN 1 .. 1600 LOOP
        name := ((pg_identify_object_as_address('pg_class'::regclass, relation, number)).object_names)[3];
        EXIT WHEN name IS NULL;
        place := array_position(names, name);
        IF place IS NOT NULL THEN
            numbers[place] := number;
        END IF;
    END LOOP;
    place := array_position(numbers, NULL);
    IF place IS NOT NULL THEN
        RETURN format('%s, which was a child of it, has no column %I', relation::regclass, names[place]);
    END IF;
    RETURN pgtrickle.misfit(relation, numbers, names, types);
END
$$;
COMMENT ON FUNCTION pgtrickle.child_misfit(oid, text[], oid[]) IS 'Why a table is not as one was whose child it is or was; NULL where it is.';

-- Why a table is not the one that had these keys, by the indexes that enforced them and by their columns; NULL where it is. Called as
-- misfit is. An index that is another by now is looked for in what the transaction sees: where that is older, the key counts as lost.
CREATE FUNCTION pgtrickle.lost_key(relation oid, indexes oid[], columns text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    FOR i IN 1 .. cardinality(indexes) LOOP
        IF pg_get_indexdef(indexes[i]) IS NULL AND NOT EXISTS (
            SELECT FROM pg_index k WHERE k.indrelid = relation AND pg_get_indexdef(k.indexrelid) IS NOT NULL
            AND (k.indkey::int2[])[0:k.indnkeyatts - 1] <@ columns[i]::int2[] AND pgtrickle.is_key(k.indexrelid))
        THEN
            RETURN format('a key of %s is gone', relation::regclass);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle.lost_key(oid, oid[], text[]) IS 'Why a table is not as unique as a trigger was made for; NULL where it is.';

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

-- The partitions and children of a table, on every level. One that is being detached (DETACH … CONCURRENTLY) is none any more.
CREATE FUNCTION pgtrickle.children(relation oid) RETURNS oid[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE partitioned bool := EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = relation);
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE tree(oid) AS (
            SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = relation AND NOT h.inhdetachpending
            UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid AND NOT h.inhdetachpending
        )
        SELECT tree.oid FROM tree
        WHERE partitioned OR EXISTS (SELECT FROM pg_class c WHERE c.oid = tree.oid AND c.relpersistence <> 't') ORDER BY 1);
END
$$;
COMMENT ON FUNCTION pgtrickle.children(oid) IS 'The partitions and children of a table, on every level; temporary tables are left out.';

-- Whether this session has a temporary child of a table. A table that is not temporary has no temporary partitions. The rows of the child
-- are in no stream table, since other sessions do not see them; but statements of this session on the table read and write them.
CREATE FUNCTION pgtrickle.has_temporary_child(relation oid) RETURNS bool LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pg_my_temp_schema() <> 0 AND EXISTS (
        WITH RECURSIVE tree(oid) AS (
            SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = relation
            UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid
        )
        SELECT FROM tree JOIN pg_class c ON c.oid = tree.oid WHERE c.relnamespace = pg_my_temp_schema());
END
$$;
COMMENT ON FUNCTION pgtrickle.has_temporary_child(oid) IS 'Whether this session has a temporary child of a table, whose rows other sessions do not see.';

-- Fails where these tables have got or lost partitions since the snapshot of the transaction, or have a temporary child in this session. The
-- rows that a statement reads of a partition are of the snapshot; the partitions that a table has are those of the moment in which the statement begins, as pg_partition_tree says them.
CREATE FUNCTION pgtrickle.require_sources(tables oid[]) RETURNS void LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE other regclass;
BEGIN
    SELECT t.oid INTO other FROM unnest(tables) t(oid)
    WHERE EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = t.oid)
        AND pgtrickle.children(t.oid) <> ARRAY(SELECT p.relid::oid FROM pg_partition_tree(t.oid) p WHERE p.relid <> t.oid ORDER BY 1) LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION 'could not serialize access: % got or lost a partition while it was read', other
            USING ERRCODE = '40001', HINT = 'Nothing was changed; try again.';
    END IF;
    SELECT t.oid INTO other FROM unnest(tables) t(oid) WHERE pgtrickle.has_temporary_child(t.oid) LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION '% has a temporary child in this session', other
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Other sessions do not see the rows of that child, so no stream table may have them.',
                HINT = 'Drop the temporary table, or refresh in another session.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.require_sources(oid[]) IS 'Fails where these tables have got or lost partitions since the snapshot of the transaction, or have a temporary child in this session.';

-- Whether a table has other partitions than these, that its triggers were made for. What is written through the table to one of the
-- others is captured, and no trigger fires when that one is dropped or detached: so triggers note that there was one. Called as misfit is.
CREATE FUNCTION pgtrickle.has_other_partitions(relation oid, known oid[]) RETURNS bool LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_partition_tree(relation) p WHERE p.relid <> relation AND p.relid <> ALL (known));
END
$$;
COMMENT ON FUNCTION pgtrickle.has_other_partitions(oid, oid[]) IS 'Whether a table has other partitions than these.';

-- Whether the statement that fires the calling trigger for UPDATE may be a MERGE that moved rows of a table from one partition to another. The
-- server shows such a row as one that was deleted and inserted, and fires no trigger for that where the MERGE only updates. Two things must
-- hold. The word MERGE stands in the client's text or in a statement on the stack; or in a prepared statement, or a function in SQL, whose
-- texts the stack does not show. And the transaction has deleted rows of partitions, as the server counts them, which it does of a session
-- for a while. A wrong yes only has the readers computed anew. At the top of the stack stand this function and the trigger's.
CREATE FUNCTION pgtrickle.merge_may_have_moved(source oid) RETURNS bool LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stack text;
    told text := current_query();
    prepared bool;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    told := told || E'\n' || stack;
    prepared := told ~* '\mexecute\M' AND EXISTS (SELECT FROM pg_prepared_statements p WHERE p.statement ~* '\mmerge\M');
    IF told !~* '\mmerge\M' AND NOT prepared AND cardinality(string_to_array(stack, E'\n')) <= 2
        OR current_setting('track_counts') = 'on' AND NOT EXISTS (
            SELECT FROM unnest(pgtrickle.children(source)) c(oid) WHERE pg_stat_get_xact_tuples_deleted(c.oid) > 0)
    THEN
        RETURN false;
    END IF;
    RETURN told IS NULL OR told ~* '\mmerge\M' OR prepared OR EXISTS (SELECT FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE l.lanname = 'sql' AND (p.prosrc ~* '\mmerge\M' OR p.prosqlbody::text LIKE '%:commandType 5 %'));
END
$$;
COMMENT ON FUNCTION pgtrickle.merge_may_have_moved(oid) IS 'Whether a MERGE may have moved rows of a table from one partition to another.';

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


-- Guarantees of the server for every row that a relation shows.

-- The columns that hold no NULL. pg_attribute.attnotnull says less: since PostgreSQL 18 it is set by a constraint that is NOT VALID,
-- while older rows have NULLs; a child may have dropped its NOT NULL (before 18), or never got it (NO INHERIT); and what a foreign
-- table declares nobody checks.
CREATE FUNCTION pgtrickle.never_null(relation oid) RETURNS int2[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE whole(oid) AS (
            SELECT relation UNION SELECT h.inhrelid FROM whole JOIN pg_inherits h ON h.inhparent = whole.oid
        ), tree AS (
            -- Rows of a temporary child are in no stream table.
            SELECT w.oid FROM whole w
            WHERE w.oid = relation OR EXISTS (SELECT FROM pg_class c WHERE c.oid = w.oid AND c.relpersistence <> 't')
        ), doubtful(name) AS (
            SELECT a.attname FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_attribute a ON a.attrelid = tree.oid
            WHERE a.attnum > 0 AND NOT a.attisdropped AND (c.relkind = 'f' OR NOT a.attnotnull)
            UNION ALL SELECT a.attname FROM tree JOIN pg_constraint k ON k.conrelid = tree.oid
                JOIN pg_attribute a ON a.attrelid = tree.oid AND a.attnum = k.conkey[1]
            WHERE k.contype = 'n' AND NOT k.convalidated
        )
        SELECT a.attnum FROM pg_attribute a
        WHERE a.attrelid = relation AND a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped
          AND a.attname NOT IN (SELECT name FROM doubtful)
        ORDER BY a.attnum
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.never_null(oid) IS 'The columns of a relation in which the server lets no row have a NULL.';

-- Whether a unique index is a key: no two rows of its table are ever equal in its columns by the = of queries. The index has to hold all
-- rows, be checked at once (not DEFERRABLE), and compare the columns themselves, under the columns' own collations and by the default
-- operators of their types: text_ops over citext tells apart what citext does not. An index WITHOUT OVERLAPS is left out: it compares
-- by another operator than =. Whether its columns may be NULL is another question.
CREATE FUNCTION pgtrickle.is_key(index oid) RETURNS bool LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT i.indisunique AND i.indisvalid AND i.indisready AND i.indimmediate AND NOT i.indisexclusion
            AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (
                SELECT FROM generate_series(0, i.indnkeyatts - 1) n(n)
                JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n.n]
                JOIN pg_opclass o ON o.oid = i.indclass[n.n]
                CROSS JOIN LATERAL (
                    WITH RECURSIVE base(oid) AS (
                        SELECT a.atttypid UNION SELECT t.typbasetype FROM base JOIN pg_type t ON t.oid = base.oid AND t.typtype = 'd')
                    SELECT t.oid FROM base JOIN pg_type t ON t.oid = base.oid AND t.typtype <> 'd') t
                WHERE NOT o.opcdefault OR i.indcollation[n.n] <> a.attcollation
                  OR o.opcintype <> t.oid AND EXISTS (SELECT FROM pg_opclass d
                    WHERE d.opcmethod = o.opcmethod AND d.opcdefault AND d.opcintype = t.oid))
        FROM pg_index i WHERE i.indexrelid = index
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.is_key(oid) IS 'Whether a unique index keeps any two rows of its table apart by the equality of queries.';

-- Where a column or a relation of a query has another name now, the query is written with the names of now. A relation that is
-- as it was when the query was planned has the names of then.
CREATE FUNCTION pgtrickle.column_names(relation oid) RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(SELECT CASE WHEN NOT a.attisdropped THEN a.attname::text END FROM pg_attribute a
        WHERE a.attrelid = relation AND a.attnum > 0 ORDER BY a.attnum);
END
$$;
COMMENT ON FUNCTION pgtrickle.column_names(oid) IS 'The names of the columns of a relation, each at its number; NULL for one that was dropped.';
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN column_names text[], ADD COLUMN named_columns int2[];
COMMENT ON COLUMN pgtrickle.pgt_dependencies.column_names IS 'The names of its columns as the query knows them, each at its number; NULL where they were not noted.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.named_columns IS 'The numbers of the columns that the query, or a view that it reads, names; NULL where they were not noted.';
UPDATE pgtrickle.pgt_dependencies SET column_names = pgtrickle.column_names(source_relid)
    WHERE schema_fingerprint = pgtrickle.fingerprint(source_relid);

-- The text of a view. The server waits for whoever alters what the view reads; then this is a random text after 10 ms, and the view
-- counts as another. So nobody who looks at stream tables waits for a migration.
CREATE FUNCTION pgtrickle.view_text(view oid) RETURNS text LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET lock_timeout = '10ms' AS $$
BEGIN
    RETURN pg_get_viewdef(view);
EXCEPTION WHEN lock_not_available THEN
    RETURN gen_random_uuid();
END
$$;
COMMENT ON FUNCTION pgtrickle.view_text(oid) IS 'The text of a view; a random one while somebody alters what it reads.';

-- What a plan was made from of a relation, as if the tables in `without` were not its partitions or children.
CREATE FUNCTION pgtrickle.fingerprint(relation oid, last int2, without oid[]) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET extra_float_digits = 3
SET bytea_output = hex SET standard_conforming_strings = on AS $$
DECLARE partitioned bool := EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = relation);
BEGIN
    RETURN (
        SELECT md5(concat_ws(E'\n',
            (SELECT concat_ws(' ', c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.relispartition,
                EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = relation))
             FROM pg_class c WHERE c.oid = relation),
            (SELECT string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation,
                a.attnum = ANY (n.columns), a.xmin), ',' ORDER BY a.attnum)
             FROM pg_attribute a CROSS JOIN (SELECT pgtrickle.never_null(relation)) n(columns)
             WHERE a.attrelid = relation AND a.attnum BETWEEN 1 AND last AND NOT a.attisdropped),
            (SELECT string_agg(concat_ws(' ', i.indkey, i.indisprimary, i.indnullsnotdistinct), ',' ORDER BY i.indexrelid)
             FROM pg_index i WHERE i.indrelid = relation AND i.indisunique AND pgtrickle.is_key(i.indexrelid)),
            -- One that goes and comes back is another: what it holds may be.
            (WITH RECURSIVE tree(child, version) AS (
                SELECT h.inhrelid, h.xmin::text FROM pg_inherits h WHERE h.inhparent = relation AND h.inhrelid <> ALL (without)
                UNION SELECT h.inhrelid, h.xmin::text FROM tree JOIN pg_inherits h ON h.inhparent = tree.child AND h.inhrelid <> ALL (without))
             SELECT string_agg(concat_ws(' ', child, version, CASE WHEN EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = child AND a.attgenerated <> '') THEN (SELECT string_agg(d.adbin::text, ','
                    ORDER BY d.adnum) FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
                    WHERE d.adrelid = child AND a.attgenerated <> '') END), ',' ORDER BY child, version) FROM tree
             WHERE partitioned OR EXISTS (SELECT FROM pg_class c WHERE c.oid = child AND c.relpersistence <> 't')),
            (SELECT pgtrickle.view_text(c.oid) FROM pg_class c WHERE c.oid = relation AND c.relkind = 'v')))
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.fingerprint(oid, int2, oid[]) IS 'What plans were made from of a relation, as if some of its partitions or children were not there.';
CREATE OR REPLACE FUNCTION pgtrickle.fingerprint(relation oid, last int2 DEFAULT 32767) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle.fingerprint(relation, last, '{}');
END
$$;

-- The triggers of a buffer, as pgtrickle.triggers_fingerprint has them, as if these partitions or children were not there.
CREATE FUNCTION pgtrickle.triggers_fingerprint(source oid, without oid[]) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        WITH RECURSIVE tree(oid) AS (
            SELECT source UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid AND h.inhrelid <> ALL (without))
        SELECT md5(coalesce(string_agg(concat_ws(' ', g.tgrelid, g.tgname, g.tgenabled, g.xmin), ',' ORDER BY g.oid), ''))
        FROM tree JOIN pg_trigger g ON g.tgrelid = tree.oid JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, format('capture_%s_', source))
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.triggers_fingerprint(oid, oid[]) IS 'The triggers of a buffer, as if some partitions or children of its table were not there.';

-- Whether the rows of these tables may be listed as changes of a partitioned table. The list is exact in a transaction that sees all that
-- others committed, while the tables are locked. The buffer has room for it, and it has no more than `most` bytes.
CREATE FUNCTION pgtrickle.takes_rows_of(tables oid[], most bigint, source oid) RETURNS bool LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY (tables) AND (c.relkind NOT IN ('r', 'p') OR c.relrowsecurity))
    THEN
        RETURN false;
    END IF;
    bytes := (SELECT sum(pg_table_size(c.oid)) FROM pg_class c WHERE c.oid = ANY (tables) AND c.relkind = 'r');
    RETURN coalesce(bytes, 0) <= most AND EXISTS (SELECT FROM pgtrickle.pgt_buffers b WHERE b.source_relid = source AND coalesce(bytes, 0)
        + pg_relation_size(to_regclass(format('pgtrickle_changes.changes_%s_%s', source, b.segments->-1->>'number'))) < b.limit_bytes);
END
$$;
COMMENT ON FUNCTION pgtrickle.takes_rows_of(oid[], bigint, oid) IS 'Whether the rows of these tables may be listed as changes of a partitioned table.';

-- The partitions that one command has brought a table in this transaction, where they belong to its owner, and all is as its triggers
-- were made for without them; NULL where anything else of the table changed. An attached table is locked until the end of the
-- transaction, and one that was made in it nobody else sees. Their rows are to be listed as changes; partitions without a page have none.
-- A statement that wrote the table before the command was followed has left a mark. Locks the buffer, unless somebody else has it.
CREATE FUNCTION pgtrickle.new_partitions(source oid, most bigint) RETURNS oid[] LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now oid[] := pgtrickle.children(source);
    came oid[];
    b pgtrickle.pgt_buffers;
BEGIN
    SELECT * INTO b FROM pgtrickle.pgt_buffers WHERE source_relid = source AND capture = 'ON' FOR NO KEY UPDATE SKIP LOCKED;
    came := ARRAY(SELECT unnest(now) EXCEPT SELECT unnest(b.children) ORDER BY 1);
    IF b.children <@ now AND came <> '{}'
        AND (SELECT bool_and(c.relispartition AND c.relkind IN ('r', 'p') AND c.relowner = p.relowner)
            FROM pg_class p, pg_class c WHERE p.oid = source AND c.oid = ANY (came))
        AND (SELECT count(*) = 1 AND min(age(h.xmin)) <= 0 FROM pg_inherits h WHERE h.inhrelid = ANY (came) AND h.inhparent <> ALL (came))
        AND pgtrickle.fingerprint(source, 32767::int2, came) = b.schema_fingerprint
        AND pgtrickle.triggers_fingerprint(source, came) = b.triggers_fingerprint
        AND NOT EXISTS (SELECT FROM pgtrickle.pgt_marks m WHERE m.source_relid = source AND m.pgt_id IS NULL)
        AND (NOT EXISTS (SELECT FROM unnest(came) c(oid) WHERE pg_relation_size(c.oid) > 0) OR pgtrickle.takes_rows_of(came, most, source))
    THEN
        RETURN came;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle.new_partitions(oid, bigint) IS 'The partitions that one command has brought a table in this transaction; NULL where anything else of it changed, or their rows are too many.';

-- Those of these partitions that belong to a table, with all below them, where their rows may be listed as changes, since all of their
-- changes were captured; NULL where this is not so. The caller has locked them. Locks the buffer, unless somebody else has it.
CREATE FUNCTION pgtrickle.leaving_partitions(source oid, partitions oid[], most bigint) RETURNS oid[] LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    leaving oid[];
    b pgtrickle.pgt_buffers;
BEGIN
    SELECT * INTO b FROM pgtrickle.pgt_buffers WHERE source_relid = source AND capture = 'ON' FOR NO KEY UPDATE SKIP LOCKED;
    leaving := ARRAY(SELECT p.oid FROM unnest(partitions) p(oid) WHERE p.oid = ANY (b.children)
        UNION SELECT c.oid FROM unnest(partitions) p(oid) CROSS JOIN LATERAL unnest(pgtrickle.children(p.oid)) c(oid) WHERE p.oid = ANY (b.children)
        ORDER BY 1);
    IF leaving <> '{}' AND leaving <@ b.children
        AND pgtrickle.takes_rows_of(leaving, most, source)
        AND pgtrickle.fingerprint(source) = b.schema_fingerprint
        AND pgtrickle.triggers_fingerprint(source) = b.triggers_fingerprint
        AND NOT EXISTS (SELECT FROM pgtrickle.pgt_marks m WHERE m.source_relid = source AND m.pgt_id IS NULL)
    THEN
        RETURN leaving;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle.leaving_partitions(oid, oid[], bigint) IS 'Those of these partitions that belong to a table, where their rows may be listed as its changes; NULL where they may not.';

-- An ALTER TABLE matters to no reader that relies on nothing of it.

-- The properties of these columns of a relation that their reader relies on:
-- 1. that they are these, of these types, computed so, and that the same tables hold the rows, which none of them left meanwhile;
-- 2. the versions of the columns' definitions in all these tables, and 3. the files that hold the rows. A value that was stored changes
--    without a trigger by ALTER TABLE of a table alone, which makes another version of the definition and another file; VACUUM FULL,
--    CLUSTER and TRUNCATE make another file alone, SET STATISTICS, SET DEFAULT and SET NOT NULL another version alone;
-- 4. the keys of these columns, each with whether its columns are never NULL, and 5. the columns that are never NULL.
-- All as if the tables in `without` were not its partitions.
CREATE FUNCTION pgtrickle.relied(relation oid, numbers int2[], without oid[] DEFAULT '{}') RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE partitioned bool := EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = relation);
BEGIN
    RETURN (
        WITH RECURSIVE whole(oid) AS (
            SELECT relation UNION SELECT h.inhrelid FROM whole JOIN pg_inherits h ON h.inhparent = whole.oid AND h.inhrelid <> ALL (without)
        ), tree AS (
            -- Rows of a temporary child are in no stream table.
            SELECT w.oid FROM whole w
            WHERE partitioned OR EXISTS (SELECT FROM pg_class c WHERE c.oid = w.oid AND c.relpersistence <> 't')
        ), columns AS (
            SELECT a.* FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum = ANY (numbers) AND NOT a.attisdropped
        ), everywhere AS (
            SELECT a.attrelid, a.attname, a.xmin AS version, CASE WHEN a.attgenerated <> '' THEN (
                SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum) END AS made
            FROM tree JOIN pg_attribute a ON a.attrelid = tree.oid
            WHERE a.attname IN (SELECT c.attname FROM columns c) AND NOT a.attisdropped
        )
        SELECT ARRAY[
            md5(concat_ws(E'\n',
                (SELECT concat_ws(' ', c.relkind, c.relispartition, EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = relation))
                 FROM pg_class c WHERE c.oid = relation),
                (SELECT string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation), ','
                    ORDER BY a.attnum) FROM columns a),
                (SELECT string_agg(concat_ws(' ', e.attrelid, e.made), ',' ORDER BY e.attrelid, e.attname) FROM everywhere e
                    WHERE e.made IS NOT NULL),
                (SELECT string_agg(concat_ws(' ', tree.oid, (SELECT string_agg(h.xmin::text, ',' ORDER BY h.inhparent)
                    FROM pg_inherits h WHERE h.inhrelid = tree.oid)), ',' ORDER BY tree.oid) FROM tree))),
            md5((SELECT coalesce(string_agg(e.version::text, ',' ORDER BY e.attrelid, e.attname), '') FROM everywhere e)),
            md5((SELECT string_agg(pg_relation_filenode(tree.oid)::text, ',' ORDER BY tree.oid) FROM tree)),
            (SELECT string_agg(concat_ws('/', array_to_string(k.columns, ','), k.columns <@ pgtrickle.never_null(relation), i.indnullsnotdistinct), ';')
             FROM pg_index i CROSS JOIN LATERAL (SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] AS columns) k
             WHERE i.indrelid = relation AND i.indisunique AND k.columns <@ numbers AND pgtrickle.is_key(i.indexrelid)),
            array_to_string(ARRAY(SELECT n.number FROM unnest(pgtrickle.never_null(relation)) n(number) WHERE n.number = ANY (numbers)), ';')]
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.relied(oid, int2[], oid[]) IS 'The properties of these columns of a relation that their reader relies on.';

-- Whether these properties are still so, for a reader. TRIGGERS were made once, and rely on the keys that there were then. A PLAN is made
-- again from the present properties; changes from before a key or NOT NULL came need not have it, so none may have come. A FORMER PLAN is made
-- from these properties and no more, so all are still to be there; it takes no index for a key that has a column which may be NULL. Where a column
-- somewhere is of the type of the relation's rows the answer is no: a value stored there shows other columns by now.
CREATE FUNCTION pgtrickle.still_serves(relation oid, numbers int2[], relied text[], reader text) RETURNS bool LANGUAGE plpgsql
STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now text[] := pgtrickle.relied(relation, numbers);
    were text[] := coalesce(string_to_array(relied[4], ';'), '{}');
    are text[] := coalesce(string_to_array(now[4], ';'), '{}');
    had text[] := coalesce(string_to_array(relied[5], ';'), '{}');
    has text[] := coalesce(string_to_array(now[5], ';'), '{}');
BEGIN
    RETURN now[1] = relied[1] AND (now[2] = relied[2] OR now[3] = relied[3])
        AND CASE reader
            WHEN 'TRIGGERS' THEN NOT EXISTS (SELECT FROM unnest(were) w WHERE w <> ALL (are) AND replace(w, '/f/', '/t/') <> ALL (are))
            WHEN 'PLAN' THEN are <@ were AND has <@ had
            WHEN 'FORMER PLAN' THEN had <@ has AND NOT EXISTS (SELECT FROM unnest(were) w WHERE w LIKE '%/t/%' AND w <> ALL (are)) END
        AND NOT EXISTS (
            SELECT FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
            JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray) AND d.deptype = 'n'
            WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION pgtrickle.still_serves(oid, int2[], text[], text) IS 'Whether a relation is still what a plan or triggers relied on that read these columns.';

-- The properties that a reader of these columns relies on from now on; its plan rests on no more keys and columns without NULL than were
-- noted `before`, where they were. The tables in `without` are not to be its partitions from now on.
CREATE FUNCTION pgtrickle.relied_now(relation oid, columns text[], before text[], without oid[] DEFAULT '{}') RETURNS text[] LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now text[] := pgtrickle.relied(relation, pgtrickle.numbers(relation, columns), without);
BEGIN
    RETURN CASE WHEN before IS NULL THEN now ELSE now[1:3] || before[4:5] END;
END
$$;
COMMENT ON FUNCTION pgtrickle.relied_now(oid, text[], text[], oid[]) IS 'The properties that a reader of these columns relies on from now on.';
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN keeps_plan bool NOT NULL DEFAULT false;
COMMENT ON COLUMN pgtrickle.pgt_dependencies.keeps_plan IS 'Whether the plan rests on no more keys and columns without NULL than relied has: it goes on from rows that need not have those that came since.';

-- The numbers of columns of a relation.
CREATE FUNCTION pgtrickle.numbers(relation oid, columns text[]) RETURNS int2[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = relation AND a.attname = ANY (columns) AND NOT a.attisdropped
        ORDER BY a.attnum);
END
$$;
COMMENT ON FUNCTION pgtrickle.numbers(oid, text[]) IS 'The attribute numbers of columns of a relation.';

-- The numbers of the columns that a buffer holds.
CREATE FUNCTION pgtrickle.held_columns(segments jsonb) RETURNS int2[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT n.number::int2 FROM jsonb_array_elements(segments) s
        CROSS JOIN LATERAL jsonb_array_elements_text(s->'columns') n(number) ORDER BY 1);
END
$$;
COMMENT ON FUNCTION pgtrickle.held_columns(jsonb) IS 'The attribute numbers of the columns that a buffer holds.';

ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN kept_hash text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.kept_hash IS 'Identifies the triggers that keep it within the statements of writers; of the last that were made; NULL where that was not noted.';
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN relied text[];
COMMENT ON COLUMN pgtrickle.pgt_dependencies.relied IS 'What the stream table relies on of it (pgtrickle.relied); NULL where that was not noted.';
ALTER TABLE pgtrickle.pgt_buffers ADD COLUMN relied text[], ADD COLUMN paired int2[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN pgtrickle.pgt_buffers.paired IS 'The key, as attribute numbers, by which its triggers pair old and new rows.';
ALTER TABLE pgtrickle.pgt_buffers ADD COLUMN children oid[];
COMMENT ON COLUMN pgtrickle.pgt_buffers.children IS 'The partitions and children, on every level, that its triggers were made for; NULL where that was not noted.';
UPDATE pgtrickle.pgt_buffers SET children = pgtrickle.children(source_relid);
COMMENT ON COLUMN pgtrickle.pgt_buffers.relied IS 'What its triggers rely on (pgtrickle.relied); NULL where that was not noted.';
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN stored_hash text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.stored_hash IS 'Hash of the plans whose results are stored; NULL where that was not noted.';

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

-- Whether that is all of a path that was safe for the current role.
CREATE FUNCTION pgtrickle.is_safe_path(path text[]) RETURNS bool LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle.safe_path(path, quote_ident(current_user)::regrole) = path;
END
$$;
COMMENT ON FUNCTION pgtrickle.is_safe_path(text[]) IS 'Whether still nobody but the current role and superusers can put anything into a search path.';

-- The same of settings as they are stored.
CREATE FUNCTION pgtrickle.safe_path(settings jsonb, owner oid) RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle.safe_path(ARRAY(SELECT jsonb_array_elements_text(s->'values') FROM jsonb_array_elements(settings) s
        WHERE s->>'name' = 'search_path'), owner);
END
$$;
COMMENT ON FUNCTION pgtrickle.safe_path(jsonb, oid) IS 'Of the search path among stored settings what nobody but a role and superusers can put anything into.';

-- The key by which a stream table that has none by its query is written: a row that changes is updated, and not deleted and inserted, which
-- foreign keys take for the end of the rows that refer to it. A key that foreign keys refer to comes first; where `referenced`, no other
-- will do. Beside another unique or exclusion index an UPDATE of several rows may meet a value that one of them is about to give up, so there
-- only foreign keys are a reason. The server keeps triggers of foreign keys on the table that these refer to.
CREATE FUNCTION pgtrickle.pairing_key(relation oid, referenced bool) RETURNS oid LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    refers oid[] := ARRAY(SELECT k.conindid FROM pg_trigger g JOIN pg_constraint k ON k.oid = g.tgconstraint
        WHERE g.tgrelid = relation AND g.tgconstrrelid <> 0 AND k.confrelid = relation);
BEGIN
    IF refers = '{}' AND (referenced OR 1 < (
        SELECT count(*) FROM pg_index i WHERE i.indrelid = relation AND (i.indisunique OR i.indisexclusion)))
    THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam AND m.amname = 'btree'
        WHERE i.indrelid = relation AND i.indisunique AND pgtrickle.is_key(i.indexrelid)
        ORDER BY i.indexrelid = ANY (refers) DESC, i.indisprimary DESC, i.indexrelid LIMIT 1);
END
$$;
COMMENT ON FUNCTION pgtrickle.pairing_key(oid, bool) IS 'The unique index of a stream table by which rows that change are told from rows that come and go.';

-- Identifies the plan of a stream table and the triggers that keep it, with the rights that these take: a stream table that somebody else has
-- planned meanwhile has another definition.
CREATE OR REPLACE FUNCTION pgtrickle.definition(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT md5(jsonb_build_array(s.defining_query, s.refresh_mode, s.layout_hash, s.settings, s.functions_fingerprint,
            s.types_fingerprint, s.objects_fingerprint, o.relowner, pgtrickle.safe_path(ARRAY(
                SELECT jsonb_array_elements_text(x->'values') FROM jsonb_array_elements(s.settings) x WHERE x->>'name' = 'search_path'),
                o.relowner), current_user, CASE WHEN s.refresh_mode = 'FULL' OR EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = s.pgt_relid AND g.tgconstrrelid <> 0)
                THEN pgtrickle.pairing_key(s.pgt_relid, s.refresh_mode <> 'FULL') END, o.relhasrules,
            CASE s.refresh_mode WHEN 'IMMEDIATE' THEN pgtrickle.rights_of(s.pgt_id)::text END,
            (SELECT jsonb_agg(jsonb_build_array(d.source_relid, d.columns_used, d.schema_fingerprint, b.capture, b.unlogged)
                ORDER BY d.source_relid)
             FROM pgtrickle.pgt_dependencies d LEFT JOIN pgtrickle.pgt_buffers b USING (source_relid)
             WHERE d.pgt_id = s.pgt_id))::text)
        FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class o ON o.oid = s.pgt_relid WHERE s.pgt_id = stream_table
    );
END
$$;

-- Functions and aggregates that a query calls, by what they are and by the names under which it finds them. A plan that was made for functions as they are
-- stays so.
UPDATE pgtrickle.pgt_stream_tables SET functions_fingerprint = NULL
    WHERE functions <> '{}' AND functions_fingerprint IS DISTINCT FROM pgtrickle.functions_fingerprint(functions);
CREATE OR REPLACE FUNCTION pgtrickle.functions_fingerprint(functions oid[]) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT md5(coalesce(string_agg(concat_ws(E'\n', f.oid, p.pronamespace::regnamespace, p.proname, p.provolatile, p.proisstrict, p.prosrc,
            p.probin, pg_get_function_sqlbody(p.oid), p.proconfig, pg_get_expr(p.proargdefaults, 0),
            a.aggtransfn::oid, a.aggfinalfn::oid, a.aggcombinefn::oid, a.aggmtransfn::oid, a.aggminvtransfn::oid, a.aggmfinalfn::oid,
            a.aggtranstype, a.aggsortop, a.agginitval, a.aggminitval, a.aggfinalextra), E'\n' ORDER BY f.oid), ''))
        FROM unnest(functions) f(oid) LEFT JOIN pg_proc p ON p.oid = f.oid LEFT JOIN pg_aggregate a ON a.aggfnoid = f.oid
    );
END
$$;
UPDATE pgtrickle.pgt_stream_tables SET functions_fingerprint = pgtrickle.functions_fingerprint(functions)
    WHERE functions <> '{}' AND functions_fingerprint IS NOT NULL;

-- A plan that is made anew runs nothing of a stranger's to which the owner of the stream table has not agreed.

ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN agreed oid[], ADD COLUMN agreed_by oid,
    ADD COLUMN agreed_tables oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN types oid[] NOT NULL DEFAULT '{}', ADD COLUMN types_fingerprint text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed IS 'Functions of others than its owner and superusers that it may run; NULL: it was declared before that was noted, or restored from a dump.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed_by IS 'Who owned it when it was planned.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed_tables IS 'Relations that views of others may read with the rights of its owner (security_invoker).';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.types IS 'Types that its query can reach, but the server''s own; {0}: it was planned before that was noted.';

-- The names of types, of the values of those that are enums, and of the attributes of those that are composite, with their types: queries name
-- all of them. Of attributes all stand in one text, since whole values show one that came, too. Another text for each type has its default
-- operator classes and everything in the families of these: they decide which values are equal, and in which order they come.
CREATE FUNCTION pgtrickle.type_names(types oid[]) RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(SELECT concat_ws(' ', t.oid, format_type(t.oid, NULL)) FROM unnest(types) t(oid)
        UNION ALL SELECT concat_ws(' ', e.enumtypid, e.oid, quote_literal(e.enumlabel)) FROM pg_enum e WHERE e.enumtypid = ANY (types)
        UNION ALL SELECT concat_ws(' ', y.oid, string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid,
                a.atttypmod, a.attcollation), ',' ORDER BY a.attnum))
            FROM pg_type y JOIN pg_attribute a ON a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            WHERE y.oid = ANY (types) GROUP BY y.oid
        UNION ALL SELECT concat_ws(' ', t.oid, 'classes', (
            SELECT string_agg(concat_ws(' ', c.oid, c.opcfamily,
                ARRAY(SELECT concat_ws(' ', o.amoplefttype, o.amoprighttype, o.amopstrategy, o.amopopr) FROM pg_amop o
                    WHERE o.amopfamily = c.opcfamily ORDER BY 1),
                ARRAY(SELECT concat_ws(' ', f.amproclefttype, f.amprocrighttype, f.amprocnum, f.amproc::oid) FROM pg_amproc f
                    WHERE f.amprocfamily = c.opcfamily ORDER BY 1)), ',' ORDER BY c.oid)
            FROM pg_opclass c WHERE c.opcdefault AND c.opcintype = t.oid)) FROM unnest(types) t(oid)
        ORDER BY 1);
END
$$;
COMMENT ON FUNCTION pgtrickle.type_names(oid[]) IS 'The names of types, of the values of enums, and of the attributes of composite types, and the default operator classes of types.';

-- Code that the owners of types can have run where values of them are written, compared or converted: casts, and conditions of domains;
-- and their names and operator classes.
CREATE FUNCTION pgtrickle.types_fingerprint(types oid[]) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN md5(concat_ws(E'\n',
        (SELECT string_agg(concat_ws(' ', k.castsource, k.casttarget, k.castfunc, k.castcontext), ',' ORDER BY k.oid)
         FROM pg_cast k WHERE k.castsource = ANY (types) OR k.casttarget = ANY (types)),
        (SELECT string_agg(concat_ws(' ', n.oid, n.xmin), ',' ORDER BY n.oid) FROM pg_constraint n WHERE n.contypid = ANY (types) AND n.contypid <> 0),
        array_to_string(pgtrickle.type_names(types), ',')));
END
$$;
COMMENT ON FUNCTION pgtrickle.types_fingerprint(oid[]) IS 'What the owners of types have run where values of them are used.';

-- Objects on which values rest beside types and the functions that a query calls: operators, casts, collations, text search, and what is
-- behind these and behind bodies of functions. They mean the same whoever owns them. The oid 0 stands for all text search configurations, or
-- dictionaries, but the server's own: a row may name any of them.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN objects text[] NOT NULL DEFAULT '{}', ADD COLUMN objects_fingerprint text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.objects IS 'Operators, casts, collations, text search configurations and functions that its values rest on, beside the functions that it calls, but the server''s own, each by its catalog and oid.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.objects_fingerprint IS 'pgtrickle.objects_fingerprint of these objects when it was planned.';
CREATE FUNCTION pgtrickle.objects_fingerprint(objects text[]) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        WITH o AS (SELECT split_part(x, ' ', 1) AS class, split_part(x, ' ', 2)::oid AS oid FROM unnest(objects) x)
        SELECT md5(concat_ws(E'\n', pgtrickle.functions_fingerprint(ARRAY(SELECT o.oid FROM o WHERE class = 'pg_proc')),
            array_to_string(pgtrickle.type_names(ARRAY(SELECT o.oid FROM o WHERE class = 'pg_type')), ','),
            (SELECT string_agg(concat_ws(' ', class, o.oid, CASE class
                WHEN 'pg_operator' THEN (SELECT concat_ws(' ', r.oprnamespace::regnamespace, r.oprname, r.oprcode::oid)
                    FROM pg_operator r WHERE r.oid = o.oid)
                WHEN 'pg_cast' THEN (SELECT concat_ws(' ', k.castsource, k.casttarget, k.castfunc, k.castcontext, k.castmethod)
                    FROM pg_cast k WHERE k.oid = o.oid)
                WHEN 'pg_collation' THEN (SELECT concat_ws(' ', l.collnamespace::regnamespace, to_jsonb(l) - 'collowner')
                    FROM pg_collation l WHERE l.oid = o.oid)
                WHEN 'pg_ts_config' THEN (SELECT string_agg(mapped, ',' ORDER BY mapped) FROM (
                    SELECT concat_ws(' ', c.oid, c.cfgnamespace::regnamespace, c.cfgname, c.cfgparser,
                        string_agg(concat_ws(' ', m.maptokentype, m.mapseqno, m.mapdict), ',' ORDER BY m.maptokentype, m.mapseqno)) AS mapped
                    FROM pg_ts_config c LEFT JOIN pg_ts_config_map m ON m.mapcfg = c.oid
                    WHERE c.oid = o.oid OR o.oid = 0 AND c.oid >= 16384 GROUP BY c.oid) configs)
                WHEN 'pg_ts_dict' THEN (SELECT string_agg(concat_ws(' ', d.oid, d.dictnamespace::regnamespace, d.dictname, d.dicttemplate,
                        d.dictinitoption), ',' ORDER BY d.oid)
                    FROM pg_ts_dict d WHERE d.oid = o.oid OR o.oid = 0 AND d.oid >= 16384)
                END), E'\n' ORDER BY class, o.oid) FROM o WHERE class NOT IN ('pg_proc', 'pg_type'))))
    );
END
$$;
COMMENT ON FUNCTION pgtrickle.objects_fingerprint(text[]) IS 'What operators, casts, collations, text search configurations and functions are.';

-- Rights of the owner of a stream table that its triggers take, as far as that role has them: EXECUTE on the functions that are called, and
-- USAGE on the schemas whose objects are named.
CREATE FUNCTION pgtrickle.rights_of(stream_table bigint, OUT callable oid[], OUT schemas oid[]) LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH own AS (
        SELECT s.functions, s.types, s.objects, c.relowner, c.relnamespace
        FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid WHERE s.pgt_id = stream_table
    ), o(class, oid) AS (
        SELECT 'pg_proc', unnest(functions) FROM own UNION SELECT 'pg_type', unnest(types) FROM own
        UNION SELECT split_part(x, ' ', 1), split_part(x, ' ', 2)::oid FROM own, unnest(objects) x
    ), placed(schema) AS (
        SELECT relnamespace FROM own
        UNION SELECT n.oid FROM pg_namespace n WHERE n.nspname IN ('pgtrickle', 'pgtrickle_changes')
        UNION SELECT x.pronamespace FROM o JOIN pg_proc x ON o.class = 'pg_proc' AND x.oid = o.oid
        UNION SELECT x.typnamespace FROM o JOIN pg_type x ON o.class = 'pg_type' AND x.oid = o.oid
        UNION SELECT x.oprnamespace FROM o JOIN pg_operator x ON o.class = 'pg_operator' AND x.oid = o.oid
        UNION SELECT x.collnamespace FROM o JOIN pg_collation x ON o.class = 'pg_collation' AND x.oid = o.oid
        UNION SELECT x.cfgnamespace FROM o JOIN pg_ts_config x ON o.class = 'pg_ts_config' AND x.oid = o.oid
        UNION SELECT x.dictnamespace FROM o JOIN pg_ts_dict x ON o.class = 'pg_ts_dict' AND x.oid = o.oid
    )
    SELECT ARRAY(SELECT o.oid FROM own, o WHERE o.class = 'pg_proc' AND has_function_privilege(own.relowner, o.oid, 'EXECUTE') ORDER BY 1),
        ARRAY(SELECT p.schema FROM own, placed p WHERE has_schema_privilege(own.relowner, p.schema, 'USAGE') ORDER BY 1)
    INTO callable, schemas;
END
$$;
COMMENT ON FUNCTION pgtrickle.rights_of(bigint) IS 'Functions that the owner of a stream table may call, and schemas that this role may use, of those that keeping it within the statements of writers takes.';

-- The owner of a stream table that is there has agreed to the functions that it calls by name. One that reads a column of somebody else's type
-- is planned anew, so that its types are known.
UPDATE pgtrickle.pgt_stream_tables s SET agreed = s.functions, agreed_by = c.relowner, types = '{0}',
    agreed_tables = ARRAY(SELECT d.source_relid FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = s.pgt_id AND EXISTS (
        SELECT FROM pg_catalog.pg_class v CROSS JOIN LATERAL pg_catalog.pg_options_to_table(v.reloptions) o
        WHERE v.oid = ANY (d.read_through) AND o.option_name = 'security_invoker' AND o.option_value::bool)),
    types_fingerprint = CASE WHEN NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
        JOIN pg_catalog.pg_attribute a ON a.attrelid = d.source_relid JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        JOIN pg_catalog.pg_roles r ON r.oid = t.typowner
        WHERE d.pgt_id = s.pgt_id AND r.oid <> c.relowner AND NOT r.rolsuper) THEN pgtrickle.types_fingerprint('{0}') END
FROM pg_catalog.pg_class c WHERE c.oid = s.pgt_relid;

-- == Hidden objects belong to the catalog's owner =====================================================================
-- Everything in pgtrickle_changes belongs to the owner of schema pgtrickle, but tables that are stream tables themselves. Others make
-- and replace nothing there; what trickle does there for a stream table is done for its owner, or for members of that role.

-- Fails unless the current role may do what the owners of these tables may, and those of their partitions and children. Changes are
-- captured of whoever has the table, and for such alone.
CREATE FUNCTION pgtrickle.require_owner(tables oid[]) RETURNS void LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE foreigner regclass;
BEGIN
    WITH RECURSIVE tree(oid) AS (
        SELECT unnest(tables)
        UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid)
    SELECT c.oid INTO foreigner FROM tree JOIN pg_class c ON c.oid = tree.oid
    WHERE NOT pg_has_role(c.relowner, 'USAGE') AND c.relpersistence <> 't' ORDER BY c.oid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'must be owner of table %', foreigner
            USING ERRCODE = 'insufficient_privilege',
                DETAIL = 'Only its owner, or a member of that role, may capture the changes of a table.',
                HINT = 'Make the stream table as that role, or have it kept by full refreshes.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.require_owner(oid[]) IS 'Fails unless the current role may capture the changes of these tables.';

-- What writers run to keep a stream table (IMMEDIATE) has the rights of its owner, and needs these tables. Called as the catalog's
-- owner.
CREATE FUNCTION pgtrickle.hand_to_owner(stream_table bigint) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE owner regrole; what record;
BEGIN
    SELECT c.relowner INTO owner FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE s.pgt_id = stream_table;
    FOR what IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace = 'pgtrickle_changes'::regnamespace
        AND starts_with(p.proname, format('immediate_%s_', stream_table)) AND p.proowner <> owner
    LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO %s', what.name, owner);
    END LOOP;
    FOR what IN SELECT c.oid::regclass AS name FROM pg_class c
        WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind = 'r' AND c.relowner <> owner
        AND (c.relname = format('immediate_%s', stream_table) OR starts_with(c.relname, format('immediate_%s_', stream_table))
            OR starts_with(c.relname, format('state_%s_', stream_table)))
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s', what.name, owner);
    END LOOP;
    PERFORM pgtrickle.without_statistics();
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.hand_to_owner(bigint) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.hand_to_owner(bigint) IS 'Gives the owner of a stream table what the triggers need that keep it; called by its refreshes.';

-- Hidden tables that other roles have become the catalog owner's, where they are bare: rows of plain columns, and nothing that anybody
-- put there to be run when they are read or written. Returns what is not so, which is to be made anew: the kind, and the number
-- that its name has. What has a name of ours and is none is refused.
CREATE FUNCTION pgtrickle.hand_over() RETURNS TABLE (kind text, number bigint) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE keeper oid; what record;
BEGIN
    SELECT n.nspowner INTO keeper FROM pg_namespace n WHERE n.nspname = 'pgtrickle';
    IF EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'pgtrickle_changes' AND n.nspowner <> keeper) THEN
        EXECUTE format('ALTER SCHEMA pgtrickle_changes OWNER TO %s', keeper::regrole);
    END IF;
    FOR what IN
        SELECT c.oid, c.oid::regclass AS name, m.part[1] AS kind, m.part[2]::bigint AS number, c.relowner,
            CASE m.part[1]
                WHEN 'changes' THEN EXISTS (SELECT FROM pgtrickle.pgt_buffers b, jsonb_array_elements(b.segments) g
                    WHERE b.source_relid = m.part[2]::oid AND g->>'number' = m.part[3])
                ELSE EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = m.part[2]::bigint) END AS ours,
            c.relkind = 'r' AND NOT c.relrowsecurity AND NOT c.relhasrules AND c.reloftype = 0
            AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid)
            AND NOT EXISTS (SELECT FROM pg_policy y WHERE y.polrelid = c.oid)
            AND NOT EXISTS (SELECT FROM pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent))
            AND NOT EXISTS (SELECT FROM pg_statistic_ext e WHERE e.stxrelid = c.oid)
            AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype NOT IN ('p', 'n'))
            AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND (m.part[1] = 'changes'
                OR x.indpred IS NOT NULL OR x.indexprs IS NOT NULL))
            AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '')
            AND NOT EXISTS (SELECT FROM pg_attrdef f JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
                WHERE f.adrelid = c.oid AND (a.attname, pg_get_expr(f.adbin, f.adrelid)) NOT IN
                    (('xid', 'pg_current_xact_id()'), ('pending', '0'), ('aside', 'false'), ('anew', 'false'))) AS bare
        FROM pg_class c CROSS JOIN LATERAL regexp_match(c.relname,
            '^(?:(changes|state)_([0-9]{1,18})_([0-9]+)|(immediate)_([0-9]{1,18})(?:_[0-9]+)?)$') r(part)
        CROSS JOIN LATERAL (SELECT ARRAY[coalesce(r.part[1], r.part[4]), coalesce(r.part[2], r.part[5]), r.part[3]]) m(part)
        WHERE r.part IS NOT NULL AND c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind <> 'i' AND c.relowner <> keeper
        ORDER BY c.oid
    LOOP
        IF NOT what.ours THEN
            RAISE EXCEPTION '% has a name that trickle gives, and is none of its tables', what.name
                USING ERRCODE = 'object_not_in_prerequisite_state',
                    DETAIL = format('It belongs to %s.', what.relowner::regrole),
                    HINT = 'Drop it, or move it to another schema; then try again.';
        END IF;
        IF what.bare THEN
            EXECUTE format('ALTER TABLE %s OWNER TO %s', what.name, keeper::regrole);
            PERFORM pgtrickle.without_grants(what.oid);
        ELSE
            kind := what.kind;
            number := what.number;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.hand_over() FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.hand_over() IS 'Makes hidden tables of other roles those of the catalog''s owner; called as the catalog is brought to this version, or adopted.';

-- ANALYZE, which the server also does by itself, runs as the owner of a table the functions of ranges that say how far two values are
-- apart, and of those anybody may make one: hidden columns of such types get no statistics. Called as the catalog's owner.
CREATE FUNCTION pgtrickle.without_statistics() RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE ranges oid[]; what record;
BEGIN
    SELECT array_agg(r.rngtypid) || array_agg(r.rngmultitypid) INTO ranges FROM pg_range r JOIN pg_proc p ON p.oid = r.rngsubdiff
    WHERE p.pronamespace <> 'pg_catalog'::regnamespace;
    IF ranges IS NULL THEN
        RETURN;
    END IF;
    FOR what IN
        WITH RECURSIVE type(oid) AS (
            SELECT unnest(ranges) UNION SELECT t.oid FROM type JOIN pg_type t ON t.typbasetype = type.oid)
        SELECT c.oid::regclass AS name, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
        AND a.atttypid IN (SELECT oid FROM type) AND coalesce(a.attstattarget, -1) <> 0
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 0', what.name, what.attname);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.without_statistics() FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.without_statistics() IS 'Keeps the server from running functions of others as it analyzes hidden tables; called as these are made.';

-- Writers run what keeps a stream table with the rights of its owner. Where those are gone it does nothing, so that nobody's statement
-- fails, and says so by this; whoever calls it else changes nothing.
CREATE FUNCTION pgtrickle.stop_keeping(stream_table bigint) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table AND s.refresh_mode = 'IMMEDIATE' AND NOT s.needs_reinit;
    -- A mark, since an UPDATE of a row that all writers share has them wait for each other, and fail in REPEATABLE READ.
    IF FOUND AND NOT EXISTS (SELECT FROM pgtrickle.pgt_marks m WHERE m.pgt_id = stream_table)
        AND NOT EXISTS (SELECT FROM pgtrickle.unchanged(ARRAY[stream_table]))
    THEN
        INSERT INTO pgtrickle.pgt_marks (source_relid, pgt_id, reason)
        SELECT min(d.source_relid), stream_table,
            'what keeping it takes was missing or is another: a right of its owner, a name, an object, or a search path that is its owner''s alone'
        FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = stream_table HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle.stop_keeping(bigint) IS 'Notes that a stream table was not kept, since its owner may not do what that takes; called by its triggers.';

-- Takes all rights on a relation from whoever is not its owner.
CREATE FUNCTION pgtrickle.without_grants(relation oid) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE grantee oid;
BEGIN
    FOR grantee IN SELECT DISTINCT a.grantee FROM (
        SELECT c.relowner, c.relacl FROM pg_class c WHERE c.oid = relation
        UNION ALL SELECT c.relowner, t.attacl FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid WHERE c.oid = relation
        ) o(owner, acl) CROSS JOIN LATERAL aclexplode(o.acl) a WHERE a.grantee <> o.owner
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', relation::regclass,
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.without_grants(oid) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.without_grants(oid) IS 'Takes all rights on a hidden relation from others than its owner.';

-- Whoever owns a stream table is let in, also who became its owner. What is in pgtrickle_changes the role can name, and do nothing with.
CREATE OR REPLACE FUNCTION pgtrickle.grant_to(role regrole) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle.require_keeper();
    EXECUTE format('GRANT USAGE ON SCHEMA pgtrickle, pgtrickle_changes TO %s', role);
    EXECUTE format('GRANT SELECT ON pgtrickle.pgt_catalog_version, pgtrickle.pgt_dependencies, pgtrickle.pgt_buffers,
        pgtrickle.pgt_refresh_history, pgtrickle.pgt_leases, pgtrickle.pgt_lease_terms, pgtrickle.pgt_errors TO %s', role);
    EXECUTE format('GRANT SELECT (%s) ON pgtrickle.pgt_stream_tables TO %s', (
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = 'pgtrickle.pgt_stream_tables'::regclass AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attname <> 'last_error_message'), role);
    -- A writer of a source leaves a mark as the owner of the stream table that is not kept.
    EXECUTE format('GRANT SELECT, INSERT ON pgtrickle.pgt_marks TO %s', role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgtrickle TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) TO %s', role);
END
$$;

CREATE OR REPLACE FUNCTION pgtrickle.revoke_from(role regrole) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle.require_keeper();
    -- Its triggers do nothing from now on.
    UPDATE pgtrickle.pgt_stream_tables s SET needs_reinit = true, reinit_reason = 'its owner was not let in', updated_at = now()
    FROM pg_class c WHERE c.oid = s.pgt_relid AND c.relowner = role AND s.refresh_mode = 'IMMEDIATE' AND NOT s.needs_reinit;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle, pgtrickle_changes FROM %s', role);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA pgtrickle FROM %s', role);
    EXECUTE format('REVOKE ALL ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) FROM %s', role);
    EXECUTE format('REVOKE ALL ON SCHEMA pgtrickle, pgtrickle_changes FROM %s', role);
    IF EXISTS (SELECT FROM pg_language WHERE lanname = 'pgtrickle_copy') THEN
        EXECUTE format('REVOKE ALL ON LANGUAGE pgtrickle_copy FROM %s', role);
    END IF;
END
$$;

-- A GRANT of who has nothing to give is a warning and no error, which nobody reads.
CREATE FUNCTION pgtrickle.require_keeper() RETURNS void LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE keeper oid;
BEGIN
    SELECT n.nspowner INTO keeper FROM pg_namespace n WHERE n.nspname = 'pgtrickle';
    IF NOT pg_has_role(keeper, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of the catalog of trickle'
            USING ERRCODE = 'insufficient_privilege',
                DETAIL = format('Schema pgtrickle belongs to %s, and nothing was granted or revoked.', keeper::regrole),
                HINT = format('Call it as %s, or as a superuser.', keeper::regrole);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.require_keeper() IS 'Fails unless the current role has the catalog.';

-- A role that was let in writes the catalog through the extension alone, whose own statements are lent the right: with the right itself it
-- could lock the tables against everybody, write what nobody can read, and take names that others want.

-- Errors show rows that the query read: to whoever may do what the owner may, and of a table that is gone to the catalog's owner. A
-- view reads the catalog as its owner, and asks for the right of whoever reads it.
CREATE VIEW pgtrickle.pgt_errors WITH (security_barrier = true) AS
    SELECT s.pgt_id, s.last_error_message FROM pgtrickle.pgt_stream_tables s
    WHERE pg_catalog.pg_has_role(coalesce((SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = s.pgt_relid),
        (SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'pgtrickle')), 'USAGE');
COMMENT ON VIEW pgtrickle.pgt_errors IS 'What went wrong with the stream tables whose owner the current role is, or may act as.';

-- Rows of a table that is gone are the catalog owner's.
DROP POLICY dropped ON pgtrickle.pgt_stream_tables;
CREATE POLICY dropped ON pgtrickle.pgt_stream_tables FOR DELETE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = pgt_relid));
DROP POLICY written ON pgtrickle.pgt_dependencies;
CREATE POLICY written ON pgtrickle.pgt_dependencies USING (EXISTS (
    SELECT FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE s.pgt_id = pgt_dependencies.pgt_id AND pg_has_role(c.relowner, 'USAGE')));
DROP POLICY written ON pgtrickle.pgt_refresh_history;
CREATE POLICY written ON pgtrickle.pgt_refresh_history USING (EXISTS (
    SELECT FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE s.pgt_id = pgt_refresh_history.pgt_id AND pg_has_role(c.relowner, 'USAGE')));
DROP POLICY dropped ON pgtrickle.pgt_buffers;
CREATE POLICY dropped ON pgtrickle.pgt_buffers FOR DELETE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = source_relid));
ALTER TABLE pgtrickle.pgt_marks ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON pgtrickle.pgt_marks FOR SELECT USING (true);
CREATE POLICY made ON pgtrickle.pgt_marks FOR INSERT WITH CHECK (EXISTS (
    SELECT FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
    JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = s.pgt_id AND d.source_relid = pgt_marks.source_relid
    WHERE s.pgt_id = pgt_marks.pgt_id AND pg_has_role(c.relowner, 'USAGE')));

-- Leases are taken, held and given up for a role, as the catalog's owner.
DROP FUNCTION pgtrickle.take_lease(text, bigint, interval), pgtrickle.give_lease(bigint);

-- Renews the lease of a role's stream tables where `who` holds it under the number `held`, or takes it where nobody does any more; who
-- holds it then is in pgt_leases. One that ends later than it lasts was given before the clock was set back. A renewal need not
-- outlive a crash, so it waits for no disk: what is committed under a lease writes it first.
CREATE FUNCTION pgtrickle.take_lease(whose oid, who text, held bigint, term interval) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE pgtrickle.pgt_lease_terms t SET expires_at = clock_timestamp() + term, lasts = term WHERE t.role = whose AND t.fence = held;
    IF FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM pgtrickle.pgt_leases l WHERE l.role = whose;
    IF NOT FOUND THEN
        INSERT INTO pgtrickle.pgt_leases (role, fence, holder) VALUES (whose, 0, '') ON CONFLICT DO NOTHING;
        INSERT INTO pgtrickle.pgt_lease_terms VALUES (whose, 0, '0', 'epoch') ON CONFLICT DO NOTHING;
    END IF;
    PERFORM FROM pgtrickle.pgt_lease_terms t WHERE t.role = whose
        AND (t.expires_at <= clock_timestamp() OR t.expires_at > clock_timestamp() + t.lasts) FOR UPDATE;
    IF FOUND THEN
        -- Waits for whoever commits under the lease just now.
        UPDATE pgtrickle.pgt_leases l SET fence = l.fence + 1, holder = who, taken_at = clock_timestamp() WHERE l.role = whose;
        UPDATE pgtrickle.pgt_lease_terms t SET fence = l.fence, expires_at = clock_timestamp() + term, lasts = term
            FROM pgtrickle.pgt_leases l WHERE l.role = t.role AND t.role = whose;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.take_lease(oid, text, bigint, interval) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.take_lease(oid, text, bigint, interval) IS 'Renews or takes the lease under which a role''s stream tables are refreshed on schedule.';

-- Lets others have the lease at once.
CREATE FUNCTION pgtrickle.give_lease(whose oid, held bigint) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgtrickle.pgt_lease_terms t SET expires_at = 'epoch' WHERE t.fence = held AND t.role = whose;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.give_lease(oid, bigint), pgtrickle.hold_lease(oid, bigint) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.give_lease(oid, bigint) IS 'Gives up a lease that was held under this number.';

-- Roles that were let in before have these rights now, and may not make anything in pgtrickle_changes any more.
DO $$
DECLARE role oid;
BEGIN
    FOR role IN SELECT a.grantee FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
        WHERE p.oid = 'pgtrickle.mark_readers(oid, bigint[], text)'::regprocedure AND a.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle FROM %s', role::regrole);
        EXECUTE format('REVOKE CREATE ON SCHEMA pgtrickle_changes FROM %s', role::regrole);
        PERFORM pgtrickle.grant_to(role::regrole);
        IF EXISTS (SELECT FROM pg_language WHERE lanname = 'pgtrickle_copy') THEN
            EXECUTE format('REVOKE ALL ON LANGUAGE pgtrickle_copy FROM %s', role::regrole);
        END IF;
    END LOOP;
    REVOKE ALL ON SCHEMA pgtrickle_changes FROM PUBLIC;
END
$$;

-- Those of these stream tables for which everything that their plans were made from, and what captures the changes that they read, is
-- as it was, and whose owners may still read these changes. What writers run to keep one is not to fail for want of a right: that is
-- looked at beforehand. Each relation is looked at once, however many read it.
CREATE OR REPLACE FUNCTION pgtrickle.unchanged(stream_tables bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        WITH read AS (
            SELECT d.* FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = ANY (stream_tables)
        ), sources AS MATERIALIZED (
            SELECT r.oid, n.nspname, c.relname, c.relowner, c.relnamespace, c.relrowsecurity, b.capture, pgtrickle.fingerprint(r.oid) AS fingerprint,
                b.capture = 'ON' AND (CASE WHEN b.capture = 'ON' THEN pgtrickle.triggers_fingerprint(r.oid) END
                        IS DISTINCT FROM b.triggers_fingerprint
                    OR to_regclass(format('pgtrickle_changes.changes_%s_%s', r.oid, b.segments->-1->>'number')) IS NULL
                    OR b.trigger_mode <> 'ROW'
                        AND CASE WHEN EXISTS (SELECT FROM pg_subscription_rel) THEN pgtrickle.is_subscribed(r.oid) END) AS cut
            FROM (SELECT DISTINCT source_relid FROM read) r(oid)
            LEFT JOIN pg_class c ON c.oid = r.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN pgtrickle.pgt_buffers b ON b.source_relid = r.oid
        )
        SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class o ON o.oid = s.pgt_relid
        WHERE s.pgt_id = ANY (stream_tables)
          AND NOT EXISTS (
            SELECT FROM read d JOIN sources r ON r.oid = d.source_relid
            WHERE d.pgt_id = s.pgt_id AND d.source_type IN ('TABLE', 'STREAM_TABLE')
              AND (s.refresh_mode = 'IMMEDIATE' OR d.columns_used <> '{}' OR s.refresh_mode = 'DIFFERENTIAL' AND r.capture = 'ON')
              AND NOT (pg_has_role(o.relowner, r.relowner, 'USAGE') AND (s.refresh_mode <> 'IMMEDIATE'
                OR has_schema_privilege(o.relowner, r.relnamespace, 'USAGE') AND has_table_privilege(o.relowner, r.oid, 'SELECT'))))
          AND NOT EXISTS (
            SELECT FROM read d JOIN sources r ON r.oid = d.source_relid
            WHERE d.pgt_id = s.pgt_id
              AND (r.fingerprint IS DISTINCT FROM d.schema_fingerprint
                OR r.nspname IS DISTINCT FROM d.source_schema OR r.relname IS DISTINCT FROM d.source_name
                OR CASE WHEN r.relrowsecurity THEN pgtrickle.row_security(d.source_relid, d.read_through, o.relowner) END
                    IS DISTINCT FROM d.row_security
                OR s.refresh_mode <> 'IMMEDIATE' AND (r.cut OR r.capture = 'OFF' AND d.columns_used <> '{}')))
          AND (s.refresh_mode = 'IMMEDIATE' AND s.needs_reinit OR NOT EXISTS (SELECT FROM pgtrickle.pgt_marks) OR NOT EXISTS (
            SELECT FROM read d JOIN pgtrickle.pgt_marks m ON m.source_relid = d.source_relid
            WHERE d.pgt_id = s.pgt_id AND CASE s.refresh_mode WHEN 'IMMEDIATE' THEN m.pgt_id = s.pgt_id ELSE m.pgt_id IS NULL END))
          AND (s.refresh_mode <> 'IMMEDIATE' OR s.needs_reinit OR NOT s.is_populated
            OR EXISTS (SELECT FROM read d JOIN sources r ON r.oid = d.source_relid WHERE d.pgt_id = s.pgt_id AND r.capture = 'HELD')
            OR pgtrickle.immediate_fingerprint(s.pgt_id) IS NOT DISTINCT FROM s.triggers_fingerprint)
          AND (s.types = '{}' OR pgtrickle.types_fingerprint(s.types) IS NOT DISTINCT FROM s.types_fingerprint)
          AND (s.agreed IS NULL OR s.functions = '{}' AND s.types = '{}' AND s.agreed_tables = '{}' OR (s.agreed_by = o.relowner) IS NOT FALSE)
          AND (s.functions = '{}'
            OR pgtrickle.functions_fingerprint(s.functions) IS NOT DISTINCT FROM s.functions_fingerprint)
          AND (s.objects = '{}' OR pgtrickle.objects_fingerprint(s.objects) IS NOT DISTINCT FROM s.objects_fingerprint);
END
$$;

-- The triggers that keep a stream table within the statements that write its sources, as those of a buffer, what they know of it, and
-- whose they are: they have the rights of its owner.
CREATE OR REPLACE FUNCTION pgtrickle.immediate_fingerprint(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        WITH RECURSIVE tree(oid) AS (
            SELECT d.source_relid FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = stream_table
            UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid)
        SELECT md5(concat_ws(E'\n', (SELECT concat_ws(' ', s.pgt_relid::regclass, pgtrickle.fingerprint(s.pgt_relid),
                c.relowner, pgtrickle.safe_path(s.settings, c.relowner), pgtrickle.rights_of(s.pgt_id))
            FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class c ON c.oid = s.pgt_relid WHERE s.pgt_id = stream_table),
            string_agg(concat_ws(' ', g.tgrelid, g.tgname, g.tgenabled, g.xmin, p.proowner), ',' ORDER BY g.oid)))
        FROM tree JOIN pg_trigger g ON g.tgrelid = tree.oid JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, format('immediate_%s_', stream_table))
    );
END
$$;

-- Lets the owners of stream tables in that are not, of all or of these tables: ALTER TABLE and REASSIGN OWNED give them to whom they
-- like. Called as the catalog's owner.
CREATE FUNCTION pgtrickle.let_in_owners(tables oid[]) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE owner oid;
BEGIN
    FOR owner IN SELECT DISTINCT c.relowner FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
        WHERE (tables IS NULL OR c.oid = ANY (tables))
        AND c.relowner NOT IN (SELECT r.oid FROM pg_roles r WHERE r.rolsuper)
        -- By name: a right that it has as a member of another role goes with that.
        AND NOT EXISTS (SELECT FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
            WHERE p.oid = 'pgtrickle.mark_readers(oid, bigint[], text)'::regprocedure AND a.grantee = c.relowner)
    LOOP
        PERFORM pgtrickle.grant_to(owner::regrole);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.let_in_owners(oid[]) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.let_in_owners(oid[]) IS 'Lets the owners of stream tables use the catalog; called by trickle where one has another owner.';

-- A stream table is written by its refreshes alone, which run as its owner. The setting is anybody's, so it gives nobody a right: who
-- may do what the owner may can take the trigger away as well.
CREATE OR REPLACE FUNCTION pgtrickle.refuse_writes() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('pgtrickle.refreshing', true) = 'on'
        AND pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'USAGE')
    THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'cannot change stream table %.% directly', quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME)
        USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'Its contents are the result of its query.',
            HINT = 'Change the tables that it reads, or its query with trickle alter.';
END
$$;
-- == End of that ======================================================================================================

-- Stored tables without a primary key have all columns as their replica identity, so that a publication of all tables refuses no
-- refresh. A table that another role has, or that somebody has locked, is left as it is, and doctor names it.
DO $$
DECLARE
    stored regclass;
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    FOR stored IN SELECT c.oid FROM pg_class c
        WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.relreplident = 'd' AND pg_has_role(c.relowner, 'USAGE')
        AND (c.relnamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace)
            -- Row security lets a role list only tables of its own; the guard shows that the table is still a stream table.
            OR c.oid IN (SELECT s.pgt_relid FROM pgtrickle.pgt_stream_tables s JOIN pg_trigger g ON g.tgrelid = s.pgt_relid
                JOIN pg_proc p ON p.oid = g.tgfoid WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.proname = 'refuse_writes'))
        AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate)
    LOOP
        BEGIN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', stored);
        EXCEPTION WHEN lock_not_available OR undefined_table THEN
            NULL;
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', before, true);
END
$$;

-- Each refresh asks these functions about the server's catalogs. They go by index where there is one, by one plan for all
-- arguments, and are not compiled: so they cost the same in a large database, in the first calls of a session and with old
-- statistics. The price of a forbidden scan alone would have them compiled. No parallel worker takes part, since the text of a
-- view is asked for in a subtransaction.
DO $$
DECLARE
    look regprocedure;
BEGIN
    FOR look IN SELECT p.oid FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.provolatile = 's' AND l.lanname = 'plpgsql'
        AND pg_has_role(p.proowner, 'USAGE')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', look);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', look);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', look);
        EXECUTE format('ALTER FUNCTION %s PARALLEL UNSAFE', look);
    END LOOP;
END
$$;

UPDATE pgtrickle.pgt_catalog_version SET version = 3;
