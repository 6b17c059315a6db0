//! Types of the user's own. Catches composites that IS NULL takes apart, operators that are not on the search path, and
//! triggers that name a type where it is not found.

use crate::support::{assert_equal, create, each_server, mode, open_with, refresh, run};
use trickle_client::Settings;
use trickle_core::cost::Force;

#[test]
fn a_composite_with_nulls_in_it_is_a_value() {
    each_server(async |db| {
        let mut t = open_with(db, Settings::default()).await;
        let w = db.session().await;
        run(&w, "CREATE TYPE pair AS (x int, y int); CREATE TABLE c (id int PRIMARY KEY, p pair)").await;
        run(&w, "INSERT INTO c VALUES (1, '(1,)'), (2, '(,)'), (3, NULL)").await;
        create(&mut t, "counted", "SELECT p, count(*) AS n FROM c GROUP BY p").await;
        create(&mut t, "once", "SELECT DISTINCT p FROM c").await;
        create(&mut t, "beside", "SELECT id, count(*) OVER (PARTITION BY p) AS n FROM c").await;
        let again = "SELECT id, EXISTS (SELECT FROM c d WHERE d.p = c.p AND d.id > c.id) AS again FROM c";
        create(&mut t, "again", again).await;
        create(&mut t, "rows", "SELECT id, p FROM c").await;
        assert_eq!(mode(&t, "rows").await.0, "DIFFERENTIAL");
        for change in ["INSERT INTO c VALUES (4, NULL), (5, '(,)')", "UPDATE c SET p = '(1,)' WHERE id > 3"] {
            run(&w, change).await;
            for st in ["counted", "once", "beside", "again", "rows"] {
                refresh(&mut t, st).await;
                assert_equal(&mut t, st).await;
            }
        }
    });
}

#[test]
fn an_operator_off_the_search_path_is_not_taken_for_another() {
    each_server(async |db| {
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        let w = db.session().await;
        run(&w, "CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext").await;
        run(&w, "CREATE TABLE c (id int PRIMARY KEY, m ext.citext); INSERT INTO c VALUES (1, 'a')").await;
        create(&mut t, "counted", "SELECT m, count(*) AS n FROM c GROUP BY m").await;
        create(&mut t, "first", "SELECT DISTINCT ON (m) m, id FROM c ORDER BY m, id").await;
        create(&mut t, "beside", "SELECT id, count(*) OVER (PARTITION BY m) AS n FROM c").await;
        let alike = "SELECT id, (SELECT count(*) FROM c d WHERE d.m OPERATOR(ext.=) c.m) AS n FROM c";
        create(&mut t, "alike", alike).await;
        run(&w, "INSERT INTO c VALUES (2, 'A'), (3, 'b')").await;
        for st in ["counted", "first", "beside", "alike"] {
            refresh(&mut t, st).await;
            assert_equal(&mut t, st).await;
        }
    });
}

#[test]
fn a_table_with_an_enum_can_be_truncated() {
    each_server(async |db| {
        let mut t = open_with(db, Settings::default()).await;
        let w = db.session().await;
        run(&w, "CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TABLE c (id int PRIMARY KEY, m mood)")
            .await;
        run(&w, "INSERT INTO c VALUES (1, 'low'), (2, 'high')").await;
        create(&mut t, "moods", "SELECT m, count(*) AS n FROM c GROUP BY m").await;
        assert_eq!(mode(&t, "moods").await.0, "DIFFERENTIAL");
        run(&w, "TRUNCATE c; INSERT INTO c VALUES (3, 'high')").await;
        refresh(&mut t, "moods").await;
        assert_equal(&mut t, "moods").await;
    });
}
