//! The keys that may have changed and their rows in the current tables: the rows that a delta speaks of,
//! without weights.
//!
//! The law: where `Q ⋉ {k}` is the same before and after for every key k outside K, the result after the
//! change is `(Q before) ▷ K + Q′ ⋉ K`. K may hold more keys than changed.
//!
//! The law is used along a *path*: from the table that holds the key through selections, projections and
//! lookups. There `Q′ ⋉ K` is one probe for each key, and nothing has to be merged. Groups are no part of a
//! path: K would need the whole change and `Q′ ⋉ K` all rows of each group, where their delta reads the
//! change alone.

use super::Differ;
use crate::catalog::TableId;
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use crate::rel::{Filter, JoinKeys, Map, Rel, Union, join_keys};

/// Keys that may have changed, and their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affected {
    /// The keys, each once.
    pub keys: NodeId,
    /// The current rows of these keys.
    pub rows: NodeId,
}

/// The steps from a table, whose key finds its rows, up to the result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    table: NodeId,
    /// The columns of the table that are the key.
    key: Vec<usize>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Keeps or drops rows.
    Keep(Filter),
    /// Computes other columns; with the positions of the key among them.
    Show(Map, Vec<usize>),
    /// Joins each row of `rows`, whose columns `key` are the key, with the rows of `at` that equal it in the
    /// columns `by` of both sides.
    Lookup { rows: NodeId, key: Vec<usize>, at: NodeId, by: (Vec<usize>, Vec<usize>) },
}

impl Path {
    /// Finds the path from a table to the columns `key` of `node`. Returns `None` where there is no such
    /// path, or where `node` reads the clock, since time alone may change it.
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

    /// Returns the table at the beginning of the path, and the columns of that table that are the key.
    pub fn key(&self) -> (NodeId, &[usize]) {
        (self.table, &self.key)
    }

    /// Computes the keys that may have changed. One part is the keys of the changed rows of the table. At
    /// each lookup, the keys are added of those current rows for which a changed row satisfies the lookup's
    /// equalities.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
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

    /// Returns the keys of the changed rows of the table that pass the conditions before the first lookup. An
    /// expression that can raise is not computed, since it would see rows that came and went.
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

/// Returns the step for a join whose left side (right side if `mirrored`) has the key in its columns `key`.
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
