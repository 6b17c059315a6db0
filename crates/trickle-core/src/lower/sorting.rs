//! Lowers the keys of ORDER BY, and keeps the order in which FROM delivers its rows.

use super::Lowerer;
use super::clause::ClauseContext;
use super::relation::RowOrder;
use crate::error::{Error, Result};
use crate::expr::SortKey;
use crate::syntax::{Expr as Ast, OrderItem, Place, Sort};
use crate::types::Type;
use crate::verdict::ReasonKind;

impl Lowerer<'_> {
    pub(super) fn sort_key<'q>(&mut self, key: &'q OrderItem, cx: &mut ClauseContext<'q>) -> Result<SortKey> {
        let expr = self.expr(&key.expr, cx)?;
        let expr = if *expr.ty() == Type::Unknown { self.coerce(expr, &Type::Text)? } else { expr };
        self.sortable(expr.ty(), &key.expr)?;
        let (descending, nulls_first) = self.direction(key)?;
        Ok(SortKey { expr, descending, nulls_first })
    }

    /// Fails if values of the type cannot be sorted.
    pub(super) fn sortable(&self, ty: &Type, place: &Ast) -> Result<()> {
        if ty.is_ordered() {
            return Ok(());
        }
        Err(self.at(self.no_order(ty), place))
    }

    pub(super) fn no_order(&self, ty: &Type) -> Error {
        let e = Error::unknown_function(format!("could not identify an ordering operator for type {ty}"));
        match self.catalog.is_opaque(ty) {
            true => {
                e.doubted(format!("an order of type {ty}"), self.catalog.doubt("", std::slice::from_ref(ty)))
            }
            false => e,
        }
    }

    /// Returns whether a sort key is descending, and whether NULLs come first.
    pub(super) fn direction(&mut self, key: &OrderItem) -> Result<(bool, bool)> {
        let descending = match key.sort {
            Sort::Ascending => false,
            Sort::Descending => true,
            Sort::Using => return Err(self.stop(&key.expr, "ORDER BY … USING")),
        };
        Ok((descending, key.nulls_first.unwrap_or(descending)))
    }

    /// Returns the keys by which the rows of FROM are ordered. The construct `what` depends on this order. If
    /// the rows of FROM lack the columns of this order, a reason is noted.
    pub(super) fn order_of_from(&mut self, what: &str, place: &impl Place) -> Vec<SortKey> {
        match self.frames.last().map(|f| f.order.clone()) {
            Some(RowOrder::By(keys)) => return keys,
            Some(RowOrder::Hidden) => self.hidden_order(what, place),
            _ => {}
        }
        Vec::new()
    }

    /// Notes a construct that depends on the order of its rows, if the rows lack the columns of this order.
    pub(super) fn hidden_order(&mut self, what: &str, place: &impl Place) {
        // A subquery that is only examined is lowered again later. The construct is noted then, if it still
        // needs the order.
        if !self.probing() {
            let help =
                "Write ORDER BY where the order matters: inside the aggregate, in OVER, or beside LIMIT.";
            let construct = format!("{what} over rows in the order of a subquery, which they do not show,");
            self.reason(ReasonKind::NotYet, place, construct, help);
        }
    }

    /// Returns the order of FROM for rows that lack the columns of the order's keys. If FROM has an order,
    /// the result is a hidden order.
    pub(super) fn unshown_order(&self) -> RowOrder<SortKey> {
        self.frames.last().map_or(RowOrder::Any, |f| f.order.map(|_| None))
    }

    /// Sets the order of the rows of FROM.
    pub(super) fn set_order(&mut self, order: RowOrder<SortKey>) {
        if let Some(f) = self.frames.last_mut() {
            f.order = order;
        }
    }
}
