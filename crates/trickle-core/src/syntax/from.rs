//! FROM: tables, joins, and functions that return rows.

use super::{Argument, Expr, Extent, Form, Ident, ObjectName, Query, TypeName};

/// An item of FROM: a table, and the tables that are joined to it one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FromItem {
    pub(crate) first: TableRef,
    pub(crate) joins: Vec<Join>,
    pub(crate) extent: Extent,
}

/// A table, a query, functions, or an item of FROM in parentheses, with its alias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableRef {
    pub(crate) kind: TableKind,
    pub(crate) alias: Option<Alias>,
    pub(crate) extent: Extent,
}

/// The kind of a table reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TableKind {
    Named {
        name: ObjectName,
        /// Whether there is an ONLY before the name.
        only: bool,
        /// Whether TABLESAMPLE follows.
        sampled: bool,
    },
    Query {
        query: Box<Query>,
        lateral: bool,
        sampled: bool,
    },
    /// A join in parentheses.
    Nested(Box<FromItem>),
    Functions {
        functions: Functions,
        /// Whether WITH ORDINALITY follows.
        ordinality: bool,
    },
}

/// The functions of one table reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Functions {
    Call(TableCall),
    /// `ROWS FROM (…)`.
    Rows(Vec<RowsFrom>),
    /// A call that has a special grammar, such as `JSON_TABLE`.
    Form(Form),
}

/// A call of a function in FROM.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableCall {
    pub(crate) name: ObjectName,
    pub(crate) args: Vec<Argument>,
}

/// A call inside `ROWS FROM (…)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowsFrom {
    pub(crate) call: TableCall,
    /// The column definition list `AS (name type, …)`.
    pub(crate) definition: Vec<AliasColumn>,
}

/// `AS name (columns)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Alias {
    pub(crate) name: Ident,
    pub(crate) columns: Vec<AliasColumn>,
}

/// A column of an alias. Only in a column definition list does the column have a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AliasColumn {
    pub(crate) name: Ident,
    pub(crate) ty: Option<TypeName>,
}

/// A join with one more table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Join {
    pub(crate) side: JoinSide,
    pub(crate) table: TableRef,
    pub(crate) constraint: Constraint,
}

/// The operands of a join that keep rows without a partner: none, the left, the right, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinSide {
    Inner,
    Left,
    Right,
    Full,
}

/// The condition of a join.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constraint {
    On(Expr),
    Using {
        columns: Vec<Ident>,
        /// The alias of the merged columns.
        alias: Option<Ident>,
    },
    Natural,
    /// No condition, as in CROSS JOIN.
    None,
}
