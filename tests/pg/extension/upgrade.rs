//! ALTER EXTENSION pg_trickle UPDATE from earlier versions. The tests catch differences between an updated
//! extension and a created one, and functions that the new library lacks. The tests also catch changes that
//! are lost between the replacement of the library and the update.

use super::rows;
use super::workers::{SCHEDULERS, scheduled, until};
use crate::support::private::{connect, each_version};
use crate::support::{count, run};
use trickle_client::schema::VERSION;
use trickle_client::{Session, Settings, Trickle};

const MADE: &str = "CREATE TABLE t (id int PRIMARY KEY, k int);
    INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 30) i;
    SELECT pgtrickle.create_stream_table('counts', 'SELECT k, count(*) AS n FROM t GROUP BY k', '1s');
    SELECT pgtrickle.create_stream_table('many', 'SELECT k FROM counts WHERE n > 10');
    SELECT pgtrickle.create_stream_table('kept', 'SELECT k, sum(id) AS s FROM t GROUP BY k', NULL, 'IMMEDIATE')";

/// A query for the number of rows that stream tables lack.
const STALE: &str =
    "SELECT (SELECT count(*) FROM (SELECT k, count(*) AS n FROM t GROUP BY k EXCEPT ALL TABLE counts) x)
    + (SELECT count(*) FROM (SELECT k FROM t GROUP BY k HAVING count(*) > 10 EXCEPT ALL TABLE many) x)
    + (SELECT count(*) FROM (SELECT k, sum(id) AS s FROM t GROUP BY k EXCEPT ALL TABLE kept) x)";

/// A query for all members of the extension with their definitions, rights and comments. For a table, the
/// result also has the condition under which pg_dump dumps its rows, and its columns, constraints, indexes,
/// triggers and policies.
const MEMBERS: &str = "SELECT i.type || ' ' || i.identity, pg_get_functiondef(p.oid),
        coalesce(p.proacl::text, c.relacl::text), obj_description(d.objid, d.classid::regclass::name),
        (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            pg_get_expr(f.adbin, f.adrelid), col_description(a.attrelid, a.attnum)), ', ' ORDER BY a.attnum)
         FROM pg_attribute a LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
        (SELECT string_agg(concat_ws(' ', n.conname, pg_get_constraintdef(n.oid)), ', ' ORDER BY n.conname)
         FROM pg_constraint n WHERE n.conrelid = c.oid),
        (SELECT string_agg(pg_get_indexdef(x.indexrelid), ', ' ORDER BY x.indexrelid::regclass::text)
         FROM pg_index x WHERE x.indrelid = c.oid),
        (SELECT string_agg(pg_get_triggerdef(g.oid), ', ' ORDER BY g.tgname) FROM pg_trigger g
         WHERE g.tgrelid = c.oid AND NOT g.tgisinternal),
        (SELECT string_agg(concat_ws(' ', y.polname, y.polcmd, y.polroles::regrole[], pg_get_expr(y.polqual, y.polrelid),
            pg_get_expr(y.polwithcheck, y.polrelid)), ', ' ORDER BY y.polname) FROM pg_policy y WHERE y.polrelid = c.oid),
        c.relrowsecurity, (SELECT e.extcondition[i] FROM generate_subscripts(e.extconfig, 1) i WHERE e.extconfig[i] = d.objid)
    FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
    CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) i
    LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
    WHERE e.extname = 'pg_trickle' ORDER BY i.type, i.identity";

#[test]
#[ignore = "needs the extension: ./x extension"]
fn an_earlier_version_becomes_the_newest_and_loses_nothing() {
    each_version(async |binaries| {
        let server = scheduled(binaries, "upgrade").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE old; ").await;
        run(&admin, "CREATE DATABASE older; ").await;
        run(&admin, "CREATE EXTENSION pg_trickle").await;
        let s = connect(&server, "old").await;
        run(&s, "CREATE EXTENSION pg_trickle VERSION '0.2.0'").await;
        assert_eq!(count(&s, "SELECT version::int8 FROM pgtrickle.pgt_catalog_version").await, 2);
        assert_ne!(rows(&s, MEMBERS).await, rows(&admin, MEMBERS).await);
        run(&s, "ALTER EXTENSION pg_trickle UPDATE").await;
        assert_eq!(rows(&s, MEMBERS).await, rows(&admin, MEMBERS).await);
        let s = connect(&server, "older").await;
        run(&s, "CREATE EXTENSION pg_trickle VERSION '0.1.0'").await;
        assert_eq!(count(&s, "SELECT version::int8 FROM pgtrickle.pgt_catalog_version").await, 1);
        assert_ne!(rows(&s, MEMBERS).await, rows(&admin, MEMBERS).await);
        // The new library lacks functions of the earlier version. Until the update, calls of these functions
        // fail with a hint.
        for call in ["create_stream_table('x', 'SELECT 1')", "alter_stream_table('x', status => 'ACTIVE')"] {
            let refused = s.client().batch_execute(&format!("SELECT pgtrickle.{call}")).await.unwrap_err();
            let hint = refused.as_db_error().and_then(|e| e.hint()).unwrap_or_default();
            assert!(hint.contains("ALTER EXTENSION pg_trickle UPDATE"), "{refused:?}");
        }
        run(&s, "ALTER EXTENSION pg_trickle UPDATE").await;
        assert_eq!(rows(&s, MEMBERS).await, rows(&admin, MEMBERS).await);
        run(&s, MADE).await;
        run(&s, "SELECT pgtrickle.alter_stream_table('many', diamond_consistency => 'none')").await;
        run(&s, "UPDATE t SET k = 1 WHERE id < 8").await;
        until(&s, STALE, 0).await;
        server.stop();
    });
}

/// The catalog is of the first version. The changes of writers before the update are captured, and are
/// applied after the update.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn changes_before_an_extension_update_are_applied_after_it() {
    each_version(async |binaries| {
        let server = scheduled(binaries, "upwrite").await;
        let s = connect(&server, "postgres").await;
        run(&s, "CREATE EXTENSION pg_trickle").await;
        run(&s, MADE).await;
        until(&s, SCHEDULERS, 1).await;
        // The following statements bring the extension into the state of its first version.
        let mut t = Trickle::attach(connect(&server, "postgres").await, Settings::default()).await.unwrap();
        run(&s, AS_BEFORE).await;
        run(
            &s,
            "ALTER EXTENSION pg_trickle DROP FUNCTION pgtrickle.hold_lease(oid, bigint); \
                 ALTER EXTENSION pg_trickle DROP FUNCTION pgtrickle.has_grown(oid, text); \
                 ALTER EXTENSION pg_trickle DROP FUNCTION pgtrickle.fingerprint(oid, int2); \
                 ALTER EXTENSION pg_trickle DROP TABLE pgtrickle.pgt_lease_terms; \
                 ALTER EXTENSION pg_trickle DROP TABLE pgtrickle.pgt_leases",
        )
        .await;
        assert_eq!(t.migrate(1).await.unwrap(), Some(VERSION));
        run(&s, "ALTER EXTENSION pg_trickle ADD FUNCTION pgtrickle.immediate_fingerprint(bigint); \
                 UPDATE pg_extension SET extversion = '0.1.0' WHERE extname = 'pg_trickle'; \
                 ALTER EXTENSION pg_trickle DROP FUNCTION pgtrickle.alter_stream_table; \
                 DROP FUNCTION pgtrickle.alter_stream_table; \
                 CREATE FUNCTION pgtrickle.alter_stream_table(text, text, text, text, text) RETURNS void LANGUAGE c \
                     AS '$libdir/pg_trickle', 'alter_stream_table_wrapper'; \
                 ALTER EXTENSION pg_trickle ADD FUNCTION pgtrickle.alter_stream_table(text, text, text, text, text)")
            .await;
        run(&s, "UPDATE t SET k = 1 WHERE id < 8; DELETE FROM t WHERE id = 20").await;
        assert!(s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('counts')").await.is_err());
        assert_ne!(count(&s, STALE).await, 0);
        run(&s, "ALTER EXTENSION pg_trickle UPDATE").await;
        // After the update, an IMMEDIATE stream table needs one refresh. From then on, writers bring the
        // stream table up to date again.
        run(&s, "SELECT pgtrickle.refresh_stream_table('kept')").await;
        run(&s, "UPDATE t SET k = 5 WHERE id = 9").await;
        until(&s, STALE, 0).await;
        server.stop();
    });
}

/// Statements that remove the additions of version 3 of the catalog from the extension.
const AS_BEFORE: &str = "DO $$ DECLARE f text; BEGIN
    FOREACH f IN ARRAY ARRAY['require_owner(oid[])', 'hand_to_owner(bigint)', 'hand_over()', 'without_grants(oid)', 'require_keeper()',
        'let_in_owners(oid[])', 'without_statistics()', 'stop_keeping(bigint)', 'immediate_fingerprint(bigint)', 'is_at_work()',
        'is_key(oid)', 'never_null(oid)', 'relied(oid, int2[], oid[])', 'still_serves(oid, int2[], text[], text)', 'relied_now(oid, text[], text[], oid[])', 'has_other_partitions(oid, oid[])', 'has_other_layout(oid)', 'children(oid)', 'numbers(oid, text[])', 'column_names(oid)',
        'held_columns(jsonb)', 'misfit(oid, int2[], text[], oid[], text[])', 'columns_now(oid, int2[], oid[])', 'row_security(oid, oid)',
        'row_security(oid, oid[], oid)', 'safe_path(text[], oid)', 'safe_path(jsonb, oid)', 'types_fingerprint(oid[])', 'objects_fingerprint(text[])', 'new_partitions(oid, bigint)', 'parts(oid, bool, oid[])', 'part_conditions(oid)', 'captured_parts(oid, text)', 'leaving_partitions(oid, oid[], bigint)', 'takes_rows_of(oid[], bigint, oid)', 'view_text(oid)', 'merge_may_have_moved(oid)', 'triggers_fingerprint(oid, oid[])', 'fingerprint(oid, int2, oid[])', 'require_sources(oid[])', 'has_temporary_child(oid)',
        'child_misfit(oid, text[], oid[])', 'lost_key(oid, oid[], text[])', 'is_safe_path(text[])', 'type_names(oid[])', 'rights_of(bigint)', 'pairing_key(oid, bool)', 'take_lease(oid, text, bigint, interval)',
        'give_lease(oid, bigint)', 'forget()'] LOOP
        EXECUTE format('ALTER EXTENSION pg_trickle DROP FUNCTION pgtrickle.%s', f);
    END LOOP; END $$;
    ALTER EXTENSION pg_trickle DROP TABLE pgtrickle.pgt_marks;
    ALTER EXTENSION pg_trickle DROP VIEW pgtrickle.pgt_errors;
    CREATE OR REPLACE FUNCTION pgtrickle.on_drop() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
    CREATE OR REPLACE FUNCTION pgtrickle.on_alter() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
    DROP FUNCTION pgtrickle.is_at_work()";

/// Statements that make the role `app` the owner of its buffers and states, as version 0.2.0 did.
const AS_THEIRS: &str = "DO $$ DECLARE what record; BEGIN
    GRANT CREATE ON SCHEMA pgtrickle_changes TO app;
    FOR what IN SELECT format('ALTER %s %s OWNER TO app', CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, oid::regclass) AS sql
        FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relkind IN ('r', 'v')
        UNION ALL SELECT format('ALTER FUNCTION %s OWNER TO app', oid::regprocedure) FROM pg_proc
        WHERE pronamespace = 'pgtrickle_changes'::regnamespace
    LOOP EXECUTE what.sql; END LOOP; END $$";

/// The update removes objects that a role attached to its buffers, and does not run their code. Buffers that
/// were not altered stay, with their changes.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn an_update_gives_hidden_objects_to_the_catalogs_owner() {
    each_version(async |binaries| {
        let server = scheduled(binaries, "handed").await;
        let s = connect(&server, "postgres").await;
        run(&s, "CREATE EXTENSION pg_trickle; CREATE ROLE app LOGIN; CREATE SCHEMA app AUTHORIZATION app; SELECT pgtrickle.grant_to('app'); \
                 CREATE TABLE loot (who text)").await;
        let app = Session::connect(server.config("postgres").user("app")).await.unwrap();
        for (table, n) in [("t", 1), ("u", 2)] {
            let made = "SET search_path = app; CREATE TABLE # (id int PRIMARY KEY, k int); INSERT INTO # SELECT i, i % 3 FROM generate_series(1, 30) i; \
                SELECT pgtrickle.create_stream_table('counts_#', 'SELECT k, count(*) AS n, avg(id) AS a FROM # GROUP BY k', NULL); \
                SELECT pgtrickle.create_stream_table('kept_#', 'SELECT k, sum(id) AS s FROM # GROUP BY k', NULL, 'IMMEDIATE')";
            run(&app, &made.replace('#', table)).await;
            assert_eq!(n, count(&s, "SELECT count(*) FROM pgtrickle.pgt_buffers").await);
        }
        let stale = "SELECT (SELECT count(*) FROM (SELECT k, count(*) AS n, avg(id) AS a FROM app.# GROUP BY k EXCEPT ALL TABLE app.counts_#) x)
            + (SELECT count(*) FROM (SELECT k, sum(id) AS s FROM app.# GROUP BY k EXCEPT ALL TABLE app.kept_#) x)";
        let mut t = Trickle::attach(connect(&server, "postgres").await, Settings::default()).await.unwrap();
        run(&s, AS_BEFORE).await;
        assert_eq!(t.migrate(2).await.unwrap(), Some(VERSION));
        run(&s, AS_THEIRS).await;
        run(
            &s,
            "UPDATE pg_extension SET extversion = '0.2.0' WHERE extname = 'pg_trickle'; \
                 ALTER EXTENSION pg_trickle ADD FUNCTION pgtrickle.immediate_fingerprint(bigint)",
        )
        .await;
        let oid = rows(&s, "SELECT 'app.u'::regclass::oid").await[0][0].clone().unwrap();
        let evil = "CREATE FUNCTION app.grab() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.loot VALUES (current_user); RETURN 1; \
                EXCEPTION WHEN insufficient_privilege THEN RETURN 1; END $$; \
            CREATE OR REPLACE VIEW pgtrickle_changes.changes_# AS SELECT xid, w, cmin, id, k FROM pgtrickle_changes.changes_#_1 WHERE app.grab() = 1; \
            ALTER TABLE pgtrickle_changes.changes_#_1 ADD COLUMN x int DEFAULT app.grab()";
        run(&app, &evil.replace('#', &oid)).await;
        for table in ["t", "u"] {
            run(&app, &format!("UPDATE {table} SET k = 1 WHERE id < 8; DELETE FROM {table} WHERE id = 20"))
                .await;
            assert_ne!(count(&s, &stale.replace('#', table)).await, 0);
        }
        let pending = rows(&s, "SELECT format('TABLE %s', oid::regclass) FROM pg_class WHERE relname = format('changes_%s_1', 'app.t'::regclass::oid)").await;
        let pending = pending[0][0].clone().unwrap();
        let before = rows(&s, &pending).await;
        assert_ne!(before.len(), 0);
        run(&s, "ALTER EXTENSION pg_trickle UPDATE").await;
        assert_eq!(rows(&s, &pending).await, before, "what was pending is kept");
        let foreign = "SELECT count(*) FROM (SELECT FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relowner <> 10
            UNION ALL SELECT FROM pg_proc WHERE pronamespace = 'pgtrickle_changes'::regnamespace AND proowner <> 10 AND NOT starts_with(proname, 'immediate_')
            UNION ALL SELECT FROM pg_namespace n, aclexplode(n.nspacl) a WHERE nspname = 'pgtrickle_changes' AND privilege_type = 'CREATE' AND grantee <> 10) x";
        assert_eq!(count(&s, foreign).await, 0);
        for table in ["t", "u"] {
            run(&app, &format!("UPDATE {table} SET k = 2 WHERE id = 9")).await;
            run(&s, &format!("SELECT pgtrickle.refresh_stream_table('app.counts_{table}'), pgtrickle.refresh_stream_table('app.kept_{table}')"))
                .await;
            assert_eq!(count(&s, &stale.replace('#', table)).await, 0, "{table}");
        }
        assert_eq!(count(&s, "SELECT count(*) FROM loot").await, 0);
        server.stop();
    });
}
