//! Z-sets: functions from rows to integers.

use crate::error::{Error, Result};
use crate::types::Datum;
use crate::values::SqlKey;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

/// A row.
pub type Row = Arc<[Datum]>;

/// A finite function from rows to non-zero weights.
///
/// Rows are distinguished by image: 1.0 and 1.00 are two rows, also for `==` on Z-sets. [`same_bag`] compares
/// Z-sets by SQL's equality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZSet {
    rows: BTreeMap<Row, i64>,
}

impl ZSet {
    /// Makes the empty relation.
    pub fn new() -> ZSet {
        ZSet::default()
    }
    /// Adds `weight` to the weight of `row`. Weights are integers modulo 2⁶⁴, so the laws of a group hold
    /// without exception.
    pub fn add(&mut self, row: Row, weight: i64) {
        if weight == 0 {
            return;
        }
        match self.rows.entry(row) {
            Entry::Vacant(e) => {
                e.insert(weight);
            }
            Entry::Occupied(mut e) => {
                *e.get_mut() = e.get().wrapping_add(weight);
                if *e.get() == 0 {
                    e.remove();
                }
            }
        }
    }
    /// Adds `other` to the Z-set.
    pub fn add_zset(&mut self, other: &ZSet) {
        if self.rows.is_empty() {
            self.rows.clone_from(&other.rows);
            return;
        }
        for (row, w) in other.iter() {
            self.add(row.clone(), w);
        }
    }
    /// Returns `self + other`.
    #[must_use]
    pub fn plus(&self, other: &ZSet) -> ZSet {
        let mut sum = self.clone();
        sum.add_zset(other);
        sum
    }
    /// Returns `self − other`.
    #[must_use]
    pub fn minus(&self, other: &ZSet) -> ZSet {
        let mut difference = self.clone();
        for (row, w) in other.iter() {
            difference.add(row.clone(), w.wrapping_neg());
        }
        difference
    }
    /// Returns `−self`.
    #[must_use]
    pub fn negate(&self) -> ZSet {
        self.scaled(-1)
    }
    /// Returns the Z-set with every weight multiplied by `factor`.
    #[must_use]
    pub(crate) fn scaled(&self, factor: i64) -> ZSet {
        self.iter().map(|(r, w)| (r.clone(), w.wrapping_mul(factor))).collect()
    }
    /// Returns the Z-set of the rows `f(row)`. The weights of rows with the same result add up.
    #[must_use]
    pub(crate) fn map(&self, mut f: impl FnMut(&[Datum]) -> Row) -> ZSet {
        self.iter().map(|(r, w)| (f(r), w)).collect()
    }
    /// Returns the weight of a row; 0 if the row does not occur.
    pub fn weight(&self, row: &[Datum]) -> i64 {
        self.rows.get(row).copied().unwrap_or(0)
    }
    /// Returns the rows with their weights, in structural order.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, i64)> {
        self.rows.iter().map(|(r, w)| (r, *w))
    }
    /// Returns the number of rows, where copies count. Rows with negative weights count too.
    pub(crate) fn copies(&self) -> u64 {
        self.rows.values().fold(0, |n, w| n.saturating_add(w.unsigned_abs()))
    }
    /// Whether every row has weight 0.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Returns the number of distinct rows with a weight other than 0.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether no weight is negative, so that the Z-set denotes a state.
    pub(crate) fn is_state(&self) -> bool {
        self.rows.values().all(|w| *w > 0)
    }

    /// Merges the rows that are equal in SQL. The first of these rows in structural order gets the sum of the
    /// weights.
    #[must_use]
    pub(crate) fn merged(&self) -> ZSet {
        self.groups().into_iter().map(|(r, w)| (r.clone(), w)).collect()
    }

    /// Returns the classes of SQL-equal rows: for each class, the first row in structural order and the total
    /// weight, which may be 0.
    pub(crate) fn groups(&self) -> Vec<(&Row, i64)> {
        let mut groups: BTreeMap<SqlKey<&Row>, i64> = BTreeMap::new();
        for (row, w) in self.iter() {
            let total = groups.entry(SqlKey(row)).or_insert(0);
            *total = total.wrapping_add(w);
        }
        groups.into_iter().map(|(k, w)| (k.0, w)).collect()
    }

    /// Fails unless the Z-set denotes a state; `op` is the operator that needs a state.
    pub(crate) fn require_state(&self, op: &str) -> Result<()> {
        match self.rows.iter().find(|(_, w)| **w < 0) {
            None => Ok(()),
            Some((row, w)) => Err(Error::plan(format!(
                "{op} read a row of weight {w}, but is defined on states only: {}",
                row_text(row)
            ))),
        }
    }
}

impl AsRef<[Datum]> for SqlKey<&Row> {
    fn as_ref(&self) -> &[Datum] {
        self.0
    }
}

/// Whether two Z-sets contain the same rows equally often, under SQL's equality of rows. NULL is equal to
/// NULL.
pub fn same_bag(a: &ZSet, b: &ZSet) -> bool {
    // In the common case the images are equal too, and no rows have to be merged.
    a == b || a.minus(b).groups().iter().all(|(_, w)| *w == 0)
}

fn row_text(row: &[Datum]) -> String {
    let fields: Vec<String> = row
        .iter()
        .map(|d| match d {
            Datum::Text(s) => format!("'{s}'"),
            other => other.to_string(),
        })
        .collect();
    format!("({})", fields.join(", "))
}

impl FromIterator<(Row, i64)> for ZSet {
    fn from_iter<T: IntoIterator<Item = (Row, i64)>>(iter: T) -> ZSet {
        let mut z = ZSet::new();
        for (row, w) in iter {
            z.add(row, w);
        }
        z
    }
}

/// Gives each row the weight 1.
impl FromIterator<Vec<Datum>> for ZSet {
    fn from_iter<T: IntoIterator<Item = Vec<Datum>>>(iter: T) -> ZSet {
        iter.into_iter().map(|r| (Row::from(r), 1)).collect()
    }
}

/// Writes one line per row: `weight × (values)`.
impl fmt::Display for ZSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "(no rows)");
        }
        self.iter().try_for_each(|(row, w)| writeln!(f, "{w:+} × {}", row_text(row)))
    }
}
