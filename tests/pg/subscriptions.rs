//! Sources that a logical-replication subscription writes. The subscription's worker applies changes row by
//! row, and fires no statement triggers. The initial copy of a table fires triggers of both kinds. The tests
//! catch changes that fire no capture trigger. Some tables are captured before they are added to a
//! subscription, directly or by a partition.

use crate::support::private::{connect, each_version, open, start};
use crate::support::{assert_equal, count, create, refresh, run};
use trickle_client::{Session, Settings};
use trickle_core::cost::Force;

const TABLES: &str = "
    CREATE TABLE t (id int PRIMARY KEY, k int, v int);
    CREATE TABLE late (id int PRIMARY KEY, v int);
    CREATE TABLE ev (id int, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
    CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM (0) TO (10);
    CREATE TABLE ev_2 PARTITION OF ev FOR VALUES FROM (10) TO (20)";

const VIEWS: [(&str, &str); 3] = [
    ("sums", "SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k"),
    ("lates", "SELECT * FROM late"),
    ("days", "SELECT day, count(*) AS n FROM ev GROUP BY day"),
];

/// Waits until the subscriber has the publisher's rows. The function compares one hash over all rows of the
/// publisher with one over all rows of the subscriber.
async fn applied(publisher: &Session, subscriber: &Session) {
    let text = "SELECT coalesce(sum(hashtextextended(r, 0) / 1000), 0)::int8 FROM (SELECT 't' || t::text FROM t \
         UNION ALL SELECT 'l' || late::text FROM late UNION ALL SELECT 'e' || ev::text FROM ev) x(r)";
    let expected = count(publisher, text).await;
    for _ in 0..3000 {
        if count(subscriber, text).await == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let states = "SELECT string_agg(srrelid::regclass || ' ' || srsubstate, ', ') FROM pg_subscription_rel";
    let states: String = subscriber.client().query_one(states, &[]).await.unwrap().get(0);
    panic!("the subscriber does not catch up: {states}");
}

/// Changes by the publisher. Each text is the window of one refresh.
const CHANGES: &[&str] = &[
    "INSERT INTO t SELECT i, i % 3, i FROM generate_series(100, 120) i",
    "UPDATE t SET v = v + 1 WHERE k = 1; UPDATE late SET v = v * 2; INSERT INTO ev VALUES (50, 3), (51, 13)",
    "DELETE FROM t WHERE id < 5; INSERT INTO late VALUES (77, 7); UPDATE ev SET day = 14 WHERE day = 3",
    "BEGIN; INSERT INTO t VALUES (900, 1, 1); UPDATE t SET k = 9 WHERE id = 900; COMMIT",
    "TRUNCATE t; TRUNCATE ev",
    "INSERT INTO t VALUES (1, 1, 1); INSERT INTO ev VALUES (1, 1); DELETE FROM late",
];

async fn mode_of(s: &Session, table: &str) -> String {
    let text = "SELECT trigger_mode FROM pgtrickle.pgt_buffers WHERE source_relid = $1::text::regclass";
    s.client().query_one(text, &[&table]).await.unwrap().get(0)
}

#[test]
fn writes_of_a_subscription_are_captured() {
    each_version(async |binaries| {
        let server = start(binaries, "logical").await;
        run(&connect(&server, "postgres").await, "CREATE DATABASE here").await;
        run(&connect(&server, "postgres").await, "CREATE DATABASE there").await;
        let (publisher, subscriber) = (connect(&server, "there").await, connect(&server, "here").await);
        run(&publisher, TABLES).await;
        run(&subscriber, TABLES).await;
        run(
            &publisher,
            "INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 20) i; INSERT INTO late VALUES (1, 1);
             INSERT INTO ev VALUES (1, 1), (2, 12); CREATE PUBLICATION first FOR TABLE t;
             CREATE PUBLICATION second FOR TABLE late, ev",
        )
        .await;
        let subscribe = async |name: &str| {
            // Publisher and subscriber are on one server. CREATE SUBSCRIPTION cannot make the replication
            // slot in this case, since the making of a slot waits for all open transactions.
            run(&publisher, &format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"))
                .await;
            let host = server.directory().display();
            run(
                &subscriber,
                &format!(
                    "CREATE SUBSCRIPTION {name} CONNECTION 'host={host} user=postgres dbname=there' PUBLICATION {name} \
                     WITH (create_slot = false)"
                ),
            )
            .await;
        };
        // The table `t` is subscribed before it is captured, and `late` and `ev` after they are captured.
        subscribe("first").await;
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open(&server, "here", settings).await;
        for (what, query) in VIEWS {
            create(&mut t, what, query).await;
        }
        assert_eq!(mode_of(&subscriber, "t").await, "ROW");
        assert_ne!(mode_of(&subscriber, "late").await, "ROW");
        subscribe("second").await;
        applied(&publisher, &subscriber).await;
        let mut all_differential = true;
        for (what, _) in VIEWS {
            assert_equal(&mut t, what).await;
        }
        for table in ["t", "late", "ev"] {
            assert_eq!(mode_of(&subscriber, table).await, "ROW", "{table}");
        }
        for change in CHANGES {
            run(&publisher, change).await;
            applied(&publisher, &subscriber).await;
            for (what, _) in VIEWS {
                let done = refresh(&mut t, what).await;
                let action = done[0].report.action.name();
                all_differential &= action != "FULL";
                assert_ne!(action, "REINITIALIZE", "{what}: {done:?}");
                assert_equal(&mut t, what).await;
            }
        }
        assert!(!all_differential, "a TRUNCATE is applied as one");
        // Clients also write on the subscriber, one of them in a session with `session_replication_role`
        // replica.
        run(&subscriber, "INSERT INTO t VALUES (5000, 2, 2); SET session_replication_role = replica; DELETE FROM t WHERE id = 1; UPDATE ev SET day = day + 1; RESET session_replication_role").await;
        for (what, _) in VIEWS {
            assert_equal(&mut t, what).await;
        }
        for name in ["first", "second"] {
            run(&subscriber, &format!("ALTER SUBSCRIPTION {name} DISABLE")).await;
            run(&subscriber, &format!("ALTER SUBSCRIPTION {name} SET (slot_name = NONE)")).await;
            run(&subscriber, &format!("DROP SUBSCRIPTION {name}")).await;
        }
        run(&subscriber, "UPDATE t SET v = v + 1").await;
        for (what, _) in VIEWS {
            assert_equal(&mut t, what).await;
        }
        server.stop();
    });
}
