//! The properties that are derived for every node: keys, functional dependencies, sign, sources, volatility.

use super::{ColSet, Schema};
use crate::expr::{Expr, ExprKind, Volatility};
use crate::table::TableId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The dependency `from → to`: rows that agree on `from` also agree on `to`. NULL is equal to NULL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionalDependency {
    /// The determining columns. The set is empty for constants.
    pub(crate) from: ColSet,
    /// The columns that are determined.
    pub(crate) to: ColSet,
}

/// The properties of a relation that follow from its plan, for all data. Each property is a guarantee, never
/// an estimate.
#[derive(Clone, Debug)]
pub struct Props {
    /// Minimal keys: no two rows agree on all columns of a key. A row of weight 2 counts as two rows. There
    /// are at most `Props::MAX_KEYS` keys. Keys are meaningful only where `non_negative` is true.
    pub keys: Vec<ColSet>,
    /// Functional dependencies, without those that follow from the keys alone.
    pub(crate) fds: Vec<FunctionalDependency>,
    /// Whether the Z-set has no negative weight, so that it denotes a state and not a change.
    pub(crate) non_negative: bool,
    /// Whether every row that the rendered SQL returns has a weight ≥ 1. Weight thresholds and non-linear
    /// aggregates need such input. A sum of signed terms has this property only after consolidation.
    pub(crate) positive: bool,
    /// Whether the rendered SQL returns each row once, with its whole weight, and no row of weight 0.
    pub(crate) consolidated: bool,
    /// The sources that the relation reads, in any version. The clock counts as a source.
    pub sources: Arc<BTreeSet<TableId>>,
    /// Whether one of the leaves is the change (Δ) of a table.
    pub(crate) reads_delta: bool,
    /// The greatest volatility of a function in the plan.
    pub(crate) volatility: Volatility,
    /// Whether the relation has no rows for any data.
    pub(crate) empty: bool,
    /// Whether the size of the change bounds the size of the relation, whatever the size of the data. If so,
    /// the change also bounds the work of computing the relation through indexes.
    pub(crate) bounded: bool,
}

impl Props {
    /// The greatest number of keys that are recorded for a relation.
    pub(crate) const MAX_KEYS: usize = 8;

    /// Returns the properties of a state about which nothing else is known: its weights are positive, and it
    /// has no keys.
    pub(crate) fn state() -> Props {
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

    /// Whether `cols` identify a row: for given values of `cols` there is at most one row, and its weight is
    /// 1.
    pub fn is_key(&self, cols: &ColSet) -> bool {
        let closure = self.closure(cols);
        self.keys.iter().any(|k| k.is_subset(&closure))
    }

    /// Returns all columns that `cols` determine: the least superset of `cols` that is closed under the
    /// functional dependencies. Keys are taken into account, since operators record dependencies for them.
    pub(crate) fn closure(&self, cols: &ColSet) -> ColSet {
        closure(&self.fds, cols)
    }

    /// Whether a relation without duplicates also has each row once under `=`, so that no two equal rows have
    /// different images. This follows from a key of the relation, or from a schema whose equal rows always
    /// have the same image.
    pub(crate) fn is_one_per_value(&self, schema: &Schema) -> bool {
        !self.keys.is_empty() || schema.is_exact()
    }

    /// Adds a key, without the columns that its other columns determine. If one key contains another key,
    /// only the smaller key stays.
    pub(crate) fn add_key(&mut self, key: ColSet) {
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

    /// Records the dependencies that hold for rows that satisfy a predicate. Under `a = b`, each of the two
    /// columns determines the other. Under `a = constant`, the column is constant.
    pub(crate) fn learn(&mut self, predicate: &Expr) {
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
            // Equal values of an inexact type may have different images. Keys and dependencies concern only
            // the equality of values, so this condition counts for them.
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

    /// Returns the properties of the pairs of rows of two relations, except the keys (see
    /// [`Props::pair_keys`]). The columns of `right` are shifted by `by`.
    #[must_use]
    pub(crate) fn product(left: &Props, right: &Props, by: usize) -> Props {
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

    /// Adds as keys all unions of a key of `left` and a key of `right`, shifted by `by`. Columns that other
    /// columns determine by the dependencies are left out.
    pub(crate) fn pair_keys(&mut self, left: &Props, right: &Props, by: usize) {
        for l in &left.keys {
            for r in &right.keys {
                self.add_key(l.union(&r.shifted(by)));
            }
        }
    }

    /// Adds a source.
    pub(crate) fn add_source(&mut self, source: TableId) {
        if !self.sources.contains(&source) {
            Arc::make_mut(&mut self.sources).insert(source);
        }
    }

    /// Adds the sources of `other`.
    pub(crate) fn add_sources(&mut self, other: &Props) {
        self.sources = together(&self.sources, &other.sources);
    }

    /// Returns the properties of a projection of the relation. `image` has an entry for each column of the
    /// relation: its position after the projection, or `None` where it is dropped. If a column of a key or
    /// dependency is dropped, an equal column replaces it where there is one. Otherwise the key or dependency
    /// is dropped.
    #[must_use]
    pub(crate) fn project(&self, image: &[Option<usize>]) -> Props {
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
            // If the remaining columns determine the key, they are a key themselves. This step finds a small
            // set of such columns. At this point, the columns that link them to the key are still present.
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

/// Returns, for each of `width` columns, the first position in `kept` at which this column is passed on
/// unchanged.
pub(crate) fn images(width: usize, kept: impl IntoIterator<Item = Option<usize>>) -> Vec<Option<usize>> {
    let mut image = vec![None; width];
    for (new, old) in kept.into_iter().enumerate() {
        if let Some(place) = old.and_then(|c| image.get_mut(c)) {
            place.get_or_insert(new);
        }
    }
    image
}

/// Returns the union of two sets of sources. If one of the sets contains the other, the greater set is shared
/// and not copied.
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
        // The example is a(0 id key, 1 b_id) ⋈ b(2 id key, 3 w) on 1 = 2.
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
        // The example has the columns (0, 1 v, 2, 3 w), where 0 = 2 and 2 is the key. The projection drops
        // column 2.
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
