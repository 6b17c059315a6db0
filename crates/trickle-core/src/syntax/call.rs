//! Calls of functions.

use super::{Expr, Ident, ObjectName, OrderItem, Over, Query, TypeName};

/// A call of a function, an aggregate or a window function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: ObjectName,
    /// The function that computes an aggregate with SQL/JSON syntax, such as `JSON_ARRAYAGG`. Its name
    /// contains `?` where the types of the arguments decide between json and jsonb.
    pub(crate) computed_by: Option<String>,
    pub(crate) args: Arguments,
    /// Whether DISTINCT stands before the arguments.
    pub(crate) distinct: bool,
    /// The ORDER BY behind the arguments.
    pub(crate) order_by: Vec<OrderItem>,
    /// The ORDER BY of WITHIN GROUP.
    pub(crate) within_group: Vec<OrderItem>,
    pub(crate) filter: Option<Box<Expr>>,
    /// Whether IGNORE NULLS or RESPECT NULLS stands behind the call.
    pub(crate) treats_nulls: bool,
    pub(crate) over: Option<Over>,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arguments {
    /// The arguments; none also for a function that is called without parentheses.
    List(Vec<Argument>),
    /// A query without parentheses of its own.
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
        /// The name; `None` if anything but a name stands there.
        name: Option<Ident>,
        /// The value; `None` for `*`.
        value: Option<Expr>,
        /// The argument in the spelling of messages.
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
    /// A name, folded as PostgreSQL folds it.
    Name(String),
    /// A type.
    Type(TypeName),
}
