//! Queries that compare the types expected by a plan with the types derived by the server.
//!
//! A plan compares, sorts, adds and prints values by the types that lowering derived from its own tables of
//! functions. If the server derives another type or collation, the result may be wrong. The server is
//! therefore asked for every expression, aggregate and call of a plan, before the plan is used. The server
//! executes none of them: it only derives the types of the columns of a view.

use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind};
use crate::graph::{Column, Graph, NodeId};
use crate::rel::{Map, Rel, Values};
use crate::sql::ast::Query;
use crate::sql::{Changes, Profile, Sources, Stored, print_query, render_query};
use crate::table::TableDef;
use crate::types::Type;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A query whose columns come in pairs: a value as the plan computes it, and a NULL of the value's expected
/// type. The plan is correct if the two columns of each pair have the same type and the same collation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeCheck {
    /// The text of the query, which reads no table.
    pub query: String,
    /// For each pair, the value as messages describe it, such as `function lower(text)`.
    pub values: Vec<String>,
}

/// The greatest number of pairs of one query. A view has at most 1,600 columns.
pub const PAIRS: usize = 500;

/// Returns the queries for all plans under `roots`.
///
/// # Errors
/// Fails as [`Graph::add`] does, or if the rendering fails.
pub(crate) fn type_checks(graph: &Graph, roots: &[NodeId], profile: &Profile) -> Result<Vec<TypeCheck>> {
    let (mut scalars, mut queries) = (Scalars::default(), Vec::new());
    for id in graph.reachable_from(roots) {
        let rel = graph.rel(id);
        rel.as_operator().formulas(&mut |f| f.exprs().into_iter().for_each(|e| scalars.add(e)));
        if rel.has_calls() {
            queries.extend(of_calls(graph, id, profile)?);
        }
    }
    queries.extend(scalars.queries(profile)?);
    Ok(queries)
}

/// Returns the query for the columns that the calls of one operator give.
fn of_calls(graph: &Graph, id: NodeId, profile: &Profile) -> Result<Vec<TypeCheck>> {
    let mut alone = Graph::new();
    let inputs = graph
        .inputs(id)
        .iter()
        .map(|i| alone.add(nulls(graph.schema(*i).columns().iter().map(|c| c.ty.clone()))));
    let inputs = inputs.collect::<Result<Vec<NodeId>>>()?;
    let root = alone.add(graph.rel(id).as_operator().with_inputs(&inputs))?;
    let columns = alone.schema(root).clone();
    // The value of a call has no modifier, even if the call picks one of several values whose type has a
    // modifier.
    let value = |(i, c): (usize, &Column)| (columns.expr(i), c.ty.unmodified(), c.label.to_string());
    let values = columns.columns().iter().enumerate().map(value).collect();
    of_pairs(alone, root, values, profile)
}

/// Returns the queries for these values, which are expressions over the rows of `input`, with their expected
/// types.
fn of_pairs(
    mut graph: Graph,
    input: NodeId,
    mut values: Vec<(Expr, Type, String)>,
    profile: &Profile,
) -> Result<Vec<TypeCheck>> {
    values.retain(|(_, ty, _)| !is_pseudo(ty));
    let mut checks = Vec::new();
    for part in values.chunks(PAIRS) {
        let pairs = part.iter().flat_map(|(e, ty, _)| [e.clone(), Expr::null(ty.clone())]);
        let root = graph.add(Map::new(input, pairs.collect()))?;
        let names: Vec<Arc<str>> = (0..2 * part.len()).map(|i| format!("c{i}").into()).collect();
        let query: Query = render_query(&graph, root, &NoTables, profile, &names)?;
        let values = part.iter().map(|(.., shown)| shown.clone()).collect();
        checks.push(TypeCheck { query: print_query(&query).text, values });
    }
    Ok(checks)
}

/// Makes a relation of NULLs of these types. The relation has two rows. If it had one row, the rendering
/// would replace the columns by their values, and the collation of a column would become an explicit COLLATE.
fn nulls(types: impl Iterator<Item = Type>) -> Rel {
    let columns: Vec<Column> = types.map(|ty| Column { label: "c".into(), ty, nullable: true }).collect();
    let row: Vec<Expr> = columns.iter().map(|c| Expr::null(c.ty.clone())).collect();
    Values::new(columns, vec![row.clone(), row]).into()
}

/// Whether the type is a pseudo-type, which no column can have. An expression of such a type is checked as an
/// operand.
fn is_pseudo(ty: &Type) -> bool {
    matches!(ty, Type::Record(_) | Type::Unknown)
        || ty.element().is_some_and(is_pseudo)
        || matches!(ty, Type::Other(o) if o.sql_name == "void")
}

/// The distinct expressions of a plan. The operands of each expression are columns, with one column for each
/// type.
#[derive(Default)]
struct Scalars {
    types: Vec<Type>,
    /// The expressions that were added. Operands may be shared, so this set ensures that each operand is
    /// walked only once.
    added: HashSet<Expr>,
    /// Whether an expression contains a COLLATE clause, for the expressions that were examined.
    collating: HashMap<Expr, bool>,
    found: HashSet<Expr>,
    values: Vec<(Expr, Type, String)>,
}

impl Scalars {
    /// Adds the expression, its operands, their operands, and so on.
    fn add(&mut self, e: &Expr) {
        if !self.added.insert(e.clone()) {
            return;
        }
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || e.children().into_iter().for_each(|o| self.add(o)));
        let Some(shown) = shown(e) else { return };
        let level = self.level(e);
        if self.found.insert(level.clone()) {
            let ty = if self.has_no_collation(e) { any_collation(e.ty()) } else { e.ty().clone() };
            let value = if ty == *e.ty() { level } else { level.cast(ty.clone()) };
            self.values.push((value, ty, shown));
        }
    }

    /// Returns the expression with columns instead of its operands. Constants stay, since a call may accept a
    /// constant where it does not accept a column. An operand with a COLLATE clause stays as well, since the
    /// clause determines the collation of the whole expression.
    fn level(&mut self, e: &Expr) -> Expr {
        if e.as_column().is_some() {
            return self.column(e.ty());
        }
        let mut operands = Vec::new();
        for operand in e.children() {
            operands.push(if operand.as_literal().is_some() {
                operand.clone()
            } else if is_pseudo(operand.ty()) || self.collates(operand) {
                stacker::maybe_grow(64 * 1024, 1024 * 1024, || self.level(operand))
            } else {
                self.column(operand.ty())
            });
        }
        e.with_children(operands)
    }

    /// Whether the expression contains a COLLATE clause.
    fn collates(&mut self, e: &Expr) -> bool {
        if let Some(known) = self.collating.get(e) {
            return *known;
        }
        let clause = match e.kind() {
            ExprKind::Cast(of) => of.ty().uncollated() == e.ty().uncollated() && of.ty() != e.ty(),
            _ => false,
        };
        let within = || e.children().into_iter().any(|o| self.collates(o));
        let collates = clause || stacker::maybe_grow(64 * 1024, 1024 * 1024, within);
        self.collating.insert(e.clone(), collates);
        collates
    }

    /// Whether PostgreSQL cannot determine a collation for the expression, since its operands have different
    /// collations. Such a value may be used where no collation is needed, but a column of a view cannot hold
    /// it.
    fn has_no_collation(&mut self, e: &Expr) -> bool {
        let collation = |o: &&Expr| o.ty().collation().map(|(_, name)| name.to_owned());
        let collations: HashSet<String> = e.children().iter().filter_map(collation).collect();
        collations.len() > 1 && !self.collates(e)
    }

    fn column(&mut self, ty: &Type) -> Expr {
        let known = self.types.iter().position(|t| t == ty);
        let at = known.unwrap_or_else(|| {
            self.types.push(ty.clone());
            self.types.len() - 1
        });
        Expr::column(at, ty.clone())
    }

    fn queries(self, profile: &Profile) -> Result<Vec<TypeCheck>> {
        let mut graph = Graph::new();
        let input = graph.add(nulls(self.types.into_iter()))?;
        of_pairs(graph, input, self.values, profile)
    }
}

/// Returns a text type with an explicit COLLATE clause for the default collation. With this clause, only the
/// types of the pair are compared, and not their collations.
fn any_collation(ty: &Type) -> Type {
    ty.uncollated().collated("\"default\"", true)
}

/// Returns a description of the expression for messages. Returns `None` for an expression whose kind alone
/// determines the type. For such an expression, lowering chooses neither a type nor an operator.
fn shown(e: &Expr) -> Option<String> {
    let types = |of: &[&Expr]| of.iter().map(|e| e.ty().to_string()).collect::<Vec<_>>();
    let operands = types(&e.children());
    Some(match e.kind() {
        ExprKind::Call(sig, _) if !sig.is_operator() => {
            format!("function {}({})", sig.name, operands.join(", "))
        }
        ExprKind::Call(sig, _) | ExprKind::Quantified { op: sig, .. } => match operands.as_slice() {
            [one] => format!("operator {} {one}", sig.name),
            several => format!("operator {}", several.join(&format!(" {} ", sig.name))),
        },
        ExprKind::Cast(of) => format!("CAST({} AS {})", of.ty(), e.ty()),
        ExprKind::Distinct { .. } => format!("{} IS DISTINCT FROM", operands.join(", ")),
        ExprKind::Case { .. } => "CASE".to_owned(),
        ExprKind::Coalesce(_) => format!("COALESCE({})", operands.join(", ")),
        ExprKind::Extreme { greatest, .. } => {
            format!("{}({})", if *greatest { "GREATEST" } else { "LEAST" }, operands.join(", "))
        }
        ExprKind::Array(_) => format!("ARRAY[{}]", operands.join(", ")),
        ExprKind::Row(_) => format!("ROW({})", operands.join(", ")),
        ExprKind::Subscript { array, .. } => format!("an element of {}", array.ty()),
        ExprKind::Column(_)
        | ExprKind::Literal(_)
        | ExprKind::Clock(_)
        | ExprKind::And(_)
        | ExprKind::Or(_)
        | ExprKind::Not(_)
        | ExprKind::Is { .. }
        | ExprKind::ManyRows => return None,
    })
}

/// The sources of a query that reads no table.
struct NoTables;

impl Sources for NoTables {
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        Err(Error::plan(format!("the change of {} in a check of types", def.name)))
    }
    fn state(&self, of: NodeId) -> Result<Stored> {
        Err(Error::plan(format!("the stored result of {of} in a check of types")))
    }
}
