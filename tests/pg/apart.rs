//! Stream tables that are not linked to the stream tables that they read (`diamond_consistency` none). Each
//! of them is refreshed in a transaction of its own, after its sources. The tests catch changes that are lost
//! or counted twice between two such transactions, and a stream table that is refreshed before its source.

use crate::support::{Driver, assert_equal, count, name, newest_server, open, refresh, run};
use trickle_client::{Alteration, IfExists, NewStreamTable, RefreshOptions, Trickle};

const SALES: &str = "
    CREATE TABLE sales (id int PRIMARY KEY, shop int NOT NULL, amount int NOT NULL);
    INSERT INTO sales SELECT i, i % 4, i FROM generate_series(1, 40) i;";

const TABLES: [(&str, &str); 4] = [
    ("sums", "SELECT shop, sum(amount) AS total FROM sales GROUP BY shop"),
    ("counts", "SELECT shop, count(*) AS n FROM sales GROUP BY shop"),
    ("means", "SELECT shop, total / n AS mean FROM sums JOIN counts USING (shop)"),
    ("best", "SELECT max(mean) AS mean FROM means"),
];

/// A query for the number of different transactions in which the last refreshes of these stream tables
/// applied changes.
const TRANSACTIONS: &str = "SELECT count(DISTINCT data_timestamp) FROM (
    SELECT DISTINCT ON (pgt_id) data_timestamp FROM pgtrickle.pgt_refresh_history ORDER BY pgt_id, refresh_id DESC) x";

async fn make(t: &mut Driver, apart: &[&str]) {
    run(t.connection(), SALES).await;
    for (table, query) in TABLES {
        let mut new = NewStreamTable::new(name(table), query);
        new.apart = Some(apart.contains(&table));
        assert!(t.create(&new).await.unwrap().made);
    }
}

/// Changes the sales, and refreshes `best` with its sources. Returns the number of transactions of that
/// refresh.
async fn transactions(t: &mut Driver) -> i64 {
    run(t.connection(), "UPDATE sales SET amount = amount + 100 WHERE id < 5").await;
    let done = refresh(t, "best").await;
    assert_eq!(done.len(), TABLES.len(), "{done:?}");
    let taken = count(t.connection(), TRANSACTIONS).await;
    for (table, _) in TABLES {
        assert_equal(t, table).await;
    }
    taken
}

#[test]
fn each_unlinked_table_has_a_transaction_of_its_own() {
    newest_server(async |db| {
        let mut t = open(db).await;
        make(&mut t, &["means", "best"]).await;
        // `sums` and `counts` have no stream table in common. `means` and `best` are linked to neither of
        // them.
        assert_eq!(transactions(&mut t).await, 4);
        // A refresh of one stream table refreshes its sources first, but not its readers.
        run(t.connection(), "DELETE FROM sales WHERE id < 3").await;
        assert_eq!(refresh(&mut t, "means").await.len(), 3);
        let mut alter = async |table: &str, apart| {
            let wanted = Alteration { apart: Some(apart), ..Alteration::default() };
            t.alter(&name(table), &wanted).await.unwrap();
            transactions(&mut t).await
        };
        assert_eq!(alter("best", false).await, 3);
        assert_eq!(alter("means", false).await, 1);
        assert_eq!(alter("best", true).await, 2);
    });
}

#[test]
fn replacing_an_unlinked_table_keeps_it_unlinked() {
    newest_server(async |db| {
        let mut t = open(db).await;
        make(&mut t, &["best"]).await;
        let mut new = NewStreamTable::new(name("best"), "SELECT min(mean) AS mean FROM means");
        new.if_exists = IfExists::Replace;
        t.create(&new).await.unwrap();
        assert!(t.find(&name("best")).await.unwrap().apart);
        let query = Alteration { query: Some(TABLES[3].1.to_owned()), ..Alteration::default() };
        t.alter(&name("best"), &query).await.unwrap();
        assert!(t.find(&name("best")).await.unwrap().apart);
        assert_eq!(transactions(&mut t).await, 2);
        new.apart = Some(false);
        t.create(&new).await.unwrap();
        assert!(!t.find(&name("best")).await.unwrap().apart);
        assert_eq!(transactions(&mut t).await, 1);
    });
}

/// A failed refresh of a stream table delays only the stream tables that are linked to it. A stream table
/// that is not linked shows the state of its sources all the same.
#[test]
fn a_failure_keeps_back_only_linked_tables() {
    newest_server(async |db| {
        let mut t = open(db).await;
        make(&mut t, &["means"]).await;
        let before = count(t.connection(), "SELECT sum(total)::int8 FROM sums").await;
        run(
            t.connection(),
            "UPDATE sales SET amount = amount + 4000 WHERE shop = 1; DELETE FROM sales WHERE id < 3",
        )
        .await;
        // The constraint makes each refresh of `counts` fail. `sums` is refreshed all the same. `best` is
        // linked to `counts`, so it is not refreshed.
        run(t.connection(), "ALTER TABLE counts ADD CONSTRAINT never CHECK (n > 9) NOT VALID").await;
        let linked = async |t: &Trickle| {
            let all = "SELECT concat_ws('; ', (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM counts t), \
                 (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM best t))";
            t.connection().client().query_one(all, &[]).await.unwrap().get::<_, String>(0)
        };
        let shown = linked(&t).await;
        let failed = t.refresh(&[name("best")], &trickle_client::RefreshOptions::default()).await;
        assert!(failed.is_err());
        assert_eq!(linked(&t).await, shown);
        refresh(&mut t, "sums").await;
        assert_ne!(count(t.connection(), "SELECT sum(total)::int8 FROM sums").await, before);
        run(t.connection(), "ALTER TABLE counts DROP CONSTRAINT never").await;
        assert_eq!(transactions(&mut t).await, 3);
    });
}

/// One query finds the idle stream tables among many. If the same call may change a stream table, a reader of
/// that stream table does not count as idle.
#[test]
fn an_unlinked_reader_is_refreshed_in_the_call_of_its_source() {
    newest_server(async |db| {
        let mut t = open(db).await;
        make(&mut t, &["means", "best"]).await;
        let different = "SELECT count(*) FROM best WHERE mean <> (SELECT max(total / n) FROM \
             (SELECT sum(amount) AS total, count(*) AS n FROM sales GROUP BY shop) x)";
        for alteration in
            ["ALTER TABLE sales ADD COLUMN note text", "ALTER TABLE sales ALTER amount TYPE bigint"]
        {
            run(t.connection(), &format!("{alteration}; UPDATE sales SET amount = amount + 100")).await;
            t.refresh_apart(&[name("best")], &RefreshOptions::default()).await.unwrap();
            assert_eq!(count(t.connection(), different).await, 0, "{alteration}");
        }
        // A suspended stream table is refreshed by hand all the same.
        let paused = Alteration { suspended: Some(true), ..Alteration::default() };
        t.alter(&name("sums"), &paused).await.unwrap();
        run(t.connection(), "UPDATE sales SET amount = amount + 100").await;
        t.refresh_apart(&[name("best")], &RefreshOptions::default()).await.unwrap();
        assert_eq!(count(t.connection(), different).await, 0, "paused");
    });
}
