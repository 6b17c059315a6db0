-- From version 2 of the catalog back to 1.
DROP FUNCTION pgtrickle.take_lease(text, bigint, interval), pgtrickle.give_lease(bigint), pgtrickle.hold_lease(oid, bigint);
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
ALTER TABLE pgtrickle.pgt_refresh_history DROP COLUMN lag_ms;
ALTER TABLE pgtrickle.pgt_stream_tables DROP COLUMN diamond_consistency, DROP COLUMN declared;
UPDATE pgtrickle.pgt_catalog_version SET version = 1;
