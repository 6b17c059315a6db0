//! Z-sets: functions from rows to integers.

use crate::types::Datum;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row.
pub type Row = Arc<[Datum]>;

/// A finite function from rows to non-zero weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZSet {
    rows: BTreeMap<Row, i64>,
}

impl ZSet {
    /// The empty relation.
    pub fn new() -> ZSet {
        ZSet::default()
    }
    /// Adds `weight` to `row`.
    pub fn add(&mut self, row: Row, weight: i64) {
        if weight == 0 {
            return;
        }
        let entry = self.rows.entry(row);
        match entry {
            std::collections::btree_map::Entry::Vacant(e) => {
                e.insert(weight);
            }
            std::collections::btree_map::Entry::Occupied(mut e) => {
                *e.get_mut() += weight;
                if *e.get() == 0 {
                    e.remove();
                }
            }
        }
    }
    /// Rows with their weights, in structural order.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, i64)> {
        self.rows.iter().map(|(r, w)| (r, *w))
    }
    /// Whether every weight is 0.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// How many rows have a weight.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
}
