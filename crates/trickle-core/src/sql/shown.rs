//! Chooses the value of a group when the group has several equal values: the value with the least image
//! ([`Expr::image`]).
//!
//! Without this choice, PostgreSQL may return any of the equal values. Before rows are grouped, all rows of a
//! group therefore get the values of one chosen row. PostgreSQL then has no other value to return. The chosen
//! row is found by a window function, which takes values of every type and needs the space of a sort. An
//! aggregate over texts would have to convert texts back to values. An array of each group would need more
//! space. The window is rendered only where equal values of a type may have different images.

use super::ast::{OrderBy, Scalar, Select, SelectItem, SetOperator};
use super::expr::scalar;
use super::fragment::{Block, Closed, Fragment, Names, Weight};
use super::render::RenderContext;
use crate::agg::AggCall;
use crate::expr::{Expr, ExprKind, Subscript};
use crate::graph::{Column, NodeId, Schema};
use crate::rel::{identify, image};
use crate::types::Type;

/// A class of rows that agree on the values `among`. The rows of the class are ordered by `order`.
struct Class {
    among: Vec<Scalar>,
    order: Vec<OrderBy>,
}

impl Class {
    fn new(among: &[Expr], order: Vec<Scalar>, columns: &[Scalar]) -> Class {
        // Values of a type that has no order are grouped by their text.
        let sortable = |e: &Expr| match scalar(e, columns) {
            value if e.ty().is_ordered() => value,
            value => value.cast(Type::Text),
        };
        let ascending = |expr| OrderBy { expr, descending: false, nulls_first: false };
        Class {
            among: among.iter().map(sortable).collect(),
            order: order.into_iter().map(ascending).collect(),
        }
    }

    /// Returns an expression for `value` in the first row of the class.
    fn first(&self, value: Scalar) -> Scalar {
        Scalar::first(value, self.among.clone(), self.order.clone())
    }
}

impl RenderContext<'_> {
    /// Returns the rows of `block`, where all equal rows get the same image. The block computes the node
    /// `of`. With `signed`, rows with a weight below 1 count as absent.
    pub(crate) fn settled_rows(&mut self, block: Block, of: NodeId, signed: bool) -> Block {
        let all: Vec<usize> = (0..block.columns.len()).collect();
        let (mut block, keys) = self.settled_keys(block, of, &all, signed);
        block.columns = keys.iter().filter_map(|k| block.columns.get(*k)).cloned().collect();
        block
    }

    /// Appends copies of the columns `keys` to `block`. Rows that are equal in `keys` have the same image in
    /// the copies. Returns the new block, and the positions of the copies.
    pub(crate) fn settled_keys(
        &mut self,
        block: Block,
        of: NodeId,
        keys: &[usize],
        signed: bool,
    ) -> (Block, Vec<usize>) {
        let (block, keys, _) = self.settled_groups(block, of, keys, &[], signed);
        (block, keys)
    }

    /// Gives all rows of a group the same image in the keys. Where `calls` pick one of several equal values,
    /// these values get the same image too. Returns the new block, the positions of the keys in the new
    /// block, and the calls over its columns.
    pub(crate) fn settled_groups(
        &mut self,
        block: Block,
        of: NodeId,
        keys: &[usize],
        calls: &[AggCall],
        signed: bool,
    ) -> (Block, Vec<usize>, Vec<AggCall>) {
        let told = identify(self.graph(), of, keys);
        if told && !calls.iter().any(|call| self.picks(of, call)) {
            return (block, keys.to_vec(), calls.to_vec());
        }
        let block = self.plain(block, of);
        let schema = self.graph().schema(of);
        let (mut columns, mut wide) = (block.columns.clone(), schema.columns().to_vec());
        let mut shown = keys.to_vec();
        if !told {
            let images: Vec<Option<Expr>> = keys.iter().map(|k| image(self.graph(), of, *k)).collect();
            let gone = signed.then(|| block.weight.scalar().op("<=", Scalar::int4(0)));
            for (i, first) in settled(&block, schema, keys, &images, gone) {
                columns.push(first);
                wide.push(wide[keys[i]].clone());
                shown[i] = columns.len() - 1;
            }
        }
        let keys: Vec<Expr> = keys.iter().map(|k| schema.expr(*k)).collect();
        let mut settled = |call: &AggCall| {
            if !self.picks(of, call) {
                return call.clone();
            }
            let counted = |e: &Expr| only_where(call.filter.as_ref(), e.clone());
            let picked: Vec<&Expr> = call.picked().collect();
            let images: Vec<Expr> = picked.iter().filter_map(|e| self.image(of, e)).collect();
            let among: Vec<Expr> = keys.iter().cloned().chain(picked.iter().map(|e| counted(e))).collect();
            let order = images.iter().map(|i| scalar(i, &block.columns)).collect();
            let class = Class::new(&among, order, &block.columns);
            // If a call has DISTINCT, each key of its ORDER BY must be an argument. A key that is equal to an
            // argument, but is another expression, would be an error.
            let mut made: Vec<(&Expr, usize)> = Vec::new();
            for e in &picked {
                if self.image(of, e).is_some() && made.iter().all(|(known, _)| known != e) {
                    made.push((e, columns.len()));
                    columns.push(class.first(scalar(&counted(e), &block.columns)));
                    wide.push(Column { label: "shown".into(), ty: e.ty().clone(), nullable: true });
                }
            }
            let shown = |e: &Expr| made.iter().find(|(known, _)| *known == e).map(|(_, c)| *c);
            call.map_exprs(|e| shown(e).map_or_else(|| e.clone(), |c| Expr::column(c, e.ty().clone())))
        };
        let calls = calls.iter().map(&mut settled).collect();
        (self.with_columns(block, columns, &Schema::new(wide), of), shown, calls)
    }

    /// Renders INTERSECT or EXCEPT where equal rows may have different images. The rows of the result have
    /// images from the left input.
    pub(crate) fn set_op_by_value(
        &mut self,
        op: SetOperator,
        all: bool,
        (left, l): (Fragment, NodeId),
        (right, r): (Fragment, NodeId),
    ) -> Closed {
        let schema = self.graph().schema(l).clone();
        let sides = ["l", "r"].map(|label| Column { label: label.into(), ty: Type::Int8, nullable: false });
        let (width, wide) = (schema.len(), Schema::new(schema.columns().iter().cloned().chain(sides)));
        let mut side = |fragment: Fragment, of: NodeId, is_left: bool| {
            let mut block = self.open(fragment, of);
            let weight = std::mem::replace(&mut block.weight, Weight::one()).scalar();
            let (l, r) = if is_left { (weight, Scalar::int8(0)) } else { (Scalar::int8(0), weight) };
            block.columns.extend([l, r]);
            block
        };
        let arms = vec![side(left, l, true), side(right, r, false)];
        let both = self.union(arms, Names::of(&wide), false);
        let block = self.enclose(both, l, None);
        let mut columns = block.columns.clone();
        let right_alone = block.columns[width].clone().equals(Scalar::int4(0));
        let keys: Vec<usize> = (0..width).collect();
        // A column of one input may have several images for a value even if the other input's column has only
        // one image.
        let images: Vec<Option<Expr>> = keys.iter().map(|c| schema.expr(*c).image()).collect();
        for (c, first) in settled(&block, &schema, &keys, &images, Some(right_alone)) {
            columns[c] = first;
        }
        let block = self.with_columns(block, columns, &wide, l);

        let sum = |i: usize| Scalar::aggregate("sum", vec![block.columns[width + i].clone()]);
        let none = || Scalar::int4(0);
        let (l, r) = (sum(0), sum(1));
        let (weight, having) = match (op, all) {
            (SetOperator::Except, true) => (l.clone().op("-", r.clone()), vec![l.op(">", r)]),
            (SetOperator::Except, false) => (none(), vec![l.op(">", none()), r.equals(none())]),
            (_, true) => {
                let least = Scalar::Special(super::ast::SpecialCall::Least, vec![l, r]);
                (least.clone(), vec![least.op(">", none())])
            }
            (_, false) => (none(), vec![l.op(">", none()), r.op(">", none())]),
        };
        let names = self.output();
        let values = block.columns.iter().take(width).cloned();
        let mut items: Vec<SelectItem> =
            values.zip(&names.columns).map(|(value, name)| SelectItem::new(value, name.clone())).collect();
        if all {
            items.push(SelectItem::new(weight.cast(Type::Int8), names.weight.clone()));
        }
        let group_by = (1i32..).take(width).map(Scalar::int4).collect();
        Closed::select(Select { group_by, having, ..block.select(items) }, names, all)
    }

    /// Returns the image of an expression over the node `of`. Returns `None` where equal values of the
    /// expression always have the same image.
    fn image(&self, of: NodeId, e: &Expr) -> Option<Expr> {
        e.as_column().map_or_else(|| e.image(), |c| image(self.graph(), of, c))
    }

    /// Whether the call may pick any of several equal values, and these values may have different images.
    fn picks(&self, of: NodeId, call: &AggCall) -> bool {
        ranked(call).is_none() && call.picked().any(|e| self.image(of, e).is_some())
    }

    /// Returns an equal block whose columns are plain columns or constants. Using such columns several times
    /// costs nothing.
    fn plain(&mut self, block: Block, of: NodeId) -> Block {
        if block.columns.iter().all(Scalar::is_atom) { block } else { self.enclosed(block, of) }
    }

    /// Replaces the columns of `block`, and returns a block that reads the result.
    fn with_columns(&mut self, block: Block, columns: Vec<Scalar>, schema: &Schema, of: NodeId) -> Block {
        let weighted = !block.weight.is_one();
        let closed = Block { columns, ..block }.close(Names::of(schema), weighted);
        self.enclose(closed, of, None)
    }
}

/// Returns one value for each column of `keys` whose equal values may have different images. All rows with
/// equal `keys` get this value. The value is taken from the first row in the order by `last` (false first),
/// then by the images.
fn settled(
    block: &Block,
    schema: &Schema,
    keys: &[usize],
    images: &[Option<Expr>],
    last: Option<Scalar>,
) -> Vec<(usize, Scalar)> {
    let among: Vec<Expr> = keys.iter().map(|k| schema.expr(*k)).collect();
    let order = images.iter().flatten().map(|i| scalar(i, &block.columns));
    let class = Class::new(&among, last.into_iter().chain(order).collect(), &block.columns);
    let open = (0..keys.len()).filter(|i| images[*i].is_some());
    open.map(|i| (i, class.first(block.columns[keys[i]].clone()))).collect()
}

/// Returns two numbers for `min` and `max` of inexact numbers: the number that is compared, and a second
/// number that orders equal numbers by image.
fn ranked(call: &AggCall) -> Option<(&Expr, Expr)> {
    let value = call.args.first().filter(|e| call.is_extremum() && !e.is_exact())?;
    value.rank().map(|rank| (value, rank))
}

/// Renders `min` or `max` of numbers of an inexact type. Pairs of the two numbers that [`ranked`] returns
/// compare in the correct order, so no sort is needed.
pub(super) fn extreme(call: &AggCall, columns: &[Scalar]) -> Option<Scalar> {
    let (value, rank) = ranked(call)?;
    let (value, rank) = (scalar(value, columns), scalar(&rank, columns));
    let greatest = &*call.sig.name == "max";
    let rank = if greatest { rank.minus() } else { rank };
    let counted = call.filter.as_ref().map(|f| scalar(f, columns));
    let filter = Scalar::and([value.clone().is_not_null()].into_iter().chain(counted));
    let pair = vec![Scalar::Array(vec![value, rank])];
    let mut pair = Scalar::aggregate(if greatest { "max" } else { "min" }, pair);
    if let Scalar::Aggregate(call) = &mut pair {
        call.filter = Some(Box::new(filter));
    }
    Some(Scalar::Subscript(Box::new(pair), vec![Subscript::Index(Scalar::int4(1))]))
}

/// Returns an expression that has the value of `e` where the filter is true, and NULL elsewhere.
fn only_where(filter: Option<&Expr>, e: Expr) -> Expr {
    let Some(filter) = filter else { return e };
    let (ty, otherwise) = (e.ty().clone(), Expr::null(e.ty().clone()));
    Expr::new(ExprKind::Case { whens: vec![(filter.clone(), e)], otherwise }, ty)
}
