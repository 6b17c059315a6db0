//! Random samples as IMMEDIATE stream tables. Triggers apply the delta of each statement that writes the
//! tables.

use super::buffers::{difference_of, text};
use super::run::{Counts, judge, results};
use super::script::{Expect, Part, Step, beyond};
use super::sources::{Namespace, literal, sum, values};
use super::{Case, Db, drawn, risky};
use std::collections::HashMap;
use tokio_postgres::{Client, SimpleQueryMessage};
use trickle_core::catalog::{TableDef, TableId};
use trickle_core::eval::{Database, Row, ZSet};
use trickle_core::immediate::Immediate;
use trickle_core::refresh::Setting;
use trickle_core::rel::Rel;
use trickle_core::sql::{Ident, print};
use trickle_core::stream_table::{Options, StreamTable};
use trickle_core::testing::Limits;

type State = HashMap<TableId, ZSet>;

/// The part of a change that one statement writes.
#[derive(Clone, Copy, Debug)]
enum Writes {
    /// One statement deletes all leaving rows of one table, or inserts all new rows of one table.
    Tables,
    /// One statement deletes the leaving rows of all tables. Another statement then inserts the new rows of
    /// all tables.
    Together,
    /// One statement deletes or inserts one row.
    Rows,
}

/// Checks samples that cannot raise an error.
pub(super) async fn check(db: &Db, seeds: &[u64]) -> Counts {
    let space = Namespace::new("immediate", db.major());
    let session = db.session().await;
    let client = session.client();
    client.batch_execute("CREATE SCHEMA pgtrickle_changes; SET client_min_messages = error").await.unwrap();
    client.batch_execute(&space.create()).await.unwrap();
    let mut counts = Counts::default();
    for &seed in seeds {
        let operators = 1 + (seed % 6) as usize;
        let limits = Limits { operators, opaque: false, raising: false, clock: false };
        let case = drawn(&space, seed, &limits, Vec::new());
        if risky(&case.sample) {
            continue;
        }
        // In a state between two statements a recursion may have no end. So the statements of a recursive
        // sample write all tables together.
        let writes = match is_recursive(&case) {
            true => Writes::Together,
            false => [Writes::Tables, Writes::Together, Writes::Rows][(seed % 3) as usize],
        };
        match keep(client, &space, &case, writes, &mut counts).await {
            Ok(()) => counts.cases += 1,
            Err(e) => panic!(
                "seed {seed}, kept by triggers, {writes:?}: {e}\n{}",
                trickle_core::testing::reproduction(&case.sample, &case.db)
            ),
        }
        let drop = "DROP SCHEMA pgtrickle_changes CASCADE; CREATE SCHEMA pgtrickle_changes; DROP TABLE immediate.result";
        client.batch_execute(&format!("{drop}; {}", space.truncate())).await.unwrap();
    }
    counts
}

async fn keep(
    client: &Client,
    space: &Namespace,
    case: &Case,
    writes: Writes,
    counts: &mut Counts,
) -> Result<(), String> {
    let names = (0..case.sample.graph.schema(case.sample.root).len()).map(|i| format!("c{i}").into());
    let mut options = Options::new("immediate", "result");
    options.profile = space.profile.clone();
    let (graph, root) = (case.sample.graph.clone(), case.sample.root);
    let table = StreamTable::from_plan(graph, root, names.collect(), &options).map_err(|e| e.to_string())?;
    let path = Setting { name: "search_path".into(), values: vec!["pg_catalog".into()] };
    let made = Immediate::new(&table, 1, table.buffers(), &[path]).and_then(|i| i.install());
    let made = made.map_err(|e| e.to_string())?;
    // The tables are empty at first, so the triggers apply every change from the first row on.
    let empty =
        table.refresh(trickle_core::Refresh::Replace, &table.changing()).map_err(|e| e.to_string())?;
    for statement in table.ddl().iter().chain(&empty).chain(&made) {
        run(client, &print(statement).text).await?;
    }
    // By this trigger the statements distinguish a stream table from another table of the same name.
    let guard = "CREATE FUNCTION pgtrickle_changes.pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER trickle_guard BEFORE INSERT ON immediate.result EXECUTE FUNCTION pgtrickle_changes.pass()";
    run(client, guard).await?;
    let mut state = State::new();
    let after = sum(&case.db.before, &case.db.delta);
    let mut wanted = vec![case.db.before.clone(), after];
    wanted.extend(case.more.later.iter().take(1).cloned());
    for next in wanted {
        let change = difference_of(&space.tables, &next, &state);
        let leaves = |z: &ZSet| z.iter().filter(|(_, w)| *w < 0).map(|(r, w)| (r.clone(), w)).collect();
        let between = sum(&state, &change.iter().map(|(id, z)| (*id, leaves(z))).collect());
        if is_beyond(case, &between) || is_beyond(case, &next) {
            break;
        }
        let [leave, come] = [leaving(space, &change, writes), coming(space, &change, writes)];
        let once = |all: &[String]| all.iter().map(|s| format!("{s};\n")).collect::<String>();
        let texts = format!(
            "BEGIN;\nSAVEPOINT undone;\n{}ROLLBACK TO undone;\n{}{}COMMIT",
            once(&leave),
            once(&leave),
            once(&come)
        );
        run(client, &texts).await?;
        state = next;
        compare(client, space, case, &state, counts).await?;
    }
    let Some(emptied) = space.tables.first() else { return Ok(()) };
    state.remove(&emptied.id);
    if is_beyond(case, &state) {
        return Ok(());
    }
    run(client, &format!("TRUNCATE {}.{}", space.schema, emptied.name)).await?;
    compare(client, space, case, &state, counts).await
}

fn is_recursive(case: &Case) -> bool {
    let graph = &case.sample.graph;
    graph.reachable(case.sample.root).into_iter().any(|id| matches!(graph.rel(id), Rel::Recursion(_)))
}

/// Whether the query has too many rows for a test in a state.
fn is_beyond(case: &Case, state: &State) -> bool {
    beyond(&case.sample.eval(&Database { before: state.clone(), ..Database::default() }))
}

async fn run(client: &Client, sql: &str) -> Result<(), String> {
    client.batch_execute(sql).await.map_err(|e| format!("{}\n{sql}", text(e)))
}

/// Combines the statements into one statement if the change is written together.
fn grouped(all: Vec<String>, writes: Writes) -> Vec<String> {
    if all.len() < 2 || !matches!(writes, Writes::Together) {
        return all;
    }
    let ctes: Vec<String> = all.iter().enumerate().map(|(i, s)| format!("c{i} AS ({s})")).collect();
    vec![format!("WITH {} SELECT 1", ctes.join(", "))]
}

fn leaving(space: &Namespace, change: &State, writes: Writes) -> Vec<String> {
    let mut all = Vec::new();
    for t in &space.tables {
        let name = format!("{}.{}", space.schema, t.name);
        let gone = change.get(&t.id).into_iter().flat_map(ZSet::iter).filter(|(_, w)| *w < 0);
        let places: Vec<String> = gone
            .map(|(row, w)| format!("ARRAY(SELECT ctid FROM {name} WHERE {} LIMIT {})", same(t, row), -w))
            .collect();
        match writes {
            _ if places.is_empty() => {}
            Writes::Rows => {
                all.extend(places.iter().map(|p| format!("DELETE FROM {name} WHERE ctid = ANY ({p})")));
            }
            _ => all.push(format!("DELETE FROM {name} WHERE ctid = ANY ({})", places.join(" || "))),
        }
    }
    grouped(all, writes)
}

fn coming(space: &Namespace, change: &State, writes: Writes) -> Vec<String> {
    let mut all = Vec::new();
    for t in &space.tables {
        let name = format!("{}.{}", space.schema, t.name);
        let rows = change.get(&t.id).into_iter().flat_map(ZSet::iter).filter(|(_, w)| *w > 0);
        let rows: Vec<String> =
            rows.flat_map(|(row, w)| vec![values(row, &t.columns); usize::try_from(w).unwrap()]).collect();
        match writes {
            _ if rows.is_empty() => {}
            Writes::Rows => all.extend(rows.iter().map(|r| format!("INSERT INTO {name} VALUES {r}"))),
            _ => all.push(format!("INSERT INTO {name} VALUES {}", rows.join(", "))),
        }
    }
    grouped(all, writes)
}

fn same(t: &TableDef, row: &Row) -> String {
    let column = |(c, d): (&trickle_core::catalog::ColumnDef, &trickle_core::types::Datum)| {
        format!("\"{}\" IS NOT DISTINCT FROM {}", c.name, literal(d, &c.ty))
    };
    t.columns.iter().zip(row.iter()).map(column).collect::<Vec<_>>().join(" AND ")
}

/// Asserts that the stored table equals the evaluator's result.
async fn compare(
    client: &Client,
    space: &Namespace,
    case: &Case,
    state: &State,
    counts: &mut Counts,
) -> Result<(), String> {
    let db = Database { before: state.clone(), ..Database::default() };
    let rows = case.sample.eval(&db).map_err(|e| e.to_string())?;
    let columns = case.sample.graph.schema(case.sample.root);
    let types = columns.columns().iter().map(|c| c.ty.clone()).collect();
    let sql = format!("SELECT * FROM {}.result", Ident::new(&space.schema));
    let found: Vec<SimpleQueryMessage> = client.simple_query(&sql).await.map_err(text)?;
    let expect = Expect::Rows { rows, types, weighted: false };
    let step = Step { sql, part: Part::Table, expect };
    judge(&step, results(found).first().ok_or("no result")?, counts)
}
