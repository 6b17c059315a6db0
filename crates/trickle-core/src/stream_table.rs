//! The compiler from a query to all that a driver needs: verdict, plans, DDL, and the statements of a
//! refresh.

use crate::apply::{
    Against, Identity, Layout, LayoutSources, Stored, StoredColumn, Summand, affected_statement,
    change_statement, create_statements, create_table, difference, drop_statements, from_stored,
    full_statements, identity_statements, insert_statement, summands, takes_pairs,
};
use crate::catalog::{Catalog, ColumnDef, TableDef, TableId, TableKind};
use crate::cdc::{Buffer, Mode};
use crate::delta::{self, Differ, Keep, Kept, Path, Rules};
use crate::error::{Error, Result};
use crate::graph::{Format, Graph, NodeId, NodeMap, explain};
use crate::lower::{Lowered, lower_parsed};
use crate::opt;
use crate::parse::{Parsed, parse_query};
use crate::rel::{Consolidate, Rel, Revise, Table, with_servers_clock};
use crate::sql::ast::{Query, Statement};
use crate::sql::{
    Ident, Profile, Qualified, Ranged, Sources, opaque, render_changes, render_query, render_states,
};
use crate::typecheck::{TypeCheck, type_checks};
use crate::types::Type;
use crate::verdict::Reason;
use std::collections::BTreeSet;
use std::sync::Arc;
use xxhash_rust::xxh64::xxh64;

/// The caller's choices for a stream table, of which none affects the contents of the table.
#[derive(Clone, Debug)]
pub struct Options {
    /// Schema of the stream table.
    pub schema: String,
    /// Name of the stream table.
    pub name: String,
    /// Schema of change buffers and state tables.
    pub hidden_schema: String,
    /// Prefix of the names of the state tables. The prefix is unique among the stream tables of a database,
    /// and the same whenever the stream table is compiled.
    pub state_prefix: String,
    /// The inner results that are stored as states.
    pub keep: Keep,
    /// Whether the plans of joins may assume that validated foreign keys are honoured in every state.
    pub trust_foreign_keys: bool,
    /// The version and the capabilities of the server that will run the statements.
    pub profile: Profile,
}

impl Options {
    /// Returns the default choices for a stream table of this name.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Options {
        let (schema, name) = (schema.into(), name.into());
        Options {
            state_prefix: format!("state_{:016x}", xxh64(format!("{schema}.{name}").as_bytes(), 0)),
            schema,
            name,
            hidden_schema: "pgtrickle_changes".into(),
            keep: Keep::default(),
            trust_foreign_keys: false,
            profile: Profile::default(),
        }
    }
}

/// The manner in which a stream table can be kept equal to a query.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// By deltas, which the compiled stream table makes.
    Incremental(Box<StreamTable>),
    /// By a recompute in each refresh; the reasons, at least one, tell why deltas are impossible.
    FullRefresh(Vec<Reason>),
}

impl Verdict {
    /// Returns the compiled stream table, if deltas are possible.
    pub fn incremental(self) -> Option<StreamTable> {
        match self {
            Verdict::Incremental(table) => Some(*table),
            Verdict::FullRefresh(_) => None,
        }
    }
}

/// The manner in which a refresh writes. All variants give the same contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refresh {
    /// Applies the delta.
    Delta,
    /// Recomputes the rows of the keys that changed; only possible if [`StreamTable::has_affected_groups`].
    AffectedGroups,
    /// Recomputes the query and writes the difference.
    Difference,
    /// Recomputes the query and replaces the contents.
    Replace,
}

/// A compiled incremental query.
#[derive(Clone, Debug)]
pub struct StreamTable {
    graph: Graph,
    /// The plan of the query; the statements of a recompute are rendered from this plan.
    query: NodeId,
    /// The plan that is differentiated, in which aggregates are split into accumulators and the computation
    /// of their final values.
    prepared: NodeId,
    kept: Kept,
    columns: Vec<Arc<str>>,
    layout: Layout,
    options: Options,
}

/// Compiles a query.
///
/// # Errors
/// Errors that PostgreSQL would raise too (syntax, names, types), with the place in the query, DETAIL and
/// HINT.
pub fn compile(sql: &str, catalog: &dyn Catalog, options: &Options) -> Result<Verdict> {
    compile_parsed(&parse_query(sql)?, catalog, options)
}

/// Compiles a parsed query, so that a caller that stores parsed queries need not parse them again.
///
/// # Errors
/// Those of [`compile`], without the syntax errors.
pub fn compile_parsed(parsed: &Parsed, catalog: &dyn Catalog, options: &Options) -> Result<Verdict> {
    let full = |e: &Error| Ok(Verdict::FullRefresh(vec![Reason::too_large(e)]));
    let query = match lower_parsed(parsed, catalog) {
        Ok(Lowered::Query(query)) => query,
        Ok(Lowered::Unsupported(reasons)) => return Ok(Verdict::FullRefresh(reasons)),
        Err(e) if e.is_too_large() => return full(&e),
        Err(e) => return Err(e),
    };
    let table = StreamTable::from_plan(query.graph, query.root, query.columns, options);
    match table.and_then(|t| Ok((t.delta_is_small()?, t))) {
        Ok((true, table)) => Ok(Verdict::Incremental(Box::new(table))),
        Ok((false, _)) => full(&Error::too_large(MAX_DELTA, "operators")),
        Err(e) if e.is_too_large() => full(&e),
        Err(e) => Err(e),
    }
}

/// The greatest number of operators of a delta. Planning a statement of this size takes PostgreSQL as long as
/// running many queries, so a query whose delta is larger is recomputed.
pub const MAX_DELTA: usize = 4_096;

/// The greatest size of a query whose delta is assumed to have at most [`MAX_DELTA`] operators, without
/// counting them. A delta has at most about twice the square of the number of operators in the query, since a
/// join of n tables has n terms of n tables. An operator counts once for each operator that reads it.
const COUNTED: usize = 40;

impl StreamTable {
    /// Compiles the plan under `root`, which denotes a state, into a stream table with these column names.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn from_plan(
        graph: Graph,
        root: NodeId,
        columns: Vec<Arc<str>>,
        options: &Options,
    ) -> Result<StreamTable> {
        let mut graph = graph;
        let mut optimizer = opt::Optimizer::default();
        let query = optimizer.optimize_one(&mut graph, root)?;
        let prepared = delta::prepare(&mut graph, query)?;
        let prepared = optimizer.optimize_one(&mut graph, prepared)?;
        let kept = delta::kept(&mut graph, prepared, options.keep)?;
        let name = Qualified::new(&options.schema, &options.name);
        let names = columns.iter().map(Ident::new).collect();
        let (hidden, prefix) = (&options.hidden_schema, &options.state_prefix);
        let layout = Layout::new(&graph, prepared, &kept.stored, name, names, hidden, prefix)?;
        Ok(StreamTable { graph, query, prepared, kept, columns, layout, options: options.clone() })
    }

    /// Returns queries by which the server checks the types that the plans expect.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn type_checks(&self) -> Result<Vec<TypeCheck>> {
        type_checks(&self.graph, &[self.query, self.prepared], self.profile())
    }

    /// Returns the graph that contains the plans.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
    /// Returns the plan of the query.
    pub fn query(&self) -> NodeId {
        self.query
    }
    /// Returns the plan that is differentiated, which denotes the same rows as the plan of the query.
    pub fn prepared(&self) -> NodeId {
        self.prepared
    }
    /// Returns the names of the columns of the result.
    pub fn columns(&self) -> &[Arc<str>] {
        &self.columns
    }
    /// Returns the layout of the stored tables.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the schema of the change buffers and the state tables.
    pub(crate) fn hidden_schema(&self) -> &str {
        &self.options.hidden_schema
    }
    /// Returns the version and the capabilities of the server that runs the statements.
    pub(crate) fn profile(&self) -> &Profile {
        &self.options.profile
    }

    /// Whether rows enter and leave the stream table by the passing of time.
    pub fn reads_clock(&self) -> bool {
        self.changing().contains(&TableId::CLOCK)
    }

    /// Returns the tables that the query reads and, if the query reads it, the clock: a change of any of
    /// these may change the result.
    pub fn changing(&self) -> BTreeSet<TableId> {
        BTreeSet::clone(&self.graph.props(self.query).sources)
    }

    /// Returns the sources of the query, each with the columns (positions) whose changes may change the
    /// result.
    pub fn sources(&self) -> Vec<(Arc<TableDef>, Vec<usize>)> {
        let mut found: Vec<(Arc<TableDef>, BTreeSet<usize>)> = Vec::new();
        for id in self.graph.reachable_from(&[self.query, self.prepared]) {
            if let Rel::Table(t) = self.graph.rel(id) {
                match found.iter_mut().find(|(def, _)| def == t.def()) {
                    Some((_, columns)) => columns.extend(t.columns()),
                    None => found.push((t.def().clone(), t.columns().iter().copied().collect())),
                }
            }
        }
        found.sort_by_key(|(def, _)| def.id);
        found.into_iter().map(|(def, columns)| (def, columns.into_iter().collect())).collect()
    }

    pub(crate) fn differ<'g>(&self, graph: &'g mut Graph, changed: &BTreeSet<TableId>) -> Differ<'g> {
        Differ::new(graph, self.kept.clone(), Some(changed.clone()), Rules::Algebraic)
            .trusting_foreign_keys(self.options.trust_foreign_keys)
    }

    /// Specialises ΔQ to the tables that changed. Returns a graph, and its nodes that denote the changes of
    /// the stored tables, in the order of [`Layout::tables`]. Each change contains a row at most once.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn delta(&self, changed: &BTreeSet<TableId>) -> Result<(Graph, Vec<NodeId>)> {
        let mut graph = self.graph.clone();
        let mut roots = Vec::new();
        let mut differ = self.differ(&mut graph, changed);
        for table in self.layout.tables() {
            roots.push(differ.stored_delta(table.node)?);
        }
        let mut roots = opt::Optimizer::default().optimize(&mut graph, &roots)?;
        // An optimised plan may guarantee less about its rows than the plan before optimisation.
        for root in &mut roots {
            if !graph.props(*root).consolidated && !graph.props(*root).empty {
                *root = graph.add(Consolidate::change(*root))?;
            }
        }
        Ok((graph, roots))
    }

    /// Whether the delta has at most [`MAX_DELTA`] operators when all sources changed. The delta is only
    /// built if the size of the query makes a larger one possible.
    fn delta_is_small(&self) -> Result<bool> {
        let mut unfolded = NodeMap::new();
        for id in self.graph.reachable(self.prepared) {
            let below = self.graph.inputs(id).iter().filter_map(|i| unfolded.get(*i));
            unfolded.insert(id, below.fold(1usize, usize::saturating_add));
        }
        if unfolded.get(self.prepared).is_some_and(|n| n <= COUNTED) {
            return Ok(true);
        }
        let (graph, roots) = self.delta(&self.changing())?;
        Ok(graph.reachable_from(&roots).len() <= MAX_DELTA)
    }

    /// Returns the statements that create the stored tables, which are then empty.
    pub fn ddl(&self) -> Vec<Statement> {
        create_statements(&self.layout)
    }
    /// Returns the part of [`StreamTable::ddl`] that creates the table of the result. Its columns have the
    /// types `types`, as the server spells them. Each of these types accepts the values of the type that the
    /// plan has for the column.
    pub fn result_ddl(&self, types: &[String]) -> Vec<Statement> {
        let mut made = create_table(&self.layout.result);
        for statement in &mut made {
            if let Statement::CreateTable(table) = statement {
                for (column, ty) in table.columns.iter_mut().zip(types) {
                    column.ty = Type::Other(Arc::new(opaque(ty)));
                }
            }
        }
        made
    }
    /// Returns the part of [`StreamTable::ddl`] that creates the state tables.
    pub fn state_ddl(&self) -> Vec<Statement> {
        self.layout.states.iter().flat_map(create_table).collect()
    }
    /// Returns the statements that add the key of [`StreamTable::ddl`] to a table that has the columns of the
    /// result: NOT NULL and primary key, or an index.
    pub fn identity_ddl(&self) -> Vec<Statement> {
        identity_statements(&self.layout.result)
    }
    /// Returns the statements that drop the stored tables.
    pub fn drop_ddl(&self) -> Vec<Statement> {
        drop_statements(&self.layout)
    }

    /// Returns the change buffers that the deltas read, one for each source whose changes can be captured.
    pub fn buffers(&self) -> Vec<Buffer> {
        self.sources()
            .into_iter()
            .filter(|(def, _)| matches!(def.kind, TableKind::Table | TableKind::StreamTable))
            .map(|(def, columns)| Buffer::new(def, &self.options.hidden_schema, &columns))
            .collect()
    }

    /// Returns, for each source, the statements that start capture, if the source is not captured yet. For a
    /// captured source, [`ChangeSource::widen`](crate::cdc::ChangeSource::widen) adds the columns that its
    /// buffer lacks.
    pub fn capture(&self, mode: Mode) -> Vec<(TableId, Vec<Statement>)> {
        let install = |b: &Buffer| (b.table().id, mode.source().install(b));
        self.buffers().iter().map(install).collect()
    }

    /// Returns the statements of one refresh, to be run in their order under one snapshot. Except under
    /// [`Refresh::Replace`], the last statement returns the row `(rows_inserted, rows_updated,
    /// rows_deleted)`. The list is empty if nothing that the query reads has changed.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn refresh(&self, how: Refresh, changed: &BTreeSet<TableId>) -> Result<Vec<Statement>> {
        self.refresh_from(how, changed, &self.sources_of_refreshes())
    }

    /// Returns the sources that refreshes read: tables, change buffers, stored results.
    pub fn sources_of_refreshes(&self) -> LayoutSources<'_> {
        LayoutSources::new(&self.layout, &self.options.hidden_schema)
    }

    /// Returns the statements of [`StreamTable::refresh`], reading tables and changes from `sources`.
    ///
    /// # Errors
    /// Those of [`StreamTable::refresh`].
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
        let live: Vec<(&Stored, NodeId)> =
            self.layout.tables().zip(roots).filter(|(_, r)| !graph.props(*r).empty).collect();
        if live.is_empty() {
            return Ok(Vec::new());
        }
        let nodes: Vec<NodeId> = live.iter().map(|(_, r)| *r).collect();
        let tables: Vec<&Stored> = live.iter().map(|(table, _)| *table).collect();
        let in_pairs = |i: usize, r: &Revise| takes_pairs(tables[i], r, graph.props(r.input()));
        let changed = render_changes(&graph, &nodes, &in_pairs, sources, &self.options.profile)?;
        let against = if how == Refresh::Difference { Against::Stored } else { Against::Plan };
        Ok(vec![change_statement(changed, &tables, against)])
    }

    /// Returns the statement that makes the result equal to the table `from`, which has the columns of the
    /// result and the rows of the query. The statement writes the difference, and returns the same row as the
    /// last statement of [`StreamTable::refresh`].
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
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

    /// Returns the key of the result, and the path from a table to this key. `None` if other tables than the
    /// result are stored, or if there is no such path.
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

    /// Returns the key of the table whose values identify the rows of [`Refresh::AffectedGroups`], as columns
    /// of the table's definition.
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

    /// Returns the query of a full refresh in a form that can run alone, in which the time is read from the
    /// server's clock. Where SQL leaves open which of several equal values is shown, the returned query
    /// chooses one.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn recomputed(&self) -> Result<Query> {
        let sources = LayoutSources::new(&self.layout, &self.options.hidden_schema);
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

    /// Splits the last statement of [`Refresh::Replace`], which fills the result, into parts that can run at
    /// the same time over the same snapshot. A part with a table reads the rows of that table from the
    /// address `Param::Value(0)` (included) to `Param::Value(1)` (not included). A part without a table reads
    /// all its tables whole, and must be run once. `size` returns the size of a table; the largest tables are
    /// split.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn load(&self, size: &dyn Fn(TableId) -> u64) -> Result<Vec<(Statement, Option<TableId>)>> {
        let sources = LayoutSources::new(&self.layout, &self.options.hidden_schema);
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

    /// Draws the plan of the query.
    pub fn explain(&self, format: Format) -> String {
        explain(&self.graph, self.query, format)
    }

    /// Draws the plans whose results are stored: the states, then the stream table itself. The drawing
    /// contains no names of tables and columns, since renaming these changes no plan.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
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

    /// Draws the delta of the result for changes of the tables `changed`. `None` stands for all tables that
    /// the query reads, and the clock.
    ///
    /// # Errors
    /// Those of [`StreamTable::delta`].
    pub fn explain_delta(&self, changed: Option<&BTreeSet<TableId>>, format: Format) -> Result<String> {
        let (graph, roots) = self.delta(&changed.cloned().unwrap_or_else(|| self.changing()))?;
        let root = roots.last().ok_or_else(|| Error::internal("a stream table without a table"))?;
        Ok(explain(&graph, *root, format))
    }
}
