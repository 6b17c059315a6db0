//! The SQL of an operator: an open block, which the reading operator may extend, or a closed query.

use super::ast::{FromItem, JoinKind, Scalar, Select, SelectItem, SetExpr};
use super::render::Named;
use crate::error::{Error, Result};
use crate::graph::Schema;
use crate::ident::{Ident, MAX_BYTES, NameSet};

/// The SQL that computes an operator, with the physical facts on which the reading operators rely.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    /// The query that computes the rows.
    pub(crate) body: Body,
    /// Whether every row has a weight ≥ 1.
    pub(crate) positive: bool,
    /// Whether each row occurs once, with its whole weight, and the weight is not 0.
    pub(crate) consolidated: bool,
}

/// The query of a [`Fragment`], open or closed.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Selections, projections and joins. The reading operator may add items to FROM and conditions to WHERE.
    Open(Block),
    /// A grouping, a DISTINCT, a set operation or a list of rows. The reading operator can only select from
    /// this query.
    Closed(Closed),
}

/// An unfinished query `SELECT columns, weight FROM from WHERE filter`.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The FROM items. A block without items has one row without columns.
    pub(crate) from: Vec<FromItem>,
    /// The conjuncts of WHERE.
    pub(crate) filter: Vec<Scalar>,
    /// The output columns, as expressions over the FROM items.
    pub(crate) columns: Vec<Scalar>,
    /// The weight of a row, over the FROM items.
    pub(crate) weight: Weight,
}

/// A complete query whose columns have names.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// The query without common table expressions.
    pub(crate) set: SetExpr,
    /// The names of the query's columns.
    pub(crate) names: Names,
    /// Whether the last column is the weight. Otherwise each row counts once.
    pub(crate) weighted: bool,
}

/// The weight of a row: a product of `bigint` factors, with a sign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weight {
    negative: bool,
    factors: Vec<Scalar>,
}

/// The unique column names of a relation, and one more name for the weight column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The column names, in the order of the columns.
    pub columns: Vec<Ident>,
    /// The name of the weight's column.
    pub(crate) weight: Ident,
}

impl Weight {
    /// Returns the weight 1.
    pub(crate) fn one() -> Weight {
        Weight::default()
    }
    /// Makes the weight that a `bigint` expression computes.
    pub(crate) fn of(factor: Scalar) -> Weight {
        Weight { negative: false, factors: vec![factor] }
    }
    /// Whether the weight is the constant 1.
    pub(crate) fn is_one(&self) -> bool {
        !self.negative && self.factors.is_empty()
    }
    /// Returns the product of both weights.
    #[must_use]
    pub(crate) fn times(mut self, other: Weight) -> Weight {
        self.negative ^= other.negative;
        self.factors.extend(other.factors);
        self
    }
    /// Returns the weight with the other sign.
    #[must_use]
    pub(crate) fn negated(mut self) -> Weight {
        self.negative = !self.negative;
        self
    }
    /// Returns the weight as a `bigint` expression.
    pub(crate) fn scalar(&self) -> Scalar {
        let product = self.factors.iter().cloned().reduce(|a, b| a.op("*", b));
        match (product, self.negative) {
            (None, false) => Scalar::int8(1),
            (None, true) => Scalar::int8(-1),
            (Some(p), false) => p,
            (Some(p), true) => p.minus(),
        }
    }
    /// Returns the weight's column, if the weight consists of one column and has a positive sign.
    pub(crate) fn as_column(&self) -> Option<&Ident> {
        match self.factors.as_slice() {
            [Scalar::Column { name, .. }] if !self.negative => Some(name),
            _ => None,
        }
    }
    /// Returns the sum of the weights of a group, as an aggregate of type `bigint` or `numeric`.
    pub(crate) fn sum(&self) -> Scalar {
        match (self.factors.is_empty(), self.negative) {
            (true, false) => Scalar::aggregate("count", Vec::new()),
            (true, true) => Scalar::aggregate("count", Vec::new()).minus(),
            (false, _) => Scalar::aggregate("sum", vec![self.scalar()]),
        }
    }
    /// Returns the sum of the weights of a group that has rows, as `bigint`.
    pub(crate) fn total(&self) -> Scalar {
        if self.factors.is_empty() { self.sum() } else { self.sum().cast(crate::types::Type::Int8) }
    }
    pub(super) fn scalars_mut(&mut self) -> impl Iterator<Item = &mut Scalar> {
        self.factors.iter_mut()
    }
}

impl Names {
    /// Makes unique names from the labels of a schema.
    pub fn of(schema: &Schema) -> Names {
        let columns = schema.columns();
        let fits = |l: &str| !matches!(l, "" | "w") && l.len() <= MAX_BYTES && !l.contains('\0');
        let unique = |i: usize| columns[..i].iter().all(|c| c.label != columns[i].label);
        if columns.len() <= 16 && (0..columns.len()).all(|i| fits(&columns[i].label) && unique(i)) {
            // In most schemas, the labels can serve as the names.
            let columns = columns.iter().map(|c| Ident::from(&c.label)).collect();
            return Names { columns, weight: Ident::fixed("w") };
        }
        let mut set = NameSet::new();
        let columns = schema.columns().iter().map(|c| set.fresh_like(&Ident::from(&c.label))).collect();
        Names { columns, weight: set.fresh_like(&Ident::fixed("w")) }
    }
    /// Makes names for columns that are called exactly `columns`.
    pub(crate) fn given(columns: Vec<Ident>) -> Names {
        let mut set = NameSet::new();
        columns.iter().for_each(|c| set.reserve(c.clone()));
        Names { columns, weight: set.fresh_like(&Ident::fixed("w")) }
    }
}

impl Block {
    /// Makes a block that reads the columns `columns` of a FROM item.
    pub(crate) fn reading(item: FromItem, alias: &Ident, columns: &[Ident]) -> Block {
        Block {
            from: vec![item],
            filter: Vec::new(),
            columns: columns.iter().map(|c| Scalar::column(alias, c)).collect(),
            weight: Weight::one(),
        }
    }

    /// Returns a block of all pairs of a row of this block and a row of the other block.
    #[must_use]
    pub(crate) fn join(mut self, other: Block) -> Block {
        self.from.extend(other.from);
        self.filter.extend(other.filter);
        self.columns.extend(other.columns);
        self.weight = self.weight.times(other.weight);
        self
    }

    /// Writes the block as a complete query, with a weight column if `weighted`. If not `weighted`, the
    /// weight must be 1.
    pub(crate) fn close(self, names: Names, weighted: bool) -> Closed {
        Closed { set: self.under(&names, weighted), names, weighted }
    }

    /// Returns the query that [`Block::close`] writes.
    pub(crate) fn under(self, names: &Names, weighted: bool) -> SetExpr {
        let weight = weighted.then(|| SelectItem::new(self.weight.scalar(), names.weight.clone()));
        let columns = self.columns.into_iter().zip(&names.columns);
        let items = columns.map(|(e, n)| SelectItem::new(e, n.clone())).chain(weight).collect();
        let select = Select { items, from: self.from, filter: self.filter, ..Select::default() };
        counted(select, &names.weight)
    }

    /// Returns `SELECT items FROM from WHERE filter`.
    pub(crate) fn select(self, items: Vec<SelectItem>) -> Select {
        Select { items, from: self.from, filter: self.filter, ..Select::default() }
    }

    /// Returns the cross join of the FROM items. Returns `None` where the block has no items.
    pub(crate) fn tree(&self) -> Option<FromItem> {
        self.from.iter().cloned().reduce(|left, right| FromItem::Join {
            kind: JoinKind::Cross,
            left: Box::new(left),
            right: Box::new(right),
            on: None,
        })
    }

    /// Whether the block may drop rows of its FROM items, by a condition or by a join.
    pub(crate) fn narrows(&self) -> bool {
        !self.filter.is_empty() || !matches!(self.from.as_slice(), [] | [FromItem::Relation { .. }])
    }

    /// Whether computing the block again costs nothing: the block consists of bare columns of one relation,
    /// or of constants.
    pub(crate) fn is_plain(&self) -> bool {
        let cheap = match self.from.as_slice() {
            [] => self.columns.iter().all(Scalar::is_atom),
            [FromItem::Relation { .. }] => self.is_bare(),
            _ => false,
        };
        cheap && self.filter.is_empty()
    }

    /// Returns the common table expression whose columns the block reads unchanged. The block may have any
    /// weight. Returns `None` where the block does more than read columns.
    pub(crate) fn as_relation(&self) -> Option<Named> {
        let [FromItem::Relation { name, .. }] = self.from.as_slice() else { return None };
        let column = |s: &Scalar| if let Scalar::Column { name, .. } = s { Some(name.clone()) } else { None };
        let columns = self.columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        (name.schema.is_none() && self.filter.is_empty())
            .then(|| Named { relation: name.name.clone(), columns })
    }

    /// Whether all columns of the block are plain columns of one FROM item.
    pub(crate) fn is_bare(&self) -> bool {
        self.from.len() == 1 && self.columns.iter().all(|c| matches!(c, Scalar::Column { .. }))
    }
}

/// Makes a query from a SELECT. A SELECT without output columns gets a constant as output column, so that its
/// rows can be counted.
fn counted(mut select: Select, weight: &Ident) -> SetExpr {
    if select.items.is_empty() {
        select.items.push(SelectItem::new(Scalar::int4(1), weight.clone()));
    }
    SetExpr::Select(Box::new(select))
}

impl Closed {
    /// Makes a closed query from a SELECT whose columns have these names.
    pub(crate) fn select(select: Select, names: Names, weighted: bool) -> Closed {
        Closed { set: counted(select, &names.weight), names, weighted }
    }
}

impl Closed {
    /// Adds DISTINCT, so that the query returns each row once.
    pub(crate) fn distinct(&mut self) {
        if let SetExpr::Select(select) = &mut self.set {
            select.distinct = true;
        }
    }
}

impl Fragment {
    /// Makes a fragment from an open block.
    pub(crate) fn open(block: Block, positive: bool, consolidated: bool) -> Fragment {
        Fragment { body: Body::Open(block), positive, consolidated }
    }
    /// Makes a fragment from a closed query.
    pub(crate) fn closed(closed: Closed, positive: bool, consolidated: bool) -> Fragment {
        Fragment { body: Body::Closed(closed), positive, consolidated }
    }
    /// Whether rows may have a weight other than the constant 1.
    pub(crate) fn is_weighted(&self) -> bool {
        match &self.body {
            Body::Open(block) => !block.weight.is_one(),
            Body::Closed(closed) => closed.weighted,
        }
    }
    /// Fails where a row of the fragment may have a weight below 1.
    ///
    /// # Errors
    /// Fails if the plan breaks the contract of `op`, which needs positive weights.
    pub(crate) fn require_positive(&self, op: &str) -> Result<()> {
        if self.positive {
            return Ok(());
        }
        Err(Error::plan(format!("{op} is rendered over rows that may carry negative weights")))
    }
}
