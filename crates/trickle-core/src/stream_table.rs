//! From a query to everything a driver needs: verdict, plans, DDL, refresh statements.

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
use crate::sql::{Ident, Profile, Qualified, Ranged, Sources, render_changes, render_query, render_states};
use crate::verdict::Reason;
use std::collections::BTreeSet;
use std::sync::Arc;
use xxhash_rust::xxh64::xxh64;

/// What the caller decides about a stream table. None of it changes what the table holds.
#[derive(Clone, Debug)]
pub struct Options {
    /// Schema of the stream table.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Schema of change buffers and hidden state tables.
    pub hidden_schema: String,
    /// What the names of its hidden state tables begin with; unique among the stream tables of a database, and the same
    /// whenever it is compiled.
    pub state_prefix: String,
    /// Which inner results are kept.
    pub keep: Keep,
    /// Whether joins may rely on validated foreign keys being honoured in every state.
    pub trust_foreign_keys: bool,
    /// The server that will run the statements.
    pub profile: Profile,
}

impl Options {
    /// The defaults for a stream table of this name.
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

/// How a query is kept up to date.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// By deltas.
    Incremental(Box<StreamTable>),
    /// By recomputing it, for these reasons (at least one).
    FullRefresh(Vec<Reason>),
}

impl Verdict {
    /// The compiled stream table, where the query is incremental.
    pub fn incremental(self) -> Option<StreamTable> {
        match self {
            Verdict::Incremental(table) => Some(*table),
            Verdict::FullRefresh(_) => None,
        }
    }
}

/// How a refresh writes. All give the same contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refresh {
    /// Applies the delta.
    Delta,
    /// Computes the rows of the keys that changed anew: only where [`StreamTable::has_affected_groups`].
    AffectedGroups,
    /// Recomputes the query and writes what differs.
    Difference,
    /// Recomputes the query and replaces the contents.
    Replace,
}

/// A compiled incremental query.
#[derive(Clone, Debug)]
pub struct StreamTable {
    graph: Graph,
    /// The query as it is read: recomputing it is rendered from here.
    query: NodeId,
    /// The query as it is differentiated: aggregates split into accumulators and their finish.
    prepared: NodeId,
    kept: Kept,
    columns: Vec<Arc<str>>,
    layout: Layout,
    options: Options,
}

/// Compiles a query.
///
/// # Errors
/// What PostgreSQL would refuse too: syntax, names, types; with place, DETAIL and HINT.
pub fn compile(sql: &str, catalog: &dyn Catalog, options: &Options) -> Result<Verdict> {
    compile_parsed(&parse_query(sql)?, catalog, options)
}

/// Compiles a parsed query: a caller that keeps parses saves their time.
///
/// # Errors
/// Those of [`compile`] but syntax errors.
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

/// How many operators the delta of a stream table may have: a statement of so many takes PostgreSQL about as long to plan
/// as many queries take to run. A query whose delta is larger is recomputed.
pub const MAX_DELTA: usize = 4_096;

/// A delta has at most about twice the square of the query's operators (a join of n tables has n terms of n tables), each
/// counted as often as it is read, so one of so few is not worth counting.
const COUNTED: usize = 40;

impl StreamTable {
    /// Compiles the plan under `root`, which denotes a state, as a stream table with these column names.
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

    /// The arena that holds the plans.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
    /// The query's plan.
    pub fn query(&self) -> NodeId {
        self.query
    }
    /// The plan that is differentiated; equal to the query's.
    pub fn prepared(&self) -> NodeId {
        self.prepared
    }
    /// Names of the result's columns.
    pub fn columns(&self) -> &[Arc<str>] {
        &self.columns
    }
    /// The stored tables.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The schema of its hidden tables.
    pub(crate) fn hidden_schema(&self) -> &str {
        &self.options.hidden_schema
    }
    /// The server that runs its statements.
    pub(crate) fn profile(&self) -> &Profile {
        &self.options.profile
    }

    /// Whether rows enter and leave it as time passes.
    pub fn reads_clock(&self) -> bool {
        self.changing().contains(&TableId::CLOCK)
    }

    /// All whose change may change it: the tables that it reads, and the clock.
    pub fn changing(&self) -> BTreeSet<TableId> {
        BTreeSet::clone(&self.graph.props(self.query).sources)
    }

    /// The base tables that it reads, with the columns (positions) whose changes matter.
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

    /// ΔQ specialised to the tables that changed: a graph, and in it the change of every stored table, each row once,
    /// in the order of [`Layout::tables`].
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
        // An equal plan may say less of its rows.
        for root in &mut roots {
            if !graph.props(*root).consolidated && !graph.props(*root).empty {
                *root = graph.add(Consolidate::change(*root))?;
            }
        }
        Ok((graph, roots))
    }

    /// Whether the delta, when everything that it reads changed, has at most [`MAX_DELTA`] operators. The plan is made only
    /// where it could be larger.
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

    /// The statements that create the stored tables, empty.
    pub fn ddl(&self) -> Vec<Statement> {
        create_statements(&self.layout)
    }
    /// Of these, the ones that create the table of the result.
    pub fn result_ddl(&self) -> Vec<Statement> {
        create_table(&self.layout.result)
    }
    /// Of these, the ones that create the hidden tables.
    pub fn state_ddl(&self) -> Vec<Statement> {
        self.layout.states.iter().flat_map(create_table).collect()
    }
    /// The statements that give a table with the result's columns the identity that [`StreamTable::ddl`] gives it: NOT
    /// NULL and primary key, or an index.
    pub fn identity_ddl(&self) -> Vec<Statement> {
        identity_statements(&self.layout.result)
    }
    /// The statements that drop them.
    pub fn drop_ddl(&self) -> Vec<Statement> {
        drop_statements(&self.layout)
    }

    /// The change buffers that it reads: one per source whose changes can be captured.
    pub fn buffers(&self) -> Vec<Buffer> {
        self.sources()
            .into_iter()
            .filter(|(def, _)| matches!(def.kind, TableKind::Table | TableKind::StreamTable))
            .map(|(def, columns)| Buffer::new(def, &self.options.hidden_schema, &columns))
            .collect()
    }

    /// The statements that capture the changes of each source from now on, where none is captured yet; where one is,
    /// [`ChangeSource::widen`](crate::cdc::ChangeSource::widen) adds what is missing.
    pub fn capture(&self, mode: Mode) -> Vec<(TableId, Vec<Statement>)> {
        let install = |b: &Buffer| (b.table().id, mode.source().install(b));
        self.buffers().iter().map(install).collect()
    }

    /// The statements of one refresh, to be run in this order under one snapshot; the last returns the row
    /// `(rows_inserted, rows_updated, rows_deleted, change_rows)` except under [`Refresh::Replace`]. None where nothing
    /// that it reads changed.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn refresh(&self, how: Refresh, changed: &BTreeSet<TableId>) -> Result<Vec<Statement>> {
        self.refresh_from(how, changed, &self.sources_of_refreshes())
    }

    /// From where refreshes read: tables, buffers, what is stored.
    pub fn sources_of_refreshes(&self) -> LayoutSources<'_> {
        LayoutSources::new(&self.layout, &self.options.hidden_schema)
    }

    /// The same, reading tables and changes from `sources`.
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

    /// The statement that makes the result the rows of a table of the same columns, which hold what the query gives, by writing
    /// what differs; it returns the row that those of [`StreamTable::refresh`] do.
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

    /// The columns of the result that tell its rows apart, and the path that they come along, where nothing else is stored.
    fn affected_path(&self) -> Option<(&[usize], Path)> {
        let Identity::Key(key) = &self.layout.result.identity else { return None };
        let alone = self.kept.stored.iter().all(|n| *n == self.prepared);
        let path = alone.then(|| Path::of(&self.graph, self.prepared, key))?;
        Some((key, path?))
    }

    /// Whether there is [`Refresh::AffectedGroups`].
    pub fn has_affected_groups(&self) -> bool {
        self.affected_path().is_some()
    }

    /// The key of the table that tells the rows of [`Refresh::AffectedGroups`] apart, as columns of its definition.
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

    /// The query as a full refresh computes it, which stands alone in its transaction: where SQL leaves open which of equal
    /// values is shown, it says so.
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

    /// The last statement of [`Refresh::Replace`], which fills the result, in parts that can run at the same time over the
    /// same snapshot: each with the table of whose rows it reads those from the address `Param::Value(0)` up to, and
    /// without, `Param::Value(1)`; none where it reads everything and is to run once. `size` says how large tables are:
    /// the largest are cut.
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

    /// Draws the query's plan.
    pub fn explain(&self, format: Format) -> String {
        explain(&self.graph, self.query, format)
    }

    /// Draws the plans whose results are stored: those of the states, and that of the stream table itself.
    /// Names of tables and of their columns are left out: to rename these is to change no plan.
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

    /// Draws the delta of the result when `changed` tables changed (all that it reads where `None`).
    ///
    /// # Errors
    /// Those of [`StreamTable::delta`].
    pub fn explain_delta(&self, changed: Option<&BTreeSet<TableId>>, format: Format) -> Result<String> {
        let (graph, roots) = self.delta(&changed.cloned().unwrap_or_else(|| self.changing()))?;
        let root = roots.last().ok_or_else(|| Error::internal("a stream table without a table"))?;
        Ok(explain(&graph, *root, format))
    }
}
