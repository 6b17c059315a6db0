//! The results of lowering a query expression, before and after the types of its untyped literals are
//! decided.

use super::Lowerer;
use super::outer_column::Domain;
use crate::error::{Error, Result};
use crate::expr::{Expr, SortKey};
use crate::graph::{NodeId, Schema};
use crate::rel::{Distinct, Map};
use crate::syntax::Place;
use crate::types::Type;
use std::sync::Arc;

/// The order in which a query wants its rows, and in which PostgreSQL delivers them. If another query reads
/// these rows, the order has no meaning in SQL. Users, however, rely on it where the rows are the whole FROM:
/// in LIMIT, and in windows and aggregates without ORDER BY. If PostgreSQL sorts the rows again for other
/// clauses, the order is lost, since that sort is not stable.
#[derive(Clone, Debug, Default)]
pub(super) enum RowOrder<Key> {
    /// No order.
    #[default]
    Any,
    /// An order by values that the rows have.
    By(Vec<Key>),
    /// An order by values that the rows do not have.
    Hidden,
}

/// A column by which rows are ordered: an output column, or a hidden column after the output columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowKey {
    pub(super) output: usize,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
}

impl<Key> RowOrder<Key> {
    /// Makes the order by these keys; [`RowOrder::Any`] if there are none.
    pub(super) fn by(keys: Vec<Key>) -> RowOrder<Key> {
        if keys.is_empty() { RowOrder::Any } else { RowOrder::By(keys) }
    }
    /// Translates each key; the order becomes hidden if `key` returns `None` for one of them.
    pub(super) fn map<To>(&self, key: impl FnMut(&Key) -> Option<To>) -> RowOrder<To> {
        match self {
            RowOrder::Any => RowOrder::Any,
            RowOrder::By(keys) => {
                keys.iter().map(key).collect::<Option<_>>().map_or(RowOrder::Hidden, RowOrder::By)
            }
            RowOrder::Hidden => RowOrder::Hidden,
        }
    }
}

/// A finished relation: the domain's columns, then one column per name, then the columns by which its rows
/// are ordered.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    pub(super) node: NodeId,
    pub(super) names: Vec<Arc<str>>,
    pub(super) order: RowOrder<RowKey>,
}

impl Relation {
    /// Makes a relation whose rows have no order.
    pub(super) fn new(node: NodeId, names: Vec<Arc<str>>) -> Relation {
        Relation { node, names, order: RowOrder::Any }
    }
}

/// A relation whose last projection is not made yet, since a UNION around the query may still decide the type
/// of a literal.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) node: NodeId,
    /// The domain's columns.
    pub(super) domain: Vec<Expr>,
    pub(super) exprs: Vec<Expr>,
    pub(super) names: Vec<Arc<str>>,
    pub(super) distinct: bool,
    pub(super) order: RowOrder<RowKey>,
    /// The expressions by which the rows are ordered and that are not among `exprs`.
    pub(super) hidden: Vec<Expr>,
}

impl Open {
    /// Opens a finished relation again.
    pub(super) fn of(relation: Relation, schema: &Schema, domain: &Domain) -> Open {
        let k = domain.width();
        Open {
            node: relation.node,
            domain: (0..k).map(|i| schema.expr(i)).collect(),
            exprs: (k..schema.len()).map(|i| schema.expr(i)).collect(),
            names: relation.names,
            distinct: false,
            order: relation.order,
            hidden: Vec::new(),
        }
    }

    /// Sets an order by expressions. An expression that is not an output is added to `hidden`.
    pub(super) fn ordered(mut self, order: &RowOrder<SortKey>) -> Open {
        let (exprs, mut hidden) = (&self.exprs, Vec::new());
        self.order = order.map(|key| {
            let place = exprs.iter().chain(&hidden).position(|e| *e == key.expr);
            let output = place.unwrap_or_else(|| {
                hidden.push(key.expr.clone());
                exprs.len() + hidden.len() - 1
            });
            Some(RowKey { output, descending: key.descending, nulls_first: key.nulls_first })
        });
        self.hidden = hidden;
        self
    }
}

impl Lowerer<'_> {
    /// Makes the last projection of an [`Open`] relation. Untyped literals become text.
    pub(super) fn close(&mut self, open: Open) -> Result<Relation> {
        let types: Vec<Type> = open.exprs.iter().map(settled).collect();
        self.close_as(open, &types)
    }

    /// Like [`Lowerer::close`], but keeps the columns by which the rows are ordered, for a query that reads
    /// the rows in that order.
    pub(super) fn close_ordered(&mut self, mut open: Open) -> Result<Relation> {
        let (shown, order) = (open.exprs.len(), std::mem::take(&mut open.order));
        open.exprs.append(&mut open.hidden);
        open.names.resize(open.exprs.len(), "order".into());
        let mut relation = self.close(open)?;
        relation.names.truncate(shown);
        Ok(Relation { order, ..relation })
    }

    /// Makes the last projection of an [`Open`] relation, and converts its columns to these types.
    pub(super) fn close_as(&mut self, open: Open, types: &[Type]) -> Result<Relation> {
        let Open { node, mut domain, exprs, names, distinct, order, hidden: _ } = open;
        let (k, shown) = (domain.len(), exprs.len());
        for (e, t) in exprs.into_iter().zip(types) {
            domain.push(self.coerce(e, t)?);
        }
        let node = self.project(node, domain, &names, k)?;
        let node = if distinct { self.distinct(node)? } else { node };
        let order = order.map(|key| (key.output < shown).then_some(*key));
        Ok(Relation { node, names, order })
    }

    /// Adds a Map, unless `node` has exactly these columns with these labels already.
    pub(super) fn project(
        &mut self,
        node: NodeId,
        exprs: Vec<Expr>,
        names: &[Arc<str>],
        domain: usize,
    ) -> Result<NodeId> {
        let schema = self.graph.schema(node);
        let identity = exprs.len() == schema.len()
            && exprs.iter().enumerate().all(|(i, e)| e.as_column() == Some(i))
            && names.iter().zip(&schema.columns()[domain..]).all(|(n, c)| *n == c.label);
        if identity {
            return Ok(node);
        }
        let labels: Vec<Arc<str>> =
            (0..domain).map(|i| Arc::from(format!("outer_{i}"))).chain(names.iter().cloned()).collect();
        self.add(Map::new(node, exprs).labelled(labels))
    }

    /// Adds a δ. Fails where a column's type has no equality.
    pub(super) fn distinct(&mut self, node: NodeId) -> Result<NodeId> {
        self.comparable(node)?;
        self.once(Distinct::new(node))
    }

    /// Adds the δ, or returns the input of the δ if a key proves that each row occurs once.
    pub(super) fn once(&mut self, distinct: Distinct) -> Result<NodeId> {
        match self.graph.props(distinct.input()).keys.is_empty() {
            true => self.add(distinct),
            false => Ok(distinct.input()),
        }
    }

    /// Fails where a column has no equality operator.
    pub(super) fn comparable(&self, node: NodeId) -> Result<()> {
        match self.graph.schema(node).without_equality() {
            None => Ok(()),
            Some(c) => Err(self.no_equality(&c.ty, &format!("Column \"{}\"", c.label))),
        }
    }

    /// Makes the error that values of a type have no equality; `what` names the value that would have to be
    /// compared. PostgreSQL can compare composite values, by their fields. Their comparison is therefore
    /// noted as not supported yet. For any other type without equality, PostgreSQL fails too.
    pub(super) fn without_equality(&mut self, ty: &Type, what: &str, place: &impl Place) -> Error {
        match self.catalog.fields(ty) {
            Some(_) => self.stop(place, format!("comparing values of the composite type {ty}")),
            None => self.at(self.no_equality(ty, what), place),
        }
    }

    /// Makes PostgreSQL's error for grouping or comparing by a type without equality; `what` names the value
    /// that would have to be compared.
    fn no_equality(&self, ty: &Type, what: &str) -> Error {
        let e = Error::unknown_function(format!("could not identify an equality operator for type {ty}"))
            .detail(format!("{what} would have to be compared."))
            .hint("Cast it to a type that can be compared, such as jsonb or text.");
        match self.catalog.is_opaque(ty) {
            true => {
                let why = self.catalog.doubt("", std::slice::from_ref(ty));
                e.doubted(format!("an equality of type {ty}"), why)
            }
            false => e,
        }
    }

    /// Keeps the columns `0..n`.
    pub(super) fn keep_first(&mut self, node: NodeId, n: usize) -> Result<NodeId> {
        let schema = self.graph.schema(node).clone();
        if schema.len() == n {
            return Ok(node);
        }
        let all: Vec<usize> = (0..n).collect();
        self.add(Map::columns(node, &schema, &all))
    }

    /// Adds a text position to an error that has none.
    pub(super) fn located<T>(&self, result: Result<T>, node: &impl Place) -> Result<T> {
        result.map_err(|e| if e.is_internal() { e } else { self.at(e, node) })
    }
}

/// Returns the type of an output; text for an untyped literal.
fn settled(e: &Expr) -> Type {
    if *e.ty() == Type::Unknown { Type::Text } else { e.ty().clone() }
}
