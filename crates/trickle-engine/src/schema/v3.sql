-- Catalog, version 3: no role gains rights through a stream table, and no writer fails because of a stream table.

-- Readers of the catalog begin with this table. A change of the catalog begins with it too, so that readers and changes never wait for each
-- other in a circle.
LOCK TABLE pgtrickle.pgt_stream_tables IN ACCESS EXCLUSIVE MODE;

-- A trigger deletes the rows that belong to a stream table when the row of the stream table is deleted. Foreign keys could make the restore
-- of a dump fail. In an extension they exist before the rows of the dump are restored, and pg_restore -j restores rows in any order. A
-- lease is never deleted, so its term needs no trigger.
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
COMMENT ON FUNCTION pgtrickle.forget() IS 'Deletes the catalog rows that belong to a stream table whose own row was deleted.';
CREATE TRIGGER forget AFTER DELETE ON pgtrickle.pgt_stream_tables FOR EACH ROW EXECUTE FUNCTION pgtrickle.forget();

-- Capture.
--
-- A trigger function runs with the rights of its owner, over tables that others may alter. So it touches a value of a table only while the
-- table is the one that the function was made for. Otherwise a cast, an operator or a check that somebody has made since could run with
-- those rights. pgtrickle.misfit makes this check. It is declared IMMUTABLE and called with constants. So the server calls it while
-- planning the condition that guards the trigger function, and again after each alteration of the table. A call costs a statement nothing.
-- The condition names the table by a constant of type regclass. From this constant the server knows that the condition depends on the
-- table. The function reads the server's caches as they are now, and not the snapshot of the transaction. It runs no code of other roles,
-- since it asks for the types of NULL constants only. It fails for no state of the table.

-- The reason why a table is no longer as a trigger was made for; NULL where it is. The columns with these numbers must have these names and
-- types. The table must have the schema and the name in `place`, where these are given, and the current role must have USAGE on its schema.
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
        -- A dropped column still has a name, but nobody has rights on it.
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
COMMENT ON FUNCTION pgtrickle.misfit(oid, int2[], text[], oid[], text[]) IS 'The reason why a table is no longer the one that a trigger was made for; NULL where it still is.';

-- The same for a table that was a child of the table with these columns. The columns of a child have the same names, but may have other
-- numbers.
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
COMMENT ON FUNCTION pgtrickle.child_misfit(oid, text[], oid[]) IS 'The reason why a child, or former child, does not have the columns that its parent had; NULL where it has them.';

-- The reason why a table has lost one of these keys; NULL where it has all of them. Each key is given by its index and its columns. This
-- function is called in the same way as misfit. Where an index no longer exists, the function looks in the transaction's snapshot for
-- another key that has only columns of that index. Where the snapshot is older than this other key, the key counts as lost.
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
COMMENT ON FUNCTION pgtrickle.lost_key(oid, oid[], text[]) IS 'The reason why a table has lost a key that a trigger relies on; NULL where it has all of them.';

-- A select list of these columns of a table that has the alias r. NULL where a column was dropped or has another type.
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

-- The partitions and children of a table, on every level. A partition that is being detached (DETACH … CONCURRENTLY) is left out.
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

-- Whether this session has a temporary child of a table. A permanent table has no temporary partitions. The rows of a temporary child are
-- in no stream table, since other sessions do not see these rows. But statements of this session on the table read and write them.
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

-- Fails where these tables have got or lost partitions since the snapshot of the transaction, were emptied or rewritten since then, or have
-- a temporary child in this session. A statement reads the rows of a partition from the snapshot. The list of partitions is the one at the
-- moment in which the statement begins, as pg_partition_tree returns it.
CREATE FUNCTION pgtrickle.require_sources(tables oid[]) RETURNS void LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source oid;
    below oid[];
    other regclass;
BEGIN
    FOREACH source IN ARRAY tables LOOP
        below := pgtrickle.children(source);
        IF EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = source)
            AND below <> ARRAY(SELECT p.relid::oid FROM pg_partition_tree(source) p WHERE p.relid <> source ORDER BY 1)
        THEN
            RAISE EXCEPTION 'could not serialize access: % got or lost a partition while it was read', source::regclass
                USING ERRCODE = '40001', HINT = 'Nothing was changed; try again.';
        END IF;
        -- A statement with a snapshot from before a TRUNCATE reads the emptied file. pg_class shows the file of the snapshot, and
        -- pg_relation_filenode returns the present file.
        SELECT c.oid INTO other FROM pg_class c WHERE c.oid = ANY (source || below)
            AND c.relkind = 'r' AND c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid) LIMIT 1;
        IF other IS NOT NULL THEN
            RAISE EXCEPTION 'could not serialize access: % was emptied or rewritten while it was read', other
                USING ERRCODE = '40001', HINT = 'Nothing was changed; try again.';
        END IF;
    END LOOP;
    SELECT t.oid INTO other FROM unnest(tables) t(oid) WHERE pgtrickle.has_temporary_child(t.oid) LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION '% has a temporary child in this session', other
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Other sessions do not see the rows of that child, so no stream table may have them.',
                HINT = 'Drop the temporary table, or refresh in another session.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.require_sources(oid[]) IS 'Fails where these tables have got or lost partitions or were emptied since the snapshot of the transaction, or have a temporary child in this session.';

-- Whether a table has other partitions than these, which its triggers were made for. Rows that are written through the table to another
-- partition are captured, but no trigger fires when that partition is dropped or detached. So the triggers note that there was another
-- partition. This function is called in the same way as misfit.
CREATE FUNCTION pgtrickle.has_other_partitions(relation oid, known oid[]) RETURNS bool LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_partition_tree(relation) p WHERE p.relid <> relation AND p.relid <> ALL (known));
END
$$;
COMMENT ON FUNCTION pgtrickle.has_other_partitions(oid, oid[]) IS 'Whether a table has other partitions than these.';

-- Whether a partition of a table, at any level, has its columns at other places than the table. The server then passes an inserted row to
-- the triggers for statements of the table as it was before the partition computed its generated columns. This function is called in the
-- same way as misfit.
CREATE FUNCTION pgtrickle.has_other_layout(relation oid) RETURNS bool LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM unnest(pgtrickle.children(relation)) c(oid), LATERAL (
        SELECT FROM (SELECT * FROM pg_attribute WHERE attrelid = relation AND attnum > 0) a
            FULL JOIN (SELECT * FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0) b USING (attnum)
        WHERE (a.attname, a.attlen, a.attalign) IS DISTINCT FROM (b.attname, b.attlen, b.attalign)) different);
END
$$;
COMMENT ON FUNCTION pgtrickle.has_other_layout(oid) IS 'Whether a partition of a table has its columns at other places than the table.';

-- Whether the calling trigger for UPDATE was fired by a MERGE that may have moved rows of a table from one partition to another. To
-- triggers, the server shows a moved row as a deleted and an inserted row. But a MERGE that only updates fires no triggers for DELETE and
-- INSERT. The answer is yes where two conditions hold. First, the word MERGE stands in the client's text or in a statement on the stack. It
-- may also stand in a prepared statement or in a function in SQL, whose texts the stack does not show. Second, the transaction has deleted
-- rows of partitions, by the server's counts, which may still include earlier transactions of the session. A wrong answer yes only costs a
-- recompute of the readers. The first two entries of the stack are this function and the trigger function.
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

-- A new table changes the value of pgtrickle.home(), so the stored value is updated. It is not updated in a catalog that came with a dump,
-- since that catalog must still be recognized as one.
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
-- The table has no key, so that writers never wait for each other. Logical replication identifies a deleted row by all its columns.
CREATE INDEX ON pgtrickle.pgt_marks (source_relid);
ALTER TABLE pgtrickle.pgt_marks REPLICA IDENTITY FULL;
COMMENT ON TABLE pgtrickle.pgt_marks IS 'Changes of a table that could not be captured: its readers are recomputed, for this reason.';
COMMENT ON COLUMN pgtrickle.pgt_marks.pgt_id IS 'The IMMEDIATE stream table that the mark concerns; NULL: all stream tables that read the change buffer.';

-- Row security: a stream table holds what its owner may see.

ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN read_through oid[] NOT NULL DEFAULT '{0}', ADD COLUMN row_security text;
COMMENT ON COLUMN pgtrickle.pgt_dependencies.read_through IS 'The views through which the query reads this relation; 0: the query itself reads it.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.row_security IS 'Which rows could be read there when the stream table was planned (pgtrickle.row_security); NULL: all.';
UPDATE pgtrickle.pgt_dependencies d SET read_through = '{0}' || ARRAY(
    SELECT v.source_relid FROM pgtrickle.pgt_dependencies v JOIN pg_catalog.pg_rewrite r ON r.ev_class = v.source_relid
    WHERE v.pgt_id = d.pgt_id AND v.source_type = 'VIEW' AND EXISTS (SELECT FROM pg_catalog.pg_depend p
        WHERE p.classid = 'pg_catalog.pg_rewrite'::regclass AND p.objid = r.oid
          AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = d.source_relid)
    ORDER BY 1);

-- A fingerprint of the rows of a relation that row security lets a role read: where the value differs, the rows may differ. The value is
-- NULL where row security is not active for that role. The rule is the server's own rule of row_security_active, which answers for the
-- current role alone. The fingerprint has the stored form of each condition, and a fingerprint of the functions that the conditions call.
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
COMMENT ON FUNCTION pgtrickle.row_security(oid, oid) IS 'A fingerprint of the rows of a relation that row security lets a role read; NULL: all rows.';

-- The same for each role as which a query of this owner reads the relation. That role is the owner of the view that reads the relation.
-- Where the query itself, or a view with security_invoker, reads the relation, that role is the owner of the query.
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
COMMENT ON FUNCTION pgtrickle.row_security(oid, oid[], oid) IS 'A fingerprint of the rows of a relation that a query of a role may read through these views; NULL: all rows.';


-- Guarantees of the server that hold for every row of a relation.

-- The columns that hold no NULL. pg_attribute.attnotnull guarantees less. Since PostgreSQL 18 a constraint that is NOT VALID sets it, while
-- older rows may have NULLs. A child may have dropped its NOT NULL (before 18), or never got it (NO INHERIT). Nobody checks the constraints
-- of a foreign table.
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
COMMENT ON FUNCTION pgtrickle.never_null(oid) IS 'The columns of a relation that can hold no NULL.';

-- Whether a unique index is a key: no two rows of its table are ever equal in its columns by the = of queries. The index must hold all rows
-- and be checked at once (not DEFERRABLE). It must compare the columns themselves, under the columns' own collations and by the default
-- operators of their types. For example, text_ops over citext distinguishes values that are equal under the = of citext. An index WITHOUT
-- OVERLAPS is not a key, since it compares by another operator than =. This function does not say whether the columns of the key may be
-- NULL.
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
COMMENT ON FUNCTION pgtrickle.is_key(oid) IS 'Whether a unique index guarantees that no two rows of its table are equal in its columns by the = of queries.';

-- Where a column or a relation of a query was renamed, the query is rewritten with the present names. A relation whose fingerprint is the
-- one from planning still has the names that the query uses.
CREATE FUNCTION pgtrickle.column_names(relation oid) RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(SELECT CASE WHEN NOT a.attisdropped THEN a.attname::text END FROM pg_attribute a
        WHERE a.attrelid = relation AND a.attnum > 0 ORDER BY a.attnum);
END
$$;
COMMENT ON FUNCTION pgtrickle.column_names(oid) IS 'The names of the columns of a relation, each at its number; NULL for a dropped column.';
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN column_names text[], ADD COLUMN named_columns int2[];
COMMENT ON COLUMN pgtrickle.pgt_dependencies.column_names IS 'The names of the columns of the source as the query uses them, each at its number; NULL where they were not noted.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.named_columns IS 'The numbers of the columns that the query, or a view that it reads, names; NULL where they were not noted.';
UPDATE pgtrickle.pgt_dependencies SET column_names = pgtrickle.column_names(source_relid)
    WHERE schema_fingerprint = pgtrickle.fingerprint(source_relid);

-- The text of a view. For this text the server waits while a transaction alters a relation that the view reads. After 10 ms this function
-- returns a random text instead, so that the view counts as changed. So nobody who looks at stream tables waits for a migration.
CREATE FUNCTION pgtrickle.view_text(view oid) RETURNS text LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET lock_timeout = '10ms' AS $$
BEGIN
    RETURN pg_get_viewdef(view);
EXCEPTION WHEN lock_not_available THEN
    RETURN gen_random_uuid();
END
$$;
COMMENT ON FUNCTION pgtrickle.view_text(oid) IS 'The text of a view; a random text while a transaction alters a relation that the view reads.';

-- The fingerprint of the properties of a relation from which plans are made, as if the tables in `without` were not its partitions or
-- children.
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
            -- A child that is detached and attached again counts as another child, since its rows may differ.
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
COMMENT ON FUNCTION pgtrickle.fingerprint(oid, int2, oid[]) IS 'A fingerprint of the properties of a relation from which plans are made, as if some of its partitions or children were not there.';
CREATE OR REPLACE FUNCTION pgtrickle.fingerprint(relation oid, last int2 DEFAULT 32767) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle.fingerprint(relation, last, '{}');
END
$$;

-- The fingerprint of the triggers of a change buffer, like pgtrickle.triggers_fingerprint(source), as if the tables in `without` were not
-- partitions or children.
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
COMMENT ON FUNCTION pgtrickle.triggers_fingerprint(oid, oid[]) IS 'A fingerprint of the triggers of a change buffer, as if some partitions or children of its table were not there.';

-- Whether the rows of these tables may be listed as changes of a partitioned table. The list is exact while the tables are locked, in a
-- transaction that sees everything that others have committed. The list must fit into the change buffer, and the tables may have `most`
-- bytes at most.
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

-- The partitions that one command has added to a table in this transaction. They must belong to the owner of the table, and without them
-- everything must be as its triggers were made for. The result is NULL where anything else of the table changed. An attached table is
-- locked until the end of the transaction, and nobody else sees a table that was made in the transaction. The caller lists the rows of
-- these partitions as changes; partitions without a page have no rows. A statement that wrote the table before trickle handled the command
-- has left a mark. The function locks the change buffer, unless another transaction has locked it.
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
COMMENT ON FUNCTION pgtrickle.new_partitions(oid, bigint) IS 'The partitions that one command has added to a table in this transaction. NULL where anything else of the table changed, or the partitions have too many rows.';

-- The given partitions that belong to a table, with all partitions below them. NULL where their rows may not be listed as changes. The rows
-- may be listed only if all changes of these partitions were captured. The caller has locked the partitions. The function locks the change
-- buffer, unless another transaction has locked it.
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
COMMENT ON FUNCTION pgtrickle.leaving_partitions(oid, oid[], bigint) IS 'The given partitions that belong to a table, with all partitions below them; NULL where their rows may not be listed as its changes.';

-- An ALTER TABLE concerns only those readers that rely on a property that it changes.

-- The properties of these columns of a relation that their reader relies on:
-- 1. the columns' names and types, the expressions of generated columns, and the tables that hold the rows, with the versions of their
--    pg_inherits rows;
-- 2. the versions of the columns' definitions in all these tables, and 3. the files that hold the rows. Only ALTER TABLE changes a stored
--    value without firing a trigger, and it makes both a new version of the definition and a new file. VACUUM FULL, CLUSTER and TRUNCATE
--    make a new file only; SET STATISTICS, SET DEFAULT and SET NOT NULL make a new version only;
-- 4. the keys of these columns, each with whether its columns are never NULL, and 5. the columns that are never NULL. All properties are
--    computed as if the tables in `without` were not partitions of the relation.
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

-- Whether a relation still has these properties, as far as a reader relies on them. TRIGGERS were made once, and rely on the keys that
-- there were then. A PLAN is made again from the present properties, so no key and no NOT NULL may have been added. Changes that were
-- captured before need not satisfy an added constraint. A FORMER PLAN is made from the noted properties alone, so the relation must still
-- have all of them. But such a plan does not rely on a key with a column that may be NULL, so such a key may be missing. The answer is no
-- where some column has the type of the relation's rows. A value in such a column shows other columns after an ALTER TABLE.
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
COMMENT ON FUNCTION pgtrickle.still_serves(oid, int2[], text[], text) IS 'Whether a relation still has the properties that a plan, or triggers, reading these columns rely on.';

-- The properties that a reader of these columns relies on from now on. Where properties were noted `before`, the plan relies only on the
-- keys and the columns without NULL that were noted then. The tables in `without` do not count as partitions of the relation from now on.
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
COMMENT ON COLUMN pgtrickle.pgt_dependencies.keeps_plan IS 'Whether the plan relies only on the keys and the columns without NULL that are in relied. The stored rows from which the plan goes on need not satisfy constraints that were added since.';

-- The partitions of a table that hold rows, as one text for each. The text begins with the oid, and changes if the partition is detached and
-- attached again, or if its generated columns change; with `triggers`, also if a trigger of the change buffer changes on it or above it. The
-- first element of the result stands for everything else that plans, or triggers, rely on in the table. The tables in `without` do not count
-- as partitions. The text of a default partition ends with "others": its bounds change with those of all other partitions. The result is NULL
-- for a table that is not partitioned, or has many partitions or a foreign one.
CREATE FUNCTION pgtrickle.parts(source oid, triggers bool, without oid[] DEFAULT '{}') RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    leaves text[];
    unfit bool;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = source) THEN
        RETURN NULL;
    END IF;
    WITH RECURSIVE own(table_oid, made) AS MATERIALIZED (
        SELECT g.tgrelid, string_agg(concat_ws(' ', g.tgname, g.tgenabled, g.xmin), ',' ORDER BY g.tgname)
        FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE triggers AND p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, format('capture_%s_', source))
        GROUP BY g.tgrelid
    ), tree(child, has_others, made) AS (
        SELECT source, false, NULL::text
        UNION ALL SELECT h.inhrelid, tree.has_others OR p.partdefid = h.inhrelid, concat_ws(E'\n', tree.made, h.inhrelid, h.xmin, (SELECT string_agg(d.adbin::text, ',' ORDER BY d.adnum)
                FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
                WHERE d.adrelid = h.inhrelid AND a.attgenerated <> ''), (SELECT own.made FROM own WHERE own.table_oid = h.inhrelid)) COLLATE "default"
            FROM tree JOIN pg_inherits h ON h.inhparent = tree.child JOIN pg_partitioned_table p ON p.partrelid = tree.child
            WHERE h.inhrelid <> ALL (without) AND NOT h.inhdetachpending
    )
    SELECT array_agg(CASE WHEN c.oid = source
            THEN md5(concat_ws(E'\n', pgtrickle.fingerprint(source, 32767::int2, pgtrickle.children(source)), (SELECT own.made FROM own WHERE own.table_oid = source)))
            ELSE format('%s %s', c.oid, CASE WHEN tree.has_others THEN 'others' ELSE md5(tree.made) END) END ORDER BY c.oid <> source, c.oid) FILTER (WHERE c.oid = source OR c.relkind = 'r'),
        bool_or(c.relkind NOT IN ('r', 'p')) OR count(*) > 512
        INTO leaves, unfit
    FROM tree JOIN pg_class c ON c.oid = tree.child;
    RETURN CASE WHEN NOT unfit THEN leaves END;
END
$$;
COMMENT ON FUNCTION pgtrickle.parts(oid, bool, oid[]) IS 'The partitions of a table that hold rows, each as a text that changes with the partition; first a text for the table itself.';

-- The partitions of a table as pgtrickle.parts returns them, each with the condition that all of its rows fulfil and no other row of the
-- table. The condition is written in the same way under all settings of the session. To read the condition of a partition, the server locks
-- it and then the tables above it. A command that takes a partition locks these first, so the function locks them first too. It reads no row for that, since
-- LOCK TABLE would need a right on the whole table where a reader may have rights on some columns alone.
CREATE FUNCTION pgtrickle.part_conditions(source oid) RETURNS TABLE (part text, condition text) LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET extra_float_digits = 3 SET TimeZone = 'UTC'
SET bytea_output = hex SET standard_conforming_strings = on SET quote_all_identifiers = off AS $$
BEGIN
    EXECUTE format('SELECT FROM %s LIMIT 0', source::regclass);
    RETURN QUERY SELECT u.part, pg_get_partition_constraintdef(split_part(u.part, ' ', 1)::oid)
        FROM unnest((pgtrickle.parts(source, false))[2:]) u(part);
END
$$;
COMMENT ON FUNCTION pgtrickle.part_conditions(oid) IS 'The partitions of a table as pgtrickle.parts returns them, each with the condition of its rows.';

-- The partitions of a table all of whose changes are in its change buffer: those for which the triggers were made, and which have stayed
-- since. NULL where the triggers may have missed other changes; marks for the reason `others` tell of rows of other partitions alone. The
-- caller has locked the table and its partitions against writers.
CREATE FUNCTION pgtrickle.captured_parts(source oid, others text) RETURNS oid[] LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now text[] := pgtrickle.parts(source, true);
    b pgtrickle.pgt_buffers;
BEGIN
    SELECT * INTO b FROM pgtrickle.pgt_buffers WHERE source_relid = source AND capture = 'ON';
    IF b.parts[1] = now[1]
        AND to_regclass(format('pgtrickle_changes.changes_%s_%s', source, b.segments->-1->>'number')) IS NOT NULL
        AND NOT (b.trigger_mode <> 'ROW' AND pgtrickle.is_subscribed(source))
        AND NOT EXISTS (SELECT FROM pgtrickle.pgt_marks m WHERE m.source_relid = source AND m.pgt_id IS NULL
            AND m.reason <> others)
    THEN
        RETURN ARRAY(SELECT split_part(u.part, ' ', 1)::oid FROM unnest(b.parts[2:]) u(part) WHERE u.part = ANY (now) ORDER BY 1);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle.captured_parts(oid, text) IS 'The partitions of a table all of whose changes are in its change buffer; NULL where other changes may be missing.';

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
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.kept_hash IS 'Identifies the triggers that were made last to keep the stream table within the statements of writers; NULL where that was not noted.';
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN relied text[];
COMMENT ON COLUMN pgtrickle.pgt_dependencies.relied IS 'The properties of the source that the stream table relies on (pgtrickle.relied); NULL where they were not noted.';
ALTER TABLE pgtrickle.pgt_buffers ADD COLUMN relied text[], ADD COLUMN paired int2[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN pgtrickle.pgt_buffers.paired IS 'The key, as attribute numbers, by which the triggers of the change buffer pair old and new rows.';
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN parts text[], ADD COLUMN stayed text[];
COMMENT ON COLUMN pgtrickle.pgt_dependencies.parts IS 'The partitions of the source for which the stream table was planned (pgtrickle.parts); NULL where they were not noted.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.stayed IS 'The partitions of the source of which all changes since the last refresh were captured, where some changes of others were not; NULL: all changes were captured.';
ALTER TABLE pgtrickle.pgt_buffers ADD COLUMN parts text[];
COMMENT ON COLUMN pgtrickle.pgt_buffers.parts IS 'The partitions for which the triggers of the change buffer were made (pgtrickle.parts); NULL where they were not noted.';
ALTER TABLE pgtrickle.pgt_buffers ADD COLUMN children oid[];
COMMENT ON COLUMN pgtrickle.pgt_buffers.children IS 'The partitions and children, on every level, that the triggers of the change buffer were made for; NULL where they were not noted.';
UPDATE pgtrickle.pgt_buffers SET children = pgtrickle.children(source_relid);
COMMENT ON COLUMN pgtrickle.pgt_buffers.relied IS 'The properties of the source that the triggers of the change buffer rely on (pgtrickle.relied); NULL where they were not noted.';
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN stored_hash text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.stored_hash IS 'Hash of the plans whose results are stored; NULL where that was not noted.';

-- Names in generated SQL never stand for an object that a stranger made.

-- The search path under which stream tables of a role are computed. It has pg_catalog first, and then those of the given schemas in which
-- only that role and superusers may create objects. In any other schema somebody could make an operator or a function that fits better than
-- the server's. That function would then run with the role's rights. A schema is also left out where CREATE was granted to a role that has
-- the owner as a member. That role may have other members.
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
COMMENT ON FUNCTION pgtrickle.safe_path(text[], oid) IS 'Those schemas of a search path in which only a role and superusers can create objects.';

-- Whether pgtrickle.safe_path keeps the whole of this path for the current role.
CREATE FUNCTION pgtrickle.is_safe_path(path text[]) RETURNS bool LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle.safe_path(path, quote_ident(current_user)::regrole) = path;
END
$$;
COMMENT ON FUNCTION pgtrickle.is_safe_path(text[]) IS 'Whether still only the current role and superusers can create objects in the schemas of a search path.';

-- The safe search path of settings in the form in which they are stored.
CREATE FUNCTION pgtrickle.safe_path(settings jsonb, owner oid) RETURNS text[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pgtrickle.safe_path(ARRAY(SELECT jsonb_array_elements_text(s->'values') FROM jsonb_array_elements(settings) s
        WHERE s->>'name' = 'search_path'), owner);
END
$$;
COMMENT ON FUNCTION pgtrickle.safe_path(jsonb, oid) IS 'Those schemas of the search path among stored settings in which only a role and superusers can create objects.';

-- The index of the key by which refreshes write a stream table, where its query gives it no key. With a key, a changed row is updated.
-- Without a key, it is deleted and inserted, and foreign keys treat the deletion as the loss of a referenced row. A key that foreign keys
-- refer to comes first; with `referenced`, only such a key is returned. Where the table has another unique or exclusion index, only a key
-- that foreign keys refer to is returned. Otherwise an UPDATE of several rows could fail on that index, by a value that one of the rows is
-- about to give up. The server keeps triggers of foreign keys on the referenced table.
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
COMMENT ON FUNCTION pgtrickle.pairing_key(oid, bool) IS 'The unique index of a stream table by which refreshes tell a changed row from a deleted and an inserted row.';

-- A hash of the plan of a stream table, of the triggers that keep it, and of the rights that they need. Where somebody else has planned the
-- stream table meanwhile, its definition differs.
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
            (SELECT jsonb_agg(jsonb_build_array(d.source_relid, d.columns_used, d.schema_fingerprint, b.capture, b.unlogged, d.stayed)
                ORDER BY d.source_relid)
             FROM pgtrickle.pgt_dependencies d LEFT JOIN pgtrickle.pgt_buffers b USING (source_relid)
             WHERE d.pgt_id = s.pgt_id))::text)
        FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class o ON o.oid = s.pgt_relid WHERE s.pgt_id = stream_table
    );
END
$$;

-- A fingerprint of the functions and aggregates that a query calls: their definitions, and the names by which the query finds them. A
-- stored fingerprint that matches the functions before this migration also matches them after it.
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

-- A new plan runs code of strangers only where the owner of the stream table has agreed to it.

ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN agreed oid[], ADD COLUMN agreed_by oid,
    ADD COLUMN agreed_tables oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN types oid[] NOT NULL DEFAULT '{}', ADD COLUMN types_fingerprint text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed IS 'Functions of other roles than its owner and superusers that the stream table may run. NULL: it was declared before this was noted, or restored from a dump.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed_by IS 'The role that owned the stream table when it was planned.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.agreed_tables IS 'Relations that views of other roles may read with the rights of the owner of the stream table (security_invoker).';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.types IS 'Types that the query of the stream table can reach, without the server''s own types; {0}: it was planned before this was noted.';

-- One text for each fact about these types. A text has the name of a type; or one value of an enum; or all attributes of a composite type,
-- with their types. Queries can use all these names. All attributes of a type stand in one text, since a whole value also shows an
-- attribute that was added. A further text for each type has its default operator classes, and all operators and functions in their
-- families. These decide which values are equal, and how values are ordered.
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

-- A fingerprint of the code that runs where values of these types are written, compared or converted, and of the types' names. The code is
-- in casts, in constraints of domains, and in operator classes. The owner of a type can change this code.
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
COMMENT ON FUNCTION pgtrickle.types_fingerprint(oid[]) IS 'A fingerprint of the code that the owners of types can have run where values of these types are used.';

-- Objects that values depend on, beside types and the functions that a query calls. They are operators, casts, collations, text search
-- objects, and objects that these objects or the bodies of functions use. Their meaning does not depend on who owns them. The oid 0 stands
-- for all text search configurations, or all dictionaries, except the server's own. It is used where a value in a row may name any of them.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN objects text[] NOT NULL DEFAULT '{}', ADD COLUMN objects_fingerprint text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.objects IS 'Operators, casts, collations, text search objects and functions that values of the stream table depend on, each by its catalog and oid. Functions that its query calls, and the server''s own objects, are left out.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.objects_fingerprint IS 'pgtrickle.objects_fingerprint of these objects when the stream table was planned.';
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
COMMENT ON FUNCTION pgtrickle.objects_fingerprint(text[]) IS 'A fingerprint of the definitions of operators, casts, collations, text search objects and functions.';

-- The rights that the triggers of a stream table need, as far as its owner has them. These are EXECUTE on the functions that the triggers
-- call, and USAGE on the schemas whose objects they name.
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
COMMENT ON FUNCTION pgtrickle.rights_of(bigint) IS 'Functions and schemas that the triggers of an IMMEDIATE stream table need, as far as its owner may call or use them.';

-- The owner of an existing stream table counts as having agreed to the functions that its query calls by name. A stream table that reads a
-- column of somebody else's type is planned again, so that its types become known.
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
-- Everything in pgtrickle_changes belongs to the owner of schema pgtrickle, except tables that are themselves stream tables. Other roles
-- make and replace nothing there. For a stream table, trickle works there only on behalf of its owner, or of members of that role.

-- Fails unless the current role has the rights of the owners of these tables, and of their partitions and children. Changes of a table are
-- captured only for roles that may act as its owner.
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

-- Gives the owner of an IMMEDIATE stream table the functions that keep it, and the rights on hidden tables that these functions need.
-- Writers run these functions with the rights of that owner. Called as the catalog's owner.
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
COMMENT ON FUNCTION pgtrickle.hand_to_owner(bigint) IS 'Gives the owner of an IMMEDIATE stream table the functions that keep it, and rights on hidden tables; called by its refreshes.';

-- Makes the catalog's owner the owner of hidden tables that belong to other roles, where these tables are bare. A bare table has plain
-- columns, and no object that would run code when the table is read or written. Returns the tables that are not bare, which must be made
-- again: their kind, and the number in their name. Fails for a table whose name has a form that trickle uses, while the catalog has no
-- change buffer or stream table for that name.
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
COMMENT ON FUNCTION pgtrickle.hand_over() IS 'Makes the catalog''s owner the owner of hidden tables that belong to other roles; called when the catalog is brought to this version, or adopted.';

-- Turns off statistics for hidden columns of range types whose subtype_diff function is not the server's own. Autovacuum runs ANALYZE with
-- the rights of the owner of a table, and ANALYZE calls these functions, which anybody may define. Called as the catalog's owner.
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
COMMENT ON FUNCTION pgtrickle.without_statistics() IS 'Keeps the server from running functions of other roles when it analyzes hidden tables; called when hidden tables are made.';

-- Notes that a stream table was not kept. Writers run the triggers that keep it with the rights of its owner. Where a needed right is
-- missing, the triggers call this function and do nothing else, so that no statement of a writer fails. Where the plan and the triggers
-- still fit, a call changes nothing.
CREATE FUNCTION pgtrickle.stop_keeping(stream_table bigint) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table AND s.refresh_mode = 'IMMEDIATE' AND NOT s.needs_reinit;
    -- The note is a mark and no UPDATE: all writers would update the same row, wait for each other, and fail in REPEATABLE READ.
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
COMMENT ON FUNCTION pgtrickle.stop_keeping(bigint) IS 'Notes that a stream table was not kept: its owner lacks a right, or an object changed that its triggers need. Called by these triggers.';

-- Revokes all rights on a relation from all roles but its owner.
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
COMMENT ON FUNCTION pgtrickle.without_grants(oid) IS 'Revokes all rights on a hidden relation from all roles but its owner.';

-- Lets a role use the catalog. trickle calls this for each owner of a stream table, also for a new one. The role can name the objects in
-- pgtrickle_changes, but has no rights on them.
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
    -- Where a stream table is not kept, a trigger that a writer fires leaves the mark, with the rights of the stream table's owner.
    EXECUTE format('GRANT SELECT, INSERT ON pgtrickle.pgt_marks TO %s', role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgtrickle TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) TO %s', role);
END
$$;

CREATE OR REPLACE FUNCTION pgtrickle.revoke_from(role regrole) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle.require_keeper();
    -- The triggers of the stream table do nothing from now on.
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

-- Fails for a role without the catalog owner's rights. A GRANT by such a role would give a warning, which nobody reads, and no error.
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
COMMENT ON FUNCTION pgtrickle.require_keeper() IS 'Fails unless the current role has the rights of the catalog''s owner.';

-- A role that was let in writes the catalog only through the extension, whose own statements get the right for their duration. With the
-- right itself the role could lock the tables against everybody, write rows that nobody can read, and take names that others want.

-- Error messages can contain values of rows that the query read. So they are shown only to roles with the rights of the stream table's
-- owner. Where the table is gone, they are shown to roles with the rights of the catalog's owner. The view reads the catalog as the view's
-- owner, and checks the rights of the role that queries it.
CREATE VIEW pgtrickle.pgt_errors WITH (security_barrier = true) AS
    SELECT s.pgt_id, s.last_error_message FROM pgtrickle.pgt_stream_tables s
    WHERE pg_catalog.pg_has_role(coalesce((SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = s.pgt_relid),
        (SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'pgtrickle')), 'USAGE');
COMMENT ON VIEW pgtrickle.pgt_errors IS 'The last errors of the stream tables whose owner the current role is, or may act as.';

-- Catalog rows of a stream table whose table is gone can be deleted by the catalog's owner only.
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

-- Leases are taken, held and given up with the rights of the catalog's owner, for the role whose stream tables are refreshed.
DROP FUNCTION pgtrickle.take_lease(text, bigint, interval), pgtrickle.give_lease(bigint);

-- Renews the lease of a role's stream tables where `who` holds it under the number `held`, or takes it where nobody holds it any more.
-- Afterwards pgt_leases shows the holder. A lease that ends later than now plus its duration was given before the clock was set back, and
-- counts as ended. A renewal need not outlive a crash, so it does not wait for the disk. A later commit under the lease writes the renewal
-- to disk first.
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
        -- This waits for transactions that are just committing under the lease.
        UPDATE pgtrickle.pgt_leases l SET fence = l.fence + 1, holder = who, taken_at = clock_timestamp() WHERE l.role = whose;
        UPDATE pgtrickle.pgt_lease_terms t SET fence = l.fence, expires_at = clock_timestamp() + term, lasts = term
            FROM pgtrickle.pgt_leases l WHERE l.role = t.role AND t.role = whose;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.take_lease(oid, text, bigint, interval) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.take_lease(oid, text, bigint, interval) IS 'Renews or takes the lease, under which one refresher refreshes a role''s stream tables on schedule.';

-- Gives up the lease, so that another refresher can take it at once.
CREATE FUNCTION pgtrickle.give_lease(whose oid, held bigint) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgtrickle.pgt_lease_terms t SET expires_at = 'epoch' WHERE t.fence = held AND t.role = whose;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.give_lease(oid, bigint), pgtrickle.hold_lease(oid, bigint) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.give_lease(oid, bigint) IS 'Gives up a lease that was held under this number.';

-- Roles that were already let in get the rights of this version, and may no longer create objects in pgtrickle_changes.
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

-- Those of the given stream tables whose plans and capture still fit the database, and whose owners may still read the captured changes.
-- The triggers that keep a stream table (IMMEDIATE) must not fail for a missing right, so their rights are checked here beforehand. Each
-- relation is examined once, however many stream tables read it.
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

-- A fingerprint of the triggers that keep a stream table within the statements that write its sources. It also has the properties of the
-- stream table that the triggers rely on, and the owners of the trigger functions. The triggers run with the rights of these owners.
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

-- Lets the owners of these stream tables use the catalog, if they cannot use it yet. NULL stands for all stream tables. ALTER TABLE and
-- REASSIGN OWNED can give a stream table to any role. Called as the catalog's owner.
CREATE FUNCTION pgtrickle.let_in_owners(tables oid[]) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE owner oid;
BEGIN
    FOR owner IN SELECT DISTINCT c.relowner FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
        WHERE (tables IS NULL OR c.oid = ANY (tables))
        AND c.relowner NOT IN (SELECT r.oid FROM pg_roles r WHERE r.rolsuper)
        -- The grant must name the role: a right that the role has through another role ends with its membership.
        AND NOT EXISTS (SELECT FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
            WHERE p.oid = 'pgtrickle.mark_readers(oid, bigint[], text)'::regprocedure AND a.grantee = c.relowner)
    LOOP
        PERFORM pgtrickle.grant_to(owner::regrole);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.let_in_owners(oid[]) FROM PUBLIC;
COMMENT ON FUNCTION pgtrickle.let_in_owners(oid[]) IS 'Lets the owners of stream tables use the catalog; called by trickle where a stream table has a new owner.';

-- Only refreshes write a stream table, and they run as its owner. Everybody can set pgtrickle.refreshing, so the setting alone gives no
-- right. The trigger also requires the rights of the owner, with which a role could drop the trigger as well.
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

-- Stored tables without a primary key have all columns as their replica identity, since otherwise a publication FOR ALL TABLES would make
-- refreshes fail. A table that belongs to another role, or that is locked, is left as it is, and `trickle doctor` names it.
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

-- Each refresh asks these functions about the server's catalogs. The functions read by index where there is one, use one plan for all
-- arguments, and are not compiled. So they cost the same in a large database, in the first calls of a session, and with old statistics. JIT
-- is turned off, since enable_seqscan = off gives a scan a high cost, which alone would trigger JIT. No parallel worker takes part, since
-- the text of a view is read in a subtransaction.
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
