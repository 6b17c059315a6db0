//! The keys that a change may have touched, and the current rows of these keys. Only rows with these keys can
//! change in the result. The rows have no weights here.
//!
//! The law: let K be a set of keys. For every key k outside K, let `Q ⋉ {k}` be the same before and after the
//! change. Then the result after the change is `(Q before) ▷ K + Q′ ⋉ K`. The set K may contain more keys
//! than those that changed.
//!
//! The law is used along a *path*. A path starts at the table that has the key, and goes through selections,
//! projections and lookups. On a path, computing `Q′ ⋉ K` takes one index lookup for each key, and no rows
//! have to be merged. A path has no groups. For groups, finding K would read the whole change, and `Q′ ⋉ K`
//! would read all rows of each group. The delta of groups reads the change alone.

use super::Differ;
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use crate::rel::{Filter, JoinKeys, Map, Rel, Union, join_keys};
use crate::table::TableId;

/// The keys that a change may have touched, and their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affected {
    /// The keys. Each key occurs once.
    pub keys: NodeId,
    /// The current rows with these keys.
    pub rows: NodeId,
}

/// The steps from a table to the result of a query. A key of the table finds the table's rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    table: NodeId,
    /// The positions of the key columns in the table.
    key: Vec<usize>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Selects rows by a condition.
    Keep(Filter),
    /// Computes other columns. The second field has the positions of the key columns among the new columns.
    Show(Map, Vec<usize>),
    /// Joins each row of `rows` with rows of `at`: `rows` is compared by its columns `by.0`, and `at` by its
    /// columns `by.1`. The columns `key` of `rows` are the key.
    Lookup { rows: NodeId, key: Vec<usize>, at: NodeId, by: (Vec<usize>, Vec<usize>) },
}

impl Path {
    /// Finds the path from a table to `node`. The columns `key` of `node` are the table's key, passed on
    /// along the path. Returns `None` where such a path does not exist. Returns `None` also where `node`
    /// reads the clock, since `node` may then change as time passes.
    pub fn of(graph: &Graph, node: NodeId, key: &[usize]) -> Option<Path> {
        if graph.props(node).sources.contains(&TableId::CLOCK) {
            return None;
        }
        let (mut node, mut key, mut steps) = (node, key.to_vec(), Vec::new());
        loop {
            node = match graph.rel(node) {
                Rel::Table(_) => {
                    steps.reverse();
                    let found = graph.props(node).is_key(&key.iter().copied().collect());
                    return found.then_some(Path { table: node, key, steps });
                }
                Rel::Filter(f) => {
                    steps.push(Step::Keep(f.clone()));
                    f.input()
                }
                Rel::Map(m) => {
                    let shown = key.clone();
                    key = key.iter().map(|k| m.exprs()[*k].as_column()).collect::<Option<_>>()?;
                    steps.push(Step::Show(m.clone(), shown));
                    m.input()
                }
                Rel::Join(j) => {
                    let width = graph.schema(j.left()).len();
                    let mirrored = key.iter().all(|k| *k >= width);
                    if mirrored {
                        key.iter_mut().for_each(|k| *k -= width);
                    }
                    steps.push(lookup(graph, (j.left(), j.right()), j.on(), &key, mirrored)?);
                    if mirrored { j.right() } else { j.left() }
                }
                Rel::SemiJoin(s) => {
                    steps.push(lookup(graph, (s.left(), s.right()), s.on(), &key, false)?);
                    s.left()
                }
                Rel::OuterJoin(o) if !o.is_full() => {
                    let sides = (o.left_input(), o.right_input());
                    steps.push(lookup(graph, sides, o.on(), &key, false)?);
                    o.left_input()
                }
                _ => return None,
            };
        }
    }

    /// Returns the table at which the path starts, and the key columns of this table.
    pub fn key(&self) -> (NodeId, &[usize]) {
        (self.table, &self.key)
    }

    /// Computes the keys that the change may have touched, and their current rows. The first keys are those
    /// of the changed rows of the table. Each lookup then adds the keys of current rows that match a changed
    /// row under the lookup's equalities.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn affected(&self, differ: &mut Differ<'_>, node: NodeId, key: &[usize]) -> Result<Affected> {
        let own = self.own(differ)?;
        let mut parts = vec![own];
        for step in &self.steps {
            let Step::Lookup { rows, key, at, by } = step else { continue };
            let change = differ.delta(*at)?;
            let looked_up = differ.keys(change, &by.1)?;
            let rows = differ.restrict(*rows, &by.0, looked_up)?;
            parts.push(differ.keys(rows, key)?);
        }
        parts.retain(|p| !differ.graph.props(*p).empty);
        let keys = match parts.as_slice() {
            [] => own,
            [one] => *one,
            _ => {
                let all = differ.graph.add(Union::new(parts))?;
                let columns: Vec<usize> = (0..key.len()).collect();
                differ.keys(all, &columns)?
            }
        };
        Ok(Affected { keys, rows: differ.restrict(node, key, keys)? })
    }

    /// Returns the keys of changed rows of the table. Rows that fail a condition before the first lookup are
    /// left out. An expression that can raise an error is not evaluated, since the changed rows include rows
    /// that both came and left within the change.
    fn own(&self, differ: &mut Differ<'_>) -> Result<NodeId> {
        let (mut change, mut key) = (differ.delta(self.table)?, &self.key);
        for step in &self.steps {
            change = match step {
                Step::Keep(f) if !f.predicate().can_raise() => {
                    differ.graph.add(Filter::new(change, f.predicate().clone()))?
                }
                Step::Show(m, shown) if !m.exprs().iter().any(Expr::can_raise) => {
                    key = shown;
                    differ.graph.add(Map::new(change, m.exprs().to_vec()))?
                }
                _ => break,
            };
        }
        differ.keys(change, key)
    }
}

/// Returns the step for a join whose left input has the key in its columns `key`. If `mirrored`, the right
/// input has the key.
fn lookup(
    graph: &Graph,
    (left, right): (NodeId, NodeId),
    on: &Expr,
    key: &[usize],
    mirrored: bool,
) -> Option<Step> {
    let JoinKeys { left: l, right: r, .. } = join_keys(on, graph.schema(left).len());
    let (rows, at, by) = if mirrored { (right, left, (r, l)) } else { (left, right, (l, r)) };
    let own = key.iter().all(|k| *k < graph.schema(rows).len());
    (own && !by.0.is_empty()).then(|| Step::Lookup { rows, key: key.to_vec(), at, by })
}
