//! The statements of a refresh. Also the recompute of a stream table by other means: as a separate query,
//! from a table that has the rows already, or in parts that run concurrently.

use super::{Captured, StreamTable, consolidate};
use crate::apply::{
    Against, Identity, LayoutSources, Stored, StoredColumn, Summand, affected_statement, change_statement,
    difference, from_stored, full_statements, insert_statement, summands, takes_pairs,
};
use crate::delta::{self, Path};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::opt;
use crate::rel::{Rel, Revise, Table, with_servers_clock};
use crate::sql::ast::{Query, Statement};
use crate::sql::{Ident, Qualified, Ranged, Sources, render_changes, render_query, render_states};
use crate::table::{ColumnDef, TableDef, TableId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The manner in which a refresh writes. All variants give the same contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refresh {
    /// Applies the delta.
    Delta,
    /// Recomputes the rows whose keys changed. This variant is possible only for a stream table for which
    /// [`StreamTable::has_affected_groups`] is true.
    AffectedGroups,
    /// Recomputes the query and writes the difference.
    Difference,
    /// Recomputes the query and replaces the contents.
    Replace,
}

impl StreamTable {
    /// Returns the statements of one refresh, to be run in their order under one snapshot. Except under
    /// [`Refresh::Replace`], the last statement returns the row `(rows_inserted, rows_updated,
    /// rows_deleted)`. The list is empty if nothing that the query reads has changed.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub fn refresh(&self, how: Refresh, changed: &BTreeSet<TableId>) -> Result<Vec<Statement>> {
        self.refresh_from(how, changed, &self.sources_of_refreshes())
    }

    /// Returns the sources that refreshes read: tables, change buffers, stored results.
    pub(crate) fn sources_of_refreshes(&self) -> LayoutSources<'_> {
        LayoutSources::new(&self.layout, &self.options.state_schema)
    }

    /// Returns the statements of [`StreamTable::refresh`], reading tables and changes from `sources`.
    ///
    /// # Errors
    /// Fails as [`StreamTable::refresh`] does.
    pub fn refresh_from(
        &self,
        how: Refresh,
        changed: &BTreeSet<TableId>,
        sources: &dyn Sources,
    ) -> Result<Vec<Statement>> {
        let (graph, roots) = match how {
            Refresh::Delta => self.delta(changed)?,
            Refresh::Difference => {
                let mut graph = self.graph.clone();
                let nodes: Vec<NodeId> = self.layout.tables().map(|t| t.node).collect();
                let roots =
                    nodes.into_iter().map(|n| difference(&mut graph, n)).collect::<Result<Vec<_>>>()?;
                (graph, roots)
            }
            Refresh::AffectedGroups => return self.affected(changed, sources),
            Refresh::Replace => return self.replace(sources),
        };
        let against = if how == Refresh::Difference { Against::Stored } else { Against::Plan };
        let statement = self.change(&graph, &roots, against, sources)?;
        Ok(statement.into_iter().collect())
    }

    /// Returns the statement that applies changes of the stored tables, in the order of [`Layout::tables`].
    /// Returns `None` if no table changes.
    fn change(
        &self,
        graph: &Graph,
        roots: &[NodeId],
        against: Against,
        sources: &dyn Sources,
    ) -> Result<Option<Statement>> {
        let live: Vec<(&Stored, NodeId)> =
            self.layout.tables().zip(roots.iter().copied()).filter(|(_, r)| !graph.props(*r).empty).collect();
        if live.is_empty() {
            return Ok(None);
        }
        let nodes: Vec<NodeId> = live.iter().map(|(_, r)| *r).collect();
        let tables: Vec<&Stored> = live.iter().map(|(table, _)| *table).collect();
        let in_pairs = |i: usize, r: &Revise| takes_pairs(tables[i], r, graph.props(r.input()));
        let changed = render_changes(graph, &nodes, &in_pairs, sources, &self.options.profile)?;
        Ok(Some(change_statement(changed, &tables, against)))
    }

    /// Returns the statement that recomputes one part of the result, and applies the delta to the rest. The
    /// recomputed part depends on rows with uncaptured changes. These rows belong to one table. Any source
    /// may have changed. The statement returns the same row as the last statement of
    /// [`StreamTable::refresh`]. Returns `None` where the stored tables do not show on which rows of the
    /// table they depend.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub(crate) fn part(&self, captured: &Captured, sources: &dyn Sources) -> Result<Option<Statement>> {
        let nodes: Vec<NodeId> = self.layout.tables().map(|t| t.node).collect();
        let mut graph = self.graph.clone();
        let mut differ = self.differ(&mut graph, &self.changing());
        let Some(roots) = delta::part(&mut differ, &nodes, captured)? else { return Ok(None) };
        let mut roots = opt::Optimizer::default().optimize(&mut graph, &roots)?;
        consolidate(&mut graph, &mut roots)?;
        self.change(&graph, &roots, Against::Stored, sources)
    }

    /// Returns the statement that makes the result equal to the table `from`, which has the columns of the
    /// result and the rows of the query. The statement writes the difference, and returns the same row as the
    /// last statement of [`StreamTable::refresh`].
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub fn adopt(&self, from: &Qualified) -> Result<Statement> {
        let (table, mut graph) = (&self.layout.result, self.graph.clone());
        let column = |c: &StoredColumn| ColumnDef::new(c.name.as_str(), c.ty.clone(), c.nullable);
        let schema = from.schema.as_ref().map_or("", Ident::as_str);
        let columns = table.columns.iter().map(column).collect();
        let rows = Table::new(Arc::new(TableDef::new(TableId(0), schema, from.name.as_str(), columns)));
        let rows = graph.add(rows)?;
        let root = from_stored(&mut graph, table.node, rows)?;
        let sources = self.sources_of_refreshes();
        let changed = render_changes(&graph, &[root], &|_, _| false, &sources, &self.options.profile)?;
        Ok(change_statement(changed, &[table], Against::Stored))
    }

    /// Returns the key of the result, and the path from a table to this key. Returns `None` if tables other
    /// than the result are stored, or if there is no such path.
    fn affected_path(&self) -> Option<(&[usize], Path)> {
        let Identity::Key(key) = &self.layout.result.identity else { return None };
        let alone = self.kept.stored.iter().all(|n| *n == self.prepared);
        let path = alone.then(|| Path::of(&self.graph, self.prepared, key))?;
        Some((key, path?))
    }

    /// Whether [`Refresh::AffectedGroups`] is possible.
    pub fn has_affected_groups(&self) -> bool {
        self.affected_path().is_some()
    }

    /// Returns the columns of a table's key, as positions in the table's definition. The values of this key
    /// identify the rows that [`Refresh::AffectedGroups`] recomputes.
    pub(crate) fn affected_key(&self) -> Option<Vec<usize>> {
        let (_, path) = self.affected_path()?;
        let (table, key) = path.key();
        let Rel::Table(table) = self.graph.rel(table) else { return None };
        key.iter().map(|k| table.columns().get(*k).copied()).collect()
    }

    fn affected(&self, changed: &BTreeSet<TableId>, sources: &dyn Sources) -> Result<Vec<Statement>> {
        let Some((key, path)) = self.affected_path() else {
            return Err(Error::plan("the rows of this query are not those of a table with a key"));
        };
        let mut graph = self.graph.clone();
        let found = path.affected(&mut self.differ(&mut graph, changed), self.prepared, key)?;
        let roots = opt::Optimizer::default().optimize(&mut graph, &[found.keys, found.rows])?;
        if graph.props(roots[0]).empty {
            return Ok(Vec::new());
        }
        let (ctes, named) = render_states(&graph, &roots, sources, &self.options.profile)?;
        let [keys, rows] = &named[..] else { return Err(Error::internal("a root was not rendered")) };
        Ok(vec![affected_statement(ctes, (keys, rows), &self.layout.result, key)])
    }

    /// Returns the query of a full refresh as a query that can run alone. It reads the time from the server's
    /// clock. Where SQL does not determine which of several equal values is returned, this query chooses one.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub fn recomputed(&self) -> Result<Query> {
        let sources = LayoutSources::new(&self.layout, &self.options.state_schema);
        let (graph, query) = with_servers_clock(&self.graph, self.query)?;
        self.rows(&graph, query, &self.layout.result, &sources)
    }

    fn replace(&self, sources: &dyn Sources) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        for table in self.layout.tables() {
            let node = if table.node == self.prepared { self.query } else { table.node };
            let rows = self.rows(&self.graph, node, table, sources)?;
            statements.extend(full_statements(table, rows));
        }
        Ok(statements)
    }

    fn rows(&self, graph: &Graph, node: NodeId, table: &Stored, sources: &dyn Sources) -> Result<Query> {
        let names: Vec<Arc<str>> = table.columns.iter().map(|c| Arc::from(c.name.as_str())).collect();
        render_query(graph, node, sources, &self.options.profile, &names)
    }

    /// Splits the last statement of [`Refresh::Replace`], which fills the result, into parts. The parts can
    /// run at the same time over the same snapshot. If a part has a table, it reads the rows of that table
    /// from the address `Param::Value(0)` (included) to `Param::Value(1)` (not included). A part without a
    /// table reads all its tables whole, and must be run once. `size` returns the size of a table. The
    /// largest tables are split.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub fn load(&self, size: &dyn Fn(TableId) -> u64) -> Result<Vec<(Statement, Option<TableId>)>> {
        let sources = LayoutSources::new(&self.layout, &self.options.state_schema);
        let mut graph = self.graph.clone();
        let table = &self.layout.result;
        let parts = summands(&mut graph, self.query, size)?;
        let insert = |part: &Summand| {
            let Some(leaf) = part.over else {
                return Ok((insert_statement(table, self.rows(&graph, part.root, table, &sources)?), None));
            };
            let rows = self.rows(&graph, part.root, table, &Ranged::new(&sources, leaf))?;
            let over = graph.props(leaf).sources.first().copied();
            Ok((insert_statement(table, rows), over))
        };
        parts.iter().map(insert).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::{MemoryCatalog, TableId};
    use crate::stream_table::{Captured, Options, StreamTable, compile};

    const TABLES: &str =
        "CREATE TABLE e (id int, day date NOT NULL, v int); CREATE TABLE d (v int PRIMARY KEY, name text)";

    fn compiled(sql: &str) -> StreamTable {
        let catalog = MemoryCatalog::from_ddl(TABLES).unwrap();
        compile(sql, &catalog, &Options::new("public", "st")).unwrap().incremental().unwrap()
    }

    /// Whether a part of the query's result can be recomputed where rows of other days came or went.
    fn has_part(sql: &str) -> bool {
        let condition = |sql: &str| compiled(&format!("SELECT * FROM e WHERE {sql}")).selection().unwrap();
        let captured = Captured {
            source: TableId(1),
            stays: condition("day IS NOT NULL AND day >= '2024-01-01'::date AND day < '2024-02-01'::date"),
            others: Some(condition("day = '2024-03-01'::date")),
        };
        let table = compiled(sql);
        table.part(&captured, &table.sources_of_refreshes()).unwrap().is_some()
    }

    #[test]
    fn a_part_is_recomputed_where_the_result_shows_the_column() {
        assert!(has_part("SELECT id, day FROM e WHERE v > 0"));
        assert!(has_part("SELECT day, v, count(*) AS n, sum(id) AS s FROM e GROUP BY day, v"));
        assert!(has_part("SELECT id, day, rank() OVER (PARTITION BY day ORDER BY v) FROM e"));
        assert!(has_part("SELECT day, name FROM e LEFT JOIN d USING (v)"));
        assert!(has_part(
            "SELECT name, day, max(id) FROM d JOIN e USING (v) GROUP BY name, day HAVING count(*) > 1"
        ));
        assert!(has_part("SELECT DISTINCT day FROM e UNION ALL SELECT day FROM e WHERE v = 1"));
        assert!(!has_part("SELECT count(*) FROM e"));
        assert!(!has_part("SELECT id FROM e"));
        assert!(!has_part("SELECT v, max(day) AS day FROM e GROUP BY v"));
        assert!(!has_part("SELECT name, day FROM d LEFT JOIN e USING (v)"));
        assert!(!has_part("SELECT day FROM e UNION ALL SELECT date '2024-03-01'"));
        assert!(!has_part("SELECT day FROM e WHERE day = (SELECT max(day) FROM e)"));
        assert!(!has_part("SELECT day FROM e WHERE day < now()"));
    }
}
