//! Rendering of closed queries: groupings, sums of relations, set operations.

use super::ast::{Query, Scalar, Select, SelectItem, SetExpr, SetOperator};
use super::expr::scalar;
use super::fragment::{Block, Body, Closed, Fragment, Names, Weight};
use super::render::{RenderContext, rename};
use crate::agg::Acc;
use crate::expr::{Expr, Subscript};
use crate::graph::{NodeId, Schema};
use crate::ident::Ident;
use crate::types::{Datum, Numeric, Type};

/// Renders `Σ w × value` over the rows of a group that pass the accumulator's filter. The result is 0 where
/// no row passes.
pub(crate) fn accumulator(acc: &Acc, block: &Block, grouped: bool) -> Scalar {
    let filter = acc.filter.as_ref().map(|f| Box::new(scalar(f, &block.columns)));
    let never_null = match &acc.value {
        None => block.weight.is_one() || (grouped && filter.is_none()),
        Some(_) => false,
    };
    let mut sum = match &acc.value {
        None if block.weight.is_one() => Scalar::aggregate("count", Vec::new()),
        None => Scalar::aggregate("sum", vec![block.weight.scalar()]),
        Some(value) if block.weight.is_one() => Scalar::aggregate("sum", vec![scalar(value, &block.columns)]),
        Some(value) => {
            let wide = match value.ty() {
                // A sum of bigints may overflow in type `bigint`, but not in type `numeric`.
                Type::Int8 => scalar(value, &block.columns).cast(Type::Numeric(None)),
                _ => scalar(value, &block.columns),
            };
            Scalar::aggregate("sum", vec![block.weight.scalar().op("*", wide)])
        }
    };
    if let Scalar::Aggregate(call) = &mut sum {
        call.filter = filter;
    }
    let zero = match acc.zero() {
        Datum::Numeric(n) if *n != Numeric::from(0) => Scalar::Literal(Datum::Numeric(n), acc.ty.clone()),
        _ => Scalar::int4(0),
    };
    let total = if never_null { sum } else { sum.coalesce(zero) };
    // The aggregate `count` returns a `bigint`, so no cast is needed.
    if acc.value.is_none() && block.weight.is_one() { total } else { total.cast(acc.ty.clone()) }
}

/// The criterion by which two rows count as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Same {
    /// Two rows are the same if they are equal under `=`, with NULL equal to NULL.
    Value,
    /// Two rows are the same if they have the same images.
    Image,
}

/// Returns an expression that has different values for equal values with different images. Returns `None`
/// where equal values of the type always have the same image. The expression is rendered from
/// [`Expr::image`].
pub(crate) fn image(value: Scalar, ty: &Type) -> Option<Scalar> {
    if ty.is_exact() {
        return None;
    }
    Expr::column(0, ty.clone()).image().map(|image| scalar(&image, &[value]))
}

/// Returns the text of an expression over a column, with different values for equal values of the column with
/// different images. Returns `None` where equal values of the type always have the same image.
pub fn image_of(column: Ident, ty: &Type) -> Option<String> {
    image(Scalar::Column { table: None, name: column }, ty).map(|image| image.to_string())
}

/// Returns the condition that two values of a type differ in value or in image.
pub(crate) fn differs(a: Scalar, b: Scalar, ty: &Type, nullable: bool) -> Scalar {
    let differ = |a: Scalar, b: Scalar| match nullable {
        true => a.same_as(b).negated(),
        // For a type that is not built in, the engine knows only the operator `=`.
        false if matches!(ty, Type::Other(_)) => a.equals(b).negated(),
        false => a.op("<>", b),
    };
    if !ty.has_equality() {
        return differ(a.cast(Type::Text), b.cast(Type::Text));
    }
    let images = image(a.clone(), ty).zip(image(b.clone(), ty)).map(|(a, b)| differ(a, b));
    Scalar::or([differ(a, b)].into_iter().chain(images))
}

/// Returns the value of a column in a group that has at most one row. Without a row, the value is NULL.
/// Arrays are converted to text and back, since `array_agg` of arrays would return an array of two
/// dimensions.
fn only(value: Scalar, ty: &Type) -> Scalar {
    let first = |v: Scalar| {
        let all = Scalar::aggregate("array_agg", vec![v]);
        Scalar::Subscript(Box::new(all), vec![Subscript::Index(Scalar::int4(1))])
    };
    match ty {
        Type::Array(_) => first(value.cast(Type::Text)).cast(ty.clone()),
        _ => first(value),
    }
}

impl RenderContext<'_> {
    /// Renders `SELECT keys, values … GROUP BY keys HAVING having`. The columns have the names of the node
    /// that is being rendered. The query groups by the positions of output columns. A constant or an
    /// expression is thus written and computed only once.
    pub(crate) fn grouped(
        &mut self,
        block: Block,
        keys: &[usize],
        values: Vec<Scalar>,
        mut having: Vec<Scalar>,
    ) -> Closed {
        let names = self.output();
        if keys.is_empty() && values.is_empty() {
            // If no value contains an aggregate, only a HAVING makes the query return one group.
            having.push(Scalar::bool(true));
        }
        let keyed = keys.iter().filter_map(|k| block.columns.get(*k)).cloned();
        let items: Vec<SelectItem> = keyed
            .chain(values)
            .zip(&names.columns)
            .map(|(value, name)| SelectItem::new(value, name.clone()))
            .collect();
        let group_by = (1i32..).take(keys.len()).map(Scalar::int4).collect();
        Closed::select(Select { group_by, having, ..block.select(items) }, names, false)
    }

    /// Appends the values of window function calls to the columns of a block. Each row of the block must have
    /// weight 1.
    pub(crate) fn windowed(&mut self, block: Block, values: Vec<Scalar>) -> Closed {
        let names = self.output();
        let columns = block.columns.iter().cloned().chain(values);
        let items = columns.zip(&names.columns).map(|(v, name)| SelectItem::new(v, name.clone())).collect();
        Closed::select(block.select(items), names, false)
    }

    /// Merges the rows that are the same by the criterion `same`, and adds up their weights. A row stays if
    /// its sum satisfies `sum op 0`; other rows are dropped. Values of a column without an equality operator
    /// are grouped by their text, and converted back from the text. Values that can only be sorted are
    /// grouped by their text too, if another column can only be hashed.
    pub(crate) fn merged(&mut self, block: Block, of: NodeId, same: Same, op: &'static str) -> Closed {
        let schema: &Schema = self.graph().schema(of);
        let names = Names::of(schema);
        let mut group_by = Vec::new();
        let mut items = Vec::new();
        // PostgreSQL groups either by sorting or by hashing. If one column's type can only be hashed, columns
        // of exact types that can only be sorted are grouped by their text.
        let hashed = schema.columns().iter().any(|c| c.ty.has_equality() && !c.ty.is_ordered());
        for (((position, column), value), name) in
            (1i32..).zip(schema.columns()).zip(&block.columns).zip(&names.columns)
        {
            let by_value =
                column.ty.has_equality() && !(hashed && column.ty.is_exact() && !column.ty.is_hashable());
            if by_value {
                items.push(SelectItem::new(value.clone(), name.clone()));
                group_by.push(Scalar::int4(position));
                if same == Same::Image {
                    group_by.extend(image(value.clone(), &column.ty));
                }
            } else {
                let image = value.clone().cast(Type::Text);
                items.push(SelectItem::new(image.clone().cast(column.ty.clone()), name.clone()));
                group_by.push(image);
            }
        }
        items.push(SelectItem::new(block.weight.total(), names.weight.clone()));
        let having = vec![block.weight.sum().op(op, Scalar::int4(0))];
        Closed::select(Select { group_by, having, ..block.select(items) }, names, true)
    }

    /// Returns a fragment that has each row of node `of` once, with its whole weight.
    pub(crate) fn consolidate(&mut self, fragment: Fragment, of: NodeId) -> Fragment {
        if fragment.consolidated {
            return fragment;
        }
        let positive = fragment.positive;
        let block = self.open(fragment, of);
        Fragment::closed(self.merged(block, of, Same::Image, "<>"), positive, true)
    }

    /// Renders one row for each value of the first `keys` columns: the only input row with this value, and
    /// whether there are several such rows. With `once`, each value has at most one input row.
    pub(crate) fn single(&mut self, block: Block, of: NodeId, keys: usize, once: bool) -> Body {
        if once && keys > 0 {
            let columns = block.columns.iter().cloned().chain([Scalar::bool(false)]).collect();
            return Body::Open(Block { weight: Weight::one(), columns, ..block });
        }
        if once && block.columns.len() == 1 {
            let unit = self.unit(block, of);
            let items = unit.columns.iter().map(|c| SelectItem { expr: c.clone(), name: None }).collect();
            let value = Scalar::Subquery(Box::new(Query::select(unit.select(items))));
            return Body::Open(Block {
                from: Vec::new(),
                filter: Vec::new(),
                columns: vec![value, Scalar::bool(false)],
                weight: Weight::one(),
            });
        }
        let rows = block.weight.sum();
        let rows = if keys == 0 && !block.weight.is_one() { rows.coalesce(Scalar::int4(0)) } else { rows };
        let many = if once { Scalar::bool(false) } else { rows.op(">", Scalar::int4(1)) };
        let value = |v: Scalar, ty: &Type| match (once, only(v, ty)) {
            (true, first) => first,
            (false, first) => {
                let whens = vec![(many.clone(), Scalar::null(ty.clone()))];
                Scalar::Case { whens, otherwise: Some(Box::new(first)) }
            }
        };
        let columns = self.graph().schema(of).columns().iter().zip(&block.columns).skip(keys);
        let values = columns.map(|(c, v)| value(v.clone(), &c.ty)).chain([many.clone()]).collect();
        let keys: Vec<usize> = (0..keys).collect();
        Body::Closed(self.grouped(block, &keys, values, Vec::new()))
    }

    /// Returns the sum of blocks that have the same columns. A weight column has the type `bigint` in every
    /// block.
    pub(crate) fn union(&mut self, arms: Vec<Block>, names: Names, weighted: bool) -> Closed {
        let sets = arms.into_iter().map(|b| b.under(&names, weighted)).collect();
        Closed { set: SetExpr::UnionAll(sets), names, weighted }
    }

    /// Returns the sum of fragments. Each fragment computes the node that is paired with it.
    pub(crate) fn union_all(&mut self, inputs: Vec<(Fragment, &NodeId)>) -> Closed {
        let names = self.output();
        let weighted = inputs.iter().any(|(f, _)| f.is_weighted());
        let mut sets = Vec::new();
        for (fragment, of) in inputs {
            match fragment.body {
                Body::Closed(closed) if closed.weighted == weighted => {
                    match rename(closed.set, &names, weighted) {
                        SetExpr::UnionAll(arms) => sets.extend(arms),
                        other => sets.push(other),
                    }
                }
                _ => {
                    let block = self.open(fragment, *of);
                    sets.push(block.under(&names, weighted));
                }
            }
        }
        Closed { set: SetExpr::UnionAll(sets), names, weighted }
    }

    /// Renders INTERSECT or EXCEPT of two blocks with positive weights. Without ALL, weights are ignored.
    /// With ALL, each row is repeated as often as its weight says.
    pub(crate) fn set_op(
        &mut self,
        op: SetOperator,
        all: bool,
        (left, l): (Fragment, NodeId),
        (right, r): (Fragment, NodeId),
    ) -> Closed {
        let names = self.output();
        let mut side = |fragment: Fragment, of: NodeId| {
            let mut block = self.open(fragment, of);
            if all {
                block = self.unit(block, of);
            } else {
                block.weight = Weight::one();
            }
            Box::new(block.under(&names, false))
        };
        let (left, right) = (side(left, l), side(right, r));
        Closed { set: SetExpr::SetOp { op, all, left, right }, names, weighted: false }
    }
}
