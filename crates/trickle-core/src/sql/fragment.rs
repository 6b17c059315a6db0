//! A rendered operator: an open block that its reader may extend, or a closed query.

use super::ast::{FromItem, JoinKind, Scalar, Select, SelectItem, SetExpr};
use super::ident::{Ident, MAX_BYTES, NameSet};
use super::render::Named;
use crate::error::{Error, Result};
use crate::graph::Schema;

/// The SQL that computes an operator, with the physical facts that its readers depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    /// The query.
    pub body: Body,
    /// Whether every row carries a weight ≥ 1.
    pub positive: bool,
    /// Whether each row occurs once, with its whole weight ≠ 0.
    pub consolidated: bool,
}

/// The query of a [`Fragment`].
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Selection, projection and joins: a reader adds to the FROM and WHERE.
    Open(Block),
    /// Grouping, DISTINCT, set operations or lists of rows: a reader selects from it.
    Closed(Closed),
}

/// A block `SELECT columns, weight FROM from WHERE filter` that is not closed yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The FROM items; no items mean one row without columns.
    pub from: Vec<FromItem>,
    /// Conjuncts of WHERE.
    pub filter: Vec<Scalar>,
    /// The output columns over the FROM items.
    pub columns: Vec<Scalar>,
    /// The weight of a row.
    pub weight: Weight,
}

/// A complete query with named columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// The query.
    pub set: SetExpr,
    /// The names of its columns.
    pub names: Names,
    /// Whether the last column is the weight; otherwise each row counts once.
    pub weighted: bool,
}

/// The weight of a row: a sign and a product of `bigint` factors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weight {
    negative: bool,
    factors: Vec<Scalar>,
}

/// The unique column names of a relation, and a further name for its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The column names by position.
    pub columns: Vec<Ident>,
    /// The name of the weight column.
    pub weight: Ident,
}

impl Weight {
    /// Returns the weight 1.
    pub fn one() -> Weight {
        Weight::default()
    }
    /// Makes the weight that a `bigint` expression computes.
    pub fn of(factor: Scalar) -> Weight {
        Weight { negative: false, factors: vec![factor] }
    }
    /// Whether the weight is the constant 1.
    pub fn is_one(&self) -> bool {
        !self.negative && self.factors.is_empty()
    }
    /// Returns the product of both weights.
    #[must_use]
    pub fn times(mut self, other: Weight) -> Weight {
        self.negative ^= other.negative;
        self.factors.extend(other.factors);
        self
    }
    /// Returns the weight with the other sign.
    #[must_use]
    pub fn negated(mut self) -> Weight {
        self.negative = !self.negative;
        self
    }
    /// Returns the weight as a `bigint` expression.
    pub fn scalar(&self) -> Scalar {
        let product = self.factors.iter().cloned().reduce(|a, b| a.op("*", b));
        match (product, self.negative) {
            (None, false) => Scalar::int8(1),
            (None, true) => Scalar::int8(-1),
            (Some(p), false) => p,
            (Some(p), true) => p.minus(),
        }
    }
    /// Returns the column that holds the weight, if it is a bare column.
    pub(crate) fn as_column(&self) -> Option<&Ident> {
        match self.factors.as_slice() {
            [Scalar::Column { name, .. }] if !self.negative => Some(name),
            _ => None,
        }
    }
    /// Returns the sum of the weights of a group, as an aggregate of a number type.
    pub fn sum(&self) -> Scalar {
        match (self.factors.is_empty(), self.negative) {
            (true, false) => Scalar::aggregate("count", Vec::new()),
            (true, true) => Scalar::aggregate("count", Vec::new()).minus(),
            (false, _) => Scalar::aggregate("sum", vec![self.scalar()]),
        }
    }
    /// Returns the sum of the weights of a group that is not empty, as `bigint`.
    pub fn total(&self) -> Scalar {
        if self.factors.is_empty() { self.sum() } else { self.sum().cast(crate::types::Type::Int8) }
    }
    pub(super) fn scalars_mut(&mut self) -> impl Iterator<Item = &mut Scalar> {
        self.factors.iter_mut()
    }
}

impl Names {
    /// Makes names of the labels of a schema, made unique.
    pub fn of(schema: &Schema) -> Names {
        let columns = schema.columns();
        let fits = |l: &str| !matches!(l, "" | "w") && l.len() <= MAX_BYTES && !l.contains('\0');
        let unique = |i: usize| columns[..i].iter().all(|c| c.label != columns[i].label);
        if columns.len() <= 16 && (0..columns.len()).all(|i| fits(&columns[i].label) && unique(i)) {
            // For most schemas, the labels are the names.
            let columns = columns.iter().map(|c| Ident::from(&c.label)).collect();
            return Names { columns, weight: Ident::fixed("w") };
        }
        let mut set = NameSet::new();
        let columns = schema.columns().iter().map(|c| set.fresh_like(&Ident::from(&c.label))).collect();
        Names { columns, weight: set.fresh_like(&Ident::fixed("w")) }
    }
    /// Uses exactly these names.
    pub fn given(columns: Vec<Ident>) -> Names {
        let mut set = NameSet::new();
        columns.iter().for_each(|c| set.reserve(c.clone()));
        Names { columns, weight: set.fresh_like(&Ident::fixed("w")) }
    }
}

impl Block {
    /// Reads all columns of a FROM item.
    pub fn reading(item: FromItem, alias: &Ident, columns: &[Ident]) -> Block {
        Block {
            from: vec![item],
            filter: Vec::new(),
            columns: columns.iter().map(|c| Scalar::column(alias, c)).collect(),
            weight: Weight::one(),
        }
    }

    /// Returns the pairs of rows of both blocks.
    #[must_use]
    pub fn join(mut self, other: Block) -> Block {
        self.from.extend(other.from);
        self.filter.extend(other.filter);
        self.columns.extend(other.columns);
        self.weight = self.weight.times(other.weight);
        self
    }

    /// Closes the block: writes it as a query, with a weight column if `weighted` (else the weight must be
    /// 1).
    pub fn close(self, names: Names, weighted: bool) -> Closed {
        Closed { set: self.under(&names, weighted), names, weighted }
    }

    /// Returns the query of [`Block::close`].
    pub(crate) fn under(self, names: &Names, weighted: bool) -> SetExpr {
        let weight = weighted.then(|| SelectItem::new(self.weight.scalar(), names.weight.clone()));
        let columns = self.columns.into_iter().zip(&names.columns);
        let items = columns.map(|(e, n)| SelectItem::new(e, n.clone())).chain(weight).collect();
        let select = Select { items, from: self.from, filter: self.filter, ..Select::default() };
        counted(select, &names.weight)
    }

    /// Returns `SELECT items FROM from WHERE filter`.
    pub fn select(self, items: Vec<SelectItem>) -> Select {
        Select { items, from: self.from, filter: self.filter, ..Select::default() }
    }

    /// Returns the FROM items side by side as one item; `None` where there are none.
    pub(crate) fn tree(&self) -> Option<FromItem> {
        self.from.iter().cloned().reduce(|left, right| FromItem::Join {
            kind: JoinKind::Cross,
            left: Box::new(left),
            right: Box::new(right),
            on: None,
        })
    }

    /// Whether the block drops rows of its FROM items, by a condition or by joining.
    pub(crate) fn narrows(&self) -> bool {
        !self.filter.is_empty() || !matches!(self.from.as_slice(), [] | [FromItem::Relation { .. }])
    }

    /// Whether computing the block again costs nothing: it consists of bare columns of a relation, or of
    /// constants.
    pub(crate) fn is_plain(&self) -> bool {
        let cheap = match self.from.as_slice() {
            [] => self.columns.iter().all(Scalar::is_atom),
            [FromItem::Relation { .. }] => self.is_bare(),
            _ => false,
        };
        cheap && self.filter.is_empty()
    }

    /// Returns the common table expression that the block reads unchanged, apart from its weight; `None`
    /// where it does more.
    pub(crate) fn as_relation(&self) -> Option<Named> {
        let [FromItem::Relation { name, .. }] = self.from.as_slice() else { return None };
        let column = |s: &Scalar| if let Scalar::Column { name, .. } = s { Some(name.clone()) } else { None };
        let columns = self.columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        (name.schema.is_none() && self.filter.is_empty())
            .then(|| Named { relation: name.name.clone(), columns })
    }

    /// Whether the block only reads the columns of one FROM item as they are.
    pub(crate) fn is_bare(&self) -> bool {
        self.from.len() == 1 && self.columns.iter().all(|c| matches!(c, Scalar::Column { .. }))
    }
}

/// Makes a query of the SELECT. One without output columns gets a constant, so that its rows can be counted.
fn counted(mut select: Select, weight: &Ident) -> SetExpr {
    if select.items.is_empty() {
        select.items.push(SelectItem::new(Scalar::int4(1), weight.clone()));
    }
    SetExpr::Select(Box::new(select))
}

impl Closed {
    /// Makes a closed query of a SELECT with these names.
    pub fn select(select: Select, names: Names, weighted: bool) -> Closed {
        Closed { set: counted(select, &names.weight), names, weighted }
    }
}

impl Closed {
    /// Makes the query return each row once.
    pub fn distinct(&mut self) {
        if let SetExpr::Select(select) = &mut self.set {
            select.distinct = true;
        }
    }
}

impl Fragment {
    /// Makes a fragment of an open block.
    pub fn open(block: Block, positive: bool, consolidated: bool) -> Fragment {
        Fragment { body: Body::Open(block), positive, consolidated }
    }
    /// Makes a fragment of a closed query.
    pub fn closed(closed: Closed, positive: bool, consolidated: bool) -> Fragment {
        Fragment { body: Body::Closed(closed), positive, consolidated }
    }
    /// Whether rows may carry a weight other than the constant 1.
    pub fn is_weighted(&self) -> bool {
        match &self.body {
            Body::Open(block) => !block.weight.is_one(),
            Body::Closed(closed) => closed.weighted,
        }
    }
    /// Fails where a row may carry a weight below 1.
    ///
    /// # Errors
    /// Where the plan breaks the contract of `op`.
    pub fn require_positive(&self, op: &str) -> Result<()> {
        if self.positive {
            return Ok(());
        }
        Err(Error::plan(format!("{op} is rendered over rows that may carry negative weights")))
    }
}
