//! Databases in which all tables are published. The tests catch tables of trickle without a replica identity.
//! While such a table is published, the server refuses updates and deletes of its rows.

use crate::support::{Db, Driver, assert_equal, create, mode, name, open, refresh, run, todays_server};
use trickle_client::{Alteration, NewStreamTable, RefreshMode, Session};

const SOURCES: &str = "CREATE TABLE s (id int PRIMARY KEY, k int, v int); INSERT INTO s SELECT i, i % 5, i FROM generate_series(1, 50) i; \
     CREATE TABLE u (id int PRIMARY KEY, k int); INSERT INTO u SELECT i, i % 5 FROM generate_series(1, 5) i";

/// Queries whose results have a key, no key, a hidden state, or only one row.
const QUERIES: &[(&str, &str)] = &[
    ("keyed", "SELECT id, v FROM s WHERE v > 3"),
    ("bag", "SELECT s.v, u.k FROM s JOIN u USING (k)"),
    (
        "state",
        "SELECT k, avg(v) AS a, max(v) AS m, count(DISTINCT v) AS n FROM s GROUP BY k HAVING count(*) > 2",
    ),
    ("single", "SELECT sum(v) AS v FROM s"),
];

async fn made(t: &mut Driver, w: &Session) {
    run(w, SOURCES).await;
    for (what, query) in QUERIES {
        create(t, what, query).await;
    }
    let counts = "SELECT s.k, count(*) AS n, sum(s.v) AS v FROM s JOIN u USING (k) GROUP BY s.k";
    for (what, asked, query) in
        [("kept", RefreshMode::Immediate, counts), ("whole", RefreshMode::Full, "SELECT v FROM s")]
    {
        let new = NewStreamTable { mode: Some(asked), ..NewStreamTable::new(name(what), query) };
        t.create(&new).await.unwrap();
        assert_eq!(mode(t, what).await.0, asked.name());
    }
}

async fn follows(t: &mut Driver, w: &Session) {
    for change in [
        "UPDATE s SET v = v + 1, k = (k + 1) % 5 WHERE id % 3 = 0; DELETE FROM s WHERE id = (SELECT max(id) FROM s)",
        "BEGIN; UPDATE u SET k = (k + 2) % 5; DELETE FROM s WHERE k = 2; COMMIT",
        "TRUNCATE s; INSERT INTO s SELECT i, i % 5, i FROM generate_series(1, 50) i",
    ] {
        run(w, change).await;
        assert_equal(t, "kept").await;
        for what in QUERIES.iter().map(|(what, _)| *what).chain(["whole"]) {
            refresh(t, what).await;
            assert_equal(t, what).await;
        }
    }
    let query = Some("SELECT v FROM s".to_owned());
    t.alter(&name("keyed"), &Alteration { query, ..Alteration::default() }).await.unwrap();
    run(w, "UPDATE s SET v = v + 1 WHERE id < 9").await;
    refresh(t, "keyed").await;
    assert_equal(t, "keyed").await;
}

const PUBLISHED: &str = "CREATE PUBLICATION everything FOR ALL TABLES";

#[test]
fn all_works_where_everything_is_published_before() {
    todays_server(async |db: &Db| {
        let w = db.session().await;
        run(&w, PUBLISHED).await;
        let mut t = open(db).await;
        made(&mut t, &w).await;
        follows(&mut t, &w).await;
    });
}

#[test]
fn all_works_where_everything_is_published_later() {
    todays_server(async |db: &Db| {
        let w = db.session().await;
        let mut t = open(db).await;
        made(&mut t, &w).await;
        run(&w, PUBLISHED).await;
        follows(&mut t, &w).await;
    });
}
