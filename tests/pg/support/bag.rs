//! Comparison of relations as bags.

use std::fmt::Write;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use trickle_client::Session;

/// Greatest number of differing rows that a message shows.
const SHOWN: usize = 20;

/// Asserts that two queries have the same types of columns. Asserts also that each row occurs equally often
/// in both, by PostgreSQL's own equality.
#[track_caller]
pub(crate) fn assert_same_bag<'a>(
    session: &'a Session,
    actual: &'a str,
    expected: &'a str,
) -> impl Future<Output = ()> + 'a {
    let place = std::panic::Location::caller();
    async move {
        let difference = difference(session, actual, expected).await;
        assert!(difference.is_empty(), "{place}: {actual}\nis not: {expected}\n{difference}");
    }
}

/// Returns a text that describes how two queries differ as bags. The text is empty if they do not differ. One
/// statement has `EXCEPT ALL` in both directions, so both queries are read under one snapshot. Columns of
/// types without equality (json, xml, point …) are compared as text.
pub(crate) async fn difference(session: &Session, actual: &str, expected: &str) -> String {
    let client = session.client();
    let actual_types = types(session, actual).await;
    let expected_types = types(session, expected).await;
    if actual_types != expected_types {
        return format!("columns: {actual_types:?}, expected {expected_types:?}");
    }
    if actual_types.is_empty() {
        let count = |q: &str| format!("SELECT count(*) FROM ({q}) q");
        let actual: i64 = client.query_one(&count(actual), &[]).await.unwrap().get(0);
        let expected: i64 = client.query_one(&count(expected), &[]).await.unwrap().get(0);
        return if actual == expected {
            String::new()
        } else {
            format!("{actual} rows, expected {expected}")
        };
    }
    let names: Vec<String> = (1..=actual_types.len()).map(|i| format!("c{i}")).collect();
    let mut list = Vec::new();
    for (name, ty) in names.iter().zip(&actual_types) {
        list.push(if comparable(session, ty).await { name.clone() } else { format!("{name}::text") });
    }
    let (names, list) = (names.join(", "), list.join(", "));
    let side = |q: &str| format!("SELECT {list} FROM ({q}) q({names})");
    let minus = |a: &str, b: &str, sign: &str| {
        format!("SELECT '{sign} ' || d::text FROM ({} EXCEPT ALL {}) d", side(a), side(b))
    };
    let sql = format!("{} UNION ALL {}", minus(actual, expected, "+"), minus(expected, actual, "-"));
    let rows = client.query(&sql, &[]).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}"));
    let mut text = String::new();
    for row in rows.iter().take(SHOWN) {
        writeln!(text, "{}", row.get::<_, String>(0)).unwrap();
    }
    if rows.len() > SHOWN {
        writeln!(text, "… {} more", rows.len() - SHOWN).unwrap();
    }
    text
}

/// Returns the column types of a query.
async fn types(session: &Session, query: &str) -> Vec<Type> {
    let statement = session.client().prepare(query).await.unwrap_or_else(|e| panic!("{e:?}\n{query}"));
    statement.columns().iter().map(|c| c.type_().clone()).collect()
}

/// Asks PostgreSQL whether rows with a column of this type can be compared.
async fn comparable(session: &Session, ty: &Type) -> bool {
    const COMMON: [Type; 9] = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::NUMERIC,
        Type::FLOAT8,
        Type::TEXT,
        Type::DATE,
        Type::TIMESTAMPTZ,
    ];
    if COMMON.contains(ty) {
        return true;
    }
    let sql = format!("SELECT NULL::{0} EXCEPT ALL SELECT NULL::{0}", type_name(ty));
    match session.client().prepare(&sql).await.map(|_| ()) {
        Ok(()) => true,
        Err(e) if e.code() == Some(&SqlState::UNDEFINED_FUNCTION) => false,
        Err(e) => panic!("{e:?}\n{sql}"),
    }
}

/// Returns a type's name, qualified and quoted.
fn type_name(ty: &Type) -> String {
    format!("\"{}\".\"{}\"", ty.schema().replace('"', "\"\""), ty.name().replace('"', "\"\""))
}
