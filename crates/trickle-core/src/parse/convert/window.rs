//! Converts windows of calls.

use super::Converter;
use super::names::ident;
use crate::error::{Error, Result};
use crate::parse::forms::excluded;
use crate::syntax::{Frame, FrameBound, NamedWindow, Over, WindowSpec};
use crate::window::{Exclusion, Units};
use sqlparser::ast::{
    self, NamedWindowDefinition, NamedWindowExpr, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowType,
};

impl Converter<'_> {
    pub(super) fn over(&self, over: &WindowType) -> Result<Over> {
        Ok(match over {
            WindowType::WindowSpec(spec) => Over::Spec(self.window_spec(spec)?),
            WindowType::NamedWindow(name) => Over::Named(ident(name)),
        })
    }

    pub(super) fn named_window(&self, window: &NamedWindowDefinition) -> Result<NamedWindow> {
        let NamedWindowDefinition(name, description) = window;
        match description {
            NamedWindowExpr::WindowSpec(spec) => {
                Ok(NamedWindow { name: ident(name), spec: self.window_spec(spec)? })
            }
            NamedWindowExpr::NamedWindow(_) => {
                Err(self.at(Error::syntax("a window is a name and no description"), name.span))
            }
        }
    }

    fn window_spec(&self, spec: &ast::WindowSpec) -> Result<WindowSpec> {
        let (order, exclude) = excluded(&spec.order_by);
        Ok(WindowSpec {
            base: spec.window_name.as_ref().map(ident),
            partition_by: self.exprs(&spec.partition_by)?,
            order_by: self.order_items(order)?,
            frame: spec.window_frame.as_ref().map(|f| self.frame(f, exclude)).transpose()?,
        })
    }

    fn frame(&self, frame: &WindowFrame, exclude: Exclusion) -> Result<Frame> {
        let units = match frame.units {
            WindowFrameUnits::Rows => Units::Rows,
            WindowFrameUnits::Range => Units::Range,
            WindowFrameUnits::Groups => Units::Groups,
        };
        let end = frame.end_bound.as_ref().map(|b| self.frame_bound(b)).transpose()?;
        Ok(Frame { units, start: self.frame_bound(&frame.start_bound)?, end, exclude })
    }

    fn frame_bound(&self, bound: &WindowFrameBound) -> Result<FrameBound> {
        Ok(match bound {
            WindowFrameBound::CurrentRow => FrameBound::CurrentRow,
            WindowFrameBound::Preceding(offset) => {
                FrameBound::Preceding(self.optional_box(offset.as_deref())?)
            }
            WindowFrameBound::Following(offset) => {
                FrameBound::Following(self.optional_box(offset.as_deref())?)
            }
        })
    }
}
