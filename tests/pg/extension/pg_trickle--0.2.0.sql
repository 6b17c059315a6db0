-- Version 0.2.0, from which tests of updates begin.

DO $$
    DECLARE name text; stranger text;
    BEGIN
        FOREACH name IN ARRAY ARRAY['pgtrickle', 'pgtrickle_changes'] LOOP
            -- What belongs to somebody else may do anything when it is read or called.
            SELECT o.owner::pg_catalog.regrole INTO stranger FROM (
                SELECT nspowner FROM pg_catalog.pg_namespace WHERE nspname = name
                UNION ALL SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.relnamespace = pg_catalog.to_regnamespace(name)
                UNION ALL SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace = pg_catalog.to_regnamespace(name)
            ) o(owner) JOIN pg_catalog.pg_roles r ON r.oid = o.owner
            WHERE name = 'pgtrickle' AND NOT r.rolsuper AND r.rolname <> current_user LIMIT 1;
            IF stranger IS NOT NULL THEN
                RAISE EXCEPTION 'schema % or something in it belongs to %', name, stranger
                    USING HINT = 'The program''s trickle init --take-over, as a superuser, makes it that one''s and keeps all stream tables.';
            END IF;
            IF pg_catalog.to_regnamespace(name) IS NULL THEN
                EXECUTE pg_catalog.format('CREATE SCHEMA %I', name);
            ELSE
                EXECUTE pg_catalog.format('ALTER EXTENSION pg_trickle ADD SCHEMA %I', name);
            END IF;
        END LOOP;
    END $$;

CREATE FUNCTION pgtrickle.copy_handler() RETURNS language_handler LANGUAGE c AS 'MODULE_PATHNAME', 'trickle_copy';
    REVOKE ALL ON FUNCTION pgtrickle.copy_handler() FROM PUBLIC;
    CREATE TRUSTED LANGUAGE pgtrickle_copy HANDLER pgtrickle.copy_handler;
    REVOKE ALL ON LANGUAGE pgtrickle_copy FROM PUBLIC;
    COMMENT ON LANGUAGE pgtrickle_copy IS 'Triggers that copy what a statement changed into a change buffer.';

CREATE SCHEMA IF NOT EXISTS pgtrickle;

CREATE  FUNCTION pgtrickle."follow_drops"(
	"dropped" oid[]
) RETURNS void
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'follow_drops_wrapper';

CREATE  FUNCTION pgtrickle."follow_alters"(
	"tables" oid[],
	"functions" oid[]
) RETURNS void
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'follow_alters_wrapper';

CREATE FUNCTION pgtrickle.on_drop() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
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
    CREATE FUNCTION pgtrickle.on_alter() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
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

CREATE SCHEMA IF NOT EXISTS pgtrickle;

CREATE  FUNCTION pgtrickle."rehome"() RETURNS bool
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'rehome_wrapper';

CREATE  FUNCTION pgtrickle."release_catalog"() RETURNS void
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'release_catalog_wrapper';

CREATE  FUNCTION pgtrickle."install"() RETURNS void
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'install_wrapper';

CREATE SCHEMA IF NOT EXISTS pgtrickle;

CREATE  FUNCTION pgtrickle."rebuild_cdc_triggers"() RETURNS SETOF TEXT
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'rebuild_cdc_triggers_wrapper';

CREATE  FUNCTION pgtrickle."resume_stream_table"(
	"name" TEXT
) RETURNS void
LANGUAGE c
AS 'MODULE_PATHNAME', 'resume_stream_table_wrapper';

CREATE  FUNCTION pgtrickle."create_or_replace_stream_table"(
	"name" TEXT,
	"query" TEXT,
	"schedule" TEXT DEFAULT 'calculated',
	"refresh_mode" TEXT DEFAULT 'AUTO',
	"initialize" bool DEFAULT true,
	"cdc_mode" TEXT DEFAULT NULL,
	"append_only" bool DEFAULT false,
	"diamond_consistency" TEXT DEFAULT NULL
) RETURNS bigint
LANGUAGE c
AS 'MODULE_PATHNAME', 'create_or_replace_stream_table_wrapper';

CREATE  FUNCTION pgtrickle."version"() RETURNS TEXT
IMMUTABLE STRICT PARALLEL SAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'version_wrapper';

CREATE  FUNCTION pgtrickle."create_stream_table"(
	"name" TEXT,
	"query" TEXT,
	"schedule" TEXT DEFAULT 'calculated',
	"refresh_mode" TEXT DEFAULT 'AUTO',
	"initialize" bool DEFAULT true,
	"cdc_mode" TEXT DEFAULT NULL,
	"append_only" bool DEFAULT false,
	"diamond_consistency" TEXT DEFAULT NULL
) RETURNS bigint
LANGUAGE c
AS 'MODULE_PATHNAME', 'create_stream_table_wrapper';

CREATE  FUNCTION pgtrickle."refresh_stream_table"(
	"name" TEXT
) RETURNS void
LANGUAGE c
AS 'MODULE_PATHNAME', 'refresh_stream_table_wrapper';

CREATE  FUNCTION pgtrickle."pause_scheduler"(
	"names" TEXT[] DEFAULT NULL
) RETURNS INT
LANGUAGE c
AS 'MODULE_PATHNAME', 'pause_scheduler_wrapper';

CREATE  FUNCTION pgtrickle."create_stream_table_if_not_exists"(
	"name" TEXT,
	"query" TEXT,
	"schedule" TEXT DEFAULT 'calculated',
	"refresh_mode" TEXT DEFAULT 'AUTO',
	"initialize" bool DEFAULT true,
	"cdc_mode" TEXT DEFAULT NULL,
	"append_only" bool DEFAULT false,
	"diamond_consistency" TEXT DEFAULT NULL
) RETURNS bigint
LANGUAGE c
AS 'MODULE_PATHNAME', 'create_stream_table_if_not_exists_wrapper';

CREATE  FUNCTION pgtrickle."alter_stream_table"(
	"name" TEXT,
	"query" TEXT DEFAULT NULL,
	"schedule" TEXT DEFAULT NULL,
	"refresh_mode" TEXT DEFAULT NULL,
	"status" TEXT DEFAULT NULL,
	"diamond_consistency" TEXT DEFAULT NULL
) RETURNS void

LANGUAGE c
AS 'MODULE_PATHNAME', 'alter_stream_table_apart_wrapper';

CREATE  FUNCTION pgtrickle."repair_stream_table"(
	"name" TEXT
) RETURNS void
LANGUAGE c
AS 'MODULE_PATHNAME', 'repair_stream_table_wrapper';

CREATE  FUNCTION pgtrickle."drop_stream_table"(
	"name" TEXT,
	"cascade" bool DEFAULT false
) RETURNS void
LANGUAGE c
AS 'MODULE_PATHNAME', 'drop_stream_table_wrapper';

CREATE  FUNCTION pgtrickle."last_command"() RETURNS bigint
STRICT VOLATILE
LANGUAGE c
AS 'MODULE_PATHNAME', 'last_command_wrapper';

CREATE  FUNCTION pgtrickle."resume_scheduler"(
	"names" TEXT[] DEFAULT NULL
) RETURNS INT
LANGUAGE c
AS 'MODULE_PATHNAME', 'resume_scheduler_wrapper';

CREATE SCHEMA IF NOT EXISTS pgtrickle;

CREATE  FUNCTION pgtrickle."pg_trickle_hash_multi"(
	"values" TEXT[]
) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'pg_trickle_hash_multi_wrapper';

CREATE  FUNCTION pgtrickle."explain_st"(
	"name" TEXT
) RETURNS TEXT
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'explain_st_wrapper';

CREATE  FUNCTION pgtrickle."get_staleness"(
	"name" TEXT
) RETURNS bigint
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'get_staleness_wrapper';

CREATE  FUNCTION pgtrickle."explain_delta"(
	"name_or_query" TEXT
) RETURNS TEXT
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'explain_delta_wrapper';

CREATE  FUNCTION pgtrickle."validate_query"(
	"query" TEXT
) RETURNS TABLE (
	"incremental" bool, 
	"construct" TEXT, 
	"line" INT, 
	"position" INT, 
	"help" TEXT 
)
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'validate_query_wrapper';

CREATE  FUNCTION pgtrickle."explain_refresh_mode"(
	"name" TEXT
) RETURNS TABLE (
	"mode" TEXT, 
	"requested_mode" TEXT, 
	"mode_reason" TEXT 
)
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'explain_refresh_mode_wrapper';

CREATE  FUNCTION pgtrickle."pgt_status"() RETURNS TABLE (
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

CREATE  FUNCTION pgtrickle."health_check"() RETURNS TABLE (
	"check_name" TEXT, 
	"result" TEXT, 
	"found" TEXT, 
	"advice" TEXT 
)
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'health_check_wrapper';

CREATE  FUNCTION pgtrickle."pg_trickle_hash"(
	"value" TEXT
) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'pg_trickle_hash_wrapper';

CREATE  FUNCTION pgtrickle."st_auto_threshold"(
	"name" TEXT
) RETURNS double precision
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'st_auto_threshold_wrapper';

CREATE  FUNCTION pgtrickle."dependency_tree"() RETURNS TABLE (
	"stream_table" TEXT, 
	"level" INT, 
	"reads" TEXT[], 
	"read_by" TEXT[] 
)
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'dependency_tree_wrapper';

CREATE  FUNCTION pgtrickle."change_buffer_sizes"() RETURNS TABLE (
	"source" TEXT, 
	"trigger_mode" TEXT, 
	"disabled" bool, 
	"bytes" bigint, 
	"segments" INT, 
	"limit_bytes" bigint 
)
STRICT
LANGUAGE c
AS 'MODULE_PATHNAME', 'change_buffer_sizes_wrapper';

CREATE  FUNCTION pgtrickle."get_refresh_history"(
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

SELECT pgtrickle.install();
    REVOKE ALL ON FUNCTION pgtrickle.install(), pgtrickle.follow_drops(oid[]), pgtrickle.follow_alters(oid[], oid[]) FROM PUBLIC;
    CREATE EVENT TRIGGER pg_trickle_drops ON sql_drop EXECUTE FUNCTION pgtrickle.on_drop();
    CREATE EVENT TRIGGER pg_trickle_alters ON ddl_command_end
        WHEN TAG IN ('ALTER TABLE', 'ALTER VIEW', 'ALTER SCHEMA', 'ALTER FUNCTION', 'ALTER ROUTINE', 'ALTER FOREIGN TABLE',
            'ALTER MATERIALIZED VIEW', 'CREATE TABLE', 'CREATE VIEW', 'CREATE FUNCTION')
        EXECUTE FUNCTION pgtrickle.on_alter();
