//! Scalar expressions.

use super::{OrderBy, Query};
use crate::catalog::TableId;
use crate::expr::{FormPiece, IsTest, Moment, Subscript};
use crate::sql::ident::{Ident, Qualified};
use crate::types::{Datum, Type};
use crate::window::{Exclusion, Units};

/// The meaning of a bind parameter. The printer assigns the positions, and the code that runs the statement
/// binds the values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Param {
    /// The snapshot up to which a source's changes were consumed, as text of `pg_snapshot`.
    FrontierSnapshot(TableId),
    /// The transaction that stored the frontier, as text of `xid8`; NULL where there is none.
    FrontierXid(TableId),
    /// The last command of that transaction that was consumed, `bigint`.
    FrontierCommand(TableId),
    /// The number of rows counted in a source's window, `bigint`; NULL where they were not counted.
    Pending(TableId),
    /// A time of the refresh, as text of `timestamptz`.
    Clock(Moment),
    /// A value with a number that the caller chooses.
    Value(u32),
}

/// Calls with a grammar of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialCall {
    /// `COALESCE(…)`
    Coalesce,
    /// `GREATEST(…)`
    Greatest,
    /// `LEAST(…)`
    Least,
    /// `NULLIF(a, b)`
    NullIf,
}

/// A call of an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The aggregate.
    pub name: Qualified,
    /// The arguments; where there are none, `*` is printed.
    pub args: Vec<Scalar>,
    /// `DISTINCT`
    pub distinct: bool,
    /// `ORDER BY` inside the call, or `WITHIN GROUP`.
    pub order_by: Vec<OrderBy>,
    /// Whether `order_by` is `WITHIN GROUP`.
    pub within_group: bool,
    /// `FILTER (WHERE …)`
    pub filter: Option<Box<Scalar>>,
}

/// `call OVER (PARTITION BY … ORDER BY … frame)`
#[derive(Clone, Debug, PartialEq)]
pub struct Over {
    /// The function.
    pub call: Aggregate,
    /// Whether it is a window function, whose call without arguments is printed without `*`.
    pub ranks: bool,
    /// `PARTITION BY`
    pub partition: Vec<Scalar>,
    /// `ORDER BY`
    pub order_by: Vec<OrderBy>,
    /// The frame; `None` for the default.
    pub frame: Option<Frame>,
}

/// The rows that a call over a window sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// `ROWS`, `RANGE` or `GROUPS`.
    pub units: Units,
    /// The start.
    pub start: FrameBound,
    /// The end.
    pub end: FrameBound,
    /// The rows that are left out.
    pub exclude: Exclusion,
}

/// An end of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameBound {
    /// `UNBOUNDED PRECEDING`
    First,
    /// `… PRECEDING`
    Preceding(Scalar),
    /// `CURRENT ROW`
    Current,
    /// `… FOLLOWING`
    Following(Scalar),
    /// `UNBOUNDED FOLLOWING`
    Last,
}

/// A scalar expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// `alias.name`
    Column {
        /// The alias of the FROM item; `None` only for a column of a statement's own target.
        table: Option<Ident>,
        /// The column.
        name: Ident,
    },
    /// A constant of exactly this type.
    Literal(Datum, Type),
    /// A bind parameter, cast to this type.
    Param(Param, Type),
    /// `f(…)`
    Call(Qualified, Vec<Scalar>),
    /// A call with its own grammar.
    Special(SpecialCall, Vec<Scalar>),
    /// A call with keywords between its arguments.
    Form(Vec<FormPiece>, Vec<Scalar>),
    /// `a op b`, or `op a`; with a schema, `OPERATOR(schema.op)` is printed.
    Operator(Qualified, Vec<Scalar>),
    /// An aggregate call.
    Aggregate(Box<Aggregate>),
    /// A call over a window.
    Over(Box<Over>),
    /// `e::type`
    Cast(Box<Scalar>, Type),
    /// Conjunction.
    And(Vec<Scalar>),
    /// Disjunction.
    Or(Vec<Scalar>),
    /// `NOT e`
    Not(Box<Scalar>),
    /// `e IS [NOT] …`
    Is {
        /// The tested expression.
        arg: Box<Scalar>,
        /// The test.
        test: IsTest,
        /// `IS NOT`
        negated: bool,
    },
    /// `l IS [NOT] DISTINCT FROM r`
    Distinct {
        /// Left side.
        left: Box<Scalar>,
        /// Right side.
        right: Box<Scalar>,
        /// `IS NOT`: true where the sides are the same.
        negated: bool,
    },
    /// `CASE WHEN … THEN … [ELSE …] END`
    Case {
        /// Conditions with values.
        whens: Vec<(Scalar, Scalar)>,
        /// `ELSE`
        otherwise: Option<Box<Scalar>>,
    },
    /// `e op ANY|ALL (array)`
    Quantified {
        /// Left side.
        arg: Box<Scalar>,
        /// The operator.
        op: Qualified,
        /// The array.
        array: Box<Scalar>,
        /// `ALL`
        all: bool,
    },
    /// `ARRAY[…]`
    Array(Vec<Scalar>),
    /// `ROW(…)`
    Row(Vec<Scalar>),
    /// `a[i]…` or `a[l:u]…`, one per dimension.
    Subscript(Box<Scalar>, Vec<Subscript<Scalar>>),
    /// `(e).name`
    Field(Box<Scalar>, Ident),
    /// `[NOT] EXISTS (…)`
    Exists {
        /// The subquery.
        query: Box<Query>,
        /// `NOT EXISTS`
        negated: bool,
    },
    /// `(a, …) [NOT] IN (SELECT …)`
    InQuery {
        /// Left side, one per column of the subquery.
        args: Vec<Scalar>,
        /// The subquery.
        query: Box<Query>,
        /// `NOT IN`
        negated: bool,
    },
    /// `(SELECT …)`
    Subquery(Box<Query>),
    /// `ARRAY(SELECT …)`
    ArrayQuery(Box<Query>),
}

impl Scalar {
    /// Makes `table.name`.
    pub fn column(table: &Ident, name: &Ident) -> Scalar {
        Scalar::Column { table: Some(table.clone()), name: name.clone() }
    }
    /// Makes a `bigint` constant.
    pub fn int8(value: i64) -> Scalar {
        Scalar::Literal(Datum::Int(value), Type::Int8)
    }
    /// Makes an `integer` constant.
    pub fn int4(value: i32) -> Scalar {
        Scalar::Literal(Datum::Int(value.into()), Type::Int4)
    }
    /// Makes a boolean constant.
    pub fn bool(value: bool) -> Scalar {
        Scalar::Literal(Datum::Bool(value), Type::Bool)
    }
    /// Makes a text constant.
    pub fn text(value: &str) -> Scalar {
        Scalar::Literal(Datum::text(value), Type::Text)
    }
    /// Makes a NULL of a type.
    pub fn null(ty: Type) -> Scalar {
        Scalar::Literal(Datum::Null, ty)
    }
    /// Makes `self::ty`.
    #[must_use]
    pub fn cast(self, ty: Type) -> Scalar {
        Scalar::Cast(Box::new(self), ty)
    }
    /// Makes a call of a function in `pg_catalog`.
    pub fn call(name: &'static str, args: Vec<Scalar>) -> Scalar {
        Scalar::Call(Qualified::bare(Ident::fixed(name)), args)
    }
    /// Makes `self op other` with an operator of `pg_catalog`.
    #[must_use]
    pub fn op(self, op: &'static str, other: Scalar) -> Scalar {
        Scalar::Operator(Qualified::bare(Ident::fixed(op)), vec![self, other])
    }
    /// Makes `self = other`.
    #[must_use]
    pub fn equals(self, other: Scalar) -> Scalar {
        self.op("=", other)
    }
    /// Makes `- self`.
    #[must_use]
    pub fn minus(self) -> Scalar {
        Scalar::Operator(Qualified::bare(Ident::fixed("-")), vec![self])
    }
    /// Makes `NOT self`.
    #[must_use]
    pub fn negated(self) -> Scalar {
        Scalar::Not(Box::new(self))
    }
    /// Makes `self IS NULL`.
    #[must_use]
    pub fn is_null(self) -> Scalar {
        Scalar::Is { arg: Box::new(self), test: IsTest::Null, negated: false }
    }
    /// Makes `self IS NOT NULL`.
    #[must_use]
    pub fn is_not_null(self) -> Scalar {
        Scalar::Is { arg: Box::new(self), test: IsTest::Null, negated: true }
    }
    /// Makes `self IS NOT DISTINCT FROM other`.
    #[must_use]
    pub fn same_as(self, other: Scalar) -> Scalar {
        Scalar::Distinct { left: Box::new(self), right: Box::new(other), negated: true }
    }
    /// Makes `COALESCE(self, other)`.
    #[must_use]
    pub fn coalesce(self, other: Scalar) -> Scalar {
        Scalar::Special(SpecialCall::Coalesce, vec![self, other])
    }
    /// Makes the conjunction, flattened; TRUE for no terms.
    pub fn and(terms: impl IntoIterator<Item = Scalar>) -> Scalar {
        let mut flat = Vec::new();
        for t in terms {
            match t {
                Scalar::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        match flat.len() {
            0 => Scalar::bool(true),
            1 => flat.swap_remove(0),
            _ => Scalar::And(flat),
        }
    }
    /// Makes the disjunction; FALSE for no terms.
    pub fn or(terms: impl IntoIterator<Item = Scalar>) -> Scalar {
        let mut flat: Vec<Scalar> = terms.into_iter().collect();
        match flat.len() {
            0 => Scalar::bool(false),
            1 => flat.swap_remove(0),
            _ => Scalar::Or(flat),
        }
    }
    /// Makes a plain aggregate call; without arguments it is printed with `*`.
    pub fn aggregate(name: &'static str, args: Vec<Scalar>) -> Scalar {
        Scalar::Aggregate(Box::new(Aggregate {
            name: Qualified::bare(Ident::fixed(name)),
            args,
            distinct: false,
            order_by: Vec::new(),
            within_group: false,
            filter: None,
        }))
    }
    /// Makes `first_value(value) OVER (PARTITION BY partition ORDER BY order_by)`.
    pub fn first(value: Scalar, partition: Vec<Scalar>, order_by: Vec<OrderBy>) -> Scalar {
        let call = Aggregate {
            name: Qualified::bare(Ident::fixed("first_value")),
            args: vec![value],
            distinct: false,
            order_by: Vec::new(),
            within_group: false,
            filter: None,
        };
        Scalar::Over(Box::new(Over { call, ranks: true, partition, order_by, frame: None }))
    }
    /// Returns the alias of the FROM item whose column it is.
    pub(crate) fn table(&mut self) -> Option<&mut Ident> {
        match self {
            Scalar::Column { table, .. } => table.as_mut(),
            _ => None,
        }
    }
    /// Whether it is a column or a constant, so that writing it twice costs nothing.
    pub fn is_atom(&self) -> bool {
        match self {
            Scalar::Column { .. } | Scalar::Literal(..) | Scalar::Param(..) => true,
            Scalar::Cast(inner, _) => inner.is_atom(),
            _ => false,
        }
    }
}
