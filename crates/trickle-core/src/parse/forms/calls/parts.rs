//! Reads the calls that the rewriting made: the name of the call, and its parts.

use super::keywords::known;
use super::{AGGREGATE, CALLS, FORM, NAME, OVER_QUERY, TYPE};
use crate::parse::forms::MARK;
use sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart,
};

/// A part of a call with keywords.
pub(in crate::parse) enum FormPart<'q> {
    /// An argument.
    Argument(&'q Expr),
    /// Keywords, a comma, a colon or a parenthesis between arguments.
    Word(&'static str),
    /// A name, with its case folded as by PostgreSQL.
    Name(&'q str),
    /// A type.
    Type(&'q DataType),
}

/// Returns the name, in upper case, of a call that was rewritten from a call with keywords. Returns `None`
/// for any other call.
pub(in crate::parse) fn form_name(called: &ObjectName) -> Option<&'static str> {
    one_of_calls(marked(called)?.strip_prefix(FORM)?)
}

/// Returns the name of a call that had a query as its argument, such as `JSON_ARRAY(SELECT …)`. Returns
/// `None` for any other call. The rewriting leaves out the query.
pub(in crate::parse) fn form_over_query(called: &ObjectName) -> Option<&'static str> {
    one_of_calls(marked(called)?.strip_prefix(OVER_QUERY)?)
}

fn one_of_calls(name: &str) -> Option<&'static str> {
    CALLS.into_iter().find(|call| call.eq_ignore_ascii_case(name))
}

/// Returns the parts of a rewritten call. Returns `None` if the rewriting cannot have made one of the
/// arguments.
pub(in crate::parse) fn form_parts(args: &[FunctionArg]) -> Option<Vec<FormPart<'_>>> {
    fn part(arg: &FunctionArg) -> Option<FormPart<'_>> {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg else { return None };
        Some(match e {
            Expr::Identifier(Ident { value, .. }) if value.starts_with(MARK) => {
                match value.strip_prefix(NAME) {
                    Some(given) => FormPart::Name(given),
                    None => FormPart::Word(known(value.strip_prefix(MARK)?)?),
                }
            }
            Expr::Function(f) if marked(&f.name) == Some(TYPE) => FormPart::Type(type_of(f)?),
            other => FormPart::Argument(other),
        })
    }
    args.iter().map(part).collect()
}

/// Returns the name of an aggregate in SQL/JSON syntax, and the name of the function that computes the
/// aggregate. If the arguments decide between json and jsonb, the function's name contains `?` instead of
/// this word.
pub(in crate::parse) fn json_aggregate(called: &ObjectName) -> Option<(&str, &str)> {
    marked(called)?.strip_prefix(AGGREGATE)?.split_once(' ')
}

fn marked(called: &ObjectName) -> Option<&str> {
    match called.0.as_slice() {
        [ObjectNamePart::Identifier(i)] if i.value.starts_with(MARK) => Some(&i.value),
        _ => None,
    }
}

fn type_of(f: &Function) -> Option<&DataType> {
    let FunctionArguments::List(list) = &f.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Cast { data_type, .. }))] => Some(data_type),
        _ => None,
    }
}
