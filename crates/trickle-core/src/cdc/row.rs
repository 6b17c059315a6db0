//! Row triggers, for tables that a subscription writes. The apply worker of a subscription fires no statement
//! triggers.

use super::trigger::by_other_names;
use super::{Buffer, ChangeSource, Writer, differs, image, insert, truncated, weight};
use crate::sql::Ident;
use crate::sql::ast::{FromItem, Query, Scalar, Select, SelectItem, SetExpr, Statement, TriggerEvent};

/// Row triggers that write the old and the new row to the buffer at each change of a row.
#[derive(Debug)]
pub(super) struct RowTriggers;

impl ChangeSource for RowTriggers {
    fn writers(&self, buffer: &Buffer) -> Vec<Writer> {
        let (old, new) = (Ident::fixed("old"), Ident::fixed("new"));
        let writer = |event, changed, body| Writer {
            event,
            old: (event != TriggerEvent::Insert).then(|| old.clone()),
            new: (event != TriggerEvent::Delete).then(|| new.clone()),
            for_each_row: true,
            changed,
            reads: buffer.columns().to_vec(),
            body,
            by_other_names: by_other_names(buffer, event),
        };
        let one = |w, alias| insert(buffer, SetExpr::Values(vec![row(buffer, w, alias)]));
        let mut writers = vec![writer(TriggerEvent::Insert, None, one(1, &new))];
        if !buffer.columns().is_empty() {
            let changed = Some(differs(buffer, &old, &new));
            writers.push(writer(TriggerEvent::Update, changed, update(buffer, &old, &new)));
        }
        writers.push(writer(TriggerEvent::Delete, None, one(-1, &old)));
        writers.push(truncated(buffer));
        writers
    }
}

/// Returns the weight and the image of `OLD` or `NEW`.
fn row(buffer: &Buffer, w: i64, alias: &Ident) -> Vec<Scalar> {
    std::iter::once(weight(w)).chain(image(buffer, alias)).collect()
}

/// Writes the old row with weight −1 and the new row with weight +1, if they differ in a referenced column.
fn update(buffer: &Buffer, old: &Ident, new: &Ident) -> Vec<Statement> {
    let v = Ident::fixed("v");
    let mut columns = vec![Ident::fixed("w")];
    columns.extend((1..=buffer.columns().len()).map(|i| Ident::new(format!("c{i}"))));
    let rows = Query::new(SetExpr::Values(vec![row(buffer, -1, old), row(buffer, 1, new)]));
    let select = Select {
        items: columns.iter().map(|c| SelectItem { expr: Scalar::column(&v, c), name: None }).collect(),
        from: vec![FromItem::Subquery {
            query: Box::new(rows),
            alias: v.clone(),
            columns: columns.clone(),
            lateral: false,
        }],
        filter: vec![differs(buffer, old, new)],
        ..Select::default()
    };
    insert(buffer, SetExpr::Select(Box::new(select)))
}
