//! Reads INSERT, UPDATE, DELETE and TRUNCATE statements as queries. The queries return the rows that such a
//! statement removes and adds.
//!
//! The queries are lowered and evaluated like all other queries, so their expressions and subqueries need no
//! separate code. These statements write only in-memory data. Defaults, conflicts and triggers exist only on
//! a server.

use super::each_statement;
use super::names::{fold, qualified};
use crate::error::{Error, Result};
use crate::ident::{Ident, Qualified};
use crate::table::{ColumnDef, Generated, TableDef};
use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, Insert, ObjectName, SetExpr, Statement,
    TableFactor, TableObject, TableWithJoins, Truncate, Update,
};

/// A change of one table by one statement.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The schema of the table, if the statement gives one, and the name of the table.
    pub(crate) table: (Option<String>, String),
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    /// One list of expressions per row. The expressions are for the columns that the statement names, or for
    /// all columns if it names none.
    Rows {
        columns: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    /// The rows of a query.
    Select {
        columns: Vec<String>,
        query: String,
    },
    /// Assignments `alias.column = expression`.
    Update {
        alias: String,
        set: Vec<(String, String)>,
        condition: String,
    },
    Delete {
        alias: String,
        condition: String,
    },
    Truncate,
}

/// The queries for the rows that a write removes and adds, with all columns of the table in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteQueries {
    /// The query for the removed rows, R − R′.
    pub(crate) removed: Option<String>,
    /// The query for the added rows, R′ − R.
    pub(crate) added: Option<String>,
}

/// Reads statements separated by semicolons. Each statement reads the state that the earlier statements left.
///
/// # Errors
/// Fails with a syntax error, or if only a server can run a statement or clause.
pub(crate) fn parse_writes(sql: &str) -> Result<Vec<Write>> {
    let mut writes = Vec::new();
    each_statement(sql, |statement| {
        match statement {
            Statement::Insert(s) => writes.push(insert(s)?),
            Statement::Update(s) => writes.push(update(s)?),
            Statement::Delete(s) => writes.push(delete(&s)?),
            Statement::Truncate(s) => writes.extend(truncate(&s)),
            other => return Err(Error::syntax(format!("{other} does not change rows"))),
        }
        Ok(())
    })?;
    Ok(writes)
}

fn insert(s: Insert) -> Result<Write> {
    let TableObject::TableName(name) = &s.table else {
        return Err(Error::syntax("INSERT needs the name of a table"));
    };
    if s.on.is_some() || s.returning.is_some() {
        return Err(Error::syntax("INSERT in memory has no ON CONFLICT and no RETURNING"));
    }
    let table = qualified(name);
    let columns: Vec<String> = s.columns.iter().map(last).collect();
    let Some(source) = s.source else {
        return Ok(Write { table, change: Change::Rows { columns, rows: vec![Vec::new()] } });
    };
    let change = match source.body.as_ref() {
        SetExpr::Values(v) if source.with.is_none() => {
            let rows = v.rows.iter().map(|r| r.content.iter().map(value).collect()).collect();
            Change::Rows { columns, rows }
        }
        _ => Change::Select { columns, query: source.to_string() },
    };
    Ok(Write { table, change })
}

/// Returns the text of an expression. DEFAULT becomes NULL, since in-memory tables have no other default.
fn value(e: &Expr) -> String {
    match e {
        Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default") => {
            "NULL".to_owned()
        }
        other => other.to_string(),
    }
}

fn update(s: Update) -> Result<Write> {
    if s.from.is_some() || s.returning.is_some() {
        return Err(Error::syntax("UPDATE in memory has no FROM and no RETURNING: use a subquery"));
    }
    let (table, alias) = target(&s.table)?;
    let mut set = Vec::new();
    for Assignment { target, value: e } in &s.assignments {
        match (target, e) {
            (AssignmentTarget::ColumnName(name), e) => set.push((last(name), value(e))),
            (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if names.len() == values.len() => {
                set.extend(names.iter().map(last).zip(values.iter().map(value)));
            }
            _ => return Err(Error::syntax("SET (…) = needs a row of as many values")),
        }
    }
    Ok(Write { table, change: Change::Update { alias, set, condition: condition(s.selection.as_ref()) } })
}

fn delete(s: &Delete) -> Result<Write> {
    if s.using.is_some() || s.returning.is_some() {
        return Err(Error::syntax("DELETE in memory has no USING and no RETURNING: use a subquery"));
    }
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &s.from;
    let [one] = tables.as_slice() else {
        return Err(Error::syntax("DELETE needs the name of one table"));
    };
    let (table, alias) = target(one)?;
    Ok(Write { table, change: Change::Delete { alias, condition: condition(s.selection.as_ref()) } })
}

fn truncate(s: &Truncate) -> Vec<Write> {
    let write = |name| Write { table: qualified(name), change: Change::Truncate };
    s.table_names.iter().map(|t| write(&t.name)).collect()
}

/// Returns the table that a statement changes, and the name by which the statement refers to its rows.
fn target(table: &TableWithJoins) -> Result<((Option<String>, String), String)> {
    match &table.relation {
        TableFactor::Table { name, alias, .. } if table.joins.is_empty() => {
            let alias = alias.as_ref().map_or_else(|| last(name), |a| fold(&a.name));
            Ok((qualified(name), alias))
        }
        other => Err(Error::syntax(format!("{other} cannot be changed"))),
    }
}

fn last(name: &ObjectName) -> String {
    qualified(name).1
}

fn condition(selection: Option<&Expr>) -> String {
    selection.map_or_else(|| "true".to_owned(), ToString::to_string)
}

impl Write {
    /// Returns the queries over the table `def`, which must be the table that the write names.
    ///
    /// # Errors
    /// Fails if the table lacks a column, or if the numbers of values and columns differ.
    pub(crate) fn queries(&self, def: &TableDef) -> Result<WriteQueries> {
        let name = Qualified::new(&def.schema, &def.name);
        let rows = |list: &str, alias: &str, condition: &str| {
            format!("SELECT {list} FROM {name} AS {} WHERE {condition}", Ident::new(alias))
        };
        Ok(match &self.change {
            Change::Truncate => WriteQueries { removed: Some(rows("*", "t", "true")), added: None },
            Change::Delete { alias, condition } => {
                WriteQueries { removed: Some(rows("*", alias, condition)), added: None }
            }
            Change::Update { alias, set, condition } => {
                let place = |i: usize| set.iter().find(|(c, _)| def.column(c) == Some(i));
                known(def, set.iter().map(|(c, _)| c))?;
                let row = |i: usize| match place(i) {
                    Some((_, e)) => e.clone(),
                    None => format!("{}.{}", Ident::new(alias), Ident::new(&def.columns[i].name)),
                };
                WriteQueries {
                    removed: Some(rows("*", alias, condition)),
                    added: Some(computed(def, rows(&typed(def, row), alias, condition))),
                }
            }
            Change::Rows { columns, rows } => {
                known(def, columns)?;
                let arms = rows.iter().map(|r| {
                    fits(columns, def, r.len())?;
                    let value = |i: usize| {
                        let place = place(def, columns, i).and_then(|p| r.get(p));
                        place.cloned().unwrap_or_else(|| "NULL".to_owned())
                    };
                    Ok(format!("SELECT {}", typed(def, value)))
                });
                WriteQueries {
                    removed: None,
                    added: Some(computed(def, arms.collect::<Result<Vec<_>>>()?.join(" UNION ALL "))),
                }
            }
            Change::Select { columns, query } => {
                known(def, columns)?;
                let width = if columns.is_empty() { def.columns.len() } else { columns.len() };
                let names: Vec<String> = (0..width).map(|i| format!("c{i}")).collect();
                let value = |i: usize| {
                    let place = place(def, columns, i);
                    place.map_or_else(|| "NULL".to_owned(), |p| format!("q.c{p}"))
                };
                let list = typed(def, value);
                WriteQueries {
                    removed: None,
                    added: Some(computed(
                        def,
                        format!("SELECT {list} FROM ({query}) AS q ({})", names.join(", ")),
                    )),
                }
            }
        })
    }
}

/// Returns the position of column `i` of the table in the column list of an INSERT.
fn place(def: &TableDef, columns: &[String], i: usize) -> Option<usize> {
    if columns.is_empty() { Some(i) } else { columns.iter().position(|c| def.column(c) == Some(i)) }
}

fn known<'a>(def: &TableDef, columns: impl IntoIterator<Item = &'a String>) -> Result<()> {
    match columns.into_iter().find(|c| def.column(c).is_none()) {
        None => Ok(()),
        Some(c) => {
            Err(Error::unknown_column(format!("column \"{c}\" of relation \"{}\" does not exist", def.name)))
        }
    }
}

fn fits(columns: &[String], def: &TableDef, values: usize) -> Result<()> {
    let most = if columns.is_empty() { def.columns.len() } else { columns.len() };
    if values > most {
        return Err(Error::syntax("INSERT has more expressions than target columns"));
    }
    if !columns.is_empty() && values < most {
        return Err(Error::syntax("INSERT has more target columns than expressions"));
    }
    Ok(())
}

/// Returns a select list with a value for each column of the table, cast to the type of the column.
fn typed(def: &TableDef, value: impl Fn(usize) -> String) -> String {
    let item = |i: usize| format!("CAST({} AS {}) AS c{i}", value(i), def.columns[i].ty);
    (0..def.columns.len()).map(item).collect::<Vec<_>>().join(", ")
}

/// Returns a query whose generated columns are computed over the other columns.
fn computed(def: &TableDef, query: String) -> String {
    if def.columns.iter().all(|c| c.generated.is_none()) {
        return query;
    }
    let names: Vec<String> = def.columns.iter().map(|c| Ident::new(&c.name).to_string()).collect();
    let value = |(c, name): (&ColumnDef, &String)| match &c.generated {
        Some(Generated::Stored(e) | Generated::Virtual(e)) => format!("CAST({e} AS {}) AS {name}", c.ty),
        None => name.clone(),
    };
    let list: Vec<String> = def.columns.iter().zip(&names).map(value).collect();
    format!("SELECT {} FROM ({query}) AS r ({})", list.join(", "), names.join(", "))
}
