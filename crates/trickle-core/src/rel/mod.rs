//! The operators, one file each; `operators!` below is the only list.
//!
//! An operator implements four small traits. The trait [`Relational`] describes it (inputs, contract, schema,
//! properties, class, expansion), [`Evaluate`] computes the relation that it denotes, and [`Render`] its SQL.
//! The trait [`Differentiate`] gives its delta, if that is better than the delta of its class.

mod accumulate;
mod consolidate;
mod distinct;
mod expand;
mod extend;
mod filter;
mod foreign_key;
mod image;
mod join;
mod keys;
mod map;
mod near;
mod negate;
mod outer_join;
mod positive;
mod recursion;
mod reduce;
mod revise;
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

pub use accumulate::Accumulate;
pub use consolidate::Consolidate;
pub use distinct::Distinct;
pub use expand::{Expand, SetCall};
pub(crate) use extend::split as split_extrema;
pub use filter::{Filter, with_servers_clock};
pub(crate) use image::{distinct as distinct_by_image, identify, image};
pub use join::{Join, JoinKeys, join_keys};
pub use keys::Keys;
pub use map::Map;
pub use negate::Negate;
pub use outer_join::OuterJoin;
pub use positive::Positive;
pub use recursion::{Fixpoint, Recursion, Step};
pub use reduce::Reduce;
pub use revise::{Revise, Side};
pub use semi_join::SemiJoin;
pub use set_op::{SetOp, SetOpKind};
pub use single::Single;
pub use state::State;
pub use table::{Table, Version};
pub use top::{Slice, Top};
pub use union::Union;
pub use values::Values;
pub use widen::Widen;
pub use window::Window;
pub(crate) use window::shown_partition;

use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::Evaluate;
use crate::expr::Expr;
use crate::graph::{Graph, Node, NodeId, Props, Schema};
use crate::sql::Render;

/// The description of an operator, apart from any data.
pub trait Relational {
    /// Returns the operator's name in plans.
    fn name(&self) -> &'static str;

    /// Returns the nodes that the operator reads.
    fn inputs(&self) -> Vec<NodeId>;

    /// Returns the same operator over other inputs, as many as [`Relational::inputs`] returns.
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel;

    /// Checks that the inputs fulfil the operator's contract.
    ///
    /// # Errors
    /// The rule that was broken.
    fn check(&self, inputs: &[&Node]) -> Result<()>;

    /// Returns the output columns.
    fn schema(&self, inputs: &[&Node]) -> Schema;

    /// Returns the derived properties.
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props;

    /// Whether one of the operator's own expressions can raise on some row.
    fn can_raise(&self) -> bool;

    /// Returns how the operator commutes with change.
    fn class(&self, inputs: &[&Node]) -> Class;

    /// Returns an equal plan of more primitive operators, for derived operators.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    fn expand(&self, _graph: &mut Graph) -> Result<Option<NodeId>> {
        Ok(None)
    }

    /// Prints the operator's scalar expressions, for people.
    fn describe(&self, _inputs: &[&Node]) -> String {
        String::new()
    }
}

/// How an operator commutes with change. The class decides the delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// The operator reads no other node; it has its own delta.
    Leaf,
    /// `op(R + S) = op(R) + op(S)` in all inputs together, so `Δop(R) = op(ΔR)`.
    Linear,
    /// Linear in each of two inputs while the other is fixed.
    Bilinear,
    /// `op(R ⋉ K) = op(R) ⋉ K` for any set K of key values. The key is the given columns of each input and of
    /// the output, as many in each. The delta recomputes the touched keys.
    PerKey {
        /// For each input, the columns that hold the key.
        keys: Vec<Vec<usize>>,
        /// The columns of the output that hold the key.
        output: Vec<usize>,
    },
    /// Nothing is known; the delta is the result after minus the result before.
    Global,
}

/// The four traits that every operator implements.
pub trait Operator: Relational + Evaluate + Render + Differentiate {}
impl<T: Relational + Evaluate + Render + Differentiate> Operator for T {}

macro_rules! operators {
    ($($Op:ident),* $(,)?) => {
        /// Any operator.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Rel {
            $(#[doc = concat!("See [`", stringify!($Op), "`].")] $Op($Op)),*
        }
        $(impl From<$Op> for Rel {
            fn from(op: $Op) -> Rel { Rel::$Op(op) }
        })*
        impl Rel {
            /// Returns the operator's behaviour.
            pub fn as_operator(&self) -> &dyn Operator {
                match self { $(Rel::$Op(op) => op),* }
            }
            /// The names of all operators, for coverage tables.
            pub const NAMES: &[&str] = &[$(stringify!($Op)),*];
        }
    };
}

operators! {
    // Leaves
    Table, Values, State,
    // Linear
    Map, Filter, Expand, Union, Negate, Consolidate, Revise,
    // Bilinear
    Join,
    // Per key
    Distinct, Keys, Positive, Reduce, Accumulate, Single, Window, Top,
    // Global
    Recursion, Widen,
    // Derived
    SemiJoin, OuterJoin, SetOp,
}

impl Rel {
    /// Whether one of the operator's own expressions can raise on some row.
    pub fn can_raise(&self) -> bool {
        self.as_operator().can_raise()
    }
}

/// Fails unless every column that `expr` reads exists in `sides`, put side by side, with the type that the
/// expression states. Fails also where `expr` reads the clock, since no delta of the operator would show the
/// changes that time makes.
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

/// Fails unless `cond` is boolean, fits `sides` and does not read the clock.
fn check_predicate(op: &str, cond: &Expr, sides: &[&Schema]) -> Result<()> {
    check_expr(op, cond, sides)?;
    check_timed(op, cond, sides)
}

/// Fails unless `cond` is boolean and fits `sides`; it may read the clock.
fn check_timed(op: &str, cond: &Expr, sides: &[&Schema]) -> Result<()> {
    if *cond.ty() != crate::types::Type::Bool {
        return Err(Error::plan(format!("{op} has a condition of type {}", cond.ty())));
    }
    check_columns(op, cond, sides)
}

/// Fails unless `input` denotes a state and is rendered with positive weights only.
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

/// Fails unless every column position is in `schema` and its type has an equality operator.
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

/// Compares columns of `left` with columns of `right`, NULL equal to NULL, over the columns of both. Where a
/// side is never NULL, `=` is used.
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

/// Returns a readable label for an expression's column.
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
