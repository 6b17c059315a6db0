ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN diamond_consistency text NOT NULL DEFAULT 'atomic'
    CHECK (diamond_consistency IN ('atomic', 'none'));
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.diamond_consistency IS 'none: refreshed by itself, after the stream tables that it reads, and not with them.';
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN declared text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.declared IS 'The label of the declarations that it is of (trickle apply); NULL: made by itself.';
ALTER TABLE pgtrickle.pgt_refresh_history ADD COLUMN lag_ms float8;
COMMENT ON COLUMN pgtrickle.pgt_refresh_history.lag_ms IS 'So long before they became visible, at most, the changes had been committed that it brought; NULL: not known.';

-- Without it the caller's temporary schema is searched first, also by what calls these with more rights than the caller has.
ALTER FUNCTION pgtrickle.keep_one_row() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.triggers_fingerprint(oid) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.immediate_fingerprint(bigint) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.is_subscribed(oid) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.home() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.functions_fingerprint(oid[]) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.definition(bigint) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.unchanged(bigint[]) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION pgtrickle.refuse_writes() SET search_path = pg_catalog, pg_temp;

-- What a query relies on of a relation: name and type of every column, what may be NULL, keys, partitions,
-- parents, row security; of columns up to a number. A plan made under one fingerprint is never run under another. The xmin of a column's entry tells of ALTER
-- TYPE … USING and SET EXPRESSION, which change values and fire no trigger. The settings are those that a view is written under.
DROP FUNCTION pgtrickle.fingerprint(oid);
CREATE FUNCTION pgtrickle.fingerprint(relation oid, last int2 DEFAULT 32767) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
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

-- Whether a relation is as it was under a fingerprint but for columns that it got since, which come after all others: what captures
-- changes and what was stored hold good for whoever reads none of them. Not where something is of the type of its rows: what is
-- stored there shows the new columns.
CREATE FUNCTION pgtrickle.has_grown(relation oid, fingerprint text) RETURNS bool LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE last int2;
BEGIN
    IF fingerprint = pgtrickle.fingerprint(relation) OR EXISTS (
        SELECT FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
        JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray) AND d.deptype = 'n'
        WHERE c.oid = relation)
    THEN
        RETURN false;
    END IF;
    FOR last IN SELECT lag(a.attnum) OVER (ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum DESC
    LOOP
        IF pgtrickle.fingerprint(relation, coalesce(last, 0::int2)) = fingerprint THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
COMMENT ON FUNCTION pgtrickle.has_grown(oid, text) IS 'Whether a relation is what it was, but for columns that it got since.';

-- Tables that come make another home of the catalog; one that came with a dump is still one that did.
DO $$
DECLARE here bool;
BEGIN
    SELECT home = pgtrickle.home() INTO here FROM pgtrickle.pgt_catalog_version;
    CREATE TABLE pgtrickle.pgt_leases (
        role oid PRIMARY KEY,
        fence bigint NOT NULL,
        holder text NOT NULL,
        taken_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE TABLE pgtrickle.pgt_lease_terms (
        role oid PRIMARY KEY REFERENCES pgtrickle.pgt_leases ON DELETE CASCADE,
        fence bigint NOT NULL,
        lasts interval NOT NULL,
        expires_at timestamptz NOT NULL
    );
    IF here THEN
        UPDATE pgtrickle.pgt_catalog_version SET home = pgtrickle.home();
    END IF;
END
$$;
COMMENT ON TABLE pgtrickle.pgt_leases IS 'Who refreshes the stream tables of a role on schedule. A row changes only when somebody else does.';
COMMENT ON COLUMN pgtrickle.pgt_leases.fence IS 'Counts up with each holder: a scheduled refresh is committed only under the one that it was begun under.';
COMMENT ON TABLE pgtrickle.pgt_lease_terms IS 'Until when, by the clock of this server. Apart from pgt_leases, so that to renew a lease disturbs no refresh that holds it.';

ALTER TABLE pgtrickle.pgt_leases ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON pgtrickle.pgt_leases FOR SELECT USING (true);
CREATE POLICY written ON pgtrickle.pgt_leases USING (pg_has_role(role, 'USAGE'));
ALTER TABLE pgtrickle.pgt_lease_terms ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON pgtrickle.pgt_lease_terms FOR SELECT USING (true);
CREATE POLICY written ON pgtrickle.pgt_lease_terms USING (pg_has_role(role, 'USAGE'));

-- Renews the lease of the current role's stream tables where `who` holds it under the number `held`, takes it where nobody does
-- any more, and says who holds it then. One that ends later than it lasts was given before the clock was set back. A renewal
-- need not outlive a crash, so it waits for no disk: what is committed under a lease writes it first.
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

-- Lets others have the lease at once.
CREATE FUNCTION pgtrickle.give_lease(held bigint) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgtrickle.pgt_lease_terms t SET expires_at = 'epoch'
        WHERE t.fence = held AND t.role = (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user);
END
$$;
COMMENT ON FUNCTION pgtrickle.give_lease(bigint) IS 'Gives up a lease that was held under this number.';

-- Keeps the lease from being taken by others until the end of the transaction, or fails where one has. Who took it since the
-- transaction's snapshot is met as a serialization failure.
CREATE FUNCTION pgtrickle.hold_lease(whose oid, under bigint) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    BEGIN
        PERFORM FROM pgtrickle.pgt_leases l WHERE l.role = whose AND l.fence = under FOR SHARE;
        IF FOUND THEN
            RETURN;
        END IF;
    EXCEPTION WHEN serialization_failure THEN
        NULL;
    END;
    RAISE EXCEPTION 'another refresher has the lease now'
        USING ERRCODE = 'lock_not_available',
            DETAIL = format('This refresh began under lease %s.', under),
            HINT = 'That one refreshes what this one did not.';
END
$$;
COMMENT ON FUNCTION pgtrickle.hold_lease(oid, bigint) IS 'Fails unless the lease of a role is still held under this number; else it is, until the transaction ends.';

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

-- Who was let in before.
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
UPDATE pgtrickle.pgt_catalog_version SET version = 2;
