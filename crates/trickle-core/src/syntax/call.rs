//! Calls of functions.

use super::{Expr, Ident, ObjectName, OrderItem, Over, Query, TypeName};

/// A call of a function, an aggregate or a window function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: ObjectName,
    /// The function that computes an aggregate with SQL/JSON syntax, such as `JSON_ARRAYAGG`. If the types of
    /// the arguments decide between json and jsonb, the name contains `?` instead of this word.
    pub(crate) computed_by: Option<String>,
    pub(crate) args: Arguments,
    /// Whether there is a DISTINCT before the arguments.
    pub(crate) distinct: bool,
    /// The ORDER BY after the arguments.
    pub(crate) order_by: Vec<OrderItem>,
    /// The ORDER BY of WITHIN GROUP.
    pub(crate) within_group: Vec<OrderItem>,
    pub(crate) filter: Option<Box<Expr>>,
    /// Whether IGNORE NULLS or RESPECT NULLS follows the call.
    pub(crate) treats_nulls: bool,
    pub(crate) over: Option<Over>,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arguments {
    /// The arguments. The list is also empty for a function that is called without parentheses.
    List(Vec<Argument>),
    /// A query that is the only argument, as in `ARRAY(SELECT …)`.
    Query(Box<Query>),
}

impl Arguments {
    /// Returns the list of arguments; empty for a query.
    pub(crate) fn list(&self) -> &[Argument] {
        match self {
            Arguments::List(list) => list,
            Arguments::Query(_) => &[],
        }
    }
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    Value(Expr),
    /// `VARIADIC array`.
    Variadic(Expr),
    /// `name => value`.
    Named {
        /// The name, or `None` if this part is not a name.
        name: Option<Ident>,
        /// The value, or `None` for `*`.
        value: Option<Expr>,
        /// The argument as messages write it.
        text: String,
    },
    /// `*` or `table.*`.
    Star,
}

/// A call with keywords between its arguments, such as the calls of SQL/JSON and SQL/XML.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    /// The name of the called function, in upper case.
    pub(crate) name: &'static str,
    pub(crate) parts: Vec<FormPart>,
}

/// A part of a call with keywords.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FormPart {
    /// An argument.
    Argument(Expr),
    /// Keywords, a comma, a colon or a parenthesis between arguments.
    Word(&'static str),
    /// A name, with its case folded as by PostgreSQL.
    Name(String),
    /// A type.
    Type(TypeName),
}
