use super::{Lowered, Query, lower};
use crate::catalog::MemoryCatalog;
use crate::graph::{Format, explain};

const DDL: &str = "CREATE TABLE a (id int PRIMARY KEY, k int, v int, t text);
    CREATE TABLE b (id int PRIMARY KEY, k int, w numeric(10,2), d date);
    CREATE TABLE nn (x int NOT NULL, y int NOT NULL, j json, jb jsonb, arr int[]);
    CREATE VIEW va AS SELECT id, k FROM a WHERE v > 0;";

fn catalog() -> MemoryCatalog {
    MemoryCatalog::from_ddl(DDL).unwrap()
}

fn query(sql: &str) -> Query {
    match lower(sql, &catalog()) {
        Ok(Lowered::Query(q)) => q,
        other => panic!("{sql}: {other:?}"),
    }
}

fn plan(sql: &str) -> String {
    let q = query(sql);
    explain(&q.graph, q.root, Format::Text)
}

#[test]
fn show() {
    let text = std::env::var("SHOW").unwrap_or_default();
    for sql in text.split(';').filter(|s| !s.trim().is_empty()) {
        println!("--- {sql}");
        match lower(sql, &catalog()) {
            Ok(Lowered::Query(q)) => println!("{:?}\n{}", q.columns, explain(&q.graph, q.root, Format::Text)),
            Ok(Lowered::Unsupported(r)) => r.iter().for_each(|r| println!("UNSUPPORTED {r}")),
            Err(e) => println!("ERROR {e}"),
        }
    }
}
