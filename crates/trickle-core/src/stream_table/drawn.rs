//! Drawings of the plans of a stream table, for people.

use super::StreamTable;
use crate::error::{Error, Result};
use crate::graph::{Format, explain};
use crate::rel::Rel;
use crate::table::TableId;
use std::collections::BTreeSet;

impl StreamTable {
    /// Draws the plan of the query.
    pub fn explain(&self, format: Format) -> String {
        explain(&self.graph, self.query, format)
    }

    /// Draws the plans whose results are stored: the states, then the stream table itself. The drawing does
    /// not contain names of tables and columns, since a renaming does not change the plan.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub fn explain_stored(&self) -> Result<String> {
        let mut graph = self.graph.clone();
        let mut drawn = String::new();
        for stored in self.layout.states.iter().chain([&self.layout.result]) {
            let root = graph.rebuild(stored.node, |g, _, rel| match &rel {
                Rel::Table(table) => g.add(table.unnamed()),
                _ => g.add(rel),
            })?;
            drawn.push_str(&explain(&graph, root, Format::Text));
            drawn.push('\n');
        }
        Ok(drawn)
    }

    /// Draws the delta of the result for changes of the tables `changed`. `None` means all tables that the
    /// query reads, and the clock.
    ///
    /// # Errors
    /// Fails as [`StreamTable::delta`] does.
    pub fn explain_delta(&self, changed: Option<&BTreeSet<TableId>>, format: Format) -> Result<String> {
        let (graph, roots) = self.delta(&changed.cloned().unwrap_or_else(|| self.changing()))?;
        let root = roots.last().ok_or_else(|| Error::internal("a stream table without a table"))?;
        Ok(explain(&graph, *root, format))
    }
}
