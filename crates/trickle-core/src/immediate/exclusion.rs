//! The rule that tells which writers of a stream table's sources must wait for each other.

use crate::apply::Identity;
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::{Rel, Version};
use crate::stream_table::StreamTable;
use crate::table::TableId;
use std::collections::BTreeSet;

/// The writers that wait for each other until their transactions end.
///
/// A delta is the effect of a change on a state, so a writer that applies a delta must see this state.
/// Uncommitted changes of other writers must have no effect on the delta. `All` is correct for every query;
/// the other variants are for queries of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// Only writers of the same source row wait for each other. A row of the result is computed from the
    /// present table row that has the same key. The order in which the events of a statement are applied is
    /// therefore irrelevant too.
    Keys,
    /// Writers of groups in the same bucket wait for each other. The delta reads and writes only stored rows
    /// of the groups that change.
    Groups {
        /// The node whose rows are grouped.
        of: NodeId,
        /// The columns of this node by which its rows are grouped.
        keys: Vec<usize>,
    },
    /// All writers of the sources wait for each other.
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

/// Whether each row of the node is computed from exactly one row of the table.
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

/// Whether the delta reads only changes and stored results, and no source table.
fn reads_changes_alone(table: &StreamTable, source: TableId) -> Result<bool> {
    let (graph, roots) = table.delta(&BTreeSet::from([source]))?;
    let change = |rel: &Rel| !matches!(rel, Rel::Table(t) if t.version() != Version::Delta);
    Ok(graph.reachable_from(&roots).into_iter().all(|id| change(graph.rel(id))))
}
