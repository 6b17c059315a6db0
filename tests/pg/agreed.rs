//! A change after the declaration of a stream table would make its query run functions of other roles. The
//! tests catch an owner of a table, type or view whose own function runs with the rights of a reading role.

use crate::program::Role;
use crate::support::{Db, run, todays_server};

/// The objects of bob: a table, a view of it, a domain, an enum and a function. The function `trap` raises an
/// error that names the role as which it ran, unless that role is bob.
const SHOP: &str = "
    CREATE SCHEMA bob AUTHORIZATION BOB; GRANT USAGE ON SCHEMA bob TO PUBLIC; SET SESSION AUTHORIZATION BOB;
    CREATE TYPE bob.mood AS ENUM ('sad', 'ok'); CREATE DOMAIN bob.d AS int;
    CREATE TABLE bob.t (id int PRIMARY KEY, v int, e bob.mood); GRANT SELECT ON bob.t TO PUBLIC;
    INSERT INTO bob.t SELECT i, i, 'ok' FROM generate_series(1, 9) i;
    CREATE VIEW bob.w AS SELECT id, v FROM bob.t; GRANT SELECT ON bob.w TO PUBLIC;
    CREATE FUNCTION bob.f(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT v + 1';
    CREATE FUNCTION bob.same(a int, b int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT a = b';
    CREATE OPERATOR bob.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = bob.same);
    CREATE FUNCTION bob.trap(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        $$BEGIN IF current_user <> 'BOB' THEN RAISE 'CAUGHT as %', current_user; END IF; RETURN v; END$$;
    CREATE TYPE bob.bt AS (x int);
    CREATE FUNCTION bob.trap(v bob.bt) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT bob.trap(v.x)';
    CREATE FUNCTION bob.trap(v bob.mood) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT bob.trap(1)::text';
    CREATE FUNCTION bob.trap(a bob.bt, b int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT bob.trap(b) = 1';";

/// A query, and a change that bob makes after the declaration of the stream table. `runs` names the function
/// of bob that the query would run after the change. If the owner of the stream table need not agree to any
/// function, `runs` is None.
struct Case {
    name: &'static str,
    query: &'static str,
    change: &'static str,
    runs: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        name: "an implicit cast of another type of a column",
        query: "SELECT id, v + 1 AS v FROM bob.t",
        change: "CREATE CAST (bob.bt AS int) WITH FUNCTION bob.trap(bob.bt) AS IMPLICIT; DROP VIEW bob.w; \
                 ALTER TABLE bob.t ALTER v TYPE bob.bt USING row(v)::bob.bt",
        runs: Some("bob.trap(bob.bt)"),
    },
    Case {
        name: "an operator for another type of a column",
        query: "SELECT id FROM bob.t WHERE v OPERATOR(bob.===) 4",
        change: "CREATE OPERATOR bob.=== (LEFTARG = bob.bt, RIGHTARG = int, FUNCTION = bob.trap); DROP VIEW bob.w; \
                 ALTER TABLE bob.t ALTER v TYPE bob.bt USING row(v)::bob.bt",
        runs: Some("bob.trap(bob.bt,integer)"),
    },
    Case {
        name: "a condition of a domain",
        query: "SELECT id, v::bob.d AS v FROM bob.t",
        change: "ALTER DOMAIN bob.d ADD CHECK (bob.trap(VALUE) > 0)",
        runs: Some("bob.trap(integer)"),
    },
    Case {
        name: "a view that is replaced",
        query: "SELECT id, v FROM bob.w",
        change: "CREATE OR REPLACE VIEW bob.w AS SELECT id, bob.trap(v) AS v FROM bob.t",
        runs: Some("bob.trap(integer)"),
    },
    Case {
        name: "a cast to text of a type that is there",
        query: "SELECT DISTINCT e, v FROM bob.t",
        change: "CREATE CAST (bob.mood AS text) WITH FUNCTION bob.trap(bob.mood) AS ASSIGNMENT",
        runs: Some("bob.trap(bob.mood)"),
    },
    Case {
        name: "a function that was there, replaced",
        query: "SELECT id, bob.f(v) AS v FROM bob.t",
        change: "CREATE OR REPLACE FUNCTION bob.f(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT v + 2'",
        runs: None,
    },
    Case {
        name: "a column of a type without functions",
        query: "SELECT id, v FROM bob.t",
        change: "ALTER TABLE bob.t ADD COLUMN m bob.mood",
        runs: None,
    },
];

async fn bob(db: &Db, of: &Role, sql: &str) {
    let s = db.session().await;
    run(&s, &sql.replace("BOB", &of.name)).await;
}

async fn holds(db: &Db, owner: &Role, of: &Role) {
    for case in CASES {
        bob(db, of, SHOP).await;
        let made = owner.trickle(&["create", "v", "--query", case.query, "--quiet"]);
        assert_eq!(made.code, 0, "{}: {}", case.name, made.err);
        bob(db, of, &format!("SET SESSION AUTHORIZATION BOB; {}", case.change)).await;
        let ran = owner.trickle(&["refresh", "v"]);
        assert!(!ran.err.contains("CAUGHT"), "{} by {}: {}", case.name, owner.name, ran.err);
        match case.runs {
            None => {
                assert_eq!(ran.code, 0, "{}: {}", case.name, ran.err);
                owner.does(&["check", "v", "--quiet"]);
            }
            Some(function) => {
                let said = [function, &of.name, "trickle alter public.v --query"]
                    .iter()
                    .all(|s| ran.err.contains(s));
                assert!(ran.code != 0 && said, "{} by {}: {}", case.name, owner.name, ran.err);
                for again in [
                    &["refresh", "v", "--full"][..],
                    &["check", "v"],
                    &["explain", "v"],
                    &["alter", "v", "--mode", "full"],
                ] {
                    let ran = owner.trickle(again);
                    assert!(
                        ran.code != 0 && ran.err.contains(function),
                        "{} {again:?}: {}",
                        case.name,
                        ran.err
                    );
                    assert!(!ran.err.contains("CAUGHT"), "{} {again:?}: {}", case.name, ran.err);
                }
                let standing = owner.trickle(&["status", "v", "--json"]).json();
                assert_eq!(standing[0]["status"], "SUSPENDED", "{}", case.name);
            }
        }
        owner.does(&["drop", "v", "--quiet"]);
        bob(db, of, "DROP SCHEMA bob CASCADE").await;
    }
}

#[test]
fn a_function_of_a_stranger_needs_the_owners_consent() {
    todays_server(async |db| {
        let (app, of) = (Role::owner(db).await, Role::create(db, "bob").await);
        app.does(&["init", "--quiet"]);
        holds(db, &app, &of).await;
        app.does(&["uninstall", "--quiet"]);
        let admin = Role::superuser(db);
        admin.does(&["init", "--quiet"]);
        holds(db, &admin, &of).await;
    });
}

#[test]
fn giving_the_query_again_is_consent() {
    todays_server(async |db| {
        let (app, of) = (Role::owner(db).await, Role::create(db, "bob").await);
        app.does(&["init", "--quiet"]);
        bob(db, &of, SHOP).await;
        app.trickle(&["create", "v", "--query", "SELECT id, v FROM bob.w", "--quiet"]);
        let change = "SET SESSION AUTHORIZATION BOB; CREATE OR REPLACE VIEW bob.w AS SELECT id, bob.f(v) AS v FROM bob.t";
        bob(db, &of, change).await;
        assert!(app.trickle(&["refresh", "v"]).err.contains("bob.f(integer)"));
        let agreed =
            app.trickle(&["alter", "v", "--query", "SELECT id, v FROM bob.w", "--resume", "--quiet"]);
        assert_eq!(agreed.code, 0, "{}", agreed.err);
        app.does(&["refresh", "v", "--quiet"]);
        app.does(&["check", "v", "--quiet"]);
        // A function of the stream table's own owner needs no agreement.
        app.run_sql(
            db,
            "CREATE TYPE own AS (x int); CREATE TABLE mine (id int PRIMARY KEY, v int); INSERT INTO mine VALUES (1, 1); \
             CREATE FUNCTION plain(own) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1.x'",
        )
        .await;
        app.does(&["create", "o", "--query", "SELECT id, v + 1 AS v FROM mine", "--quiet"]);
        app.run_sql(
            db,
            "CREATE CAST (own AS int) WITH FUNCTION plain(own) AS IMPLICIT; ALTER TABLE mine ALTER v TYPE own USING row(5)::own",
        )
        .await;
        let ran = app.trickle(&["refresh", "o"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        app.does(&["check", "o", "--quiet"]);
    });
}
