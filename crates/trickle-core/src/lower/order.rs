//! Derives order keys that tell rows apart.

use super::Lowerer;
use super::window::Windowed;
use crate::expr::Expr;
use crate::graph::{ColSet, NodeId, Schema};
use crate::types::Type;
use crate::verdict::ReasonKind;
use crate::window::{Order, OrderKey, Units};
use std::collections::BTreeSet;

impl Lowerer<'_> {
    /// Returns the order keys of a window function call. If the call depends on an order that ORDER BY leaves
    /// undetermined, keys that tell the rows apart are added. The added keys are a key of the rows, or else
    /// all columns that the query reads. Without ORDER BY, the order of FROM is added before these keys. If
    /// the call also depends on where a group of peers ends, further keys would change the peers. In that
    /// case a reason is noted instead.
    pub(super) fn settled_order(
        &mut self,
        node: NodeId,
        w: &Windowed<'_>,
        partition: &[usize],
        order: Vec<OrderKey>,
        used: &BTreeSet<usize>,
        table: &mut Columns,
    ) -> Vec<OrderKey> {
        let sees = w.call.order();
        let given: ColSet = partition.iter().copied().chain(order.iter().map(|k| k.column)).collect();
        let given: ColSet = given.iter().filter(|c| *c < table.schema.len()).collect();
        let exact = |c: usize| table.schema.column(c).is_some_and(|c| c.ty.is_exact());
        if sees == Order::Peers || self.graph.props(node).is_key(&given) {
            return order;
        }
        if sees == Order::Both {
            // Peers that agree in all columns that the call reads are interchangeable. If the frame counts
            // rows, the call has a separate value for each peer. Interchangeable peers must then agree in all
            // columns that the query reads.
            let read: BTreeSet<usize> = match w.call.frame.units {
                Units::Rows => used.clone(),
                Units::Range | Units::Groups => w.call.exprs().flat_map(Expr::columns).collect(),
            };
            if read.iter().all(|c| given.contains(*c) && exact(*c)) {
                return order;
            }
            let name = &w.call.call.sig.name;
            let construct =
                format!("{name}() over a frame that ends among rows which ORDER BY leaves in any order");
            let help =
                "Add columns to ORDER BY that tell the rows apart, or count ROWS instead of RANGE or GROUPS.";
            self.reason(ReasonKind::NotYet, w.place, construct, help);
            return order;
        }
        let mut order = order;
        if order.is_empty() {
            for k in self.order_of_from(&format!("{}()", w.call.call.sig.name), w.place) {
                let (column, descending, nulls_first) = (table.place(&k.expr), k.descending, k.nulls_first);
                if !order.iter().any(|known| known.column == column) {
                    order.push(OrderKey { column, descending, nulls_first, settles: true });
                }
            }
        }
        self.telling_apart(node, partition, order, used, table)
    }

    /// Returns the order keys, followed by keys that tell the rows apart: a key of the rows, or else the
    /// columns `used`.
    pub(super) fn telling_apart(
        &self,
        node: NodeId,
        partition: &[usize],
        order: Vec<OrderKey>,
        used: &BTreeSet<usize>,
        table: &mut Columns,
    ) -> Vec<OrderKey> {
        let given: ColSet = partition.iter().copied().chain(order.iter().map(|k| k.column)).collect();
        let given: ColSet = given.iter().filter(|c| *c < table.schema.len()).collect();
        let mut order = order;
        let mut add = |column: usize| {
            if !order.iter().any(|k| k.column == column) {
                order.push(OrderKey::settling(column));
            }
        };
        let props = self.graph.props(node);
        if props.is_key(&given) {
            return order;
        }
        let sortable = |k: &&ColSet| k.iter().all(|c| table.schema.columns()[c].ty.is_ordered());
        if let Some(key) = props.keys.iter().filter(sortable).min_by_key(|k| (k.len(), (*k).clone())) {
            key.iter().filter(|c| !given.contains(*c)).for_each(&mut add);
            return order;
        }
        for c in used {
            let column = table.schema.expr(*c);
            if !column.ty().is_ordered() {
                add(table.place(&column.cast(Type::Text)));
                continue;
            }
            if !partition.contains(c) {
                add(*c);
            }
            if let Some(image) = column.image() {
                add(table.place(&image));
            }
        }
        order
    }
}

/// The columns of a relation, and additional computed expressions.
pub(super) struct Columns {
    schema: Schema,
    all: Vec<Expr>,
}

impl Columns {
    pub(super) fn of(schema: Schema) -> Columns {
        Columns { all: schema.identity(), schema }
    }
    pub(super) fn len(&self) -> usize {
        self.schema.len()
    }
    pub(super) fn column_type(&self, column: usize) -> &Type {
        self.schema.column(column).map_or(&Type::Unknown, |c| &c.ty)
    }
    /// Returns all columns if some of them are computed, else `None`.
    pub(super) fn computed(self) -> Option<Vec<Expr>> {
        (self.all.len() > self.schema.len()).then_some(self.all)
    }

    /// Returns the column that holds the value of `e`.
    pub(super) fn place(&mut self, e: &Expr) -> usize {
        if let Some(c) = e.as_column() {
            return c;
        }
        self.all.iter().position(|known| known == e).unwrap_or_else(|| {
            self.all.push(e.clone());
            self.all.len() - 1
        })
    }
}
