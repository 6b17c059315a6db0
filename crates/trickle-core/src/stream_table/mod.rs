//! The compiler, which makes from a query all that a driver needs: verdict, plans, DDL, and the statements of
//! a refresh.

mod ddl;
mod drawn;
mod refresh;

pub use crate::delta::Captured;
pub use crate::expr::Expr;
pub use refresh::Refresh;

use crate::access::{Access, accesses};
use crate::apply::Layout;
use crate::catalog::Catalog;
use crate::delta::{self, Differ, Keep, Kept, Rules};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, NodeMap};
use crate::lower::{Lowered, lower_parsed};
use crate::opt;
use crate::parse::{Parsed, parse_query};
use crate::rel::{Consolidate, Rel};
use crate::sql::{Ident, Profile, Qualified};
use crate::table::{TableDef, TableId};
use crate::typecheck::{TypeCheck, type_checks};
use crate::verdict::Reason;
use std::collections::BTreeSet;
use std::sync::Arc;
use xxhash_rust::xxh64::xxh64;

/// The caller's choices for a stream table. None of them affects the contents of the table.
#[derive(Clone, Debug)]
pub struct Options {
    /// Schema of the stream table.
    pub schema: String,
    /// Name of the stream table.
    pub name: String,
    /// Schema of change buffers and state tables.
    pub state_schema: String,
    /// Prefix of the names of the state tables. The prefix is unique among the stream tables of a database,
    /// and the same whenever the stream table is compiled.
    pub state_prefix: String,
    /// The inner results that are stored as states.
    pub keep: Keep,
    /// Whether the plans of joins may assume that validated foreign keys hold in every state.
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
            state_schema: "pgtrickle_changes".into(),
            keep: Keep::default(),
            trust_foreign_keys: false,
            profile: Profile::default(),
        }
    }
}

/// The manner in which a stream table can be kept equal to a query.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Deltas keep the stream table equal to the query. The compiled stream table makes the deltas.
    Incremental(Box<StreamTable>),
    /// Each refresh recomputes the result. The reasons, at least one, tell why deltas are impossible.
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

/// A compiled incremental query.
#[derive(Clone, Debug)]
pub struct StreamTable {
    graph: Graph,
    /// The plan of the query. The statements of a recompute are rendered from this plan.
    query: NodeId,
    /// The plan that is differentiated. In this plan, each aggregate is split into accumulators and the
    /// computation of its final value.
    prepared: NodeId,
    kept: Kept,
    columns: Vec<Arc<str>>,
    layout: Layout,
    options: Options,
}

/// Compiles a query.
///
/// # Errors
/// Fails where PostgreSQL would fail too (syntax, names, types). The error has the position in the query,
/// DETAIL and HINT.
pub fn compile(sql: &str, catalog: &dyn Catalog, options: &Options) -> Result<Verdict> {
    compile_parsed(&parse_query(sql)?, catalog, options)
}

/// Compiles a parsed query, so that a caller that stores parsed queries need not parse them again.
///
/// # Errors
/// Fails as [`compile`] does, except for syntax errors.
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

/// The greatest number of operators of a delta. PostgreSQL needs as much time to plan a statement of this
/// size as to run many queries. A query whose delta is larger is therefore recomputed.
pub const MAX_DELTA: usize = 4_096;

/// The greatest size of a query for which the operators of the delta are not counted. Such a delta is assumed
/// to have at most [`MAX_DELTA`] operators. The number of operators in a delta is at most about twice the
/// square of the number in the query. For example, the delta of a join of n tables has n terms with n tables
/// each. An operator counts once for each operator that reads it.
const COUNTED: usize = 40;

impl StreamTable {
    /// Compiles the plan under `root`, which denotes a state, into a stream table with these column names.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
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
        let (hidden, prefix) = (&options.state_schema, &options.state_prefix);
        let layout = Layout::new(&graph, prepared, &kept.stored, name, names, hidden, prefix)?;
        Ok(StreamTable { graph, query, prepared, kept, columns, layout, options: options.clone() })
    }

    /// Returns queries by which the server checks the types that the plans expect.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
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
    pub(crate) fn state_schema(&self) -> &str {
        &self.options.state_schema
    }
    /// Returns the version and the capabilities of the server that runs the statements.
    pub(crate) fn profile(&self) -> &Profile {
        &self.options.profile
    }

    /// Whether rows enter and leave the stream table by the passing of time.
    pub fn reads_clock(&self) -> bool {
        self.changing().contains(&TableId::CLOCK)
    }

    /// Returns the tables that the query reads, and the clock if the query reads the clock. A change of any
    /// of these may change the result.
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

    /// Returns the condition by which the query selects rows of one table, over the columns of the table's
    /// definition. Returns `None` if the query does anything else than selecting rows and columns.
    pub fn selection(&self) -> Option<Expr> {
        let (mut node, mut conditions) = (self.query, Vec::new());
        loop {
            node = match self.graph.rel(node) {
                Rel::Map(m) if m.exprs().iter().all(|e| e.as_column().is_some()) && conditions.is_empty() => {
                    m.input()
                }
                Rel::Filter(f) => {
                    conditions.push(f.predicate().clone());
                    f.input()
                }
                Rel::Table(t) => return Some(Expr::and(conditions).map_columns(|c| t.columns()[c])),
                _ => return None,
            };
        }
    }

    pub(crate) fn differ<'g>(&self, graph: &'g mut Graph, changed: &BTreeSet<TableId>) -> Differ<'g> {
        Differ::new(graph, self.kept.clone(), Some(changed.clone()), Rules::Algebraic)
            .trusting_foreign_keys(self.options.trust_foreign_keys)
    }

    /// Specializes ΔQ to the tables that changed. Returns a graph, and the nodes in it that denote the
    /// changes of the stored tables, in the order of [`Layout::tables`]. Each change contains a row at most
    /// once.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub fn delta(&self, changed: &BTreeSet<TableId>) -> Result<(Graph, Vec<NodeId>)> {
        let mut graph = self.graph.clone();
        let mut roots = Vec::new();
        let mut differ = self.differ(&mut graph, changed);
        for table in self.layout.tables() {
            roots.push(differ.stored_delta(table.node)?);
        }
        let mut roots = opt::Optimizer::default().optimize(&mut graph, &roots)?;
        consolidate(&mut graph, &mut roots)?;
        Ok((graph, roots))
    }

    /// Whether the delta has at most [`MAX_DELTA`] operators when all sources changed. The delta is built
    /// only if the size of the query makes a larger delta possible.
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

    /// Returns the accesses of refreshes to data other than the changes, in order of the tables' ids. The
    /// accesses cover the usual cases: one source changed, or time passed and the query reads the clock.
    ///
    /// # Errors
    /// Fails as [`StreamTable::delta`] does.
    pub fn accesses(&self) -> Result<Vec<Access>> {
        let delta = |source| Ok((source, self.delta(&BTreeSet::from([source]))?));
        accesses(self.changing().into_iter().map(delta))
    }

    /// Returns the names, in order, of the window functions without PARTITION BY that a refresh computes over
    /// all rows.
    ///
    /// # Errors
    /// Fails as [`StreamTable::delta`] does.
    pub fn whole_windows(&self) -> Result<BTreeSet<Arc<str>>> {
        let mut names = BTreeSet::new();
        for source in self.changing() {
            let (graph, roots) = self.delta(&BTreeSet::from([source]))?;
            for node in graph.reachable_from(&roots) {
                if let Rel::Window(w) = graph.rel(node)
                    && w.partition().is_empty()
                    && !graph.props(w.input()).bounded
                {
                    names.extend(w.calls().iter().map(|c| c.call.sig.name.clone()));
                }
            }
        }
        Ok(names)
    }
}

/// Consolidates changes whose plans do not guarantee that each row occurs once. An optimized plan may
/// guarantee less about its rows than the original plan.
fn consolidate(graph: &mut Graph, roots: &mut [NodeId]) -> Result<()> {
    for root in roots {
        if !graph.props(*root).consolidated && !graph.props(*root).empty {
            *root = graph.add(Consolidate::change(*root))?;
        }
    }
    Ok(())
}
