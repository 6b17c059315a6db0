//! Advice on keys and indexes that would make the refreshes of an incremental query cheaper.

use serde_json::{Value, json};
use std::sync::Arc;
use trickle_client::Explained;
use trickle_client::catalog::Reach;
use trickle_core::access::Access;
use trickle_core::catalog::{TableDef, TableId, TableKind};
use trickle_core::sql::{Ident, Qualified};
use trickle_core::{Result, StreamTable};
pub(crate) use trickle_engine::words::list;

/// A piece of advice, or a cost that cannot be avoided.
#[derive(Clone, Debug)]
pub(crate) struct Advice {
    /// A code word for programs, which does not change between versions.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) help: String,
    /// The label at the place that the advice is about, in a drawing of the query.
    pub(crate) label: &'static str,
    /// The table that the advice is about.
    pub(crate) table: Option<Arc<TableDef>>,
    /// The index that would help.
    pub(crate) index: Option<Index>,
}

/// An index that would help.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) statement: String,
    /// The number of rows of the table. Without the index, all of these are read. `None` if no server was
    /// asked.
    pub(crate) reads: Option<f64>,
    /// The number of rows that are read with the index for each changed row, as estimated from the server's
    /// statistics; `None` without an estimate.
    pub(crate) finds: Option<f64>,
}

impl Index {
    fn new(statement: String, access: &Access, reach: &Reach) -> Index {
        let distinct = access.columns.iter().filter_map(|c| reach.distinct.get(c).copied());
        let most = distinct.reduce(f64::max);
        // Where the access looks up a range, no estimate is made from the number of distinct values.
        let finds = reach.rows.zip(most).filter(|_| access.range.is_empty()).map(|(all, n)| all / n.max(1.0));
        Index { statement, reads: reach.rows, finds }
    }

    /// Describes how many rows are read without the index, and how many with the index.
    pub(crate) fn gain(&self) -> Option<String> {
        let without = format!("rows that are read each time: {:.0}", self.reads?);
        Some(match self.finds {
            Some(rows) => format!("{without}; with it, about {:.0} for each that changed", rows.max(1.0)),
            None => without,
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"statement": self.statement, "reads_rows": self.reads, "finds_rows": self.finds})
    }
}

/// A function that returns the indexes and statistics by which the rows of a table are found.
pub(crate) type ReachOf<'a> = &'a dyn Fn(&TableDef) -> Reach;

/// Returns the indexes that would help a stream table, each with the reason.
pub(crate) fn indexes(explained: &Explained) -> Result<Vec<(String, Index)>> {
    let Some(table) = &explained.table else { return Ok(Vec::new()) };
    let known = |def: &TableDef| explained.reach.get(&def.id).cloned().unwrap_or_default();
    let all = advice(table, &known)?;
    Ok(all.into_iter().filter_map(|a| Some((a.message, a.index?))).collect())
}

/// Returns all advice on a query. `known` returns the indexes and statistics of each of the query's tables.
pub(crate) fn advice(table: &StreamTable, known: ReachOf<'_>) -> Result<Vec<Advice>> {
    let mut found = Vec::new();
    found.extend(without_key(table));
    found.extend(table.sources().into_iter().filter_map(|(def, _)| source_without_key(def)));
    found.extend(table.reads_clock().then(reads_clock));
    found.extend(without_partition(table)?);
    for access in table.accesses()? {
        found.extend(index(&access, known, table));
    }
    Ok(found)
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn columns(table: &TableDef, positions: &[usize]) -> Vec<String> {
    positions.iter().map(|c| Ident::new(&table.columns[*c].name).to_string()).collect()
}

fn without_key(table: &StreamTable) -> Option<Advice> {
    let result = table.graph().props(table.query());
    if !result.keys.is_empty() {
        return None;
    }
    let keys: Vec<String> = table
        .sources()
        .into_iter()
        .filter_map(|(def, _)| {
            let key = def.keys.first()?;
            Some(format!("{}({})", Ident::new(&def.name), columns(&def, key).join(", ")))
        })
        .collect();
    let help = if keys.is_empty() {
        "A primary key on the tables it reads, selected too, or GROUP BY or DISTINCT gives the result a key."
            .to_owned()
    } else {
        format!(
            "Select the key of what it reads too ({}), or use DISTINCT where equal rows mean nothing.",
            list(&keys)
        )
    };
    Some(Advice {
        code: "result-without-key",
        label: "this query",
        message:
            "the result has no key: equal rows are kept and counted, and a row is found by all its columns"
                .into(),
        help,
        table: None,
        index: None,
    })
}

fn source_without_key(def: Arc<TableDef>) -> Option<Advice> {
    if def.kind != TableKind::Table || !def.keys.is_empty() {
        return None;
    }
    let name = Qualified::new(&def.schema, &def.name);
    Some(Advice {
        code: "source-without-key",
        label: "has no key",
        message: format!(
            "table {} has no primary key: its rows are told apart by all their columns",
            quoted(&def.name)
        ),
        help: format!(
            "ALTER TABLE {name} ADD PRIMARY KEY (…), if some columns are unique and not null; UNIQUE on NOT NULL columns \
             does as well."
        ),
        table: Some(def),
        index: None,
    })
}

fn reads_clock() -> Advice {
    Advice {
        code: "reads-clock",
        label: "this query",
        message: "the query reads the clock: every refresh looks for rows that entered and left with time, also where no table changed".into(),
        help: "An index on the column that is compared with the clock finds them.".into(),
        table: None,
        index: None,
    }
}

/// Advises on window functions that each refresh recomputes for all rows.
fn without_partition(table: &StreamTable) -> Result<Option<Advice>> {
    let names: Vec<String> = table.whole_windows()?.iter().map(|name| format!("{name}()")).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let (goes, are) = if names.len() == 1 { ("goes", "is") } else { ("go", "are") };
    Ok(Some(Advice {
        code: "window-without-partition",
        label: "this query",
        message: format!(
            "{} {goes} over all rows, and {are} computed anew for all of them after every change",
            list(&names)
        ),
        help: "PARTITION BY what the numbers belong to: then partitions in which nothing changed are left alone. If only \
               the first rows matter, ORDER BY with LIMIT keeps them at the cost of the change. What looks a few rows back \
               or forth (lag, ROWS 6 PRECEDING) is computed near the change where ORDER BY starts with a NOT NULL column."
            .into(),
        table: None,
        index: None,
    }))
}

/// Advises on an index that an access needs and its table does not have.
fn index(access: &Access, known: ReachOf<'_>, table: &StreamTable) -> Option<Advice> {
    let def = &access.table;
    let sources = table.sources();
    let name = |id: &TableId| sources.iter().find(|(d, _)| d.id == *id).map(|(d, _)| quoted(&d.name));
    let timed = access.changed.contains(&TableId::CLOCK);
    let clock = timed.then(|| "the clock".to_owned());
    let changed = list(&access.changed.iter().filter_map(name).chain(clock).collect::<Vec<_>>());
    if access.is_whole() && timed {
        return Some(Advice {
            code: "reads-whole-table",
            label: "is read as a whole",
            message: format!("every refresh reads all of {} for what time changed", quoted(&def.name)),
            help: "Compare a column with the clock alone, in a term of AND: \"at > now() - interval '1 day'\" and not \
                   \"now() - at < interval '1 day'\"; then an index on it finds what enters and leaves."
                .into(),
            table: Some(def.clone()),
            index: None,
        });
    }
    if access.is_whole() {
        return Some(Advice {
            code: "reads-whole-table",
            label: "is read as a whole",
            message: format!("every change of {changed} reads all of {}", quoted(&def.name)),
            help: "An equality between columns in the join condition, a GROUP BY or a PARTITION BY lets an index find the few rows that \
                   matter."
                .into(),
            table: Some(def.clone()),
            index: None,
        });
    }
    let reach = known(def);
    let served = access.is_served_by_keys() || reach.indexes.iter().any(|i| access.is_served_by(i));
    if served {
        return None;
    }
    let by = columns(def, &access.index());
    let statement = format!("CREATE INDEX ON {} ({})", Qualified::new(&def.schema, &def.name), by.join(", "));
    Some(Advice {
        code: "missing-index",
        label: "is searched without an index",
        message: format!(
            "a change of {changed} looks up rows of {} by {}, and no index finds them",
            quoted(&def.name),
            list(&by)
        ),
        help: format!("{statement};"),
        table: Some(def.clone()),
        index: Some(Index::new(statement, access, &reach)),
    })
}
