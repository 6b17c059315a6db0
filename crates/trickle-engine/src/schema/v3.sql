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

-- Those of these stream tables for which everything that their plans were made from, and what captures the changes that
-- they read, is as it was. Each relation is looked at once, however many read it.
CREATE OR REPLACE FUNCTION pgtrickle.unchanged(stream_tables bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        WITH read AS (
            SELECT d.* FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = ANY (stream_tables)
        ), sources AS MATERIALIZED (
            SELECT r.oid, n.nspname, c.relname, b.capture, pgtrickle.fingerprint(r.oid) AS fingerprint,
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
                OR s.refresh_mode <> 'IMMEDIATE' AND (r.cut OR r.capture = 'OFF' AND d.columns_used <> '{}')))
          AND (s.refresh_mode = 'IMMEDIATE' AND s.needs_reinit OR NOT EXISTS (SELECT FROM pgtrickle.pgt_marks) OR NOT EXISTS (
            SELECT FROM read d JOIN pgtrickle.pgt_marks m ON m.source_relid = d.source_relid
            WHERE d.pgt_id = s.pgt_id AND CASE s.refresh_mode WHEN 'IMMEDIATE' THEN m.pgt_id = s.pgt_id ELSE m.pgt_id IS NULL END))
          AND (s.refresh_mode <> 'IMMEDIATE' OR s.needs_reinit OR NOT s.is_populated
            OR EXISTS (SELECT FROM read d JOIN sources r ON r.oid = d.source_relid WHERE d.pgt_id = s.pgt_id AND r.capture = 'HELD')
            OR pgtrickle.immediate_fingerprint(s.pgt_id) IS NOT DISTINCT FROM s.triggers_fingerprint)
          AND (s.functions = '{}'
            OR pgtrickle.functions_fingerprint(s.functions) IS NOT DISTINCT FROM s.functions_fingerprint);
END
$$;

UPDATE pgtrickle.pgt_catalog_version SET version = 3;
