//! Windows of calls: OVER and WINDOW.

use super::{Expr, Ident, OrderItem};
use crate::window::{Exclusion, Units};

/// The window of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Over {
    /// `OVER name`: a window of the WINDOW clause.
    Named(Ident),
    /// `OVER (…)`.
    Spec(WindowSpec),
}

/// `name AS (…)` in the WINDOW clause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedWindow {
    pub(crate) name: Ident,
    pub(crate) spec: WindowSpec,
}

/// The parentheses of a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WindowSpec {
    /// The window of the WINDOW clause that this window extends.
    pub(crate) base: Option<Ident>,
    pub(crate) partition_by: Vec<Expr>,
    pub(crate) order_by: Vec<OrderItem>,
    pub(crate) frame: Option<Frame>,
}

/// The frame clause of a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) units: Units,
    pub(crate) start: FrameBound,
    /// The end of the frame. `None` without BETWEEN; the frame then ends at the current row.
    pub(crate) end: Option<FrameBound>,
    pub(crate) exclude: Exclusion,
}

/// A bound of a frame. A bound without an offset is unbounded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FrameBound {
    CurrentRow,
    Preceding(Option<Box<Expr>>),
    Following(Option<Box<Expr>>),
}
