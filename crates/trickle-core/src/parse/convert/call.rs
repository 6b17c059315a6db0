//! Converts calls of functions.

use super::Converter;
use super::names::{ident, object_name, type_name, word};
use crate::error::{Error, Result};
use crate::parse::arrays::is_array_of_query;
use crate::parse::forms::{self, form_name, form_over_query, form_parts, json_aggregate, variadic};
use crate::parse::source::extent;
use crate::syntax::{Argument, Arguments, Call, Expr, Form, FormPart, Node};
use sqlparser::ast::{
    self, DuplicateTreatment, Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, OrderByExpr, Spanned,
};

/// Converts a call without parentheses, which the parser crate reads as a column.
pub(super) fn bare(name: &ast::Ident) -> Option<Node> {
    let is = |called: &&str| name.quote_style.is_none() && name.value.eq_ignore_ascii_case(called);
    let called = ["current_role", "current_schema"].into_iter().find(is)?;
    Some(Node::Call(Box::new(Call {
        name: word(called, extent(name.span)),
        computed_by: None,
        args: Arguments::List(Vec::new()),
        distinct: false,
        order_by: Vec::new(),
        within_group: Vec::new(),
        filter: None,
        treats_nulls: false,
        over: None,
    })))
}

impl Converter<'_> {
    pub(super) fn function(&self, f: &Function, e: &Ast) -> Result<Node> {
        if let Some(name) = form_over_query(&f.name) {
            return Ok(Node::FormOverQuery(name));
        }
        if let Some(name) = form_name(&f.name) {
            return self.called_form(name, f, e).map(Node::Form);
        }
        let call = Node::Call(Box::new(self.call(f)?));
        Ok(match is_array_of_query(f) {
            true => Node::ArrayOfQuery(Box::new(Expr { node: call, extent: extent(e.span()) })),
            false => call,
        })
    }

    fn call(&self, f: &Function) -> Result<Call> {
        let foreign = f.uses_odbc_syntax || f.parameters != FunctionArguments::None;
        self.plain(foreign, f)?;
        let (args, clauses, duplicates) = match &f.args {
            FunctionArguments::None => (Arguments::List(Vec::new()), &[][..], None),
            FunctionArguments::Subquery(q) => (Arguments::Query(self.boxed_query(q)?), &[][..], None),
            FunctionArguments::List(list) => {
                let args = list.args.iter().map(|a| self.argument(a)).collect::<Result<_>>()?;
                (Arguments::List(args), list.clauses.as_slice(), list.duplicate_treatment)
            }
        };
        let (name, computed_by) = match json_aggregate(&f.name) {
            Some((called, function)) => (word(called, extent(f.name.span())), Some(function.to_owned())),
            None => (object_name(&f.name), None),
        };
        Ok(Call {
            name,
            computed_by,
            args,
            distinct: duplicates == Some(DuplicateTreatment::Distinct),
            order_by: self.order_items(self.sort_keys(clauses, f)?)?,
            within_group: self.order_items(&f.within_group)?,
            filter: self.optional_box(f.filter.as_deref())?,
            treats_nulls: f.null_treatment.is_some(),
            over: f.over.as_ref().map(|over| self.over(over)).transpose()?,
        })
    }

    /// Returns the keys of ORDER BY behind the arguments of a call.
    fn sort_keys<'c>(
        &self,
        clauses: &'c [FunctionArgumentClause],
        f: &Function,
    ) -> Result<&'c [OrderByExpr]> {
        let mut found: &[OrderByExpr] = &[];
        for clause in clauses {
            match clause {
                FunctionArgumentClause::OrderBy(keys) if found.is_empty() => found = keys,
                _ => self.plain(true, f)?,
            }
        }
        Ok(found)
    }

    fn argument(&self, arg: &FunctionArg) -> Result<Argument> {
        if let Some(array) = variadic(arg) {
            return Ok(Argument::Variadic(self.expr(array)?));
        }
        let (name, value) = match arg {
            FunctionArg::Unnamed(value) => {
                return Ok(match value {
                    FunctionArgExpr::Expr(e) => Argument::Value(self.expr(e)?),
                    FunctionArgExpr::QualifiedWildcard(table) => {
                        let (node, extent) = (Node::WholeRow(object_name(table)), extent(table.span()));
                        Argument::Value(Expr { node, extent })
                    }
                    FunctionArgExpr::Wildcard => Argument::Star,
                    FunctionArgExpr::WildcardWithOptions(_) => {
                        return self.refused("PostgreSQL's * takes no options", arg);
                    }
                });
            }
            FunctionArg::Named { name, arg, .. }
            | FunctionArg::ExprNamed { name: Ast::Identifier(name), arg, .. } => (Some(name), arg),
            FunctionArg::ExprNamed { arg, .. } => (None, arg),
        };
        let value = match value {
            FunctionArgExpr::Expr(e) => Some(self.expr(e)?),
            FunctionArgExpr::QualifiedWildcard(_)
            | FunctionArgExpr::Wildcard
            | FunctionArgExpr::WildcardWithOptions(_) => None,
        };
        Ok(Argument::Named { name: name.map(ident), value, text: arg.to_string() })
    }

    /// Converts the arguments of a function in FROM, where `t.*` is not a row value.
    pub(super) fn table_arguments(&self, args: &[FunctionArg]) -> Result<Vec<Argument>> {
        let star =
            |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(_)));
        args.iter().map(|arg| if star(arg) { Ok(Argument::Star) } else { self.argument(arg) }).collect()
    }

    fn called_form(&self, name: &'static str, f: &Function, e: &Ast) -> Result<Form> {
        let FunctionArguments::List(list) = &f.args else {
            return self.refused(format!("{name} is not called so"), e);
        };
        if !name.ends_with("AGG") && !is_plain(f, list) {
            return Err(self.at(Error::wrong_object(format!("{name} is no aggregate")), e.span()));
        }
        self.form(name, &list.args, e)
    }

    /// Converts a call with keywords between its arguments.
    pub(super) fn form(
        &self,
        name: &'static str,
        args: &[FunctionArg],
        place: &impl Spanned,
    ) -> Result<Form> {
        let Some(parts) = form_parts(args) else {
            return self.refused(format!("{name} is not called so"), place);
        };
        let part = |part: forms::FormPart<'_>| {
            Ok(match part {
                forms::FormPart::Argument(e) => FormPart::Argument(self.expr(e)?),
                forms::FormPart::Word(words) => FormPart::Word(words),
                forms::FormPart::Name(name) => FormPart::Name(name.to_owned()),
                forms::FormPart::Type(ty) => FormPart::Type(type_name(ty)),
            })
        };
        Ok(Form { name, parts: parts.into_iter().map(part).collect::<Result<_>>()? })
    }
}

/// Whether a call has only a name and arguments.
fn is_plain(f: &Function, list: &FunctionArgumentList) -> bool {
    f.over.is_none()
        && f.filter.is_none()
        && f.within_group.is_empty()
        && list.duplicate_treatment.is_none()
        && list.clauses.is_empty()
}
