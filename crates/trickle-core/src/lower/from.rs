//! Lowers FROM: the list of its items, which are tables, views, CTEs and subqueries.

use super::Lowerer;
use super::functions::FunctionItem;
use super::on::DeferredTerm;
use super::relation::RowOrder;
use super::scope::{Item, Named, Scope};
use super::slot::shift;
use super::source::Source;
use crate::error::{Error, Result};
use crate::expr::{Expr, SortKey};
use crate::graph::NodeId;
use crate::rel::Values;
use crate::syntax::{Alias, FromItem, Place, TableKind, TableRef};
use crate::verdict::{Cause, ReasonKind};
use std::sync::Arc;

/// A lowered part of FROM. Its columns are the columns `offset..offset + width` of the whole FROM.
#[derive(Clone, Debug)]
pub(super) struct Factor {
    pub(super) node: NodeId,
    pub(super) offset: usize,
    pub(super) width: usize,
}

/// The parts of FROM that are lowered so far, and the conditions that no join applies yet. The columns of the
/// parts are concatenated.
#[derive(Clone, Debug, Default)]
pub(super) struct Build {
    pub(super) factors: Vec<Factor>,
    pub(super) conjuncts: Vec<Expr>,
    /// The terms of inner joins that contain subqueries.
    pub(super) later: Vec<DeferredTerm>,
    /// The number of conditions at the end of `conjuncts` that link the last factor to the other factors.
    /// Such a condition equates an outer column at the start of the last factor to the same column of FROM.
    pub(super) links: usize,
    /// The position of the first factor of the operand that is being lowered. The factors before this
    /// position are the other operand of an outer join.
    pub(super) floor: usize,
}

impl Factor {
    pub(super) fn holds(&self, column: usize) -> bool {
        (self.offset..self.offset + self.width).contains(&column)
    }
}

impl Build {
    pub(super) fn width(&self) -> usize {
        self.factors.last().map_or(0, |f| f.offset + f.width)
    }
    pub(super) fn push(&mut self, node: NodeId, width: usize) {
        let offset = self.width();
        self.factors.push(Factor { node, offset, width });
    }
}

impl Lowerer<'_> {
    pub(super) fn list(&mut self, from: &[FromItem], build: &mut Build) -> Result<()> {
        for item in from {
            let scope = self.item_of_from(item, build)?;
            let old = self.take_scope();
            let both = self.side_by_side(old, scope, item)?;
            self.set_scope(both);
        }
        if from.len() > 1 {
            self.set_order(RowOrder::Any);
        }
        Ok(())
    }

    pub(super) fn take_scope(&mut self) -> Scope {
        self.frames.last_mut().map(|f| std::mem::take(&mut f.scope)).unwrap_or_default()
    }

    pub(super) fn set_scope(&mut self, scope: Scope) {
        if let Some(f) = self.frames.last_mut() {
            f.scope = scope;
        }
    }

    /// Combines two scopes. Fails where one alias would denote two tables.
    pub(super) fn side_by_side(&self, left: Scope, right: Scope, place: &impl Place) -> Result<Scope> {
        let twice = right.items.iter().find(|r| {
            left.items.iter().any(|l| l.name == r.name && (l.schema == r.schema || l.schema.is_none()))
        });
        match twice {
            Some(item) => {
                let e =
                    Error::duplicate_alias(format!("table name \"{}\" specified more than once", item.name))
                        .hint("Give one of them an alias.");
                Err(self.at(e, place))
            }
            None => Ok(left.and(right)),
        }
    }

    /// Lowers one item of FROM: a table, a subquery or a parenthesised join. Appends the item, and returns
    /// the scope of its names.
    pub(super) fn table_ref(&mut self, t: &TableRef, build: &mut Build) -> Result<Scope> {
        match &t.kind {
            TableKind::Named { name, only, sampled } => {
                self.check_sample(*sampled, t);
                let (schema, table) = name.qualified();
                let source = self.named_table(schema.as_deref(), &table, name)?;
                if *only && source.descendants {
                    let help = "Read all of them together, or move the children's rows into a table of their own: a change of \
                        a child cannot be told from one of its parent.";
                    let construct = format!("ONLY {table}, from which other tables inherit,");
                    self.reason(ReasonKind::NotYet, name, construct, help);
                }
                self.append(source, &table, t.alias.as_ref(), build)
            }
            TableKind::Query { query, lateral, sampled } => {
                self.check_sample(*sampled, t);
                let source = if *lateral { self.lateral(query, build, t)? } else { self.derived(query)? };
                self.append(source, "", t.alias.as_ref(), build)
            }
            TableKind::Nested(item) => {
                let scope = self.item_of_from(item, build)?;
                let Some(alias) = &t.alias else { return Ok(scope) };
                let names = scope.star.iter().map(|c| c.name.clone()).collect();
                let names = self.alias_columns(alias, names)?;
                let columns =
                    scope.star.into_iter().zip(names).map(|(c, name)| Named { name, expr: c.expr }).collect();
                Ok(Scope::of_item(Item::of(Arc::from(alias.name.folded()), columns)))
            }
            TableKind::Functions { functions, ordinality } => {
                self.functions(&FunctionItem::new(t, functions, *ordinality), build)
            }
        }
    }

    fn check_sample(&mut self, sampled: bool, place: &TableRef) {
        if sampled {
            let help = "Sample by a condition on the rows instead, such as a hash of the key.";
            self.because(ReasonKind::Never, Cause::Volatile, place, "TABLESAMPLE", help);
        }
    }

    /// Returns the node and the offset of the factor that has all these columns. If several factors have
    /// these columns, the factors are merged into one.
    pub(super) fn holder(&mut self, columns: &[usize], build: &mut Build) -> Result<Option<(NodeId, usize)>> {
        let holds = |f: &Factor| columns.iter().all(|c| f.holds(*c));
        if !build.factors.iter().any(holds) {
            let used = |f: &Factor| columns.iter().any(|c| f.holds(*c));
            let first = build.factors.iter().position(used).unwrap_or(0);
            self.merge(build, first)?;
        }
        Ok(build.factors.iter().find(|f| holds(f)).map(|f| (f.node, f.offset)))
    }

    /// Appends a relation to FROM. The first columns of the relation may be copies of outer columns
    /// (`refs`). A condition then equates each copy with the column that it copies.
    pub(super) fn append(
        &mut self,
        source: Source,
        name: &str,
        alias: Option<&Alias>,
        build: &mut Build,
    ) -> Result<Scope> {
        let Source { node, names, refs, schema, key, table, is_view, unread, order, descendants: _ } = source;
        let fields = is_view.then(|| names.clone());
        if let (Some(a), Some(hidden)) = (alias.filter(|a| !a.columns.is_empty()), unread.first()) {
            return Err(
                self.stop(&a.name, format!("the column \"{hidden}\", which is computed where it is read"))
            );
        }
        let (name, names) = match alias {
            Some(a) => (a.name.folded(), self.alias_columns(a, names)?),
            None => (name.to_owned(), names),
        };
        let types = self.graph.schema(node).clone();
        let offset = build.width();
        build.links = if self.probing() { 0 } else { refs.len() };
        for (i, o) in refs.iter().enumerate() {
            if self.probing() {
                self.outer_column(o.frame, o.column, &o.ty)?;
                continue;
            }
            let link = self.here(o)?;
            build.conjuncts.push(link.same_as(shift(&types.expr(i), offset as isize)));
        }
        build.push(node, types.len());
        let k = refs.len();
        self.set_order(order.map(|key| {
            let expr = shift(&types.expr(k + key.output), offset as isize);
            Some(SortKey { expr, descending: key.descending, nulls_first: key.nulls_first })
        }));
        let never = |(i, _): &(usize, &Arc<str>)| types.column(k + i).is_some_and(|c| !c.nullable);
        let once = |(_, name): &(usize, &Arc<str>)| names.iter().filter(|n| n == name).count() == 1;
        let present = names.iter().enumerate().filter(never).find(once).map(|(_, name)| name.clone());
        let columns = names
            .into_iter()
            .enumerate()
            .map(|(i, name)| Named { name, expr: shift(&types.expr(k + i), offset as isize) })
            .collect();
        let key = key.map(|k| k.iter().map(|c| c + offset).collect());
        let schema = schema.filter(|_| alias.is_none());
        Ok(Scope::of_item(Item {
            schema,
            key,
            present,
            table,
            fields,
            unread,
            ..Item::of(Arc::from(name), columns)
        }))
    }

    /// Joins the whole of FROM into one relation.
    pub(super) fn finish(&mut self, mut build: Build) -> Result<NodeId> {
        if build.factors.is_empty() {
            let unit = self.add(Values::unit())?;
            build.push(unit, 0);
        }
        let (mut node, rest) = self.join_all(&build.factors, build.conjuncts)?;
        if !rest.is_empty() {
            return Err(Error::internal("a condition reads a column that FROM does not have"));
        }
        for term in &build.later {
            node = self.filter_later(node, term, 0)?;
        }
        Ok(node)
    }
}
