//! How operators look up rows of their inputs.

use crate::expr::{Expr, ExprKind};
use crate::graph::{Graph, NodeId};
use std::collections::BTreeSet;

/// The columns by which rows of a node are looked up; if both sets are empty, all rows are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct By {
    /// The columns for which the reading operator has values.
    pub equal: BTreeSet<usize>,
    /// The columns for which the reading operator has a range of values.
    pub range: BTreeSet<usize>,
}

impl By {
    /// Makes the look-up by the values of these columns.
    pub fn values(columns: impl IntoIterator<Item = usize>) -> By {
        By { equal: columns.into_iter().collect(), range: BTreeSet::new() }
    }
    /// Whether all rows of the node are read.
    pub fn is_all(&self) -> bool {
        self.equal.is_empty() && self.range.is_empty()
    }
    /// Maps the columns by `image`, and leaves out columns for which `image` returns `None`.
    pub(crate) fn through(&self, image: impl Fn(usize) -> Option<usize>) -> By {
        let of = |set: &BTreeSet<usize>| set.iter().filter_map(|c| image(*c)).collect();
        By { equal: of(&self.equal), range: of(&self.range) }
    }
    /// Adds columns for which the reading operator has a range of values.
    pub(super) fn within(mut self, range: impl IntoIterator<Item = usize>) -> By {
        self.range.extend(range);
        self
    }
}

/// Returns the look-up that finds, within a partition, the rows whose value is near the value of another row.
pub(super) fn near(partition: &[usize], value: usize) -> By {
    let equal = partition.iter().copied().filter(|c| *c != value);
    By::values(equal).within([value])
}

/// Returns the columns that a condition bounds by values that depend only on the clock. An index then finds
/// the rows between the bounds.
pub(super) fn ranged(predicate: &Expr) -> Vec<usize> {
    let column = |term: &Expr| match term.kind() {
        ExprKind::Call(sig, args) if sig.is_operator() => match args.as_slice() {
            [a, b] if b.reads_clock() && b.columns().is_empty() => a.as_column(),
            [a, b] if a.reads_clock() && a.columns().is_empty() => b.as_column(),
            _ => None,
        },
        _ => None,
    };
    predicate.terms().iter().filter_map(column).collect()
}

/// Returns how a join looks up the rows of its inputs. The input that is small, or whose rows are looked up
/// themselves, is read first. The rows of the other input are then looked up by the equalities of the
/// condition. `either` says whether the right input may be read first.
pub(super) fn join(
    graph: &Graph,
    (left, right): (NodeId, NodeId),
    on: &Expr,
    by: &By,
    either: bool,
) -> Vec<By> {
    let width = graph.schema(left).len();
    let (of_left, of_right) = equalities(on, width);
    let (on_left, on_right) =
        (by.through(|c| (c < width).then_some(c)), by.through(|c| c.checked_sub(width)));
    let bounded = |n| graph.props(n).bounded;
    let right_is_small = either && bounded(right);
    if bounded(left) || (!right_is_small && !on_left.is_all()) {
        vec![on_left, of_right]
    } else if right_is_small || (either && !on_right.is_all()) {
        vec![of_left, on_right]
    } else {
        vec![on_left, on_right]
    }
}

/// Returns, for each input of a join, the look-up of its rows for a row of the other input. The columns of
/// each input count from 0. The equality columns are those that the condition equates with a value of the
/// other input. The range columns are those that the condition bounds at both ends.
pub(crate) fn equalities(on: &Expr, width: usize) -> (By, By) {
    let (mut of_left, mut of_right) = (By::default(), By::default());
    let (mut above, mut below) = (BTreeSet::new(), BTreeSet::new());
    for term in on.conjuncts() {
        let (op, a, b) = match term.kind() {
            ExprKind::Call(sig, args) if sig.is_comparison() => (&*sig.name, &args[0], &args[1]),
            ExprKind::Distinct { left, right, negated: true } => ("=", left, right),
            _ => continue,
        };
        for (column, value, left) in [(a, b, true), (b, a, false)] {
            let read = value.columns();
            let all = |side: &dyn Fn(&usize) -> bool| !read.is_empty() && read.iter().all(side);
            let Some(c) = column.as_column() else { continue };
            if !(c < width && all(&|v| *v >= width) || c >= width && all(&|v| *v < width)) {
                continue;
            }
            match (op, left) {
                ("=", _) if c < width => _ = of_left.equal.insert(c),
                ("=", _) => _ = of_right.equal.insert(c - width),
                (">" | ">=", true) | ("<" | "<=", false) => _ = above.insert(c),
                ("<" | "<=", true) | (">" | ">=", false) => _ = below.insert(c),
                _ => {}
            }
        }
    }
    for c in above.intersection(&below) {
        if *c < width {
            of_left.range.insert(*c)
        } else {
            of_right.range.insert(c - width)
        };
    }
    (of_left, of_right)
}
