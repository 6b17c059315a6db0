use super::*;
use crate::catalog::MemoryCatalog;
use crate::sql::print;
use crate::stream_table::{Options, compile};

fn install(sql: &str) -> Vec<String> {
    let catalog = MemoryCatalog::from_ddl(
        "CREATE TABLE t (id int PRIMARY KEY, k int, v bigint); CREATE TABLE u (id int PRIMARY KEY, n text)",
    )
    .unwrap();
    let table = compile(sql, &catalog, &Options::new("public", "st")).unwrap().incremental().unwrap();
    let made = Immediate::new(&table, 7, table.buffers(), &[]).unwrap().install().unwrap();
    made.iter().map(|s| print(s).text).collect()
}

#[test]
fn show() {
    for q in [
        "SELECT id, v FROM t WHERE v > 0",
        "SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k",
        "SELECT t.id, n, v FROM t JOIN u ON t.k = u.id",
    ] {
        println!("=== {q}\n{}", install(q).join(";\n"));
    }
}
