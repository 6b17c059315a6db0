//! Queries: WITH, the body, and the clauses after it.

use super::{Alias, Expr, Extent, Ident, Place, Select};

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Query {
    pub(crate) with: Option<With>,
    pub(crate) body: Body,
    pub(crate) order_by: Vec<OrderItem>,
    /// LIMIT and OFFSET. `None` if there is neither, and for `LIMIT ALL`.
    pub(crate) limit: Option<Limit>,
    pub(crate) fetch: Option<Fetch>,
    /// Whether the query locks rows, as with FOR UPDATE.
    pub(crate) locks: bool,
    /// The clause SEARCH after the query of a CTE.
    pub(crate) search: Option<Search>,
    /// The clause CYCLE after the query of a CTE.
    pub(crate) cycle: Option<Cycle>,
    pub(crate) extent: Extent,
}

/// The body of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Select(Box<Select>),
    /// A query in parentheses.
    Query(Box<Query>),
    SetOperation(Box<SetOperation>),
    Values(Values),
    /// A statement that changes data.
    Write(Write),
}

impl Place for Body {
    fn extent(&self) -> Extent {
        match self {
            Body::Select(s) => s.extent,
            Body::Query(q) => q.extent,
            Body::SetOperation(s) => s.extent,
            Body::Values(v) => v.extent,
            Body::Write(w) => w.extent,
        }
    }
}

/// UNION, INTERSECT or EXCEPT of two bodies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SetOperation {
    pub(crate) left: Body,
    pub(crate) op: SetOperator,
    /// Whether duplicate rows count, as with ALL.
    pub(crate) all: bool,
    pub(crate) right: Body,
    pub(crate) extent: Extent,
}

/// The operator between two bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOperator {
    Union,
    Intersect,
    Except,
}

/// `VALUES (…), (…)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Values {
    pub(crate) rows: Vec<Vec<Expr>>,
    pub(crate) extent: Extent,
}

/// A statement that changes data, by its first keyword.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) keyword: &'static str,
    pub(crate) extent: Extent,
}

/// WITH before a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct With {
    pub(crate) recursive: bool,
    pub(crate) ctes: Vec<Cte>,
}

/// A common table expression, an item of WITH.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cte {
    pub(crate) alias: Alias,
    pub(crate) query: Box<Query>,
}

/// A key of an ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OrderItem {
    pub(crate) expr: Expr,
    pub(crate) sort: Sort,
    /// Whether NULLs come first. `None` if the key does not say.
    pub(crate) nulls_first: Option<bool>,
}

/// The direction of a sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Ascending,
    Descending,
    /// `USING operator`.
    Using,
}

/// LIMIT and OFFSET.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) count: Option<Expr>,
    pub(crate) offset: Option<Expr>,
}

/// `FETCH FIRST quantity ROWS ONLY`, or WITH TIES instead of ONLY. If the quantity is missing, it is one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fetch {
    pub(crate) quantity: Option<Expr>,
    pub(crate) with_ties: bool,
}

/// The clause `SEARCH DEPTH|BREADTH FIRST BY columns SET column`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Search {
    /// Whether the order is DEPTH FIRST.
    pub(crate) depth: bool,
    /// The column that the clause adds.
    pub(crate) set: Ident,
    /// The columns of the search order.
    pub(crate) by: Vec<Ident>,
}

/// The clause `CYCLE columns SET column [TO value DEFAULT value] USING column`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cycle {
    /// The columns whose values repeat in a cycle.
    pub(crate) by: Vec<Ident>,
    /// The column that marks a cycle.
    pub(crate) set: Ident,
    /// The value of the column `set` for a row in a cycle, and its value for any other row.
    pub(crate) values: Option<(Expr, Expr)>,
    /// The column that holds the path.
    pub(crate) using: Ident,
}
