-- The catalog of version 3.

-- == Hidden objects belong to the catalog's owner =====================================================================
CREATE FUNCTION pgtrickle.is_at_work() RETURNS bool
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'is_at_work_wrapper';

CREATE OR REPLACE FUNCTION pgtrickle.on_drop() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE dropped oid[]; functions oid[]; resting oid[]; parents oid[];
    BEGIN
        IF pgtrickle.is_at_work() THEN
            RETURN;
        END IF;
        SELECT array_agg(o.objid) INTO dropped FROM pg_event_trigger_dropped_objects() o
        WHERE o.classid = 'pg_class'::regclass AND o.objsubid = 0
          AND (EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid = o.objid)
            OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = o.objid));
        IF dropped IS NOT NULL THEN
            PERFORM pgtrickle.follow_drops(dropped);
        END IF;
        SELECT array_agg(o.objid) INTO functions FROM pg_event_trigger_dropped_objects() o
        WHERE o.classid = 'pg_proc'::regclass
          AND EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.functions @> ARRAY[o.objid]);
        SELECT array_agg(s.pgt_relid) INTO resting FROM pgtrickle.pgt_stream_tables s
        WHERE s.objects && ARRAY(SELECT format('%s %s', o.classid::regclass, o.objid) FROM pg_event_trigger_dropped_objects() o);
        IF functions IS NOT NULL OR resting IS NOT NULL THEN
            PERFORM pgtrickle.follow_alters(coalesce(resting, '{}'), coalesce(functions, '{}'));
        END IF;
        -- The server does not say whose partition or child it was.
        IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() o WHERE o.object_type IN ('table', 'foreign table') AND NOT o.is_temporary) THEN
            SELECT array_agg(DISTINCT c.oid) INTO parents FROM pgtrickle.pgt_stream_tables s
            JOIN pgtrickle.pgt_dependencies d USING (pgt_id) JOIN pg_class c ON c.oid = d.source_relid
            WHERE s.refresh_mode = 'IMMEDIATE' AND (c.relkind = 'p' OR c.relhassubclass);
            IF parents IS NOT NULL THEN
                PERFORM pgtrickle.follow_alters(parents, '{}');
            END IF;
        END IF;
    END $$;
-- It reads what comes with the catalog's version, and would follow the next statement already.
DROP EVENT TRIGGER pg_trickle_alters;
CREATE OR REPLACE FUNCTION pgtrickle.on_alter() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE tables oid[]; functions oid[];
    BEGIN
        IF pgtrickle.is_at_work() THEN
            RETURN;
        END IF;
        WITH RECURSIVE altered(oid) AS (
            SELECT o.objid FROM pg_event_trigger_ddl_commands() o WHERE o.classid = 'pg_class'::regclass
            UNION SELECT c.oid FROM pg_event_trigger_ddl_commands() o JOIN pg_class c ON c.relnamespace = o.objid
                WHERE o.classid = 'pg_namespace'::regclass
            UNION SELECT h.inhparent FROM altered a JOIN pg_inherits h ON h.inhrelid = a.oid
        )
        SELECT array_agg(a.oid) INTO tables FROM altered a
        WHERE EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid = a.oid)
           OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = a.oid);
        IF TG_TAG IN ('GRANT', 'REVOKE') THEN
            -- The server does not say on what.
            SELECT array_agg(d.source_relid) INTO tables FROM pgtrickle.pgt_stream_tables s
            JOIN pgtrickle.pgt_dependencies d USING (pgt_id) WHERE s.refresh_mode = 'IMMEDIATE';
        END IF;
        -- Attributes of composite types, and columns of tables whose rows are values, are altered as columns of relations.
        SELECT tables || array_agg(s.pgt_relid) INTO tables FROM pgtrickle.pgt_stream_tables s
        WHERE EXISTS (SELECT FROM pg_event_trigger_ddl_commands() o JOIN pg_type y
            ON o.classid = 'pg_type'::regclass AND y.oid = o.objid OR o.classid = 'pg_class'::regclass AND y.typrelid = o.objid
            WHERE y.oid = ANY (s.types));
        SELECT tables || array_agg(s.pgt_relid) INTO tables FROM pgtrickle.pgt_stream_tables s
        WHERE s.objects && ARRAY(SELECT format('%s %s', o.classid::regclass, o.objid) FROM pg_event_trigger_ddl_commands() o);
        SELECT array_agg(o.objid) INTO functions FROM pg_event_trigger_ddl_commands() o
        WHERE o.classid = 'pg_proc'::regclass
          AND EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.functions @> ARRAY[o.objid]);
        IF tables IS NOT NULL OR functions IS NOT NULL THEN
            PERFORM pgtrickle.follow_alters(coalesce(tables, '{}'), coalesce(functions, '{}'));
        END IF;
        -- Notes partitions and children that were not followed now, also where nobody reads the table: rows that are written to them
        -- through it are captured.
        INSERT INTO pgtrickle.pgt_marks (source_relid, reason)
            SELECT b.source_relid, 'it has partitions or children that its triggers were not made for' FROM pgtrickle.pgt_buffers b
            WHERE b.source_relid = ANY (tables) AND b.capture = 'ON' AND NOT pgtrickle.children(b.source_relid) <@ b.children;
    END $$;

-- == End of that ======================================================================================================

SELECT pgtrickle.install();

CREATE EVENT TRIGGER pg_trickle_alters ON ddl_command_end
        WHEN TAG IN ('ALTER TABLE', 'ALTER VIEW', 'ALTER SCHEMA', 'ALTER FUNCTION', 'ALTER ROUTINE', 'ALTER TYPE', 'ALTER FOREIGN TABLE',
            'ALTER MATERIALIZED VIEW', 'ALTER OPERATOR', 'ALTER AGGREGATE', 'ALTER COLLATION', 'ALTER TEXT SEARCH CONFIGURATION',
            'ALTER TEXT SEARCH DICTIONARY', 'CREATE TABLE', 'CREATE FOREIGN TABLE', 'CREATE VIEW', 'CREATE FUNCTION', 'CREATE AGGREGATE',
            'GRANT', 'REVOKE')
        EXECUTE FUNCTION pgtrickle.on_alter();
