//! A process or the whole server dies, or a statement is ended, during a wait within a refresh, a creation or
//! a captured write. The next refresh counts each committed change once. The interrupted work leaves no row,
//! no lock and no half-made stream table. The tests catch work that is stored before all of it is done, and
//! facts that only the memory of the dead process had.

use super::deaths::{Death, ENDS, End};
use super::installed;
use super::stops::{At, Cast, STOPS, Stop, TABLES, flat, left, make, stored, wanted, writes};
use crate::faults::objects;
use crate::support::private::{connect, newest_version, start_with};
use crate::support::{Db, assert_same_bag, is_todays, newest_server, pid, run};
use trickle_client::Session;
use trickle_client::throwaway::Server;

const REFRESH: &str =
    "SELECT pgtrickle.refresh_stream_table('public.large'), pgtrickle.refresh_stream_table('public.apart')";

/// The number for writes of the user who refreshes. Writes with different numbers change different rows.
const USER: u32 = 0;
/// The number for writes of another session.
const OTHER: u32 = 1;

pub(super) async fn cast(server: &Server) -> Cast {
    Cast::new(
        connect(server, "postgres").await,
        connect(server, "postgres").await,
        connect(server, "postgres").await,
    )
    .await
}

/// Refreshes, and asserts that no change is missing or counted twice, and that no transaction or lock is
/// left.
async fn settle(s: &Session) {
    assert_eq!(left(s).await, 0);
    run(s, REFRESH).await;
    for (name, query) in TABLES {
        assert_same_bag(s, &format!("TABLE {name}"), query).await;
    }
    assert_eq!(stored(s).await, wanted(s).await);
}

/// Lets a server die at each of the [`STOPS`] of a refresh. The kinds of death take turns.
async fn die_everywhere(server: &mut Server, unlogged: bool, deaths: &[Death]) {
    let s = connect(server, "postgres").await;
    run(&s, &format!("CREATE EXTENSION pg_trickle; SET pg_trickle.change_buffer_unlogged = {unlogged}"))
        .await;
    make(&s).await;
    for (n, (stop, death)) in (1..).zip(STOPS.iter().zip(deaths.iter().cycle())) {
        let (cast, s) = (cast(server).await, connect(server, "postgres").await);
        run(&s, "SET pg_trickle.refresh_strategy = 'differential'").await;
        run(&cast.writer, &writes(3 * n, OTHER)).await;
        let (process, open) = (pid(s.client()).await, connect(server, "postgres").await);
        let done = cast.stopped(&s, stop.block, REFRESH, async |at| {
            // The first refresh of a session also checks an unlogged buffer and writes to it. So such a
            // refresh may wait at an earlier step.
            assert!(unlogged || at == stop.at, "{at:?}: {}", stop.block);
            if stop.open {
                run(&cast.writer, &writes(3 * n + 1, OTHER)).await;
                run(&open, &format!("BEGIN; {}", writes(3 * n, USER))).await;
            }
            death.of(server, process, &cast).await;
        });
        assert!(done.await.is_err(), "{death:?}: {}", stop.block);
        let s = connect(server, "postgres").await;
        // This write comes after the crash and before any refresh reads the buffers.
        run(&s, &writes(3 * n + 2, USER)).await;
        settle(&s).await;
    }
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresh_whose_process_is_killed_leaves_nothing() {
    newest_version(async |binaries| {
        for unlogged in [false, true] {
            let mut server = start_with(binaries, "killed", &[]).await;
            die_everywhere(&mut server, unlogged, &[Death::Process]).await;
            server.stop();
        }
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresh_whose_server_dies_leaves_nothing() {
    newest_version(async |binaries| {
        let buffers =
            [(false, [Death::Head, Death::All, Death::Quit]), (true, [Death::All, Death::Quit, Death::Head])];
        let of_today = buffers.into_iter().enumerate().filter(|(nth, _)| is_todays(*nth, 2));
        for (_, (unlogged, deaths)) in of_today {
            let mut server = start_with(binaries, "died", &[]).await;
            die_everywhere(&mut server, unlogged, &deaths).await;
            server.stop();
        }
    });
}

async fn user(db: &Db) -> Session {
    let s = db.session().await;
    run(&s, "SET pg_trickle.refresh_strategy = 'differential'").await;
    s
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresh_that_is_ended_leaves_nothing() {
    newest_server(async |db| {
        make(&installed(db).await).await;
        let cast = Cast::of(db).await;
        let mut n = 0;
        for end in ENDS {
            // `statement_timeout` does not cover the commit of a statement.
            let covered = |s: &&Stop| end != End::StatementTimeout || s.at != At::Ending;
            for (nth, stop) in STOPS.iter().filter(covered).enumerate() {
                if !is_todays(nth, 2) {
                    continue;
                }
                n += 2;
                let s = user(db).await;
                run(&cast.writer, &writes(n, OTHER)).await;
                end.of(&cast, &s, stop.block, REFRESH, async |_| {
                    if stop.open {
                        run(&cast.writer, &writes(n + 1, OTHER)).await;
                    }
                })
                .await;
                let s = if end == End::Terminated { user(db).await } else { s };
                run(&s, "RESET statement_timeout; RESET lock_timeout").await;
                settle(&s).await;
            }
        }
    });
}

/// Ends a refresh after a savepoint. Changes from before the savepoint stay, and a later refresh counts them
/// with the other changes.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn ending_a_refresh_in_a_savepoint_keeps_the_transaction() {
    newest_server(async |db| {
        make(&installed(db).await).await;
        let cast = Cast::of(db).await;
        let mut n = 0;
        for end in [End::Cancelled, End::LockTimeout] {
            for stop in STOPS.iter().filter(|s| s.open && s.at != At::Ending) {
                n += 2;
                let s = user(db).await;
                run(&cast.writer, &writes(n, OTHER)).await;
                run(
                    &s,
                    &format!("BEGIN; SET CONSTRAINTS late IMMEDIATE; {}; SAVEPOINT one", writes(n, USER)),
                )
                .await;
                end.of(&cast, &s, stop.block, REFRESH, async |_| {
                    run(&cast.writer, &writes(n + 1, OTHER)).await;
                })
                .await;
                run(&s, &format!("ROLLBACK TO one; {}; {REFRESH}", writes(n + 1, USER))).await;
                assert_eq!(stored(&s).await, wanted(&s).await, "{end:?}: {}", stop.block);
                run(&s, "COMMIT").await;
                settle(&s).await;
            }
        }
    });
}

/// Places at which a captured statement waits: before the trigger writes to the buffer, during that write,
/// after the write, and before the commit.
const WRITES: [&str; 4] = [
    "SELECT pg_advisory_xact_lock(6)",
    "SELECT bar('a', 'EXCLUSIVE')",
    "SELECT pg_advisory_xact_lock(7)",
    "SELECT pg_advisory_xact_lock(8)",
];

const WAITING: &str = "CREATE TRIGGER aa AFTER UPDATE ON a EXECUTE FUNCTION waits('6');
    CREATE TRIGGER zz AFTER UPDATE ON a EXECUTE FUNCTION waits('7');
    CREATE CONSTRAINT TRIGGER zzz AFTER UPDATE ON a DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION waits('8')";

/// Refreshes run while the captured statement waits, except where the buffer itself is locked.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_captured_write_whose_process_dies_never_was() {
    newest_version(async |binaries| {
        for mode in ["statement", "row"] {
            let mut server = start_with(binaries, "writer", &[]).await;
            let s = connect(&server, "postgres").await;
            run(&s, &format!("CREATE EXTENSION pg_trickle; SET pg_trickle.cdc_trigger_mode = '{mode}'"))
                .await;
            make(&s).await;
            run(&s, WAITING).await;
            die_writing(&mut server, &WRITES, async |cast| run(&cast.eye, REFRESH).await, settle).await;
            server.stop();
        }
    });
}

/// Ends a statement that changes all rows of a source, at each of `blocks`. The statement ends in four ways:
/// by its termination, and by three kinds of death of the server.
async fn die_writing(
    server: &mut Server,
    blocks: &[&str],
    meanwhile: impl AsyncFn(&Cast),
    settle: impl AsyncFn(&Session),
) {
    let mut n = 0;
    for death in [None, Some(Death::Process), Some(Death::Head), Some(Death::All)] {
        for block in blocks {
            n += 1;
            let cast = cast(server).await;
            run(&cast.writer, &writes(n, OTHER)).await;
            let before = wanted(&cast.writer).await;
            let (s, change) = (connect(server, "postgres").await, "UPDATE a SET v = -v, k = 1");
            match death {
                None => End::Terminated.of(&cast, &s, block, change, async |_| meanwhile(&cast).await).await,
                Some(death) => {
                    let process = pid(s.client()).await;
                    let done = cast.stopped(&s, block, change, async |_| {
                        meanwhile(&cast).await;
                        death.of(server, process, &cast).await;
                    });
                    assert!(done.await.is_err(), "{death:?}: {block}");
                }
            }
            let s = connect(server, "postgres").await;
            assert_eq!(wanted(&s).await, before, "{death:?}: {block}");
            settle(&s).await;
        }
    }
}

/// Two IMMEDIATE stream tables, one over one source and one over two sources.
const KEPT: [(&str, &str); 2] = [
    ("kept", "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k"),
    ("pairs", "SELECT a.id, b.id AS other, a.v, b.w FROM a JOIN b ON b.k = a.k"),
];

/// The places at which a writer waits when two IMMEDIATE stream tables read its table. The places are before
/// the triggers, during the write of each stream table, after the triggers, and before the commit.
const FOLLOWED: [&str; 5] = [
    "SELECT pg_advisory_xact_lock(6)",
    "LOCK TABLE kept IN SHARE MODE",
    "LOCK TABLE pairs IN SHARE MODE",
    "SELECT pg_advisory_xact_lock(7)",
    "SELECT pg_advisory_xact_lock(8)",
];

/// IMMEDIATE stream tables show the result over the committed rows at each moment, without any refresh.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_write_to_immediate_tables_that_dies_leaves_nothing() {
    newest_version(async |binaries| {
        let mut server = start_with(binaries, "followed", &[]).await;
        let s = connect(&server, "postgres").await;
        run(&s, "CREATE EXTENSION pg_trickle").await;
        make(&s).await;
        for (name, query) in KEPT {
            run(&s, &format!("SELECT pgtrickle.create_stream_table('{name}', '{query}', NULL, 'IMMEDIATE')"))
                .await;
        }
        run(&s, WAITING).await;
        let same = async |s: &Session| {
            for (name, query) in KEPT {
                assert_same_bag(s, &format!("TABLE {name}"), query).await;
            }
        };
        let settled = async |s: &Session| {
            same(s).await;
            run(s, "UPDATE a SET v = v + 1 WHERE id < 20; DELETE FROM b WHERE id = 3").await;
            run(s, "INSERT INTO b VALUES (3, 3, 3) ON CONFLICT DO NOTHING").await;
            same(s).await;
            settle(s).await;
        };
        die_writing(&mut server, &FOLLOWED, async |cast| same(&cast.eye).await, settled).await;
        server.stop();
    });
}

/// Places at which a creation waits: at its first read, at its writes to the catalog, for an open writer, and
/// during the fill.
const CREATIONS: [&str; 8] = [
    "LOCK TABLE pgtrickle.pgt_catalog_version IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE pgtrickle.pgt_stream_tables IN SHARE MODE",
    "LOCK TABLE pgtrickle.pgt_dependencies IN SHARE MODE",
    "INSERT INTO c VALUES (-1, 1, 1); DELETE FROM c WHERE id = -1",
    "LOCK TABLE pgtrickle.pgt_buffers IN SHARE MODE",
    "SELECT pg_advisory_xact_lock(9)",
    "SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'total' FOR UPDATE",
    "LOCK TABLE pgtrickle.pgt_refresh_history IN SHARE MODE",
];
const NEW: &str = "SELECT c.id, gate(9, c.v) AS v, t.s FROM c JOIN total t ON t.k = c.k";

/// Makes, refreshes and drops a stream table after the death of a creation of the same name.
async fn create_again(s: &Session, objects_before: &[String]) {
    assert_eq!(objects(s).await, objects_before);
    assert_eq!(left(s).await, 0);
    run(s, &format!("SELECT pgtrickle.create_stream_table('new', $${NEW}$$)")).await;
    let again = "SELECT pgtrickle.refresh_stream_table('new')";
    run(s, &format!("INSERT INTO c SELECT max(id) + 1, 2, 2 FROM c; UPDATE a SET v = v + 1; {again}")).await;
    assert_same_bag(s, "TABLE new", &NEW.replace("total t", &format!("({}) t", flat("total")))).await;
    run(s, "SELECT pgtrickle.drop_stream_table('new')").await;
    settle(s).await;
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_creation_that_dies_leaves_nothing() {
    newest_version(async |binaries| {
        let mut server = start_with(binaries, "made", &[]).await;
        let s = connect(&server, "postgres").await;
        run(&s, "CREATE EXTENSION pg_trickle").await;
        make(&s).await;
        run(&s, "CREATE TABLE c (id int PRIMARY KEY, k int, v int); INSERT INTO c SELECT i, i % 5, i FROM generate_series(1, 9) i").await;
        let there = objects(&s).await;
        let create = format!("SELECT pgtrickle.create_stream_table('new', $${NEW}$$)");
        for (i, block) in CREATIONS.into_iter().enumerate() {
            for end in [End::Terminated, End::Cancelled] {
                let (cast, s) = (cast(&server).await, connect(&server, "postgres").await);
                end.of(&cast, &s, block, &create, async |_| {}).await;
                create_again(&cast.writer, &there).await;
            }
            for death in [Death::Process, [Death::Head, Death::All, Death::Quit][i % 3]] {
                let (cast, s) = (cast(&server).await, connect(&server, "postgres").await);
                let process = pid(s.client()).await;
                let done =
                    cast.stopped(&s, block, &create, async |_| death.of(&mut server, process, &cast).await);
                assert!(done.await.is_err(), "{death:?}: {block}");
                create_again(&connect(&server, "postgres").await, &there).await;
            }
        }
        server.stop();
    });
}
