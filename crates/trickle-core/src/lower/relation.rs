//! What a query expression is lowered to, before and after its untyped literals are settled.

use super::Lowerer;
use super::scope::Domain;
use crate::error::{Error, Result};
use crate::expr::{Expr, SortKey};
use crate::graph::{NodeId, Schema};
use crate::parse::Place;
use crate::rel::{Distinct, Map};
use crate::types::Type;
use std::sync::Arc;

/// The order of rows that a query asks for and PostgreSQL gives them in. SQL lets nothing depend on it; people do, where such
/// rows are the whole of FROM, in LIMIT, windows and aggregates that have no ORDER BY of their own. Where PostgreSQL sorts the
/// rows for other clauses it promises nothing, as its sort is not stable.
#[derive(Clone, Debug, Default)]
pub(super) enum RowOrder<Key> {
    /// None.
    #[default]
    Any,
    /// By values of theirs.
    By(Vec<Key>),
    /// By what they do not show.
    Hidden,
}

/// A column by which rows are ordered: an output, or behind the outputs one that is not shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowKey {
    pub(super) output: usize,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
}

impl<Key> RowOrder<Key> {
    /// By these keys; any where there is none.
    pub(super) fn by(keys: Vec<Key>) -> RowOrder<Key> {
        if keys.is_empty() { RowOrder::Any } else { RowOrder::By(keys) }
    }
    /// By what each key has become; hidden where one is lost.
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

/// A finished relation: the domain's columns, then one per name, and behind these what its rows are ordered by.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    pub(super) node: NodeId,
    pub(super) names: Vec<Arc<str>>,
    pub(super) order: RowOrder<RowKey>,
}

impl Relation {
    /// Rows in any order.
    pub(super) fn new(node: NodeId, names: Vec<Arc<str>>) -> Relation {
        Relation { node, names, order: RowOrder::Any }
    }
}

/// A relation whose last projection is still open, since UNION may yet decide the type of a literal.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) node: NodeId,
    /// The domain's columns.
    pub(super) domain: Vec<Expr>,
    pub(super) exprs: Vec<Expr>,
    pub(super) names: Vec<Arc<str>>,
    pub(super) distinct: bool,
    pub(super) order: RowOrder<RowKey>,
    /// What is not shown and the rows are ordered by.
    pub(super) hidden: Vec<Expr>,
}

impl Open {
    /// A finished relation, opened again.
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

    /// With an order by expressions, of which some may be outputs.
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
    /// Closes the projection; untyped literals become text.
    pub(super) fn close(&mut self, open: Open) -> Result<Relation> {
        let types: Vec<Type> = open.exprs.iter().map(settled).collect();
        self.close_as(open, &types)
    }

    /// The same, with what the rows are ordered by, for whoever takes them in that order.
    pub(super) fn close_ordered(&mut self, mut open: Open) -> Result<Relation> {
        let (shown, order) = (open.exprs.len(), std::mem::take(&mut open.order));
        open.exprs.append(&mut open.hidden);
        open.names.resize(open.exprs.len(), "order".into());
        let mut relation = self.close(open)?;
        relation.names.truncate(shown);
        Ok(Relation { order, ..relation })
    }

    /// Closes the projection with these column types.
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

    /// A Map, left out where it would change nothing but labels that are right already.
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

    /// δ, where every column can be compared.
    pub(super) fn distinct(&mut self, node: NodeId) -> Result<NodeId> {
        self.comparable(node)?;
        self.once(Distinct::new(node))
    }

    /// δ, or its input where a key says that each row is there once.
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

    /// Why values of a type cannot be compared; `what` would have to be. PostgreSQL compares composite values field by field,
    /// which is not done here yet; anything else it refuses too.
    pub(super) fn without_equality(&mut self, ty: &Type, what: &str, place: &impl Place) -> Error {
        match self.catalog.fields(ty) {
            Some(_) => self.stop(place, format!("comparing values of the composite type {ty}")),
            None => self.at(self.no_equality(ty, what), place),
        }
    }

    /// PostgreSQL's refusal to group or compare a type; `what` would have to be.
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

    /// The columns `0..n`.
    pub(super) fn keep_first(&mut self, node: NodeId, n: usize) -> Result<NodeId> {
        let schema = self.graph.schema(node).clone();
        if schema.len() == n {
            return Ok(node);
        }
        let all: Vec<usize> = (0..n).collect();
        self.add(Map::columns(node, &schema, &all))
    }

    /// Adds a place to an error that has none.
    pub(super) fn located<T>(&self, result: Result<T>, node: &impl Place) -> Result<T> {
        result.map_err(|e| if e.is_internal() { e } else { self.at(e, node) })
    }
}

/// The type of an output; of an untyped literal, text.
fn settled(e: &Expr) -> Type {
    if *e.ty() == Type::Unknown { Type::Text } else { e.ty().clone() }
}
