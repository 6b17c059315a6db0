//! Changes that no trigger sees are noticed all the same.

use crate::support::each_server;
use trickle_client::capture::CaptureOptions;
use trickle_client::{Name, NewStreamTable, RefreshOptions, Settings, Trickle};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;

const SOURCE: &str =
    "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 50) i";

/// What happens behind the back of the triggers. Written rows are captured again from then on.
const UNSEEN: [(&str, &str); 4] = [
    (
        "triggers switched off for a load",
        "ALTER TABLE t DISABLE TRIGGER ALL; INSERT INTO t VALUES (100, 7); ALTER TABLE t ENABLE TRIGGER ALL",
    ),
    (
        "a trigger dropped",
        "DO $$ BEGIN EXECUTE format('DROP TRIGGER trickle_capture_%s_update ON t', 't'::regclass::oid); END $$; UPDATE t SET v = v + 1 WHERE id < 9",
    ),
    ("values rewritten under the same type", "ALTER TABLE t ALTER COLUMN v TYPE int USING v + 1000"),
    ("a key that may repeat", "ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t SELECT * FROM t"),
];

async fn equal(t: &mut Trickle) -> Option<String> {
    let e = t.find(&Name::parse("st").unwrap()).await.unwrap();
    let checked = t.check(&e, 3).await.unwrap();
    (checked.different != 0).then(|| format!("{checked:?}"))
}

async fn open(db: &crate::support::Db, settings: Settings) -> Trickle {
    let mut t = Trickle::attach(db.session().await, settings).await.unwrap();
    t.init().await.unwrap();
    t
}

#[test]
fn what_no_trigger_sees_is_noticed() {
    each_server(async |db| {
        let mut t = open(db, Settings { force: Some(Force::Incremental), ..Settings::default() }).await;
        for (what, change) in UNSEEN {
            t.client().batch_execute(SOURCE).await.unwrap();
            t.create(&NewStreamTable::new(Name::parse("st").unwrap(), "SELECT id, v * 2 AS w FROM t"))
                .await
                .unwrap();
            let writer = db.session().await;
            writer.client().batch_execute(change).await.unwrap();
            assert_eq!(equal(&mut t).await, None, "{what}");
            writer.client().batch_execute("UPDATE t SET v = v + 3 WHERE id = 5").await.unwrap();
            let done = t.refresh(&[Name::parse("st").unwrap()], &RefreshOptions::default()).await.unwrap();
            assert_eq!(done[0].report.action, Action::Differential, "{what}");
            assert_eq!(equal(&mut t).await, None, "{what}");
            t.drop(&Name::parse("st").unwrap(), false).await.unwrap();
            t.client().batch_execute("DROP TABLE t").await.unwrap();
        }
    });
}

#[test]
fn a_crash_that_empties_unlogged_buffers_is_made_good_for_every_reader() {
    each_server(async |db| {
        let capture = CaptureOptions { unlogged: true, ..CaptureOptions::default() };
        let mut t =
            open(db, Settings { capture, force: Some(Force::Incremental), ..Settings::default() }).await;
        t.client().batch_execute(SOURCE).await.unwrap();
        let views = [("st", "SELECT id, v FROM t"), ("st2", "SELECT count(*) AS n, sum(v) AS s FROM t")];
        for (name, query) in views {
            t.create(&NewStreamTable::new(Name::parse(name).unwrap(), query)).await.unwrap();
        }
        let writer = db.session().await;
        writer.client().batch_execute("UPDATE t SET v = 0 WHERE id < 20").await.unwrap();
        // What is left of an unlogged table after a crash: nothing.
        let segment = "SELECT c.oid::regclass::text FROM pg_class c WHERE relname LIKE 'changes%1' AND relpersistence = 'u'";
        let segment: String = t.client().query_one(segment, &[]).await.unwrap().get(0);
        writer.client().batch_execute(&format!("TRUNCATE {segment}")).await.unwrap();
        assert_eq!(equal(&mut t).await, None);
        writer.client().batch_execute("DELETE FROM t WHERE id = 3").await.unwrap();
        for (name, _) in views {
            let e = t.find(&Name::parse(name).unwrap()).await.unwrap();
            assert_eq!(t.check(&e, 3).await.unwrap().different, 0, "{name}");
        }
        writer.client().batch_execute("DELETE FROM t WHERE id = 4").await.unwrap();
        let done = t.refresh_all(&RefreshOptions::default()).await.unwrap();
        assert!(done.iter().all(|d| d.report.action == Action::Differential), "{done:?}");
    });
}
