//! Lowers one SELECT: FROM, WHERE, grouping, the select list, DISTINCT.

use super::Lowerer;
use super::clause::ClauseContext;
use super::from::Build;
use super::names::column_name;
use super::outer_column::Domain;
use super::relation::{Open, RowOrder};
use super::scope::{Frame, Named};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::NodeId;
use crate::syntax::{
    BinaryOperator, Distinct, Expr as Ast, FromItem, Ident, Node, Select, SelectItem, TableKind,
};
use std::sync::Arc;

/// The greatest length of a select list, which is PostgreSQL's limit. The work on a select list may grow with
/// the square of its length.
pub(super) const MAX_OUTPUTS: usize = 1_664;

/// An entry of the select list: an expression that must still be lowered, or a column from `*`.
pub(super) enum Output<'q> {
    Text(&'q Ast),
    Column(Expr),
}

impl Lowerer<'_> {
    pub(super) fn select(&mut self, s: &Select, domain: &Domain) -> Result<Open> {
        self.in_frame(domain, |this| {
            let (node, outputs, names) = this.before_outputs(s, domain)?;
            this.selected(s, node, outputs, names, domain)
        })
    }

    /// Lowers a part of a query that has its own FROM. `domain` has the outer columns that this part can
    /// read.
    pub(super) fn in_frame<R>(
        &mut self,
        domain: &Domain,
        lower: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        self.frames.push(Frame { refs: domain.refs.clone(), domain: domain.node, ..Frame::default() });
        let result = lower(self);
        self.frames.pop();
        result
    }

    /// Lowers FROM and WHERE. Returns the resulting relation, with the select list that is to be computed
    /// over this relation.
    pub(super) fn before_outputs<'q>(
        &mut self,
        s: &'q Select,
        domain: &Domain,
    ) -> Result<(NodeId, Vec<Output<'q>>, Vec<Arc<str>>)> {
        let mut build = Build::default();
        if let Some(node) = domain.node {
            build.push(node, domain.width());
        }
        if let Some(f) = self.frames.last_mut() {
            let several =
                |item: &FromItem| !item.joins.is_empty() || matches!(item.first.kind, TableKind::Nested(_));
            f.alone = matches!(s.from.as_slice(), [one] if !several(one));
        }
        self.list(&s.from, &mut build)?;
        let node = self.filtered(build, s.selection.as_ref())?;
        let (outputs, names) = self.outputs(s)?;
        Ok((node, outputs, names))
    }

    /// Lowers the select list, over groups if the query groups.
    pub(super) fn selected(
        &mut self,
        s: &Select,
        node: NodeId,
        outputs: Vec<Output<'_>>,
        names: Vec<Arc<str>>,
        domain: &Domain,
    ) -> Result<Open> {
        let distinct = matches!(s.distinct, Some(Distinct::Rows));
        let (node, exprs, domain_exprs) = self.grouped(s, node, outputs, &names, domain)?;
        let unequal = exprs.iter().zip(&names).find(|(e, _)| distinct && !e.ty().has_equality());
        if let Some((e, name)) = unequal {
            return Err(self.without_equality(e.ty(), &format!("Column \"{name}\""), s));
        }
        let (order, hidden) = (RowOrder::Any, Vec::new());
        let open = Open { node, domain: domain_exprs, exprs, names, distinct, order, hidden };
        Ok(match self.frames.last() {
            Some(f) if !distinct && !f.resorted => open.ordered(&f.order),
            _ => open,
        })
    }

    /// Joins the items of FROM and filters them by WHERE. Each conjunct is applied at the lowest join that
    /// has all columns of the conjunct. Conjuncts with subqueries are applied after all joins.
    fn filtered(&mut self, mut build: Build, selection: Option<&Ast>) -> Result<NodeId> {
        let mut later = Vec::new();
        for term in selection.map(conjuncts).unwrap_or_default() {
            if self.is_membership(term) {
                later.push((term, None));
                continue;
            }
            let mut cx = ClauseContext::condition("WHERE");
            let e = self.condition(term, &mut cx)?;
            if cx.subqueries.is_empty() {
                build.conjuncts.extend(e.conjuncts());
            } else {
                later.push((term, Some((e, cx))));
            }
        }
        let mut node = self.finish(build)?;
        for (term, lowered) in later {
            node = match lowered {
                Some((e, cx)) => self.filter(node, e, cx)?,
                None => self.membership(node, term)?,
            };
        }
        Ok(node)
    }

    /// Returns the select list, with the name of each entry; `*` is expanded.
    fn outputs<'q>(&mut self, s: &'q Select) -> Result<(Vec<Output<'q>>, Vec<Arc<str>>)> {
        let (mut outputs, mut names) = (Vec::new(), Vec::new());
        for item in &s.items {
            match item {
                SelectItem::Value { expr, alias } => {
                    let name = alias.as_ref().map_or_else(|| column_name(expr), Ident::folded);
                    names.push(Arc::from(name));
                    outputs.push(Output::Text(expr));
                }
                SelectItem::Star(_) => {
                    let star = self.frames.last().map(|f| f.scope.star.clone()).unwrap_or_default();
                    if star.is_empty() && s.from.is_empty() {
                        return Err(
                            self.at(Error::syntax("SELECT * with no tables specified is not valid"), item)
                        );
                    }
                    expand(star, &mut outputs, &mut names);
                }
                SelectItem::TableStar(name, _) => {
                    let qualifier = name.folded();
                    let items = self.frames.last().map(|f| f.scope.items.as_slice()).unwrap_or_default();
                    let Some(found) = items.iter().find(|i| i.answers_to(&qualifier)) else {
                        let table = qualifier.last().map_or("", String::as_str);
                        let e =
                            Error::unknown_table(format!("missing FROM-clause entry for table \"{table}\""));
                        let e = super::scope::hint(e, table, items.iter().map(|i| &*i.name));
                        return Err(self.at(e, name));
                    };
                    expand(found.columns.clone(), &mut outputs, &mut names);
                }
                SelectItem::FieldsStar(e, _) => {
                    return Err(self.stop(e, "expanding a composite value with .*"));
                }
            }
        }
        if outputs.len() > MAX_OUTPUTS {
            let e = Error::too_complex(format!("target lists can have at most {MAX_OUTPUTS} entries"));
            return Err(s.items.last().map_or(e.clone(), |last| self.at(e, last)));
        }
        Ok((outputs, names))
    }
}

fn expand(columns: Vec<Named>, outputs: &mut Vec<Output<'_>>, names: &mut Vec<Arc<str>>) {
    for c in columns {
        names.push(c.name);
        outputs.push(Output::Column(c.expr));
    }
}

/// Returns the terms of a conjunction in order, without parentheses.
pub(super) fn conjuncts(e: &Ast) -> Vec<&Ast> {
    let (mut terms, mut stack) = (Vec::new(), vec![e]);
    while let Some(e) = stack.pop() {
        match &e.node {
            Node::Nested(inner) => stack.push(inner),
            Node::Binary { left, op: BinaryOperator::And, right } => stack.extend([&**right, &**left]),
            _ => terms.push(e),
        }
    }
    terms
}
