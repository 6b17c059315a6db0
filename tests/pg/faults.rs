//! A refresh that dies at any of its statements leaves the former state. The next refresh loses no change and
//! counts no change twice. The tests catch errors that no test of the refresh machine can catch. Examples are
//! statements outside of the transaction, sessions that remember facts which the server forgot, and half-made
//! stream tables.

use crate::support::{
    Db, Driver, assert_equal, blocked, count, create, end, name, newest_server, open, pid, refresh, run,
};
use std::pin::Pin;
use trickle_client::{Error, NewStreamTable, RefreshOptions, Result, Session, Watch};
use trickle_core::refresh::{Action, Statement};

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i;
    INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i";

/// The fault that a test causes before a statement of a refresh.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The client gives up with an error that no server sent.
    Client,
    /// The server process of the session is terminated.
    Backend,
}

/// A watch on a refresh. The watch lets `left` statements pass and then causes the fault.
struct Strike<'s> {
    left: usize,
    seen: usize,
    fault: Fault,
    admin: &'s Session,
    pid: i32,
}

impl Watch for Strike<'_> {
    fn before<'s>(&'s mut self, _: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            self.seen += 1;
            if self.seen <= self.left || self.seen > self.left + 1 {
                return Ok(());
            }
            match self.fault {
                Fault::Client => Err(Error::input("the test says so")),
                Fault::Backend => {
                    end(self.admin, self.pid).await;
                    Ok(())
                }
            }
        })
    }
}

/// A kind of refresh: its stream tables, the change before each refresh, and the expected action. In the
/// change, `{i}` is a number that differs each time.
struct Case {
    tables: &'static [(&'static str, &'static str)],
    change: &'static str,
    full: bool,
    action: Option<Action>,
}

/// Refreshes the last stream table repeatedly, with the fault before the first statement, the second and so
/// on. Stops when a refresh ends before its fault.
async fn strike_everywhere(db: &Db, case: &Case) {
    let mut t = open(db).await;
    let admin = db.session().await;
    run(&admin, SOURCES).await;
    for (what, query) in case.tables {
        create(&mut t, what, query).await;
    }
    let last = case.tables.last().unwrap().0;
    let options = RefreshOptions { full: case.full, ..RefreshOptions::default() };
    for fault in [Fault::Client, Fault::Backend] {
        let mut left = 0;
        loop {
            assert!(left < 200, "a refresh of {left} statements");
            let number = left * 2 + if matches!(fault, Fault::Client) { 0 } else { 1000 };
            run(&admin, &case.change.replace("{i}", &number.to_string())).await;
            let mut strike =
                Strike { left, seen: 0, fault, admin: &admin, pid: pid(t.connection().client()).await };
            let done = t.refresh_watched(&[name(last)], &options, &mut strike).await;
            if strike.seen <= left {
                let done = done.unwrap_or_else(|e| panic!("{e:?}"));
                let action = done.last().unwrap().report.action;
                assert!(case.action.is_none_or(|a| a == action), "{action:?}: {done:?}");
                break;
            }
            if matches!(fault, Fault::Backend) {
                assert!(done.is_err(), "step {left}: {done:?}");
                t = open(db).await;
            }
            run(&admin, &case.change.replace("{i}", &(number + 1).to_string())).await;
            for (what, _) in case.tables {
                assert_equal(&mut t, what).await;
            }
            left += 1;
        }
        assert!(left > 5, "{fault:?}: only {left} statements");
    }
    assert_eq!(count(&admin, LEFT).await, 0);
}

/// A query for the number of transactions that refreshes left open.
const LEFT: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND state LIKE 'idle in transaction%'";

const CHAIN: &[(&str, &str)] = &[
    ("total", "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k"),
    ("large", "SELECT t.k, t.s, b.w FROM total t JOIN b ON b.k = t.k WHERE t.s > 10"),
];

const CHANGE: &str =
    "INSERT INTO a VALUES (10000 + {i}, {i} % 7, 100); UPDATE b SET w = w + 1 WHERE k = {i} % 5;
    DELETE FROM a WHERE id = (SELECT min(id) FROM a)";

#[test]
fn a_delta_of_a_chain_dies_at_every_step() {
    newest_server(async |db| {
        strike_everywhere(db, &Case { tables: CHAIN, change: CHANGE, full: false, action: None }).await;
    });
}

#[test]
fn a_full_refresh_of_a_chain_dies_at_every_step() {
    newest_server(async |db| {
        let case = Case { tables: CHAIN, change: CHANGE, full: true, action: Some(Action::Full) };
        strike_everywhere(db, &case).await;
    });
}

#[test]
fn a_refresh_without_changes_dies_at_every_step() {
    newest_server(async |db| {
        let case = Case { tables: CHAIN, change: "SELECT {i}", full: false, action: Some(Action::NoData) };
        strike_everywhere(db, &case).await;
    });
}

#[test]
fn a_first_fill_dies_at_every_step() {
    newest_server(async |db| {
        let case = Case {
            tables: CHAIN,
            change: "DELETE FROM b WHERE id >= 1000; INSERT INTO b VALUES (1000 + {i}, 1, 1);
                UPDATE pgtrickle.pgt_stream_tables SET is_populated = false, frontier = NULL, status = 'INITIALIZING'",
            full: false,
            action: Some(Action::Reinitialize),
        };
        strike_everywhere(db, &case).await;
    });
}

/// The delta joins a former row with a divisor. This divisor existed only between two statements of the
/// change.
#[test]
fn a_delta_that_meets_a_data_error_dies_at_every_step() {
    newest_server(async |db| {
        let case = Case {
            tables: &[("ratio", "SELECT a.id, b.id AS b, 100 / (b.w + a.v) AS r FROM a JOIN b USING (k)")],
            change: "DELETE FROM a WHERE k = 9; INSERT INTO a VALUES (10000 + {i}, 9, 0);
                DELETE FROM b WHERE k = 9; INSERT INTO b VALUES (10000 + {i}, 9, 0);
                UPDATE b SET w = 5 WHERE k = 9",
            full: false,
            action: None,
        };
        strike_everywhere(db, &case).await;
    });
}

/// Only the delta divides by zero, and the query raises no error. The cause is a row that was inserted and
/// deleted in one window, or a pair of rows that never existed together.
#[test]
fn an_error_that_only_the_delta_meets_is_recomputed() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "inverse", "SELECT id, 1 / w AS r FROM b").await;
        create(&mut t, "ratio", "SELECT a.id, b.id AS b, 1 / b.w AS r FROM a JOIN b ON a.k = b.k").await;
        create(&mut t, "summed", "SELECT a.k, sum(1 / b.w) AS r FROM a JOIN b ON a.k = b.k GROUP BY a.k")
            .await;
        for change in [
            "INSERT INTO b VALUES (100, 1, 0); UPDATE b SET w = 5 WHERE id = 100",
            "DELETE FROM a WHERE k = 1; UPDATE b SET w = 0 WHERE id = 100; UPDATE a SET k = 2 WHERE k = 1",
        ] {
            run(&w, change).await;
            assert_equal(&mut t, "ratio").await;
            assert_equal(&mut t, "summed").await;
        }
        // The query of `inverse` itself fails. The refresh reports the query's error, and no change is lost.
        let e = crate::support::try_refresh(&mut t, "inverse").await.unwrap_err();
        assert!(e.message().contains("division by zero"), "{e:?}");
        run(&w, "UPDATE b SET w = 7 WHERE w = 0").await;
        for table in ["inverse", "ratio", "summed"] {
            assert_equal(&mut t, table).await;
        }
    });
}

/// Returns the objects of a database, including hidden objects. A comparison of two such lists finds remains
/// of a creation.
pub(crate) async fn objects(s: &Session) -> Vec<String> {
    let rows = s
        .client()
        .query(
            "SELECT n.nspname || '.' || c.relname AS o FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname IN ('public', 'pgtrickle_changes') AND c.relkind IN ('r', 'v')
             UNION ALL SELECT tgrelid::regclass || '/' || tgname FROM pg_trigger WHERE NOT tgisinternal
             UNION ALL SELECT 'entry ' || pgt_name FROM pgtrickle.pgt_stream_tables
             UNION ALL SELECT 'buffer ' || source_relid::regclass FROM pgtrickle.pgt_buffers
             UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'pgtrickle_changes'::regnamespace ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|r| r.get(0)).collect()
}

/// Runs `work` until it waits for the writer, and then terminates the server process of `work`. Asserts that
/// the objects are the same as before `work`.
async fn killed(
    db: &Db,
    admin: &Session,
    mut t: Driver,
    write: &str,
    work: impl AsyncFnOnce(&mut Driver) -> bool,
) {
    let before = objects(admin).await;
    let writer = db.session().await;
    run(&writer, &format!("BEGIN; {write}")).await;
    let victim = pid(t.connection().client()).await;
    let kill = async {
        blocked(admin, victim).await;
        end(admin, victim).await;
    };
    let (failed, ()) = tokio::join!(async { work(&mut t).await }, kill);
    assert!(failed, "it went on without its server");
    assert_eq!(objects(admin).await, before);
    run(&writer, "COMMIT").await;
}

#[test]
fn creating_and_widening_die_while_they_wait_for_a_writer() {
    newest_server(async |db| {
        let t = open(db).await;
        let admin = db.session().await;
        run(&admin, SOURCES).await;
        let write = "INSERT INTO a VALUES (777, 1, 1)";
        let narrow = NewStreamTable::new(name("narrow"), "SELECT id FROM a WHERE id > 3");
        let wide = NewStreamTable::new(name("wide"), "SELECT a.*, b.w FROM a JOIN b USING (k)");
        killed(db, &admin, t, write, async |t| t.create(&narrow).await.is_err()).await;
        let mut t = open(db).await;
        t.create(&narrow).await.unwrap();
        run(&admin, "UPDATE a SET id = -id WHERE id = 777").await;
        killed(db, &admin, t, write, async |t| t.create(&wide).await.is_err()).await;
        let mut t = open(db).await;
        t.create(&wide).await.unwrap();
        run(&admin, "UPDATE a SET v = v + 1; DELETE FROM a WHERE id = 5").await;
        for table in ["narrow", "wide"] {
            assert_equal(&mut t, table).await;
        }
        let write = "INSERT INTO b VALUES (777, 1, 1)";
        killed(db, &admin, t, write, async |t| t.drop(&name("wide"), false).await.is_err()).await;
        let mut t = open(db).await;
        for table in ["narrow", "wide"] {
            assert_equal(&mut t, table).await;
        }
    });
}

/// A first fill dies after the creation committed. The stream table exists without rows, and the next refresh
/// fills it.
#[test]
fn a_creation_that_dies_while_it_fills_is_filled_later() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let admin = db.session().await;
        run(&admin, SOURCES).await;
        let blocker = db.session().await;
        run(&admin, "CREATE FUNCTION gate(x int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT x $$").await;
        create(&mut t, "first", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        run(&blocker, "BEGIN; LOCK TABLE b IN ACCESS EXCLUSIVE MODE").await;
        let victim = pid(t.connection().client()).await;
        let new = NewStreamTable::new(name("second"), "SELECT f.*, b.w FROM first f JOIN b ON b.k = f.k");
        let kill = async {
            blocked(&admin, victim).await;
            end(&admin, victim).await;
        };
        let (made, ()) = tokio::join!(t.create(&new), kill);
        assert!(made.is_err());
        run(&blocker, "ROLLBACK").await;
        let mut t = open(db).await;
        if t.find(&name("second")).await.is_err() {
            t.create(&new).await.unwrap();
        }
        run(&admin, "UPDATE a SET v = 0 WHERE k = 1; INSERT INTO b VALUES (50, 2, 2)").await;
        refresh(&mut t, "second").await;
        assert_equal(&mut t, "second").await;
    });
}
