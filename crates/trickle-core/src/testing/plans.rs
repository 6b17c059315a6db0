//! Random well-typed plans, in which every operator occurs under every other operator.

use super::{Choice, exprs, timed, windows};
use crate::agg::{self, AggCall};
use crate::catalog::TableDef;
use crate::error::{Error, Result};
use crate::expr::functions::resolve_function;
use crate::expr::{Expr, ExprKind, FuncSig, SortKey};
use crate::graph::{Column, Graph, NodeId, Schema};
use crate::rel::{
    Distinct, Expand, Filter, Fixpoint, Join, Map, Negate, OuterJoin, Positive, Recursion, Reduce, SemiJoin,
    SetCall, SetOp, SetOpKind, Single, Step, Table, Union, Values,
};
use crate::types::{Datum, Type};
use std::sync::Arc;

/// The limits on the contents of random plans.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The greatest number of operators above the leaves.
    pub operators: usize,
    /// Whether functions that the evaluator does not know may occur.
    pub opaque: bool,
    /// Whether expressions that can raise errors may occur.
    pub raising: bool,
    /// Whether conditions on the clock may occur.
    pub clock: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { operators: 4, opaque: true, raising: false, clock: true }
    }
}

/// A query over the tables of [`tables`](super::tables).
#[derive(Clone, Debug)]
pub struct Sample {
    /// The graph that holds the query.
    pub graph: Graph,
    /// The root of the query.
    pub root: NodeId,
}

/// The operators of queries, by name. Each operator is generated under each other operator.
pub const QUERY_OPERATORS: &[&str] = &[
    "Table",
    "Map",
    "Filter",
    "Expand",
    "Union",
    "Join",
    "Distinct",
    "Positive",
    "Reduce",
    "SemiJoin",
    "AntiJoin",
    "LeftJoin",
    "FullJoin",
    "Intersect",
    "IntersectAll",
    "Except",
    "ExceptAll",
    "Window",
    "Top",
    "Recursion",
    "RecursionAll",
];

/// The greatest number of columns of an intermediate result.
const WIDTH: usize = 6;

/// Makes a random query.
///
/// # Errors
/// Fails if the generator breaks an operator's contract, which is a bug in the generator.
pub fn sample(choice: &mut Choice, tables: &[Arc<TableDef>], limits: &Limits) -> Result<Sample> {
    let mut p = Planner { graph: Graph::new(), tables, limits: *limits };
    let operators = 1 + choice.below(limits.operators);
    let root = p.relation(choice, operators)?;
    Ok(Sample { graph: p.graph, root })
}

struct Planner<'t> {
    graph: Graph,
    tables: &'t [Arc<TableDef>],
    limits: Limits,
}

impl Planner<'_> {
    /// Makes a random relation of about `budget` operators.
    fn relation(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        if budget == 0 {
            return self.leaf(choice);
        }
        let node = match choice.below(26) {
            0 => self.filter(choice, budget)?,
            1 => self.map(choice, budget)?,
            2 | 3 => self.join(choice, budget)?,
            4 => self.union(choice, budget)?,
            5 => {
                let input = self.relation(choice, budget - 1)?;
                self.graph.add(Distinct::new(input))?
            }
            6..=8 => self.reduce(choice, budget)?,
            9 | 10 => self.semi(choice, budget)?,
            11 | 12 => self.outer(choice, budget)?,
            13..=15 => self.set_op(choice, budget)?,
            16 => self.positive(choice, budget)?,
            17 | 18 => {
                let input = self.relation(choice, budget - 1)?;
                windows::top(choice, &mut self.graph, input)?
            }
            19 | 20 => {
                let input = self.relation(choice, budget - 1)?;
                windows::sample(choice, &mut self.graph, input, &self.limits)?
            }
            21 | 22 => self.expand(choice, budget)?,
            23 | 24 => self.recursion(choice, budget)?,
            _ => self.single(choice, budget)?,
        };
        self.narrow(choice, node)
    }

    fn leaf(&mut self, choice: &mut Choice) -> Result<NodeId> {
        if choice.one_in(16) {
            let columns = [Type::Int4, Type::Int4].map(|ty| Column { label: "c".into(), ty, nullable: true });
            let rows = (0..choice.below(3))
                .map(|_| vec![exprs::constant(choice, &Type::Int4), exprs::constant(choice, &Type::Int4)])
                .collect();
            return self.graph.add(Values::new(columns, rows));
        }
        let def = self.tables[choice.below(self.tables.len())].clone();
        self.graph.add(Table::new(def))
    }

    /// Makes two relations that share the budget of operators.
    fn pair(&mut self, choice: &mut Choice, budget: usize) -> Result<(NodeId, NodeId)> {
        let left = choice.below(budget);
        let l = self.relation(choice, left)?;
        let r = self.relation(choice, budget - 1 - left)?;
        Ok((l, r))
    }

    /// Makes a relation from `from` that has the column types of `like`.
    fn shaped(&mut self, choice: &mut Choice, like: &Schema, from: NodeId) -> Result<NodeId> {
        let schema = self.graph.schema(from).clone();
        let exprs =
            like.columns().iter().map(|c| exprs::scalar(choice, &schema, &c.ty, 0, &self.limits)).collect();
        self.graph.add(Map::new(from, exprs))
    }

    /// Makes a recursion that starts from one relation and joins another. A column that counts the rounds
    /// makes some recursions end that might not end otherwise. A query that does not end in one of the two
    /// states proves nothing.
    fn recursion(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let (mut base, side) = self.pair(choice, budget)?;
        let exact = self.graph.schema(base).is_exact();
        let fixpoint = if exact && choice.below(2) == 0 { Fixpoint::Distinct } else { Fixpoint::All };
        let bounded = fixpoint == Fixpoint::All && !choice.one_in(4);
        if bounded {
            let mut exprs = self.graph.schema(base).identity();
            exprs.push(Expr::literal(Datum::Int(0), Type::Int4));
            base = self.graph.add(Map::new(base, exprs))?;
        }
        let (rows, beside) = (self.graph.schema(base).clone(), self.graph.schema(side).clone());
        let width = rows.len() - usize::from(bounded);
        let pairs = rows.concat(&beside).all_nullable();
        let columns = &rows.columns()[..width];
        let mut exprs: Vec<Expr> =
            columns.iter().map(|c| exprs::scalar(choice, &pairs, &c.ty, 0, &self.limits)).collect();
        let mut on = exprs::join_condition(choice, &rows, &beside, &self.limits);
        if bounded {
            let round = rows.expr(width);
            let int = |n| Expr::literal(Datum::Int(n), Type::Int4);
            let two = [Type::Int4, Type::Int4];
            exprs.push(Expr::call(
                FuncSig::operator("+", two.to_vec(), Type::Int4),
                vec![round.clone(), int(1)],
            ));
            let less = FuncSig::comparison("<", Type::Int4, Type::Int4);
            on = Expr::and([on, Expr::call(less, vec![round, int(3)])]);
        }
        self.graph.add(Recursion::new(base, side, Step { on, exprs }, fixpoint))
    }

    /// Reduces a node to at least one and at most [`WIDTH`] columns.
    fn narrow(&mut self, choice: &mut Choice, node: NodeId) -> Result<NodeId> {
        let schema = self.graph.schema(node).clone();
        if schema.len() <= WIDTH {
            return Ok(node);
        }
        let keep: Vec<usize> = (0..WIDTH).map(|_| choice.below(schema.len())).collect();
        self.graph.add(Map::columns(node, &schema, &keep))
    }

    fn filter(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let input = self.relation(choice, budget - 1)?;
        let schema = self.graph.schema(input).clone();
        let predicate = match self.limits.clock && choice.one_in(2) {
            true => timed::condition(choice, &schema, &self.limits),
            false => exprs::condition(choice, &schema, 2, &self.limits),
        };
        self.graph.add(Filter::new(input, predicate))
    }

    fn map(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let input = self.relation(choice, budget - 1)?;
        let schema = self.graph.schema(input).clone();
        let mut exprs: Vec<Expr> = (0..=choice.below(3))
            .map(|_| {
                let ty = schema.columns()[choice.below(schema.len())].ty.clone();
                exprs::scalar(choice, &schema, &ty, 2, &self.limits)
            })
            .collect();
        if self.limits.clock && choice.one_in(3) {
            let shown = timed::condition(choice, &schema, &self.limits);
            exprs.extend((!shown.can_raise()).then_some(shown));
        }
        self.graph.add(Map::new(input, exprs))
    }

    /// Makes up to two set-returning functions in lockstep. Each is a series, the elements of an array, or a
    /// function that the evaluator does not know.
    fn expand(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let input = self.relation(choice, budget - 1)?;
        let schema = self.graph.schema(input).clone();
        let mut calls = Vec::new();
        for _ in 0..=choice.below(2) {
            let any = schema.columns()[choice.below(schema.len())].ty.clone();
            let ty = if any.element().is_some() { Type::Int4 } else { any };
            let value = |choice: &mut Choice, ty| exprs::scalar(choice, &schema, ty, 1, &self.limits);
            let (sig, args) = match choice.below(if self.limits.opaque { 3 } else { 2 }) {
                0 => {
                    let args = vec![value(choice, &Type::Int4), value(choice, &Type::Int4)];
                    (resolve_function("generate_series", &[Type::Int4, Type::Int4]), args)
                }
                1 => {
                    let items = (0..choice.below(3)).map(|_| value(choice, &ty)).collect();
                    let array = Expr::new(ExprKind::Array(items), ty.base().array());
                    (resolve_function("unnest", std::slice::from_ref(array.ty())), vec![array])
                }
                _ => (Some(exprs::opaque_set()), vec![value(choice, &Type::Int4)]),
            };
            let sig = sig.ok_or_else(|| Error::internal("a function of sets is not known"))?;
            calls.push(SetCall { sig, args, defined: false });
        }
        let expand = Expand::new(input, calls).numbered(choice.one_in(3)).outer(choice.one_in(3));
        self.graph.add(expand)
    }

    fn join(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let (l, r) = self.pair(choice, budget)?;
        let on = self.on(choice, l, r);
        self.graph.add(Join::new(l, r, on))
    }

    fn on(&self, choice: &mut Choice, l: NodeId, r: NodeId) -> Expr {
        exprs::join_condition(choice, self.graph.schema(l), self.graph.schema(r), &self.limits)
    }

    fn union(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let (l, r) = self.pair(choice, budget)?;
        let like = self.graph.schema(l).clone();
        let r = self.shaped(choice, &like, r)?;
        self.graph.add(Union::new([l, r]))
    }

    fn semi(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let (l, r) = self.pair(choice, budget)?;
        let mut on = self.on(choice, l, r);
        if choice.one_in(4) {
            on = on.is_not_false();
        }
        let semi = if choice.below(2) == 0 { SemiJoin::semi(l, r, on) } else { SemiJoin::anti(l, r, on) };
        self.graph.add(semi)
    }

    fn outer(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let (l, r) = self.pair(choice, budget)?;
        let on = self.on(choice, l, r);
        let outer = if choice.below(2) == 0 { OuterJoin::left(l, r, on) } else { OuterJoin::full(l, r, on) };
        self.graph.add(outer)
    }

    fn set_op(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let (l, r) = self.pair(choice, budget)?;
        let like = self.graph.schema(l).clone();
        let r = self.shaped(choice, &like, r)?;
        let kind = if choice.below(2) == 0 { SetOpKind::Intersect } else { SetOpKind::Except };
        self.graph.add(SetOp::new(kind, choice.below(2) == 0, l, r))
    }

    /// Makes a `Positive`. Its input is mostly the difference of two relations, since the `Positive` of a
    /// state is the state itself.
    fn positive(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        if choice.one_in(3) {
            let input = self.relation(choice, budget - 1)?;
            return self.graph.add(Positive::new(input));
        }
        let (l, r) = self.pair(choice, budget)?;
        let like = self.graph.schema(l).clone();
        let r = self.shaped(choice, &like, r)?;
        let minus = self.graph.add(Negate::new(r))?;
        let signed = self.graph.add(Union::new([l, minus]))?;
        self.graph.add(Positive::new(signed))
    }

    /// Makes `L × Single(…)`. The `Single` is mostly over a scalar aggregate, and sometimes over a relation
    /// that may have several rows. A `Single` over several rows raises an error.
    fn single(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let (l, r) = self.pair(choice, budget)?;
        let value = if choice.one_in(4) {
            self.graph.add(Distinct::new(r))?
        } else {
            let schema = self.graph.schema(r).clone();
            let aggs = vec![self.aggregate(choice, &schema)];
            self.graph.add(Reduce::new(r, vec![], aggs))?
        };
        let single = self.graph.add(Single::new(value, 0))?;
        let joined = self.graph.add(Join::new(l, single, Expr::bool(true)))?;
        if !self.limits.raising || choice.one_in(2) {
            return Ok(joined);
        }
        let schema = self.graph.schema(joined).clone();
        let mut exprs = schema.identity();
        if let (Some(several), Some(value)) = (exprs.pop(), exprs.pop()) {
            let ty = value.ty().clone();
            let whens = vec![(several, Expr::new(ExprKind::ManyRows, ty.clone()))];
            exprs.push(Expr::new(ExprKind::Case { whens, otherwise: value }, ty));
        }
        self.graph.add(Map::new(joined, exprs))
    }

    fn reduce(&mut self, choice: &mut Choice, budget: usize) -> Result<NodeId> {
        let input = self.relation(choice, budget - 1)?;
        let schema = self.graph.schema(input).clone();
        let mut keys: Vec<usize> = (0..choice.below(3)).map(|_| choice.below(schema.len())).collect();
        keys.sort_unstable();
        keys.dedup();
        let aggs: Vec<AggCall> = (0..=choice.below(3)).map(|_| self.aggregate(choice, &schema)).collect();
        if choice.one_in(4) {
            return self.grouping_sets(choice, input, &keys, &aggs);
        }
        self.graph.add(Reduce::new(input, keys, aggs))
    }

    /// Makes the plan of GROUPING SETS: a sum with one aggregation for each set, where keys that a set lacks
    /// are NULL. Mostly the rows also contain the number of the set.
    fn grouping_sets(
        &mut self,
        choice: &mut Choice,
        input: NodeId,
        keys: &[usize],
        aggs: &[AggCall],
    ) -> Result<NodeId> {
        let numbered = !choice.one_in(3);
        let mut arms = Vec::new();
        for number in 0..2 + choice.below(2) {
            let set: Vec<usize> = keys.iter().copied().filter(|_| choice.below(2) == 0).collect();
            let reduced = self.graph.add(Reduce::new(input, set.clone(), aggs.to_vec()))?;
            let (rows, groups) = (self.graph.schema(input), self.graph.schema(reduced));
            let key = |k: &usize| match set.iter().position(|s| s == k) {
                Some(i) => groups.expr(i),
                None => Expr::null(rows.expr(*k).ty().clone()),
            };
            let mut exprs: Vec<Expr> = keys.iter().map(key).collect();
            exprs.extend((set.len()..groups.len()).map(|i| groups.expr(i)));
            if numbered {
                exprs.push(Expr::literal(Datum::Int(number as i64), Type::Int4));
            }
            arms.push(self.graph.add(Map::new(reduced, exprs))?);
        }
        self.graph.add(Union::new(arms))
    }

    fn aggregate(&self, choice: &mut Choice, schema: &Schema) -> AggCall {
        let column = schema.expr(choice.below(schema.len()));
        let name = choice
            .pick(&["count", "sum", "sum", "avg", "min", "max", "bool_and", "bool_or", "array_agg", "count"])
            .copied()
            .unwrap_or("count");
        let Some(sig) = agg::resolve(name, std::slice::from_ref(column.ty())) else {
            return AggCall::count_star();
        };
        let arg = column.clone().cast(sig.args[0].clone());
        let mut call = AggCall::new(sig, vec![arg.clone()]);
        if name == "array_agg" {
            if !arg.ty().is_ordered() || arg.ty().element().is_some() {
                return AggCall::count_star();
            }
            call.order_by = vec![SortKey { expr: arg, descending: false, nulls_first: false }];
        }
        call.distinct = choice.one_in(4) && call.args[0].ty().has_equality();
        call.filter = choice.one_in(4).then(|| exprs::condition(choice, schema, 1, &self.limits));
        call
    }
}
