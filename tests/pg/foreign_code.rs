//! Capture runs with the rights of a role other than the owner of the source. The tests catch a cast, domain,
//! operator or function of the owner that capture would call with these rights. The tests also catch an
//! alteration of a source after which writers of the source fail.
//!
//! `bob` owns the source, and a superuser owns a stream table over the source. After each alteration bob
//! writes in sessions that wrote before and in new sessions, at both isolation levels. Each function of bob
//! notes the role as which it ran.

use crate::support::{
    Db, Driver, assert_equal, count, create, name, open, open_with, refresh, run, todays_server, try_refresh,
};
use trickle_client::capture::CaptureOptions;
use trickle_client::{NewStreamTable, RefreshMode, Session, Settings};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;
use trickle_engine::health::{Scheduling, Verdict};

/// The objects of bob. One of them is a type with casts to all types of the buffer, for every context in
/// which the server searches a cast.
const BOB: &str = "
CREATE SCHEMA bob AUTHORIZATION bob; CREATE TABLE public.ran (who text, what text); GRANT INSERT ON public.ran TO PUBLIC;
SET ROLE bob; SET search_path = bob;
CREATE TABLE t (id int PRIMARY KEY, v int, word text, noted text);
INSERT INTO t SELECT i, i % 5, 'w' || i, 'n' FROM generate_series(1, 20) i;
CREATE TYPE bt AS (x int);
CREATE FUNCTION to_int(bt) RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'int'); RETURN $1.x; END $$;
CREATE FUNCTION to_text(bt) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'text'); RETURN 'x'; END $$;
CREATE FUNCTION to_json(bt) RETURNS json LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'json'); RETURN '1'; END $$;
CREATE FUNCTION same(bt, bt) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran VALUES (current_user, '='); RETURN true; END $$;
CREATE FUNCTION holds(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'check'); RETURN true; END $$;
CREATE CAST (bt AS int) WITH FUNCTION to_int(bt) AS IMPLICIT;
CREATE CAST (bt AS text) WITH FUNCTION to_text(bt) AS IMPLICIT;
CREATE CAST (bt AS json) WITH FUNCTION to_json(bt) AS ASSIGNMENT;
CREATE OPERATOR = (LEFTARG = bt, RIGHTARG = bt, FUNCTION = same);
CREATE DOMAIN checked AS int CHECK (holds(VALUE));
RESET ROLE; RESET search_path";

/// Alterations that could make capture run bob's code, each with bob's write after the alteration.
const ALTERED: &[(&str, &str)] = &[
    (
        "ALTER TABLE t ALTER v TYPE bt USING row(v)::bt",
        "INSERT INTO t (id, v) VALUES ({}, row(7)::bt); UPDATE t SET v = row(8)::bt WHERE id = {}",
    ),
    (
        "ALTER TABLE t ALTER word TYPE bt USING row(1)::bt",
        "INSERT INTO t (id, word) VALUES ({}, row(7)::bt); UPDATE t SET word = row(8)::bt WHERE id = {}",
    ),
    (
        "ALTER TABLE t ALTER v TYPE checked",
        "INSERT INTO t (id, v) VALUES ({}, 3); UPDATE t SET v = 4 WHERE id = {}",
    ),
    (
        "ALTER TABLE t DROP v; ALTER TABLE t ADD v bt",
        "INSERT INTO t (id, v) VALUES ({}, row(7)::bt); UPDATE t SET v = NULL WHERE id = {}",
    ),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ALTER id TYPE bt USING row(id)::bt",
        "INSERT INTO t (id, v) VALUES (row({})::bt, 7); UPDATE t SET v = 1 WHERE (id).x = {}",
    ),
    ("ALTER TABLE t RENAME v TO w", "INSERT INTO t (id, w) VALUES ({}, 7); UPDATE t SET w = 8 WHERE id = {}"),
    (
        "ALTER TABLE t RENAME v TO x; ALTER TABLE t RENAME word TO v; ALTER TABLE t RENAME x TO word",
        "INSERT INTO t (id, v) VALUES ({}, '7'); UPDATE t SET v = '8' WHERE id = {}",
    ),
    ("ALTER TABLE t DROP v", "INSERT INTO t (id) VALUES ({}); UPDATE t SET word = '8' WHERE id = {}"),
    ("ALTER TABLE t DROP noted", "INSERT INTO t (id) VALUES ({}); UPDATE t SET v = 8 WHERE id = {}"),
    (
        "ALTER TABLE t ALTER v TYPE bigint",
        "INSERT INTO t (id, v) VALUES ({}, 5000000000); UPDATE t SET v = 8 WHERE id = {}",
    ),
    (
        "ALTER TABLE t ALTER word TYPE varchar(3) USING left(word, 3)",
        "INSERT INTO t (id, word) VALUES ({}, 'abc'); UPDATE t SET word = NULL WHERE id = {}",
    ),
    (
        "ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t",
        "INSERT INTO t (id) VALUES ({}); UPDATE t SET v = 8 WHERE id = {}",
    ),
];

/// Opens a session of bob.
async fn bobs(db: &Db) -> Session {
    let s = db.session().await;
    run(&s, "SET SESSION AUTHORIZATION bob; SET search_path = bob").await;
    s
}

/// Returns bob's writes after an alteration, with `id` as the key of the written rows.
fn writes(how: &str, id: i32) -> String {
    how.replace("{}", &id.to_string())
}

const MODES: [Mode; 2] = [Mode::Statement, Mode::Row];

/// Makes a stream table of a superuser over bob's table, captured in the given mode.
async fn kept(db: &Db, s: &Session, mode: Mode) -> Driver {
    run(s, BOB).await;
    let capture = CaptureOptions { mode, ..CaptureOptions::default() };
    let settings = Settings { force: Some(Force::Incremental), capture, ..Settings::default() };
    let mut t = open_with(db, settings).await;
    create(&mut t, "kept", "SELECT id, v, word FROM bob.t").await;
    t
}

const FORGET: &str = "DROP TABLE public.ran; DROP SCHEMA bob CASCADE";

#[test]
fn capture_runs_no_code_of_the_owner_of_a_source() {
    todays_server(async |db| {
        let s = db.session().await;
        role(&s, "bob").await;
        for mode in MODES {
            for (alteration, how) in ALTERED {
                let mut t = kept(db, &s, mode).await;
                let (old, snapshot, bob) = (bobs(db).await, bobs(db).await, bobs(db).await);
                for s in [&old, &snapshot] {
                    run(s, "UPDATE t SET v = v + 1, word = word WHERE id = 1; INSERT INTO t VALUES (90, 1); DELETE FROM t WHERE id = 90")
                        .await;
                }
                refresh(&mut t, "kept").await;
                run(&snapshot, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
                // The session has a snapshot from before the alteration and no lock on `t`. So the alteration
                // does not wait.
                run(
                    &snapshot,
                    "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class",
                )
                .await;
                run(&bob, alteration).await;
                run(&old, &writes(how, 101)).await;
                run(&snapshot, &(writes(how, 102) + "; COMMIT")).await;
                run(&bobs(db).await, &writes(how, 103)).await;
                run(
                    &bob,
                    &("BEGIN; ".to_owned()
                        + &writes(how, 104)
                        + "; COMMIT; DELETE FROM t WHERE word IS NULL; TRUNCATE t"),
                )
                .await;
                let by_others = "SELECT count(*) FROM ran WHERE who <> 'bob'";
                assert_eq!(count(&s, by_others).await, 0, "{mode:?}: {alteration}");
                t.drop(&name("kept"), true).await.unwrap();
                run(&s, FORGET).await;
            }
        }
    });
}

/// An alteration changes no value of the stream table. Later writes are captured or leave a mark, and the
/// stream table shows these writes.
#[test]
fn writers_of_an_altered_source_go_on_and_lose_nothing() {
    todays_server(async |db| {
        let s = db.session().await;
        role(&s, "bob").await;
        for mode in MODES {
            for (alteration, how) in ALTERED {
                // These alterations are skipped. The drop of a shown column suspends the stream table, and a
                // refresh refuses bob's types.
                if alteration.contains("bt")
                    || alteration.contains("checked")
                    || alteration.contains("DROP v")
                {
                    continue;
                }
                let mut t = kept(db, &s, mode).await;
                let old = bobs(db).await;
                run(&old, "UPDATE t SET v = v + 1 WHERE id = 1").await;
                run(&bobs(db).await, alteration).await;
                run(&old, &writes(how, 101)).await;
                run(&bobs(db).await, &(writes(how, 102) + "; DELETE FROM t WHERE id = 5")).await;
                // An event trigger tells the extension of a rename. The program notices the rename only at a
                // refresh.
                let followed = Driver::refreshes_as_owner();
                let renamed = alteration.contains("RENAME v") && !alteration.contains("word") && !followed;
                let marked = "SELECT count(*) FROM pgtrickle.pgt_marks";
                if renamed {
                    assert_eq!(count(&s, marked).await, 0, "columns are read by the names that they have");
                    let oid = count(&s, "SELECT 'bob.t'::regclass::oid::int8").await;
                    let captured =
                        format!("SELECT count(*) FROM pgtrickle_changes.changes_{oid} WHERE id > 100");
                    assert!(count(&s, &captured).await >= 4);
                }
                match try_refresh(&mut t, "kept").await {
                    Ok(_) => {
                        assert_equal(&mut t, "kept").await;
                        assert_eq!(count(&s, marked).await, 0, "{alteration}");
                    }
                    Err(e) => assert!(alteration.contains("RENAME"), "{alteration}: {e:?}"),
                }
                t.drop(&name("kept"), true).await.unwrap();
                run(&s, FORGET).await;
            }
        }
    });
}

/// Writers do not fail because a segment is missing, and their changes are not lost.
#[test]
fn a_lost_segment_marks_its_readers_and_fails_no_writer() {
    todays_server(async |db| {
        let s = db.session().await;
        role(&s, "bob").await;
        for mode in MODES {
            let mut t = kept(db, &s, mode).await;
            let bob = bobs(db).await;
            run(&bob, "UPDATE t SET v = v + 1 WHERE id = 1").await;
            let oid = count(&s, "SELECT 'bob.t'::regclass::oid::int8").await;
            run(&s, &format!("DROP TABLE pgtrickle_changes.changes_{oid}_1 CASCADE")).await;
            run(&bob, "UPDATE t SET v = v + 1 WHERE id = 2; INSERT INTO t VALUES (200, 1); TRUNCATE t; INSERT INTO t VALUES (201, 1)").await;
            let why =
                s.client().query_one("SELECT DISTINCT reason FROM pgtrickle.pgt_marks", &[]).await.unwrap();
            assert_eq!(why.get::<_, String>(0), "the table that held its changes is gone");
            let told = "changes of bob.t could not be captured: the table that held its changes is gone";
            let status = t.status(&[name("kept")]).await.unwrap();
            assert_eq!((status[0].needs_reinit, status[0].reinit_reason.as_deref()), (true, Some(told)));
            let checks = t.health(Scheduling::Program { enabled: true }).await.unwrap();
            let check = checks.iter().find(|c| c.name == "uncaptured changes").unwrap();
            assert!(
                check.verdict == Verdict::Warning && check.found.starts_with("of bob.t since "),
                "{check:?}"
            );
            refresh(&mut t, "kept").await;
            assert_equal(&mut t, "kept").await;
            run(&bob, "INSERT INTO t VALUES (202, 1)").await;
            refresh(&mut t, "kept").await;
            assert_equal(&mut t, "kept").await;
            t.drop(&name("kept"), true).await.unwrap();
            run(&s, FORGET).await;
        }
    });
}

/// Tests an IMMEDIATE stream table over bob's table `t`, or over `t` and bob's table `o`, after each
/// alteration of `t`.
#[test]
fn immediate_runs_no_code_of_the_owner_of_a_source() {
    todays_server(async |db| {
        let s = db.session().await;
        role(&s, "bob").await;
        for query in [
            "SELECT id, v + 1 AS v, word FROM bob.t",
            "SELECT v, count(*) AS n, sum(v) AS s FROM bob.t WHERE v > 0 GROUP BY v",
            "SELECT t.id, o.v FROM bob.t JOIN bob.o ON o.id = t.v",
        ] {
            for (alteration, how) in ALTERED {
                run(&s, BOB).await;
                run(&s, "SET ROLE bob; CREATE TABLE bob.o (id int PRIMARY KEY, v int, word text); INSERT INTO bob.o SELECT i, i FROM generate_series(0, 9) i; RESET ROLE").await;
                let mut t = open(db).await;
                let new = NewStreamTable {
                    mode: Some(RefreshMode::Immediate),
                    ..NewStreamTable::new(name("kept"), query)
                };
                t.create(&new).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
                let old = bobs(db).await;
                run(&old, "UPDATE t SET v = v + 1 WHERE id = 1").await;
                run(&bobs(db).await, alteration).await;
                run(&old, &writes(how, 101)).await;
                run(&bobs(db).await, &(writes(how, 102) + "; TRUNCATE t")).await;
                // `o` is altered too. Then a session that has already fired the triggers of `o` writes `o`.
                run(&bobs(db).await, "ALTER TABLE o ALTER v TYPE bt USING row(v)::bt").await;
                run(&old, "INSERT INTO o (id) VALUES (50); DELETE FROM o WHERE id = 3").await;
                let by_others = "SELECT count(*) FROM ran WHERE who <> 'bob'";
                assert_eq!(count(&s, by_others).await, 0, "{query}: {alteration}");
                t.drop(&name("kept"), true).await.unwrap();
                run(&s, FORGET).await;
            }
        }
    });
}

/// Creates a role if the server does not have the role. All databases of a server share its roles.
async fn role(s: &Session, name: &str) {
    let text = format!(
        "DO $$ BEGIN CREATE ROLE {name}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    );
    run(s, &text).await;
}
