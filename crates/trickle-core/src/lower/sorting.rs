//! Keeps the order in which FROM delivers its rows.

use super::Lowerer;
use super::relation::RowOrder;
use crate::expr::SortKey;
use crate::syntax::Place;
use crate::verdict::ReasonKind;

impl Lowerer<'_> {
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
