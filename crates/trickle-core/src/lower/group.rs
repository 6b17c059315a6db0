//! Lowers GROUP BY, HAVING and aggregates.

use super::Lowerer;
use super::clause::ClauseContext;
use super::grouping::Keys;
use super::lockstep::{asked, holds_set};
use super::outer_column::Domain;
use super::relation::RowOrder;
use super::select::{Output, conjuncts};
use super::slot::Slot;
use super::subquery::Pending;
use super::window::Windowed;
use crate::agg::{AggCall, family};
use crate::error::Result;
use crate::expr::{Expr, ExprKind};
use crate::graph::NodeId;
use crate::rel::{Map, OuterJoin, Reduce, SetCall, Union};
use crate::syntax::Select;
use crate::types::{Datum, Type};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The columns of the relation after grouping. [`Grouping::apply`] rewrites expressions over the relation
/// before grouping to read these columns. The order of the columns is: the domain's columns, the keys, the
/// determined columns, the aggregates, and the numbers of GROUPING.
pub(super) struct Grouping {
    /// The number of the domain's columns.
    domain: usize,
    groups: Keys,
    /// The used columns of each table whose primary key is in every grouping set. The relation is grouped by
    /// these columns too.
    determined: Vec<usize>,
    aggregates: Vec<AggCall>,
    /// For each call of GROUPING, the positions of the keys that are its arguments.
    asked: Vec<Vec<usize>>,
}

impl Grouping {
    /// Rewrites `e` to an expression over the relation after grouping. `e` is over the relation before
    /// grouping, with placeholders for aggregates. The error is the position of the first column that is
    /// neither grouped nor determined.
    fn apply(&self, e: &Expr) -> Result<Expr, usize> {
        let column = |i: usize| Ok(Expr::column(i, e.ty().clone()));
        let determined = self.domain + self.groups.keys.len();
        let aggregates = determined + self.determined.len();
        if let Some(i) = self.groups.keys.iter().position(|k| k == e) {
            return column(self.domain + i);
        }
        if let ExprKind::Column(c) = e.kind() {
            return match Slot::of(*c) {
                Slot::Aggregate(i) => column(aggregates + i),
                Slot::Grouping(i) => column(aggregates + self.aggregates.len() + i),
                Slot::Column(c) if c < self.domain => column(c),
                Slot::Column(c) => match self.determined.iter().position(|d| *d == c) {
                    Some(i) => column(determined + i),
                    None => Err(c),
                },
                _ => Ok(e.clone()),
            };
        }
        stacker::maybe_grow(64 << 10, 1 << 20, || {
            let mut children = Vec::new();
            for c in e.children() {
                children.push(self.apply(c)?);
            }
            Ok(if children.is_empty() { e.clone() } else { e.with_children(children) })
        })
    }
}

impl Lowerer<'_> {
    /// Lowers the select list, over groups if the query groups. Returns the relation, the select list over
    /// it, and the positions of the domain's columns in the relation.
    pub(super) fn grouped(
        &mut self,
        s: &Select,
        node: NodeId,
        outputs: Vec<Output<'_>>,
        names: &[Arc<str>],
        domain: &Domain,
    ) -> Result<(NodeId, Vec<Expr>, Vec<Expr>)> {
        let mut cx = ClauseContext::select_list(s);
        let mut exprs = Vec::new();
        for o in &outputs {
            exprs.push(match o {
                Output::Text(e) => self.expr(e, &mut cx)?,
                Output::Column(e) => e.clone(),
            });
        }
        let windows = std::mem::take(&mut cx.windows);
        exprs.extend(cx.sets.iter().flat_map(|s| &s.args).cloned());
        exprs.extend(windows.iter().flat_map(Windowed::exprs).cloned());
        let sets = cx.sets.clone();
        cx.having();
        let mut having = Vec::new();
        for term in s.having.as_ref().map(conjuncts).unwrap_or_default() {
            having.push(self.condition(term, &mut cx)?);
        }
        let (node, exprs, outer) = self.in_groups(s, node, (&outputs, names), exprs, having, cx, domain)?;
        let (mut node, mut exprs) = (node, exprs);
        if !windows.is_empty() {
            (node, exprs) = self.windowed(node, exprs, windows, domain.width())?;
        }
        if !sets.is_empty() {
            self.set_order(if s.from.is_empty() { RowOrder::Hidden } else { self.unshown_order() });
            if let Some(f) = self.frames.last_mut() {
                f.expanded = true;
            }
            let args = exprs.split_off(outputs.len());
            (node, exprs) = self.in_lockstep(node, exprs, with_args(&sets, args), s)?;
        }
        Ok((node, exprs, outer))
    }

    /// Runs the set-returning calls in the keys over the rows before grouping.
    fn keyed_sets(
        &mut self,
        s: &Select,
        node: NodeId,
        keys: &mut [Expr],
        exprs: &mut [Expr],
        sets: Vec<SetCall>,
        (outputs, listed): (usize, usize),
    ) -> Result<NodeId> {
        if !keys.iter().any(holds_set) {
            return Ok(node);
        }
        if sets.iter().flat_map(|s| &s.args).any(|e| !subqueries(e).is_empty()) {
            return Err(self.stop(s, "GROUP BY a set-returning function of a subquery"));
        }
        let (node, run) = self.in_lockstep(node, keys.to_vec(), sets.clone(), s)?;
        for (key, run) in keys.iter_mut().zip(run) {
            let old = std::mem::replace(key, run.clone());
            for e in exprs.iter_mut().filter(|_| holds_set(&old)) {
                *e = e.rewrite(&mut |n| if n == old { run.clone() } else { n });
            }
        }
        // In the select list, columns replace the calls that are keys. The arguments of these calls are
        // therefore not read any more.
        let (list, args) = exprs.split_at_mut(outputs);
        let open = asked(list, &sets);
        let arg = sets.iter().zip(open).take(listed).flat_map(|(s, open)| s.args.iter().map(move |_| open));
        for (e, _) in args.iter_mut().zip(arg).filter(|(_, open)| !open) {
            *e = Expr::null(e.ty().clone());
        }
        Ok(node)
    }

    /// Lowers the clauses that are evaluated over groups, or over rows if the query does not group.
    #[allow(clippy::too_many_arguments)]
    fn in_groups(
        &mut self,
        s: &Select,
        node: NodeId,
        (outputs, names): (&[Output<'_>], &[Arc<str>]),
        mut exprs: Vec<Expr>,
        mut having: Vec<Expr>,
        mut cx: ClauseContext<'_>,
        domain: &Domain,
    ) -> Result<(NodeId, Vec<Expr>, Vec<Expr>)> {
        let clause = self.clause(s)?;
        let width = domain.width();
        let schema = self.graph.schema(node).clone();
        let grouped = !clause.is_absent() || s.having.is_some();
        if !grouped && cx.aggregates.is_empty() && cx.groupings.is_empty() {
            let (node, exprs) = self.settle(node, exprs, cx)?;
            return Ok((node, exprs, (0..width).map(|i| schema.expr(i)).collect()));
        }
        self.set_order(RowOrder::Any);
        let named = self.key_outputs(&clause, outputs, names);
        let node = self.before_grouping(s, node, &mut cx, (&mut exprs, &mut having), &named)?;
        let listed = cx.sets.len();
        let mut sets = std::mem::take(&mut cx.sets);
        let (node, mut groups) = self.keys(s, &clause, node, (outputs, names), &exprs, &mut sets)?;
        let node = self.keyed_sets(s, node, &mut groups.keys, &mut exprs, sets, (outputs.len(), listed))?;
        let asked = self.asked(&cx.groupings, &groups)?;
        let (node, grouping) = self.reduce(s, node, (groups, asked), &mut cx, &exprs, &having, domain)?;
        self.after_grouping(node, &grouping, exprs, having, cx, width)
    }

    /// Filters the groups, and computes the select list over the remaining groups.
    fn after_grouping(
        &mut self,
        node: NodeId,
        grouping: &Grouping,
        exprs: Vec<Expr>,
        having: Vec<Expr>,
        cx: ClauseContext<'_>,
        width: usize,
    ) -> Result<(NodeId, Vec<Expr>, Vec<Expr>)> {
        let ungrouped = |c: usize| cx.ungrouped(c);
        let apply = |e: &Expr| grouping.apply(e).map_err(ungrouped);
        let exprs = exprs.iter().map(apply).collect::<Result<Vec<_>>>()?;
        let having = having.iter().map(apply).collect::<Result<Vec<_>>>()?;
        let mut subqueries = Vec::new();
        for sub in &cx.subqueries {
            subqueries.push(self.translated(sub, &apply)?);
        }
        let (mut node, values) = self.place_all(node, subqueries)?;
        let put = |e: &Expr| super::subquery::put(e, &values);
        let having = Expr::and(having.iter().map(put));
        node = self.filter_plain(node, having)?;
        let exprs = exprs.iter().map(put).collect();
        let schema = self.graph.schema(node).clone();
        Ok((node, exprs, (0..width).map(|i| schema.expr(i)).collect()))
    }

    /// Casts a literal without a type to text.
    pub(super) fn typed(&mut self, e: Expr) -> Result<Expr> {
        let ty = if *e.ty() == Type::Unknown { Type::Text } else { e.ty().clone() };
        self.coerce(e, &ty)
    }

    /// Groups by the keys and by the columns that the keys determine, and computes the aggregates. Each
    /// grouping set becomes a separate γ, and the result is the sum of these γs.
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &mut self,
        s: &Select,
        node: NodeId,
        (groups, asked): (Keys, Vec<Vec<usize>>),
        cx: &mut ClauseContext<'_>,
        exprs: &[Expr],
        having: &[Expr],
        domain: &Domain,
    ) -> Result<(NodeId, Grouping)> {
        let schema = self.graph.schema(node).clone();
        let mut used: Vec<usize> = exprs.iter().chain(having).flat_map(|e| e.columns()).collect();
        used.extend(cx.subqueries.iter().flat_map(|q| q.local_columns(self.frames.len() - 1)));
        let determined = self.determined(&groups, &used);
        // A column whose type has no equality cannot be a key of the plan, though each group has only one
        // value of this column.
        let incomparable = |c: &usize| schema.column(*c).is_some_and(|c| !c.ty.has_equality());
        if determined.iter().any(incomparable) {
            return Err(self.stop(s, "a column of a type without equality beside a grouped primary key"));
        }
        // Keys that are not plain columns are computed first, and are appended to the columns of the input.
        // The input's columns keep their positions.
        let computed: Vec<&Expr> = groups.keys.iter().filter(|k| k.as_column().is_none()).collect();
        let mut all = schema.identity();
        all.extend(computed.into_iter().cloned());
        let input = if all.len() == schema.len() { node } else { self.add(Map::new(node, all))? };
        let mut next = schema.len();
        let mut places = Vec::new();
        for k in &groups.keys {
            places.push(k.as_column().unwrap_or_else(|| {
                next += 1;
                next - 1
            }));
        }
        let aggregates = cx.aggregates.clone();
        let grouping = Grouping { domain: domain.width(), groups, determined, aggregates, asked };
        let mut arms = Vec::new();
        for set in &grouping.groups.sets {
            arms.push(self.reduced(s, input, set, &places, &grouping, domain)?);
        }
        let node = match arms.as_slice() {
            [one] => *one,
            _ => self.add(Union::new(arms))?,
        };
        Ok((node, grouping))
    }

    /// Groups by one grouping set. The keys are the columns `places` of the input; keys outside the set are
    /// NULL in the result.
    fn reduced(
        &mut self,
        s: &Select,
        input: NodeId,
        set: &BTreeSet<usize>,
        places: &[usize],
        grouping: &Grouping,
        domain: &Domain,
    ) -> Result<NodeId> {
        let mut by: Vec<usize> = (0..grouping.domain).collect();
        for place in set.iter().map(|i| places[*i]).chain(grouping.determined.iter().copied()) {
            if !by.contains(&place) {
                by.push(place);
            }
        }
        let reduced = self.add(Reduce::new(input, by.clone(), grouping.aggregates.clone()))?;
        let reduced = match domain.node {
            Some(d) if set.is_empty() => self.with_empty_groups(s, reduced, d, &grouping.aggregates)?,
            _ => reduced,
        };
        let (rows, groups) = (self.graph.schema(input).clone(), self.graph.schema(reduced).clone());
        let column = |place: usize| by.iter().position(|b| *b == place).map(|i| groups.expr(i));
        let mut exprs: Vec<Option<Expr>> = (0..grouping.domain).map(column).collect();
        exprs.extend((0..places.len()).map(|i| set.contains(&i).then(|| column(places[i])).flatten()));
        exprs.extend(grouping.determined.iter().map(|c| column(*c)));
        let shown =
            (0..grouping.domain).chain(places.iter().copied()).chain(grouping.determined.iter().copied());
        let rows = rows.select(&shown.collect::<Vec<_>>());
        let mut exprs: Vec<Expr> = exprs
            .into_iter()
            .zip(rows.columns())
            .map(|(e, c)| e.unwrap_or_else(|| Expr::null(c.ty.clone())))
            .collect();
        exprs.extend((by.len()..groups.len()).map(|i| groups.expr(i)));
        exprs.extend(grouping.asked.iter().map(|keys| {
            let number = keys.iter().fold(0, |n, k| n << 1 | i64::from(!set.contains(k)));
            Expr::literal(Datum::Int(number), Type::Int4)
        }));
        if exprs == groups.identity() {
            return Ok(reduced);
        }
        let aggregates = grouping.aggregates.iter().map(|a| a.sig.name.clone());
        let numbers = grouping.asked.iter().map(|_| Arc::from("grouping"));
        let labels = rows.columns().iter().map(|c| c.label.clone()).chain(aggregates).chain(numbers);
        self.add(Map::new(reduced, exprs).labelled(labels.collect()))
    }

    /// Adds a group for each value of the domain for which no row was aggregated. Without GROUP BY, the
    /// result has a row for every value of the domain.
    fn with_empty_groups(
        &mut self,
        s: &Select,
        reduced: NodeId,
        domain: NodeId,
        aggregates: &[AggCall],
    ) -> Result<NodeId> {
        let (d, r) = (self.graph.schema(domain).clone(), self.graph.schema(reduced).clone());
        let width = d.len();
        let on = Expr::and((0..width).map(|i| same(d.expr(i), r.expr(i).shifted(width), &d, &r, i, i)));
        let joined = self.add(OuterJoin::left(domain, reduced, on))?;
        let mut exprs: Vec<Expr> = (0..width).map(|i| d.expr(i)).collect();
        for (i, a) in aggregates.iter().enumerate() {
            let value = r.expr(width + i).shifted(width);
            exprs.push(match family(&a.sig).of_nothing(a) {
                Some(Datum::Null) => value,
                Some(nothing) => {
                    let ty = value.ty().clone();
                    Expr::new(ExprKind::Coalesce(vec![value, Expr::literal(nothing, ty.clone())]), ty)
                }
                None => {
                    let construct = format!("aggregate {} in a subquery that uses outer columns", a.sig.name);
                    self.not_yet(s, construct);
                    value
                }
            });
        }
        self.add(Map::new(joined, exprs))
    }

    /// Returns the used columns that belong to a table whose whole primary key is in every grouping set.
    fn determined(&self, groups: &Keys, used: &[usize]) -> Vec<usize> {
        let common: Vec<usize> = groups.common().filter_map(Expr::as_column).collect();
        let grouped = |c: usize| groups.keys.iter().any(|k| k.as_column() == Some(c));
        let items = self.frames.last().map(|f| f.scope.items.as_slice()).unwrap_or_default();
        let mut out = Vec::new();
        for item in items {
            let Some(key) = &item.key else { continue };
            if key.is_empty() || !key.iter().all(|c| common.contains(c)) {
                continue;
            }
            for c in item.columns.iter().filter_map(|c| c.expr.as_column()) {
                if used.contains(&c) && !grouped(c) && !out.contains(&c) {
                    out.push(c);
                }
            }
        }
        out
    }

    /// Joins the subqueries inside aggregates and inside the outputs `keys` to the rows before grouping. The
    /// other subqueries stay pending.
    fn before_grouping(
        &mut self,
        s: &Select,
        node: NodeId,
        cx: &mut ClauseContext<'_>,
        (exprs, having): (&mut [Expr], &mut [Expr]),
        keys: &[usize],
    ) -> Result<NodeId> {
        let first = cx.aggregates.iter().flat_map(AggCall::exprs);
        let first = first.chain(keys.iter().filter_map(|k| exprs.get(*k)));
        let early = with_operands(first.flat_map(subqueries).collect(), &cx.subqueries);
        let mut node = node;
        let mut values: Vec<Option<Expr>> = vec![None; cx.subqueries.len()];
        for i in &early {
            let placed = self.translated(&cx.subqueries[*i], &|e| Ok(fill(e, &values)))?;
            let aggregate = |e: &Expr| e.columns().iter().any(|c| matches!(Slot::of(*c), Slot::Aggregate(_)));
            if placed.pending.operands().any(aggregate) {
                return Err(self.stop(s, "GROUP BY a subquery over groups"));
            }
            let (next, mut value) = self.place_all(node, vec![placed])?;
            node = next;
            values[*i] = value.pop();
        }
        cx.aggregates = cx.aggregates.iter().map(|a| a.map_exprs(|e| fill(e, &values))).collect();
        for e in keys {
            if let Some(e) = exprs.get_mut(*e) {
                *e = fill(e, &values);
            }
        }
        let later = exprs.iter().chain(having.iter()).flat_map(subqueries).collect();
        let later = with_operands(later, &cx.subqueries);
        let number = |i: usize| later.iter().position(|l| *l == i).unwrap_or(i);
        let renumber = |e: &Expr| {
            e.rewrite(&mut |n| match n.as_column().map(Slot::of) {
                Some(Slot::Subquery(i)) => Slot::Subquery(number(i)).expr(n.ty().clone()),
                _ => n,
            })
        };
        for e in exprs.iter_mut().chain(having.iter_mut()) {
            *e = renumber(e);
        }
        let mut pending: Vec<_> = later.iter().map(|i| cx.subqueries[*i].clone()).collect();
        for p in &mut pending {
            p.rewrite_operands(|e| Ok(renumber(&fill(e, &values))))?;
        }
        cx.subqueries = pending;
        Ok(node)
    }
}

/// Replaces the arguments of all calls by `args`, in the same order.
pub(super) fn with_args(sets: &[SetCall], args: Vec<Expr>) -> Vec<SetCall> {
    let mut args = args.into_iter();
    sets.iter().map(|s| s.map_exprs(|e| args.next().unwrap_or_else(|| e.clone()))).collect()
}

/// Returns the numbers of the subqueries whose values an expression reads.
fn subqueries(e: &Expr) -> Vec<usize> {
    let slot = |c: &usize| match Slot::of(*c) {
        Slot::Subquery(i) => Some(i),
        _ => None,
    };
    e.columns().iter().filter_map(slot).collect()
}

/// Adds the subqueries that a wanted subquery contains in its left operand or its guard. A subquery comes
/// after the subqueries that it contains. One pass from the last to the first therefore finds all.
fn with_operands(mut wanted: BTreeSet<usize>, all: &[Pending<'_>]) -> BTreeSet<usize> {
    for (i, p) in all.iter().enumerate().rev() {
        if wanted.contains(&i) {
            wanted.extend(p.operands().flat_map(subqueries));
        }
    }
    wanted
}

/// Replaces the placeholder of each subquery that has a value in `values` by that value.
fn fill(e: &Expr, values: &[Option<Expr>]) -> Expr {
    e.rewrite(&mut |node| match node.as_column().map(Slot::of) {
        Some(Slot::Subquery(i)) => values.get(i).cloned().flatten().unwrap_or(node),
        _ => node,
    })
}

/// Returns the equality of two columns, where NULL is equal to NULL. The result is plain `=` if one of the
/// columns is never NULL.
pub(super) fn same(
    l: Expr,
    r: Expr,
    left: &crate::graph::Schema,
    right: &crate::graph::Schema,
    i: usize,
    j: usize,
) -> Expr {
    let nullable = |s: &crate::graph::Schema, c: usize| s.column(c).is_none_or(|c| c.nullable);
    if nullable(left, i) && nullable(right, j) { l.same_as(r) } else { l.equals(r) }
}
