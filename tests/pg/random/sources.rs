//! The tables that plans of random samples read.

use std::collections::HashMap;
use std::sync::Arc;
use trickle_core::apply::{Layout, LayoutSources};
use trickle_core::catalog::{ColumnDef, TableDef, TableId};
use trickle_core::eval::{Row, ZSet};
use trickle_core::graph::NodeId;
use trickle_core::sql::{Changes, Ident, Profile, Qualified, Relation, Sources, Stored, Window};
use trickle_core::types::{Datum, Type};
use trickle_core::{Error, Result};

/// The schema and the tables of one worker.
pub(super) struct Namespace {
    pub(super) schema: String,
    pub(super) tables: Vec<Arc<TableDef>>,
    pub(super) profile: Profile,
}

impl Namespace {
    pub(super) fn new(schema: &str, major: u32) -> Namespace {
        Namespace::of(schema, major, &trickle_core::testing::tables())
    }

    /// Makes a namespace with these tables.
    pub(super) fn of(schema: &str, major: u32, tables: &[Arc<TableDef>]) -> Namespace {
        let here = |t: &Arc<TableDef>| Arc::new(TableDef { schema: schema.into(), ..(**t).clone() });
        Namespace {
            schema: schema.to_owned(),
            tables: tables.iter().map(here).collect(),
            profile: super::script::profile(major),
        }
    }

    /// Returns statements that make the schema, its tables and their weighted changes.
    pub(super) fn create(&self) -> String {
        let mut sql = format!("CREATE SCHEMA {};\n", self.schema);
        for t in &self.tables {
            let column = |c: &ColumnDef, null: &str| format!("\"{}\" {}{null}", c.name, c.ty.sql_name());
            let plain: Vec<String> = t.columns.iter().map(|c| column(c, "")).collect();
            let mut strict: Vec<String> =
                t.columns.iter().map(|c| column(c, if c.nullable { "" } else { " NOT NULL" })).collect();
            strict.extend(t.keys.iter().map(|k| {
                let names: Vec<String> = k.iter().map(|i| format!("\"{}\"", t.columns[*i].name)).collect();
                format!("PRIMARY KEY ({})", names.join(", "))
            }));
            sql += &format!("CREATE TABLE {}.{} ({});\n", self.schema, t.name, strict.join(", "));
            sql += &format!(
                "CREATE TABLE {} ({}, weight smallint);\n",
                delta_name(&self.schema, t),
                plain.join(", ")
            );
        }
        sql
    }

    /// Returns a TRUNCATE of all tables, which also removes their dead rows.
    pub(super) fn truncate(&self) -> String {
        let both = |t: &Arc<TableDef>| format!("{}.{}, {}", self.schema, t.name, delta_name(&self.schema, t));
        format!("TRUNCATE {}", self.tables.iter().map(both).collect::<Vec<_>>().join(", "))
    }
}

/// Returns the name of the table that holds the weighted change of a table.
pub(super) fn delta_name(schema: &str, table: &TableDef) -> String {
    format!("{schema}.delta_{}", table.name)
}

/// Returns a value in its text form, cast to its type.
pub(super) fn literal(datum: &Datum, ty: &Type) -> String {
    match datum.to_text(ty) {
        None => format!("NULL::{}", ty.sql_name()),
        Some(text) => format!("'{}'::{}", text.replace('\'', "''"), ty.sql_name()),
    }
}

/// Returns the values of a row as `(…)`, for an INSERT.
pub(super) fn values(row: &Row, columns: &[ColumnDef]) -> String {
    let list: Vec<String> = row
        .iter()
        .zip(columns)
        .map(|(d, c)| match d.to_text(&c.ty) {
            None => "NULL".to_owned(),
            Some(text) => format!("'{}'", text.replace('\'', "''")),
        })
        .collect();
    format!("({})", list.join(", "))
}

pub(super) fn sum(a: &HashMap<TableId, ZSet>, b: &HashMap<TableId, ZSet>) -> HashMap<TableId, ZSet> {
    let mut out = a.clone();
    for (table, rows) in b {
        out.entry(*table).or_default().add_zset(rows);
    }
    out
}

/// The leaves of plans. The changes come from plain tables with a weight column, and the stored results come
/// from named relations or from a layout.
pub(super) struct WeightedTables<'a> {
    space: &'a Namespace,
    pub(super) states: HashMap<NodeId, (String, Vec<String>)>,
    layout: Option<LayoutSources<'a>>,
}

impl<'a> WeightedTables<'a> {
    pub(super) fn new(space: &'a Namespace) -> Self {
        WeightedTables { space, states: HashMap::new(), layout: None }
    }
    pub(super) fn of(space: &'a Namespace, layout: &'a Layout) -> Self {
        let layout = Some(LayoutSources::new(layout, &space.schema));
        WeightedTables { space, states: HashMap::new(), layout }
    }
}

impl Sources for WeightedTables<'_> {
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        Ok(Changes {
            relation: Relation {
                name: Qualified::new(&self.space.schema, format!("delta_{}", def.name)),
                columns: def.columns.iter().map(|c| Ident::new(&c.name)).collect(),
            },
            weight: Ident::new("weight"),
            weight_type: Type::Int2,
            window: Window::All,
            counted: None,
        })
    }

    fn state(&self, of: NodeId) -> Result<Stored> {
        if let Some(layout) = &self.layout {
            return layout.state(of);
        }
        let (name, columns) =
            self.states.get(&of).ok_or_else(|| Error::plan(format!("no stored result of {of}")))?;
        let relation = Relation {
            name: Qualified::bare(Ident::new(name)),
            columns: columns.iter().map(Ident::new).collect(),
        };
        Ok(Stored { relation, weight: None })
    }
}
