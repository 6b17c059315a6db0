//! Full refresh: statements that make the stored tables equal to the query again.

use super::layout::Stored;
use crate::delta::negate;
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::{Consolidate, State, Union};
use crate::sql::ast::{Delete, Insert, Query, Statement};

/// Builds `n(now) − stored(n)`: the difference between the computed and the stored result of a node. The
/// difference is correct after any change of the node's sources.
///
/// # Errors
/// Fails as [`Graph::add`] does.
pub(crate) fn difference(graph: &mut Graph, node: NodeId) -> Result<NodeId> {
    from_stored(graph, node, node)
}

/// Builds `rows − stored(n)`: the difference that makes the stored result of `node` equal to the rows of the
/// node `rows`.
///
/// # Errors
/// Fails as [`Graph::add`] does.
pub(crate) fn from_stored(graph: &mut Graph, node: NodeId, rows: NodeId) -> Result<NodeId> {
    let state = State::new(graph, node);
    let state = graph.add(state)?;
    let minus = negate(graph, state)?;
    let both = graph.add(Union::new([rows, minus]))?;
    graph.add(Consolidate::change(both))
}

/// Builds the statements that empty a stored table and fill it from `rows`.
pub(crate) fn full_statements(table: &Stored, rows: Query) -> [Statement; 2] {
    let delete = Delete {
        ctes: Vec::new(),
        table: table.name.clone(),
        alias: None,
        using: Vec::new(),
        filter: Vec::new(),
        returning: Vec::new(),
    };
    [Statement::Delete(delete), insert_statement(table, rows)]
}

/// Builds the statement that inserts `rows` into a stored table.
pub(crate) fn insert_statement(table: &Stored, rows: Query) -> Statement {
    Statement::Insert(Insert {
        ctes: Vec::new(),
        note: None,
        table: table.name.clone(),
        alias: None,
        columns: table.all_names(),
        source: rows,
        on_conflict: None,
        returning: Vec::new(),
    })
}
