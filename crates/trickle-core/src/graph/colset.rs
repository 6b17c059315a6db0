//! Sets of column positions.

use std::fmt;

/// A set of column positions, kept sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColSet(Vec<usize>);

impl ColSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// `0..n`
    pub fn all(n: usize) -> Self {
        ColSet((0..n).collect())
    }
    /// The positions, ascending.
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }
    /// The positions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Membership.
    pub fn contains(&self, col: usize) -> bool {
        self.0.binary_search(&col).is_ok()
    }
    /// Whether every member is in `other`.
    pub fn is_subset(&self, other: &ColSet) -> bool {
        self.0.iter().all(|c| other.contains(*c))
    }
    /// Both together.
    #[must_use]
    pub fn union(&self, other: &ColSet) -> ColSet {
        self.iter().chain(other.iter()).collect()
    }
    /// Without `col`.
    #[must_use]
    pub fn without(&self, col: usize) -> ColSet {
        ColSet(self.iter().filter(|c| *c != col).collect())
    }
    /// Every member moved right.
    #[must_use]
    pub fn shifted(&self, by: usize) -> ColSet {
        ColSet(self.iter().map(|c| c + by).collect())
    }
    /// Every member mapped; `None` where one has no image.
    pub fn map(&self, mut f: impl FnMut(usize) -> Option<usize>) -> Option<ColSet> {
        self.iter().map(&mut f).collect()
    }
}

impl FromIterator<usize> for ColSet {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        let mut v: Vec<usize> = iter.into_iter().collect();
        v.sort_unstable();
        v.dedup();
        ColSet(v)
    }
}

impl From<&[usize]> for ColSet {
    fn from(v: &[usize]) -> Self {
        v.iter().copied().collect()
    }
}

impl fmt::Display for ColSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}
