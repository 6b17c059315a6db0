//! Calls over windows: functions, frames, and how much of the order of rows a call sees (PostgreSQL manual, "Window
//! Function Calls").

mod reach;

pub use reach::Reach;

use crate::agg::{AggCall, family};
use crate::expr::{Expr, FuncKind, FuncSig, Volatility};
use crate::graph::Schema;
use crate::types::Type;
use std::sync::Arc;

/// A column by which the rows of a partition are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderKey {
    /// The position in the input.
    pub column: usize,
    /// `DESC`
    pub descending: bool,
    /// `NULLS FIRST`
    pub nulls_first: bool,
    /// It stands in no ORDER BY: it settles what that leaves open. Rows that differ in such keys alone are peers to SQL.
    pub settles: bool,
}

impl OrderKey {
    /// A key that settles what ORDER BY leaves open.
    pub fn settling(column: usize) -> OrderKey {
        OrderKey { column, descending: false, nulls_first: false, settles: true }
    }
}

/// The keys that stand in ORDER BY.
pub fn asked(order: &[OrderKey]) -> &[OrderKey] {
    let n = order.iter().take_while(|k| !k.settles).count();
    &order[..n]
}

/// What the bounds of a frame count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Units {
    /// Rows.
    Rows,
    /// Values of the only order key.
    Range,
    /// Groups of peers: rows that are equal in all order keys.
    Groups,
}

/// An end of a frame. Offsets are constants: `bigint` for rows and groups, for ranges what is added to the order key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The partition's first row at the start, its last row at the end.
    Unbounded,
    /// `offset PRECEDING`
    Preceding(Expr),
    /// The row itself; under RANGE and GROUPS its first or last peer.
    CurrentRow,
    /// `offset FOLLOWING`
    Following(Expr),
}

/// What a frame leaves out of the rows between its bounds.
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

/// The rows of its partition that a call over a row sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowFrame {
    /// What the bounds count.
    pub units: Units,
    /// Where it starts.
    pub start: Bound,
    /// Where it ends.
    pub end: Bound,
    /// What it leaves out.
    pub exclude: Exclusion,
}

impl Default for WindowFrame {
    /// From the first row to the last peer.
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
    /// The offsets.
    pub fn offsets(&self) -> impl Iterator<Item = &Expr> {
        [&self.start, &self.end].into_iter().filter_map(|b| match b {
            Bound::Preceding(e) | Bound::Following(e) => Some(e),
            Bound::Unbounded | Bound::CurrentRow => None,
        })
    }
    /// Whether it reaches over the whole partition for every row.
    pub fn is_whole(&self) -> bool {
        self.start == Bound::Unbounded && self.end == Bound::Unbounded
    }
}

/// A call over a window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowCall {
    /// A window function or an aggregate; without DISTINCT and ORDER BY of its own.
    pub call: AggCall,
    /// The rows that it sees. Ranking functions, `lag` and `lead` look at the partition whatever it says.
    pub frame: WindowFrame,
}

/// How much of the order of a partition's rows a call sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Which rows are peers, and which peers come first: the ORDER BY as it is.
    Peers,
    /// Which row comes first, also among peers. More order keys change nothing but what ORDER BY leaves open.
    Rows,
    /// Both: an order among peers, and where they end.
    Both,
}

/// The window functions that are no aggregates.
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

/// The signature of a window function for these argument types. Those of `lag`, `lead` and the value functions are of the
/// type of their first argument.
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
    /// Every expression in the call.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.call.exprs().chain(self.frame.offsets())
    }

    /// The call with every expression of its arguments and its filter rewritten.
    #[must_use]
    pub fn map_exprs(&self, f: impl FnMut(&Expr) -> Expr) -> WindowCall {
        WindowCall { call: self.call.map_exprs(f), frame: self.frame.clone() }
    }

    /// Whether it is a window function and no aggregate.
    pub fn is_window_function(&self) -> bool {
        self.call.sig.kind == FuncKind::Window
    }

    /// Whether a call can raise an error.
    pub fn can_raise(&self) -> bool {
        self.call.sig.raises || self.exprs().any(Expr::can_raise)
    }

    /// Whether the value may be NULL: a frame may be empty, a row without another before it.
    pub fn nullable(&self, input: &Schema) -> bool {
        match self.is_window_function() {
            true => !self.call.sig.never_null,
            false => self.call.nullable(false, input),
        }
    }

    /// How much of the order it sees.
    pub fn order(&self) -> Order {
        let (name, frame) = (&*self.call.sig.name, &self.frame);
        // What is left out are the peers, however the rows between the bounds are found.
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

    /// Whether the value of an aggregate depends on the order of its rows.
    fn minds_order(&self) -> bool {
        family(&self.call.sig).minds_order()
    }
}
