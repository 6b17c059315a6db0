//! Grouping and matching rows by key columns under SQL equality, for several operators.

use super::{Row, ZSet, is_true};
use crate::error::Result;
use crate::expr::{Expr, compare_images};
use crate::graph::Schema;
use crate::rel::{JoinKeys, join_keys};
use crate::types::{Datum, Type};
use crate::values::{self, SqlKey};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The rows that agree on some key columns, with their weights, in structural order.
#[derive(Default)]
pub(crate) struct Group<'a> {
    /// The values of the key columns in the row that comes first under [`shown_first`].
    pub(crate) key: Vec<Datum>,
    /// The weight of the row from which `key` is taken.
    weight: i64,
    /// The rows of the group, with their weights.
    pub(crate) rows: Vec<(&'a Row, i64)>,
}

/// Returns the groups of `input` by the columns `keys`, where NULL is equal to NULL.
pub(crate) fn groups<'a>(input: &'a ZSet, keys: &[usize], schema: &Schema) -> Vec<Group<'a>> {
    let padded = padded(keys, schema);
    let mut groups: BTreeMap<SqlKey<Vec<Datum>>, Group<'a>> = BTreeMap::new();
    for (row, w) in input.iter() {
        let key: Vec<Datum> = keys.iter().map(|k| row[*k].clone()).collect();
        let class = SqlKey(if padded { normal(&key, keys, schema) } else { key.clone() });
        let group =
            groups.entry(class).or_insert_with(|| Group { key: key.clone(), weight: w, rows: Vec::new() });
        let types = keys.iter().filter_map(|k| schema.column(*k)).map(|c| &c.ty);
        if shown_first(types, (&key, w), (&group.key, group.weight)).is_lt() {
            (group.key, group.weight) = (key, w);
        }
        group.rows.push((row, w));
    }
    groups.into_values().collect()
}

/// Orders two equal rows: the first row represents both in the result. A row with a positive weight comes
/// first. Among such rows, the row with the lesser images comes first, column by column.
pub(crate) fn shown_first<'t>(
    types: impl IntoIterator<Item = &'t Type>,
    (a, v): (&[Datum], i64),
    (b, w): (&[Datum], i64),
) -> Ordering {
    let mut images = types.into_iter().zip(a.iter().zip(b)).map(|(ty, (a, b))| compare_images(ty, a, b));
    let gone = (v <= 0).cmp(&(w <= 0));
    gone.then_with(|| images.find(|o| o.is_ne()).unwrap_or(Ordering::Equal)).then_with(|| a.cmp(b))
}

/// Whether comparisons of some key column ignore trailing blanks.
fn padded(keys: &[usize], schema: &Schema) -> bool {
    keys.iter().any(|k| schema.column(*k).is_some_and(|c| c.ty.is_padded()))
}

/// Returns the key without the trailing blanks that do not count.
fn normal(key: &[Datum], columns: &[usize], schema: &Schema) -> Vec<Datum> {
    let strip = |(d, k): (&Datum, &usize)| match schema.column(*k) {
        Some(c) => values::unpadded(&c.ty, d),
        None => d.clone(),
    };
    key.iter().zip(columns).map(strip).collect()
}

/// A join condition, and an index of the right input's rows by the columns that the condition equates.
pub(crate) struct Matcher<'a> {
    keys: JoinKeys,
    residual: Expr,
    left: &'a Schema,
    index: BTreeMap<SqlKey<Vec<Datum>>, Vec<(&'a Row, i64)>>,
    padded: bool,
}

impl<'a> Matcher<'a> {
    /// Indexes `right` for the condition `on`, which is over the columns of both inputs.
    pub(crate) fn new(on: &Expr, left: &'a Schema, right: &'a ZSet, right_schema: &Schema) -> Matcher<'a> {
        let mut keys = join_keys(on, left.len());
        let residual = Expr::and(std::mem::take(&mut keys.residual));
        let padded = padded(&keys.left, left);
        let mut index: BTreeMap<SqlKey<Vec<Datum>>, Vec<(&'a Row, i64)>> = BTreeMap::new();
        for (row, w) in right.iter() {
            if let Some(key) = key(row, &keys.right, &keys.null_safe, right_schema, padded) {
                index.entry(SqlKey(key)).or_default().push((row, w));
            }
        }
        Matcher { keys, residual, left, index, padded }
    }

    /// Calls `found` with each pair of `row` and a matching right row, until `found` returns false.
    pub(crate) fn pairs(&self, row: &Row, mut found: impl FnMut(Row, &'a Row, i64) -> bool) -> Result<()> {
        let Some(key) = key(row, &self.keys.left, &self.keys.null_safe, self.left, self.padded) else {
            return Ok(());
        };
        let always = matches!(self.residual.as_literal(), Some(Datum::Bool(true)));
        for (right, w) in self.index.get(&SqlKey(key)).into_iter().flatten() {
            let pair: Row = row.iter().chain(right.iter()).cloned().collect();
            if (always || is_true(&self.residual, &pair)?) && !found(pair, right, *w) {
                break;
            }
        }
        Ok(())
    }

    /// Whether a right row matches `row`.
    pub(crate) fn matches(&self, row: &Row) -> Result<bool> {
        let mut any = false;
        self.pairs(row, |_, _, _| {
            any = true;
            false
        })?;
        Ok(any)
    }
}

/// Returns the key of a row. Returns `None` if the key has a NULL that equals no value.
fn key(
    row: &Row,
    columns: &[usize],
    null_safe: &[bool],
    schema: &Schema,
    padded: bool,
) -> Option<Vec<Datum>> {
    let key: Vec<Datum> = columns.iter().map(|c| row[*c].clone()).collect();
    if key.iter().zip(null_safe).any(|(d, safe)| !safe && d.is_null()) {
        return None;
    }
    Some(if padded { normal(&key, columns, schema) } else { key })
}

/// Returns the classes of SQL-equal rows: for each class, the first row under [`shown_first`], and the total
/// weight, which may be 0.
pub(crate) fn row_groups(input: &ZSet, schema: &Schema) -> Vec<(Row, i64)> {
    let all: Vec<usize> = (0..schema.len()).collect();
    let total = |g: &Group<'_>| g.rows.iter().fold(0i64, |sum, (_, w)| sum.wrapping_add(*w));
    groups(input, &all, schema).into_iter().map(|g| (total(&g), g)).map(|(w, g)| (g.key.into(), w)).collect()
}

/// Returns the row without the trailing blanks that comparisons ignore.
pub(crate) fn unpadded(row: &Row, schema: &Schema) -> Row {
    let all: Vec<usize> = (0..row.len()).collect();
    if padded(&all, schema) { normal(row, &all, schema).into() } else { row.clone() }
}
