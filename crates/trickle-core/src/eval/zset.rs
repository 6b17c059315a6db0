//! Z-sets: functions from rows to integers.

use super::compare::{SqlKey, compare_rows};
use crate::error::{Error, Result};
use crate::types::Datum;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

/// A row.
pub type Row = Arc<[Datum]>;

/// A finite function from rows to non-zero weights.
///
/// Rows are told apart by image (1.0 and 1.00 are two rows), and so does `==`. [`same_bag`] compares as SQL does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZSet {
    rows: BTreeMap<Row, i64>,
}

impl ZSet {
    /// The empty relation.
    pub fn new() -> ZSet {
        ZSet::default()
    }
    /// Adds `weight` to `row`. Weights are integers modulo 2⁶⁴, so the group laws hold without exception.
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
    /// `self += other`
    pub fn add_zset(&mut self, other: &ZSet) {
        if self.rows.is_empty() {
            self.rows.clone_from(&other.rows);
            return;
        }
        for (row, w) in other.iter() {
            self.add(row.clone(), w);
        }
    }
    /// `self + other`
    #[must_use]
    pub fn plus(&self, other: &ZSet) -> ZSet {
        let mut sum = self.clone();
        sum.add_zset(other);
        sum
    }
    /// `self − other`
    #[must_use]
    pub fn minus(&self, other: &ZSet) -> ZSet {
        let mut difference = self.clone();
        for (row, w) in other.iter() {
            difference.add(row.clone(), w.wrapping_neg());
        }
        difference
    }
    /// `−self`
    #[must_use]
    pub fn negate(&self) -> ZSet {
        self.scaled(-1)
    }
    /// Every weight times `factor`.
    #[must_use]
    pub fn scaled(&self, factor: i64) -> ZSet {
        self.iter().map(|(r, w)| (r.clone(), w.wrapping_mul(factor))).collect()
    }
    /// The image under `f`: weights of rows with one image add up.
    #[must_use]
    pub fn map(&self, mut f: impl FnMut(&[Datum]) -> Row) -> ZSet {
        self.iter().map(|(r, w)| (f(r), w)).collect()
    }
    /// The weight of a row; 0 where it has none.
    pub fn weight(&self, row: &[Datum]) -> i64 {
        self.rows.get(row).copied().unwrap_or(0)
    }
    /// Rows with their weights, in structural order.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, i64)> {
        self.rows.iter().map(|(r, w)| (r, *w))
    }
    /// How many rows there are, copies counted, those that are missing too.
    pub fn copies(&self) -> u64 {
        self.rows.values().fold(0, |n, w| n.saturating_add(w.unsigned_abs()))
    }
    /// Whether every weight is 0.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// How many rows have a weight.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether no weight is negative: it denotes a state.
    pub fn is_state(&self) -> bool {
        self.rows.values().all(|w| *w > 0)
    }

    /// Rows merged where SQL calls them equal; the first in structural order stands for the others.
    #[must_use]
    pub fn merged(&self) -> ZSet {
        self.groups().into_iter().map(|(r, w)| (r.clone(), w)).collect()
    }

    /// The classes of SQL-equal rows, each with its first row in structural order and its total weight, which may be 0.
    pub(crate) fn groups(&self) -> Vec<(&Row, i64)> {
        let mut groups: BTreeMap<SqlKey<&Row>, i64> = BTreeMap::new();
        for (row, w) in self.iter() {
            let total = groups.entry(SqlKey(row)).or_insert(0);
            *total = total.wrapping_add(w);
        }
        groups.into_iter().map(|(k, w)| (k.0, w)).collect()
    }

    /// Fails unless it denotes a state; `op` is who needs one.
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

/// Whether both hold the same rows as often, under SQL's equality of rows with NULL equal to NULL.
pub fn same_bag(a: &ZSet, b: &ZSet) -> bool {
    // Equal images are the common case and cost no merging.
    a == b || a.minus(b).groups().iter().all(|(_, w)| *w == 0)
}

/// The rows on which two Z-sets differ, as `− row` and `+ row` lines for a test failure; empty where they are the same.
pub fn difference(expected: &ZSet, found: &ZSet) -> String {
    let mut lines: Vec<(&[Datum], String)> = Vec::new();
    let gap = found.minus(expected);
    for (row, w) in gap.groups() {
        if w != 0 {
            let sign = if w > 0 { '+' } else { '-' };
            lines.push((row, format!("{sign} {} × {}\n", w.unsigned_abs(), row_text(row))));
        }
    }
    lines.sort_by(|(a, _), (b, _)| compare_rows(a, b));
    lines.into_iter().map(|(_, l)| l).collect()
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

/// Each row with weight 1.
impl FromIterator<Vec<Datum>> for ZSet {
    fn from_iter<T: IntoIterator<Item = Vec<Datum>>>(iter: T) -> ZSet {
        iter.into_iter().map(|r| (Row::from(r), 1)).collect()
    }
}

/// One line per row: `weight × (values)`.
impl fmt::Display for ZSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "(no rows)");
        }
        self.iter().try_for_each(|(row, w)| writeln!(f, "{w:+} × {}", row_text(row)))
    }
}
