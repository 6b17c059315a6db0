//! Expressions.

use super::{Call, Extent, Form, Ident, ObjectName, Query, TypeName};

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) node: Node,
    pub(crate) extent: Extent,
}

impl Expr {
    /// Returns the expression without the parentheses around it.
    pub(crate) fn bare(&self) -> &Expr {
        let mut e = self;
        while let Node::Nested(inner) = &e.node {
            e = inner;
        }
        e
    }
}

/// The construct that an expression is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// An expression in parentheses.
    Nested(Box<Expr>),
    /// A name: `column`, `table.column`, or `table` for the whole row of a table.
    Name(Vec<Ident>),
    /// `table.*` as a value, which is the row.
    WholeRow(ObjectName),
    /// `*` instead of a value.
    Star,
    Literal(Literal),
    /// A constant of a type, such as `date '2000-01-01'`.
    TypedLiteral {
        ty: TypeName,
        literal: Literal,
    },
    /// `INTERVAL '…' fields`.
    Interval(Interval),
    Binary {
        left: Box<Expr>,
        op: BinaryOperator,
        right: Box<Expr>,
    },
    Unary {
        op: UnaryOperator,
        operand: Box<Expr>,
    },
    /// `a IS [NOT] NULL`, and tests of a truth value.
    Is {
        operand: Box<Expr>,
        test: Test,
        negated: bool,
    },
    /// `a IS [NOT] DISTINCT FROM b`.
    IsDistinct {
        left: Box<Expr>,
        right: Box<Expr>,
        negated: bool,
    },
    /// `a IS [NOT] form`: a test whether a text has a given form. The form is stored as its keywords, for
    /// example `JSON OBJECT`, `DOCUMENT` or `NFC NORMALIZED`.
    IsForm {
        operand: Box<Expr>,
        form: String,
        negated: bool,
    },
    Between {
        operand: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    InList {
        operand: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    InQuery {
        operand: Box<Expr>,
        query: Box<Query>,
        negated: bool,
    },
    Exists {
        query: Box<Query>,
        negated: bool,
    },
    /// A query as a value.
    Subquery(Box<Query>),
    /// `left op ANY (right)`, or ALL instead of ANY. The right operand is an array or a query.
    Quantified {
        left: Box<Expr>,
        op: Operator,
        right: Box<Expr>,
        all: bool,
    },
    /// `LIKE`, or `ILIKE` if case does not matter.
    Like {
        operand: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<Box<Expr>>,
        ignores_case: bool,
        negated: bool,
    },
    SimilarTo {
        operand: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<Box<Expr>>,
        negated: bool,
    },
    Cast {
        operand: Box<Expr>,
        ty: TypeName,
    },
    Collate {
        operand: Box<Expr>,
        collation: ObjectName,
    },
    /// `AT TIME ZONE zone`, or `AT LOCAL` without a zone.
    AtTimeZone {
        operand: Box<Expr>,
        zone: Option<Box<Expr>>,
    },
    /// `EXTRACT(field FROM operand)`, with the field in lower case.
    Extract {
        field: String,
        operand: Box<Expr>,
    },
    /// `POSITION(part IN text)`.
    Position {
        part: Box<Expr>,
        text: Box<Expr>,
    },
    /// A call with the keywords of the SQL standard, such as `SUBSTRING(a FROM b)`. It is stored as a call of
    /// the built-in function that computes it.
    Builtin {
        function: &'static str,
        args: Vec<Expr>,
    },
    Case(Case),
    /// `ARRAY[…]`.
    Array(Vec<Expr>),
    /// `ARRAY(SELECT …)`, as an expression that aggregates the query's rows.
    ArrayOfQuery(Box<Expr>),
    /// `(a, b)`.
    Row(Vec<Expr>),
    /// Fields and subscripts of a value, in the order in which they are written.
    Access {
        root: Box<Expr>,
        chain: Vec<Access>,
    },
    Call(Box<Call>),
    /// A call that has a special grammar.
    Form(Form),
    /// A call that has a special grammar and a query as its argument, such as `JSON_ARRAY(SELECT …)`. Only
    /// its name is stored, in upper case.
    FormOverQuery(&'static str),
}

/// A constant that does not name a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    /// A number, as it is written.
    Number(String),
    Text(String),
    /// The digits of a bit string, 0 and 1.
    Bits(String),
    Boolean(bool),
    Null,
    /// The name of a parameter, such as `$1`.
    Parameter(String),
}

/// `INTERVAL '…' first TO last (digits)`, with the fields in lower case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    /// The text of the constant. `None` for a value that is not a plain string constant.
    pub(crate) text: Option<String>,
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
    /// The number of fractional digits of the seconds.
    pub(crate) digits: Option<u64>,
}

/// An operator by its name, with the schema in `OPERATOR(schema.op)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operator {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

impl Operator {
    /// Returns the operator as PostgreSQL writes it. A schema other than `pg_catalog` comes before the
    /// operator, with a dot.
    pub(crate) fn qualified(&self) -> String {
        match self.schema.as_deref() {
            None | Some("pg_catalog") => self.name.clone(),
            Some(schema) => format!("{schema}.{}", self.name),
        }
    }

    /// Whether the operator is a comparison, written without a schema.
    pub(crate) fn compares(&self) -> bool {
        self.schema.is_none() && matches!(self.name.as_str(), "=" | "<>" | "<" | "<=" | ">" | ">=")
    }
}

/// An operator between two operands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BinaryOperator {
    And,
    Or,
    Overlaps,
    Operator(Operator),
}

/// An operator before its operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UnaryOperator {
    Not,
    Plus,
    Minus,
    /// Any other operator, by its name.
    Other(String),
}

/// The test of an IS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Null,
    True,
    False,
    Unknown,
}

/// `CASE [operand] WHEN … THEN … [ELSE …] END`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) operand: Option<Box<Expr>>,
    pub(crate) whens: Vec<When>,
    pub(crate) otherwise: Option<Box<Expr>>,
}

/// `WHEN condition THEN result`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct When {
    pub(crate) condition: Expr,
    pub(crate) result: Expr,
}

/// An access to a part of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Access {
    /// `.field`.
    Field(Ident),
    /// `.*`, or anything else after a dot that is not a name.
    AllFields,
    Subscript(Subscript),
}

/// A subscript of an array or a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Subscript {
    /// `[index]`.
    Index(Expr),
    /// `[lower:upper]`.
    Slice(Option<Box<Expr>>, Option<Box<Expr>>),
}
