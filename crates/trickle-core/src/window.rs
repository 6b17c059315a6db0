//! Calls over windows: functions, frames, and the part of the row order that a call depends on (PostgreSQL
//! manual, "Window Function Calls").

mod reach;

pub use reach::Reach;

use crate::agg::{AggCall, OrderOf, facts};
use crate::expr::{Expr, FuncKind, FuncSig, Volatility};
use crate::graph::Schema;
use crate::types::Type;
use std::sync::Arc;

/// A column by which the rows of a partition are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderKey {
    /// The position of the column in the input.
    pub column: usize,
    /// Whether the order is `DESC`.
    pub descending: bool,
    /// Whether NULLs come first, as with `NULLS FIRST`.
    pub nulls_first: bool,
    /// Whether the key is added by the plan, and stands in no ORDER BY: it settles an order that ORDER BY
    /// leaves open. Rows that differ in such keys alone are peers in SQL.
    pub settles: bool,
}

impl OrderKey {
    /// Makes an ascending key that settles an order that ORDER BY leaves open.
    pub fn settling(column: usize) -> OrderKey {
        OrderKey { column, descending: false, nulls_first: false, settles: true }
    }
}

/// Returns the keys that stand in ORDER BY.
pub fn asked(order: &[OrderKey]) -> &[OrderKey] {
    let n = order.iter().take_while(|k| !k.settles).count();
    &order[..n]
}

/// The unit in which the bounds of a frame count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Units {
    /// Rows.
    Rows,
    /// Values of the only order key.
    Range,
    /// Groups of peers: rows that are equal in all order keys.
    Groups,
}

/// An end of a frame. Offsets are constants: `bigint` for ROWS and GROUPS, and for RANGE the value that is
/// added to the order key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// As a start, the partition's first row; as an end, its last row.
    Unbounded,
    /// `offset PRECEDING`
    Preceding(Expr),
    /// The row itself; under RANGE and GROUPS its first or last peer.
    CurrentRow,
    /// `offset FOLLOWING`
    Following(Expr),
}

/// The rows between its bounds that a frame leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// Nothing.
    #[default]
    NoOthers,
    /// The row itself.
    CurrentRow,
    /// The row and its peers.
    Group,
    /// Its peers, but not the row itself.
    Ties,
}

/// A window frame: the rows of its partition that a call over a row sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowFrame {
    /// The unit of the bounds.
    pub units: Units,
    /// The start.
    pub start: Bound,
    /// The end.
    pub end: Bound,
    /// The rows that are left out.
    pub exclude: Exclusion,
}

impl Default for WindowFrame {
    /// Returns SQL's default frame: from the first row to the last peer.
    fn default() -> WindowFrame {
        WindowFrame {
            units: Units::Range,
            start: Bound::Unbounded,
            end: Bound::CurrentRow,
            exclude: Exclusion::NoOthers,
        }
    }
}

impl WindowFrame {
    /// Returns the offsets.
    pub fn offsets(&self) -> impl Iterator<Item = &Expr> {
        [&self.start, &self.end].into_iter().filter_map(|b| match b {
            Bound::Preceding(e) | Bound::Following(e) => Some(e),
            Bound::Unbounded | Bound::CurrentRow => None,
        })
    }
    /// Whether the frame covers the whole partition for every row.
    pub fn is_whole(&self) -> bool {
        self.start == Bound::Unbounded && self.end == Bound::Unbounded
    }
}

/// A call over a window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowCall {
    /// A window function or an aggregate; without DISTINCT and ORDER BY of its own.
    pub call: AggCall,
    /// The frame. Ranking functions, `lag` and `lead` look at the whole partition, whatever the frame is.
    pub frame: WindowFrame,
}

/// The part of the order of a partition's rows that a call depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It depends on which rows are peers and which peers come first: the ORDER BY as it is written.
    Peers,
    /// It depends on which row comes first, also among peers. More order keys change only the order that
    /// ORDER BY leaves open.
    Rows,
    /// It depends on both: on an order among peers, and on where the peers end.
    Both,
}

/// The window functions that are not aggregates.
pub const FUNCTIONS: &[&str] = &[
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// Returns the signature of a window function for these argument types. `lag`, `lead` and the value functions
/// return the type of their first argument.
pub fn resolve(name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
    let value = |extra: &[Type]| {
        let first = args.first()?.clone();
        Some((std::iter::once(first.clone()).chain(extra.iter().cloned()).collect::<Vec<_>>(), first))
    };
    let (args, ret) = match (name, args.len()) {
        ("row_number" | "rank" | "dense_rank", 0) => (Vec::new(), Type::Int8),
        ("percent_rank" | "cume_dist", 0) => (Vec::new(), Type::Float8),
        ("ntile", 1) => (vec![Type::Int4], Type::Int4),
        ("lag" | "lead" | "first_value" | "last_value", 1) => value(&[])?,
        ("lag" | "lead" | "nth_value", 2) => value(&[Type::Int4])?,
        ("lag" | "lead", 3) => value(&[Type::Int4, args[0].clone()])?,
        _ => return None,
    };
    Some(Arc::new(FuncSig {
        schema: None,
        name: Arc::from(name),
        kind: FuncKind::Window,
        never_null: args.is_empty(),
        raises: matches!(name, "ntile" | "nth_value"),
        args,
        ret,
        columns: Vec::new(),
        form: Vec::new(),
        volatility: Volatility::Immutable,
        strict: false,
    }))
}

impl WindowCall {
    /// Returns every expression in the call.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.call.exprs().chain(self.frame.offsets())
    }

    /// Returns the call with every expression of its arguments and its filter rewritten.
    #[must_use]
    pub fn map_exprs(&self, f: impl FnMut(&Expr) -> Expr) -> WindowCall {
        WindowCall { call: self.call.map_exprs(f), frame: self.frame.clone() }
    }

    /// Whether the call is of a window function and not of an aggregate.
    pub fn is_window_function(&self) -> bool {
        self.call.sig.kind == FuncKind::Window
    }

    /// Whether the call can raise an error.
    pub fn can_raise(&self) -> bool {
        self.call.sig.raises || self.exprs().any(Expr::can_raise)
    }

    /// Whether the value may be NULL: a frame may be empty, or a row may have no other row before it.
    pub fn nullable(&self, input: &Schema) -> bool {
        match self.is_window_function() {
            true => !self.call.sig.never_null,
            false => self.call.nullable(false, input),
        }
    }

    /// Returns the part of the row order that the call depends on.
    pub fn order(&self) -> Order {
        let (name, frame) = (&*self.call.sig.name, &self.frame);
        // GROUP and TIES leave out peers, however the rows between the bounds are found.
        let peers = matches!(frame.exclude, Exclusion::Group | Exclusion::Ties);
        let all = frame.exclude == Exclusion::NoOthers;
        match (self.is_window_function(), name) {
            (true, "rank" | "dense_rank" | "percent_rank" | "cume_dist") => Order::Peers,
            (true, "row_number" | "ntile" | "lag" | "lead") => Order::Rows,
            (true, "first_value") if frame.start == Bound::Unbounded && all => Order::Rows,
            (false, _) if frame.is_whole() && !self.minds_order() => Order::Peers,
            _ if !peers && (frame.units == Units::Rows || frame.is_whole()) => Order::Rows,
            (false, _) if frame.units != Units::Rows && !self.minds_order() => Order::Peers,
            _ => Order::Both,
        }
    }

    /// Whether the value of the aggregate depends on the order of its rows.
    fn minds_order(&self) -> bool {
        facts(&self.call.sig).order != OrderOf::Free
    }
}
