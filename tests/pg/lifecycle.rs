//! Stream tables in a database of a real server are created, refreshed, checked and dropped.

use crate::support::{
    Driver, assert_equal, count, create, name, newest_server, open, open_with, refresh, run, todays_server,
    try_refresh,
};
use trickle_client::{
    Activity, Alteration, IfExists, Initiator, NewStreamTable, RefreshMode, RefreshOptions, Session,
    Settings, Trickle,
};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;

const SHOP: &str = "
    CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region text);
    CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount numeric(10,2), note text);
    INSERT INTO customers SELECT i, 'c' || i, 'r' || i % 3 FROM generate_series(1, 20) i;
    INSERT INTO orders SELECT i, 1 + i % 20, i * 1.5, 'n' FROM generate_series(1, 200) i;";

#[test]
fn a_chain_of_stream_tables_follows_its_sources() {
    newest_server(async |db| {
        let mut t = open(db).await;
        t.connection().client().batch_execute(SHOP).await.unwrap();
        create(
            &mut t,
            "by_region",
            "SELECT c.region, count(*) AS orders, sum(o.amount) AS total, max(o.amount) AS largest
             FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region",
        )
        .await;
        create(&mut t, "large", "SELECT region, total FROM by_region WHERE total > 7000").await;
        create(
            &mut t,
            "idle",
            "SELECT * FROM customers c WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer = c.id)",
        )
        .await;
        for table in ["by_region", "large", "idle"] {
            assert_equal(&mut t, table).await;
        }
        let writer = db.session().await;
        for change in [
            "UPDATE orders SET amount = amount + 1 WHERE id % 7 = 0",
            "DELETE FROM orders WHERE customer IN (3, 4)",
            "INSERT INTO orders VALUES (1000, 3, 5000, NULL); UPDATE customers SET region = 'r9' WHERE id = 3",
            "TRUNCATE orders",
            "INSERT INTO orders SELECT i, 1 + i % 20, i, 'n' FROM generate_series(1, 50) i",
        ] {
            writer.client().batch_execute(change).await.unwrap();
            let done = refresh(&mut t, "large").await;
            assert_eq!(done.len(), 2, "{change}: {done:?}");
            for table in ["by_region", "large", "idle"] {
                assert_equal(&mut t, table).await;
            }
        }
        let done = refresh(&mut t, "large").await;
        assert!(done.iter().all(|d| d.report.action == Action::NoData), "{done:?}");
        writer.client().batch_execute("UPDATE orders SET amount = 0 WHERE id = 1").await.unwrap();
        let done = refresh(&mut t, "by_region").await;
        assert_eq!(done[0].report.delta_rows, 2, "{done:?}");
        assert!(t.connection().client().batch_execute("DELETE FROM by_region").await.is_err());
        assert!(t.drop(&name("by_region"), false).await.unwrap_err().is_input());
        assert_eq!(t.drop(&name("by_region"), true).await.unwrap().len(), 2);
        t.uninstall(false).await.unwrap();
        let left = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal";
        let left: i64 = t.connection().client().query_one(left, &[]).await.unwrap().get(0);
        assert_eq!(left, 0);
    });
}

#[test]
fn a_plan_of_another_layout_is_compiled_again_before_use() {
    newest_server(async |db| {
        let mut t = open_with(db, Settings { force: Some(Force::Incremental), ..Settings::default() }).await;
        t.connection().client().batch_execute(SHOP).await.unwrap();
        create(&mut t, "totals", "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer").await;
        t.connection()
            .client()
            .batch_execute("UPDATE pgtrickle.pgt_stream_tables SET layout_hash = 'older'")
            .await
            .unwrap();
        t.connection()
            .client()
            .batch_execute("UPDATE orders SET amount = amount + 1 WHERE id < 9")
            .await
            .unwrap();
        assert_eq!(refresh(&mut t, "totals").await[0].report.action, Action::Reinitialize);
        t.connection().client().batch_execute("DELETE FROM orders WHERE id = 5").await.unwrap();
        assert_eq!(refresh(&mut t, "totals").await[0].report.action, Action::Differential);
        assert_equal(&mut t, "totals").await;
    });
}

#[test]
fn the_error_for_the_name_of_an_unfilled_table_gives_advice() {
    newest_server(async |db| {
        let mut t = open(db).await;
        t.connection().client().batch_execute(SHOP).await.unwrap();
        let new = NewStreamTable::new(
            name("totals"),
            "SELECT customer, count(*) AS n FROM orders GROUP BY customer",
        );
        t.create(&NewStreamTable { initialize: false, ..new.clone() }).await.unwrap();
        let e = t.create(&new).await.unwrap_err();
        let hint = e.hint_text().unwrap_or_default();
        assert!(
            hint.contains("trickle refresh public.totals") && hint.contains("trickle drop public.totals"),
            "{e:?}"
        );
        refresh(&mut t, "totals").await;
        let e = t.create(&new).await.unwrap_err();
        assert!(e.hint_text().unwrap_or_default().contains("--or-replace"), "{e:?}");
    });
}

#[test]
fn a_stream_table_that_was_dropped_by_hand_is_forgotten() {
    newest_server(async |db| {
        let mut t = open(db).await;
        t.connection().client().batch_execute(SHOP).await.unwrap();
        let query = "SELECT customer, count(*) AS n FROM orders GROUP BY customer";
        create(&mut t, "totals", query).await;
        t.connection().client().batch_execute("DROP TABLE totals").await.unwrap();
        let e = try_refresh(&mut t, "totals").await.unwrap_err();
        assert!(e.is_input() && e.to_string().contains("is gone"), "{e}");
        assert!(t.refresh_apart(&[], &RefreshOptions::default()).await.unwrap()[0].is_err());
        assert_eq!(t.drop(&name("totals"), false).await.unwrap(), ["public.totals"]);
        create(&mut t, "totals", query).await;
        t.connection().client().batch_execute("DROP TABLE totals").await.unwrap();
        // The name is free again after the drop.
        create(&mut t, "totals", query).await;
        assert_equal(&mut t, "totals").await;
        t.connection().client().batch_execute("DROP TABLE totals; DROP TABLE orders CASCADE").await.unwrap();
        assert_eq!(t.buffers().await.unwrap().len(), 1);
        t.uninstall(false).await.unwrap();
    });
}

/// Neither a new plan nor a refresh by hand resumes a stream table that the user suspended.
#[test]
fn a_suspended_stream_table_stays_so_until_resumed() {
    newest_server(async |db| {
        let mut t = open(db).await;
        t.connection().client().batch_execute(SHOP).await.unwrap();
        create(&mut t, "totals", "SELECT customer, count(*) AS n FROM orders GROUP BY customer").await;
        let set = |suspended| Alteration { suspended: Some(suspended), ..Alteration::default() };
        let status = async |t: &Trickle| t.find(&name("totals")).await.unwrap().status;
        t.alter(&name("totals"), &set(true)).await.unwrap();
        for change in
            ["ALTER TABLE orders ADD COLUMN more int", "UPDATE orders SET customer = 3 WHERE id = 1"]
        {
            t.connection().client().batch_execute(change).await.unwrap();
            refresh(&mut t, "totals").await;
            assert_eq!(status(&t).await, Activity::Suspended, "{change}");
            assert_equal(&mut t, "totals").await;
        }
        let query = Some(
            "SELECT customer, count(*) AS n, 1 / min(customer) AS x FROM orders GROUP BY customer".into(),
        );
        t.alter(&name("totals"), &Alteration { query, ..Alteration::default() }).await.unwrap();
        assert_eq!(status(&t).await, Activity::Suspended, "another query");
        // A failed refresh by hand leaves the stream table suspended, as the user wants.
        t.connection().client().batch_execute("UPDATE orders SET customer = 0 WHERE id = 1").await.unwrap();
        assert!(try_refresh(&mut t, "totals").await.is_err());
        t.connection().client().batch_execute("UPDATE orders SET customer = 1 WHERE id = 1").await.unwrap();
        refresh(&mut t, "totals").await;
        assert_eq!(status(&t).await, Activity::Suspended, "a failure");
        t.alter(&name("totals"), &set(false)).await.unwrap();
        assert_eq!(status(&t).await, Activity::Active);
        // A stream table that failures have suspended is active again after a successful refresh.
        t.connection().client().batch_execute("UPDATE orders SET customer = 0 WHERE id = 1").await.unwrap();
        for _ in 0..5 {
            assert!(try_refresh(&mut t, "totals").await.is_err());
        }
        assert_eq!(status(&t).await, Activity::Suspended, "failures");
        t.connection().client().batch_execute("UPDATE orders SET customer = 1 WHERE id = 1").await.unwrap();
        refresh(&mut t, "totals").await;
        assert_eq!(status(&t).await, Activity::Active);
        // A stream table that was never filled can be suspended too.
        let empty = NewStreamTable::new(name("empty"), "SELECT id FROM orders");
        t.create(&NewStreamTable { initialize: false, ..empty }).await.unwrap();
        t.alter(&name("empty"), &set(true)).await.unwrap();
        assert_eq!(t.find(&name("empty")).await.unwrap().status, Activity::Suspended);
        t.alter(&name("empty"), &set(false)).await.unwrap();
        assert_eq!(t.find(&name("empty")).await.unwrap().status, Activity::Initializing);
    });
}

/// When a user alters the columns of a stream table, the error names the alteration, and planning again
/// undoes the alteration.
#[test]
fn columns_that_a_user_altered_are_named_and_made_anew() {
    newest_server(async |db| {
        let mut t = open(db).await;
        t.connection().client().batch_execute(SHOP).await.unwrap();
        let query = "SELECT customer, count(*) AS n FROM orders GROUP BY customer";
        create(&mut t, "totals", query).await;
        let w = db.session().await;
        let again = Alteration { query: Some(query.into()), ..Alteration::default() };
        for (change, said) in [
            ("RENAME COLUMN n TO m", "n is missing"),
            ("ALTER COLUMN n TYPE date USING '2024-01-01'", "n is not of the type int8"),
            (
                "ADD COLUMN note text NOT NULL DEFAULT ''; ALTER TABLE totals ALTER COLUMN note DROP DEFAULT",
                "note must be given a value",
            ),
        ] {
            run(&w, &format!("ALTER TABLE totals {change}; UPDATE orders SET customer = customer % 9 + 1"))
                .await;
            let e = try_refresh(&mut t, "totals").await.unwrap_err();
            assert!(e.message().ends_with(said), "{e:?}");
            assert!(
                e.hint_text().is_some_and(|h| h.contains("trickle alter public.totals --query")),
                "{e:?}"
            );
            t.alter(&name("totals"), &again).await.unwrap();
            run(&w, "UPDATE orders SET customer = 20 - customer WHERE id % 3 = 0").await;
            assert_eq!(refresh(&mut t, "totals").await[0].report.action, Action::Differential);
            assert_equal(&mut t, "totals").await;
        }
        // An added column without NOT NULL does not make refreshes fail.
        run(&w, "ALTER TABLE totals ADD COLUMN note text; UPDATE orders SET customer = 1 WHERE id = 7").await;
        assert_eq!(refresh(&mut t, "totals").await[0].report.action, Action::Differential);
    });
}

#[test]
fn replacing_keeps_the_schedule_and_mode_that_are_not_given() {
    newest_server(async |db| {
        let mut t = open(db).await;
        t.connection().client().batch_execute(SHOP).await.unwrap();
        let mut new = NewStreamTable::new(
            name("totals"),
            "SELECT customer, count(*) AS n FROM orders GROUP BY customer",
        );
        (new.schedule, new.mode) = (Some(Some("5m".into())), Some(RefreshMode::Full));
        t.create(&new).await.unwrap();
        let mut other = NewStreamTable::new(
            name("totals"),
            "SELECT customer, sum(amount) AS n FROM orders GROUP BY customer",
        );
        other.if_exists = IfExists::Replace;
        let now = async |t: &mut Driver, new: &NewStreamTable| {
            t.create(new).await.unwrap();
            let e = t.find(&name("totals")).await.unwrap();
            (e.schedule, e.requested)
        };
        assert_eq!(now(&mut t, &other).await, (Some("5m".into()), RefreshMode::Full));
        other.mode = Some(RefreshMode::Auto);
        assert_eq!(now(&mut t, &other).await, (Some("5m".into()), RefreshMode::Auto));
        (other.schedule, other.mode) = (Some(None), None);
        assert_eq!(now(&mut t, &other).await, (None, RefreshMode::Auto));
        assert_equal(&mut t, "totals").await;
    });
}

/// A query for the columns of a stream table's primary key, and for the objects that depend on the key.
const KEY: &str = "
    SELECT coalesce(string_agg(a.attname, ' ' ORDER BY k.n), '') FROM pg_constraint c
    CROSS JOIN LATERAL unnest(c.conkey) WITH ORDINALITY k(attnum, n)
    JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum
    WHERE c.conrelid = 'totals'::regclass AND c.contype = 'p'";

/// To its users a stream table is a table. Its key is declared. Users' objects on the stream table stay,
/// however its rows are replaced.
#[test]
fn a_primary_key_is_declared_and_what_users_hang_on_it_stays() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, SHOP).await;
        let query = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer";
        create(&mut t, "totals", query).await;
        run(
            &w,
            "CREATE INDEX theirs ON totals (total); CREATE INDEX part ON totals ((n + 1)) WHERE n > 3;
             GRANT SELECT (customer, n) ON totals TO PUBLIC; COMMENT ON TABLE totals IS 'ours'; COMMENT ON INDEX theirs IS 'mine';
             CREATE VIEW shown AS SELECT customer, n FROM totals; CREATE MATERIALIZED VIEW kept AS SELECT * FROM totals;
             CREATE STATISTICS counted ON customer, n FROM totals; ALTER TABLE totals SET (autovacuum_enabled = off);
             CREATE TABLE ratings (customer int REFERENCES totals DEFERRABLE INITIALLY DEFERRED, stars int);
             INSERT INTO ratings VALUES (3, 5)",
        )
        .await;
        let theirs = "SELECT (SELECT count(*) FROM pg_indexes WHERE indexname IN ('theirs', 'part'))
            + (SELECT count(*) FROM pg_attribute WHERE attrelid = 'totals'::regclass AND attacl::text LIKE '%=r/%')
            + (SELECT count(*) FROM pg_description WHERE description IN ('ours', 'mine'))
            + (SELECT count(*) FROM pg_class WHERE relname IN ('shown', 'kept'))
            + (SELECT count(*) FROM pg_statistic_ext WHERE stxname = 'counted')
            + (SELECT count(*) FROM pg_class WHERE relname = 'totals' AND 'autovacuum_enabled=off' = ANY (reloptions))
            + (SELECT count(*) FROM pg_constraint WHERE conrelid = 'ratings'::regclass AND contype = 'f')";
        let of_users = count(&w, theirs).await;
        assert_eq!(of_users, 11);
        let full = RefreshOptions { full: true, ..RefreshOptions::default() };
        let key = async || w.client().query_one(KEY, &[]).await.unwrap().get::<_, String>(0);
        for step in 0..4 {
            run(&w, "UPDATE orders SET amount = amount + 1 WHERE customer < 9; DELETE FROM orders WHERE id % 50 = 7")
                .await;
            match step {
                0 => drop(refresh(&mut t, "totals").await),
                1 => drop(t.refresh(&[name("totals")], &full).await.unwrap()),
                _ => {
                    let mut new = NewStreamTable::new(name("totals"), query);
                    new.query += if step == 2 { " HAVING count(*) > 1" } else { "" };
                    new.if_exists = IfExists::Replace;
                    t.create(&new).await.unwrap();
                }
            }
            assert_eq!(
                (key().await.as_str(), count(&w, theirs).await),
                ("customer", of_users),
                "step {step}"
            );
            assert_equal(&mut t, "totals").await;
        }
    });
}

/// A connection remembers the stream tables that it refreshed. Under the locks of each refresh, it compares
/// its memory with the catalog. The next refresh notices alterations by other connections, and counts each
/// change once.
#[test]
fn a_connection_notices_changes_that_others_made() {
    newest_server(async |db| {
        let (mut t, mut other, w) = (open(db).await, open(db).await, db.session().await);
        run(&w, "CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a SELECT i, i FROM generate_series(1, 9) i").await;
        let st = name("public.st");
        let twice = async |t: &mut Driver| {
            for _ in 0..2 {
                run(&w, "UPDATE a SET v = v + 1 WHERE id = 1").await;
                t.refresh(std::slice::from_ref(&st), &RefreshOptions::default()).await.unwrap();
            }
        };
        let sum = "SELECT coalesce(sum(v), 0)::int8 FROM st";
        let next = async |t: &mut Driver| {
            run(&w, "UPDATE a SET v = v + 1 WHERE id = 1").await;
            t.refresh(std::slice::from_ref(&st), &RefreshOptions::default()).await
        };

        // The stream table gets another query, then another table gets its name, and then two stream tables
        // exchange names.
        create(&mut other, "st", "SELECT id, v FROM a").await;
        twice(&mut t).await;
        let alteration =
            Alteration { query: Some("SELECT id, 100 * v AS v FROM a".into()), ..Alteration::default() };
        other.alter(&st, &alteration).await.unwrap();
        assert_eq!(next(&mut t).await.unwrap().len(), 1);
        assert_eq!(count(&w, sum).await, count(&w, "SELECT 100 * sum(v) FROM a").await);
        twice(&mut t).await;
        other.drop(&st, false).await.unwrap();
        assert!(next(&mut t).await.unwrap_err().message().contains("there is no stream table"));
        create(&mut other, "st", "SELECT id, v FROM a").await;
        twice(&mut t).await;
        other.drop(&st, false).await.unwrap();
        create(&mut other, "st", "SELECT id, -v AS v FROM a").await;
        assert_eq!(next(&mut t).await.unwrap().len(), 1);
        assert_eq!(count(&w, sum).await, count(&w, "SELECT -sum(v) FROM a").await);
        create(&mut other, "second", "SELECT id, 2 * v AS v FROM a").await;
        twice(&mut t).await;
        run(&w, "ALTER TABLE st RENAME TO first; ALTER TABLE second RENAME TO st").await;
        assert_eq!(next(&mut t).await.unwrap().len(), 1);
        assert_eq!(count(&w, sum).await, count(&w, "SELECT 2 * sum(v) FROM a").await);

        // Capture is switched off and on again.
        twice(&mut t).await;
        other.disable(&name("public.a")).await.unwrap();
        next(&mut t).await.unwrap();
        assert_eq!(count(&w, sum).await, count(&w, "SELECT 2 * sum(v) FROM a").await);
        other.enable(&name("public.a")).await.unwrap();
        twice(&mut t).await;
        assert_equal(&mut t, "st").await;

        // The connection gets another role, and then the stream table gets another owner.
        run(&w, "CREATE ROLE lifecycle_clerk").await;
        twice(&mut t).await;
        t.connection().client().batch_execute("SET ROLE lifecycle_clerk").await.unwrap();
        assert!(next(&mut t).await.is_err());
        t.connection().client().batch_execute("RESET ROLE").await.unwrap();
        twice(&mut t).await;
        run(&w, "ALTER TABLE st OWNER TO lifecycle_clerk").await;
        assert!(next(&mut t).await.unwrap_err().message().contains("belongs to lifecycle_clerk"));
        run(&w, "ALTER TABLE st OWNER TO postgres").await;

        // When the query stops fitting its source, one refresh fails, and the failure is counted once.
        twice(&mut t).await;
        run(&w, "ALTER TABLE a DROP COLUMN v").await;
        let e = t.refresh(std::slice::from_ref(&st), &RefreshOptions::default()).await.unwrap_err();
        assert!(e.message().contains("cannot be kept"), "{e:?}");
        assert_eq!(t.find(&st).await.unwrap().consecutive_errors, 1);
        run(&w, "DROP OWNED BY lifecycle_clerk; DROP ROLE lifecycle_clerk").await;
    });
}

/// One snapshot shows all rows of the catalog about a stream table and its sources, also while stream tables
/// are created and dropped. Otherwise a connection could remember a stream table without sources, and never
/// refresh it.
#[test]
fn the_registry_reads_the_catalog_at_one_moment() {
    newest_server(async |db| {
        let (mut maker, reader) = (open(db).await, open(db).await);
        let w = db.session().await;
        run(&w, "CREATE TABLE a (id int PRIMARY KEY, v int)").await;
        let done = std::cell::Cell::new(false);
        let make = async {
            for _ in 0..25 {
                create(&mut maker, "kept", "SELECT id, v + 1 AS v FROM a").await;
                maker.drop(&name("kept"), false).await.unwrap();
            }
            done.set(true);
        };
        let read = async {
            let mut seen = 0;
            while !done.get() {
                for e in reader.registry().await.unwrap().entries() {
                    assert_eq!(e.read().count(), 1, "{e:?}");
                    seen += 1;
                }
            }
            assert!(seen > 0);
        };
        tokio::join!(make, read);
    });
}

/// Returns the time of the stream table's last refresh and its `data_timestamp`, in microseconds.
async fn times(s: &Session, what: &str) -> [i64; 2] {
    let text = "SELECT (extract(epoch FROM last_refresh_at) * 1e6)::int8, (extract(epoch FROM data_timestamp) * 1e6)::int8 \
         FROM pgtrickle.pgt_stream_tables WHERE pgt_name = $1";
    let r = s.client().query_one(text, &[&what]).await.unwrap();
    [r.get(0), r.get(1)]
}

#[test]
fn a_refresh_by_hand_moves_its_times_whatever_it_finds() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, SHOP).await;
        create(&mut t, "sums", "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer").await;
        create(&mut t, "large", "SELECT customer FROM sums WHERE total > 100").await;
        let history = "SELECT count(*) FROM pgtrickle.pgt_refresh_history";
        let (rows, mut before) = (count(&w, history).await, times(&w, "sums").await);
        let later = |before: [i64; 2], now: [i64; 2]| now[0] > before[0] && now[1] > before[1];
        for known in [false, true] {
            refresh(&mut t, "sums").await;
            let now = times(&w, "sums").await;
            assert!(later(before, now), "{known}: {before:?} {now:?}");
            before = now;
        }
        // A refresh of several stream tables finds out by one query that all of them are idle.
        t.refresh_apart(&[], &RefreshOptions::default()).await.unwrap();
        for what in ["sums", "large"] {
            let now = times(&w, what).await;
            assert!(later(before, now), "{what}: {before:?} {now:?}");
        }
        // A refresh on schedule that finds no changes writes nothing.
        before = times(&w, "sums").await;
        let on_schedule = RefreshOptions { initiated_by: Initiator::Scheduler, ..RefreshOptions::default() };
        t.refresh_apart(&[], &on_schedule).await.unwrap();
        let library: &mut Trickle = &mut t;
        library.refresh(&[name("sums")], &on_schedule).await.unwrap();
        assert_eq!(times(&w, "sums").await, before);
        assert_eq!(count(&w, history).await, rows);
        // The stored frontier does not cover a change that commits later.
        run(&w, "UPDATE orders SET amount = amount + 1").await;
        assert_equal(&mut t, "large").await;
        assert_eq!(count(&w, history).await, rows + 2);
    });
}

#[test]
fn looks_do_not_wait_for_an_alter_under_a_view() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, SHOP).await;
        run(&w, "CREATE VIEW large AS SELECT id, customer FROM orders WHERE amount > 100").await;
        create(&mut t, "counted", "SELECT customer, count(*) AS n FROM large GROUP BY customer").await;
        let full = NewStreamTable::new(name("all_of_it"), "SELECT id FROM large");
        t.create(&NewStreamTable { mode: Some(RefreshMode::Full), ..full }).await.unwrap();
        create(&mut t, "names", "SELECT id, name FROM customers").await;
        refresh(&mut t, "counted").await;
        let history = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE' AND initiated_by = 'MANUAL'";
        run(
            &w,
            "BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE; UPDATE customers SET name = 'x' WHERE id = 1",
        )
        .await;
        let soon = std::time::Duration::from_secs(3);
        let looked = tokio::time::timeout(soon, t.registry()).await;
        assert_eq!(looked.expect("nobody waits").unwrap().entries().count(), 3);
        tokio::time::timeout(soon, t.status(&[])).await.expect("nobody waits").unwrap();
        let other = db.session().await;
        run(&other, "UPDATE customers SET name = 'y' WHERE id = 2").await;
        tokio::time::timeout(soon, refresh(&mut t, "names")).await.expect("nobody waits");
        run(&w, "COMMIT").await;
        // The definition of the view did not change while `orders` was locked. So no stream table is planned
        // again.
        for what in ["counted", "all_of_it", "names"] {
            assert_equal(&mut t, what).await;
        }
        assert_eq!(count(&w, history).await, 0);
        // While the view's text cannot be read, a replacement by the same query still counts as the same
        // query.
        let refreshes = "SELECT count(*) FROM pgtrickle.pgt_refresh_history";
        let before = count(&w, refreshes).await;
        run(&w, "BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
        let again = NewStreamTable::new(
            name("counted"),
            "SELECT customer, count(*) AS n FROM large GROUP BY customer",
        );
        let again = NewStreamTable { if_exists: IfExists::Replace, ..again };
        let ends = async {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            run(&w, "COMMIT").await;
        };
        let (made, ()) = tokio::join!(t.create(&again), ends);
        // The SQL API does not report whether the call made anything.
        assert!(!made.unwrap().made || Driver::is_the_servers());
        assert_eq!(count(&w, refreshes).await, before, "its rows stay");
        // A changed view is noticed, even if `orders` is locked when the catalog is read.
        run(
            &w,
            "BEGIN; CREATE OR REPLACE VIEW large AS SELECT id, customer FROM orders WHERE amount > 200; \
             LOCK TABLE orders IN ACCESS EXCLUSIVE MODE",
        )
        .await;
        tokio::time::timeout(soon, t.registry()).await.expect("nobody waits").unwrap();
        run(&w, "COMMIT").await;
        for what in ["counted", "all_of_it"] {
            assert_equal(&mut t, what).await;
        }
    });
}
