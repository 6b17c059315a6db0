//! Capture that the user switched off stays off, even if the table's readers are planned again for another
//! reason. The tests catch triggers that are made again although the user switched capture off.

use crate::support::{
    Driver, assert_equal, count, create, cut, name, newest_server, open_with, refresh, run, sql_api,
    try_refresh,
};
use trickle_client::{Alteration, IfExists, NewStreamTable, Session, Settings, Trickle};
use trickle_core::cost::Force;

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int, spare int);
    CREATE TABLE b (id int PRIMARY KEY, k int);
    INSERT INTO a SELECT i, i % 4, i FROM generate_series(1, 40) i;
    INSERT INTO b SELECT i, i % 4 FROM generate_series(1, 8) i";

/// Returns the reason for which refreshes read the whole table `a`, in the words of the driver.
fn why() -> String {
    let program = if sql_api::is_meant() { "the program's " } else { "" };
    format!(
        "{program}trickle disable switched the capture of public.a off; {program}trickle enable public.a switches it on"
    )
}

/// Settings with which every refresh that can use a delta uses one, even over small tables.
fn by_deltas() -> Settings {
    Settings { force: Some(Force::Incremental), ..Settings::default() }
}

/// Asserts that `a` has no trigger, and that the status shows its capture as switched off. Asserts also that
/// its reader is right by full refreshes.
async fn is_held(t: &mut Driver, w: &Session, reader: &str, after: &str) {
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'a'::regclass AND NOT tgisinternal";
    assert_eq!(count(w, triggers).await, 0, "{after}");
    // The first refresh after a new plan is a full refresh for another reason. So only the second refresh is
    // checked.
    refresh(t, reader).await;
    run(w, "UPDATE a SET v = v + 1 WHERE id % 3 = 0").await;
    let done = refresh(t, reader).await;
    let report = &done.last().unwrap().report;
    assert!(report.action.name() == "FULL" && report.reason == why(), "{after}: {report:?}");
    assert_equal(t, reader).await;
    let standing = t.status(&[name(reader)]).await.unwrap();
    assert!(standing[0].sources.iter().any(|s| s.held && !s.captured), "{after}: {standing:?}");
    let buffers = t.buffers().await.unwrap();
    assert!(buffers.iter().any(|b| b.source == "public.a" && b.disabled && b.held), "{after}: {buffers:?}");
}

#[test]
fn disabled_capture_stays_off_until_the_user_enables_it() {
    newest_server(async |db| {
        let mut t = open_with(db, by_deltas()).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "sums", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        create(&mut t, "other", "SELECT id, k FROM b").await;
        t.disable(&name("a")).await.unwrap();
        // Capture is off for the first refresh after `disable` and for all later refreshes.
        is_held(&mut t, &w, "sums", "disable").await;
        create(&mut t, "joined", "SELECT a.id, a.v, b.id AS b FROM a JOIN b USING (k)").await;
        for reader in ["sums", "joined"] {
            is_held(&mut t, &w, reader, "create").await;
        }
        let query = Some("SELECT a.id, a.v, b.id AS b, spare FROM a JOIN b USING (k)".to_owned());
        t.alter(&name("joined"), &Alteration { query, ..Alteration::default() }).await.unwrap();
        is_held(&mut t, &w, "joined", "alter").await;
        let mut again =
            NewStreamTable::new(name("sums"), "SELECT k, sum(v) AS s, max(v) AS m FROM a GROUP BY k");
        again.if_exists = IfExists::Replace;
        t.create(&again).await.unwrap();
        is_held(&mut t, &w, "sums", "create --or-replace").await;
        t.disable(&name("b")).await.unwrap();
        t.enable(&name("b")).await.unwrap();
        is_held(&mut t, &w, "joined", "enable of another source").await;
        for change in ["ALTER TABLE a ADD COLUMN more int", "ALTER TABLE b ADD COLUMN more int"] {
            run(&w, change).await;
            is_held(&mut t, &w, "joined", change).await;
        }
        // A second `disable` changes nothing, and dropping the last reader does not enable capture again.
        t.disable(&name("a")).await.unwrap();
        for reader in ["sums", "joined"] {
            t.drop(&name(reader), false).await.unwrap();
        }
        create(&mut t, "rows", "SELECT id, v FROM a WHERE v > 3").await;
        is_held(&mut t, &w, "rows", "a new first reader").await;
        t.enable(&name("a")).await.unwrap();
        create(&mut t, "sums", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        run(&w, "UPDATE a SET v = v + 1").await;
        assert_eq!(refresh(&mut t, "rows").await[0].report.action.name(), "REINITIALIZE");
        run(&w, "UPDATE a SET v = v + 1 WHERE id = 7").await;
        for reader in ["rows", "sums"] {
            let done = refresh(&mut t, reader).await;
            assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
            assert_equal(&mut t, reader).await;
        }
        t.disable(&name("a")).await.unwrap();
        for reader in ["rows", "sums"] {
            t.drop(&name(reader), false).await.unwrap();
        }
        t.enable(&name("a")).await.unwrap();
        assert!(t.buffers().await.unwrap().iter().all(|b| b.source != "public.a"));
    });
}

/// When a client dies in the middle of `enable`, the next refresh finishes the work of `enable`.
#[test]
fn an_enable_that_was_cut_off_is_finished_by_a_refresh() {
    newest_server(async |db| {
        let mut t = open_with(db, by_deltas()).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "sums", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        t.disable(&name("a")).await.unwrap();
        for messages in (3..).step_by(7) {
            let (session, budget) = cut::connect(db).await;
            let mut dying = Trickle::open(session, t.settings().clone()).await.unwrap();
            budget.set(messages);
            let done = dying.enable(&name("a")).await.is_ok();
            assert!(done || budget.is_spent());
            run(&w, "UPDATE a SET v = v + 1").await;
            refresh(&mut t, "sums").await;
            assert_equal(&mut t, "sums").await;
            let between = count(&w, "SELECT count(*) FROM pgtrickle.pgt_buffers WHERE capture = 'OFF'").await;
            assert_eq!(between, 0, "after {messages} messages");
            if done {
                break;
            }
            t.disable(&name("a")).await.unwrap();
        }
    });
}

/// Capture can stop because a reader does not fit the altered table, and not because the user switched it
/// off. In this case `enable` is refused. Capture starts again with a reader that fits, or with another
/// query.
#[test]
fn capture_that_stopped_by_itself_comes_back() {
    newest_server(async |db| {
        let mut t = open_with(db, by_deltas()).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "sums", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        run(&w, "ALTER TABLE a DROP COLUMN v").await;
        assert!(try_refresh(&mut t, "sums").await.is_err());
        let stopped = t.buffers().await.unwrap();
        assert!(stopped.iter().any(|b| b.disabled && !b.held), "{stopped:?}");
        let e = t.enable(&name("a")).await.unwrap_err();
        let hint = e.hint_text().unwrap_or_default();
        assert!(
            e.is_input()
                && hint.contains("trickle alter public.sums --query")
                && hint.contains("trickle drop"),
            "{e:?}"
        );
        // The creation of a reader that fits starts the capture of the table again.
        create(&mut t, "keys", "SELECT k, count(*) AS n FROM a GROUP BY k").await;
        assert!(t.buffers().await.unwrap().iter().all(|b| !b.disabled));
        let query = Some("SELECT k, max(id) AS s FROM a GROUP BY k".to_owned());
        t.alter(&name("sums"), &Alteration { query, ..Alteration::default() }).await.unwrap();
        run(&w, "DELETE FROM a WHERE id = 5").await;
        for reader in ["sums", "keys"] {
            let done = refresh(&mut t, reader).await;
            assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
            assert_equal(&mut t, reader).await;
        }
    });
}
