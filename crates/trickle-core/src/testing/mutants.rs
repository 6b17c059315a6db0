//! Mutants: wrong rules, made by transforming a correct delta. The laws must reveal every mutant.

use crate::agg::Acc;
use crate::delta::{Keep, Rules};
use crate::error::Result;
use crate::expr::{Expr, ExprKind, Moment};
use crate::graph::{Graph, NodeId};
use crate::rel::{
    Accumulate, Consolidate, Expand, Filter, Join, Keys, Map, Negate, OuterJoin, Positive, Recursion, Rel,
    SemiJoin, Side, Step, Table, Union, Version,
};

/// A transformation of deltas that makes one mistake.
#[derive(Debug)]
pub struct Mutant {
    /// The mistake, in a few words.
    pub name: &'static str,
    /// The rules whose delta the mutant transforms.
    pub rules: Rules,
    /// The inner results that are stored, so that the delta reads them as states.
    pub keep: Keep,
    /// The transformation that makes the mistake.
    pub apply: fn(&mut Graph, NodeId) -> Result<NodeId>,
}

type Spoil = fn(&mut Graph, Rel) -> Result<NodeId>;

/// Applies `spoil` to every operator of the plan, inputs first.
fn each(graph: &mut Graph, root: NodeId, spoil: Spoil) -> Result<NodeId> {
    graph.rebuild(root, |g, _, rel| spoil(g, rel))
}

/// Drops from every sum the summands for which `drop` is true, but keeps at least one summand.
fn drop_terms(g: &mut Graph, rel: Rel, drop: fn(&Graph, NodeId) -> bool) -> Result<NodeId> {
    if let Rel::Union(u) = &rel {
        let kept: Vec<NodeId> = u.summands().iter().copied().filter(|s| !drop(g, *s)).collect();
        if !kept.is_empty() {
            return g.add(Union::new(kept));
        }
    }
    g.add(rel)
}

fn is_join(g: &Graph, n: NodeId) -> bool {
    matches!(g.rel(n), Rel::Join(_))
}

fn reads_clock(m: &Map) -> bool {
    m.exprs().iter().any(Expr::reads_clock)
}

fn is_negated(g: &Graph, n: NodeId, what: fn(&Rel) -> bool) -> bool {
    matches!(g.rel(n), Rel::Negate(x) if what(g.rel(x.input())))
}

fn conditions(g: &mut Graph, rel: Rel, f: fn(Expr) -> Expr) -> Result<NodeId> {
    match &rel {
        Rel::Join(j) => g.add(Join::new(j.left(), j.right(), j.on().rewrite(&mut |e| f(e)))),
        Rel::SemiJoin(s) => {
            let on = s.on().rewrite(&mut |e| f(e));
            g.add(if s.is_anti() {
                SemiJoin::anti(s.left(), s.right(), on)
            } else {
                SemiJoin::semi(s.left(), s.right(), on)
            })
        }
        _ => g.add(rel),
    }
}

macro_rules! mutant {
    ($name:literal, $rules:ident, $keep:ident, $spoil:expr) => {
        Mutant {
            name: $name,
            rules: Rules::$rules,
            keep: Keep::$keep,
            apply: |g, root| each(g, root, $spoil),
        }
    };
}

/// All mutants of deltas.
pub const MUTANTS: &[Mutant] = &[
    mutant!("join: both sides after, ΔA⋈ΔB counted twice", Algebraic, Nested, |g, r| drop_terms(
        g,
        r,
        |g, n| is_negated(g, n, |r| matches!(r, Rel::Join(_)))
    )),
    mutant!("join: ΔA⋈ΔB added instead of subtracted", Algebraic, Nested, |g, r| match &r {
        Rel::Negate(n) if is_join(g, n.input()) => Ok(n.input()),
        _ => g.add(r),
    }),
    mutant!("join: changes of the left side alone", Algebraic, Nested, |g, r| drop_terms(
        g,
        r,
        |g, n| match g.rel(n) {
            Rel::Join(j) => !g.props(j.left()).reads_delta,
            _ => false,
        }
    )),
    mutant!("join: changes of the right side alone", Algebraic, Nested, |g, r| drop_terms(
        g,
        r,
        |g, n| match g.rel(n) {
            Rel::Join(j) => !g.props(j.right()).reads_delta,
            _ => false,
        }
    )),
    mutant!("join: current tables read as previous ones", Algebraic, Nested, |g, r| match &r {
        Rel::Table(t) if t.version() == Version::After => {
            let before = g.add(t.at(Version::Before))?;
            g.add(Consolidate::state(before))
        }
        _ => g.add(r),
    }),
    mutant!("deletes ignored", Algebraic, Nested, |g, r| match &r {
        Rel::Table(t) if t.version() == Version::Delta => {
            let n = g.add(t.clone())?;
            g.add(Positive::new(n))
        }
        _ => g.add(r),
    }),
    mutant!("deletes taken for inserts", Algebraic, Nested, |g, r| match &r {
        Rel::Table(t) if t.version() == Version::Delta => {
            let n = g.add(t.clone())?;
            let all = (0..g.schema(n).len()).collect();
            g.add(Keys::new(n, all))
        }
        _ => g.add(r),
    }),
    mutant!("keys projected before their support is taken", Class, Result, |g, r| match &r {
        Rel::Keys(k) => {
            let schema = g.schema(k.input()).clone();
            let projected = g.add(Map::columns(k.input(), &schema, k.cols()))?;
            g.add(Keys::new(projected, (0..k.cols().len()).collect()))
        }
        _ => g.add(r),
    }),
    mutant!("= where NULL-safe equality is meant", Class, Nested, |g, r| conditions(g, r, |e| {
        match e.kind() {
            ExprKind::Distinct { left, right, negated: true } => left.clone().equals(right.clone()),
            _ => e,
        }
    })),
    mutant!("NULL-safe equality where = is meant", Algebraic, Nested, |g, r| conditions(g, r, |e| {
        match e.kind() {
            ExprKind::Call(sig, args) if sig.is_equality() => args[0].clone().same_as(args[1].clone()),
            _ => e,
        }
    })),
    mutant!("a filter keeps rows on which it is NULL", Algebraic, Nested, |g, r| match &r {
        Rel::Filter(f) => g.add(Filter::new(f.input(), f.predicate().clone().is_not_false())),
        _ => g.add(r),
    }),
    mutant!("changed rows are judged by the time of this refresh", Algebraic, Nested, |g, r| match &r {
        Rel::Filter(f) if f.predicate().reads_clock() && g.props(f.input()).reads_delta => {
            g.add(Filter::new(f.input(), f.predicate().at(Moment::Now)))
        }
        _ => g.add(r),
    }),
    mutant!("changed rows show the time of this refresh", Algebraic, Nested, |g, r| match &r {
        Rel::Map(m) if g.props(m.input()).reads_delta => g.add(m.at(Moment::Now)),
        _ => g.add(r),
    }),
    mutant!("time changes nothing that is shown", Algebraic, Nested, |g, r| drop_terms(g, r, |g, n| {
        matches!(g.rel(n), Rel::Map(m) if reads_clock(m) && !g.props(n).reads_delta)
    })),
    mutant!("what is shown is not taken away when time changes it", Algebraic, Nested, |g, r| drop_terms(
        g,
        r,
        |g, n| { is_negated(g, n, |x| matches!(x, Rel::Map(m) if reads_clock(m))) }
    )),
    mutant!("rows leave by the time of this refresh though they never entered", Algebraic, Nested, |g, r| {
        match &r {
            Rel::Filter(f) => {
                let now = |e: &Expr| e.reads_clock() && *e == e.at(Moment::Now);
                let then = |e: &Expr| e.reads_clock() && *e == e.at(Moment::Then);
                let terms = f.predicate().conjuncts();
                let leaves = terms.iter().position(then).zip(terms.iter().position(now));
                let kept = terms.iter().filter(|e| !(leaves.is_some_and(|(t, n)| t < n) && then(e)));
                g.add(Filter::new(f.input(), Expr::and(kept.cloned())))
            }
            _ => g.add(r),
        }
    }),
    mutant!("time takes no row away", Algebraic, Nested, |g, r| drop_terms(g, r, |g, n| {
        is_negated(g, n, |x| matches!(x, Rel::Filter(f) if f.predicate().reads_clock()))
    })),
    mutant!("DISTINCT treated as linear", Class, Result, |g, r| match &r {
        Rel::Distinct(d) => Ok(d.input()),
        _ => g.add(r),
    }),
    mutant!("set operations treated as linear", Class, Result, |g, r| match &r {
        Rel::SetOp(_) => Ok(r.as_operator().inputs()[0]),
        _ => g.add(r),
    }),
    mutant!("a difference without its positive part", Class, Result, |g, r| match &r {
        Rel::Positive(p) => Ok(p.input()),
        _ => g.add(r),
    }),
    mutant!("the previous groups are computed from the current rows", Class, Result, |g, r| match &r {
        Rel::Consolidate(c) if c.is_state() => match g.rel(c.input()) {
            Rel::Union(u) => Ok(u.summands()[0]),
            _ => g.add(r),
        },
        _ => g.add(r),
    }),
    mutant!("only the keys that rows left are touched", Class, Nested, |g, r| match &r {
        Rel::Keys(k) if g.props(k.input()).reads_delta => {
            let back = g.add(Negate::new(k.input()))?;
            let left = g.add(Positive::new(back))?;
            g.add(Keys::new(left, k.cols().to_vec()))
        }
        _ => g.add(r),
    }),
    mutant!("old rows are not taken away", Algebraic, Nested, |g, r| drop_terms(g, r, |g, n| is_negated(
        g,
        n,
        |r| matches!(r, Rel::SemiJoin(_) | Rel::State(_) | Rel::Reduce(_))
    ))),
    mutant!("what a group was is not taken away", Algebraic, Nested, |g, r| match &r {
        Rel::Revise(v) => {
            let was = Side { there: Expr::bool(false), ..v.was().clone() };
            g.add(v.with_sides(was, v.is().clone()))
        }
        _ => g.add(r),
    }),
    mutant!("a group that is gone leaves totals of 0", Algebraic, Nested, |g, r| match &r {
        Rel::Revise(v) => {
            let is = Side { there: Expr::bool(true), ..v.is().clone() };
            g.add(v.with_sides(v.was().clone(), is))
        }
        _ => g.add(r),
    }),
    mutant!("a group is what was added to it", Algebraic, Nested, |g, r| match &r {
        Rel::OuterJoin(o) if matches!(g.rel(o.right_input()), Rel::State(_)) => {
            g.add(OuterJoin::left(o.left_input(), o.right_input(), Expr::bool(false)))
        }
        _ => g.add(r),
    }),
    mutant!("emptied groups are kept", Algebraic, Nested, |g, r| match &r {
        Rel::Accumulate(a) if !a.keys().is_empty() => {
            let made = g.add(r.clone())?;
            let keys: Vec<usize> = (0..a.keys().len()).collect();
            let all = g.add(Keys::new(a.input(), a.keys().to_vec()))?;
            let lost = SemiJoin::restrict(g, all, &keys, made);
            let lost = g.add(SemiJoin::anti(lost.left(), lost.right(), lost.on().clone()))?;
            let zeros = a.accs().iter().map(|acc: &Acc| Expr::int8(0).cast(acc.ty.clone()));
            let exprs = g.schema(lost).identity().into_iter().chain(zeros).collect();
            let zeros = g.add(Map::new(lost, exprs))?;
            g.add(Union::new([made, zeros]))
        }
        _ => g.add(r),
    }),
    mutant!("SUM without a count of non-NULL values", Algebraic, Nested, |g, r| match &r {
        Rel::Map(m) => {
            let exprs = m.exprs().iter().map(|e| match e.kind() {
                ExprKind::Case { whens, otherwise }
                    if matches!(whens[0].1.as_literal(), Some(crate::types::Datum::Null)) =>
                {
                    otherwise.clone()
                }
                _ => e.clone(),
            });
            g.add(Map::new(m.input(), exprs.collect()))
        }
        _ => g.add(r),
    }),
    mutant!("FILTER and NULLs ignored by accumulators", Algebraic, Nested, |g, r| match &r {
        Rel::Accumulate(a) => {
            let accs = a.accs().iter().map(|acc| Acc { filter: None, ..acc.clone() }).collect();
            g.add(Accumulate::new(a.input(), a.keys().to_vec(), accs))
        }
        _ => g.add(r),
    }),
    mutant!("a scalar aggregate loses its row over no rows", Algebraic, Nested, |g, r| match &r {
        Rel::Accumulate(a) if a.keys().is_empty() => {
            let made = g.add(r.clone())?;
            let count = g.schema(made).expr(0);
            g.add(Filter::new(made, count.equals(Expr::int8(0)).negated()))
        }
        _ => g.add(r),
    }),
    mutant!("padding of matched rows is not taken away", Algebraic, Nested, |g, r| drop_terms(
        g,
        r,
        |g, n| is_negated(g, n, |r| matches!(r, Rel::Map(_)))
    )),
    mutant!("a left join's new rows joined as by an inner join", Algebraic, Nested, |g, r| match &r {
        Rel::OuterJoin(o) => g.add(Join::new(o.left_input(), o.right_input(), o.on().clone())),
        _ => g.add(r),
    }),
    mutant!("EXISTS flips on every match that comes or goes", Algebraic, Nested, |g, r| match &r {
        Rel::Accumulate(a) if a.accs() == [Acc::count(None)] => match g.rel(a.input()).clone() {
            Rel::Union(u) => g.add(Accumulate::new(
                u.summands()[u.summands().len() - 1],
                a.keys().to_vec(),
                a.accs().to_vec()
            )),
            _ => g.add(r),
        },
        _ => g.add(r),
    }),
    mutant!("NOT EXISTS answered as EXISTS", Algebraic, Nested, |g, r| match &r {
        Rel::SemiJoin(s) if s.is_anti() => g.add(SemiJoin::semi(s.left(), s.right(), s.on().clone())),
        _ => g.add(r),
    }),
    mutant!("stored results read after they were brought up to date", Algebraic, Nested, |g, r| match &r {
        Rel::State(s) => Ok(s.of()),
        _ => g.add(r),
    }),
    mutant!("an inner result read without its own change", Algebraic, Nested, |g, r| match &r {
        Rel::Consolidate(c) if c.is_state() => match g.rel(c.input()) {
            Rel::Union(u) if matches!(g.rel(u.summands()[0]), Rel::State(_)) => Ok(u.summands()[0]),
            _ => g.add(r),
        },
        _ => g.add(r),
    }),
    mutant!("UNION ALL merges equal rows", Algebraic, Nested, |g, r| match &r {
        Rel::Union(u) if u.summands().iter().all(|s| g.props(*s).non_negative) => {
            let made = g.add(r.clone())?;
            let all = (0..g.schema(made).len()).collect();
            g.add(Keys::new(made, all))
        }
        _ => g.add(r),
    }),
    mutant!("a row for which a function gives nothing is lost", Algebraic, Nested, |g, r| match &r {
        Rel::Expand(e) => g.add(Expand::new(e.input(), e.calls().to_vec()).numbered(e.has_ordinality())),
        _ => g.add(r),
    }),
    mutant!("equal rows that functions give are one", Algebraic, Nested, |g, r| match &r {
        Rel::Expand(e) => {
            let made = g.add(e.clone())?;
            let all: Vec<usize> = (0..g.schema(made).len()).collect();
            let minus = g.add(Negate::new(made))?;
            let plus = g.add(Positive::new(made))?;
            let plus = g.add(Keys::new(plus, all.clone()))?;
            let minus = g.add(Positive::new(minus))?;
            let minus = g.add(Keys::new(minus, all))?;
            let minus = g.add(Negate::new(minus))?;
            g.add(Union::new([plus, minus]))
        }
        _ => g.add(r),
    }),
    mutant!("a projection loses duplicates", Algebraic, Nested, |g, r| match &r {
        Rel::Map(_) => {
            let made = g.add(r.clone())?;
            let all: Vec<usize> = (0..g.schema(made).len()).collect();
            let plus = g.add(Positive::new(made))?;
            let plus = g.add(Keys::new(plus, all.clone()))?;
            let minus = g.add(Negate::new(made))?;
            let minus = g.add(Positive::new(minus))?;
            let minus = g.add(Keys::new(minus, all))?;
            let minus = g.add(Negate::new(minus))?;
            g.add(Union::new([plus, minus]))
        }
        _ => g.add(r),
    }),
    mutant!("a group whose extremum left is extended all the same", Algebraic, Nested, |g, r| match &r {
        Rel::SemiJoin(s) if s.is_anti() && matches!(g.rel(s.right()), Rel::Distinct(_)) => Ok(s.left()),
        _ => g.add(r),
    }),
    mutant!("an extremum that left is not looked for again", Algebraic, Nested, |g, r| match &r {
        Rel::SemiJoin(s) if matches!(g.rel(s.right()), Rel::Distinct(_)) && !s.is_anti() => {
            let schema = g.schema(s.left()).clone();
            g.add(crate::rel::Values::empty(schema))
        }
        _ => g.add(r),
    }),
    mutant!("how keys are written is forgotten", Algebraic, Nested, |g, r| match &r {
        Rel::Map(m) => {
            let images: Vec<Expr> = m.exprs().iter().filter_map(Expr::image).collect();
            let forget = |e: &Expr| if images.contains(e) { Expr::null(e.ty().clone()) } else { e.clone() };
            g.add(Map::new(m.input(), m.exprs().iter().map(forget).collect()))
        }
        _ => g.add(r),
    }),
    mutant!("windows are computed over a value too few around a change", Algebraic, Nested, |g, r| match r {
        Rel::Widen(w) => {
            let fewer = w.values().saturating_sub(1);
            g.add(w.by(fewer))
        }
        _ => g.add(r),
    }),
    mutant!("recursion: what a change leads to is not followed", Algebraic, Nested, |g, r| match &r {
        Rel::Recursion(rec) if g.props(rec.base()).reads_delta => {
            let step = Step { on: Expr::bool(false), ..rec.step().clone() };
            g.add(Recursion::new(rec.base(), rec.side(), step, rec.fixpoint()))
        }
        _ => g.add(r),
    }),
    mutant!("recursion: rows that are reached another way are not rederived", Algebraic, Nested, |g, r| {
        let rederived = |g: &Graph, n: NodeId| match g.rel(n) {
            Rel::Map(m) => match g.rel(m.input()) {
                Rel::SemiJoin(s) => {
                    s.is_anti() && is_join(g, s.left()) && matches!(g.rel(s.right()), Rel::Recursion(_))
                }
                _ => false,
            },
            _ => false,
        };
        drop_terms(g, r, rederived)
    }),
    mutant!("recursion: rows that lost a derivation stay known", Algebraic, Nested, |g, r| match &r {
        Rel::Recursion(rec) if rec.known().is_some() => {
            let schema = g.schema(rec.base()).clone();
            let none = g.add(crate::rel::Values::empty(schema))?;
            let known = rec.known().map_or(none, |(known, _)| known);
            g.add(rec.clone().beyond(known, none))
        }
        _ => g.add(r),
    }),
    mutant!("recursion: deletions follow what came", Algebraic, Nested, |g, r| match &r {
        Rel::Recursion(rec) => match g.rel(rec.side()) {
            Rel::SemiJoin(s) if s.is_anti() => {
                let side = s.left();
                g.add(Recursion::new(rec.base(), side, rec.step().clone(), rec.fixpoint()))
            }
            _ => g.add(r),
        },
        _ => g.add(r),
    }),
    mutant!("only the first of several changed tables", Algebraic, Nested, |g, r| match &r {
        Rel::Table(t) if t.version() == Version::Delta && t.def().id.0 > 1 => {
            let schema = g.add(Table::clone(t)).map(|n| g.schema(n).clone())?;
            g.add(crate::rel::Values::empty(schema))
        }
        _ => g.add(r),
    }),
];

/// Mutants of the pruning by a foreign key. Each mutant prunes one term too many.
pub const FOREIGN_KEY_MUTANTS: &[Mutant] = &[
    mutant!("a key that left is dropped from ΔR⋈ΔS", Algebraic, Nested, |g, r| match &r {
        Rel::Filter(f) if matches!(g.rel(f.input()), Rel::Accumulate(_)) => Ok(f.input()),
        _ => g.add(r),
    }),
    mutant!("a key that came is kept in ΔR⋈ΔS", Algebraic, Nested, |g, r| match &r {
        Rel::SemiJoin(s)
            if s.is_anti()
                && matches!(g.rel(s.right()), Rel::Map(m) if matches!(g.rel(m.input()), Rel::Filter(_))) =>
            Ok(s.left()),
        _ => g.add(r),
    }),
    mutant!("keys that stayed are dropped with the others", Algebraic, Nested, |g, r| match &r {
        Rel::SemiJoin(s) if s.is_anti() => {
            let schema = g.schema(s.left()).clone();
            g.add(crate::rel::Values::empty(schema))
        }
        _ => g.add(r),
    }),
];
