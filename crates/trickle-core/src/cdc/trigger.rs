//! Statement triggers with transition tables.

use super::limit::any_row;
use super::{Buffer, ChangeSource, Writer, differs, fit, image, insert, items, truncated, weight};
use crate::sql::Ident;
use crate::sql::Qualified;
use crate::sql::ast::{
    FromItem, JoinKind, Query, Scalar, Select, SelectItem, SetExpr, Statement, TriggerEvent,
};
use crate::types::Type;

/// Triggers for one event each. PostgreSQL allows only one event for a trigger with transition tables.
#[derive(Debug)]
pub(super) struct StatementTriggers;

impl ChangeSource for StatementTriggers {
    fn writers(&self, buffer: &Buffer) -> Vec<Writer> {
        let (old, new) = (Ident::fixed("trickle_old"), Ident::fixed("trickle_new"));
        let writer = |event, old: Option<&Ident>, new: Option<&Ident>, body| Writer {
            event,
            old: old.cloned(),
            new: new.cloned(),
            for_each_row: false,
            changed: new.or(old).map(any_row),
            reads: buffer.columns().to_vec(),
            body,
            by_other_names: by_other_names(buffer, event),
        };
        let rows = |w, from: &Ident| insert(buffer, arm(buffer, w, from));
        let mut writers = vec![writer(TriggerEvent::Insert, None, Some(&new), rows(1, &new))];
        // Where no column is referenced, only the number of rows matters, and an update does not change this
        // number.
        if !buffer.columns().is_empty() {
            let update = update(buffer, &old, &new);
            let key =
                pairing_key(buffer).unwrap_or_default().iter().filter(|c| !buffer.columns().contains(c));
            let mut update = writer(TriggerEvent::Update, Some(&old), Some(&new), update);
            update.reads.extend(key);
            writers.push(update);
        } else if buffer.is_partitioned() && buffer.is_described() {
            // This trigger writes no changes; it only looks for rows that a MERGE moved.
            writers.push(writer(TriggerEvent::Update, None, None, Vec::new()));
        }
        writers.push(writer(TriggerEvent::Delete, Some(&old), None, rows(-1, &old)));
        writers.push(truncated(buffer));
        writers
    }
}

/// Returns the statements that capture the changes of a statement from the relations that [`fit`] names. They
/// do not pair old and new rows.
pub(super) fn by_other_names(buffer: &Buffer, event: TriggerEvent) -> Vec<Statement> {
    let (old, new) = (Ident::fixed(fit::OLD), Ident::fixed(fit::NEW));
    insert(buffer, changed_rows(buffer, event, &old, &new))
}

/// Returns every row of a transition table, each with the weight `w`.
fn arm(buffer: &Buffer, w: i64, from: &Ident) -> SetExpr {
    all_rows(buffer, w, &Qualified::bare(from.clone()))
}

/// Returns every row of a table that has the columns of the source, each with the weight `w`.
pub(super) fn all_rows(buffer: &Buffer, w: i64, from: &Qualified) -> SetExpr {
    let alias = Ident::fixed("r");
    SetExpr::Select(Box::new(Select {
        items: items(w, image(buffer, &alias)),
        from: vec![FromItem::relation(from.clone(), alias)],
        ..Select::default()
    }))
}

/// Returns the rows that a statement changed, with their weights, from its transition tables.
pub(crate) fn changed_rows(buffer: &Buffer, event: TriggerEvent, old: &Ident, new: &Ident) -> SetExpr {
    match event {
        TriggerEvent::Insert => arm(buffer, 1, new),
        TriggerEvent::Delete | TriggerEvent::Truncate => arm(buffer, -1, old),
        TriggerEvent::Update => SetExpr::UnionAll(vec![arm(buffer, -1, old), arm(buffer, 1, new)]),
    }
}

/// Writes old rows with weight −1 and new rows with weight +1. Where a key pairs old and new rows, pairs that
/// agree in every referenced column are left out. If all columns are referenced, no rows are paired, since
/// too few pairs agree to justify the cost of the join.
fn update(buffer: &Buffer, old: &Ident, new: &Ident) -> Vec<Statement> {
    let all = buffer.columns().len() == buffer.table().columns.iter().filter(|c| c.is_stored()).count();
    let rows = match pairing_key(buffer).filter(|_| !all) {
        Some(key) => SetExpr::Select(Box::new(changed_pairs(buffer, key, old, new))),
        None => SetExpr::UnionAll(vec![arm(buffer, -1, old), arm(buffer, 1, new)]),
    };
    insert(buffer, rows)
}

impl Buffer {
    /// Returns the key (positions of columns) by which the trigger of an UPDATE pairs old and new rows. If
    /// these columns cease to be a key, the trigger must be made again.
    pub fn paired_by(&self) -> &[usize] {
        pairing_key(self).unwrap_or_default()
    }
}

/// Returns the shortest key whose columns all have an `=` in `pg_catalog`. The trigger's fixed search path
/// contains no other operators.
fn pairing_key(buffer: &Buffer) -> Option<&[usize]> {
    let built_in = |c: &usize| {
        let column = buffer.table().columns.get(*c);
        column.is_some_and(|c| c.ty.is_hashable() && !matches!(c.ty, Type::Other(_) | Type::Array(_)))
    };
    let keys = buffer.table().keys.iter().filter(|k| !k.is_empty() && k.iter().all(built_in));
    keys.min_by_key(|k| k.len()).map(Vec::as_slice)
}

/// Pairs old and new rows by key in one FULL JOIN, and splits each pair that differs into its two rows.
/// PostgreSQL computes a FULL JOIN by hashing or merging, and never by a nested loop. The plan is cached with
/// the estimates of the first statement. A nested loop that suited one row would be quadratic for a bulk
/// update later in the session.
fn changed_pairs(buffer: &Buffer, key: &[usize], old: &Ident, new: &Ident) -> Select {
    let (o, n, v) = (Ident::fixed("o"), Ident::fixed("n"), Ident::fixed("v"));
    let names = key.iter().filter_map(|c| buffer.table().columns.get(*c)).map(|c| Ident::new(&c.name));
    let names: Vec<Ident> = names.collect();
    let there = |alias: &Ident| Scalar::and(names.iter().map(|k| Scalar::column(alias, k).is_not_null()));
    let gone = |alias: &Ident| Scalar::or(names.iter().take(1).map(|k| Scalar::column(alias, k).is_null()));
    let pairs = FromItem::Join {
        kind: JoinKind::Full,
        left: Box::new(FromItem::relation(Qualified::bare(old.clone()), o.clone())),
        right: Box::new(FromItem::relation(Qualified::bare(new.clone()), n.clone())),
        on: Some(Scalar::and(names.iter().map(|k| Scalar::column(&o, k).equals(Scalar::column(&n, k))))),
    };
    let row = |w, alias: &Ident| -> Vec<Scalar> {
        [weight(w), there(alias)].into_iter().chain(image(buffer, alias)).collect()
    };
    let mut columns = vec![Ident::fixed("w"), Ident::fixed("there")];
    columns.extend((1..=buffer.columns().len()).map(|i| Ident::new(format!("c{i}"))));
    let select = columns.iter().filter(|c| c.as_str() != "there").map(|c| Scalar::column(&v, c));
    let both = FromItem::Subquery {
        query: Box::new(Query::new(SetExpr::Values(vec![row(-1, &o), row(1, &n)]))),
        alias: v.clone(),
        columns: columns.clone(),
        lateral: true,
    };
    Select {
        items: select.map(|expr| SelectItem { expr, name: None }).collect(),
        from: vec![pairs, both],
        filter: vec![
            Scalar::column(&v, &Ident::fixed("there")),
            Scalar::or([gone(&o), gone(&n), differs(buffer, &o, &n)]),
        ],
        ..Select::default()
    }
}
