//! Converts SELECT.

use super::Converter;
use super::names::{ident, object_name};
use crate::error::{Error, Result};
use crate::parse::source::extent;
use crate::syntax::{Distinct, Select, SelectItem};
use sqlparser::ast::{
    self, SelectFlavor, SelectItemQualifiedWildcardKind as Qualifier, Spanned, WildcardAdditionalOptions,
};

impl Converter<'_> {
    pub(super) fn select(&self, s: &ast::Select) -> Result<Select> {
        self.select_clauses(s)?;
        Ok(Select {
            distinct: match &s.distinct {
                Some(ast::Distinct::Distinct) => Some(Distinct::Rows),
                Some(ast::Distinct::On(on)) => Some(Distinct::On(self.exprs(on)?)),
                Some(ast::Distinct::All) | None => None,
            },
            group_by: self.group_by(s)?,
            from: s.from.iter().map(|item| self.item_of_from(item)).collect::<Result<_>>()?,
            selection: self.optional(s.selection.as_ref())?,
            items: s.projection.iter().map(|item| self.select_item(item)).collect::<Result<_>>()?,
            having: self.optional(s.having.as_ref())?,
            windows: s.named_window.iter().map(|w| self.named_window(w)).collect::<Result<_>>()?,
            extent: extent(s.span()),
        })
    }

    /// Refuses clauses that PostgreSQL does not have, and INTO.
    fn select_clauses(&self, s: &ast::Select) -> Result<()> {
        if let Some(into) = &s.into {
            let e = Error::syntax("SELECT INTO makes a table and is no query");
            let e = e.hint("Leave INTO out; the stream table gets its name elsewhere.");
            return Err(self.at(e, into.targets.first().map_or_else(|| s.span(), Spanned::span)));
        }
        let foreign = s.select_modifiers.is_some()
            || s.top.is_some()
            || s.exclude.is_some()
            || !s.lateral_views.is_empty()
            || s.prewhere.is_some()
            || !s.connect_by.is_empty()
            || !s.cluster_by.is_empty()
            || !s.distribute_by.is_empty()
            || !s.sort_by.is_empty()
            || s.qualify.is_some()
            || s.value_table_mode.is_some()
            || s.flavor != SelectFlavor::Standard;
        self.plain(foreign, s)
    }

    fn select_item(&self, item: &ast::SelectItem) -> Result<SelectItem> {
        let at = extent(item.span());
        Ok(match item {
            ast::SelectItem::UnnamedExpr(e) => SelectItem::Value { expr: self.expr(e)?, alias: None },
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                SelectItem::Value { expr: self.expr(expr)?, alias: Some(ident(alias)) }
            }
            ast::SelectItem::Wildcard(options) => {
                self.check_wildcard(options, item)?;
                SelectItem::Star(at)
            }
            ast::SelectItem::QualifiedWildcard(Qualifier::ObjectName(name), options) => {
                self.check_wildcard(options, item)?;
                SelectItem::TableStar(object_name(name), at)
            }
            ast::SelectItem::QualifiedWildcard(Qualifier::Expr(e), options) => {
                self.check_wildcard(options, item)?;
                SelectItem::FieldsStar(self.expr(e)?, at)
            }
            ast::SelectItem::ExprWithAliases { .. } => {
                return self.refused("one expression has several aliases", item);
            }
        })
    }

    fn check_wildcard(&self, o: &WildcardAdditionalOptions, item: &ast::SelectItem) -> Result<()> {
        let plain = o.opt_ilike.is_none()
            && o.opt_exclude.is_none()
            && o.opt_except.is_none()
            && o.opt_replace.is_none()
            && o.opt_rename.is_none()
            && o.opt_alias.is_none();
        if plain { Ok(()) } else { self.refused("PostgreSQL's * takes no options", item) }
    }
}
