//! Columns of enclosing queries, and the expressions by which a subquery reads them.

use super::Lowerer;
use super::slot::{Slot, reads_outer};
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind};
use crate::graph::NodeId;
use crate::types::Type;

/// A column of the FROM of an enclosing SELECT.
#[derive(Clone, Debug)]
pub(super) struct Outer {
    pub(super) frame: usize,
    pub(super) column: usize,
    pub(super) ty: Type,
    /// Whether the reference is to the column's image. A subquery may tell equal values apart, so its domain
    /// has both the value and the image of a column.
    pub(super) image: bool,
}

impl Outer {
    pub(super) fn is(&self, frame: usize, column: usize) -> bool {
        self.frame == frame && self.column == column && !self.image
    }
}

/// The distinct values of the outer columns that a subquery uses.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) refs: Vec<Outer>,
    /// The relation of these values, with one column per reference. `None` if `refs` is empty.
    pub(super) node: Option<NodeId>,
}

impl Domain {
    pub(super) fn none() -> Domain {
        Domain { refs: Vec::new(), node: None }
    }
    pub(super) fn width(&self) -> usize {
        self.refs.len()
    }
}

impl Lowerer<'_> {
    /// Returns the expression by which this SELECT reads a value over the columns of an enclosing SELECT.
    pub(super) fn outer(&mut self, frame: usize, e: &Expr) -> Result<Expr> {
        let mut failed = None;
        let out = e.rewrite(&mut |node| match node.kind() {
            ExprKind::Column(c) => match self.outer_column(frame, *c, node.ty()) {
                Ok(e) => e,
                Err(e) => {
                    failed.get_or_insert(e);
                    node
                }
            },
            _ => node,
        });
        failed.map_or(Ok(out), Err)
    }

    pub(super) fn outer_column(&mut self, frame: usize, column: usize, ty: &Type) -> Result<Expr> {
        if self.probing() {
            for p in self.probes.iter_mut().filter(|p| frame < p.base) {
                if !p.free.iter().any(|o| o.is(frame, column)) {
                    let image = Expr::column(column, ty.clone()).image().is_some();
                    let outer = |image| Outer { frame, column, ty: ty.clone(), image };
                    p.free.extend([false, true].into_iter().filter(|i| !i || image).map(outer));
                }
            }
        }
        let top = self.frames.len() - 1;
        if let Some(p) = self.frames[top].refs.iter().position(|o| o.is(frame, column)) {
            return Ok(Expr::column(p, ty.clone()));
        }
        if self.probing() {
            return Ok(Expr::null(ty.clone()));
        }
        if self.frames[top].direct && top > 0 {
            let place = match frame + 1 == top {
                true => Some(column),
                false => self.frames[top - 1].refs.iter().position(|o| o.is(frame, column)),
            };
            if let Some(p) = place {
                return Ok(Slot::Outer(p).expr(ty.clone()));
            }
        }
        for f in &mut self.frames[frame + 1..] {
            f.direct_failed |= f.direct;
        }
        Err(Error::internal("an outer column is not at hand"))
    }

    /// Returns a column of an enclosing SELECT or of this SELECT, as a value over the FROM of this SELECT.
    pub(super) fn here(&mut self, outer: &Outer) -> Result<Expr> {
        let value = self.value_here(outer)?;
        match value.image() {
            Some(image) if outer.image => Ok(image),
            _ => Ok(value),
        }
    }

    fn value_here(&mut self, outer: &Outer) -> Result<Expr> {
        if outer.frame + 1 == self.frames.len() {
            return Ok(Expr::column(outer.column, outer.ty.clone()));
        }
        match self.outer_column(outer.frame, outer.column, &outer.ty)? {
            e if reads_outer(&e) => {
                if let Some(top) = self.frames.last_mut() {
                    top.direct_failed = true;
                }
                Err(Error::internal("an outer column is not at hand"))
            }
            e => Ok(e),
        }
    }
}
