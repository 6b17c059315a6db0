-- Catalog, version 1. Run in one transaction; the names are trickle's interface and never change meaning.
REVOKE ALL ON SCHEMA pgtrickle_changes FROM PUBLIC;

CREATE TABLE pgtrickle.pgt_catalog_version (
    version int NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT now(),
    home text,
    buffer_limit_bytes bigint NOT NULL DEFAULT 1073741824 CHECK (buffer_limit_bytes > 0)
);
-- It has no key, so that the server would refuse its updates while all tables are published.
ALTER TABLE pgtrickle.pgt_catalog_version REPLICA IDENTITY FULL;
COMMENT ON TABLE pgtrickle.pgt_catalog_version IS 'One row: the version of this catalog, and the settings that all clients share.';
COMMENT ON COLUMN pgtrickle.pgt_catalog_version.buffer_limit_bytes IS 'The limit that every buffer is to have; trickle init sets it.';
COMMENT ON COLUMN pgtrickle.pgt_catalog_version.home IS 'What pgtrickle.home() said when this catalog was made here.';

-- There is one row. A dump that is restored where the extension has made the catalog brings another: of that counts what is not
-- the version of the tables.
CREATE FUNCTION pgtrickle.keep_one_row() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    UPDATE pgtrickle.pgt_catalog_version SET home = NEW.home, buffer_limit_bytes = NEW.buffer_limit_bytes;
    RETURN CASE WHEN NOT FOUND THEN NEW END;
END
$$;
CREATE TRIGGER one_row BEFORE INSERT ON pgtrickle.pgt_catalog_version FOR EACH ROW EXECUTE FUNCTION pgtrickle.keep_one_row();

CREATE TABLE pgtrickle.pgt_stream_tables (
    pgt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_relid oid NOT NULL UNIQUE,
    pgt_schema text NOT NULL,
    pgt_name text NOT NULL,
    defining_query text NOT NULL,
    original_query text NOT NULL,
    schedule text,
    refresh_mode text NOT NULL CHECK (refresh_mode IN ('FULL', 'DIFFERENTIAL', 'IMMEDIATE')),
    requested_mode text NOT NULL CHECK (requested_mode IN ('AUTO', 'FULL', 'DIFFERENTIAL', 'IMMEDIATE')),
    mode_reason text,
    status text NOT NULL DEFAULT 'INITIALIZING' CHECK (status IN ('INITIALIZING', 'ACTIVE', 'SUSPENDED', 'ERROR')),
    is_populated bool NOT NULL DEFAULT false,
    needs_reinit bool NOT NULL DEFAULT false,
    reinit_reason text,
    data_timestamp timestamptz,
    frontier jsonb,
    last_refresh_at timestamptz,
    consecutive_errors int NOT NULL DEFAULT 0,
    last_error_message text,
    auto_threshold float8,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    settings jsonb NOT NULL DEFAULT '[]',
    cost_model jsonb,
    layout_hash text,
    reads_clock bool NOT NULL DEFAULT false,
    functions oid[] NOT NULL DEFAULT '{}',
    functions_fingerprint text,
    triggers_fingerprint text,
    UNIQUE (pgt_schema, pgt_name)
);
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.settings IS 'Settings in force at creation that can change a value: [{"name", "values"}].';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.reinit_reason IS 'Why needs_reinit is set, for history.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.data_timestamp IS 'When the last refresh began: what was committed by then is in the table, and the clock showed this where the query reads it.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.reads_clock IS 'Rows enter and leave it as time passes: each refresh looks for them.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.triggers_fingerprint IS 'Of the triggers that keep it within the statements that write its sources (IMMEDIATE), as they were made.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.layout_hash IS 'Hash of the statements that made the stored tables; another hash means that they must be made anew.';

CREATE TABLE pgtrickle.pgt_dependencies (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    source_relid oid NOT NULL,
    source_type text NOT NULL CHECK (source_type IN ('TABLE', 'STREAM_TABLE', 'VIEW', 'MATVIEW', 'FOREIGN_TABLE')),
    source_schema text NOT NULL,
    source_name text NOT NULL,
    columns_used text[] NOT NULL DEFAULT '{}',
    schema_fingerprint text NOT NULL,
    cdc_mode text NOT NULL DEFAULT 'TRIGGER' CHECK (cdc_mode IN ('TRIGGER', 'WAL')),
    PRIMARY KEY (pgt_id, source_relid)
);
CREATE INDEX ON pgtrickle.pgt_dependencies (source_relid);

CREATE TABLE pgtrickle.pgt_buffers (
    source_relid oid PRIMARY KEY,
    trigger_mode text NOT NULL CHECK (trigger_mode IN ('STATEMENT', 'ROW', 'COPY')),
    unlogged bool NOT NULL,
    generation int NOT NULL,
    segments jsonb NOT NULL,
    capture text NOT NULL DEFAULT 'ON' CHECK (capture IN ('ON', 'OFF', 'HELD')),
    limit_bytes bigint NOT NULL DEFAULT 1073741824,
    schema_fingerprint text NOT NULL,
    triggers_fingerprint text,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN pgtrickle.pgt_buffers.trigger_mode IS 'COPY: triggers for statements, run in C by the extension.';
COMMENT ON COLUMN pgtrickle.pgt_buffers.capture IS 'OFF: until a reader is planned again. HELD: the user wants none, until trickle enable.';
COMMENT ON COLUMN pgtrickle.pgt_buffers.limit_bytes IS 'Size of the written segment from which on changes are not kept: their readers are recomputed.';
COMMENT ON COLUMN pgtrickle.pgt_buffers.segments IS 'Oldest first: [{"number", "columns"}], columns as attribute numbers of the source.';

CREATE TABLE pgtrickle.pgt_refresh_history (
    refresh_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    start_time timestamptz NOT NULL,
    end_time timestamptz,
    data_timestamp timestamptz,
    action text NOT NULL CHECK (action IN ('NO_DATA', 'FULL', 'DIFFERENTIAL', 'REINITIALIZE', 'SKIP')),
    status text NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED')),
    initiated_by text NOT NULL CHECK (initiated_by IN ('SCHEDULER', 'MANUAL', 'INITIAL')),
    delta_row_count bigint,
    rows_inserted bigint,
    rows_updated bigint,
    rows_deleted bigint,
    strategy_reason text,
    predicted_ms float8,
    phase_ms jsonb,
    error_message text
);
CREATE INDEX ON pgtrickle.pgt_refresh_history (pgt_id, start_time);
CREATE INDEX ON pgtrickle.pgt_refresh_history (start_time);

-- What a query relies on of a relation: name and type of every column, what may be NULL, keys, partitions,
-- parents, row security. A plan made under one fingerprint is never run under another. The xmin of a column's entry tells of ALTER
-- TYPE … USING and SET EXPRESSION, which change values and fire no trigger. The settings are those that a view is written under.
CREATE FUNCTION pgtrickle.fingerprint(relation oid) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET extra_float_digits = 3
SET bytea_output = hex SET standard_conforming_strings = on AS $$
BEGIN
    RETURN (
        SELECT md5(concat_ws(E'\n',
            (SELECT concat_ws(' ', c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.relispartition,
                EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = relation))
             FROM pg_class c WHERE c.oid = relation),
            (SELECT string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation,
                a.attnotnull, a.xmin), ',' ORDER BY a.attnum)
             FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped),
            (SELECT string_agg(concat_ws(' ', i.indkey, i.indisprimary, i.indnullsnotdistinct), ',' ORDER BY i.indexrelid)
             FROM pg_index i WHERE i.indrelid = relation AND i.indisunique AND i.indisvalid AND i.indimmediate
               AND i.indpred IS NULL AND i.indexprs IS NULL),
            (WITH RECURSIVE tree(child) AS (
                SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = relation
                UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.child)
             SELECT string_agg(child::text, ',' ORDER BY child) FROM tree),
            (SELECT pg_get_viewdef(c.oid) FROM pg_class c WHERE c.oid = relation AND c.relkind = 'v')))
    );
END
$$;

-- The triggers that capture the changes of a relation, on itself and its partitions. One that was switched off and on
-- again has another xmin: what was written meanwhile is not in the buffer. They are looked for by table, which has an
-- index, and not by function, which has none: what this costs does not grow with the number of sources.
CREATE FUNCTION pgtrickle.triggers_fingerprint(source oid) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        WITH RECURSIVE tree(oid) AS (
            SELECT source
            UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid)
        SELECT md5(coalesce(string_agg(concat_ws(' ', g.tgrelid, g.tgname, g.tgenabled, g.xmin), ',' ORDER BY g.oid), ''))
        FROM tree JOIN pg_trigger g ON g.tgrelid = tree.oid JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, format('capture_%s_', source))
    );
END
$$;

-- The triggers that keep a stream table within the statements that write its sources, as those of a buffer, and what
-- they know of it.
CREATE FUNCTION pgtrickle.immediate_fingerprint(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        WITH RECURSIVE tree(oid) AS (
            SELECT d.source_relid FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = stream_table
            UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid)
        SELECT md5(concat_ws(E'\n', (SELECT concat_ws(' ', s.pgt_relid::regclass, pgtrickle.fingerprint(s.pgt_relid)) FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table),
            string_agg(concat_ws(' ', g.tgrelid, g.tgname, g.tgenabled, g.xmin), ',' ORDER BY g.oid)))
        FROM tree JOIN pg_trigger g ON g.tgrelid = tree.oid JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, format('immediate_%s_', stream_table))
    );
END
$$;

-- Whether a subscription writes a relation, or a partition or child of it: the worker that applies its changes fires no
-- statement triggers.
CREATE FUNCTION pgtrickle.is_subscribed(relation oid) RETURNS bool LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        WITH RECURSIVE tree(oid) AS (
            SELECT relation
            UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid)
        SELECT EXISTS (SELECT FROM pg_subscription_rel s JOIN tree ON tree.oid = s.srrelid)
    );
END
$$;

-- The identities of this catalog's own tables. A dump keeps no identities: after it is restored, those that the catalog
-- notes are of other tables, or of none.
CREATE FUNCTION pgtrickle.home() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog AS $$
    SELECT md5(string_agg(concat_ws(' ', c.relname, c.oid), ',' ORDER BY c.relname))
    FROM pg_class c WHERE c.relnamespace = to_regnamespace('pgtrickle') AND c.relkind = 'r' AND starts_with(c.relname, 'pgt_')
$$;

-- The bodies of the functions that a query calls.
CREATE FUNCTION pgtrickle.functions_fingerprint(functions oid[]) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT md5(coalesce(string_agg(concat_ws(E'\n', f.oid, p.proname, p.provolatile, p.proisstrict, p.prosrc, p.probin,
            pg_get_function_sqlbody(p.oid), p.proconfig), E'\n' ORDER BY f.oid), ''))
        FROM unnest(functions) f(oid) LEFT JOIN pg_proc p ON p.oid = f.oid
    );
END
$$;

-- What a stream table's plan was made for and from, whose it is and who asks, and how its sources are captured: another value
-- says that what a client knows of it is out of date.
CREATE FUNCTION pgtrickle.definition(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT md5(jsonb_build_array(s.defining_query, s.refresh_mode, s.layout_hash, s.settings, s.functions_fingerprint,
            (SELECT c.relowner FROM pg_class c WHERE c.oid = s.pgt_relid), current_user,
            (SELECT jsonb_agg(jsonb_build_array(d.source_relid, d.columns_used, d.schema_fingerprint, b.capture, b.unlogged)
                ORDER BY d.source_relid)
             FROM pgtrickle.pgt_dependencies d LEFT JOIN pgtrickle.pgt_buffers b USING (source_relid)
             WHERE d.pgt_id = s.pgt_id))::text)
        FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = stream_table
    );
END
$$;

-- Those of these stream tables for which everything that their plans were made from, and what captures the changes that
-- they read, is as it was. Each relation is looked at once, however many read it.
CREATE FUNCTION pgtrickle.unchanged(stream_tables bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN QUERY
        WITH read AS (
            SELECT d.* FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = ANY (stream_tables)
        ), sources AS MATERIALIZED (
            SELECT r.oid, n.nspname, c.relname, b.capture, pgtrickle.fingerprint(r.oid) AS fingerprint,
                b.capture = 'ON' AND (CASE WHEN b.capture = 'ON' THEN pgtrickle.triggers_fingerprint(r.oid) END
                        IS DISTINCT FROM b.triggers_fingerprint
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
          AND (s.refresh_mode <> 'IMMEDIATE' OR s.needs_reinit OR NOT s.is_populated
            OR EXISTS (SELECT FROM read d JOIN sources r ON r.oid = d.source_relid WHERE d.pgt_id = s.pgt_id AND r.capture = 'HELD')
            OR pgtrickle.immediate_fingerprint(s.pgt_id) IS NOT DISTINCT FROM s.triggers_fingerprint)
          AND (s.functions = '{}'
            OR pgtrickle.functions_fingerprint(s.functions) IS NOT DISTINCT FROM s.functions_fingerprint);
END
$$;

-- A stream table is written by its refreshes alone.
CREATE FUNCTION pgtrickle.refuse_writes() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF current_setting('pgtrickle.refreshing', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'cannot change stream table %.% directly', quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME)
        USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'Its contents are the result of its query.',
            HINT = 'Change the tables that it reads, or its query with trickle alter.';
END
$$;

-- Who may use this catalog beside its owner (pgtrickle.grant_to) sees all of it but what the refreshes of others came to, since
-- whoever drains a buffer must know all its readers; and writes what is of tables of its own, or of tables that are gone.
ALTER TABLE pgtrickle.pgt_stream_tables ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON pgtrickle.pgt_stream_tables FOR SELECT USING (true);
CREATE POLICY made ON pgtrickle.pgt_stream_tables FOR INSERT
    WITH CHECK ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = pgt_relid));
CREATE POLICY changed ON pgtrickle.pgt_stream_tables FOR UPDATE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = pgt_relid));
CREATE POLICY dropped ON pgtrickle.pgt_stream_tables FOR DELETE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = pgt_relid) IS NOT FALSE);

ALTER TABLE pgtrickle.pgt_dependencies ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON pgtrickle.pgt_dependencies FOR SELECT USING (true);
CREATE POLICY written ON pgtrickle.pgt_dependencies USING (EXISTS (
    SELECT FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE s.pgt_id = pgt_dependencies.pgt_id AND pg_has_role(c.relowner, 'USAGE') IS NOT FALSE));

ALTER TABLE pgtrickle.pgt_refresh_history ENABLE ROW LEVEL SECURITY;
CREATE POLICY written ON pgtrickle.pgt_refresh_history USING (EXISTS (
    SELECT FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE s.pgt_id = pgt_refresh_history.pgt_id AND pg_has_role(c.relowner, 'USAGE') IS NOT FALSE));

ALTER TABLE pgtrickle.pgt_buffers ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON pgtrickle.pgt_buffers FOR SELECT USING (true);
CREATE POLICY made ON pgtrickle.pgt_buffers FOR INSERT
    WITH CHECK ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = source_relid));
CREATE POLICY changed ON pgtrickle.pgt_buffers FOR UPDATE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = source_relid));
CREATE POLICY dropped ON pgtrickle.pgt_buffers FOR DELETE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = source_relid) IS NOT FALSE);

-- What was captured of a table is not all that happened to it: these of its readers, all where NULL, are to be computed anew,
-- for this reason or the one that they have already. They may be another role's than the table, whose owner may not write
-- them: hence SECURITY DEFINER. It makes no more than work, and changes no result.
CREATE FUNCTION pgtrickle.mark_readers(source oid, readers bigint[], why text) RETURNS void LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true,
        reinit_reason = CASE WHEN needs_reinit THEN coalesce(reinit_reason, why) ELSE why END, updated_at = now()
    WHERE refresh_mode <> 'IMMEDIATE' AND (readers IS NULL OR pgt_id = ANY (readers))
      AND pgt_id IN (SELECT d.pgt_id FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = source);
END
$$;
REVOKE ALL ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) FROM PUBLIC;

-- Lets a role have stream tables of its own in this catalog, or no more. Roles that may are not in each other's way as long as
-- they do not want to: each makes its buffers and triggers in pgtrickle_changes, under names that all know.
CREATE FUNCTION pgtrickle.grant_to(role regrole) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA pgtrickle TO %s', role);
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA pgtrickle_changes TO %s', role);
    EXECUTE format('GRANT SELECT ON pgtrickle.pgt_catalog_version TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON pgtrickle.pgt_stream_tables, pgtrickle.pgt_dependencies,
        pgtrickle.pgt_buffers, pgtrickle.pgt_refresh_history TO %s', role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgtrickle TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) TO %s', role);
    IF EXISTS (SELECT FROM pg_language WHERE lanname = 'pgtrickle_copy') THEN
        EXECUTE format('GRANT USAGE ON LANGUAGE pgtrickle_copy TO %s', role);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.grant_to(regrole) IS 'Lets a role have stream tables of its own.';

CREATE FUNCTION pgtrickle.revoke_from(role regrole) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle FROM %s', role);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA pgtrickle FROM %s', role);
    EXECUTE format('REVOKE ALL ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) FROM %s', role);
    EXECUTE format('REVOKE ALL ON SCHEMA pgtrickle, pgtrickle_changes FROM %s', role);
    IF EXISTS (SELECT FROM pg_language WHERE lanname = 'pgtrickle_copy') THEN
        EXECUTE format('REVOKE ALL ON LANGUAGE pgtrickle_copy FROM %s', role);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.revoke_from(regrole) IS 'Takes back what pgtrickle.grant_to gave; stream tables of the role stay, and are not refreshed.';

INSERT INTO pgtrickle.pgt_catalog_version (version, home) VALUES (1, pgtrickle.home());
