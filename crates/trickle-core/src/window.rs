//! Window function calls: functions, frames, and the part of the row order on which a call depends
//! (PostgreSQL manual, "Window Function Calls").

mod reach;

pub use reach::Reach;

use crate::agg::{AggCall, OrderOf, facts};
use crate::expr::{Expr, FuncKind, FuncSig, Schema, Volatility};
use crate::types::Type;
use std::sync::Arc;

/// A column that orders the rows of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderKey {
    /// The position of the column in the input.
    pub column: usize,
    /// Whether the order is `DESC`.
    pub descending: bool,
    /// Whether NULLs come first, as with `NULLS FIRST`.
    pub nulls_first: bool,
    /// Whether the plan adds this key to determine an order that ORDER BY does not determine. No ORDER BY of
    /// the query contains such a key. Rows that differ only in such keys are peers in SQL.
    pub settles: bool,
}

impl OrderKey {
    /// Makes an ascending key that determines an order that ORDER BY does not determine.
    pub fn settling(column: usize) -> OrderKey {
        OrderKey { column, descending: false, nulls_first: false, settles: true }
    }
}

/// Returns the keys of the query's ORDER BY, without the keys that the plan adds.
pub fn asked(order: &[OrderKey]) -> &[OrderKey] {
    let n = order.iter().take_while(|k| !k.settles).count();
    &order[..n]
}

/// The unit in which a frame measures its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Units {
    /// The distance is a number of rows.
    Rows,
    /// The distance is a difference between values of the only order key.
    Range,
    /// The distance is a number of groups of peers. Peers are rows that are equal in all order keys.
    Groups,
}

/// A bound at which a frame begins or ends. Offsets are constants. For ROWS and GROUPS, an offset is a
/// `bigint`. For RANGE, the offset is added to the order key or subtracted from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The first row of the partition if the bound is a start, or the last row if it is an end.
    Unbounded,
    /// `offset PRECEDING`
    Preceding(Expr),
    /// The row of the call itself. Under RANGE and GROUPS, the first or the last peer of this row.
    CurrentRow,
    /// `offset FOLLOWING`
    Following(Expr),
}

/// The rows that a frame leaves out although they are between its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// No row is left out.
    #[default]
    NoOthers,
    /// The row of the call is left out.
    CurrentRow,
    /// The row of the call and its peers are left out.
    Group,
    /// The peers of the call's row are left out, but not this row.
    Ties,
}

/// A window frame: the rows of the partition that a call reads to compute the value for its row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowFrame {
    /// The unit of both bounds.
    pub units: Units,
    /// The bound at which the frame begins.
    pub start: Bound,
    /// The bound at which the frame ends.
    pub end: Bound,
    /// The rows between the bounds that the frame leaves out.
    pub exclude: Exclusion,
}

impl Default for WindowFrame {
    /// Returns SQL's default frame: from the first row of the partition to the last peer of the call's row.
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
    /// Whether the frame covers the whole partition for every row.
    pub fn is_whole(&self) -> bool {
        self.start == Bound::Unbounded && self.end == Bound::Unbounded
    }
}

/// A window function call: a function with its frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowCall {
    /// The call of a window function or of an aggregate, without DISTINCT or ORDER BY among its arguments.
    pub call: AggCall,
    /// The frame in which the call is computed. Ranking functions, `lag` and `lead` read the whole partition,
    /// whatever the frame is.
    pub frame: WindowFrame,
}

/// The part of the row order of a partition on which a call depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The call depends on which rows are peers, and on the order of the groups of peers. ORDER BY determines
    /// both.
    Peers,
    /// The call depends on which row comes first, also among peers. Additional order keys change only the
    /// part of the order that ORDER BY does not determine.
    Rows,
    /// The call depends on the order among peers, and also on where a group of peers ends.
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

/// Returns the signature of a window function for arguments of these types. The functions `lag`, `lead`,
/// `first_value`, `last_value` and `nth_value` return the type of their first argument.
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

    /// Returns the call with `f` applied to its arguments and its filter. The offsets of the frame stay
    /// unchanged.
    #[must_use]
    pub fn map_exprs(&self, f: impl FnMut(&Expr) -> Expr) -> WindowCall {
        WindowCall { call: self.call.map_exprs(f), frame: self.frame.clone() }
    }

    /// Whether the function is a window function and not an aggregate.
    pub fn is_window_function(&self) -> bool {
        self.call.sig.kind == FuncKind::Window
    }

    /// Whether the call can raise an error.
    pub fn can_raise(&self) -> bool {
        self.call.can_raise() || self.frame.offsets().any(Expr::can_raise)
    }

    /// Whether the call's value may be NULL. For example, the frame may be empty, or `lag` may find no row
    /// before the call's row.
    pub fn nullable(&self, input: &Schema) -> bool {
        match self.is_window_function() {
            true => !self.call.sig.never_null,
            false => self.call.nullable(false, input),
        }
    }

    /// Returns the part of the row order on which the call depends.
    pub fn order(&self) -> Order {
        let (name, frame) = (&*self.call.sig.name, &self.frame);
        // EXCLUDE GROUP and EXCLUDE TIES leave out peers in every unit, so the call depends on which rows are
        // peers.
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
