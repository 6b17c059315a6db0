-- The catalog learns what stands apart (diamond_consistency) and who leads, and alter_stream_table what stands apart.

DROP FUNCTION pgtrickle.alter_stream_table(text, text, text, text, text);
CREATE FUNCTION pgtrickle.alter_stream_table(
    "name" TEXT,
    "query" TEXT DEFAULT NULL,
    "schedule" TEXT DEFAULT NULL,
    "refresh_mode" TEXT DEFAULT NULL,
    "status" TEXT DEFAULT NULL,
    "diamond_consistency" TEXT DEFAULT NULL
) RETURNS void
LANGUAGE c
AS 'MODULE_PATHNAME', 'alter_stream_table_apart_wrapper';

-- Times are times, and how late changes came is told.

DROP FUNCTION pgtrickle.pgt_status();
CREATE FUNCTION pgtrickle.pgt_status() RETURNS TABLE (
    "name" TEXT,
    "mode" TEXT,
    "requested_mode" TEXT,
    "mode_reason" TEXT,
    "status" TEXT,
    "schedule" TEXT,
    "staleness_ms" bigint,
    "lag_ms" double precision,
    "last_refresh_at" timestamp with time zone,
    "consecutive_errors" INT,
    "last_error_message" TEXT,
    "pending_changes" bigint
)
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'status_of_all_wrapper';

DROP FUNCTION pgtrickle.get_refresh_history(text, int);
CREATE FUNCTION pgtrickle.get_refresh_history(
    "name" TEXT,
    "limit" INT DEFAULT 20
) RETURNS TABLE (
    "refresh_id" bigint,
    "start_time" timestamp with time zone,
    "end_time" timestamp with time zone,
    "data_timestamp" timestamp with time zone,
    "action" TEXT,
    "status" TEXT,
    "initiated_by" TEXT,
    "delta_row_count" bigint,
    "rows_inserted" bigint,
    "rows_updated" bigint,
    "rows_deleted" bigint,
    "strategy_reason" TEXT,
    "predicted_ms" double precision,
    "phase_ms" jsonb,
    "lag_ms" double precision,
    "error_message" TEXT
)
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'newest_refreshes_wrapper';

-- Functions that are dropped are followed where writers would miss them; nothing that a refresh does is.

CREATE OR REPLACE FUNCTION pgtrickle.on_drop() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE dropped oid[]; functions oid[];
    BEGIN
        IF 'on' IN (current_setting('pgtrickle.at_work', true), current_setting('pgtrickle.refreshing', true)) THEN
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
        IF functions IS NOT NULL THEN
            PERFORM pgtrickle.follow_alters('{}', functions);
        END IF;
    END $$;

CREATE OR REPLACE FUNCTION pgtrickle.on_alter() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE tables oid[]; functions oid[];
    BEGIN
        IF 'on' IN (current_setting('pgtrickle.at_work', true), current_setting('pgtrickle.refreshing', true)) THEN
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
        SELECT array_agg(o.objid) INTO functions FROM pg_event_trigger_ddl_commands() o
        WHERE o.classid = 'pg_proc'::regclass
          AND EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.functions @> ARRAY[o.objid]);
        IF tables IS NOT NULL OR functions IS NOT NULL THEN
            PERFORM pgtrickle.follow_alters(coalesce(tables, '{}'), coalesce(functions, '{}'));
        END IF;
    END $$;

-- What is asked for with NULL is refused, where nothing was done.

ALTER FUNCTION pgtrickle.drop_stream_table(text, bool) CALLED ON NULL INPUT;
ALTER FUNCTION pgtrickle.refresh_stream_table(text) CALLED ON NULL INPUT;
ALTER FUNCTION pgtrickle.repair_stream_table(text) CALLED ON NULL INPUT;
ALTER FUNCTION pgtrickle.resume_stream_table(text) CALLED ON NULL INPUT;

SELECT pgtrickle.install();
