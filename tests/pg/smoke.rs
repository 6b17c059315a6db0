//! The test harness itself. Servers start, a test's database is private, a failed statement changes nothing,
//! and differing relations are reported.

use crate::support::{apply_change, assert_same_bag, create_tables, difference, each_server};
use trickle_core::catalog::{ColumnDef, TableDef, TableId};
use trickle_core::eval::ZSet;
use trickle_core::types::{Datum, Numeric, Type};

#[test]
fn a_server_answers_with_its_version() {
    each_server(async |db| {
        let s = db.session().await;
        let version: String = s.client().query_one("SHOW server_version", &[]).await.unwrap().get(0);
        assert!(version.starts_with(&db.major().to_string()), "{version}");
    });
}

#[test]
fn bags_differ_by_value_by_count_and_without_equality() {
    each_server(async |db| {
        let s = db.session().await;
        let differ = async |a: &str, b: &str| !difference(&s, a, b).await.is_empty();
        assert!(!differ("VALUES (1), (NULL), (1)", "VALUES (NULL), (1), (1)").await);
        assert!(differ("VALUES (1), (1)", "VALUES (1)").await);
        assert!(differ("VALUES (1)", "VALUES (1), (1)").await);
        assert!(differ("SELECT 1::bigint", "SELECT 1::int").await);
        assert!(!differ("SELECT 1.0, '{\"a\": 1}'::json", "SELECT 1.00, '{\"a\": 1}'::json").await);
        assert!(differ("SELECT point(1, 2), 1", "SELECT point(1, 3), 1").await);
        assert!(differ("SELECT FROM generate_series(1, 2)", "SELECT").await);
        // The queries have two columns of the same name. `*` over a join may give such columns.
        assert!(!differ("SELECT 1 AS a, 2 AS a", "SELECT 1, 2").await);
    });
}

#[test]
fn tables_of_the_catalog_are_loaded_and_changed() {
    each_server(async |db| {
        let s = db.session().await;
        let column = |name: &str, ty: Type| ColumnDef::new(name, ty, true);
        let columns = vec![column("Total", Type::Numeric(Some((10, 2)))), column("note", Type::Text)];
        let table = TableDef::new(TableId(1), "public", "odd \"name\"", columns);
        create_tables(&s, &[&table]).await;
        let (cents, quoted) = (Numeric::Finite { unscaled: 150.into(), scale: 2 }, "it's\\n {1}");
        let change = |nulls: i64, others: i64| {
            let mut z = ZSet::new();
            z.add([Datum::Null, Datum::Null].into(), nulls);
            z.add([Datum::Numeric(cents.clone().into()), Datum::text(quoted)].into(), others);
            z
        };
        apply_change(&s, &table, &change(3, 2)).await;
        apply_change(&s, &table, &change(-2, -1)).await;
        let expected = "VALUES (NULL, NULL), (1.50, E'it''s\\\\n {1}')";
        assert_same_bag(&s, "SELECT * FROM \"odd \"\"name\"\"\"", expected).await;
    });
}
