//! Random GROUP BY clauses with grouping sets. The engine parses a clause and prints it again. On the server,
//! the printed clause and the original clause give the same rows. The test catches sets that are expanded
//! wrongly, and output columns that are not NULL in a set without that column.

use crate::support::{difference, todays_server};
use std::sync::Arc;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::lower::{Lowered, lower};
use trickle_core::sql::{BufferSources, Profile, print_query, render_query};
use trickle_core::testing::Choice;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, k int, g int NOT NULL, v int);";
const ROWS: &str =
    "INSERT INTO t SELECT i, nullif(i % 3, 0), i % 2, nullif(i % 5, 1) FROM generate_series(1, 20) i";

/// Number of clauses in a run.
const CLAUSES: u64 = 400;

const KEYS: &[&str] = &["k", "g", "v", "k + 1", "(g)", "coalesce(v, 0)", "1", "next"];
const OUTPUTS: &[&str] = &["count(v)", "sum(k)", "string_agg(v::text, ',' ORDER BY id)", "max(k + 1)"];

fn list(choice: &mut Choice, most: usize, mut item: impl FnMut(&mut Choice) -> String) -> String {
    (0..=choice.below(most)).map(|_| item(choice)).collect::<Vec<_>>().join(", ")
}

fn key(choice: &mut Choice) -> String {
    (*choice.pick(KEYS).unwrap()).to_owned()
}

/// Draws one key, or several in parentheses.
fn part(choice: &mut Choice) -> String {
    if choice.one_in(4) { format!("({}, {})", key(choice), list(choice, 2, key)) } else { key(choice) }
}

fn item(choice: &mut Choice, depth: usize) -> String {
    match choice.below(if depth == 0 { 4 } else { 6 }) {
        0 => "()".to_owned(),
        1 => format!("ROLLUP ({})", list(choice, 3, part)),
        2 => format!("CUBE ({})", list(choice, 2, part)),
        3 => part(choice),
        _ => format!("GROUPING SETS ({})", list(choice, 3, |c| item(c, depth - 1))),
    }
}

fn query(choice: &mut Choice) -> String {
    let clause = list(choice, 2, |c| item(c, 2));
    let distinct = if choice.one_in(4) { "DISTINCT " } else { "" };
    let output = choice.pick(OUTPUTS).unwrap();
    let having = if choice.one_in(3) { " HAVING count(*) > 2" } else { "" };
    let first = if choice.one_in(2) { "ROLLUP (k, g), next" } else { "k, g" };
    format!(
        "SELECT k + g AS next, count(*) AS n, {output} AS o FROM t GROUP BY {distinct}{first}, {clause}{having}"
    )
}

#[test]
fn grouping_sets_are_those_of_the_server() {
    let catalog = MemoryCatalog::from_ddl(TABLE).unwrap();
    todays_server(async |db| {
        let session = db.session().await;
        session.client().batch_execute(&format!("{TABLE}{ROWS}")).await.unwrap();
        let (mut read, mut several) = (0, 0);
        for seed in 0..CLAUSES {
            let sql = query(&mut Choice::seeded(seed));
            let q = match lower(&sql, &catalog) {
                Ok(Lowered::Query(q)) => q,
                Ok(Lowered::Unsupported(reasons)) => {
                    assert!(reasons.iter().all(|r| r.construct.ends_with(" sets")), "{sql}: {reasons:?}");
                    continue;
                }
                Err(e) => panic!("{sql}: {e}"),
            };
            let names: Vec<Arc<str>> = q.columns.clone();
            let sources = BufferSources::new("pgtrickle_changes");
            let rendered =
                render_query(&q.graph, q.root, &sources, &Profile::postgres(db.major()), &names).unwrap();
            let difference = difference(&session, &print_query(&rendered).text, &sql).await;
            assert!(difference.is_empty(), "seed {seed}: {sql}\n{difference}");
            read += 1;
            several += u64::from(sql.contains("GROUPING SETS"));
        }
        println!("{read} clauses, {several} with sets inside sets");
        assert!(read > CLAUSES / 2 && several > CLAUSES / 8);
    });
}
