//! Rendering of the first rows in an order. They are the first of all rows, the first of each partition, or
//! the first beyond a value.

use super::ast::{FromItem, OrderBy, Query, Scalar, Select, SelectItem, SetExpr};
use super::condition::Condition;
use super::expr::{over, sorted};
use super::fragment::Block;
use super::render::RenderContext;
use crate::agg::AggCall;
use crate::ident::Ident;
use crate::rel::Top;
use crate::types::{Datum, Type};
use crate::window::{OrderKey, WindowCall, WindowFrame, asked, resolve};

impl RenderContext<'_> {
    /// Renders a slice of `block`, whose rows must have weight 1. A slice of all rows is written as `ORDER BY
    /// … LIMIT`, for which PostgreSQL uses an index, or a heap of as many rows as the limit. A slice of each
    /// partition is written as a condition on the row's number in its partition.
    pub(crate) fn top(&mut self, block: Block, top: &Top) -> Block {
        let slice = top.slice();
        let constant = |k: &OrderKey| matches!(block.columns.get(k.column), Some(Scalar::Literal(..)));
        let tied = slice.ties && (slice.offset > 0 || asked(top.order()).iter().all(constant));
        let numbered = !top.partition().is_empty() || tied;
        if numbered { self.numbered(block, top) } else { self.limited(block, top) }
    }

    fn limited(&mut self, block: Block, top: &Top) -> Block {
        let slice = top.slice();
        let names = self.output();
        // With ties, only the keys of the query's ORDER BY count: a row beyond the limit is returned if it
        // equals the last row in these keys.
        let keys = if slice.ties { asked(top.order()) } else { top.order() };
        // A constant key does not change the order, and an integer constant would be read as the position of
        // a column.
        let constant = |k: &&OrderKey| matches!(block.columns.get(k.column), Some(Scalar::Literal(..)));
        let order_by = sorted(keys.iter().filter(|k| !constant(k)), &block.columns);
        let closed = block.close(names.clone(), false);
        let query = Query {
            order_by,
            limit: slice.limit.map(count),
            with_ties: slice.ties,
            offset: (slice.offset > 0).then(|| count(slice.offset)),
            ..Query::new(closed.set)
        };
        let alias = self.alias("first_rows");
        let item = FromItem::Subquery {
            query: Box::new(query),
            alias: alias.clone(),
            columns: Vec::new(),
            lateral: false,
        };
        Block::reading(item, &alias, &names.columns)
    }

    fn numbered(&mut self, block: Block, top: &Top) -> Block {
        let slice = top.slice();
        let names = self.output();
        let mut set = crate::ident::NameSet::new();
        names.columns.iter().for_each(|c| set.reserve(c.clone()));
        let (place, rank) = (set.fresh("place"), set.fresh("rank"));
        let number = |name: &str, keys: &[OrderKey]| {
            let call =
                resolve(name, &[]).map_or_else(AggCall::count_star, |sig| AggCall::new(sig, Vec::new()));
            let call = WindowCall { call, frame: WindowFrame::default() };
            over(&call, top.partition(), keys, &block.columns)
        };
        let mut items: Vec<SelectItem> = block
            .columns
            .iter()
            .zip(&names.columns)
            .map(|(c, n)| SelectItem::new(c.clone(), n.clone()))
            .collect();
        items.push(SelectItem::new(number("row_number", top.order()), place.clone()));
        if slice.ties {
            items.push(SelectItem::new(number("rank", asked(top.order())), rank.clone()));
        }
        let query = Query::new(SetExpr::Select(Box::new(block.select(items))));
        let alias = self.alias("numbered");
        let item = FromItem::Subquery {
            query: Box::new(query),
            alias: alias.clone(),
            columns: Vec::new(),
            lateral: false,
        };
        let mut block = Block::reading(item, &alias, &names.columns);
        let column = |name| Scalar::column(&alias, name);
        if slice.offset > 0 {
            block.filter.push(column(&place).op(">", count(slice.offset)));
        }
        if let Some(limit) = slice.limit {
            let last = count(slice.offset.saturating_add(limit));
            let by = if slice.ties { &rank } else { &place };
            block.filter.push(column(by).op("<=", last));
        }
        block
    }
}

impl RenderContext<'_> {
    /// Returns one value for each pattern of `on`: the end of a range after it is widened by `by` values. The
    /// values are those in column `value` of `rows`. They are counted downwards (`<`) or upwards (`>`),
    /// starting beyond column `end` of `range`. The result is NULL where the pattern has no value beyond
    /// `end`. PostgreSQL reads an index on the partition and the value only up to the returned value.
    pub(crate) fn nth_beyond(
        &mut self,
        (range, end, op): (&[Scalar], usize, &'static str),
        rows: &Block,
        on: &Condition,
        (value, by): (usize, u64),
    ) -> Vec<Scalar> {
        let descending = op == "<";
        let mut found = Vec::new();
        for index in 0..on.patterns() {
            let mut rows = self.copy_block(rows);
            let pattern = on.pattern(index, &[range, &rows.columns].concat());
            let expr = rows.columns[value].clone();
            // Rows outside of the pattern are excluded before they are searched.
            let about = pattern.nulls.into_iter().chain(pattern.not_nulls);
            rows.filter.extend(about.chain(pattern.both));
            rows.filter.push(expr.clone().op(op, range[end].clone()));
            let (alias, name) = (self.alias("next_values"), Ident::fixed("value"));
            let mut select = rows.select(vec![SelectItem::new(expr.clone(), name.clone())]);
            select.distinct = true;
            let query = Query {
                order_by: vec![OrderBy { expr, descending, nulls_first: descending }],
                limit: Some(count(by)),
                ..Query::select(select)
            };
            let last = if descending { "min" } else { "max" };
            let last = Scalar::aggregate(last, vec![Scalar::column(&alias, &name)]);
            let item =
                FromItem::Subquery { query: Box::new(query), alias, columns: Vec::new(), lateral: false };
            let select =
                Select { items: vec![SelectItem::new(last, name)], from: vec![item], ..Select::default() };
            found.push(Scalar::Subquery(Box::new(Query::select(select))));
        }
        found
    }
}

fn count(n: u64) -> Scalar {
    Scalar::Literal(Datum::Int(i64::try_from(n).unwrap_or(i64::MAX)), Type::Int8)
}
