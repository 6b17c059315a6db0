//! The context of a clause, in which the expressions of the clause are lowered.

use super::Lowerer;
use super::grouping::GroupingCall;
use super::subquery::Pending;
use super::window::Windowed;
use crate::agg::AggCall;
use crate::error::{Error, Result, Span};
use crate::expr::{Expr, ExprKind};
use crate::graph::Schema;
use crate::rel::SetCall;
use crate::syntax::{Expr as Ast, NamedWindow, Select};
use crate::types::Type;

/// The context in which the expressions of one clause are lowered. It collects the calls and subqueries that
/// lowering finds in these expressions.
pub(super) struct ClauseContext<'q> {
    /// The name of the clause, for messages.
    pub(super) clause: &'static str,
    /// Whether the clause may contain aggregates.
    pub(super) allows_aggregates: bool,
    pub(super) aggregates: Vec<AggCall>,
    pub(super) subqueries: Vec<Pending<'q>>,
    /// The columns used outside aggregates, with names and places for the error about a column that is not
    /// grouped.
    pub(super) columns: Vec<(usize, String, Option<Span>)>,
    /// Whether the expression that is being lowered may read the clock. A condition on rows may read it.
    pub(super) allows_clock: bool,
    /// Whether comparisons inside the expressions of the clause may read the clock.
    pub(super) allows_timed_conditions: bool,
    /// Whether the expression that is being lowered is in the arguments of an aggregate.
    pub(super) inside_aggregate: bool,
    /// The calls of GROUPING.
    pub(super) groupings: Vec<GroupingCall<'q>>,
    /// The window function calls in the clause.
    pub(super) windows: Vec<Windowed<'q>>,
    /// The windows of the WINDOW clause. `None` in a clause that may not contain window function calls.
    named: Option<&'q [NamedWindow]>,
    /// Whether the expression that is being lowered is inside a window function call.
    pub(super) inside_window: bool,
    /// Whether the clause may contain set-returning functions.
    pub(super) allows_sets: bool,
    /// The calls of set-returning functions, each listed after the calls in its arguments.
    pub(super) sets: Vec<SetCall>,
    /// The conditions, outermost first, under which the expression that is being lowered is evaluated.
    pub(super) guards: Vec<Expr>,
}

impl<'q> ClauseContext<'q> {
    pub(super) fn new(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext {
            clause,
            allows_aggregates: false,
            aggregates: Vec::new(),
            subqueries: Vec::new(),
            columns: Vec::new(),
            allows_clock: false,
            allows_timed_conditions: false,
            inside_aggregate: false,
            groupings: Vec::new(),
            windows: Vec::new(),
            named: None,
            inside_window: false,
            allows_sets: false,
            sets: Vec::new(),
            guards: Vec::new(),
        }
    }

    /// Returns one condition that tests the guards in their order, outermost first. Returns `None` if the
    /// expression that is being lowered is always evaluated.
    pub(super) fn guard(&self) -> Option<Expr> {
        let open = self.guards.iter().map(|g| g.simplified(&Schema::new([])));
        let open: Vec<Expr> = open.filter(|g| *g != Expr::bool(true)).collect();
        open.into_iter().rev().reduce(|later, first| {
            let kind = ExprKind::Case { whens: vec![(first, later)], otherwise: Expr::bool(false) };
            Expr::new(kind, Type::Bool)
        })
    }

    /// Makes the context of a clause that is a condition on rows.
    pub(super) fn condition(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_clock: true, ..ClauseContext::new(clause) }
    }

    /// Makes the context of a clause that computes values. Comparisons inside the values may read the clock.
    pub(super) fn values(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_timed_conditions: true, ..ClauseContext::new(clause) }
    }

    /// Makes the context of a clause that may contain aggregates.
    pub(super) fn grouping(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_aggregates: true, ..ClauseContext::values(clause) }
    }

    /// Makes the context of the select list of `s`, which may contain aggregates, window function calls and
    /// set-returning functions.
    pub(super) fn select_list(s: &'q Select) -> ClauseContext<'q> {
        ClauseContext { named: Some(&s.windows), allows_sets: true, ..ClauseContext::grouping("SELECT") }
    }

    /// Makes the context of a clause that may contain set-returning functions.
    pub(super) fn sets(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_sets: true, ..ClauseContext::values(clause) }
    }

    /// Returns the named windows that a call with OVER may refer to. Returns `None` in a clause that may not
    /// contain such a call.
    pub(super) fn windows_allowed(&self) -> Option<&'q [NamedWindow]> {
        self.named
    }

    /// Turns the context of the select list into the context of HAVING. The calls and subqueries collected so
    /// far stay.
    pub(super) fn having(&mut self) {
        self.clause = "HAVING";
        self.allows_clock = true;
        self.allows_sets = false;
        self.named = None;
    }

    /// Makes the error about a column that is neither grouped nor aggregated.
    pub(super) fn ungrouped(&self, column: usize) -> Error {
        let used = self.columns.iter().find(|(c, ..)| *c == column);
        let name = used.map_or_else(|| format!("number {}", column + 1), |(_, n, _)| format!("\"{n}\""));
        let e = Error::grouping(format!(
            "column {name} must appear in the GROUP BY clause or be used in an aggregate function"
        ))
        .hint("Add it to GROUP BY, or group by the primary key of its table.");
        match used.and_then(|(_, _, span)| *span) {
            Some(span) => e.at(span),
            None => e,
        }
    }
}

impl Lowerer<'_> {
    /// Lowers a condition of WHERE, ON or HAVING, which must be boolean.
    pub(super) fn condition<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let clause = cx.clause;
        let lowered = self.expr(e, cx)?;
        let ty = lowered.ty().clone();
        if !matches!(ty, Type::Bool | Type::Unknown) {
            let m = Error::type_mismatch(format!("argument of {clause} must be type boolean, not type {ty}"));
            return Err(self.at(m, e));
        }
        let coerced = self.coerce(lowered, &Type::Bool);
        self.located(coerced, e)
    }
}
