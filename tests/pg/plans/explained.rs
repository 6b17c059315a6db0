//! Deltas under EXPLAIN ANALYZE, with the number of rows that each of their scans reads.

use crate::support::Db;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio_postgres::{Client, SimpleQueryMessage};
use trickle_client::Session;
use trickle_core::catalog::{MemoryCatalog, TableDef, TableId};
use trickle_core::compile;
use trickle_core::expr::Moment;
use trickle_core::sql::ast::{Param, Statement};
use trickle_core::sql::{Profile, print};
use trickle_core::stream_table::{Options, Refresh, StreamTable};

/// The earlier of the two times between which a delta over the clock is computed. The later time is ten
/// seconds later.
const THEN: &str = "'2025-06-01 00:00:00+00'";
const NOW: &str = "'2025-06-01 00:00:10+00'";

/// A database with tables. Each table has a buffer that was never analysed.
pub(crate) struct Tables {
    session: Session,
    major: u32,
    catalog: MemoryCatalog,
}

impl Tables {
    /// Makes the tables in a new session, with `data`.
    pub(super) async fn filled(db: &Db, ddl: &str, data: &str) -> Tables {
        let session = db.session().await;
        let text = format!("SET TimeZone = 'UTC'; {ddl} {data}");
        session.client().batch_execute(&text).await.unwrap_or_else(|e| panic!("{e:?}"));
        Tables::of(db, session, ddl).await
    }

    /// Makes the buffers of the tables in a session whose database has the tables already.
    pub(super) async fn of(db: &Db, session: Session, ddl: &str) -> Tables {
        let catalog = MemoryCatalog::from_ddl(ddl).unwrap();
        let tables = Tables { session, major: db.major(), catalog };
        let mut sql = "CREATE SCHEMA pgtrickle_changes;".to_owned();
        for table in tables.catalog.tables() {
            write!(
                sql,
                "CREATE TABLE {} AS SELECT pg_current_xact_id() AS xid, 1::smallint AS w, t.* FROM {} t LIMIT 0;",
                buffer(table),
                table.name
            )
            .unwrap();
        }
        tables.client().batch_execute(&sql).await.unwrap();
        tables
    }

    fn client(&self) -> &Client {
        self.session.client()
    }

    pub(super) fn table(&self, name: &str) -> &TableDef {
        self.catalog.tables().iter().find(|t| &*t.name == name).unwrap()
    }

    /// Makes the server's statistics say that all buffers are empty, as after a drain.
    pub(super) async fn drained(self) -> Tables {
        for table in self.catalog.tables() {
            let buffer = buffer(table);
            let sql = format!(
                "INSERT INTO {buffer} SELECT pg_current_xact_id(), 1, * FROM {}; DELETE FROM {buffer}",
                table.name
            );
            self.client().batch_execute(&sql).await.unwrap();
            let sql = format!("VACUUM (ANALYZE, TRUNCATE off) {buffer}");
            self.client().batch_execute(&sql).await.unwrap();
        }
        self
    }

    /// Makes a stream table with the plan for a server of this version. Fills and analyses the stream table.
    pub(super) async fn keep(&self, query: &str) -> Kept<'_> {
        let mut options = Options::new("public", "result");
        options.profile = Profile::postgres(self.major);
        let table = compile(query, &self.catalog, &options).unwrap().incremental().unwrap();
        for statement in table.ddl().iter().chain(&table.refresh(Refresh::Replace, &BTreeSet::new()).unwrap())
        {
            self.client().batch_execute(&bound(statement, THEN, THEN, &BTreeMap::new())).await.unwrap();
        }
        for stored in table.layout().tables() {
            self.client().batch_execute(&format!("ANALYZE {}", stored.name)).await.unwrap();
        }
        Kept { tables: self, table }
    }

    pub(super) fn assert_none(&self, found: &[String]) {
        assert!(found.is_empty(), "PostgreSQL {}:\n{}", self.major, found.join("\n"));
    }
}

/// Returns the name of a table's buffer.
pub(super) fn buffer(table: &TableDef) -> String {
    format!("pgtrickle_changes.changes_{}", table.id)
}

/// Returns statements that update some rows of a table, and write the changes to its buffer.
pub(super) fn update(table: &TableDef, rows: &str, change: &str) -> String {
    let (buffer, name) = (buffer(table), &table.name);
    format!(
        "CREATE TEMPORARY TABLE changing ON COMMIT DROP AS SELECT ctid AS row FROM {name} WHERE {rows};
        INSERT INTO {buffer} SELECT pg_current_xact_id(), -1, * FROM {name} WHERE {rows};
        WITH new AS (UPDATE {name} t SET {change} FROM changing WHERE t.ctid = changing.row RETURNING t.*)
        INSERT INTO {buffer} SELECT pg_current_xact_id(), 1, * FROM new;
        DROP TABLE changing;"
    )
}

/// A filled stream table.
pub(super) struct Kept<'a> {
    tables: &'a Tables,
    table: StreamTable,
}

impl Kept<'_> {
    /// Returns the tables that the stream table reads.
    pub(super) fn sources(&self) -> Vec<Arc<TableDef>> {
        self.table.sources().into_iter().map(|(t, _)| t).collect()
    }

    /// Runs `changes` and then the delta, rolls both back, and returns the delta's plan and scans.
    pub(super) async fn delta(&self, changed: &BTreeSet<TableId>, changes: &str) -> Delta {
        let client = self.tables.client();
        let begin = format!("BEGIN; {changes}");
        client.batch_execute(&begin).await.unwrap_or_else(|e| panic!("{e:?}\n{begin}"));
        let mut pending = BTreeMap::new();
        for table in self.sources().iter().filter(|t| changed.contains(&t.id)) {
            let count = format!("SELECT count(*) FROM {}", buffer(table));
            pending.insert(table.id, client.query_one(&count, &[]).await.unwrap().get(0));
        }
        let [statement] = &self.table.refresh(Refresh::Delta, changed).unwrap()[..] else {
            panic!("one statement")
        };
        let text = bound(statement, THEN, NOW, &pending);
        let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON, BUFFERS) {text}; ROLLBACK");
        let rows = client.simple_query(&explain).await.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let json = rows.iter().find_map(|m| match m {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        let plan: Value = serde_json::from_str(&json.unwrap()).unwrap();
        let mut delta = Delta { scans: Vec::new(), plan: String::new(), text };
        delta.walk(&plan[0]["Plan"], 0);
        delta
    }

    pub(super) async fn discard(self) {
        for statement in self.table.drop_ddl() {
            self.tables.client().batch_execute(&statement.to_string()).await.unwrap();
        }
    }
}

/// Returns a statement's text with values for its parameters.
fn bound(statement: &Statement, then: &str, now: &str, pending: &BTreeMap<TableId, i64>) -> String {
    let printed = print(statement);
    let mut text = printed.text;
    for (i, param) in printed.params.iter().enumerate() {
        let (ty, value) = match param {
            Param::FrontierSnapshot(_) => ("text::pg_snapshot", "'3:3:'"),
            Param::FrontierXid(_) => ("text::xid8", "NULL"),
            Param::FrontierCommand(_) => ("bigint", "0"),
            Param::Pending(table) => ("bigint", &*pending[table].to_string()),
            Param::Clock(Moment::Then) => ("text::timestamp with time zone", then),
            Param::Clock(Moment::Now) => ("text::timestamp with time zone", now),
            Param::Value(_) => continue,
        };
        text = text.replace(&format!("${}::{ty}", i + 1), &format!("{value}::{ty}"));
    }
    text
}

/// The name for the pairs that a join refused, in the place of a relation's name.
const REFUSED: &str = "pairs_refused";

/// A scan of a plan with the number of rows that all its loops read. A value can also stand for a join, with
/// the number of pairs that the join refused.
pub(super) struct Scan {
    pub(super) node: String,
    pub(super) relation: String,
    pub(super) rows: f64,
}

impl std::fmt::Display for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} reads {} rows of {}", self.node, self.rows, self.relation)
    }
}

/// The plan and the scans of a delta that ran.
pub(super) struct Delta {
    pub(super) scans: Vec<Scan>,
    /// The plan as text. Each node is one line, with the expected rows, the found rows and the loops.
    plan: String,
    text: String,
}

impl Delta {
    /// Returns the number of rows read from each relation.
    pub(super) fn by_relation(&self) -> BTreeMap<&str, f64> {
        let mut rows = BTreeMap::new();
        for scan in &self.scans {
            *rows.entry(&*scan.relation).or_default() += scan.rows;
        }
        rows
    }

    /// Returns a text with a heading and the scans that read too many rows, or None if no scan does. With
    /// TRICKLE_PG_SHOW set, the text contains the plan and the statement too.
    pub(super) fn beyond(&self, what: &str, too_much: impl Fn(&Scan) -> bool) -> Option<String> {
        let read: Vec<String> = self.scans.iter().filter(|s| too_much(s)).map(ToString::to_string).collect();
        let shown = match std::env::var_os("TRICKLE_PG_SHOW") {
            Some(_) => format!("\n{}{}", self.plan, self.text),
            None => String::new(),
        };
        (!read.is_empty()).then(|| format!("{what}: {}{shown}", read.join("; ")))
    }

    fn walk(&mut self, plan: &Value, depth: usize) {
        let number = |key: &str| plan[key].as_f64().unwrap_or(0.0);
        let (node, loops) = (plan["Node Type"].as_str().unwrap_or_default(), number("Actual Loops"));
        let relation = plan["Relation Name"].as_str();
        let name =
            relation.or(plan["CTE Name"].as_str()).or(plan["Subplan Name"].as_str()).unwrap_or_default();
        let (expected, found) = (number("Plan Rows"), number("Actual Rows"));
        let indent = "  ".repeat(depth);
        writeln!(self.plan, "{indent}{node} {name}: {expected} expected, {found} found, {loops} loops")
            .unwrap();
        let mut push = |relation: &str, rows: f64| {
            self.scans.push(Scan { node: node.to_owned(), relation: relation.to_owned(), rows });
        };
        if let Some(relation) = relation {
            let seen = found + number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
            push(relation, loops * seen);
        }
        // A join may try many pairs without a match, although its scans read each row only once.
        let refused = loops * number("Rows Removed by Join Filter");
        if refused > 0.0 {
            push(REFUSED, refused);
        }
        for child in plan["Plans"].as_array().into_iter().flatten() {
            self.walk(child, depth + 1);
        }
    }
}
