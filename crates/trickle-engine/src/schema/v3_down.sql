-- From version 3 of the catalog back to 2.

-- Readers of the catalog begin with this table. A change of the catalog does too, so that the two never wait for each other in a circle.
LOCK TABLE pgtrickle.pgt_stream_tables IN ACCESS EXCLUSIVE MODE;

DROP TRIGGER forget ON pgtrickle.pgt_stream_tables;
DROP FUNCTION pgtrickle.forget();
DELETE FROM pgtrickle.pgt_refresh_history h WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = h.pgt_id);
DELETE FROM pgtrickle.pgt_dependencies d WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = d.pgt_id);
DELETE FROM pgtrickle.pgt_lease_terms t WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_leases l WHERE l.role = t.role);
ALTER TABLE pgtrickle.pgt_dependencies ADD FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE;
ALTER TABLE pgtrickle.pgt_refresh_history ADD FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE;
ALTER TABLE pgtrickle.pgt_lease_terms ADD FOREIGN KEY (role) REFERENCES pgtrickle.pgt_leases ON DELETE CASCADE;

DO $$
DECLARE here bool;
BEGIN
    SELECT home = pgtrickle.home() INTO here FROM pgtrickle.pgt_catalog_version;
    DROP TABLE pgtrickle.pgt_marks;
    IF here THEN
        UPDATE pgtrickle.pgt_catalog_version SET home = pgtrickle.home();
    END IF;
END
$$;
DROP FUNCTION pgtrickle.has_other_partitions(oid, oid[]), pgtrickle.has_other_layout(oid), pgtrickle.require_sources(oid[]), pgtrickle.has_temporary_child(oid),
    pgtrickle.children(oid);
DROP FUNCTION pgtrickle.child_misfit(oid, text[], oid[]), pgtrickle.lost_key(oid, oid[], text[]), pgtrickle.columns_now(oid, int2[], oid[]), pgtrickle.misfit(oid, int2[], text[], oid[], text[]);

-- A plan that is made anew runs nothing of a stranger's to which the owner of the stream table has not agreed.
DROP FUNCTION pgtrickle.types_fingerprint(oid[]), pgtrickle.type_names(oid[]), pgtrickle.objects_fingerprint(text[]);
ALTER TABLE pgtrickle.pgt_stream_tables DROP COLUMN agreed, DROP COLUMN agreed_by, DROP COLUMN agreed_tables, DROP COLUMN types,
    DROP COLUMN types_fingerprint, DROP COLUMN kept_hash, DROP COLUMN objects, DROP COLUMN objects_fingerprint;

UPDATE pgtrickle.pgt_stream_tables SET functions_fingerprint = NULL
    WHERE functions <> '{}' AND functions_fingerprint IS DISTINCT FROM pgtrickle.functions_fingerprint(functions);
CREATE OR REPLACE FUNCTION pgtrickle.functions_fingerprint(functions oid[]) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT md5(coalesce(string_agg(concat_ws(E'\n', f.oid, p.proname, p.provolatile, p.proisstrict, p.prosrc, p.probin,
            pg_get_function_sqlbody(p.oid), p.proconfig), E'\n' ORDER BY f.oid), ''))
        FROM unnest(functions) f(oid) LEFT JOIN pg_proc p ON p.oid = f.oid
    );
END
$$;
UPDATE pgtrickle.pgt_stream_tables SET functions_fingerprint = pgtrickle.functions_fingerprint(functions)
    WHERE functions <> '{}' AND functions_fingerprint IS NOT NULL;

-- Names in generated SQL mean nothing that a stranger made.
CREATE OR REPLACE FUNCTION pgtrickle.definition(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
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
DROP FUNCTION pgtrickle.is_safe_path(text[]), pgtrickle.safe_path(jsonb, oid), pgtrickle.safe_path(text[], oid);

-- An ALTER TABLE matters to no reader that relies on nothing of it.
ALTER TABLE pgtrickle.pgt_stream_tables DROP COLUMN stored_hash;
ALTER TABLE pgtrickle.pgt_buffers DROP COLUMN relied, DROP COLUMN paired, DROP COLUMN children, DROP COLUMN parts;
ALTER TABLE pgtrickle.pgt_dependencies DROP COLUMN relied, DROP COLUMN column_names, DROP COLUMN named_columns, DROP COLUMN keeps_plan, DROP COLUMN parts, DROP COLUMN stayed;
DROP FUNCTION pgtrickle.part_conditions(oid), pgtrickle.captured_parts(oid, text), pgtrickle.parts(oid, bool, oid[]);
DROP FUNCTION pgtrickle.column_names(oid);
DROP FUNCTION pgtrickle.still_serves(oid, int2[], text[], text), pgtrickle.relied_now(oid, text[], text[], oid[]), pgtrickle.relied(oid, int2[], oid[]), pgtrickle.numbers(oid, text[]),
    pgtrickle.held_columns(jsonb);

-- Guarantees of the server for every row that a relation shows.
CREATE OR REPLACE FUNCTION pgtrickle.fingerprint(relation oid, last int2 DEFAULT 32767) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET extra_float_digits = 3
SET bytea_output = hex SET standard_conforming_strings = on AS $$
BEGIN
    RETURN (
        SELECT md5(concat_ws(E'\n',
            (SELECT concat_ws(' ', c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.relispartition,
                EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = relation))
             FROM pg_class c WHERE c.oid = relation),
            (SELECT string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation,
                a.attnotnull, a.xmin), ',' ORDER BY a.attnum)
             FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum BETWEEN 1 AND last AND NOT a.attisdropped),
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
DROP FUNCTION pgtrickle.is_key(oid), pgtrickle.never_null(oid);

-- Row security: a stream table holds what its owner may see.
DROP FUNCTION pgtrickle.row_security(oid, oid[], oid), pgtrickle.row_security(oid, oid);
ALTER TABLE pgtrickle.pgt_dependencies DROP COLUMN read_through, DROP COLUMN row_security;

-- Rights of roles that were let in on the catalog.
DROP VIEW pgtrickle.pgt_errors;
DROP POLICY dropped ON pgtrickle.pgt_stream_tables;
CREATE POLICY dropped ON pgtrickle.pgt_stream_tables FOR DELETE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = pgt_relid) IS NOT FALSE);
DROP POLICY written ON pgtrickle.pgt_dependencies;
CREATE POLICY written ON pgtrickle.pgt_dependencies USING (EXISTS (
    SELECT FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE s.pgt_id = pgt_dependencies.pgt_id AND pg_has_role(c.relowner, 'USAGE') IS NOT FALSE));
DROP POLICY written ON pgtrickle.pgt_refresh_history;
CREATE POLICY written ON pgtrickle.pgt_refresh_history USING (EXISTS (
    SELECT FROM pgtrickle.pgt_stream_tables s LEFT JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE s.pgt_id = pgt_refresh_history.pgt_id AND pg_has_role(c.relowner, 'USAGE') IS NOT FALSE));
DROP POLICY dropped ON pgtrickle.pgt_buffers;
CREATE POLICY dropped ON pgtrickle.pgt_buffers FOR DELETE
    USING ((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = source_relid) IS NOT FALSE);
DROP FUNCTION pgtrickle.take_lease(oid, text, bigint, interval), pgtrickle.give_lease(oid, bigint);
CREATE FUNCTION pgtrickle.take_lease(who text, held bigint, term interval,
    OUT role oid, OUT fence bigint, OUT holder text, OUT left_ms float8) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT r.oid INTO role FROM pg_roles r WHERE r.rolname = current_user;
    UPDATE pgtrickle.pgt_lease_terms t SET expires_at = clock_timestamp() + term, lasts = term
        WHERE t.role = take_lease.role AND t.fence = held;
    IF NOT FOUND THEN
        PERFORM FROM pgtrickle.pgt_leases l WHERE l.role = take_lease.role;
        IF NOT FOUND THEN
            INSERT INTO pgtrickle.pgt_leases (role, fence, holder) VALUES (role, 0, '') ON CONFLICT DO NOTHING;
            INSERT INTO pgtrickle.pgt_lease_terms VALUES (role, 0, '0', 'epoch') ON CONFLICT DO NOTHING;
        END IF;
        PERFORM FROM pgtrickle.pgt_lease_terms t WHERE t.role = take_lease.role
            AND (t.expires_at <= clock_timestamp() OR t.expires_at > clock_timestamp() + t.lasts) FOR UPDATE;
        IF FOUND THEN
            -- Waits for whoever commits under the lease just now.
            UPDATE pgtrickle.pgt_leases l SET fence = l.fence + 1, holder = who, taken_at = clock_timestamp()
                WHERE l.role = take_lease.role;
            UPDATE pgtrickle.pgt_lease_terms t SET fence = l.fence, expires_at = clock_timestamp() + term, lasts = term
                FROM pgtrickle.pgt_leases l WHERE l.role = t.role AND t.role = take_lease.role;
        END IF;
    END IF;
    SELECT l.fence, l.holder, extract(epoch FROM t.expires_at - clock_timestamp()) * 1000 INTO fence, holder, left_ms
        FROM pgtrickle.pgt_leases l JOIN pgtrickle.pgt_lease_terms t USING (role) WHERE l.role = take_lease.role;
END
$$;
COMMENT ON FUNCTION pgtrickle.take_lease(text, bigint, interval) IS 'Renews or takes the lease under which the current role''s stream tables are refreshed on schedule, and says who holds it.';
CREATE FUNCTION pgtrickle.give_lease(held bigint) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgtrickle.pgt_lease_terms t SET expires_at = 'epoch'
        WHERE t.fence = held AND t.role = (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user);
END
$$;
COMMENT ON FUNCTION pgtrickle.give_lease(bigint) IS 'Gives up a lease that was held under this number.';
GRANT EXECUTE ON FUNCTION pgtrickle.hold_lease(oid, bigint) TO PUBLIC;

-- == Hidden objects belong to the catalog's owner =====================================================================
CREATE OR REPLACE FUNCTION pgtrickle.refuse_writes() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
CREATE OR REPLACE FUNCTION pgtrickle.revoke_from(role regrole) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
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
CREATE OR REPLACE FUNCTION pgtrickle.grant_to(role regrole) RETURNS void LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA pgtrickle TO %s', role);
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA pgtrickle_changes TO %s', role);
    EXECUTE format('GRANT SELECT ON pgtrickle.pgt_catalog_version TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON pgtrickle.pgt_stream_tables, pgtrickle.pgt_dependencies,
        pgtrickle.pgt_buffers, pgtrickle.pgt_refresh_history, pgtrickle.pgt_leases, pgtrickle.pgt_lease_terms TO %s', role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgtrickle TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) TO %s', role);
    IF EXISTS (SELECT FROM pg_language WHERE lanname = 'pgtrickle_copy') THEN
        EXECUTE format('GRANT USAGE ON LANGUAGE pgtrickle_copy TO %s', role);
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION pgtrickle.immediate_fingerprint(stream_table bigint) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
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
DROP FUNCTION pgtrickle.require_owner(oid[]), pgtrickle.hand_to_owner(bigint), pgtrickle.hand_over(),
    pgtrickle.without_grants(oid), pgtrickle.require_keeper(), pgtrickle.let_in_owners(oid[]),
    pgtrickle.without_statistics(), pgtrickle.stop_keeping(bigint), pgtrickle.rights_of(bigint), pgtrickle.pairing_key(oid, bool);
-- Roles that were let in write the catalog itself again.
DO $$
DECLARE role oid;
BEGIN
    FOR role IN SELECT a.grantee FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
        WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.proname = 'mark_readers' AND a.grantee NOT IN (0, p.proowner)
    LOOP
        PERFORM pgtrickle.grant_to(role::regrole);
    END LOOP;
END
$$;
-- == End of that ======================================================================================================

DROP FUNCTION pgtrickle.merge_may_have_moved(oid), pgtrickle.new_partitions(oid, bigint), pgtrickle.leaving_partitions(oid, oid[], bigint), pgtrickle.takes_rows_of(oid[], bigint, oid), pgtrickle.triggers_fingerprint(oid, oid[]), pgtrickle.fingerprint(oid, int2, oid[]), pgtrickle.view_text(oid);

DO $$
DECLARE
    look regprocedure;
BEGIN
    FOR look IN SELECT p.oid FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.provolatile = 's' AND l.lanname = 'plpgsql'
        AND pg_has_role(p.proowner, 'USAGE')
    LOOP
        EXECUTE format('ALTER FUNCTION %s RESET enable_seqscan', look);
        EXECUTE format('ALTER FUNCTION %s RESET plan_cache_mode', look);
        EXECUTE format('ALTER FUNCTION %s RESET jit', look);
        EXECUTE format('ALTER FUNCTION %s PARALLEL SAFE', look);
    END LOOP;
END
$$;

UPDATE pgtrickle.pgt_catalog_version SET version = 2;
