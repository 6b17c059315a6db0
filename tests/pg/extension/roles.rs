//! The rights under which code runs. The tests catch a role that gets more rights than it has through a name,
//! a query, a function or the catalog. The tests also catch a role that does not get the rights it should
//! have.

use super::rows;
use super::workers::{scheduled, until};
use crate::support::private::{connect, todays_version};
use crate::support::{count, run};
use trickle_client::Session;
use trickle_client::throwaway::Server;

/// Starts a server with the extension, and makes a role `app` that has a table and stream tables. `grant_to`
/// lets the role use the catalog.
async fn let_in(binaries: &std::path::Path, name: &str) -> (Server, Session, Session) {
    let server = scheduled(binaries, name).await;
    let admin = connect(&server, "postgres").await;
    run(&admin, "CREATE EXTENSION pg_trickle; CREATE ROLE app LOGIN; CREATE SCHEMA app AUTHORIZATION app")
        .await;
    run(&admin, "SELECT pgtrickle.grant_to('app')").await;
    // The session has the role's own login, since a session that took the role by SET ROLE could reset it.
    let app = Session::connect(server.config("postgres").user("app")).await.unwrap();
    run(
        &app,
        "SET search_path = app; CREATE TABLE t (id int PRIMARY KEY, k int); \
               INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 30) i",
    )
    .await;
    run(
        &app,
        "SELECT pgtrickle.create_stream_table('counts', 'SELECT k, count(*) AS n FROM t GROUP BY k', '1s')",
    )
    .await;
    (server, admin, app)
}

const STALE: &str =
    "SELECT count(*) FROM ((SELECT k, count(*) AS n FROM app.t GROUP BY k) EXCEPT ALL TABLE app.counts) x";

/// Runs a statement, and returns the SQLSTATE, message and hint of its refusal.
async fn refused(s: &Session, sql: &str) -> (String, String) {
    let e = s.client().batch_execute(sql).await.unwrap_err();
    let e = e.as_db_error().unwrap_or_else(|| panic!("{e}"));
    (e.code().code().to_owned(), format!("{} {}", e.message(), e.hint().unwrap_or_default()))
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn each_owners_stream_tables_are_refreshed_as_that_owner() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "owners").await;
        let whom = "SELECT current_user::text AS who, count(*) AS n FROM t";
        run(&app, &format!("SELECT pgtrickle.create_stream_table('whom', '{whom}', '1s', 'FULL')")).await;
        run(
            &admin,
            "CREATE TABLE mine (id int PRIMARY KEY, v int); INSERT INTO mine VALUES (1, 1); \
                     SELECT pgtrickle.create_stream_table('own', 'SELECT id, v + 1 AS v FROM mine', '1s')",
        )
        .await;
        run(&app, "UPDATE t SET k = 7 WHERE id < 9; DELETE FROM t WHERE id > 20").await;
        run(&admin, "UPDATE mine SET v = 5").await;
        until(&admin, STALE, 0).await;
        until(&admin, "SELECT count(*) FROM own WHERE v = 6", 1).await;
        until(&admin, "SELECT count(*) FROM app.whom WHERE who = 'app' AND n = 20", 1).await;
        // The refresh acts as the stream table's owner also when another role with the right to refresh calls
        // it.
        run(&admin, "SELECT pgtrickle.pause_scheduler(ARRAY['own'])").await;
        run(&app, "SELECT pgtrickle.pause_scheduler()").await;
        run(&app, "DELETE FROM t WHERE id > 10").await;
        run(
            &admin,
            "SELECT pgtrickle.refresh_stream_table('app.whom'), pgtrickle.refresh_stream_table('app.counts')",
        )
        .await;
        assert_eq!(count(&admin, "SELECT count(*) FROM app.whom WHERE who = 'app' AND n = 10").await, 1);
        assert_eq!(count(&admin, STALE).await, 0);
        // When a role that may act as the owner replaces a stream table, the stream table keeps its owner.
        let wider = "SELECT k, count(*) AS n, max(id) AS last FROM app.t GROUP BY k";
        run(&admin, &format!("SELECT pgtrickle.create_or_replace_stream_table('app.counts', '{wider}')"))
            .await;
        let whose =
            "SELECT count(*) FROM pg_class WHERE oid = 'app.counts'::regclass AND relowner = 'app'::regrole";
        assert_eq!(
            (count(&admin, whose).await, count(&admin, "SELECT count(last) FROM app.counts").await > 0),
            (1, true)
        );
        run(&admin, "SELECT pgtrickle.drop_stream_table('app.whom')").await;
        assert_eq!(count(&admin, "SELECT count(to_regclass('app.whom'))").await, 0);
        server.stop();
    });
}

/// A restored catalog finds stream tables by the names in its rows. A role with rights by `grant_to` could
/// have written another table's name into its own row.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_forged_catalog_name_leads_to_no_foreign_table() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "names").await;
        run(
            &admin,
            "CREATE TABLE mine (k int, n bigint); INSERT INTO mine VALUES (1, 1); CREATE TABLE source (id int PRIMARY KEY); \
             SELECT pgtrickle.create_stream_table('also', 'SELECT id FROM source', NULL); \
             ALTER TABLE also RENAME TO renamed; UPDATE pgtrickle.pgt_stream_tables SET pgt_name = 'also' WHERE pgt_name = 'renamed'",
        )
        .await;
        for name in ["mine", "renamed"] {
            let taken = format!(
                "UPDATE pgtrickle.pgt_stream_tables SET pgt_schema = 'public', pgt_name = '{name}' WHERE pgt_name <> 'also'"
            );
            // In version 0.2.0, a role with rights by `grant_to` could run this UPDATE.
            run(&admin, &taken).await;
            run(&admin, "UPDATE pgtrickle.pgt_catalog_version SET home = NULL; SELECT pgtrickle.rehome()")
                .await;
            let found = format!(
                "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_relid = 'public.{name}'::regclass AND pgt_name = '{name}'"
            );
            assert_eq!(count(&admin, &found).await, 0, "{name}");
        }
        assert_eq!(count(&admin, "SELECT count(*) FROM mine").await, 1);
        // `rehome` finds the role's own tables.
        run(&admin, "UPDATE pgtrickle.pgt_stream_tables SET pgt_schema = 'app', pgt_name = 'counts' WHERE pgt_name <> 'also'").await;
        run(&admin, "UPDATE pgtrickle.pgt_catalog_version SET home = NULL; SELECT pgtrickle.rehome()").await;
        run(&app, "UPDATE t SET k = 7 WHERE id < 9").await;
        until(&admin, STALE, 0).await;
        server.stop();
    });
}

/// Functions that a query calls. The functions try in several ways to become another role, at once or later.
const CLIMB: &str = "
CREATE TABLE bait (id int);
CREATE FUNCTION grab() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO secret.loot VALUES (current_user);
    EXCEPTION WHEN insufficient_privilege THEN NULL; END $$;
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM app.grab(); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON bait DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
CREATE TABLE tried (what text, state text);
CREATE FUNCTION try_all() RETURNS void LANGUAGE plpgsql AS $$
DECLARE what text;
BEGIN
    PERFORM app.grab();
    FOREACH what IN ARRAY ARRAY['SET ROLE postgres', 'RESET ROLE', 'SET SESSION AUTHORIZATION postgres', 'RESET SESSION AUTHORIZATION',
        'SET CONSTRAINTS ALL DEFERRED; INSERT INTO app.bait VALUES (1)', 'CREATE TEMPORARY TABLE pgt_stream_tables (a int)',
        'PREPARE grab AS SELECT app.grab()',
        'DECLARE c CURSOR WITH HOLD FOR SELECT app.grab()', 'ALTER ROLE app SUPERUSER'] LOOP
        BEGIN
            EXECUTE what;
            INSERT INTO app.tried VALUES (what, 'done');
            PERFORM app.grab();
        EXCEPTION WHEN OTHERS THEN
            INSERT INTO app.tried VALUES (what, SQLSTATE);
        END;
    END LOOP;
END $$;
CREATE FUNCTION climb(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM app.try_all(); RETURN k; END $$;";

#[test]
#[ignore = "needs the extension: ./x extension"]
fn functions_of_a_query_have_only_the_owners_rights() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "climb").await;
        run(&admin, "CREATE SCHEMA secret; CREATE TABLE secret.loot (who text)").await;
        run(&app, CLIMB).await;
        run(
            &app,
            "SELECT pgtrickle.create_stream_table('climbed', 'SELECT id, app.climb(k) AS k FROM t', '1h'); \
                   TRUNCATE tried; UPDATE t SET k = 8 WHERE id = 8",
        )
        .await;
        // A session of a superuser refreshes. The attempts must fail, and the session must still act as the
        // superuser.
        run(&admin, "SELECT pgtrickle.refresh_stream_table('app.climbed')").await;
        assert_eq!(count(&admin, "SELECT count(*) FROM app.climbed WHERE id = 8 AND k = 8").await, 1);
        let tried = rows(&admin, "SELECT DISTINCT what, state FROM app.tried ORDER BY 1").await;
        assert_eq!(tried.len(), 9, "{tried:?}");
        assert!(tried.iter().all(|r| r[1].as_deref() != Some("done")), "{tried:?}");
        run(&admin, "BEGIN; SELECT pgtrickle.refresh_stream_table('app.climbed'); COMMIT").await;
        assert_eq!(
            rows(&admin, "SELECT current_user, session_user").await,
            [[Some("postgres".into()), Some("postgres".into())]]
        );
        // A process of the server refreshes on schedule.
        run(&app, "SELECT pgtrickle.alter_stream_table('climbed', schedule => '1s'); TRUNCATE tried; UPDATE t SET k = 9 WHERE id = 8").await;
        until(&admin, "SELECT count(*) FROM app.climbed WHERE id = 8 AND k = 9", 1).await;
        assert_eq!(count(&admin, "SELECT count(*) FROM app.tried WHERE state = 'done'").await, 0);
        assert_eq!(count(&admin, "SELECT count(*) FROM secret.loot").await, 0);
        assert_eq!(
            count(&admin, "SELECT count(*) FROM pg_roles WHERE rolname = 'app' AND rolsuper").await,
            0
        );
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn no_role_writes_catalog_rows_of_another() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "rows").await;
        run(
            &admin,
            "CREATE TABLE mine (id int PRIMARY KEY, v int); \
                     SELECT pgtrickle.create_stream_table('own', 'SELECT id, v FROM mine', '1s')",
        )
        .await;
        let own = "(SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'own')";
        for refusal in [
            format!(
                "UPDATE pgtrickle.pgt_stream_tables SET defining_query = 'SELECT app.evil()' WHERE pgt_id = {own}"
            ),
            format!("DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_id = {own}"),
            format!("DELETE FROM pgtrickle.pgt_dependencies WHERE pgt_id = {own}"),
            format!("DELETE FROM pgtrickle.pgt_refresh_history WHERE pgt_id = {own}"),
            "UPDATE pgtrickle.pgt_buffers SET capture = 'HELD' WHERE source_relid = 'public.mine'::regclass"
                .into(),
            "DELETE FROM pgtrickle.pgt_buffers WHERE source_relid = 'public.mine'::regclass".into(),
            "UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = 'public.mine'::regclass".to_owned(),
            "INSERT INTO pgtrickle.pgt_stream_tables (pgt_relid, pgt_schema, pgt_name, defining_query, original_query, refresh_mode, requested_mode) \
             VALUES ('public.mine'::regclass, 'x', 'y', 'SELECT 1', 'SELECT 1', 'FULL', 'FULL')".into(),
            "INSERT INTO pgtrickle.pgt_stream_tables (pgt_relid, pgt_schema, pgt_name, defining_query, original_query, refresh_mode, requested_mode) \
             VALUES (99999999, 'x', 'y', 'SELECT 1', 'SELECT 1', 'FULL', 'FULL')".into(),
            format!("INSERT INTO pgtrickle.pgt_dependencies (pgt_id, source_relid, source_type, source_schema, source_name, schema_fingerprint) \
             SELECT {own}, 't'::regclass, 'TABLE', 'app', 't', ''"),
            "UPDATE pgtrickle.pgt_catalog_version SET version = 7".into(),
            "SELECT pgtrickle.refresh_stream_table('public.own')".into(),
            "SELECT pgtrickle.drop_stream_table('public.own')".into(),
            "SELECT pgtrickle.alter_stream_table('public.own', schedule => '2s')".into(),
            "SELECT pgtrickle.alter_stream_table('public.own', status => 'SUSPENDED')".into(),
            "SELECT pgtrickle.repair_stream_table('public.own')".into(),
            "SELECT pgtrickle.create_stream_table('stolen', 'SELECT * FROM public.mine')".into(),
            "SELECT * FROM pgtrickle_changes.changes_1".replace("1", &count(&admin, "SELECT 'public.mine'::regclass::oid::int8").await.to_string()),
        ] {
            let (code, said) = refused(&app, &refusal).await;
            assert!(["42501", "22023"].contains(&&*code), "{code} {said}: {refusal}");
        }
        // A role has no rights in the catalog before `grant_to` or after `revoke_from`.
        run(&admin, "CREATE ROLE guest; CREATE SCHEMA guest AUTHORIZATION guest").await;
        let guest = connect(&server, "postgres").await;
        run(&guest, "SET ROLE guest; SET search_path = guest; CREATE TABLE g (id int PRIMARY KEY)").await;
        assert_eq!(refused(&guest, "TABLE pgtrickle.pgt_stream_tables").await.0, "42501");
        run(&admin, "GRANT USAGE ON SCHEMA pgtrickle TO guest").await;
        let (code, said) =
            refused(&guest, "SELECT pgtrickle.create_stream_table('c', 'SELECT id FROM g')").await;
        assert!(code == "42501" && said.contains("grant_to"), "{code} {said}");
        run(&admin, "SELECT pgtrickle.revoke_from('app')").await;
        assert_eq!(refused(&app, "TABLE pgtrickle.pgt_stream_tables").await.0, "42501");
        run(&admin, "INSERT INTO mine VALUES (1, 1)").await;
        until(&admin, "SELECT count(*) FROM own", 1).await;
        server.stop();
    });
}

/// Two roles read one table. When one role drains the buffer, the changes that the other role's stream table
/// has not applied stay. When one role makes the triggers again, the stream table of the other role is
/// recomputed.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn two_roles_that_read_one_table_lose_no_changes() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "both").await;
        run(&admin, "CREATE ROLE report; GRANT app TO report; CREATE SCHEMA report AUTHORIZATION report; SELECT pgtrickle.grant_to('report')").await;
        let report = connect(&server, "postgres").await;
        run(&report, "SET ROLE report; SET search_path = report; \
                      SELECT pgtrickle.create_stream_table('sums', 'SELECT k, sum(k) AS s FROM app.t GROUP BY k', '1h')")
            .await;
        let stale = "SELECT count(*) FROM ((SELECT k, sum(k) AS s FROM app.t GROUP BY k) EXCEPT ALL TABLE report.sums) x";
        let mode = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'sums' AND refresh_mode = 'DIFFERENTIAL'";
        assert_eq!(count(&report, mode).await, 1);
        for change in [
            "UPDATE t SET k = 7 WHERE id < 9",
            "DELETE FROM t WHERE id > 25",
            "INSERT INTO t SELECT i, 5 FROM generate_series(100, 900) i",
        ] {
            run(&app, change).await;
            until(&admin, STALE, 0).await;
            run(&app, "SELECT pgtrickle.refresh_stream_table('counts')").await;
        }
        assert_ne!(count(&admin, stale).await, 0);
        run(&report, "SELECT pgtrickle.refresh_stream_table('sums')").await;
        assert_eq!(count(&admin, stale).await, 0);
        run(&app, "UPDATE t SET k = 8 WHERE id < 20; SET pg_trickle.cdc_trigger_mode = row; SELECT pgtrickle.rebuild_cdc_triggers()").await;
        until(&admin, STALE, 0).await;
        run(&report, "SELECT pgtrickle.refresh_stream_table('sums')").await;
        assert_eq!(count(&admin, stale).await, 0);
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn row_security_of_the_owner_holds_whoever_refreshes() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "rls").await;
        run(&admin, "CREATE TABLE all_rows (id int PRIMARY KEY, whose name); ALTER TABLE all_rows ENABLE ROW LEVEL SECURITY; \
                     CREATE POLICY own ON all_rows USING (whose = current_user); GRANT SELECT ON all_rows TO app; \
                     INSERT INTO all_rows VALUES (1, 'app'), (2, 'postgres')")
            .await;
        run(&app, "SELECT pgtrickle.create_stream_table('seen', 'SELECT id FROM public.all_rows', '1s')")
            .await;
        assert_eq!(count(&admin, "SELECT sum(id) FROM app.seen").await, 1);
        run(&admin, "INSERT INTO all_rows VALUES (3, 'app'), (4, 'postgres')").await;
        until(&admin, "SELECT sum(id) FROM app.seen", 4).await;
        run(&app, "SELECT pgtrickle.pause_scheduler()").await;
        run(&admin, "INSERT INTO all_rows VALUES (5, 'app'), (6, 'postgres')").await;
        run(&admin, "SELECT pgtrickle.refresh_stream_table('app.seen')").await;
        assert_eq!(count(&admin, "SELECT sum(id) FROM app.seen").await, 9);
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_role_with_maintain_may_refresh() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "maintain").await;
        run(&app, "SELECT pgtrickle.pause_scheduler(); UPDATE t SET k = 5").await;
        run(
            &admin,
            "CREATE ROLE keeper; GRANT USAGE ON SCHEMA app TO keeper; SELECT pgtrickle.grant_to('keeper')",
        )
        .await;
        let keeper = connect(&server, "postgres").await;
        run(&keeper, "SET ROLE keeper").await;
        let refresh = "SELECT pgtrickle.refresh_stream_table('app.counts')";
        let (_, said) = refused(&keeper, refresh).await;
        assert!(said.contains("belongs to app"), "{said}");
        if count(&admin, "SELECT current_setting('server_version_num')::int8").await >= 170_000 {
            run(&app, "GRANT MAINTAIN ON counts TO keeper").await;
            run(&keeper, refresh).await;
            assert_eq!(count(&admin, STALE).await, 0);
            let (_, said) = refused(&keeper, "SELECT pgtrickle.drop_stream_table('app.counts')").await;
            assert!(said.contains("belongs to app"), "{said}");
        }
        run(&admin, "GRANT app TO keeper; UPDATE app.t SET k = 6").await;
        run(&keeper, refresh).await;
        assert_eq!(count(&admin, STALE).await, 0);
        server.stop();
    });
}

/// Event triggers act as the owner of the extension, and refreshes act as the stream table's owner. Neither
/// calls a function that the caller has in its temporary schema or first in its search_path.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn functions_first_in_the_callers_path_are_not_called() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "shadow").await;
        run(
            &admin,
            "CREATE TABLE caught (who name); GRANT INSERT ON caught TO PUBLIC; CREATE ROLE keeper LOGIN; \
                     GRANT USAGE ON SCHEMA app TO keeper; SELECT pgtrickle.grant_to('keeper'); \
                     CREATE SCHEMA keeper AUTHORIZATION keeper; GRANT USAGE ON SCHEMA keeper TO PUBLIC",
        )
        .await;
        let traps = |schema: &str| {
            format!(
                "CREATE FUNCTION {schema}.f(name) RETURNS name LANGUAGE plpgsql AS \
                     $$BEGIN INSERT INTO public.caught VALUES (current_user); RETURN $1; END$$; \
                 CREATE VIEW {schema}.pg_class AS SELECT oid, {schema}.f(relname) AS relname, relnamespace, relkind, relowner \
                     FROM pg_catalog.pg_class; \
                 CREATE FUNCTION {schema}.yes(pg_catalog.text) RETURNS bool LANGUAGE plpgsql AS \
                     $$BEGIN INSERT INTO public.caught VALUES (current_user); RETURN true; END$$; \
                 CREATE DOMAIN {schema}.text AS pg_catalog.text CHECK ({schema}.yes(VALUE)); \
                 GRANT ALL ON {schema}.pg_class TO PUBLIC"
            )
        };
        let others = "SELECT count(*) FROM caught WHERE who <> 'app'";
        run(
            &app,
            "SELECT pgtrickle.create_stream_table('kept', 'SELECT k, sum(id) AS s FROM t GROUP BY k', NULL)",
        )
        .await;
        let own = Session::connect(server.config("postgres").user("app")).await.unwrap();
        run(&own, &traps("pg_temp")).await;
        for change in [
            "ALTER TABLE app.t ADD COLUMN z int",
            "ALTER TABLE app.t RENAME COLUMN z TO y",
            "DROP TABLE app.counts",
        ] {
            run(&own, change).await;
            assert_eq!(count(&admin, others).await, 0, "{change}");
        }
        if count(&admin, "SELECT current_setting('server_version_num')::int8").await >= 170_000 {
            run(&app, "GRANT MAINTAIN ON kept TO keeper; UPDATE t SET k = k + 1").await;
            let keeper = Session::connect(server.config("postgres").user("keeper")).await.unwrap();
            run(&keeper, &traps("keeper")).await;
            run(&keeper, "SET search_path = keeper, pg_catalog").await;
            let owners = "SELECT count(*) FROM caught WHERE who NOT IN ('keeper')";
            let before = count(&admin, owners).await;
            run(&keeper, "SELECT pgtrickle.refresh_stream_table('app.kept')").await;
            assert_eq!(count(&admin, owners).await, before);
            let stale =
                "SELECT count(*) FROM (SELECT k, sum(id) FROM app.t GROUP BY k EXCEPT TABLE app.kept) x";
            assert_eq!(count(&admin, stale).await, 0);
        }
        server.stop();
    });
}

/// A role with USAGE on the language `pgtrickle_copy` can create functions that copy rows. Such a function
/// writes only tables that its owner may write.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn copy_functions_write_only_tables_that_their_owner_may_write() {
    todays_version(async |binaries| {
        let (_server, admin, app) = let_in(binaries, "copied").await;
        run(&admin, "CREATE TABLE secret (xid xid8, w int2, id int, k int); CREATE ROLE nobody; GRANT CREATE ON SCHEMA public TO PUBLIC; \
                GRANT USAGE ON LANGUAGE pgtrickle_copy TO app")
            .await;
        let script = |table: &str| {
            format!(
                "CREATE OR REPLACE FUNCTION app.steal() RETURNS trigger LANGUAGE pgtrickle_copy SECURITY DEFINER AS $$\
                 {{\"segment\": [\"public\", \"{table}\"], \"columns\": [[\"id\", \"id\"], [\"k\", \"k\"]], \
                 \"limit\": 1000000, \"copy\": \"INSERT INTO public.{table} (w, id, k) SELECT 1, id, k FROM n\", \"mark\": \"\"}}$$"
            )
        };
        run(&app, &script("secret")).await;
        run(&app, "CREATE TRIGGER steal AFTER INSERT ON app.t REFERENCING NEW TABLE AS n EXECUTE FUNCTION app.steal()").await;
        assert_eq!(refused(&app, "INSERT INTO app.t VALUES (100, 1)").await.0, "42501");
        assert_eq!(count(&admin, "SELECT count(*) FROM secret").await, 0);
        run(&app, "CREATE TABLE public.own (xid xid8, w int2, id int, k int)").await;
        run(&app, &script("own")).await;
        run(&app, "INSERT INTO app.t VALUES (100, 1)").await;
        assert_eq!(
            count(&app, "SELECT count(*) FROM public.own WHERE w = 1 AND id = 100 AND xid IS NOT NULL").await,
            1
        );
        for wrong in ["", "{}", "{\"segment\": 5}", "SELECT 1"] {
            run(&app, &format!("CREATE OR REPLACE FUNCTION app.steal() RETURNS trigger LANGUAGE pgtrickle_copy AS $${wrong}$$")).await;
            let (code, message) = refused(&app, "INSERT INTO app.t VALUES (101, 1)").await;
            assert!(code == "39P01" && message.contains("cannot copy"), "{code} {message}");
        }
        run(
            &app,
            "DROP TRIGGER steal ON app.t; CREATE FUNCTION app.f() RETURNS int LANGUAGE pgtrickle_copy AS ''",
        )
        .await;
        assert_eq!(refused(&app, "SELECT app.f()").await.0, "39P01");
        run(&app, &script("own")).await;
        for trigger in
            ["BEFORE INSERT ON app.t", "AFTER INSERT ON app.t FOR EACH ROW", "AFTER INSERT ON app.t"]
        {
            run(&app, &format!("CREATE TRIGGER steal {trigger} EXECUTE FUNCTION app.steal()")).await;
            assert_eq!(refused(&app, "INSERT INTO app.t VALUES (102, 1)").await.0, "39P01", "{trigger}");
            run(&app, "DROP TRIGGER steal ON app.t").await;
        }
        run(&admin, "SET ROLE nobody").await;
        let make = "CREATE FUNCTION public.g() RETURNS trigger LANGUAGE pgtrickle_copy AS ''";
        assert_eq!(refused(&admin, make).await.0, "42501");
    });
}

/// Operators and functions that come before the server's own in the search_path. Each operator or function
/// notes the role as which it ran.
const SHADOWS: &str = r#"
CREATE TABLE evil.ran (who text, what text); GRANT INSERT ON evil.ran TO PUBLIC; GRANT USAGE ON SCHEMA evil TO PUBLIC;
DO $do$
DECLARE o record; name text; n int := 0;
BEGIN
    FOR o IN SELECT oprname, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS res FROM pg_operator
        WHERE oprname IN ('=', '<>', '<', '<=', '>', '>=', '+', '-', '*', '/') AND oprleft <> 0
        AND oprleft::regtype::text = ANY ('{smallint,integer,bigint,xid8,tid,text,boolean,pg_snapshot}')
        AND oprright::regtype::text = ANY ('{smallint,integer,bigint,xid8,tid,text,boolean,pg_snapshot}')
    LOOP
        n := n + 1;
        EXECUTE format('CREATE FUNCTION evil.f%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS '
            '$f$ BEGIN INSERT INTO evil.ran VALUES (current_user, %L); RETURN NULL; END $f$', n, o.l, o.r, o.res, o.oprname);
        EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.f%s)', o.oprname, o.l, o.r, n);
    END LOOP;
    FOR o IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args, p.prorettype::regtype AS res FROM pg_proc p
        WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset AND provariadic = 0
        AND pg_get_function_identity_arguments(p.oid) !~ 'any|internal|cstring' AND proname IN
        ('pg_current_xact_id', 'pg_relation_size', 'current_setting', 'pg_visible_in_snapshot', 'pg_current_snapshot', 'ctid_block',
         'pg_relation_filenode', 'format', 'pg_table_size', 'pg_column_size', 'set_config', 'abs', 'int8', 'int4')
    LOOP
        EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS '
            '$f$ BEGIN INSERT INTO evil.ran VALUES (current_user, %L); RETURN NULL; END $f$', o.proname, o.args, o.res, o.proname);
    END LOOP;
END $do$"#;

/// A write to a table fires its capture triggers, which run with the rights of the catalog's owner. The
/// triggers never call functions that the writing role put before the server's own.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn capture_runs_no_functions_first_in_the_writers_path() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "writers").await;
        run(&admin, "CREATE ROLE guest LOGIN; CREATE SCHEMA evil AUTHORIZATION guest").await;
        run(&app, "GRANT USAGE ON SCHEMA app TO guest; GRANT SELECT, INSERT, UPDATE, TRUNCATE ON t TO guest")
            .await;
        run(&app, "SELECT pgtrickle.create_stream_table('kept', 'SELECT k, sum(id) AS s FROM t GROUP BY k', refresh_mode => 'IMMEDIATE')").await;
        // A refresh on schedule would drop segments that the test alters.
        run(&app, "SELECT pgtrickle.pause_scheduler(ARRAY['counts'])").await;
        let guest = Session::connect(server.config("postgres").user("guest")).await.unwrap();
        run(&guest, SHADOWS).await;
        run(&guest, "SET search_path = evil, pg_catalog; SELECT 1 = 2, pg_current_xact_id()").await;
        let ran =
            async |whose: &str| count(&admin, &format!("SELECT count(*) FROM evil.ran WHERE {whose}")).await;
        assert_eq!(ran("who = 'guest'").await, 2, "the names are found first");
        let mut id = 1000;
        let mut write = async || {
            id += 1;
            run(&guest, &format!("INSERT INTO app.t VALUES ({id}, 5); UPDATE app.t SET k = 6")).await;
        };
        write().await;
        // The segment has an index, so the trigger writes the segment by a statement.
        let index = "DO $$ BEGIN EXECUTE (SELECT format('CREATE INDEX ON %s (w)', c.oid::regclass) FROM pg_class c \
             WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relkind = 'r' AND relname LIKE 'changes%' ORDER BY oid DESC LIMIT 1); END $$";
        run(&admin, index).await;
        write().await;
        // At the limit of the buffer the trigger writes a mark for the source, by another statement.
        run(&admin, "UPDATE pgtrickle.pgt_catalog_version SET buffer_limit_bytes = 1").await;
        run(&app, "SELECT pgtrickle.refresh_stream_table('counts')").await;
        for _ in 0..3 {
            write().await;
        }
        run(
            &app,
            "SET pg_trickle.native_capture = off; SELECT count(*) FROM pgtrickle.rebuild_cdc_triggers()",
        )
        .await;
        for _ in 0..3 {
            write().await;
        }
        run(&guest, "TRUNCATE app.t").await;
        write().await;
        assert_eq!(ran("who <> 'guest'").await, 0);
        run(&app, "SELECT pgtrickle.refresh_stream_table('counts')").await;
        assert_eq!(count(&admin, STALE).await, 0);
        server.stop();
    });
}
