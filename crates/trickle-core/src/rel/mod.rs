//! The operators, one file for each. The macro call `operators!` below is the only list of operators.
//!
//! An operator implements five small traits. The trait [`Relational`] describes the operator (inputs,
//! contract, schema, properties, class, expansion). The trait [`Evaluate`] computes the relation that the
//! operator denotes, and [`Render`] gives its SQL. The trait [`Differentiate`] gives the operator's delta, if
//! the operator has a better delta than the class rule gives. The trait [`Rewrite`] answers the optimizer:
//! which columns the operator needs, and how far a restriction to some keys may move down.

mod accumulate;
mod carried;
mod consolidate;
mod distinct;
mod expand;
mod extend;
mod filter;
mod foreign_key;
mod image;
mod join;
mod keys;
mod lookups;
mod map;
mod near;
mod negate;
mod outer_join;
mod positive;
mod pruned;
mod recursion;
mod reduce;
mod restriction;
mod revise;
mod rewrite;
mod semi_join;
mod set_op;
mod single;
mod state;
mod table;
mod top;
mod totals;
mod union;
mod values;
mod widen;
mod window;

pub use carried::{Carried, carried};
pub use expand::SetCall;
pub(crate) use extend::split as split_extrema;
pub use filter::with_servers_clock;
pub(crate) use image::{distinct as distinct_by_image, identify, image};
pub use join::{JoinKeys, join_keys};
pub use lookups::By;
pub(crate) use lookups::equalities;
pub use pruned::Pruned;
pub use recursion::{Fixpoint, Step};
pub use restriction::Restriction;
pub use revise::Side;
pub use rewrite::Rewrite;
pub use set_op::SetOpKind;
pub use table::Version;
pub use top::Slice;
pub(crate) use window::shown_partition;

use crate::agg::AggCall;
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::Evaluate;
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{Graph, Node, NodeId, Props, Schema};
use crate::sql::Render;
use crate::window::WindowCall;

/// The description of an operator, independent of any data.
pub trait Relational {
    /// Returns the operator's name in plans.
    fn name(&self) -> &'static str;

    /// Returns the nodes that the operator reads.
    fn inputs(&self) -> Vec<NodeId>;

    /// Returns the same operator over other inputs, as many inputs as [`Relational::inputs`] returns.
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel;

    /// Checks that the inputs fulfil the operator's contract.
    ///
    /// # Errors
    /// An error that names the broken rule.
    fn check(&self, inputs: &[&Node]) -> Result<()>;

    /// Returns the output columns.
    fn schema(&self, inputs: &[&Node]) -> Schema;

    /// Returns the derived properties.
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props;

    /// Returns the parts of the result that the SQL standard leaves undetermined.
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled;

    /// Calls `f` with each formula by which the operator computes values. Some properties of an operator
    /// follow from its formulas alone, such as [`Rel::can_raise`]. Each such property is therefore defined
    /// once for all operators.
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>));

    /// Returns where the output has the columns that the inputs carry. The documentation of [`Carried`]
    /// states the law.
    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried;

    /// Returns the class of the operator, by which its delta is computed.
    fn class(&self, inputs: &[&Node]) -> Class;

    /// Returns an equivalent plan of simpler operators, if the operator is defined by such a plan.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    fn expand(&self, _graph: &mut Graph) -> Result<Option<NodeId>> {
        Ok(None)
    }

    /// Prints the operator's scalar expressions, for people.
    fn describe(&self, _inputs: &[&Node]) -> String {
        String::new()
    }
}

/// A formula by which an operator computes values from rows of its inputs. Where an operator has two inputs,
/// the columns of the first input come first.
#[derive(Clone, Copy, Debug)]
pub enum Formula<'a> {
    /// An expression over one row, or over a pair of rows.
    Scalar(&'a Expr),
    /// An aggregate over the rows of a group.
    Aggregate(&'a AggCall),
    /// A call over a window of rows.
    Window(&'a WindowCall),
    /// A call that returns rows for one row.
    Set(&'a SetCall),
}

impl<'a> Formula<'a> {
    /// Whether the formula can raise on some row.
    pub fn can_raise(self) -> bool {
        match self {
            Formula::Scalar(e) => e.can_raise(),
            Formula::Aggregate(a) => a.can_raise(),
            Formula::Window(w) => w.can_raise(),
            Formula::Set(c) => c.can_raise(),
        }
    }

    /// Returns the expressions of the formula.
    pub fn exprs(self) -> Vec<&'a Expr> {
        match self {
            Formula::Scalar(e) => vec![e],
            Formula::Aggregate(a) => a.exprs().collect(),
            Formula::Window(w) => w.exprs().collect(),
            Formula::Set(c) => c.args.iter().collect(),
        }
    }
}

/// The law by which an operator's result follows a change of its inputs. The class gives every operator a
/// delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// The operator reads no other node, and defines its own delta.
    Leaf,
    /// `op(R + S) = op(R) + op(S)`, for all inputs changed together. Hence `Δop(R) = op(ΔR)`.
    Linear,
    /// The operator is linear in each of its two inputs while the other input is fixed.
    Bilinear,
    /// `op(R ⋉ K) = op(R) ⋉ K` for any set K of key values. The key consists of equally many columns in each
    /// input and in the output. The delta recomputes the result for the keys whose rows changed.
    PerKey {
        /// For each input, the positions of the key columns.
        keys: Vec<Vec<usize>>,
        /// The positions of the key columns in the output.
        output: Vec<usize>,
    },
    /// No law is known for the operator. Its delta is the result after the change minus the result before the
    /// change.
    Global,
}

/// The five traits that every operator implements, as one trait.
pub trait Operator: Relational + Rewrite + Evaluate + Render + Differentiate {}
impl<T: Relational + Rewrite + Evaluate + Render + Differentiate> Operator for T {}

macro_rules! operators {
    ($($file:ident :: $Op:ident),* $(,)?) => {
        $(pub use $file::$Op;)*
        /// One of the operators.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Rel {
            $(#[doc = concat!("See [`", stringify!($Op), "`].")] $Op($Op)),*
        }
        $(impl From<$Op> for Rel {
            fn from(op: $Op) -> Rel { Rel::$Op(op) }
        })*
        impl Rel {
            /// Returns the operator as a trait object.
            pub fn as_operator(&self) -> &dyn Operator {
                match self { $(Rel::$Op(op) => op),* }
            }
            /// The names of all operators, for tables of test coverage.
            pub const NAMES: &[&str] = &[$(stringify!($Op)),*];
        }
    };
}

operators! {
    // The leaves
    table::Table,
    values::Values,
    state::State,
    // The linear operators
    map::Map,
    filter::Filter,
    expand::Expand,
    union::Union,
    negate::Negate,
    consolidate::Consolidate,
    revise::Revise,
    // The bilinear operator
    join::Join,
    // The operators per key
    distinct::Distinct,
    keys::Keys,
    positive::Positive,
    reduce::Reduce,
    accumulate::Accumulate,
    single::Single,
    window::Window,
    top::Top,
    // The global operators
    recursion::Recursion,
    widen::Widen,
    // The operators that expand to others
    semi_join::SemiJoin,
    outer_join::OuterJoin,
    set_op::SetOp,
}

impl Rel {
    /// Whether the operator computes columns by aggregate, window or set-returning calls, and not only by
    /// expressions over one row.
    pub(crate) fn has_calls(&self) -> bool {
        let mut calls = false;
        self.as_operator().formulas(&mut |f| match f {
            Formula::Scalar(_) => {}
            Formula::Aggregate(_) | Formula::Window(_) | Formula::Set(_) => calls = true,
        });
        calls
    }

    /// Whether one of the operator's own expressions can raise on some row.
    pub fn can_raise(&self) -> bool {
        let mut raises = false;
        self.as_operator().formulas(&mut |f| raises |= f.can_raise());
        raises
    }
}

/// Fails unless every column that `expr` reads exists in the concatenated columns of `sides`. The column must
/// also have the type that `expr` states. Fails too if `expr` reads the clock, since the operator's delta
/// would lack the changes that time alone causes.
fn check_expr(op: &str, expr: &Expr, sides: &[&Schema]) -> Result<()> {
    if expr.reads_clock() {
        return Err(Error::timed(op));
    }
    check_columns(op, expr, sides)
}

fn check_columns(op: &str, expr: &Expr, sides: &[&Schema]) -> Result<()> {
    let fits = |e: &Expr, i: usize| {
        let mut place = i;
        for side in sides {
            match side.column(place) {
                Some(c) => return c.ty == *e.ty(),
                None => place -= side.len(),
            }
        }
        false
    };
    let mut bad = None;
    expr.visit(&mut |e| {
        if let Some(i) = e.as_column()
            && !fits(e, i)
        {
            bad.get_or_insert(i);
        }
    });
    match bad {
        None => Ok(()),
        Some(i) => {
            Err(Error::plan(format!("{op} reads column {i}, which its input does not have with that type")))
        }
    }
}

/// Fails unless `cond` is boolean, reads only columns of `sides`, and does not read the clock.
fn check_predicate(op: &str, cond: &Expr, sides: &[&Schema]) -> Result<()> {
    check_expr(op, cond, sides)?;
    check_timed(op, cond, sides)
}

/// Fails unless `cond` is boolean and reads only columns of `sides`. It may read the clock.
fn check_timed(op: &str, cond: &Expr, sides: &[&Schema]) -> Result<()> {
    if *cond.ty() != crate::types::Type::Bool {
        return Err(Error::plan(format!("{op} has a condition of type {}", cond.ty())));
    }
    check_columns(op, cond, sides)
}

/// Fails unless `input` denotes a state and its SQL gives positive weights only.
fn check_positive(op: &str, input: &Node) -> Result<()> {
    if !input.props().non_negative {
        return Err(Error::plan(format!(
            "{op} reads {}, which denotes a change and not a state",
            input.op().name()
        )));
    }
    if !input.props().positive {
        return Err(Error::plan(format!(
            "{op} reads {}, whose rows may carry negative weights before consolidation",
            input.op().name()
        )));
    }
    Ok(())
}

/// Fails unless every position in `keys` is a column of `schema` whose type has an equality operator.
fn check_keys(op: &str, keys: impl IntoIterator<Item = usize>, schema: &Schema) -> Result<()> {
    for k in keys {
        let Some(c) = schema.column(k) else {
            return Err(Error::plan(format!("{op} has key column {k}, which its input does not have")));
        };
        if !c.ty.has_equality() {
            return Err(Error::plan(format!(
                "{op} compares column \"{}\" of type {}, which has no equality operator",
                c.label, c.ty
            )));
        }
    }
    Ok(())
}

/// Returns the condition that columns `l` of `left` equal columns `r` of `right`, with NULL equal to NULL. It
/// reads the columns of `left` and then of `right`. Where one of two compared columns is never NULL, the
/// comparison is `=`.
fn same(left: &Schema, l: &[usize], right: &Schema, r: &[usize]) -> Expr {
    let nullable = |s: &Schema, c: usize| s.column(c).is_none_or(|c| c.nullable);
    Expr::and(l.iter().zip(r).map(|(l, r)| {
        let (a, b) = (left.expr(*l), right.expr(*r).shifted(left.len()));
        if nullable(left, *l) && nullable(right, *r) { a.same_as(b) } else { a.equals(b) }
    }))
}

/// Fails unless there are exactly `N` inputs.
fn arity<'a, const N: usize>(op: &str, inputs: &[&'a Node]) -> Result<[&'a Node; N]> {
    <[&Node; N]>::try_from(inputs)
        .map_err(|_| Error::plan(format!("{op} takes {N} inputs, not {}", inputs.len())))
}

/// Returns a readable label for a column that the expression computes.
fn label(expr: &Expr, input: &Schema) -> std::sync::Arc<str> {
    use crate::expr::ExprKind;
    match expr.kind() {
        ExprKind::Column(i) => input.column(*i).map_or_else(|| "column".into(), |c| c.label.clone()),
        ExprKind::Cast(e) => label(e, input),
        ExprKind::Call(sig, _) if !sig.is_operator() => sig.name.clone(),
        ExprKind::Case { whens, otherwise } => match whens.as_slice() {
            [(_, e)] if matches!(e.kind(), ExprKind::ManyRows) => label(otherwise, input),
            _ => "case".into(),
        },
        ExprKind::Coalesce(_) => "coalesce".into(),
        _ => "column".into(),
    }
}
