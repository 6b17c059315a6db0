//! The rows of the keys that may have changed, over the tables as they are: what a delta says, without its weights.
//!
//! The law: where `Q ⋉ {k}` is the same before and after for every key k outside K, the result after the change is
//! `(Q before) ▷ K + Q′ ⋉ K`. K may hold more keys than changed.
//!
//! It is used along a *path*: from the table that holds the key through selections, projections and lookups, where `Q′ ⋉ K`
//! is a probe for each key and nothing has to be merged. Of groups K would need the whole change, and `Q′ ⋉ K` all their
//! rows, where their delta reads the change alone.

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
    /// Their rows.
    pub rows: NodeId,
}

/// What a query does with the rows of a table whose key finds its rows, from the table up.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    table: NodeId,
    /// The columns of the key, of the table.
    key: Vec<usize>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Rows are kept or dropped.
    Keep(Filter),
    /// Other columns, and the columns of the key then.
    Show(Map, Vec<usize>),
    /// Each row of `rows`, whose columns `key` are the key, with what there is `at` it: where columns `by` of both sides are
    /// equal.
    Lookup { rows: NodeId, key: Vec<usize>, at: NodeId, by: (Vec<usize>, Vec<usize>) },
}

impl Path {
    /// The path that the columns `key` of `node` come along, where nothing of `node` changes by time alone.
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

    /// The table at its beginning, and the columns of that which are the key.
    pub fn key(&self) -> (NodeId, &[usize]) {
        (self.table, &self.key)
    }

    /// The keys that may have changed, over the change of what the path reads: those of changed rows of the table; and at
    /// each lookup, those of rows as they are for which there is, by its equalities, a changed row.
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

    /// The keys of the rows of the table that changed, of those alone that pass the conditions that stand before the first
    /// lookup. What raises is not computed: it would see rows that came and went.
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

/// A join whose left side, or right side where `mirrored`, holds the key in its columns `key`.
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
