//! The first rows of an order, of all or of each partition.

use super::ast::{FromItem, Query, Scalar, SelectItem, SetExpr};
use super::expr::{over, sorted};
use super::fragment::Block;
use super::render::RenderContext;
use crate::agg::AggCall;
use crate::rel::Top;
use crate::types::{Datum, Type};
use crate::window::{OrderKey, WindowCall, WindowFrame, asked, resolve};

impl RenderContext<'_> {
    /// The slice of `block`, whose rows count once. All rows: `ORDER BY … LIMIT`, which an index or a heap of so many rows
    /// serves. Partitions: rows by their number in the partition.
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
        // With ties the leading keys alone decide, and rows beyond the count are equal in them.
        let keys = if slice.ties { asked(top.order()) } else { top.order() };
        // A constant orders nothing, and a bare integer would be the position of a column.
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
        let mut set = super::ident::NameSet::new();
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

fn count(n: u64) -> Scalar {
    Scalar::Literal(Datum::Int(i64::try_from(n).unwrap_or(i64::MAX)), Type::Int8)
}
