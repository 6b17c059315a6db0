//! Queries.

use super::{Delete, Insert, Merge, Scalar, Update};
use crate::sql::ident::{Ident, Qualified};
use crate::types::Type;

/// `WITH … SELECT … ORDER BY … LIMIT …`
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Common table expressions; each may read those before it.
    pub ctes: Vec<Cte>,
    /// The query itself.
    pub body: SetExpr,
    /// `ORDER BY`
    pub order_by: Vec<OrderBy>,
    /// `LIMIT`, or `FETCH FIRST … ROWS WITH TIES`
    pub limit: Option<Scalar>,
    /// `WITH TIES`
    pub with_ties: bool,
    /// `OFFSET`
    pub offset: Option<Scalar>,
}

/// One common table expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Cte {
    /// Its name.
    pub name: Ident,
    /// The column names; empty to keep the names of the body.
    pub columns: Vec<Ident>,
    /// `[NOT] MATERIALIZED`; `None` leaves the choice to PostgreSQL, which materializes iff it is read more
    /// than once.
    pub materialized: Option<bool>,
    /// The query or statement.
    pub body: CteBody,
}

/// The body of a common table expression.
#[derive(Clone, Debug, PartialEq)]
pub enum CteBody {
    /// A query.
    Query(Query),
    /// A query that reads the common table expression itself.
    Recursive(Query),
    /// `INSERT … RETURNING`
    Insert(Insert),
    /// `UPDATE … RETURNING`
    Update(Update),
    /// `DELETE … RETURNING`
    Delete(Delete),
    /// `MERGE … RETURNING` (17)
    Merge(Merge),
}

/// A query without ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub enum SetExpr {
    /// `SELECT`
    Select(Box<Select>),
    /// `VALUES (…), (…)`; at least one row of at least one column.
    Values(Vec<Vec<Scalar>>),
    /// `a UNION ALL b UNION ALL …`; at least one arm.
    UnionAll(Vec<SetExpr>),
    /// `a INTERSECT|EXCEPT [ALL] b`
    SetOp {
        /// The operation.
        op: SetOperator,
        /// `ALL`
        all: bool,
        /// Left side.
        left: Box<SetExpr>,
        /// Right side.
        right: Box<SetExpr>,
    },
}

/// A set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperator {
    /// `UNION`
    Union,
    /// `INTERSECT`
    Intersect,
    /// `EXCEPT`
    Except,
}

/// `SELECT … FROM … WHERE … GROUP BY … HAVING …`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Select {
    /// `DISTINCT`
    pub distinct: bool,
    /// Output columns.
    pub items: Vec<SelectItem>,
    /// FROM items, joined by commas.
    pub from: Vec<FromItem>,
    /// Conjuncts of WHERE.
    pub filter: Vec<Scalar>,
    /// `GROUP BY`
    pub group_by: Vec<Scalar>,
    /// Conjuncts of HAVING.
    pub having: Vec<Scalar>,
}

/// `expr AS name`
#[derive(Clone, Debug, PartialEq)]
pub struct SelectItem {
    /// The expression.
    pub expr: Scalar,
    /// The output name.
    pub name: Option<Ident>,
}

/// `expr [DESC] [NULLS FIRST|LAST]`
#[derive(Clone, Debug, PartialEq)]
pub struct OrderBy {
    /// The sort key.
    pub expr: Scalar,
    /// `DESC`
    pub descending: bool,
    /// `NULLS FIRST`
    pub nulls_first: bool,
}

/// How two FROM items are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// `JOIN`
    Inner,
    /// `LEFT JOIN`
    Left,
    /// `FULL JOIN`
    Full,
    /// `CROSS JOIN`
    Cross,
}

/// A call in FROM.
#[derive(Clone, Debug, PartialEq)]
pub struct TableCall {
    /// The call.
    pub call: Scalar,
    /// `AS (name type, …)`: the columns, where the function leaves them to its caller.
    pub definition: Vec<(Ident, Type)>,
}

/// An item of FROM.
#[derive(Clone, Debug, PartialEq)]
pub enum FromItem {
    /// A table, view or common table expression.
    Relation {
        /// Its name.
        name: Qualified,
        /// Its alias.
        alias: Ident,
    },
    /// `[LATERAL] (query) AS alias (columns)`
    Subquery {
        /// The query.
        query: Box<Query>,
        /// Its alias.
        alias: Ident,
        /// The column names; empty to keep the names of the query.
        columns: Vec<Ident>,
        /// `LATERAL`
        lateral: bool,
    },
    /// `f(…) AS alias (columns)`, or `ROWS FROM (f(…), …) WITH ORDINALITY AS …`. It may read the items before
    /// it.
    Function {
        /// The calls.
        calls: Vec<TableCall>,
        /// `WITH ORDINALITY`
        ordinality: bool,
        /// Its alias.
        alias: Ident,
        /// Column names.
        columns: Vec<Ident>,
    },
    /// A join with its condition (none only for [`JoinKind::Cross`]).
    Join {
        /// Kind.
        kind: JoinKind,
        /// Left side.
        left: Box<FromItem>,
        /// Right side.
        right: Box<FromItem>,
        /// Condition.
        on: Option<Scalar>,
    },
}

impl Query {
    /// Makes a query that consists of a body alone.
    pub fn new(body: SetExpr) -> Query {
        Query { ctes: Vec::new(), body, order_by: Vec::new(), limit: None, with_ties: false, offset: None }
    }
    /// Makes `SELECT …`.
    pub fn select(select: Select) -> Query {
        Query::new(SetExpr::Select(Box::new(select)))
    }
}

impl SelectItem {
    /// Makes `expr AS name`.
    pub fn new(expr: Scalar, name: Ident) -> SelectItem {
        SelectItem { expr, name: Some(name) }
    }
}

impl FromItem {
    /// Makes `f(…) AS alias`.
    pub fn call(call: Scalar, alias: Ident) -> FromItem {
        let calls = vec![TableCall { call, definition: Vec::new() }];
        FromItem::Function { calls, ordinality: false, alias, columns: Vec::new() }
    }
    /// Makes a call with names for its columns.
    pub fn call_naming(call: Scalar, alias: Ident, columns: Vec<Ident>) -> FromItem {
        let calls = vec![TableCall { call, definition: Vec::new() }];
        FromItem::Function { calls, ordinality: false, alias, columns }
    }
    /// Makes a relation under an alias.
    pub fn relation(name: Qualified, alias: Ident) -> FromItem {
        FromItem::Relation { name, alias }
    }
}
