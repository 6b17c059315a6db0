//! Which writers of a stream table's sources have to wait for each other.

use crate::apply::Identity;
use crate::catalog::TableId;
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::{Rel, Version};
use crate::stream_table::StreamTable;
use std::collections::BTreeSet;

/// Which writers wait for each other until their transactions end.
///
/// A delta tells what a change does to a state, so whoever applies one must see the state that it meets: what others changed
/// and have not committed must not matter to it. `All` is right for every query; the others are for queries of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// None beyond those that change one row of the source: a row of the result is computed from the row of the table that has
    /// its key, as it is. So it does not matter either in which order the events of a statement are applied.
    Keys,
    /// Those that change groups of the same bucket: all that is read and written are stored rows of the groups that change.
    Groups {
        /// The node that is grouped, …
        of: NodeId,
        /// … and by which of its columns.
        keys: Vec<usize>,
    },
    /// All that write what the query reads.
    All,
}

impl Exclusion {
    pub(super) fn of(table: &StreamTable) -> Result<Exclusion> {
        let sources = table.sources();
        let [(source, _)] = sources.as_slice() else { return Ok(Exclusion::All) };
        let (graph, root) = (table.graph(), table.prepared());
        let mut at = root;
        loop {
            at = match graph.rel(at) {
                Rel::Map(m) => m.input(),
                Rel::Filter(f) => f.input(),
                Rel::Table(_) if has_key(table) => return Ok(Exclusion::Keys),
                Rel::Accumulate(a) if !a.keys().is_empty() => {
                    let hashable = |k: &usize| graph.schema(a.input()).columns()[*k].ty.is_hashable();
                    let apart = a.keys().iter().all(hashable)
                        && is_linear(graph, a.input())
                        && reads_changes_alone(table, source.id)?;
                    return Ok(match apart {
                        true => Exclusion::Groups { of: a.input(), keys: a.keys().to_vec() },
                        false => Exclusion::All,
                    });
                }
                _ => return Ok(Exclusion::All),
            };
        }
    }
}

fn has_key(table: &StreamTable) -> bool {
    matches!(table.layout().result.identity, Identity::Key(_)) && table.has_affected_groups()
}

/// Whether a row of the node is made of one row of the table.
fn is_linear(graph: &Graph, mut at: NodeId) -> bool {
    loop {
        at = match graph.rel(at) {
            Rel::Map(m) => m.input(),
            Rel::Filter(f) => f.input(),
            Rel::Expand(e) => e.input(),
            rel => return matches!(rel, Rel::Table(_)),
        };
    }
}

/// Whether the delta reads changes and stored results, and no table.
fn reads_changes_alone(table: &StreamTable, source: TableId) -> Result<bool> {
    let (graph, roots) = table.delta(&BTreeSet::from([source]))?;
    let change = |rel: &Rel| !matches!(rel, Rel::Table(t) if t.version() != Version::Delta);
    Ok(graph.reachable_from(&roots).into_iter().all(|id| change(graph.rel(id))))
}
