//! Resolves the parentheses of OVER: named windows and frames.

use super::Lowerer;
use super::clause::ClauseContext;
use crate::agg::AggCall;
use crate::error::{Error, Result};
use crate::expr::SortKey;
use crate::expr::functions::resolve_operator;
use crate::syntax::{
    Expr as Ast, Frame as FrameAst, FrameBound, Ident, NamedWindow, OrderItem, Over, WindowSpec,
};
use crate::types::Type;
use crate::window::{Bound, Units, WindowCall, WindowFrame};

/// The specification in the parentheses of OVER, with named windows resolved.
pub(super) struct Spec<'q> {
    pub(super) partition: &'q [Ast],
    pub(super) order: &'q [OrderItem],
    pub(super) frame: Option<&'q FrameAst>,
}

impl<'q> Spec<'q> {
    fn of(spec: &'q WindowSpec) -> Spec<'q> {
        Spec { partition: &spec.partition_by, order: &spec.order_by, frame: spec.frame.as_ref() }
    }
}

impl Lowerer<'_> {
    /// Finds the window that OVER names or describes.
    pub(super) fn spec<'q>(&self, over: &'q Over, named: &'q [NamedWindow], place: &Ast) -> Result<Spec<'q>> {
        let find = |name: &Ident| {
            let found = named.iter().find(|w| w.name.folded() == name.folded());
            found.ok_or_else(|| {
                let m = format!("window \"{}\" does not exist", name.folded());
                self.at(Error::unknown_object(m), place)
            })
        };
        let mut spec = match over {
            Over::Spec(spec) => spec,
            Over::Named(name) => &find(name)?.spec,
        };
        let mut found = Spec::of(spec);
        // A window in the WINDOW clause refers only to earlier windows, so the loop visits each name at most
        // once.
        for _ in 0..=named.len() {
            let Some(base) = &spec.base else { return Ok(found) };
            let next = &find(base)?.spec;
            if next.frame.is_some() {
                let m = format!("cannot copy window \"{}\" because it has a frame clause", base.folded());
                return Err(self.at(Error::windowing(m), place));
            }
            if !spec.partition_by.is_empty() || (!found.order.is_empty() && !next.order_by.is_empty()) {
                let m = format!("cannot override a clause of window \"{}\"", base.folded());
                return Err(self.at(Error::windowing(m), place));
            }
            found.partition = &next.partition_by;
            if found.order.is_empty() {
                found.order = &next.order_by;
            }
            spec = next;
        }
        Err(self.at(Error::windowing("windows are defined by each other"), place))
    }

    pub(super) fn frame(&mut self, spec: &Spec<'_>, order: &[SortKey], place: &Ast) -> Result<WindowFrame> {
        let Some(frame) = spec.frame else { return Ok(WindowFrame::default()) };
        let units = frame.units;
        if units == Units::Groups && order.is_empty() {
            return Err(self.at(Error::windowing("GROUPS mode requires an ORDER BY clause"), place));
        }
        let start = match &frame.start {
            FrameBound::Following(None) => {
                return Err(self.at(Error::windowing("frame start cannot be UNBOUNDED FOLLOWING"), place));
            }
            FrameBound::Preceding(None) => Bound::Unbounded,
            bound => self.frame_bound(bound, units, order, place)?,
        };
        let end = match &frame.end {
            Some(FrameBound::Preceding(None)) => {
                return Err(self.at(Error::windowing("frame end cannot be UNBOUNDED PRECEDING"), place));
            }
            Some(FrameBound::Following(None)) => Bound::Unbounded,
            Some(bound) => self.frame_bound(bound, units, order, place)?,
            None => Bound::CurrentRow,
        };
        let backwards = match (&start, &end) {
            (Bound::CurrentRow, Bound::Preceding(_)) => {
                Some("frame starting from current row cannot have preceding rows")
            }
            (Bound::Following(_), Bound::Preceding(_) | Bound::CurrentRow) => {
                Some("frame starting from following row cannot end before it")
            }
            _ => None,
        };
        match backwards {
            Some(message) => Err(self.at(Error::windowing(message), place)),
            None => Ok(WindowFrame { units, start, end, exclude: frame.exclude }),
        }
    }

    fn frame_bound(
        &mut self,
        bound: &FrameBound,
        units: Units,
        order: &[SortKey],
        place: &Ast,
    ) -> Result<Bound> {
        let (offset, preceding) = match bound {
            FrameBound::Preceding(Some(e)) => (e, true),
            FrameBound::Following(Some(e)) => (e, false),
            FrameBound::CurrentRow | FrameBound::Preceding(None) | FrameBound::Following(None) => {
                return Ok(Bound::CurrentRow);
            }
        };
        let mut cx = ClauseContext::new("a window frame");
        let offset = self.expr(offset, &mut cx)?;
        if !cx.subqueries.is_empty() || !offset.is_constant() {
            return Err(self.stop(place, "a frame offset that is no constant"));
        }
        let offset = match (units, order) {
            (Units::Rows | Units::Groups, _) => {
                self.coerce_implicitly(offset, &Type::Int8, "a frame offset")?
            }
            (Units::Range, [key]) => {
                let ty = key.expr.ty();
                let time = matches!(ty, Type::Date | Type::Timestamp | Type::Timestamptz | Type::Time);
                let offset = match (*offset.ty() == Type::Unknown, time) {
                    (true, true) => self.coerce(offset, &Type::Interval)?,
                    (true, false) => self.coerce(offset, ty)?,
                    _ => offset,
                };
                if ["+", "-"]
                    .iter()
                    .any(|op| resolve_operator(op, &[ty.clone(), offset.ty().clone()]).is_none())
                {
                    return Err(self.stop(place, format!("a frame by RANGE over type {ty}")));
                }
                offset
            }
            _ => {
                let m = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
                return Err(self.at(Error::windowing(m), place));
            }
        };
        Ok(if preceding { Bound::Preceding(offset) } else { Bound::Following(offset) })
    }
}

/// Makes a call over a window, with its frame in normal form. If `unordered`, all rows of a partition are
/// peers, so a frame up to the current row's peers is the whole partition. A window function that ignores its
/// frame gets the default frame.
pub(super) fn framed(call: AggCall, frame: WindowFrame, unordered: bool) -> WindowCall {
    let value = matches!(&*call.sig.name, "first_value" | "last_value" | "nth_value");
    let framed = WindowCall { call, frame: WindowFrame::default() };
    if framed.is_window_function() && !value {
        return framed;
    }
    let mut frame = frame;
    if unordered && frame.units != Units::Rows {
        frame.units = Units::Range;
        for bound in [&mut frame.start, &mut frame.end] {
            if *bound == Bound::CurrentRow {
                *bound = Bound::Unbounded;
            }
        }
    }
    WindowCall { frame, ..framed }
}
