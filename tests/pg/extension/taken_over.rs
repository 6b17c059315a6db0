//! An ordinary role made a catalog. A superuser takes the catalog over, so that the extension adopts it. The
//! tests catch code of the former owner that runs with a superuser's rights. The tests also catch stream
//! tables that are recomputed, or that are not refreshed after the take-over.

use super::rows;
use crate::support::private::{connect, start, todays_version};
use crate::support::{Driver, assert_same_bag, count, create, planted, run};
use std::path::Path;
use std::process::Output;
use trickle_client::schema::VERSION;
use trickle_client::throwaway::Server;
use trickle_client::{Session, Settings, Trickle};
use trickle_core::cost::Force;

const COUNTS: &str = "SELECT k, count(*) AS n FROM t GROUP BY k";

async fn session(server: &Server, user: &str) -> Session {
    Session::connect(server.config("postgres").user(user)).await.unwrap()
}

async fn attached(server: &Server, user: &str) -> Driver {
    let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
    Driver::of(Trickle::attach(session(server, user).await, settings).await.unwrap())
}

/// Starts a server where the role `app`, which is no superuser, has made the catalog and two stream tables.
async fn made(binaries: &Path, name: &str) -> (Server, Session, Driver) {
    let server = start(binaries, name).await;
    let admin = connect(&server, "postgres").await;
    run(
        &admin,
        "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app; CREATE SCHEMA app AUTHORIZATION app; \
         ALTER ROLE app SET search_path = app; CREATE ROLE guest LOGIN",
    )
    .await;
    let mut t = attached(&server, "app").await;
    t.init().await.unwrap();
    let s = session(&server, "app").await;
    run(&s, "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 30) i").await;
    create(&mut t, "counts", COUNTS).await;
    create(&mut t, "many", "SELECT k FROM counts WHERE n > 10").await;
    (server, admin, t)
}

/// Runs the program as a role.
fn program(server: &Server, user: &str, args: &[&str]) -> Output {
    let to = format!("host={} user={user} dbname=postgres", server.directory().display());
    planted::output(planted::program().args(args).args(["--database-url", &to]))
}

/// A query for the OID, file and owner of each relation in the role's schema.
const STORED: &str =
    "SELECT oid, relfilenode, relowner::regrole FROM pg_class WHERE relnamespace = 'app'::regnamespace";

const CHANGE: &str = "UPDATE app.t SET k = (k + 1) % 4 WHERE id % 5 = 0; DELETE FROM app.t WHERE id = (SELECT min(id) FROM app.t)";

/// Asserts that the role can write and refresh by the functions of the extension, and that its stream tables
/// equal their queries.
async fn follows(app: &Session) {
    run(app, CHANGE).await;
    run(app, "SELECT pgtrickle.refresh_stream_table('many')").await;
    for (table, query) in [("counts", COUNTS), ("many", "SELECT k FROM t GROUP BY k HAVING count(*) > 10")] {
        assert_same_bag(app, &format!("TABLE {table}"), query).await;
    }
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_catalog_of_an_ordinary_role_is_taken_over_and_adopted() {
    todays_version(async |binaries| {
        let (server, admin, _) = made(binaries, "takes").await;
        let app = session(&server, "app").await;
        let refused = admin.client().batch_execute("CREATE EXTENSION pg_trickle").await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert!(refused.message().contains("belongs to app"), "{refused:?}");
        assert!(refused.hint().unwrap_or_default().contains("trickle init --take-over"), "{refused:?}");
        let ran = program(&server, "app", &["init", "--take-over"]);
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        let stored = rows(&admin, STORED).await;
        let ran = program(&server, "postgres", &["init", "--take-over", "--json"]);
        let told: serde_json::Value =
            serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        assert_eq!(told["taken_over_from"], serde_json::json!(["app"]));
        // A second take-over changes nothing and succeeds.
        assert!(program(&server, "postgres", &["init", "--take-over"]).status.success());
        run(&admin, "CREATE EXTENSION pg_trickle").await;
        follows(&app).await;
        run(&app, &format!("SET pg_trickle.refresh_strategy = 'differential'; {CHANGE}")).await;
        run(&app, "SELECT pgtrickle.refresh_stream_table('many')").await;
        let stale = format!("SELECT count(*) FROM ({COUNTS} EXCEPT ALL TABLE counts) x");
        assert_eq!(count(&app, &stale).await, 0);
        assert_eq!(rows(&admin, STORED).await, stored);
        let anew = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE initiated_by <> 'INITIAL' AND action <> 'DIFFERENTIAL'";
        assert_eq!(count(&admin, anew).await, 0);
        run(&app, "SELECT pgtrickle.create_stream_table('more', 'SELECT id FROM t'); SELECT pgtrickle.drop_stream_table('more')").await;
        run(&admin, "SELECT pgtrickle.release_catalog(); DROP EXTENSION pg_trickle").await;
        // The hidden objects belong to the superuser, so the program cannot refresh as the role. The
        // extension can adopt the catalog again.
        let ran = program(&server, "app", &["refresh", "many"]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && said.contains("belongs to"), "{said}");
        run(&admin, "CREATE EXTENSION pg_trickle").await;
        follows(&app).await;
        assert_eq!(rows(&admin, STORED).await, stored);
        run(&app, "SELECT pgtrickle.drop_stream_table('counts', true)").await;
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn taking_over_an_older_catalog_upgrades_it() {
    todays_version(async |binaries| {
        let (server, admin, mut t) = made(binaries, "elder").await;
        t.migrate(1).await.unwrap();
        let ran = program(&server, "postgres", &["init", "--take-over"]);
        assert!(ran.status.success(), "{ran:?}");
        let version = count(&admin, "SELECT version::int8 FROM pgtrickle.pgt_catalog_version").await;
        assert_eq!(version, i64::from(VERSION));
        run(&admin, "CREATE EXTENSION pg_trickle").await;
        follows(&session(&server, "app").await).await;
        server.stop();
    });
}

/// Objects that the catalog's owner could leave in the catalog. Each entry has the object's name in the
/// error, and a statement that removes the object.
const LEFT: [(&str, &str, &str); 12] = [
    (
        "CREATE TRIGGER evil BEFORE UPDATE ON pgtrickle.pgt_stream_tables FOR EACH ROW EXECUTE FUNCTION app.evil()",
        "trigger evil on pgtrickle.pgt_stream_tables",
        "DROP TRIGGER evil ON pgtrickle.pgt_stream_tables",
    ),
    (
        "CREATE RULE evil AS ON UPDATE TO pgtrickle.pgt_buffers DO ALSO SELECT app.f(1)",
        "rule evil on pgtrickle.pgt_buffers",
        "DROP RULE evil ON pgtrickle.pgt_buffers",
    ),
    (
        "CREATE POLICY evil ON pgtrickle.pgt_buffers USING (app.f(1) = 1)",
        "policy evil on pgtrickle.pgt_buffers",
        "DROP POLICY evil ON pgtrickle.pgt_buffers",
    ),
    (
        "ALTER TABLE pgtrickle.pgt_buffers ALTER generation SET DEFAULT app.f(1)",
        "column generation of pgtrickle.pgt_buffers",
        "ALTER TABLE pgtrickle.pgt_buffers ALTER generation DROP DEFAULT",
    ),
    (
        "ALTER TABLE pgtrickle.pgt_buffers ADD CONSTRAINT evil CHECK (app.f(generation) > 0)",
        "constraint evil on pgtrickle.pgt_buffers",
        "ALTER TABLE pgtrickle.pgt_buffers DROP CONSTRAINT evil",
    ),
    (
        "CREATE INDEX evil ON pgtrickle.pgt_buffers (app.f(generation))",
        "index pgtrickle.evil",
        "DROP INDEX pgtrickle.evil",
    ),
    (
        "CREATE STATISTICS app.evil ON (app.f(generation)), trigger_mode FROM pgtrickle.pgt_buffers",
        "statistics evil on pgtrickle.pgt_buffers",
        "DROP STATISTICS app.evil",
    ),
    (
        "CREATE FUNCTION pgtrickle.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "function pgtrickle.evil()",
        "DROP FUNCTION pgtrickle.evil()",
    ),
    ("CREATE VIEW pgtrickle.evil AS SELECT 1 AS x", "view pgtrickle.evil", "DROP VIEW pgtrickle.evil"),
    (
        "CREATE TABLE app.evil () INHERITS (pgtrickle.pgt_buffers)",
        "pgtrickle.pgt_buffers of kind",
        "DROP TABLE app.evil",
    ),
    (
        "ALTER TABLE pgtrickle.pgt_buffers DISABLE ROW LEVEL SECURITY",
        "pgtrickle.pgt_buffers of kind",
        "ALTER TABLE pgtrickle.pgt_buffers ENABLE ROW LEVEL SECURITY",
    ),
    (
        "GRANT TRIGGER ON pgtrickle.pgt_buffers TO PUBLIC",
        "TRIGGER for PUBLIC on pgtrickle.pgt_buffers",
        "REVOKE TRIGGER ON pgtrickle.pgt_buffers FROM PUBLIC",
    ),
];

/// A query for the roles that own an object of the catalog.
const OWNERS: &str = "SELECT DISTINCT o::regrole::text FROM (SELECT nspowner FROM pg_namespace WHERE nspname LIKE 'pgtrickle%' \
    UNION SELECT relowner FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace \
    UNION SELECT proowner FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace) x(o)";

/// A query for the definitions of the catalog's functions.
const FUNCTIONS: &str =
    "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace";

#[test]
#[ignore = "needs the extension: ./x extension"]
fn nothing_of_its_former_owner_is_run_by_a_superuser() {
    todays_version(async |binaries| {
        let (server, admin, _) = made(binaries, "strange").await;
        let app = session(&server, "app").await;
        run(
            &app,
            "CREATE TABLE ran (who text); \
             CREATE FUNCTION f(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN IF current_user <> 'app' THEN \
                 INSERT INTO app.ran VALUES (current_user); END IF; RETURN x; END $$; \
             CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM app.f(1); RETURN NEW; END $$",
        )
        .await;
        let functions = rows(&admin, FUNCTIONS).await;
        let mut s = attached(&server, "postgres").await;
        for (left, said, undo) in LEFT {
            run(&app, left).await;
            let refused = s.take_catalog().await.expect_err(left);
            assert!(refused.is_input(), "{left}: {refused}");
            assert!(refused.detail_text().unwrap_or_default().contains(said), "{left}: {refused}");
            assert_eq!(rows(&admin, OWNERS).await, [[Some("app".to_owned())]], "{left}");
            run(&app, undo).await;
        }
        // The role forges a catalog row. The row names a table of another role as the role's stream table.
        run(&admin, "CREATE TABLE public.mine (k int, n bigint)").await;
        let forged = "UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = CASE WHEN pgt_relid = $1 THEN $2 ELSE $1 END WHERE pgt_name = 'many'";
        let oid = async |table| {
            u32::try_from(count(&admin, &format!("SELECT '{table}'::regclass::oid::int8")).await).unwrap()
        };
        let (many, mine) = (oid("app.many").await, oid("public.mine").await);
        app.client().execute(forged, &[&many, &mine]).await.unwrap();
        let refused = s.take_catalog().await.unwrap_err();
        assert!(refused.detail_text().unwrap_or_default().contains("public.mine"), "{refused}");
        app.client().execute(forged, &[&many, &mine]).await.unwrap();
        // A take-over makes the bodies of functions again. The take-over leaves only the rights that
        // `grant_to` gives.
        run(
            &app,
            "CREATE OR REPLACE FUNCTION pgtrickle.home() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN PERFORM app.f(1); RETURN 'x'; END $$; \
             GRANT TRIGGER ON pgtrickle.pgt_buffers TO guest; GRANT CREATE ON SCHEMA pgtrickle TO guest WITH GRANT OPTION",
        )
        .await;
        assert_eq!(s.take_catalog().await.unwrap(), ["app"]);
        assert_eq!(rows(&admin, FUNCTIONS).await, functions);
        assert_eq!(rows(&admin, OWNERS).await, [[Some("postgres".to_owned())]]);
        let guest = "SELECT count(*) FROM (SELECT has_table_privilege('guest', 'pgtrickle.pgt_buffers', 'TRIGGER')) x(may) \
             WHERE may OR has_schema_privilege('guest', 'pgtrickle', 'CREATE') OR has_schema_privilege('app', 'pgtrickle', 'CREATE')";
        assert_eq!(count(&admin, guest).await, 0);
        s.init().await.unwrap();
        run(&admin, "CREATE EXTENSION pg_trickle").await;
        follows(&app).await;
        run(&admin, "SELECT pgtrickle.refresh_stream_table('app.many'), pgtrickle.rehome()").await;
        assert_eq!(count(&admin, "SELECT count(*) FROM app.ran").await, 0);
        server.stop();
    });
}
