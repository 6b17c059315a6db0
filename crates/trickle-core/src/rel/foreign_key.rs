//! The delta of a join over a trusted foreign key.

use super::{Accumulate, Filter, Join, Map, Rel, SemiJoin, Table, join_keys};
use crate::agg::Acc;
use crate::delta::Differ;
use crate::error::Result;
use crate::expr::{Expr, FuncSig};
use crate::graph::{Graph, NodeId};
use crate::table::TableDef;
use crate::types::Type;
use std::sync::Arc;

/// One of the two sides of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The left input.
    Left,
    /// The right input.
    Right,
}

/// The changed rows of the referenced table, selected by the fate of their key.
pub(super) struct Kept {
    /// The changed rows whose key exists both before and after the change.
    pub(super) stayed: NodeId,
    /// The changed rows whose key stayed or left: all rows except those with a new key.
    pub(super) stayed_or_left: NodeId,
}

/// Finds the input of an inner join that the other input references through a trusted foreign key. The
/// referenced input must be a whole table. Returns the side of the referenced input, and the positions of the
/// key columns in this input. The join must compare exactly the columns of the foreign key.
pub(super) fn referenced_side(cx: &Differ<'_>, join: &Join, width: usize) -> Option<(Side, Vec<usize>)> {
    if !cx.trusts_foreign_keys() {
        return None;
    }
    let keys = join_keys(join.on(), width);
    if keys.null_safe.iter().any(|safe| *safe) {
        return None;
    }
    let references = |from: NodeId, from_cols: &[usize], to: NodeId, to_cols: &[usize]| {
        let Rel::Table(target) = cx.graph.rel(to) else { return false };
        let origins: Option<Vec<(Arc<TableDef>, usize)>> =
            from_cols.iter().map(|c| origin(cx.graph, from, *c)).collect();
        origins.is_some_and(|origins| declared(&origins, target, to_cols))
    };
    if references(join.left(), &keys.left, join.right(), &keys.right) {
        Some((Side::Right, keys.right))
    } else if references(join.right(), &keys.right, join.left(), &keys.left) {
        Some((Side::Left, keys.left))
    } else {
        None
    }
}

/// Whether some validated foreign key to `target` consists of exactly these pairs of columns.
fn declared(origins: &[(Arc<TableDef>, usize)], target: &Table, to: &[usize]) -> bool {
    let Some((table, _)) = origins.first() else { return false };
    let one_table = origins.iter().all(|(t, _)| t == table);
    let mut pairs: Vec<(usize, usize)> =
        origins.iter().map(|(_, c)| *c).zip(to.iter().map(|c| target.columns()[*c])).collect();
    pairs.sort_unstable();
    one_table
        && table.foreign_keys.iter().any(|f| {
            let mut declared: Vec<(usize, usize)> =
                f.columns.iter().copied().zip(f.target_columns.iter().copied()).collect();
            declared.sort_unstable();
            f.validated && f.target == target.def().id && declared == pairs
        })
}

/// Returns the table column from which the values of a column of `node` come unchanged. The nodes between the
/// table and `node` may drop and repeat rows of the table.
fn origin(graph: &Graph, node: NodeId, column: usize) -> Option<(Arc<TableDef>, usize)> {
    let (mut node, mut column) = (node, column);
    loop {
        match graph.rel(node) {
            Rel::Table(t) => return Some((t.def().clone(), *t.columns().get(column)?)),
            Rel::Filter(f) => node = f.input(),
            Rel::Map(m) => {
                column = m.exprs().get(column)?.as_column()?;
                node = m.input();
            }
            Rel::Join(j) => {
                let width = graph.schema(j.left()).len();
                (node, column) =
                    if column < width { (j.left(), column) } else { (j.right(), column - width) };
            }
            Rel::SemiJoin(s) => node = s.left(),
            _ => return None,
        }
    }
}

/// Splits the changed rows of a table by the net count of their key. The count is 0 where the key stayed,
/// positive where the key came, and negative where the key left.
pub(super) fn kept(cx: &mut Differ<'_>, change: NodeId, key: &[usize]) -> Result<Kept> {
    let net = cx.graph.add(Accumulate::new(change, key.to_vec(), vec![Acc::count(None)]))?;
    let schema = cx.graph.schema(net).clone();
    let is_new = Expr::call(
        FuncSig::comparison(">", Type::Int8, Type::Int8),
        vec![schema.expr(key.len()), Expr::int8(0)],
    );
    let new = cx.graph.add(Filter::new(net, is_new))?;
    let all: Vec<usize> = (0..key.len()).collect();
    let (moved, new) =
        (cx.graph.add(Map::columns(net, &schema, &all))?, cx.graph.add(Map::columns(new, &schema, &all))?);
    let mut without = |keys: NodeId| {
        let on = SemiJoin::restrict(cx.graph, change, key, keys).on().clone();
        cx.graph.add(SemiJoin::anti(change, keys, on))
    };
    Ok(Kept { stayed: without(moved)?, stayed_or_left: without(new)? })
}
