//! Which of equal values a group shows: the one with the least image ([`Expr::image`]).
//!
//! PostgreSQL shows any of them. So before rows are grouped, those of a group are given the values of the one that is to
//! be shown, and whatever PostgreSQL then picks is that. A window function does so for values of every type, which an
//! aggregate over texts would have to read back, and in the space of a sort, which an array of a group would not. It is
//! there only where a type needs it.

use super::ast::{OrderBy, Scalar, Select, SelectItem, SetOperator};
use super::expr::scalar;
use super::fragment::{Block, Closed, Fragment, Names, Weight};
use super::render::RenderContext;
use crate::agg::AggCall;
use crate::expr::{Expr, ExprKind};
use crate::graph::{Column, NodeId, Schema};
use crate::rel::{identify, image};
use crate::types::Type;

/// The rows that are equal in some values, in an order.
struct Class {
    among: Vec<Scalar>,
    order: Vec<OrderBy>,
}

impl Class {
    fn new(among: &[Expr], order: Vec<Scalar>, columns: &[Scalar]) -> Class {
        // Rows that cannot be sorted by a value are told apart by how it is written.
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

    /// `value` on the first row.
    fn first(&self, value: Scalar) -> Scalar {
        Scalar::First { value: Box::new(value), among: self.among.clone(), order: self.order.clone() }
    }
}

impl RenderContext<'_> {
    /// The rows of `block`, which computes `of`, with one way of writing the columns `keys` for all that are equal there.
    /// `signed`: rows of a weight below 1 are not there.
    pub(crate) fn settled(&mut self, block: Block, of: NodeId, keys: &[usize], signed: bool) -> Block {
        if identify(self.graph(), of, keys) {
            return block;
        }
        let block = self.plain(block, of);
        let gone = signed.then(|| block.weight.scalar().op("<=", Scalar::int4(0)));
        let (schema, mut columns) = (self.graph().schema(of).clone(), block.columns.clone());
        settle(&mut columns, &block, &schema, self.images(of, keys), gone);
        self.with_columns(block, columns, &schema, of)
    }

    /// The same for groups: for their keys, and for the values that the calls pick among equal ones. The calls over the
    /// new block.
    pub(crate) fn settled_groups(
        &mut self,
        block: Block,
        of: NodeId,
        keys: &[usize],
        calls: &[AggCall],
    ) -> (Block, Vec<AggCall>) {
        let picks = |call: &AggCall| call.picked().any(|e| self.image(of, e).is_some());
        if identify(self.graph(), of, keys) && !calls.iter().any(picks) {
            return (block, calls.to_vec());
        }
        let block = self.plain(block, of);
        let schema = self.graph().schema(of);
        let (mut columns, mut wide) = (block.columns.clone(), schema.columns().to_vec());
        if !identify(self.graph(), of, keys) {
            settle(&mut columns, &block, schema, self.images(of, keys), None);
        }
        let keys: Vec<Expr> = keys.iter().map(|k| schema.expr(*k)).collect();
        let mut settled = |call: &AggCall| {
            let counted = |e: &Expr| only_where(call.filter.as_ref(), e.clone());
            let picked: Vec<&Expr> = call.picked().collect();
            let images: Vec<Expr> = picked.iter().filter_map(|e| self.image(of, e)).collect();
            let among: Vec<Expr> = keys.iter().cloned().chain(picked.iter().map(|e| counted(e))).collect();
            let order = images.iter().map(|i| scalar(i, &block.columns)).collect();
            let class = Class::new(&among, order, &block.columns);
            call.map_exprs(|e| {
                if !picked.contains(&e) || self.image(of, e).is_none() {
                    return e.clone();
                }
                columns.push(class.first(scalar(&counted(e), &block.columns)));
                wide.push(Column { label: "shown".into(), ty: e.ty().clone(), nullable: true });
                Expr::column(columns.len() - 1, e.ty().clone())
            })
        };
        let calls = calls.iter().map(&mut settled).collect();
        (self.with_columns(block, columns, &Schema::new(wide), of), calls)
    }

    /// INTERSECT or EXCEPT, of rows of which equal ones may be written differently, as the left side writes them.
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
        // Either side may write a column in ways of its own, even one that the other always writes alike.
        let images = (0..width).map(|c| (c, schema.expr(c).image())).collect();
        settle(&mut columns, &block, &schema, images, Some(right_alone));
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

    /// Columns of `of` with their images.
    fn images(&self, of: NodeId, columns: &[usize]) -> Vec<(usize, Option<Expr>)> {
        columns.iter().map(|c| (*c, image(self.graph(), of, *c))).collect()
    }

    /// The image of an expression over `of`; `None` where equal values of it are written alike.
    fn image(&self, of: NodeId, e: &Expr) -> Option<Expr> {
        e.as_column().map_or_else(|| e.image(), |c| image(self.graph(), of, c))
    }

    /// The block with columns that cost nothing to write several times.
    fn plain(&mut self, block: Block, of: NodeId) -> Block {
        if block.columns.iter().all(Scalar::is_atom) { block } else { self.enclosed(block, of) }
    }

    /// The rows of `block` with these columns instead, written down.
    fn with_columns(&mut self, block: Block, columns: Vec<Scalar>, schema: &Schema, of: NodeId) -> Block {
        let weighted = !block.weight.is_one();
        let closed = Block { columns, ..block }.close(Names::of(schema), weighted);
        self.enclose(closed, of, None)
    }
}

/// Gives all rows that are equal in the columns `keys`, which are given with their images, the values of the first of them
/// there: of those for which `last` is false, the one with the least images.
fn settle(
    columns: &mut [Scalar],
    block: &Block,
    schema: &Schema,
    keys: Vec<(usize, Option<Expr>)>,
    last: Option<Scalar>,
) {
    let exprs: Vec<Expr> = keys.iter().map(|(k, _)| schema.expr(*k)).collect();
    let images = keys.iter().filter_map(|(_, image)| image.as_ref());
    let images = images.map(|i| scalar(i, &block.columns));
    let class = Class::new(&exprs, last.into_iter().chain(images).collect(), &block.columns);
    for (k, _) in keys.iter().filter(|(_, image)| image.is_some()) {
        columns[*k] = class.first(block.columns[*k].clone());
    }
}

/// `e` where the filter is true, NULL elsewhere.
fn only_where(filter: Option<&Expr>, e: Expr) -> Expr {
    let Some(filter) = filter else { return e };
    let (ty, otherwise) = (e.ty().clone(), Expr::null(e.ty().clone()));
    Expr::new(ExprKind::Case { whens: vec![(filter.clone(), e)], otherwise }, ty)
}
