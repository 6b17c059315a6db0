//! Functions in FROM and in select lists that only a server can compute. The tests catch a function that the
//! engine prints, resolves or names differently from PostgreSQL. The tests also catch a delta of a query with
//! a function that rules out deltas.

use crate::support::{assert_equal, create, each_server, mode, name, open, run, todays_server};
use std::sync::Arc;
use trickle_client::NewStreamTable;
use trickle_core::expr::functions::{resolve_function, resolve_operator, signatures};
use trickle_core::expr::{FuncKind, FuncSig, Volatility};
use trickle_core::types::Type;

const TABLES: &str = r#"
CREATE TABLE s (id int PRIMARY KEY, t text, j json, b jsonb, x int);
INSERT INTO s VALUES (1, 'a1b2', '[{"a": 1, "b": 2}, {"a": null}]', '{"a": [1, 2, 3]}', 3), (2, '', '[]', '{}', 0),
    (3, NULL, NULL, NULL, NULL);
CREATE FUNCTION upto(n int) RETURNS SETOF int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT generate_series(1, n)';
CREATE FUNCTION pairs(n int) RETURNS TABLE (k int, "V v" text) LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RETURN QUERY SELECT g, 'v' || g FROM generate_series(1, n) g; END $$;
CREATE FUNCTION rows_of_s(n int) RETURNS SETOF s LANGUAGE sql STABLE AS 'SELECT * FROM s WHERE x < n';
CREATE FUNCTION any_of(n int) RETURNS SETOF int LANGUAGE sql AS 'SELECT generate_series(1, n)'"#;

const KEPT: &[(&str, &str)] = &[
    ("patterns", "SELECT s.id, m[1] AS m, p FROM s LEFT JOIN LATERAL regexp_matches(s.t, '([a-z])[0-9]', 'g') AS m ON true,
        regexp_split_to_table(s.t, '[0-9]+') AS p"),
    ("paths", "SELECT s.id, p FROM s, jsonb_path_query(s.b, '$.a[*] ? (@ > 1)') WITH ORDINALITY AS f (p, o)"),
    ("elements", "SELECT s.id, e.value::text AS v, m.key, m.value FROM s, json_array_elements(s.j) AS e,
        json_each_text(e.value) AS m"),
    ("records", "SELECT s.id, r.* FROM s, ROWS FROM (json_to_recordset(s.j) AS (a int, b text), upto(s.x)) WITH ORDINALITY AS r"),
    ("own", "SELECT s.id, u, p.* FROM s LEFT JOIN upto(s.x) AS u ON true, pairs(s.x) AS p"),
    ("listed", r#"SELECT id, upto(x) AS u, upto(upto(x)) AS v, (pairs(x)).k AS k, (pairs(x))."V v" AS v2 FROM s"#),
    ("grouped", "SELECT upto(x) AS u, count(*) AS n FROM s GROUP BY upto(x)"),
    ("joined", "SELECT s.id, u, o.id AS other FROM s LEFT JOIN LATERAL upto(s.x) AS u ON u > 1 FULL JOIN s o ON o.id = u"),
];

#[test]
fn functions_that_a_server_knows() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, TABLES).await;
        for (what, query) in KEPT {
            create(&mut t, what, query).await;
            assert_eq!(mode(&t, what).await.0, "DIFFERENTIAL", "{what}");
        }
        for change in [
            "UPDATE s SET t = 'c3c3', x = 2 WHERE id = 2; UPDATE s SET j = '[{\"a\": 7}, {\"a\": 7}]' WHERE id = 3",
            "DELETE FROM s WHERE id = 1; INSERT INTO s VALUES (4, 'z9', '[{\"b\": 1}]', '{\"a\": 5}', 1)",
            "UPDATE s SET x = x + 1, b = '{\"a\": [2, 2]}'",
        ] {
            run(&w, change).await;
            for (what, _) in KEPT {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

#[test]
fn functions_that_are_not_kept() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, TABLES).await;
        create(&mut t, "reads", "SELECT s.id, r.id AS other FROM s, rows_of_s(s.x) AS r").await;
        assert_ne!(mode(&t, "reads").await.0, "DIFFERENTIAL");
        for volatile in ["SELECT s.id, a FROM s, any_of(s.x) AS a", "SELECT id, any_of(x) AS a FROM s"] {
            let refused = t.create(&NewStreamTable::new(name("volatile"), volatile)).await.unwrap_err();
            assert!(refused.to_string().contains("the volatile function any_of()"), "{refused}");
        }
        // An operator is as volatile as its function.
        run(
            &w,
            "CREATE FUNCTION once(a int, b int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT a + b'; \
                 CREATE OPERATOR <+> (LEFTARG = int, RIGHTARG = int, FUNCTION = once); \
                 CREATE VIEW by_operator AS SELECT id, x <+> 1 AS y FROM s",
        )
        .await;
        for volatile in ["SELECT id, x <+> 1 AS y FROM s", "SELECT y FROM by_operator"] {
            let refused = t.create(&NewStreamTable::new(name("volatile"), volatile)).await.unwrap_err();
            assert!(
                refused.to_string().contains("the volatile operator public.<+>(integer,integer)"),
                "{refused}"
            );
        }
    });
}

/// Aggregates of a user with the names of PostgreSQL's aggregates and another behaviour. These aggregates
/// return NULL for rows without NULL, and depend on the image of equal values.
const NAMESAKES: &str = "
CREATE SCHEMA app;
CREATE FUNCTION app.nothing(state bigint, v int) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT NULLIF(coalesce(state, 0) + v, 3)';
CREATE AGGREGATE app.count(int) (SFUNC = app.nothing, STYPE = bigint);
CREATE AGGREGATE app.sum(int) (SFUNC = app.nothing, STYPE = bigint);
CREATE AGGREGATE app.bool_or(int) (SFUNC = app.nothing, STYPE = bigint);
CREATE FUNCTION app.joined(state text, v numeric) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT greatest(state, v::text)';
CREATE AGGREGATE app.max(numeric) (SFUNC = app.joined, STYPE = text);
CREATE TABLE n (id int PRIMARY KEY, k int NOT NULL, v int NOT NULL, w numeric NOT NULL);
INSERT INTO n VALUES (1, 1, 3, 1.0), (2, 2, 1, 1.00), (3, 2, 1, 2), (4, 3, 5, 1.000);";

#[test]
fn aggregates_named_as_the_servers_are_not_taken_for_them() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, NAMESAKES).await;
        let mut made = Vec::new();
        for aggregate in ["count", "sum", "bool_or"] {
            for (what, query) in [
                ("shown", "SELECT k, app.{}(v) AS a FROM n GROUP BY k"),
                ("null", "SELECT k FROM (SELECT k, app.{}(v) AS a FROM n GROUP BY k) x WHERE a IS NULL"),
                ("filtered", "SELECT k FROM n GROUP BY k HAVING app.{}(v) IS NOT NULL"),
                (
                    "over",
                    "SELECT id FROM (SELECT id, app.{}(v) OVER (PARTITION BY k) AS a FROM n) x WHERE a IS NULL",
                ),
                (
                    "least",
                    "SELECT min(coalesce(a, -1)) AS m FROM (SELECT k, app.{}(v) AS a FROM n GROUP BY k) x",
                ),
            ] {
                let what = format!("{what}_{aggregate}");
                create(&mut t, &what, &query.replace("{}", aggregate)).await;
                made.push(what);
            }
        }
        create(&mut t, "written", "SELECT k, app.max(w) AS a FROM n GROUP BY k").await;
        made.push("written".to_owned());
        for change in [
            "UPDATE n SET v = v + 1",
            "DELETE FROM n WHERE id = 2; INSERT INTO n VALUES (5, 2, 2, 2.0), (6, 4, 3, 3)",
            "UPDATE n SET w = w * 1.0, v = 3 WHERE k IN (1, 2)",
        ] {
            run(&w, change).await;
            for what in &made {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// A built-in function or operator, with its argument types and the facts that the engine states about it.
struct Stated {
    name: String,
    args: Vec<String>,
    sig: Arc<FuncSig>,
}

/// Returns the built-in functions and operators with one type for each argument.
fn stated() -> Vec<Stated> {
    let mut all = Vec::new();
    for (name, types) in signatures() {
        let (args, _) = types.split_once("->").unwrap_or_else(|| panic!("{name} has types {types}"));
        let args: Vec<&str> = args.split(',').map(str::trim).filter(|a| !a.is_empty()).collect();
        if args.iter().any(|a| a.starts_with("variadic") || a.starts_with("any")) {
            continue;
        }
        let parsed: Vec<Type> = args.iter().map(|a| Type::parse(a).unwrap()).collect();
        let found = resolve_function(name, &parsed).or_else(|| resolve_operator(name, &parsed));
        let args = args.iter().map(|a| (*a).to_owned()).collect();
        all.extend(found.map(|sig| Stated { name: name.to_owned(), args, sig }));
    }
    all
}

/// A query for the facts about a function with these arguments, or about the function of such an operator.
/// The facts are volatility, strictness, and whether the function returns a set.
const FACTS: &str = "SELECT p.provolatile::text, p.proisstrict, p.proretset FROM pg_proc p \
     WHERE NOT $3 AND p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = $1 \
     AND p.proargtypes::text = array_to_string($2::text[]::regtype[]::oid[], ' ') \
     UNION ALL SELECT p.provolatile::text, p.proisstrict, p.proretset FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode \
     WHERE $3 AND o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = $1 \
     AND array_remove(ARRAY[o.oprleft, o.oprright], 0::oid) = $2::text[]::regtype[]::oid[]";

/// Functions that the server declares STABLE, since they cast to the types of a column definition list. The
/// engine derives their volatility from these types.
const BY_THEIR_COLUMNS: [&str; 2] = ["json_to_recordset", "jsonb_to_recordset"];

#[test]
fn facts_of_functions_are_those_of_the_server() {
    each_server(async |db| {
        let w = db.session().await;
        let (mut wrong, mut compared) = (Vec::new(), 0);
        for Stated { name, args, sig } in stated() {
            let rows = w.client().query(FACTS, &[&name, &args, &sig.is_operator()]).await.unwrap();
            let Some(r) = rows.first() else { continue };
            compared += 1;
            let volatility = Volatility::parse(r.get(0)).unwrap();
            let is_safe = sig.volatility >= volatility || BY_THEIR_COLUMNS.contains(&&*name);
            // A function without arguments has no meaningful strictness.
            let is_strict =
                sig.strict == r.get::<_, bool>(1) || args.is_empty() || BY_THEIR_COLUMNS.contains(&&*name);
            let is_set = (sig.kind == FuncKind::SetReturning) == r.get::<_, bool>(2);
            if !(is_safe && is_strict && is_set) {
                wrong.push(format!("{name}({}): {sig:?}, but {volatility:?}", args.join(", ")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // `FACTS` finds no functions over polymorphic types and no forms of SQL, so only a part is compared.
        assert!(compared > 400, "{compared}");
    });
}

#[test]
fn a_procedure_with_the_name_of_a_function_is_passed_over() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE SCHEMA app; CREATE TABLE n (id int PRIMARY KEY, v int); INSERT INTO n VALUES (1, 1); \
             CREATE FUNCTION app.f(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT v + 1'; \
             CREATE PROCEDURE app.f(v int, INOUT w int) LANGUAGE sql AS 'SELECT v + w'",
        )
        .await;
        create(&mut t, "called", "SELECT id, app.f(v) AS f FROM n").await;
        assert_eq!(mode(&t, "called").await.0, "DIFFERENTIAL");
        run(&w, "INSERT INTO n VALUES (2, 5)").await;
        assert_equal(&mut t, "called").await;
    });
}
