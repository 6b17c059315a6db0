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
    /// Whether the plan added the key, so that it stands in no ORDER BY. Such a key settles an order that
    /// ORDER BY leaves open. Rows that differ only in such keys are peers in SQL.
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

/// The unit in which the bounds of a frame are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Units {
    /// Rows.
    Rows,
    /// Values of the only order key.
    Range,
    /// Groups of peers, which are rows that are equal in all order keys.
    Groups,
}

/// A start or an end of a frame. Offsets are constants: `bigint` for ROWS and GROUPS, and for RANGE the value
/// that is added to the order key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// As a start, the first row of the partition; as an end, its last row.
    Unbounded,
    /// `offset PRECEDING`
    Preceding(Expr),
    /// The row of the call itself; under RANGE and GROUPS its first or last peer.
    CurrentRow,
    /// `offset FOLLOWING`
    Following(Expr),
}

/// The rows between the bounds of a frame that the frame leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// No rows.
    #[default]
    NoOthers,
    /// The row of the call itself.
    CurrentRow,
    /// The row of the call and its peers.
    Group,
    /// The peers of the row of the call, without the row itself.
    Ties,
}

/// A window frame: those rows of a partition that a call over one of its rows reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowFrame {
    /// The unit of the bounds.
    pub units: Units,
    /// The start of the frame.
    pub start: Bound,
    /// The end of the frame.
    pub end: Bound,
    /// The rows between the bounds that the frame leaves out.
    pub exclude: Exclusion,
}

impl Default for WindowFrame {
    /// Returns SQL's default frame: from the first row of the partition to the last peer of the row.
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
    /// Returns the offsets of both bounds.
    pub fn offsets(&self) -> impl Iterator<Item = &Expr> {
        [&self.start, &self.end].into_iter().filter_map(|b| match b {
            Bound::Preceding(e) | Bound::Following(e) => Some(e),
            Bound::Unbounded | Bound::CurrentRow => None,
        })
    }
    /// Whether the frame is the whole partition for every row.
    pub fn is_whole(&self) -> bool {
        self.start == Bound::Unbounded && self.end == Bound::Unbounded
    }
}

/// A call over a window: a function with its frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowCall {
    /// The window function or aggregate, without DISTINCT and without an ORDER BY of its own.
    pub call: AggCall,
    /// The frame of the call. Ranking functions, `lag` and `lead` read the whole partition, whatever the
    /// frame is.
    pub frame: WindowFrame,
}

/// The part of the row order of a partition that a call depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of peer groups: which rows are peers, and which peers come first. ORDER BY as it is written
    /// decides this.
    Peers,
    /// The order of rows, also among peers. More order keys change only the order that ORDER BY leaves open.
    Rows,
    /// Both the order of rows among peers and the ends of peer groups.
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
    /// Returns every expression of the call and of its frame.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.call.exprs().chain(self.frame.offsets())
    }

    /// Returns the call with every expression of its arguments and its filter rewritten by `f`.
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

    /// Whether the value of the call may be NULL: a frame may be empty, or a row may have no other row before
    /// it.
    pub fn nullable(&self, input: &Schema) -> bool {
        match self.is_window_function() {
            true => !self.call.sig.never_null,
            false => self.call.nullable(false, input),
        }
    }

    /// Returns the part of the row order that the call depends on.
    pub fn order(&self) -> Order {
        let (name, frame) = (&*self.call.sig.name, &self.frame);
        // GROUP and TIES leave out peers, in whichever unit the bounds are counted.
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
