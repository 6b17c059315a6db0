//! A source table: its previous rows, its current rows, or its change.

use super::{By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite};
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, ZSet};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};
use crate::table::TableDef;
use std::sync::Arc;

/// The version of a source table that a leaf reads. The versions satisfy `Before + Delta = After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// R: the state of the table from which the stored results were computed.
    Before,
    /// R′: the current state of the table.
    After,
    /// ΔR: rows with weights, not consolidated, that lead from `Before` to `After`.
    Delta,
}

/// A source table, projected to the columns that the plan reads, as a bag: duplicates stay.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    def: Arc<TableDef>,
    columns: Arc<[usize]>,
    version: Version,
}

impl Table {
    /// Reads all stored columns of the table's current state.
    pub fn new(def: Arc<TableDef>) -> Table {
        let columns = (0..def.columns.len()).filter(|c| def.columns[*c].is_stored()).collect();
        Table { def, columns, version: Version::After }
    }
    /// Returns another version of the table, with the same columns.
    #[must_use]
    pub fn at(&self, version: Version) -> Table {
        Table { version, ..self.clone() }
    }
    /// Returns the table with only the columns at these positions of the current projection.
    #[must_use]
    pub fn select(&self, positions: impl Iterator<Item = usize>) -> Table {
        Table { columns: positions.filter_map(|p| self.columns.get(p)).copied().collect(), ..self.clone() }
    }
    /// Returns the same table without names. The table's identity replaces its name, and numbers replace the
    /// names of its columns.
    #[must_use]
    pub(crate) fn unnamed(&self) -> Table {
        let mut def =
            TableDef { schema: "".into(), name: self.def.id.to_string().into(), ..(*self.def).clone() };
        for (position, c) in def.columns.iter_mut().enumerate() {
            let number = if c.number == 0 { format!("p{position}") } else { c.number.to_string() };
            c.name = number.into();
        }
        Table { def: Arc::new(def), ..self.clone() }
    }
    /// Returns the definition of the table.
    pub fn def(&self) -> &Arc<TableDef> {
        &self.def
    }
    /// Returns the columns that are read, as positions in the table.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }
    /// Returns the version that is read.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl Relational for Table {
    fn name(&self) -> &'static str {
        match self.version {
            Version::Before => "TableBefore",
            Version::After => "Table",
            Version::Delta => "TableDelta",
        }
    }
    fn inputs(&self) -> Vec<NodeId> {
        Vec::new()
    }
    fn with_inputs(&self, _: &[NodeId]) -> Rel {
        self.clone().into()
    }
    fn check(&self, _: &[&Node]) -> Result<()> {
        match self.columns.iter().find(|c| **c >= self.def.columns.len()) {
            Some(c) => {
                Err(Error::plan(format!("table {}.{} has no column {c}", self.def.schema, self.def.name)))
            }
            None => Ok(()),
        }
    }
    fn schema(&self, _: &[&Node]) -> Schema {
        Schema::new(self.columns.iter().map(|i| {
            let c = &self.def.columns[*i];
            Column { label: c.name.clone(), ty: c.ty.clone(), nullable: c.nullable }
        }))
    }
    fn props(&self, _: &[&Node], schema: &Schema) -> Props {
        let state = self.version != Version::Delta;
        let mut p = Props {
            non_negative: state,
            // The previous state is computed as the current state minus the change, so its rows have negative
            // weights too until they are consolidated.
            positive: self.version == Version::After,
            reads_delta: self.version == Version::Delta,
            bounded: self.version == Version::Delta,
            sources: Arc::new([self.def.id].into()),
            ..Props::state()
        };
        if state {
            let place = |col: usize| self.columns.iter().position(|c| *c == col);
            for key in &self.def.keys {
                if let Some(key) = key.iter().map(|c| place(*c)).collect::<Option<ColSet>>() {
                    p.fds.push(FunctionalDependency { from: key.clone(), to: ColSet::all(schema.len()) });
                    p.add_key(key);
                }
            }
            p.consolidated = self.version == Version::After && !p.keys.is_empty();
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        Unsettled::of_inputs(inputs)
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    // This function is called only for tables other than the table whose columns are carried.
    fn carried(&self, _: &[Carried], _: &[&Node]) -> Carried {
        Carried::Absent
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Leaf
    }
    fn describe(&self, _: &[&Node]) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|i| &*self.def.columns[*i].name).collect();
        format!("{}.{} ({})", self.def.schema, self.def.name, columns.join(", "))
    }
}

impl Differentiate for Table {}

impl Rewrite for Table {
    fn needed(&self, _: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        Vec::new()
    }
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, _: &[&Pruned]) -> Result<Pruned> {
        Pruned::add(graph, self.select(columns.iter()), columns.clone())
    }
    fn restricted(&self, _: &mut Graph, _: &Restriction) -> Result<Option<NodeId>> {
        Ok(None)
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, _: &By) -> Vec<By> {
        Vec::new()
    }
}

impl Evaluate for Table {
    fn eval(&self, _: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let mut rows = ZSet::new();
        let (before, delta) = match (self.version, cx.previous) {
            (Version::Delta, true) => (false, false),
            (Version::Delta, false) => (false, true),
            (Version::Before, _) | (Version::After, true) => (true, false),
            (Version::After, false) => (true, true),
        };
        for (wanted, tables) in [(before, &cx.database.before), (delta, &cx.database.delta)] {
            if let Some(table) = tables.get(&self.def.id).filter(|_| wanted) {
                rows.add_zset(table);
            }
        }
        let whole = self.columns.len() == self.def.columns.len()
            && self.columns.iter().enumerate().all(|(i, c)| i == *c);
        if whole {
            return Ok(rows);
        }
        if let Some((row, _)) = rows.iter().find(|(r, _)| r.len() != self.def.columns.len()) {
            let (found, expected) = (row.len(), self.def.columns.len());
            return Err(Error::plan(format!(
                "a row of {} has {found} values, not {expected}",
                self.def.name
            )));
        }
        Ok(rows.map(|row| self.columns.iter().map(|c| row[*c].clone()).collect()))
    }
}

impl Render for Table {
    fn render(&self, _: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        match self.version {
            Version::After => Ok(Fragment::open(cx.current(self), true, cx.is_consolidated())),
            Version::Delta => Ok(Fragment::open(cx.change(self)?, false, false)),
            // PostgreSQL can use an index to look up rows in this union only if both arms have exactly the
            // same column types.
            Version::Before => {
                let mut minus = cx.change(self)?;
                minus.weight = minus.weight.negated();
                let arms = vec![cx.current(self), minus];
                let names = cx.output();
                Ok(Fragment::closed(cx.union(arms, names, true), false, false))
            }
        }
    }
}
