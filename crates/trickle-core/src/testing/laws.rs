//! The laws: statements that are true for every plan, state and change. Rows are distinguished by image.
//! Where SQL does not determine which of several equal values is returned, the evaluator returns the value
//! with the least image. A delta must give the same value.

use super::{Mutant, Sample};
use crate::apply::summands;
use crate::catalog::TableId;
use crate::delta::{self, Affected, Differ, Keep, Path, Rules};
use crate::error::Result;
use crate::eval::{self, Database, Evaluator, Row, ZSet, same_bag};
use crate::graph::{ColSet, Format, Graph, NodeId, Props, Schema, explain};
use crate::rel::{Filter, Union};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// A counterexample to a law, with the data that explains it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The law that is broken.
    pub law: String,
    /// The expected result, the actual result, and the plans.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold\n{}", self.law, self.detail)
    }
}

/// The outcome of the check of a law.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The law is true for the sample.
    Held {
        /// Whether the delta contained rows.
        changed: bool,
    },
    /// The query itself raises an error over one of the states, so that there are no results to compare.
    QueryRaised,
    /// The delta raised a data error that the query does not raise. In such a case, a refresh recomputes.
    DeltaRaised,
}

/// The rules and options by which a delta is derived, and a mutant that spoils the delta before the check.
#[derive(Clone, Copy, Debug)]
pub struct Variant<'m> {
    /// The rules of differentiation.
    pub rules: Rules,
    /// The inner results that are stored as states.
    pub keep: Keep,
    /// Whether the delta is optimized.
    pub optimize: bool,
    /// Whether the delta relies on validated foreign keys.
    pub trust_foreign_keys: bool,
    /// A mutant that the law should reveal.
    pub mutant: Option<&'m Mutant>,
}

/// The variants of differentiation. All of them must give the same delta.
pub const VARIANTS: &[Variant<'static>] = &[
    Variant {
        rules: Rules::Algebraic,
        keep: Keep::Nested,
        optimize: true,
        trust_foreign_keys: false,
        mutant: None,
    },
    Variant {
        rules: Rules::Algebraic,
        keep: Keep::Nested,
        optimize: false,
        trust_foreign_keys: false,
        mutant: None,
    },
    Variant {
        rules: Rules::Algebraic,
        keep: Keep::Result,
        optimize: true,
        trust_foreign_keys: false,
        mutant: None,
    },
    Variant {
        rules: Rules::Class,
        keep: Keep::Nested,
        optimize: false,
        trust_foreign_keys: false,
        mutant: None,
    },
    Variant {
        rules: Rules::Class,
        keep: Keep::Result,
        optimize: true,
        trust_foreign_keys: false,
        mutant: None,
    },
    Variant {
        rules: Rules::Global,
        keep: Keep::Result,
        optimize: false,
        trust_foreign_keys: false,
        mutant: None,
    },
];

/// Returns `None` if the evaluation raised a data error. Other errors are bugs and are passed on.
pub(super) fn tolerate<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.is_data() => Ok(None),
        Err(e) => Err(e),
    }
}

/// The greatest number of rows that a relation of a sampled query may have, where copies count. Some
/// recursions do not end, and some samples multiply copies. Such samples prove nothing. Plans made from the
/// query, such as its delta, may have more rows, but must end if the query ends.
const ROWS: u64 = 1 << 10;

impl Sample {
    /// Returns the rows of the query over `db`.
    ///
    /// # Errors
    /// Fails with the errors of the query's expressions, and with 54000 if the query has too many rows for a
    /// test.
    pub fn eval(&self, db: &Database) -> Result<ZSet> {
        within(&self.graph, db).eval(self.root).map(Arc::unwrap_or_clone)
    }
}

/// Makes an evaluator with the limit [`ROWS`].
pub(super) fn within<'a>(graph: &'a Graph, db: &'a Database) -> Evaluator<'a> {
    Evaluator::new(graph, db).within(ROWS)
}

/// Returns the query's results before and after the change. Returns `None` if one of them raised a data
/// error.
fn results(sample: &Sample, db: &Database) -> Result<Option<(ZSet, ZSet)>> {
    let before = tolerate(sample.eval(&db.before()))?;
    let after = tolerate(sample.eval(db))?;
    Ok(before.zip(after))
}

/// Builds the delta of `sample` by `variant`. Returns the graph that contains the delta, and the root of the
/// delta.
///
/// # Errors
/// Fails if a plan breaks an operator's contract, which is a bug in a rule.
pub fn delta_plan(
    sample: &Sample,
    changed: Option<BTreeSet<TableId>>,
    variant: &Variant<'_>,
) -> Result<(Graph, NodeId)> {
    let mut graph = sample.graph.clone();
    let query = match variant.rules {
        // The query is optimized before it is differentiated, as for a stream table.
        Rules::Algebraic if variant.optimize => {
            let query = crate::opt::optimize(&mut graph, sample.root)?;
            let prepared = delta::prepare(&mut graph, query)?;
            crate::opt::optimize(&mut graph, prepared)?
        }
        Rules::Algebraic => delta::prepare(&mut graph, sample.root)?,
        _ => sample.root,
    };
    let kept = delta::kept(&mut graph, query, variant.keep)?;
    let mut delta = Differ::new(&mut graph, kept, changed, variant.rules)
        .trusting_foreign_keys(variant.trust_foreign_keys)
        .delta(query)?;
    if let Some(mutant) = variant.mutant {
        delta = (mutant.apply)(&mut graph, delta)?;
    }
    if variant.optimize {
        delta = crate::opt::optimize(&mut graph, delta)?;
    }
    Ok((graph, delta))
}

/// Checks that `eval(ΔQ, S, d) = eval(Q, S+d) − eval(Q, S)`, and that ΔQ has the columns of Q.
///
/// # Errors
/// Fails with the violation, or if a plan breaks an operator's contract.
pub fn check_delta(sample: &Sample, db: &Database, variant: &Variant<'_>) -> Result<Outcome, Violation> {
    Checker::new(sample, std::slice::from_ref(variant)).check(db)
}

/// Checks the delta by every variant of [`VARIANTS`].
///
/// # Errors
/// Fails with the first violation.
pub fn check_all(sample: &Sample, db: &Database) -> Result<Outcome, Violation> {
    Checker::new(sample, VARIANTS).check(db)
}

/// A check of one query over many databases. Each delta is built only once for each set of changed tables.
pub struct Checker<'s, 'm> {
    sample: &'s Sample,
    variants: &'s [Variant<'m>],
    plans: HashMap<(usize, BTreeSet<TableId>), (Graph, NodeId)>,
}

impl<'s, 'm> Checker<'s, 'm> {
    /// Makes a check of `sample` by the variants `variants`.
    pub fn new(sample: &'s Sample, variants: &'s [Variant<'m>]) -> Self {
        Checker { sample, variants, plans: HashMap::new() }
    }

    /// Checks the delta law over `db` for every variant. Returns [`Outcome::DeltaRaised`] if the delta of a
    /// variant raised a data error.
    ///
    /// # Errors
    /// Fails with the first violation.
    pub fn check(&mut self, db: &Database) -> Result<Outcome, Violation> {
        let Some((before, after)) = results(self.sample, db).map_err(|e| self.bug(&e, ""))? else {
            return Ok(Outcome::QueryRaised);
        };
        let mut outcome = Outcome::Held { changed: before != after };
        for i in 0..self.variants.len() {
            if !self.holds(i, db, &before, &after)? {
                outcome = Outcome::DeltaRaised;
            }
        }
        Ok(outcome)
    }

    fn bug(&self, e: &crate::Error, more: &str) -> Violation {
        let query = explain(&self.sample.graph, self.sample.root, Format::Text);
        Violation { law: "plans keep their contracts".into(), detail: format!("{e}\nquery:\n{query}{more}") }
    }

    /// Whether the `i`-th variant's delta is correct. False if its evaluation raised a data error.
    fn holds(&mut self, i: usize, db: &Database, before: &ZSet, after: &ZSet) -> Result<bool, Violation> {
        let variant = &self.variants[i];
        let key = (i, db.changed());
        if !self.plans.contains_key(&key) {
            let plan = delta_plan(self.sample, Some(key.1.clone()), variant).map_err(|e| self.bug(&e, ""))?;
            self.plans.insert(key.clone(), plan);
        }
        let (graph, delta) = &self.plans[&key];
        let shown = || format!("delta:\n{}", explain(graph, *delta, Format::Text));
        if !graph.schema(*delta).same_types(self.sample.graph.schema(self.sample.root)) {
            return Err(Violation { law: "schema(ΔQ) = schema(Q)".into(), detail: shown() });
        }
        let Some(change) = tolerate(eval::eval(graph, *delta, db)).map_err(|e| self.bug(&e, &shown()))?
        else {
            return Ok(false);
        };
        let mut found = before.clone();
        found.add_zset(&change);
        if found == *after {
            return Ok(true);
        }
        let how = if variant.optimize { ", optimised" } else { "" };
        let query = explain(&self.sample.graph, self.sample.root, Format::Text);
        Err(Violation {
            law: format!("the delta law ({:?} rules, keeping {:?}{how})", variant.rules, variant.keep),
            detail: format!(
                "before:\n{before}change found:\n{change}after:\n{after}query:\n{query}{}",
                shown()
            ),
        })
    }
}

/// Checks identities of the query itself. Preparing the query, optimizing it, and expanding each derived
/// operator must not change its result. Adding up the results over the parts of a table must not change the
/// result either. An expansion may return another of several equal values.
///
/// # Errors
/// Fails with the violation.
pub fn check_rewrites(sample: &Sample, db: &Database) -> Result<(), Violation> {
    type Rewrite = fn(&mut Graph, NodeId) -> Result<NodeId>;
    type Same = fn(&ZSet, &ZSet) -> bool;
    let rewrites: [(&str, Rewrite, Same); 4] = [
        ("prepare", delta::prepare, ZSet::eq),
        ("optimize", crate::opt::optimize, ZSet::eq),
        ("expand", expand, same_bag),
        ("computing it in parts", in_parts, ZSet::eq),
    ];
    for (name, rewrite, same) in rewrites {
        let law = || format!("{name} is an identity");
        let bug = |e: crate::Error| Violation { law: law(), detail: e.to_string() };
        let Some(expected) = tolerate(sample.eval(db)).map_err(bug)? else {
            return Ok(());
        };
        let mut graph = sample.graph.clone();
        let root = rewrite(&mut graph, sample.root).map_err(bug)?;
        let Some(found) = tolerate(eval::eval(&graph, root, db)).map_err(bug)? else { continue };
        if !same(&expected, &found) {
            let text = Format::Text;
            let detail = format!(
                "expected:\n{expected}found:\n{found}query:\n{}rewritten:\n{}",
                explain(&sample.graph, sample.root, text),
                explain(&graph, root, text)
            );
            return Err(Violation { law: law(), detail });
        }
    }
    Ok(())
}

/// Checks the law of [`delta::Affected`] for every key of the query that has a path to a table. The previous
/// rows with other keys, together with the current rows with the affected keys, are the current result.
/// Returns whether the query has such a key.
///
/// # Errors
/// Fails with the violation, or if a plan breaks an operator's contract.
pub fn check_affected(sample: &Sample, db: &Database) -> Result<bool, Violation> {
    check_affected_keys(sample, db, |_, keys| keys)
}

/// A function that transforms the affected keys.
type Spoil = fn(&Graph, NodeId) -> NodeId;

/// Checks the law of [`check_affected`] with keys that `spoil` transformed.
///
/// # Errors
/// Fails with the violation, or if a plan breaks an operator's contract.
pub fn check_affected_keys(sample: &Sample, db: &Database, spoil: Spoil) -> Result<bool, Violation> {
    let broken =
        |e: crate::Error| Violation { law: "plans keep their contracts".into(), detail: e.to_string() };
    let Some((before, after)) = results(sample, db).map_err(broken)? else { return Ok(false) };
    let mut found = false;
    for optimize in [false, true] {
        let mut graph = sample.graph.clone();
        let query = if optimize { crate::opt::optimize(&mut graph, sample.root) } else { Ok(sample.root) };
        let query = query.map_err(broken)?;
        for key in graph.props(query).keys.clone() {
            let key: Vec<usize> = key.iter().collect();
            let Some(path) = Path::of(&graph, query, &key) else { continue };
            found = true;
            let plan = affected_plan(&graph, query, &path, &key, (db.changed(), optimize, spoil));
            let plan = plan.map_err(broken)?;
            let eval = |id: NodeId| tolerate(eval::eval(&plan.0, id, db)).map_err(broken);
            let (Some(keys), Some(rows)) = (eval(plan.1.keys)?, eval(plan.1.rows)?) else { continue };
            let schema = graph.schema(query);
            let is_affected = |row: &Row| {
                let same = |(i, k): (usize, &usize), of: &Row| {
                    crate::values::compare_as(&schema.columns()[*k].ty, &of[i], &row[*k]).is_eq()
                };
                keys.iter().any(|(of, _)| key.iter().enumerate().all(|pair| same(pair, of)))
            };
            let mut made = rows.clone();
            before.iter().filter(|(row, _)| !is_affected(row)).for_each(|(row, w)| made.add(row.clone(), w));
            if made != after {
                let plans = [plan.1.keys, plan.1.rows].map(|id| explain(&plan.0, id, Format::Text));
                return Err(Violation {
                    law: "other rows before and those of affected keys after are the rows after".into(),
                    detail: format!(
                        "before:\n{before}keys:\n{keys}rows:\n{rows}after:\n{after}query:\n{}{}",
                        explain(&graph, query, Format::Text),
                        plans.concat()
                    ),
                });
            }
        }
    }
    Ok(found)
}

fn affected_plan(
    graph: &Graph,
    query: NodeId,
    path: &Path,
    key: &[usize],
    (changed, optimize, spoil): (BTreeSet<TableId>, bool, Spoil),
) -> Result<(Graph, Affected)> {
    let mut graph = graph.clone();
    let kept = delta::kept(&mut graph, query, Keep::Result)?;
    let mut differ = Differ::new(&mut graph, kept, Some(changed), Rules::Algebraic);
    let mut plan = path.affected(&mut differ, query, key)?;
    plan.keys = spoil(differ.graph, plan.keys);
    plan.rows = differ.restrict(query, key, plan.keys)?;
    if optimize {
        let roots = crate::opt::Optimizer::default().optimize(&mut graph, &[plan.keys, plan.rows])?;
        plan = Affected { keys: roots[0], rows: roots[1] };
    }
    Ok((graph, plan))
}

/// Replaces every derived operator by its expansion.
fn expand(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    graph.rebuild(root, |g, _, rel| {
        let expanded = rel.as_operator().expand(g)?;
        match expanded {
            Some(n) => Ok(n),
            None => g.add(rel),
        }
    })
}

/// Returns the sum of the query's summands. Each summand is computed over both parts of the table in which it
/// is linear.
fn in_parts(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    let mut all = Vec::new();
    for part in summands(graph, root, &|_| 1)? {
        let cut = part.over.filter(|leaf| !graph.schema(*leaf).columns().is_empty());
        let Some(leaf) = cut else {
            all.push(part.root);
            continue;
        };
        let last = graph.schema(leaf).len() - 1;
        let here = graph.schema(leaf).expr(last).is_null();
        for predicate in [here.clone(), here.negated()] {
            let some = graph.add(Filter::new(leaf, predicate))?;
            all.push(graph.rebuild(part.root, |g, id, rel| if id == leaf { Ok(some) } else { g.add(rel) })?);
        }
    }
    graph.add(Union::new(all))
}

/// Checks that the properties of every node (keys, dependencies, sign, NULLs, emptiness) are true of its
/// rows.
///
/// # Errors
/// Fails with the property that is false.
pub fn check_properties(graph: &Graph, root: NodeId, db: &Database) -> Result<(), Violation> {
    let mut evaluator = within(graph, db);
    for id in graph.reachable(root) {
        let Ok(value) = evaluator.eval(id) else { continue };
        let (props, schema) = (graph.props(id), graph.schema(id));
        let claim = |what: String| Violation {
            law: format!("{}: {what}", graph.node(id).op().name()),
            detail: format!("{value}{}", explain(graph, id, Format::Text)),
        };
        if props.non_negative && value.iter().any(|(_, w)| w < 0) {
            return Err(claim("no negative weights".into()));
        }
        if props.empty && !value.is_empty() {
            return Err(claim("no rows".into()));
        }
        for (i, c) in schema.columns().iter().enumerate() {
            if !c.nullable && value.iter().any(|(row, _)| row[i].is_null()) {
                return Err(claim(format!("column {i} is never NULL")));
            }
        }
        if props.non_negative {
            dependencies_hold(props, schema, &value).map_err(claim)?;
        }
    }
    Ok(())
}

fn dependencies_hold(props: &Props, schema: &Schema, value: &ZSet) -> Result<(), String> {
    let same = |a: &Row, b: &Row, cols: &ColSet| {
        cols.iter().all(|c| crate::values::compare_as(&schema.columns()[c].ty, &a[c], &b[c]).is_eq())
    };
    let rows: Vec<(&Row, i64)> = value.iter().collect();
    for key in &props.keys {
        for (i, (a, w)) in rows.iter().enumerate() {
            let again = rows[i + 1..].iter().any(|(b, _)| same(a, b, key));
            if *w > 1 || again {
                return Err(format!("{key} is a key"));
            }
        }
    }
    for fd in &props.fds {
        for (i, (a, _)) in rows.iter().enumerate() {
            for (b, _) in &rows[i + 1..] {
                if same(a, b, &fd.from) && !same(a, b, &fd.to) {
                    return Err(format!("{} determines {}", fd.from, fd.to));
                }
            }
        }
    }
    Ok(())
}

/// Records in `coverage` those edges of the query whose lower node changes between the two states of `db`.
pub fn record_changes(sample: &Sample, db: &Database, coverage: &mut super::Coverage) {
    let old = db.before();
    let (mut before, mut after) = (within(&sample.graph, &old), within(&sample.graph, db));
    let changed: BTreeSet<NodeId> = sample
        .graph
        .reachable(sample.root)
        .into_iter()
        .filter(|id| matches!((before.eval(*id), after.eval(*id)), (Ok(b), Ok(a)) if b != a))
        .collect();
    coverage.record(&sample.graph, sample.root, |id| changed.contains(&id));
}
