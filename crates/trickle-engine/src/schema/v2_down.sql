-- From version 2 of the catalog back to 1.
DROP FUNCTION pgtrickle.take_lease(text, bigint, interval), pgtrickle.give_lease(bigint), pgtrickle.hold_lease(oid, bigint),
    pgtrickle.has_grown(oid, text), pgtrickle.fingerprint(oid, int2);
DO $$
DECLARE here bool;
BEGIN
    SELECT home = pgtrickle.home() INTO here FROM pgtrickle.pgt_catalog_version;
    DROP TABLE pgtrickle.pgt_lease_terms, pgtrickle.pgt_leases;
    IF here THEN
        UPDATE pgtrickle.pgt_catalog_version SET home = pgtrickle.home();
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
        pgtrickle.pgt_buffers, pgtrickle.pgt_refresh_history TO %s', role);
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgtrickle TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION pgtrickle.mark_readers(oid, bigint[], text) TO %s', role);
    IF EXISTS (SELECT FROM pg_language WHERE lanname = 'pgtrickle_copy') THEN
        EXECUTE format('GRANT USAGE ON LANGUAGE pgtrickle_copy TO %s', role);
    END IF;
END
$$;
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
ALTER TABLE pgtrickle.pgt_refresh_history DROP COLUMN lag_ms;
ALTER TABLE pgtrickle.pgt_stream_tables DROP COLUMN diamond_consistency, DROP COLUMN declared;
UPDATE pgtrickle.pgt_catalog_version SET version = 1;
