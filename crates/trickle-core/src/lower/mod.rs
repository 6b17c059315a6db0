//! Lowers a syntax tree to a [`Graph`]. Names end here: columns become positions, untyped literals get types,
//! and every construct becomes operators or a [`Reason`].
//!
//! A subquery that uses columns of an enclosing query is lowered over a *domain*. The domain has the distinct
//! values of these outer columns, and is the first item of the subquery's FROM. The result of the subquery
//! starts with the domain's columns. A join on these columns (NULL equal to NULL) attaches the result to the
//! outer rows. Thus no operator depends on a single row of another relation.

mod access;
mod aggregate;
mod call;
mod cast;
mod clause;
mod coerce;
mod column;
mod compare;
mod construct;
mod derived_table;
mod expr;
mod forms;
mod frame;
mod from;
mod functions;
mod group;
mod grouping;
mod join;
mod join_order;
mod literal;
mod lockstep;
mod membership;
mod names;
mod on;
mod operators;
mod order;
mod outer_column;
mod outer_join;
mod query;
mod recursion;
mod relation;
mod scope;
mod select;
mod setop;
mod signature;
mod slot;
mod sorting;
mod source;
mod special;
mod subquery;
#[cfg(test)]
mod tests;
mod top;
mod volatility;
mod window;

use crate::agg::AggCall;
use crate::catalog::Catalog;
use crate::error::{Error, Result, Span};
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use crate::parse::{Parsed, Source, parse_query};
use crate::rel::{Map, Reduce, Rel};
use crate::syntax::Place;
use crate::types::Type;
use crate::verdict::{Cause, Reason, ReasonKind};
use outer_column::{Domain, Outer};
use scope::{Cte, Frame};
use std::collections::HashMap;
use std::sync::Arc;

/// A lowered query.
#[derive(Clone, Debug)]
pub struct Query {
    /// The arena that holds the plan.
    pub graph: Graph,
    /// The plan's root, which has the columns of the query, in order.
    pub root: NodeId,
    /// The names of the output columns, unquoted and distinct.
    pub columns: Vec<Arc<str>>,
}

/// The result of lowering a valid query.
#[derive(Clone, Debug)]
pub enum Lowered {
    /// A plan.
    Query(Query),
    /// The reasons why the query has no plan; at least one.
    Unsupported(Vec<Reason>),
}

/// Lowers one query text.
///
/// # Errors
/// Fails where PostgreSQL would fail too: syntax errors, unknown and ambiguous names, types that do not
/// match, ungrouped columns. These errors have a position and a hint.
pub fn lower(sql: &str, catalog: &dyn Catalog) -> Result<Lowered> {
    lower_parsed(&parse_query(sql)?, catalog)
}

/// Lowers a parsed query; see [`lower`].
///
/// # Errors
/// Fails as [`lower`] does.
pub fn lower_parsed(parsed: &Parsed, catalog: &dyn Catalog) -> Result<Lowered> {
    parsed.deep(|| {
        let mut lowerer = Lowerer::new(catalog, parsed.source());
        match lowerer.top(parsed) {
            Ok(_) if !lowerer.reasons.is_empty() => Ok(Lowered::Unsupported(lowerer.reasons)),
            Ok((root, columns)) => Ok(Lowered::Query(Query { graph: lowerer.graph, root, columns })),
            // After a construct that has no plan, an error need not be an error of the query: for example,
            // the type of the construct's value is not known.
            Err(e) if !lowerer.reasons.is_empty() && !is_name_error(&e) => {
                Ok(Lowered::Unsupported(lowerer.reasons))
            }
            Err(e) => match undecided(&e) {
                Some(reason) => Ok(Lowered::Unsupported(vec![reason])),
                None => Err(e),
            },
        }
    })
}

/// Replaces the error about an unknown object by a reason, if no server was asked and the object may exist.
fn undecided(e: &Error) -> Option<Reason> {
    let doubt = e.doubt()?;
    let help = match e.hint_text().filter(|h| h.starts_with("Did you mean")) {
        Some(hint) => format!("{hint} {}", doubt.why),
        None => doubt.why.clone(),
    };
    let (kind, cause) = (ReasonKind::NotYet, Cause::Undecided);
    Some(Reason { span: e.span(), kind, cause, construct: doubt.what.clone(), help })
}

fn is_name_error(e: &Error) -> bool {
    matches!(e.sqlstate(), "42P01" | "42703" | "42702" | "42701" | "42712" | "42P10" | "42601")
}

/// The general advice, for a construct without more specific advice.
const WITHOUT: &str = "Write the query without it, or leave it to full refreshes.";

/// The greatest depth of nested views.
const VIEW_DEPTH: usize = 32;

/// The state of one lowering.
struct Lowerer<'a> {
    catalog: &'a dyn Catalog,
    graph: Graph,
    /// The text that places refer to; `None` inside a view.
    source: Option<&'a Source>,
    reasons: Vec<Reason>,
    /// The SELECTs being lowered, innermost last.
    frames: Vec<Frame>,
    /// The CTEs in scope, innermost last.
    ctes: Vec<Cte>,
    /// The number of recursive queries lowered so far. It gives distinct numbers to the leaves that stand for
    /// the rows of the recursive queries.
    recursions: u32,
    /// The subqueries that are only being examined for the outer columns that they use.
    probes: Vec<Probe>,
    /// The aggregate calls whose arguments are being lowered, innermost last.
    levels: Vec<Level>,
    /// The reason that is reported if no delta can bring the last use of the clock up to date.
    timed: Option<Reason>,
    /// The names of the views being expanded, outermost first.
    views: Vec<String>,
    /// The results of lowering views, by the names of the views.
    expanded: HashMap<String, relation::Relation>,
}

/// The columns that a subquery uses from frames below `base`. The columns are collected while the subquery is
/// examined.
struct Probe {
    base: usize,
    free: Vec<Outer>,
}

/// The query to which an aggregate call belongs: the innermost query whose columns the call reads.
struct Level {
    /// The frame of the SELECT that contains the call.
    frame: usize,
    /// The innermost frame, up to `frame`, whose columns the call reads.
    read: Option<usize>,
}

impl<'a> Lowerer<'a> {
    fn new(catalog: &'a dyn Catalog, source: &'a Source) -> Self {
        Lowerer {
            catalog,
            graph: Graph::new(),
            source: Some(source),
            reasons: Vec::new(),
            frames: Vec::new(),
            ctes: Vec::new(),
            recursions: 0,
            probes: Vec::new(),
            levels: Vec::new(),
            timed: None,
            views: Vec::new(),
            expanded: HashMap::new(),
        }
    }

    fn top(&mut self, parsed: &Parsed) -> Result<(NodeId, Vec<Arc<str>>)> {
        let Some(query) = parsed.query() else {
            return Err(Error::internal("a parsed query without a tree"));
        };
        let relation = self.query(query, &Domain::none())?;
        for (i, name) in relation.names.iter().enumerate() {
            if relation.names[..i].contains(name) {
                return Err(Error::duplicate_column(format!("column \"{name}\" specified more than once"))
                    .hint("Give one of them another name with AS."));
            }
        }
        Ok((relation.node, relation.names))
    }

    fn add(&mut self, rel: impl Into<Rel>) -> Result<NodeId> {
        let rel = self.with_conditions_shown(rel.into())?;
        self.graph.add(rel).map_err(|e| match self.timed.clone() {
            // A condition that reads the clock became an operator other than a filter.
            Some(reason) if e.is_timed() => {
                self.note(reason);
                Error::internal("lowering stopped at the clock")
            }
            _ => e,
        })
    }

    /// Moves conditions on the clock out of a map or an aggregation, into columns of its input.
    fn with_conditions_shown(&mut self, rel: Rel) -> Result<Rel> {
        let (input, exprs): (NodeId, Vec<&Expr>) = match &rel {
            Rel::Map(m) => (m.input(), m.exprs().iter().collect()),
            Rel::Reduce(r) => (r.input(), r.aggs().iter().flat_map(AggCall::exprs).collect()),
            _ => return Ok(rel),
        };
        let mut conditions: Vec<Expr> = Vec::new();
        for c in exprs.iter().filter_map(|e| e.timed_conditions()).flatten() {
            if !conditions.contains(&c) {
                conditions.push(c);
            }
        }
        let schema = self.graph.schema(input);
        let mut shown = schema.identity();
        let width = shown.len();
        shown.extend(conditions.iter().map(|c| c.simplified(schema)));
        if shown.len() == width || shown.iter().any(Expr::can_raise) {
            return Ok(rel);
        }
        let input = self.graph.add(Map::new(input, shown))?;
        let column = |e: Expr| match conditions.iter().position(|c| *c == e) {
            Some(i) => Expr::column(width + i, Type::Bool),
            None => e,
        };
        let replaced = |e: &Expr| e.rewrite(&mut |e| column(e));
        Ok(match rel {
            Rel::Map(m) => {
                let map = Map::new(input, m.exprs().iter().map(replaced).collect());
                m.labels().map_or(map.clone(), |l| map.labelled(l.to_vec())).into()
            }
            Rel::Reduce(r) => {
                let aggs = r.aggs().iter().map(|a| a.map_exprs(replaced)).collect();
                Reduce::new(input, r.keys().to_vec(), aggs).into()
            }
            rel => rel,
        })
    }

    /// Returns the place in the text of a part of the syntax tree.
    fn span(&self, node: &impl Place) -> Option<Span> {
        self.source?.of(node)
    }

    /// Makes `e` point at `node`.
    fn at(&self, e: Error, node: &impl Place) -> Error {
        match self.span(node) {
            Some(span) => e.at(span),
            None => e,
        }
    }

    /// Notes a construct that cannot be lowered. Lowering continues, to find further such constructs.
    fn reason(&mut self, kind: ReasonKind, node: &impl Place, construct: impl Into<String>, help: &str) {
        self.because(kind, Cause::Construct, node, construct, help);
    }

    /// Like [`Lowerer::reason`], for a construct whose cause is more specific than [`Cause::Construct`].
    fn because(
        &mut self,
        kind: ReasonKind,
        cause: Cause,
        node: &impl Place,
        construct: impl Into<String>,
        help: &str,
    ) {
        let span = self.span(node);
        self.note(Reason { span, kind, cause, construct: construct.into(), help: help.to_owned() });
    }

    fn note(&mut self, reason: Reason) {
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// Notes a construct that the engine does not support yet.
    fn not_yet(&mut self, node: &impl Place, construct: impl Into<String>) {
        self.reason(ReasonKind::NotYet, node, construct, WITHOUT);
    }

    /// Like [`Lowerer::not_yet`], for a construct after which nothing can be lowered. Returns the error that
    /// ends lowering.
    fn stop(&mut self, node: &impl Place, construct: impl Into<String>) -> Error {
        self.not_yet(node, construct);
        Error::internal("lowering stopped at an unknown construct")
    }

    /// Adds a note to an error if no server was asked: the server may know a common type of these types.
    fn doubt_common(&self, e: Error, types: &[Type]) -> Error {
        let names: Vec<String> = types.iter().map(ToString::to_string).collect();
        e.doubted(format!("a common type of {}", names.join(" and ")), self.catalog.doubt("", types))
    }

    /// Notes that a table's name is used as a value, which is the table's whole row. Returns the error that
    /// ends lowering.
    fn whole_row(&mut self, node: &impl Place) -> Error {
        let help = "Name the columns; to count rows, count one that is never NULL.";
        self.reason(ReasonKind::NotYet, node, "a whole row as a value", help);
        Error::internal("lowering stopped at a whole row")
    }

    /// Whether a subquery is only being examined.
    fn probing(&self) -> bool {
        !self.probes.is_empty()
    }
}
