//! Rendering of function calls in FROM.

use super::ast::{FromItem, JoinKind, Scalar, TableCall};
use super::expr::function;
use super::fragment::Block;
use super::render::RenderContext;
use crate::ident::{Ident, NameSet};
use crate::rel::Expand;

impl RenderContext<'_> {
    /// Joins the rows of a block with the rows that function calls return. The calls may read the FROM items
    /// of the block.
    pub(crate) fn expanded(&mut self, block: Block, e: &Expand) -> Block {
        let mut names = NameSet::new();
        let width = block.columns.len();
        let own = self.schema().columns().iter().skip(width);
        let columns: Vec<Ident> = own.map(|c| names.fresh_like(&Ident::from(&c.label))).collect();
        let mut block =
            if e.is_outer() && block.from.is_empty() { self.enclosed(block, e.input()) } else { block };
        let calls = e.calls().iter().map(|c| TableCall {
            call: function(&c.sig, &c.args, &block.columns),
            definition: match c.defined {
                true => c.sig.columns.iter().map(Ident::from).zip(c.types().iter().cloned()).collect(),
                false => Vec::new(),
            },
        });
        let alias = self.alias(e.calls().first().map_or("rows", |c| &*c.sig.name));
        let item = FromItem::Function {
            calls: calls.collect(),
            ordinality: e.has_ordinality(),
            alias: alias.clone(),
            columns: columns.clone(),
        };
        match block.tree() {
            Some(left) if e.is_outer() => {
                let (left, right) = (Box::new(left), Box::new(item));
                let on = Some(Scalar::bool(true));
                block.from = vec![FromItem::Join { kind: JoinKind::Left, left, right, on }];
            }
            _ => block.from.push(item),
        }
        block.columns.extend(columns.iter().map(|c| Scalar::column(&alias, c)));
        block
    }
}
