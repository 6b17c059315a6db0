//! Syntax trees of queries.

use super::{Delete, Insert, Merge, Scalar, Update};
use crate::ident::{Ident, Qualified};
use crate::types::Type;

/// `WITH … SELECT … ORDER BY … LIMIT …`
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The common table expressions. Each of them can read the earlier ones.
    pub(crate) ctes: Vec<Cte>,
    /// The query without its common table expressions, ORDER BY and LIMIT.
    pub(crate) body: SetExpr,
    /// `ORDER BY`
    pub(crate) order_by: Vec<OrderBy>,
    /// `LIMIT`, or `FETCH FIRST … ROWS WITH TIES`
    pub(crate) limit: Option<Scalar>,
    /// `WITH TIES`
    pub(crate) with_ties: bool,
    /// `OFFSET`
    pub(crate) offset: Option<Scalar>,
}

/// A common table expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Cte {
    /// The name of the common table expression.
    pub(crate) name: Ident,
    /// The names of the columns. The list is empty where the columns keep their names from the body.
    pub(crate) columns: Vec<Ident>,
    /// `[NOT] MATERIALIZED`. With `None`, PostgreSQL materializes the rows if and only if they are read more
    /// than once.
    pub(crate) materialized: Option<bool>,
    /// The query or statement that computes the rows.
    pub(crate) body: CteBody,
}

/// The body of a common table expression.
#[derive(Clone, Debug, PartialEq)]
pub enum CteBody {
    /// A query that does not read its own common table expression.
    Query(Query),
    /// A query that also reads its own common table expression.
    Recursive(Query),
    /// `INSERT … RETURNING`
    Insert(Insert),
    /// `UPDATE … RETURNING`
    Update(Update),
    /// `DELETE … RETURNING`
    Delete(Delete),
    /// `MERGE … RETURNING`, which PostgreSQL has since version 17
    Merge(Merge),
}

/// A query without ORDER BY and LIMIT.
#[derive(Clone, Debug, PartialEq)]
pub enum SetExpr {
    /// `SELECT`
    Select(Box<Select>),
    /// `VALUES (…), (…)`, with at least one row of at least one column.
    Values(Vec<Vec<Scalar>>),
    /// `a UNION ALL b UNION ALL …`, with at least one operand.
    UnionAll(Vec<SetExpr>),
    /// `a INTERSECT|EXCEPT [ALL] b`
    SetOp {
        /// The operation, such as `INTERSECT`.
        op: SetOperator,
        /// `ALL`
        all: bool,
        /// The left operand.
        left: Box<SetExpr>,
        /// The right operand.
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
    pub(crate) distinct: bool,
    /// The output columns.
    pub(crate) items: Vec<SelectItem>,
    /// The FROM items, which are joined by commas.
    pub(crate) from: Vec<FromItem>,
    /// The conjuncts of WHERE.
    pub(crate) filter: Vec<Scalar>,
    /// `GROUP BY`
    pub(crate) group_by: Vec<Scalar>,
    /// The conjuncts of HAVING.
    pub(crate) having: Vec<Scalar>,
}

/// `expr AS name`
#[derive(Clone, Debug, PartialEq)]
pub struct SelectItem {
    /// The expression that computes the output column.
    pub(crate) expr: Scalar,
    /// The name of the output column.
    pub(crate) name: Option<Ident>,
}

/// `expr [DESC] [NULLS FIRST|LAST]`
#[derive(Clone, Debug, PartialEq)]
pub struct OrderBy {
    /// The sort key.
    pub(crate) expr: Scalar,
    /// `DESC`
    pub(crate) descending: bool,
    /// `NULLS FIRST`
    pub(crate) nulls_first: bool,
}

/// The kind of a join of two FROM items.
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

/// A call of a function in FROM.
#[derive(Clone, Debug, PartialEq)]
pub struct TableCall {
    /// The call of the function.
    pub(crate) call: Scalar,
    /// `AS (name type, …)`: the columns of a function whose caller must define them.
    pub(crate) definition: Vec<(Ident, Type)>,
}

/// An item of FROM.
#[derive(Clone, Debug, PartialEq)]
pub enum FromItem {
    /// A table, view or common table expression.
    Relation {
        /// The name of the relation.
        name: Qualified,
        /// The alias of the relation.
        alias: Ident,
    },
    /// `[LATERAL] (query) AS alias (columns)`
    Subquery {
        /// The query of the subquery.
        query: Box<Query>,
        /// The alias of the subquery.
        alias: Ident,
        /// The names of the columns. The list is empty where the columns keep their names from the query.
        columns: Vec<Ident>,
        /// `LATERAL`
        lateral: bool,
    },
    /// `f(…) AS alias (columns)`, or `ROWS FROM (f(…), …) WITH ORDINALITY AS …`. The arguments may read the
    /// FROM items before this one.
    Function {
        /// The calls. The first rows of all calls form one row of the item, then the second rows, and so on.
        calls: Vec<TableCall>,
        /// `WITH ORDINALITY`
        ordinality: bool,
        /// The alias of the item.
        alias: Ident,
        /// The names of the item's columns.
        columns: Vec<Ident>,
    },
    /// A join of two items with a condition. Only a join of kind [`JoinKind::Cross`] has no condition.
    Join {
        /// The kind of the join.
        kind: JoinKind,
        /// The left item.
        left: Box<FromItem>,
        /// The right item.
        right: Box<FromItem>,
        /// The join condition.
        on: Option<Scalar>,
    },
}

impl Query {
    /// Makes a query with a body, and without common table expressions, ORDER BY and LIMIT.
    pub(crate) fn new(body: SetExpr) -> Query {
        Query { ctes: Vec::new(), body, order_by: Vec::new(), limit: None, with_ties: false, offset: None }
    }
    /// Makes `SELECT …`.
    pub(crate) fn select(select: Select) -> Query {
        Query::new(SetExpr::Select(Box::new(select)))
    }
}

impl SelectItem {
    /// Makes `expr AS name`.
    pub(crate) fn new(expr: Scalar, name: Ident) -> SelectItem {
        SelectItem { expr, name: Some(name) }
    }
}

impl FromItem {
    /// Makes `f(…) AS alias`.
    pub(crate) fn call(call: Scalar, alias: Ident) -> FromItem {
        let calls = vec![TableCall { call, definition: Vec::new() }];
        FromItem::Function { calls, ordinality: false, alias, columns: Vec::new() }
    }
    /// Makes `f(…) AS alias (columns)`.
    pub(crate) fn call_naming(call: Scalar, alias: Ident, columns: Vec<Ident>) -> FromItem {
        let calls = vec![TableCall { call, definition: Vec::new() }];
        FromItem::Function { calls, ordinality: false, alias, columns }
    }
    /// Makes `name AS alias`.
    pub(crate) fn relation(name: Qualified, alias: Ident) -> FromItem {
        FromItem::Relation { name, alias }
    }
}
