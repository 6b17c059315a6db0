//! After the creation of stream tables, a stranger creates operators and functions in a schema of the search
//! path. The stranger's operators and functions fit the columns better than the server's own. The tests catch
//! a name in trickle's statements that the server looks up in a schema where a stranger may create objects.

use crate::program::Role;
use crate::support::{count, newest_server, run, todays_server};
use trickle_client::Session;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::parse::parse_query;
use trickle_core::stream_table::{Options, compile_parsed};

/// Tables with columns of types for which a stranger can make operators and functions.
const TABLES: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TABLE t (id smallint PRIMARY KEY, k varchar(10), c char(4), d date, m mood, a varchar[], s timestamp, n numeric(8, 2), b bool);
    CREATE TABLE u (id int PRIMARY KEY, k varchar(10), c char(4), d date, m mood, a varchar[]);
    INSERT INTO t SELECT i, 'k' || i % 5, 'c' || i % 3, date '2020-01-01' + i % 7, CASE i % 2 WHEN 0 THEN 'sad'::mood ELSE 'ok' END,
        ARRAY['a' || i % 4], timestamp '2020-01-01' + i * interval '1 hour', i, i % 2 = 0 FROM generate_series(1, 60) i;
    INSERT INTO u SELECT i, 'k' || i, 'c' || i, date '2020-01-01' + i, CASE i % 2 WHEN 0 THEN 'sad'::mood ELSE 'ok' END,
        ARRAY['a' || i] FROM generate_series(1, 4) i;";

/// Queries for which trickle's statements use every kind of comparison, ordering and function call.
const QUERIES: &[(&str, &str)] = &[
    (
        "plain",
        "SELECT id, k, c, d, m, a FROM t WHERE k = 'k1' OR k IN ('k2', 'k3') OR id BETWEEN 5 AND 9 OR d > '2020-01-03'",
    ),
    ("joined", "SELECT t.id, u.id AS uid, t.k FROM t JOIN u ON u.k = t.k AND u.d <> t.s::date"),
    ("left_out", "SELECT t.id, u.a FROM t LEFT JOIN u ON u.c = t.c AND u.m = t.m"),
    (
        "grouped",
        "SELECT k, c, m, count(*) AS n, sum(n) AS s, min(d) AS d, max(a) AS a FROM t GROUP BY k, c, m",
    ),
    ("apart", "SELECT DISTINCT k, a, m FROM t"),
    ("both", "SELECT k, c FROM t EXCEPT SELECT k, c FROM u WHERE m IS DISTINCT FROM 'ok'"),
    ("first", "SELECT id, k FROM t ORDER BY k, c DESC, m LIMIT 5"),
    (
        "ranked",
        "SELECT id, rank() OVER (PARTITION BY k ORDER BY d, m) AS r, lag(k) OVER (PARTITION BY c ORDER BY id) AS l FROM t",
    ),
    (
        "without",
        "SELECT id FROM t WHERE k NOT IN (SELECT k FROM u) AND NOT EXISTS (SELECT FROM u WHERE u.a = t.a)",
    ),
    (
        "cased",
        "SELECT id, CASE k WHEN 'k1' THEN 1 ELSE 2 END AS w, NULLIF(k, 'k2') AS x, k LIKE 'k%' AS y, lower(k) AS z, abs(id) AS i FROM t",
    ),
    (
        "any",
        "SELECT id FROM t WHERE k = ANY (ARRAY['k1', 'k4']::varchar[]) AND a @> ARRAY['a1']::varchar[] OR k ~~* 'K2'",
    ),
    ("spread", "SELECT t.id, x FROM t, unnest(a) AS x WHERE x <> 'a0'"),
    (
        "summed",
        "SELECT count(DISTINCT k) AS k, string_agg(k, ',' ORDER BY id) AS l, bool_or(b) AS b FROM t GROUP BY c",
    ),
];

/// Statements that copy common operators and functions of the server into the schema `free`, for each type of
/// the columns that they fit. A copy raises an error that names the role as which it ran, unless that role is
/// the stranger.
const SHADOWS: &str = r#"
DO $do$
DECLARE o record; n int := 0; types text[] := '{smallint,int,bigint,varchar,text,bpchar,date,timestamp,mood,varchar[],text[],numeric,bool,anyelement,oid,regclass,name,\"char\",xid8,pg_snapshot,int[],oid[]}';
BEGIN
    FOR o IN SELECT DISTINCT p.oprname, l.t AS l, r.t AS r, CASE WHEN p.oprresult = 'bool'::regtype THEN 'bool' ELSE 'text' END AS res
        FROM pg_operator p, unnest(types) l(t), unnest(types) r(t)
        WHERE p.oprnamespace = 'pg_catalog'::regnamespace AND p.oprname IN ('=', '<>', '<', '<=', '>', '>=', '~~', '~~*', '@>', '+', '-', '||')
          AND (l.t = r.t OR l.t = 'varchar' AND r.t = 'text' OR l.t = 'smallint' AND r.t = 'int' OR l.t = 'date' AND r.t = 'timestamp'
            OR l.t = 'int' AND r.t = 'smallint' OR l.t = 'varchar[]' AND r.t = 'text[]' OR l.t = 'text' AND r.t = 'varchar'
            OR l.t = 'oid' AND r.t = 'regclass' OR l.t = 'regclass' AND r.t = 'oid' OR l.t = 'name' AND r.t = 'varchar'
            OR l.t = 'oid' AND r.t IN ('int', 'bigint') OR l.t = 'name' AND r.t = 'text' OR l.t = '"char"' AND r.t = 'text')
          AND p.oprleft <> 0 AND (p.oprresult = 'bool'::regtype) = (p.oprname NOT IN ('+', '-', '||'))
          AND NOT (l.t = 'anyelement' AND p.oprname NOT IN ('=', '<>'))
    LOOP
        n := n + 1;
        EXECUTE format('CREATE FUNCTION free.f%s(%s, %s) RETURNS %s LANGUAGE plpgsql IMMUTABLE AS '
            '$f$ BEGIN PERFORM free.caught(%L); RETURN NULL; END $f$', n, o.l, o.r, o.res, o.oprname);
        EXECUTE format('CREATE OPERATOR free.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = free.f%s)', o.oprname, o.l, o.r, n);
    END LOOP;
    FOR o IN SELECT f.name, t.t FROM unnest('{lower,abs,md5,length,octet_length,scale,hashtext,to_char,unnest,coalesce_,array_agg,count_,min,max,sum}'::text[]) f(name),
        unnest(types) t(t) WHERE f.name NOT IN ('array_agg', 'min', 'max', 'sum', 'unnest')
    LOOP
        EXECUTE format('CREATE FUNCTION free.%I(%s) RETURNS text LANGUAGE plpgsql IMMUTABLE AS '
            '$f$ BEGIN PERFORM free.caught(%L); RETURN NULL; END $f$', o.name, o.t, o.name);
    END LOOP;
END $do$"#;

/// Returns a function that raises an error for everybody but the stranger. Wherever the function is planned
/// or called, the error is visible. In some of these places, a function may have no other effect.
fn caught(stranger: &str) -> String {
    format!(
        "CREATE FUNCTION free.caught(what text) RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS \
         $$BEGIN IF current_user <> '{stranger}' THEN RAISE 'CAUGHT % as %', what, current_user; END IF; END$$"
    )
}

#[test]
fn functions_of_strangers_in_the_search_path_are_not_run() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let guest = Role::create(db, "guest").await;
        let admin = db.session().await;
        run(
            &admin,
            &format!(
                "CREATE SCHEMA free; GRANT USAGE, CREATE ON SCHEMA free TO PUBLIC; \
             ALTER ROLE {} SET search_path = public, free",
                app.name
            ),
        )
        .await;
        app.run_sql(db, TABLES).await;
        app.does(&["init", "--quiet"]);
        for (name, query) in QUERIES {
            for (mode, kept) in [("auto", "d"), ("full", "f"), ("immediate", "i")] {
                let made = app.trickle(&[
                    "create",
                    &format!("{name}_{kept}"),
                    "--query",
                    query,
                    "--mode",
                    mode,
                    "--quiet",
                ]);
                assert!(made.code == 0 || mode == "immediate", "{name} {mode}: {}", made.err);
            }
        }
        guest.run_sql(db, &caught(&guest.name)).await;
        guest.run_sql(db, SHADOWS).await;
        // A session with the schema `free` first in its path finds the copies first.
        let s = db.session().await;
        run(&s, "SET search_path = public, free").await;
        let found = s.client().batch_execute("SELECT k FROM t WHERE k = 'k1'").await.unwrap_err();
        assert!(found.as_db_error().unwrap().message().contains("CAUGHT"), "{found:?}");
        let write = async |s: &Session, at: i32| {
            run(s, &format!(
                "INSERT INTO public.t SELECT (100 + {at})::int2, 'k1', 'c1', '2020-01-02', 'ok', '{{a1}}', '2020-01-01', 5, true; \
                 UPDATE public.t SET k = 'k2', a = '{{a0}}' WHERE id OPERATOR(pg_catalog.=) {at}; \
                 DELETE FROM public.u WHERE id OPERATOR(pg_catalog.=) {at}; \
                 INSERT INTO public.u VALUES ({at} OPERATOR(pg_catalog.+) 50, 'k3', 'c2', '2020-01-05', 'sad', '{{a1}}')"
            ))
            .await;
        };
        let w = db.session().await;
        for (at, args) in [
            (1, &["refresh", "--quiet"][..]),
            (2, &["refresh", "--full", "--quiet"]),
            (3, &["check", "--quiet"]),
        ] {
            write(&w, at).await;
            let ran = app.trickle(args);
            assert!(ran.code == 0 && !ran.err.contains("CAUGHT"), "{args:?}: {}", ran.err);
        }
        // After the alteration the stream tables are planned again. Their new results are built beside the
        // former results and exchanged.
        app.run_sql(
            db,
            "ALTER TABLE public.t ADD COLUMN z int; ALTER TABLE public.t ALTER n TYPE numeric(12, 2)",
        )
        .await;
        write(&w, 4).await;
        for args in [
            &["refresh", "--quiet"][..],
            &["explain", "grouped_d"],
            &[
                "alter",
                "grouped_d",
                "--query",
                "SELECT k, c, m, count(*) AS n, sum(n) AS s, min(d) AS d, max(a) AS a, max(k) AS e FROM public.t GROUP BY k, c, m",
                "--quiet",
            ],
            &["check", "--quiet"],
        ] {
            let ran = app.trickle(args);
            let by_hand = args[0] == "alter" && ran.err.contains("CAUGHT");
            // The owner types a query, and its names are looked up under the owner's search path. So the
            // copies may be found.
            assert!(
                by_hand || ran.code == 0 && !ran.err.contains("CAUGHT"),
                "{args:?}: {}{}",
                ran.out,
                ran.err
            );
        }
        let failed = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE error_message LIKE '%CAUGHT%'";
        assert_eq!(count(&admin, failed).await, 0);
        let kept = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE refresh_mode = 'IMMEDIATE'";
        assert!(count(&admin, kept).await > 3);
    });
}

/// The functions that a query calls may look up names in a schema where other roles may create objects. Such
/// a schema is left out of the function's path. A message says so until no other role may create objects in
/// the schema.
#[test]
fn a_schema_that_is_left_out_of_the_path_is_told() {
    todays_server(async |db| {
        let app = Role::owner(db).await;
        let admin = db.session().await;
        run(
            &admin,
            &format!(
                "CREATE SCHEMA free AUTHORIZATION {0}; GRANT ALL ON SCHEMA free TO PUBLIC; \
             ALTER ROLE {0} SET search_path = public, free",
                app.name
            ),
        )
        .await;
        app.does(&["init", "--quiet"]);
        app.run_sql(
            db,
            "CREATE FUNCTION free.twice(v int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2 * v'",
        )
        .await;
        let made = app.trickle(&["create", "doubled", "--query", "SELECT id, twice(id) AS v FROM customers"]);
        assert!(made.code == 0 && made.err.contains("find nothing in schema free"), "{}", made.err);
        let plain = app.trickle(&["create", "plain", "--query", "SELECT id FROM customers"]);
        assert!(plain.code == 0 && !plain.err.contains("find nothing"), "{}", plain.err);
        let told = app.trickle(&["doctor"]).out;
        assert!(told.contains("free of public.doubled") && !told.contains("free of public.plain"), "{told}");
        app.run_sql(db, "REVOKE ALL ON SCHEMA free FROM PUBLIC").await;
        assert!(!app.trickle(&["doctor"]).out.contains("free of public.doubled"));
        app.does(&["refresh", "--quiet"]);
        app.does(&["check", "--quiet"]);
    });
}

/// A stranger may have made an operator that fits better than the server's operator. If a query names an
/// operator with another schema, the engine does not take the operator for the server's.
#[test]
fn an_operator_of_another_schema_is_not_the_servers() {
    let mut catalog = MemoryCatalog::new();
    catalog.run("CREATE TABLE t (id int PRIMARY KEY, k varchar(9))").unwrap();
    let is_kept = |schema: &str| {
        let query = format!("SELECT id FROM t WHERE k OPERATOR({schema}.=) 'x'");
        let options = Options::new("public", "v");
        compile_parsed(&parse_query(&query).unwrap(), &catalog, &options)
            .is_ok_and(|verdict| verdict.incremental().is_some())
    };
    assert!(is_kept("pg_catalog"));
    assert!(!is_kept("other") && !is_kept("\"Other\""));
}
