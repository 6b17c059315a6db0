//! The program dies between any two messages of a refresh with its drain, of a refresh over a full buffer, or
//! of a creation. After the next run of the program no change is lost or counted twice, and no object of the
//! dead program hinders the run. The tests catch half-done work in code outside of the refresh machine.

use crate::support::{
    Budget, Db, assert_equal, count, create, cut, name, newest_server, open_with, refresh, run,
};
use trickle_client::{NewStreamTable, RefreshOptions, Session, Settings, Trickle};

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 100) i";

const TABLES: [(&str, &str); 2] =
    [("sums", "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k"), ("rows", "SELECT id, v FROM a")];

/// Opens a session of the library, even when the other tests use the SQL API. A refresh by the SQL API is one
/// message to the server. The tests in which the process dies during that message are in
/// `extension::crashes`.
async fn cut_session(db: &Db, settings: &Settings) -> (Trickle, Budget) {
    let (session, budget) = cut::connect(db).await;
    (Trickle::open(session, settings.clone()).await.unwrap(), budget)
}

/// Refreshes the first table repeatedly. The connection of each refresh is cut after a greater number of
/// messages, until a refresh ends before its cut.
async fn refresh_cut_everywhere(db: &Db, settings: Settings, change: &str) {
    let mut whole = open_with(db, settings.clone()).await;
    let w = db.session().await;
    run(&w, SOURCES).await;
    for (what, query) in TABLES {
        create(&mut whole, what, query).await;
    }
    let mut messages = 0;
    loop {
        assert!(messages < 3000, "a refresh of {messages} messages");
        run(&w, change).await;
        let (mut t, budget) = cut_session(db, &settings).await;
        budget.set(messages);
        let done = t.refresh(&[name("sums")], &RefreshOptions::default()).await;
        let spent = budget.is_spent();
        drop(t);
        run(&w, "UPDATE a SET v = v + 1 WHERE id % 9 = 0").await;
        for (what, _) in TABLES {
            assert_equal(&mut whole, what).await;
        }
        if !spent {
            done.unwrap();
            break;
        }
        // A statement has five messages, or more if the client asks for the types of its parameters. So the
        // cuts do not always fall on the same message of a statement.
        messages += 5;
    }
    assert!(messages > 60, "only {messages}");
    let (bytes, segments) = (held(&w).await, segments(&w).await);
    for _ in 0..6 {
        run(&w, change).await;
        for (what, _) in TABLES {
            refresh(&mut whole, what).await;
        }
    }
    assert!(held(&w).await <= bytes.max(64 << 10) * 2, "{bytes}");
    assert!(segments <= 4 && self::segments(&w).await <= 4, "{segments}");
}

async fn held(s: &Session) -> i64 {
    let bytes = "SELECT sum(pg_relation_size(c.oid))::int8 FROM pg_class c \
         WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relkind = 'r' AND relname LIKE 'changes%'";
    count(s, bytes).await
}

async fn segments(s: &Session) -> i64 {
    count(s, "SELECT max(jsonb_array_length(segments))::int8 FROM pgtrickle.pgt_buffers").await
}

#[test]
fn a_refresh_and_its_drain_die_between_any_two_messages() {
    newest_server(async |db| {
        let settings = Settings { segment_bytes: 1, ..Settings::default() };
        refresh_cut_everywhere(db, settings, "UPDATE a SET v = v + 2").await;
    });
}

#[test]
fn the_relief_of_a_full_buffer_dies_between_any_two_messages() {
    newest_server(async |db| {
        let settings =
            Settings { segment_bytes: 1, buffer_limit_bytes: Some(8 << 10), ..Settings::default() };
        let change = "UPDATE a SET v = v + 2; UPDATE a SET v = v - 3; DELETE FROM a WHERE id = (SELECT max(id) FROM a);
            INSERT INTO a SELECT max(id) + 1, 1, 1 FROM a";
        refresh_cut_everywhere(db, settings, change).await;
    });
}

#[test]
fn a_creation_dies_between_any_two_messages() {
    newest_server(async |db| {
        let settings = Settings::default();
        let mut whole = open_with(db, settings.clone()).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut whole, "rows", TABLES[1].1).await;
        // The creation of `sums` adds columns to the buffer that the creation of `rows` made.
        let new = NewStreamTable::new(name("sums"), TABLES[0].1);
        let mut messages = 0;
        loop {
            assert!(messages < 3000, "a creation of {messages} messages");
            let (mut t, budget) = cut_session(db, &settings).await;
            budget.set(messages);
            let made = t.create(&new).await;
            let spent = budget.is_spent();
            drop(t);
            run(&w, "UPDATE a SET v = v + 1, k = k + 1 WHERE id % 9 = 0").await;
            // The server may still be working on the last message of the dead program.
            let there = loop {
                match whole.find(&name("sums")).await {
                    Ok(_) => break true,
                    Err(_) if busy(&w).await => tokio::task::yield_now().await,
                    Err(_) => break whole.find(&name("sums")).await.is_ok(),
                }
            };
            if there {
                assert_equal(&mut whole, "sums").await;
            }
            assert_equal(&mut whole, "rows").await;
            if !spent {
                made.unwrap();
                break;
            }
            if there {
                whole.drop(&name("sums"), false).await.unwrap();
                whole.drop(&name("rows"), false).await.unwrap();
                create(&mut whole, "rows", TABLES[1].1).await;
            }
            messages += 11;
        }
        assert!(messages > 100, "only {messages}");
    });
}

/// Whether another session is running a statement.
async fn busy(s: &Session) -> bool {
    let text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' \
         AND pid <> pg_backend_pid()";
    count(s, text).await > 0
}
