//! Properties derived for every node: keys, functional dependencies, sign, sources, volatility.

use super::{ColSet, Schema};
use crate::catalog::TableId;
use crate::expr::{Expr, ExprKind, Volatility};
use std::collections::BTreeSet;
use std::sync::Arc;

/// `from → to`: rows that agree on `from` (NULL equal to NULL) agree on `to`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionalDependency {
    /// The determining columns; empty for constants.
    pub from: ColSet,
    /// The determined columns.
    pub to: ColSet,
}

/// The properties of a relation that are known without looking at data. Each is a guarantee, never an
/// estimate.
#[derive(Clone, Debug)]
pub struct Props {
    /// Minimal keys: no two rows (counting weights) agree on all columns of one. At most [`Props::MAX_KEYS`].
    /// Only meaningful where [`Props::non_negative`] holds.
    pub keys: Vec<ColSet>,
    /// Functional dependencies, except those that the keys alone imply.
    pub fds: Vec<FunctionalDependency>,
    /// Whether the Z-set has no negative weight, so that it denotes a state and not a change.
    pub non_negative: bool,
    /// Physical: whether every row that the rendering produces carries a weight ≥ 1. Thresholds and
    /// non-linear aggregates need this. A sum of signed terms has it only after consolidation.
    pub positive: bool,
    /// Physical: whether the rendering produces each row once, with its whole weight ≠ 0.
    pub consolidated: bool,
    /// The sources that are read, in any version, and the clock.
    pub sources: Arc<BTreeSet<TableId>>,
    /// Whether a table change (`Δ`) is among the leaves.
    pub reads_delta: bool,
    /// The volatility of the most volatile function in the plan.
    pub volatility: Volatility,
    /// Whether the relation has no rows, whatever the data.
    pub empty: bool,
    /// Whether its size, and the work to compute it through indexes, depend on the size of the change and not
    /// of the data.
    pub bounded: bool,
}

impl Props {
    /// The greatest number of keys that are tracked.
    pub const MAX_KEYS: usize = 8;

    /// Returns the properties of a state of which nothing else is known: positive, without keys.
    pub fn state() -> Props {
        Props {
            keys: Vec::new(),
            fds: Vec::new(),
            non_negative: true,
            positive: true,
            consolidated: false,
            sources: Arc::default(),
            reads_delta: false,
            volatility: Volatility::Immutable,
            empty: false,
            bounded: false,
        }
    }

    /// Whether rows that agree on `cols` are the same single row.
    pub fn is_key(&self, cols: &ColSet) -> bool {
        let closure = self.closure(cols);
        self.keys.iter().any(|k| k.is_subset(&closure))
    }

    /// Returns all columns determined by `cols`: the least superset that is closed under the functional
    /// dependencies. Keys take part through the dependencies that operators record for them.
    pub fn closure(&self, cols: &ColSet) -> ColSet {
        closure(&self.fds, cols)
    }

    /// Whether a relation that has each row once also has each value once, and not once for each way of
    /// writing it. This holds where a key tells the rows apart, or where equal values are written alike.
    pub fn is_one_per_value(&self, schema: &Schema) -> bool {
        !self.keys.is_empty() || schema.is_exact()
    }

    /// Adds a key. Of two keys only the smaller is kept where one contains the other.
    pub fn add_key(&mut self, key: ColSet) {
        let mut key = key;
        if !self.fds.is_empty() {
            for c in key.clone().iter() {
                let smaller = key.without(c);
                if closure(&self.fds, &smaller).contains(c) {
                    key = smaller;
                }
            }
        }
        if self.keys.iter().any(|k| k.is_subset(&key)) {
            return;
        }
        self.keys.retain(|k| !key.is_subset(k));
        if self.keys.len() < Self::MAX_KEYS {
            self.keys.push(key);
        }
    }

    /// Records the dependencies that a predicate implies on the rows that satisfy it: `a = b` makes each
    /// column determine the other, `a = constant` makes `a` constant.
    pub fn learn(&mut self, predicate: &Expr) {
        let known = self.fds.len();
        for term in predicate.terms() {
            let (l, r) = match term.kind() {
                ExprKind::Call(sig, args) if sig.is_equality() && args[0].ty() == args[1].ty() => {
                    (&args[0], &args[1])
                }
                ExprKind::Distinct { left, right, negated: true } => (left, right),
                ExprKind::Is { arg, test: crate::expr::IsTest::Null, negated: false }
                    if arg.as_column().is_some() =>
                {
                    self.fds.extend(arg.as_column().map(|c| fd([], [c])));
                    continue;
                }
                _ => continue,
            };
            // Equal values of an inexact type may differ in image. The equality of values still holds, and
            // keys and dependencies speak of nothing else.
            match (l.as_column(), r.as_column()) {
                (Some(a), Some(b)) => self.fds.extend([fd([a], [b]), fd([b], [a])]),
                (Some(a), None) if r.is_constant() => self.fds.push(fd([], [a])),
                (None, Some(b)) if l.is_constant() => self.fds.push(fd([], [b])),
                _ => {}
            }
        }
        if self.fds.len() == known {
            return;
        }
        for key in std::mem::take(&mut self.keys) {
            self.add_key(key);
        }
    }

    /// Returns the properties of two relations side by side, with the columns of `right` shifted by `by`.
    /// Keys pair up.
    #[must_use]
    pub fn product(left: &Props, right: &Props, by: usize) -> Props {
        let mut p = Props {
            keys: Vec::new(),
            fds: left.fds.clone(),
            non_negative: left.non_negative && right.non_negative,
            positive: left.positive && right.positive,
            consolidated: left.consolidated && right.consolidated,
            sources: together(&left.sources, &right.sources),
            reads_delta: left.reads_delta || right.reads_delta,
            volatility: left.volatility.max(right.volatility),
            empty: left.empty || right.empty,
            bounded: left.bounded || right.bounded,
        };
        p.fds.extend(
            right.fds.iter().map(|f| FunctionalDependency { from: f.from.shifted(by), to: f.to.shifted(by) }),
        );
        p
    }

    /// Pairs every key of `left` with every key of `right` (shifted by `by`), and minimises the pairs under
    /// the dependencies.
    pub fn pair_keys(&mut self, left: &Props, right: &Props, by: usize) {
        for l in &left.keys {
            for r in &right.keys {
                self.add_key(l.union(&r.shifted(by)));
            }
        }
    }

    /// Adds a source.
    pub fn add_source(&mut self, source: TableId) {
        if !self.sources.contains(&source) {
            Arc::make_mut(&mut self.sources).insert(source);
        }
    }

    /// Adds the sources that `other` reads.
    pub fn add_sources(&mut self, other: &Props) {
        self.sources = together(&self.sources, &other.sources);
    }

    /// Returns the properties after a projection. `image` has an entry for each column: its new place, or
    /// `None` where it is dropped. Keys and dependencies that lose a column are completed through equal
    /// columns where possible, and dropped otherwise.
    #[must_use]
    pub fn project(&self, image: &[Option<usize>]) -> Props {
        let place = |c: usize| image.get(c).copied().flatten();
        let mut p = Props {
            keys: Vec::new(),
            fds: Vec::with_capacity(self.fds.len()),
            sources: self.sources.clone(),
            ..*self
        };
        for f in &self.fds {
            let to: ColSet = f.to.iter().filter_map(place).collect();
            if let (Some(from), false) = (f.from.map(place), to.is_empty()) {
                p.fds.push(FunctionalDependency { from, to });
            }
        }
        for key in &self.keys {
            if let Some(key) = key.map(place) {
                p.add_key(key);
                continue;
            }
            // The remaining columns that determine the key are a key too. Of these, find as few as possible
            // before the columns that link them are gone.
            let mut kept: ColSet = (0..image.len()).filter(|c| place(*c).is_some()).collect();
            if !key.is_subset(&self.closure(&kept)) {
                continue;
            }
            for c in kept.iter().collect::<Vec<_>>().into_iter().rev() {
                let fewer = kept.without(c);
                if key.is_subset(&self.closure(&fewer)) {
                    kept = fewer;
                }
            }
            if let Some(key) = kept.map(place) {
                p.fds.push(FunctionalDependency {
                    from: key.clone(),
                    to: image.iter().copied().flatten().collect(),
                });
                p.add_key(key);
            }
        }
        p
    }
}

/// Returns, for each of `width` columns, the first place in `kept` that holds this column unchanged.
pub(crate) fn images(width: usize, kept: impl IntoIterator<Item = Option<usize>>) -> Vec<Option<usize>> {
    let mut image = vec![None; width];
    for (new, old) in kept.into_iter().enumerate() {
        if let Some(place) = old.and_then(|c| image.get_mut(c)) {
            place.get_or_insert(new);
        }
    }
    image
}

/// Returns the union. A side that contains the other is shared and not copied.
fn together(a: &Arc<BTreeSet<TableId>>, b: &Arc<BTreeSet<TableId>>) -> Arc<BTreeSet<TableId>> {
    match (b.is_subset(a), a.is_subset(b)) {
        (true, _) => a.clone(),
        (_, true) => b.clone(),
        _ => Arc::new(&**a | &**b),
    }
}

fn fd<const N: usize, const M: usize>(from: [usize; N], to: [usize; M]) -> FunctionalDependency {
    FunctionalDependency { from: from.into_iter().collect(), to: to.into_iter().collect() }
}

fn closure(fds: &[FunctionalDependency], cols: &ColSet) -> ColSet {
    let mut have = cols.clone();
    loop {
        let mut grew = false;
        for f in fds {
            if f.from.is_subset(&have) && !f.to.is_subset(&have) {
                have.extend(&f.to);
                grew = true;
            }
        }
        if !grew {
            return have;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(v: &[usize]) -> ColSet {
        v.into()
    }

    #[test]
    fn a_join_on_the_other_sides_key_keeps_this_sides_key() {
        // a(0 id key, 1 b_id) ⋈ b(2 id key, 3 w) on 1 = 2
        let mut a = Props::state();
        a.fds.push(fd([0], [1]));
        a.add_key(set(&[0]));
        let mut b = Props::state();
        b.fds.push(fd([0], [1]));
        b.add_key(set(&[0]));
        let mut j = Props::product(&a, &b, 2);
        j.fds.extend([fd([1], [2]), fd([2], [1])]);
        j.pair_keys(&a, &b, 2);
        assert_eq!(j.keys, vec![set(&[0])]);
        assert!(j.is_key(&set(&[0])) && !j.is_key(&set(&[1])));
    }

    #[test]
    fn a_key_whose_columns_are_dropped_is_told_by_their_equals() {
        // (0, 1 v, 2, 3 w) with 0 = 2, where 2 is the key; 0, 1 and 3 stay.
        let mut a = Props::state();
        a.fds.extend([fd([0], [2]), fd([2], [0]), fd([2], [1, 3])]);
        a.add_key(set(&[2]));
        let b = a.project(&[Some(0), Some(1), None, Some(2)]);
        assert_eq!(b.keys, vec![set(&[0])]);
        assert_eq!(b.closure(&set(&[0])), set(&[0, 1, 2]));
    }

    #[test]
    fn a_constant_column_leaves_the_key() {
        let mut a = Props::state();
        a.add_key(set(&[0, 1]));
        a.fds.push(fd([], [0]));
        for key in std::mem::take(&mut a.keys) {
            a.add_key(key);
        }
        assert_eq!(a.keys, vec![set(&[1])]);
    }
}
