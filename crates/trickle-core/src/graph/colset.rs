//! Sets of column positions.

use std::cmp::Ordering;
use std::fmt;

/// A set of column positions, as a bitmap. Positions below 64 are stored without an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ColSet {
    first: u64,
    /// The words of the bitmap after the first word. The last word is not 0, so equal sets have equal words.
    rest: Vec<u64>,
}

const BITS: usize = 64;

impl ColSet {
    /// Makes the empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// Makes the set `0..n`.
    pub(crate) fn all(n: usize) -> Self {
        match n {
            0..BITS => ColSet { first: (1 << n) - 1, rest: Vec::new() },
            _ => (0..n).collect(),
        }
    }
    /// Adds a position.
    pub(crate) fn insert(&mut self, col: usize) {
        let (word, bit) = (col / BITS, 1 << (col % BITS));
        if word == 0 {
            self.first |= bit;
            return;
        }
        if self.rest.len() < word {
            self.rest.resize(word, 0);
        }
        self.rest[word - 1] |= bit;
    }
    /// Returns the positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().enumerate().flat_map(|(i, word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < BITS).then_some(i * BITS + bit)
            })
        })
    }
    /// Returns the number of members.
    pub(crate) fn len(&self) -> usize {
        self.words().map(|w| w.count_ones() as usize).sum()
    }
    /// Whether the set has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.is_empty()
    }
    /// Whether `col` is a member.
    pub fn contains(&self, col: usize) -> bool {
        self.word(col / BITS) >> (col % BITS) & 1 == 1
    }
    /// Returns the number of members smaller than `col`, if `col` is a member.
    pub(crate) fn rank(&self, col: usize) -> Option<usize> {
        let (word, bit) = (col / BITS, 1 << (col % BITS));
        let before: u32 = self.words().take(word).map(u64::count_ones).sum();
        let here = self.word(word);
        (here & bit != 0).then(|| (before + (here & (bit - 1)).count_ones()) as usize)
    }
    /// Whether every member is in `other`.
    pub(crate) fn is_subset(&self, other: &ColSet) -> bool {
        self.words().enumerate().all(|(i, w)| w & !other.word(i) == 0)
    }
    /// Returns the union of both sets.
    #[must_use]
    pub(crate) fn union(&self, other: &ColSet) -> ColSet {
        let mut both = self.clone();
        both.extend(other);
        both
    }
    /// Adds every member of `other`.
    pub(crate) fn extend(&mut self, other: &ColSet) {
        self.first |= other.first;
        if self.rest.len() < other.rest.len() {
            self.rest.resize(other.rest.len(), 0);
        }
        self.rest.iter_mut().zip(&other.rest).for_each(|(a, b)| *a |= b);
    }
    /// Returns the set without `col`.
    #[must_use]
    pub(crate) fn without(&self, col: usize) -> ColSet {
        let mut less = self.clone();
        match col / BITS {
            0 => less.first &= !(1 << col),
            word => {
                if let Some(w) = less.rest.get_mut(word - 1) {
                    *w &= !(1 << (col % BITS));
                }
                while less.rest.last() == Some(&0) {
                    less.rest.pop();
                }
            }
        }
        less
    }
    /// Returns the set with every member increased by `by`.
    #[must_use]
    pub(crate) fn shifted(&self, by: usize) -> ColSet {
        if self.rest.is_empty() && by < BITS && self.first.leading_zeros() as usize >= by {
            return ColSet { first: self.first << by, rest: Vec::new() };
        }
        self.iter().map(|c| c + by).collect()
    }
    /// Returns the set with every member mapped by `f`. Returns `None` if `f` returns `None` for a member.
    pub(crate) fn map(&self, mut f: impl FnMut(usize) -> Option<usize>) -> Option<ColSet> {
        self.iter().map(&mut f).collect()
    }

    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }
    fn word(&self, i: usize) -> u64 {
        match i {
            0 => self.first,
            _ => self.rest.get(i - 1).copied().unwrap_or(0),
        }
    }
}

/// Compares two sets as ascending lists of their members.
impl Ord for ColSet {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}
impl PartialOrd for ColSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromIterator<usize> for ColSet {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        let mut set = ColSet::new();
        iter.into_iter().for_each(|c| set.insert(c));
        set
    }
}

impl From<&[usize]> for ColSet {
    fn from(v: &[usize]) -> Self {
        v.iter().copied().collect()
    }
}

impl fmt::Display for ColSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.iter().map(|c| c.to_string()).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::ColSet;
    use std::collections::BTreeSet;

    proptest::proptest! {
        /// Compares a `ColSet` with a `BTreeSet` of the same members, below and above the limit of a word.
        #[test]
        fn a_set_of_columns_is_a_set(
            a in proptest::collection::btree_set(0usize..200, 0..6),
            b in proptest::collection::btree_set(0usize..70, 0..6),
            by in 0usize..130,
        ) {
            let set = |s: &BTreeSet<usize>| s.iter().copied().collect::<ColSet>();
            let (x, y) = (set(&a), set(&b));
            assert_eq!(x.iter().collect::<Vec<_>>(), a.iter().copied().collect::<Vec<_>>());
            assert_eq!((x.len(), x.is_empty()), (a.len(), a.is_empty()));
            assert_eq!((x.is_subset(&y), x.cmp(&y)), (a.is_subset(&b), a.cmp(&b)));
            assert_eq!(x.union(&y), set(&(&a | &b)));
            assert_eq!(x.contains(by), a.contains(&by));
            assert_eq!(x.shifted(by), set(&a.iter().map(|c| c + by).collect()));
            assert_eq!(x.rank(by), a.iter().position(|c| *c == by));
            for c in &a {
                assert_eq!(x.without(*c), set(&a.iter().copied().filter(|x| x != c).collect()));
            }
            assert_eq!(ColSet::all(by), (0..by).collect());
        }
    }
}
