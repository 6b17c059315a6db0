//! The triggers of an IMMEDIATE stream table run as its owner. The owner loses rights on functions and
//! schemas that these triggers name. Some tests also use snapshots that are older than the named objects. The
//! tests catch writers that fail because of another role's rights, and rows that are missing without an
//! error.

use crate::program::Role;
use crate::support::{Db, Driver, count, name, open, run, todays_server, try_refresh};
use trickle_client::{NewStreamTable, RefreshMode, Settings};

const TABLES: &str = "
    CREATE SCHEMA lib; CREATE SCHEMA shown; CREATE SCHEMA kept AUTHORIZATION APP;
    GRANT USAGE ON SCHEMA lib, shown TO APP; GRANT CREATE ON SCHEMA shown TO APP;
    CREATE TYPE lib.mood AS ENUM ('low', 'high'); CREATE COLLATION lib.plain (provider = libc, locale = 'C');
    CREATE FUNCTION lib.inner_one(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 3;
    CREATE FUNCTION lib.twice(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN lib.inner_one(i) - i;
    CREATE FUNCTION lib.above(a int, b int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN a > b; END';
    CREATE OPERATOR lib.>>> (LEFTARG = int, RIGHTARG = int, FUNCTION = lib.above);
    SET SESSION AUTHORIZATION APP;
    CREATE TABLE kept.t (id int PRIMARY KEY, v int NOT NULL, w text);
    INSERT INTO kept.t SELECT i, i % 5, 'w' || i FROM generate_series(1, 9) i;
    RESET SESSION AUTHORIZATION";

const QUERIES: [&str; 5] = [
    "SELECT id, v FROM kept.t WHERE v > 1",
    "SELECT id, lib.twice(v) AS d FROM kept.t",
    "SELECT v, count(*) AS n FROM kept.t WHERE v OPERATOR(lib.>>>) 1 GROUP BY v",
    "SELECT id, (CASE WHEN v > 2 THEN 'high' ELSE 'low' END)::lib.mood AS m FROM kept.t",
    "SELECT id, w FROM kept.t WHERE w COLLATE lib.plain > 'w2'",
];

/// Statements that take a right from the owner, each with the statement that gives the right back.
const LOSSES: [(&str, &str); 5] = [
    ("REVOKE USAGE ON SCHEMA lib FROM APP", "GRANT USAGE ON SCHEMA lib TO APP"),
    ("REVOKE USAGE ON SCHEMA shown FROM APP", "GRANT USAGE ON SCHEMA shown TO APP"),
    (
        "REVOKE EXECUTE ON FUNCTION lib.twice(int) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION lib.twice(int) TO APP",
    ),
    (
        "REVOKE EXECUTE ON FUNCTION lib.inner_one(int) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION lib.inner_one(int) TO APP",
    ),
    (
        "REVOKE EXECUTE ON FUNCTION lib.above(int, int) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION lib.above(int, int) TO APP",
    ),
];

const WRITES: [&str; 4] = [
    "INSERT INTO kept.t SELECT max(id) + 1, 4, 'w3' FROM kept.t",
    "UPDATE kept.t SET v = (v + 1) % 5, w = 'w4' WHERE id % 3 = 0",
    "DELETE FROM kept.t WHERE id = (SELECT min(id) FROM kept.t)",
    "TRUNCATE kept.t",
];

async fn admin(db: &Db, owner: &Role, sql: &str) {
    let s = db.session().await;
    run(&s, &sql.replace("APP", &owner.name)).await;
}

#[test]
fn writers_go_on_where_an_owner_loses_a_right() {
    todays_server(async |db| {
        let owner = Role::owner(db).await;
        owner.does(&["init", "--quiet"]);
        admin(db, &owner, TABLES).await;
        let s = db.session().await;
        for (lost, back) in LOSSES {
            for query in QUERIES {
                let made = ["create", "shown.v", "--query", query, "--mode", "immediate", "--quiet"]
                    .map(str::to_owned);
                let made = owner.trickle(&made.each_ref().map(String::as_str));
                assert_eq!(made.code, 0, "{query}: {}", made.err);
                run(&s, WRITES[0]).await;
                admin(db, &owner, lost).await;
                // One session planned the triggers before the loss, and a new session never planned them.
                for write in WRITES {
                    let new = db.session().await;
                    for s in [&s, &new] {
                        let done = s.client().batch_execute(write).await;
                        assert!(done.is_ok(), "{lost}, {query}, {write}: {done:?}");
                    }
                }
                admin(db, &owner, back).await;
                run(&s, "INSERT INTO kept.t SELECT i, i % 5, 'w' || i FROM generate_series(1, 9) i").await;
                owner.does(&["refresh", "shown.v", "--quiet"]);
                owner.does(&["check", "shown.v", "--quiet"]);
                run(&s, WRITES[1]).await;
                owner.does(&["check", "shown.v", "--quiet"]);
                owner.does(&["drop", "shown.v", "--quiet"]);
            }
        }
    });
}

/// When a session makes triggers again, the triggers must check the rights that their owner has at that time.
#[test]
fn triggers_made_again_ask_for_the_rights_of_now() {
    todays_server(async |db| {
        // With the extension this role does not own the catalog. So it could not switch capture off through
        // the library.
        if Driver::is_the_servers() {
            return;
        }
        let role = Role::create(db, "keeper").await.name;
        let s = db.session().await;
        run(
            &s,
            &format!(
                "CREATE SCHEMA lib; CREATE SCHEMA behind; CREATE SCHEMA kept AUTHORIZATION {role}; GRANT USAGE ON SCHEMA lib, behind TO {role}; \
                 CREATE FUNCTION behind.three(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 3; \
                 CREATE FUNCTION lib.six(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN behind.three(i) * 2; \
                 SET SESSION AUTHORIZATION {role}; CREATE TABLE kept.t (id int PRIMARY KEY, v int); RESET SESSION AUTHORIZATION"
            ),
        )
        .await;
        let mut t = Driver::open_as(db, &role, Settings::default()).await;
        let query = "SELECT id, lib.six(v) AS d FROM kept.t";
        let new = NewStreamTable {
            mode: Some(RefreshMode::Immediate),
            ..NewStreamTable::new(name("kept.v"), query)
        };
        t.create(&new).await.unwrap();
        run(&s, "INSERT INTO kept.t VALUES (1, 1)").await;
        assert_eq!(count(&s, "SELECT count(*) FROM kept.v WHERE d = 6").await, 1);
        t.disable(&name("kept.t")).await.unwrap();
        run(&s, &format!("REVOKE USAGE ON SCHEMA behind FROM {role}")).await;
        t.enable(&name("kept.t")).await.unwrap();
        try_refresh(&mut t, "kept.v").await.unwrap();
        run(&s, "INSERT INTO kept.t VALUES (2, 2)").await;
        assert_eq!(count(&s, "SELECT count(*) FROM kept.v").await, 2);
        t.drop(&name("kept.v"), true).await.unwrap();
    });
}

/// A transaction whose snapshot is older than a plan sees the former function, operator or type. The
/// transaction can neither apply a delta nor leave a mark that other sessions would see. So its writes are
/// refused.
#[test]
fn a_snapshot_from_before_an_object_is_refused() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (old, s) = (db.session().await, db.session().await);
        run(&s, &TABLES.replace("SET SESSION AUTHORIZATION APP;", "").replace("APP", "CURRENT_USER")).await;
        let changes = [
            "CREATE OR REPLACE FUNCTION lib.twice(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN lib.inner_one(i) + i",
            "CREATE OR REPLACE FUNCTION lib.inner_one(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 7",
            "CREATE OR REPLACE FUNCTION lib.above(a int, b int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN a < b; END'",
            "ALTER TYPE lib.mood RENAME VALUE 'low' TO 'lower'; ALTER TYPE lib.mood ADD VALUE 'low'",
        ];
        for (change, query) in changes.iter().zip([1, 1, 2, 3]) {
            let query = QUERIES[query];
            let new = NewStreamTable {
                mode: Some(RefreshMode::Immediate),
                ..NewStreamTable::new(name("v"), query)
            };
            t.create(&new).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
            run(&old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await;
            run(&s, change).await;
            try_refresh(&mut t, "v").await.unwrap();
            let done = old.client().batch_execute(WRITES[0]).await;
            let code = done.as_ref().err().and_then(tokio_postgres::Error::code).map(|c| c.code().to_owned());
            assert_eq!(code.as_deref(), Some("40001"), "{change}: {done:?}");
            run(&old, "ROLLBACK").await;
            run(&old, WRITES[0]).await;
            let different = format!(
                "SELECT count(*) FROM ((TABLE v EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL TABLE v)) d"
            );
            assert_eq!(count(&s, &different).await, 0, "{change}");
            t.drop(&name("v"), false).await.unwrap();
        }
    });
}

#[test]
fn a_hint_gives_hidden_tables_back_to_the_catalogs_owner() {
    todays_server(async |db| {
        let owner = Role::owner(db).await;
        owner.does(&["init", "--quiet"]);
        admin(db, &owner, TABLES).await;
        let query = "SELECT w, min(v) AS m FROM kept.t GROUP BY w HAVING min(v) < 3";
        owner.does(&["create", "shown.v", "--query", query, "--quiet"]);
        let s = db.session().await;
        let states = "SELECT oid::regclass::text FROM pg_class WHERE relname ~ '^state_' AND relkind = 'r'";
        let state: String = s.client().query_one(states, &[]).await.unwrap().get(0);
        run(&s, &format!("ALTER TABLE {state} OWNER TO CURRENT_USER")).await;
        run(&s, WRITES[0]).await;
        let failed = owner.trickle(&["refresh", "shown.v"]);
        let mend = format!("ALTER TABLE {state} OWNER TO {}", owner.name);
        assert!(failed.err.contains(&mend), "{}", failed.err);
        run(&s, &mend).await;
        owner.does(&["refresh", "shown.v", "--quiet"]);
        owner.does(&["check", "shown.v", "--quiet"]);
    });
}
