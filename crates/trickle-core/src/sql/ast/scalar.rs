//! Syntax trees of scalar expressions.

use super::{OrderBy, Query};
use crate::expr::{FormPiece, IsTest, Moment, Subscript};
use crate::ident::{Ident, Qualified};
use crate::table::TableId;
use crate::types::{Datum, Type};
use crate::window::{Exclusion, Units};

/// The meaning of a bind parameter, which determines its value. The printer assigns the positions of
/// parameters. The code that runs the statement binds their values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Param {
    /// The snapshot up to which the changes of a source are in the stream table, as text of `pg_snapshot`.
    FrontierSnapshot(TableId),
    /// The transaction that stored the frontier, as text of `xid8`. The value is NULL where no such
    /// transaction counts.
    FrontierXid(TableId),
    /// A command number in the transaction that stored the frontier, as `bigint`. The stream table has the
    /// changes of this command and of earlier commands.
    FrontierCommand(TableId),
    /// The number of rows that were counted in the window of a source, as `bigint`. The value is NULL where
    /// the rows were not counted.
    Pending(TableId),
    /// A time that the refresh uses, as text of `timestamptz`.
    Clock(Moment),
    /// A value that the caller identifies by a number and binds.
    Value(u32),
}

/// The calls for which SQL has a special grammar.
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
    /// The name of the aggregate.
    pub(crate) name: Qualified,
    /// The arguments. If the list is empty, `*` is printed.
    pub(crate) args: Vec<Scalar>,
    /// Whether VARIADIC stands before the last argument.
    pub(crate) variadic: bool,
    /// `DISTINCT`
    pub(crate) distinct: bool,
    /// The keys of `ORDER BY` inside the call, or of `WITHIN GROUP`.
    pub(crate) order_by: Vec<OrderBy>,
    /// Whether `order_by` has the keys of `WITHIN GROUP`.
    pub(crate) within_group: bool,
    /// `FILTER (WHERE …)`
    pub(crate) filter: Option<Box<Scalar>>,
}

/// `call OVER (PARTITION BY … ORDER BY … frame)`
#[derive(Clone, Debug, PartialEq)]
pub struct Over {
    /// The call of the window function or aggregate.
    pub(crate) call: Aggregate,
    /// Whether the call is of a window function. Without arguments, such a call is printed without `*`.
    pub(crate) ranks: bool,
    /// `PARTITION BY`
    pub(crate) partition: Vec<Scalar>,
    /// `ORDER BY`
    pub(crate) order_by: Vec<OrderBy>,
    /// The frame. `None` for SQL's default frame.
    pub(crate) frame: Option<Frame>,
}

/// A window frame: for each row, the rows of its partition that a call reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// `ROWS`, `RANGE` or `GROUPS`.
    pub(crate) units: Units,
    /// The bound at which the frame begins.
    pub(crate) start: FrameBound,
    /// The bound at which the frame ends.
    pub(crate) end: FrameBound,
    /// The rows that the frame leaves out although they are between its bounds.
    pub(crate) exclude: Exclusion,
}

/// A bound at which a frame begins or ends.
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
        /// The alias of the FROM item. `None` is allowed only for a column of the table that the statement
        /// changes.
        table: Option<Ident>,
        /// The name of the column.
        name: Ident,
    },
    /// A constant of exactly the type in the second field.
    Literal(Datum, Type),
    /// A bind parameter, cast to the type in the second field.
    Param(Param, Type),
    /// `f(…)`
    Call(Qualified, Vec<Scalar>),
    /// A call for which SQL has a special grammar.
    Special(SpecialCall, Vec<Scalar>),
    /// A function call with keywords between its arguments.
    Form(Vec<FormPiece>, Vec<Scalar>),
    /// `a op b` or `op a`. An operator with a schema is printed as `OPERATOR(schema.op)`.
    Operator(Qualified, Vec<Scalar>),
    /// A call of an aggregate.
    Aggregate(Box<Aggregate>),
    /// A window function call.
    Over(Box<Over>),
    /// `e::type`
    Cast(Box<Scalar>, Type),
    /// The conjunction of the terms.
    And(Vec<Scalar>),
    /// The disjunction of the terms.
    Or(Vec<Scalar>),
    /// `NOT e`
    Not(Box<Scalar>),
    /// `e IS [NOT] …`
    Is {
        /// The expression that is tested.
        arg: Box<Scalar>,
        /// The test, such as `NULL` in `IS NULL`.
        test: IsTest,
        /// `IS NOT`
        negated: bool,
    },
    /// `l IS [NOT] DISTINCT FROM r`
    Distinct {
        /// The left operand.
        left: Box<Scalar>,
        /// The right operand.
        right: Box<Scalar>,
        /// `IS NOT DISTINCT FROM`: true where the operands are equal or both NULL.
        negated: bool,
    },
    /// `CASE WHEN … THEN … [ELSE …] END`
    Case {
        /// The conditions with their values, in order.
        whens: Vec<(Scalar, Scalar)>,
        /// `ELSE`
        otherwise: Option<Box<Scalar>>,
    },
    /// `e op ANY|ALL (array)`
    Quantified {
        /// The left operand.
        arg: Box<Scalar>,
        /// The comparison operator.
        op: Qualified,
        /// The array with whose elements the operand is compared.
        array: Box<Scalar>,
        /// `ALL`
        all: bool,
    },
    /// `ARRAY[…]`
    Array(Vec<Scalar>),
    /// `ROW(…)`
    Row(Vec<Scalar>),
    /// `a[i]…` or `a[l:u]…`, with one subscript for each dimension.
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
        /// The left operands, one for each column of the subquery.
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

#[expect(clippy::wrong_self_convention, reason = "an expression is made from its argument, not asked")]
impl Scalar {
    /// Makes `table.name`.
    pub(crate) fn column(table: &Ident, name: &Ident) -> Scalar {
        Scalar::Column { table: Some(table.clone()), name: name.clone() }
    }
    /// Makes a `bigint` constant.
    pub(crate) fn int8(value: i64) -> Scalar {
        Scalar::Literal(Datum::Int(value), Type::Int8)
    }
    /// Makes an `integer` constant.
    pub(crate) fn int4(value: i32) -> Scalar {
        Scalar::Literal(Datum::Int(value.into()), Type::Int4)
    }
    /// Makes a boolean constant.
    pub(crate) fn bool(value: bool) -> Scalar {
        Scalar::Literal(Datum::Bool(value), Type::Bool)
    }
    /// Makes a text constant.
    pub(crate) fn text(value: &str) -> Scalar {
        Scalar::Literal(Datum::text(value), Type::Text)
    }
    /// Makes a NULL of type `ty`.
    pub(crate) fn null(ty: Type) -> Scalar {
        Scalar::Literal(Datum::Null, ty)
    }
    /// Makes `self::ty`.
    #[must_use]
    pub(crate) fn cast(self, ty: Type) -> Scalar {
        Scalar::Cast(Box::new(self), ty)
    }
    /// Makes a call of a function in `pg_catalog`.
    pub(crate) fn call(name: &'static str, args: Vec<Scalar>) -> Scalar {
        Scalar::Call(Qualified::bare(Ident::fixed(name)), args)
    }
    /// Makes `self op other` with an operator of `pg_catalog`.
    #[must_use]
    pub(crate) fn op(self, op: &'static str, other: Scalar) -> Scalar {
        Scalar::Operator(Qualified::bare(Ident::fixed(op)), vec![self, other])
    }
    /// Makes `self = other`.
    #[must_use]
    pub(crate) fn equals(self, other: Scalar) -> Scalar {
        self.op("=", other)
    }
    /// Makes `- self`.
    #[must_use]
    pub(crate) fn minus(self) -> Scalar {
        Scalar::Operator(Qualified::bare(Ident::fixed("-")), vec![self])
    }
    /// Makes `NOT self`.
    #[must_use]
    pub(crate) fn negated(self) -> Scalar {
        Scalar::Not(Box::new(self))
    }
    /// Makes `self IS NULL`.
    #[must_use]
    pub(crate) fn is_null(self) -> Scalar {
        Scalar::Is { arg: Box::new(self), test: IsTest::Null, negated: false }
    }
    /// Makes `self IS NOT NULL`.
    #[must_use]
    pub(crate) fn is_not_null(self) -> Scalar {
        Scalar::Is { arg: Box::new(self), test: IsTest::Null, negated: true }
    }
    /// Makes `self IS NOT DISTINCT FROM other`.
    #[must_use]
    pub(crate) fn same_as(self, other: Scalar) -> Scalar {
        Scalar::Distinct { left: Box::new(self), right: Box::new(other), negated: true }
    }
    /// Makes `COALESCE(self, other)`.
    #[must_use]
    pub(crate) fn coalesce(self, other: Scalar) -> Scalar {
        Scalar::Special(SpecialCall::Coalesce, vec![self, other])
    }
    /// Makes the conjunction of the terms, without conjunctions among its terms. Without terms, the result is
    /// TRUE.
    pub(crate) fn and(terms: impl IntoIterator<Item = Scalar>) -> Scalar {
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
    /// Makes the disjunction of the terms. Without terms, the result is FALSE.
    pub(crate) fn or(terms: impl IntoIterator<Item = Scalar>) -> Scalar {
        let mut flat: Vec<Scalar> = terms.into_iter().collect();
        match flat.len() {
            0 => Scalar::bool(false),
            1 => flat.swap_remove(0),
            _ => Scalar::Or(flat),
        }
    }
    /// Makes a call of an aggregate without DISTINCT, ORDER BY and FILTER. If there are no arguments, the
    /// call is printed with `*`.
    pub(crate) fn aggregate(name: &'static str, args: Vec<Scalar>) -> Scalar {
        Scalar::Aggregate(Box::new(Aggregate {
            name: Qualified::bare(Ident::fixed(name)),
            args,
            variadic: false,
            distinct: false,
            order_by: Vec::new(),
            within_group: false,
            filter: None,
        }))
    }
    /// Makes `first_value(value) OVER (PARTITION BY partition ORDER BY order_by)`.
    pub(crate) fn first(value: Scalar, partition: Vec<Scalar>, order_by: Vec<OrderBy>) -> Scalar {
        let call = Aggregate {
            name: Qualified::bare(Ident::fixed("first_value")),
            args: vec![value],
            variadic: false,
            distinct: false,
            order_by: Vec::new(),
            within_group: false,
            filter: None,
        };
        Scalar::Over(Box::new(Over { call, ranks: true, partition, order_by, frame: None }))
    }
    /// Returns the alias of the FROM item to which a column belongs. Returns `None` for other expressions.
    pub(crate) fn table(&mut self) -> Option<&mut Ident> {
        match self {
            Scalar::Column { table, .. } => table.as_mut(),
            _ => None,
        }
    }
    /// Whether the expression is a column, a constant or a parameter, possibly cast. Computing such an
    /// expression twice costs nothing.
    pub(crate) fn is_atom(&self) -> bool {
        match self {
            Scalar::Column { .. } | Scalar::Literal(..) | Scalar::Param(..) => true,
            Scalar::Cast(inner, _) => inner.is_atom(),
            _ => false,
        }
    }
}
