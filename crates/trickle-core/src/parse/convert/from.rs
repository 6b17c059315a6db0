//! Converts FROM.

use super::Converter;
use super::names::{ident, object_name, type_name, word};
use crate::error::{Error, Result};
use crate::parse::forms::{self, form_name, is_alias_mark, is_only, is_rows_from, using_alias};
use crate::parse::source::extent;
use crate::syntax::{
    Alias, AliasColumn, Argument, Constraint, FromItem, Functions, Join, JoinSide, RowsFrom, TableCall,
    TableKind, TableRef,
};
use sqlparser::ast::{
    self, FunctionArg, FunctionArguments, JoinConstraint, JoinOperator, ObjectNamePart, Spanned, TableAlias,
    TableFactor, TableWithJoins,
};

impl Converter<'_> {
    pub(super) fn item_of_from(&self, item: &TableWithJoins) -> Result<FromItem> {
        stacker::maybe_grow(256 << 10, 4 << 20, || {
            Ok(FromItem {
                first: self.table(&item.relation)?,
                joins: item.joins.iter().map(|join| self.join(join)).collect::<Result<_>>()?,
                extent: extent(item.span()),
            })
        })
    }

    fn table(&self, factor: &TableFactor) -> Result<TableRef> {
        let (kind, alias) = match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                with_ordinality: false,
                version: None,
                sample,
                with_hints,
                partitions: _,
                json_path: _,
                index_hints: _,
            } => {
                self.plain(!with_hints.is_empty(), factor)?;
                let (only, sampled) = (is_only(name), sample.is_some());
                (TableKind::Named { name: object_name(name), only, sampled }, alias)
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                let (query, sampled) = (self.boxed_query(subquery)?, sample.is_some());
                (TableKind::Query { query, lateral: *lateral, sampled }, alias)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                (TableKind::Nested(Box::new(self.item_of_from(table_with_joins)?)), alias)
            }
            TableFactor::Table {
                name, alias, args: Some(args), with_ordinality, sample, with_hints, ..
            } => {
                self.plain(sample.is_some() || !with_hints.is_empty(), factor)?;
                let functions = self.functions(name, &args.args, factor)?;
                (TableKind::Functions { functions, ordinality: *with_ordinality }, alias)
            }
            TableFactor::Function { name, args, with_ordinality, alias, lateral: _ } => {
                let functions = self.functions(name, args, factor)?;
                (TableKind::Functions { functions, ordinality: *with_ordinality }, alias)
            }
            TableFactor::UNNEST { alias, array_exprs, with_ordinality, with_offset, .. } => {
                self.plain(*with_offset, factor)?;
                let args = self.exprs(array_exprs)?.into_iter().map(Argument::Value).collect();
                let call = TableCall { name: word("unnest", extent(factor.span())), args };
                let functions = Functions::Call(call);
                (TableKind::Functions { functions, ordinality: *with_ordinality }, alias)
            }
            _ => return self.refused("a FROM item that PostgreSQL does not have", factor),
        };
        Ok(TableRef { kind, alias: alias.as_ref().and_then(alias_of), extent: extent(factor.span()) })
    }

    fn functions(
        &self,
        name: &ast::ObjectName,
        args: &[FunctionArg],
        factor: &TableFactor,
    ) -> Result<Functions> {
        if is_rows_from(name) {
            let rows = args.iter().map(|arg| self.rows_from(arg, factor)).collect::<Result<_>>()?;
            return Ok(Functions::Rows(rows));
        }
        if let Some(form) = form_name(name) {
            return self.form(form, args, factor).map(Functions::Form);
        }
        Ok(Functions::Call(TableCall { name: object_name(name), args: self.table_arguments(args)? }))
    }

    fn rows_from(&self, arg: &FunctionArg, factor: &TableFactor) -> Result<RowsFrom> {
        let call = forms::RowsFrom::of(arg).and_then(|part| match &part.call.args {
            FunctionArguments::List(list) if form_name(&part.call.name).is_none() => {
                Some((&part.call.name, list, part.definition))
            }
            _ => None,
        });
        let Some((name, list, definition)) = call else {
            return self.refused("ROWS FROM takes calls of functions", factor);
        };
        let column =
            |(name, ty): (&ast::Ident, _)| AliasColumn { name: ident(name), ty: Some(type_name(ty)) };
        Ok(RowsFrom {
            call: TableCall { name: object_name(name), args: self.table_arguments(&list.args)? },
            definition: definition.into_iter().map(column).collect(),
        })
    }

    fn join(&self, join: &ast::Join) -> Result<Join> {
        let known = match &join.join_operator {
            JoinOperator::Join(c) | JoinOperator::Inner(c) => Some((JoinSide::Inner, c)),
            JoinOperator::CrossJoin(c) => Some((JoinSide::Inner, c)),
            JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => Some((JoinSide::Left, c)),
            JoinOperator::Right(c) | JoinOperator::RightOuter(c) => Some((JoinSide::Right, c)),
            JoinOperator::FullOuter(c) => Some((JoinSide::Full, c)),
            _ => None,
        };
        let cross = matches!(&join.join_operator, JoinOperator::CrossJoin(_));
        let (side, constraint) = match known {
            Some((_, JoinConstraint::None)) if !cross => {
                let e = Error::syntax("a join without ON or USING").hint("Add ON …, or write CROSS JOIN.");
                return Err(self.at(e, join.relation.span()));
            }
            Some(known) if !join.global => known,
            _ => return self.refused("a join that PostgreSQL does not have", &join.relation),
        };
        let table = self.table(&join.relation)?;
        let constraint = match constraint {
            JoinConstraint::On(e) => Constraint::On(self.expr(e)?),
            JoinConstraint::Using(names) => using(names),
            JoinConstraint::Natural => Constraint::Natural,
            JoinConstraint::None => Constraint::None,
        };
        Ok(Join { side, table, constraint })
    }
}

/// Converts USING. The alias of its columns is the last of the names, after a marker.
fn using(names: &[ast::ObjectName]) -> Constraint {
    let alias = using_alias(names).map(|alias| ident(&alias));
    let columns = &names[..names.len() - usize::from(alias.is_some())];
    let last = |name: &ast::ObjectName| name.0.last().and_then(ObjectNamePart::as_ident).map(ident);
    Constraint::Using { columns: columns.iter().filter_map(last).collect(), alias }
}

/// Converts an alias. Returns `None` for the alias that the rewriting gives to a query in parentheses.
fn alias_of(alias: &TableAlias) -> Option<Alias> {
    (!is_alias_mark(&alias.name)).then(|| converted_alias(alias))
}

pub(super) fn converted_alias(alias: &TableAlias) -> Alias {
    let column = |c: &ast::TableAliasColumnDef| AliasColumn {
        name: ident(&c.name),
        ty: c.data_type.as_ref().map(type_name),
    };
    Alias { name: ident(&alias.name), columns: alias.columns.iter().map(column).collect() }
}
