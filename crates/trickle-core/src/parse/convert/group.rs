//! Converts GROUP BY.

use super::Converter;
use crate::error::Result;
use crate::parse::forms::{self, is_group_distinct};
use crate::parse::source::extent;
use crate::syntax::{Expr, GroupBy, GroupItem, GroupSets};
use sqlparser::ast::{self, Expr as Ast, GroupByExpr, Spanned};

impl Converter<'_> {
    pub(super) fn group_by(&self, s: &ast::Select) -> Result<GroupBy> {
        let items = match &s.group_by {
            GroupByExpr::All(_) => {
                return self.refused("GROUP BY ALL is not known to every PostgreSQL", s);
            }
            GroupByExpr::Expressions(_, modifiers) if !modifiers.is_empty() => {
                return self.refused("GROUP BY … WITH is not PostgreSQL", s);
            }
            GroupByExpr::Expressions(items, _) => items,
        };
        let distinct = items.iter().any(is_group_distinct);
        let items = items.iter().filter(|item| !is_group_distinct(item));
        Ok(GroupBy { distinct, items: items.map(|item| self.group_item(item)).collect::<Result<_>>()? })
    }

    fn group_item(&self, item: &Ast) -> Result<GroupItem> {
        match forms::GroupItem::of(item) {
            Some(read) => Ok(GroupItem { sets: self.group_sets(read)?, extent: extent(item.span()) }),
            None => self.refused("grouping sets hold expressions alone", item),
        }
    }

    fn group_sets(&self, item: forms::GroupItem<'_>) -> Result<GroupSets> {
        let parts = |parts: Vec<Vec<&Ast>>| {
            parts.into_iter().map(|keys| self.exprs(keys)).collect::<Result<Vec<Vec<Expr>>>>()
        };
        Ok(match item {
            forms::GroupItem::Set(keys) => GroupSets::Set(self.exprs(keys)?),
            forms::GroupItem::Sets(items) => {
                GroupSets::Sets(items.into_iter().map(|i| self.group_sets(i)).collect::<Result<_>>()?)
            }
            forms::GroupItem::Rollup(all) => GroupSets::Rollup(parts(all)?),
            forms::GroupItem::Cube(all) => GroupSets::Cube(parts(all)?),
        })
    }
}
