//! Resolves the parentheses of OVER: named windows and frames.

use super::Lowerer;
use super::expr::ClauseContext;
use crate::agg::AggCall;
use crate::error::{Error, Result};
use crate::expr::SortKey;
use crate::expr::functions::resolve_operator;
use crate::parse::ast::{
    Expr as Ast, Ident, NamedWindowDefinition, NamedWindowExpr, OrderByExpr, WindowFrame as FrameAst,
    WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use crate::parse::{excluded, fold};
use crate::types::Type;
use crate::window::{Bound, Exclusion, Units, WindowCall, WindowFrame};

/// The contents of the parentheses of OVER, with named windows resolved.
pub(super) struct Spec<'q> {
    pub(super) partition: &'q [Ast],
    pub(super) order: &'q [OrderByExpr],
    pub(super) frame: Option<&'q FrameAst>,
    exclude: Exclusion,
}

impl<'q> Spec<'q> {
    fn of(spec: &'q WindowSpec) -> Spec<'q> {
        let (order, exclude) = excluded(&spec.order_by);
        Spec { partition: &spec.partition_by, order, frame: spec.window_frame.as_ref(), exclude }
    }
}

impl Lowerer<'_> {
    /// Finds the window that OVER names or describes.
    pub(super) fn spec<'q>(
        &self,
        over: &'q WindowType,
        named: &'q [NamedWindowDefinition],
        place: &Ast,
    ) -> Result<Spec<'q>> {
        let find = |name: &Ident| {
            let found = named.iter().find(|d| fold(&d.0) == fold(name));
            found.ok_or_else(|| {
                let m = format!("window \"{}\" does not exist", fold(name));
                self.at(Error::unknown_object(m), place)
            })
        };
        let mut spec = match over {
            WindowType::WindowSpec(spec) => spec,
            WindowType::NamedWindow(name) => match &find(name)?.1 {
                NamedWindowExpr::WindowSpec(spec) => spec,
                NamedWindowExpr::NamedWindow(_) => {
                    return Err(self.at(Error::syntax("a window is a name and no description"), place));
                }
            },
        };
        let mut found = Spec::of(spec);
        // A window in the WINDOW clause refers only to windows before it, so the loop meets each name once.
        for _ in 0..=named.len() {
            let Some(base) = &spec.window_name else { return Ok(found) };
            let NamedWindowExpr::WindowSpec(next) = &find(base)?.1 else { return Ok(found) };
            if next.window_frame.is_some() {
                let m = format!("cannot copy window \"{}\" because it has a frame clause", fold(base));
                return Err(self.at(Error::windowing(m), place));
            }
            if !spec.partition_by.is_empty() || (!found.order.is_empty() && !next.order_by.is_empty()) {
                let m = format!("cannot override a clause of window \"{}\"", fold(base));
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
        let units = match frame.units {
            WindowFrameUnits::Rows => Units::Rows,
            WindowFrameUnits::Range => Units::Range,
            WindowFrameUnits::Groups => Units::Groups,
        };
        if units == Units::Groups && order.is_empty() {
            return Err(self.at(Error::windowing("GROUPS mode requires an ORDER BY clause"), place));
        }
        let start = match &frame.start_bound {
            WindowFrameBound::Following(None) => {
                return Err(self.at(Error::windowing("frame start cannot be UNBOUNDED FOLLOWING"), place));
            }
            WindowFrameBound::Preceding(None) => Bound::Unbounded,
            bound => self.frame_bound(bound, units, order, place)?,
        };
        let end = match &frame.end_bound {
            Some(WindowFrameBound::Preceding(None)) => {
                return Err(self.at(Error::windowing("frame end cannot be UNBOUNDED PRECEDING"), place));
            }
            Some(WindowFrameBound::Following(None)) => Bound::Unbounded,
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
            None => Ok(WindowFrame { units, start, end, exclude: spec.exclude }),
        }
    }

    fn frame_bound(
        &mut self,
        bound: &WindowFrameBound,
        units: Units,
        order: &[SortKey],
        place: &Ast,
    ) -> Result<Bound> {
        let (offset, preceding) = match bound {
            WindowFrameBound::Preceding(Some(e)) => (e, true),
            WindowFrameBound::Following(Some(e)) => (e, false),
            _ => return Ok(Bound::CurrentRow),
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
