//! The statement that applies the changes of a stream table's stored tables.

use super::layout::{Identity, Stored};
use crate::graph::{ColSet, Props};
use crate::rel::Revise;
use crate::sql::ast::{
    ConflictAction, Cte, CteBody, Delete, FromItem, Insert, OnConflict, OrderBy, Query, Scalar, Select,
    SelectItem, SetExpr, Statement,
};
use crate::sql::{Changed, Ident, NameSet, Named, Qualified, Rendered, image};
use crate::types::Type;

/// The change of one stored table, as a common table expression. The change consists of distinct rows with
/// weights ≠ 0. If a key identifies rows, the change may instead consist of pairs: the row before and the row
/// after. Rows are distinguished by image, keys by equality.
struct Change<'s> {
    table: &'s Stored,
    rows: Rendered,
    against: Against,
}

/// The state of the stored rows that a change relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// The state that this plan left. A table for at most one row then has exactly one row.
    Plan,
    /// The rows that are stored, whichever plan wrote them.
    Stored,
}

/// Whether the change of a table may come as pairs of the row before and the row after, computed from a row
/// of `input`. Both rows of a pair then have the same value of the table's key, and this value identifies the
/// pair. No key is therefore written twice.
pub(crate) fn takes_pairs(table: &Stored, revise: &Revise, input: &Props) -> bool {
    let Identity::Key(key) = &table.identity else { return false };
    let passed: Option<ColSet> = key.iter().map(|k| revise.kept(*k)).collect();
    input.non_negative && passed.is_some_and(|passed| input.is_key(&passed))
}

/// Builds `WITH ctes, … DELETE …, … INSERT … SELECT counts`. The statement applies the change of every table,
/// in the order of the roots. The statement returns one row: the numbers of rows inserted, updated and
/// deleted in the last table.
///
/// Every part reads the state before the statement. Keys that vanish are deleted, and all other changed keys
/// are upserted, so no key is written twice.
pub(crate) fn change_statement(changed: Changed, tables: &[&Stored], against: Against) -> Statement {
    let Changed { mut ctes, roots } = changed;
    let mut names = names_beside(&ctes);
    let mut counts = Vec::new();
    for (table, rows) in tables.iter().zip(roots) {
        let change = Change { table, rows, against };
        let (removed, written) = (names.fresh("removed"), names.fresh("written"));
        ctes.push(dml(removed.clone(), CteBody::Delete(removal(&change))));
        ctes.push(dml(written.clone(), CteBody::Insert(insertion(&change, &removed))));
        counts = done(&removed, &written);
    }
    let mut query = Query::select(Select { items: counts, ..Select::default() });
    query.ctes = ctes;
    Statement::Query(query)
}

/// Returns a set of names in which the names of these common table expressions are reserved. More names can
/// be added to the set.
pub(super) fn names_beside(ctes: &[Cte]) -> NameSet {
    let mut names = NameSet::new();
    ctes.iter().for_each(|cte| names.reserve(cte.name.clone()));
    names
}

pub(super) fn dml(name: Ident, body: CteBody) -> Cte {
    Cte { name, columns: Vec::new(), materialized: None, body }
}

/// Builds `(SELECT count(*) FROM relation WHERE filter)`.
fn count(relation: &Ident, filter: Option<Scalar>) -> Scalar {
    let select = Select {
        items: vec![SelectItem { expr: Scalar::aggregate("count", vec![]), name: None }],
        from: vec![FromItem::relation(Qualified::bare(relation.clone()), relation.clone())],
        filter: filter.into_iter().collect(),
        ..Select::default()
    };
    Scalar::Subquery(Box::new(Query::select(select)))
}

/// Returns the SELECT list with the numbers of rows inserted, updated and deleted in a table.
pub(super) fn done(removed: &Ident, written: &Ident) -> Vec<SelectItem> {
    let inserted = Scalar::column(written, &Ident::fixed("inserted"));
    vec![
        SelectItem::new(count(written, Some(inserted.clone())), Ident::fixed("rows_inserted")),
        SelectItem::new(count(written, Some(inserted.negated())), Ident::fixed("rows_updated")),
        SelectItem::new(count(removed, None), Ident::fixed("rows_deleted")),
    ]
}

impl Change<'_> {
    fn named(&self) -> &Named {
        match &self.rows {
            Rendered::Rows { rows, .. } => rows,
            Rendered::Pairs { input, .. } => input,
        }
    }
    fn from(&self, alias: &Ident) -> FromItem {
        FromItem::relation(Qualified::bare(self.named().relation.clone()), alias.clone())
    }
    fn columns(&self, alias: &Ident) -> Vec<Scalar> {
        self.named().columns.iter().map(|c| Scalar::column(alias, c)).collect()
    }
    /// Returns the columns of the rows that are added, and the conditions that select them.
    fn comes(&self, alias: &Ident) -> (Vec<Scalar>, Vec<Scalar>) {
        let columns = self.columns(alias);
        match &self.rows {
            Rendered::Rows { .. } => (columns, vec![self.weight(alias).op(">", Scalar::int8(0))]),
            Rendered::Pairs { schema, revise, .. } => {
                let read = revise.read(schema, &columns);
                (read.is, read.comes)
            }
        }
    }
    /// Returns the columns of the rows that are removed, and the conditions that select them.
    fn leaves(&self, alias: &Ident) -> (Vec<Scalar>, Vec<Scalar>) {
        let columns = self.columns(alias);
        match &self.rows {
            Rendered::Rows { .. } => (columns, vec![self.weight(alias).op("<", Scalar::int8(0))]),
            Rendered::Pairs { schema, revise, .. } => {
                let read = revise.read(schema, &columns);
                (read.was, read.leaves)
            }
        }
    }
    /// Returns the expression for the weight of a row of the change; each pair has weight 1.
    fn weight(&self, alias: &Ident) -> Scalar {
        match &self.rows {
            Rendered::Rows { weight, .. } => Scalar::column(alias, weight),
            Rendered::Pairs { .. } => Scalar::int8(1),
        }
    }
    /// Returns `target.c` for column `i` of the stored table.
    fn target(alias: &Ident, table: &Stored, i: usize) -> Scalar {
        Scalar::column(alias, &table.columns[i].name)
    }
}

/// Builds `DELETE FROM t WHERE ctid = ANY (ARRAY(rows))`: the array's query finds the rows once, by index,
/// and the DELETE then fetches them by `ctid`.
fn removal(change: &Change<'_>) -> Delete {
    let rows = match &change.table.identity {
        Identity::Key(key) => {
            let gone = vanishing(change, key, &Ident::fixed("d"));
            stored_at(change.table, key, &gone, change.against)
        }
        Identity::Single if change.against == Against::Plan => {
            SetExpr::Select(Box::new(vanished_single(change)))
        }
        Identity::Single | Identity::Bag => SetExpr::Select(Box::new(vanished_by_value(change))),
    };
    delete_at(change.table, rows)
}

/// Builds the DELETE of the rows of a stored table whose `ctid`s the query `rows` returns.
pub(super) fn delete_at(table: &Stored, rows: SetExpr) -> Delete {
    let target = Ident::fixed("t");
    let array = Scalar::ArrayQuery(Box::new(Query::new(rows)));
    let ctid = Scalar::column(&target, &Ident::fixed("ctid"));
    Delete {
        ctes: Vec::new(),
        table: table.name.clone(),
        alias: Some(target),
        using: Vec::new(),
        filter: vec![Scalar::Quantified {
            arg: Box::new(ctid),
            op: Qualified::bare("=".into()),
            array: Box::new(array),
            all: false,
        }],
        returning: vec![SelectItem { expr: Scalar::int4(1), name: None }],
    }
}

fn ctid(alias: &Ident) -> SelectItem {
    SelectItem { expr: Scalar::column(alias, &Ident::fixed("ctid")), name: None }
}

/// Returns the query for the `ctid`s of the stored rows whose key is removed. Keys are compared by `=`, so an
/// index can be used. If a key column may be NULL, a second arm finds the rows with a NULL in a key column.
/// If several key columns may be NULL, this arm uses an index on a hash of the key ([`Stored::null_keys`]).
/// Under [`Against::Stored`] every key column may be NULL.
pub(super) fn stored_at(table: &Stored, key: &[usize], gone: &Gone, against: Against) -> SetExpr {
    let may_be_null = |k: usize| match against {
        Against::Plan => table.columns[k].nullable,
        Against::Stored => true,
    };
    let s = Ident::fixed("s");
    let columns = || key.iter().zip(&gone.key).map(|(k, v)| (*k, Change::target(&s, table, *k), v.clone()));
    let arm = |on: Vec<Scalar>| {
        SetExpr::Select(Box::new(Select {
            items: vec![ctid(&s)],
            from: vec![gone.from.clone(), FromItem::relation(table.name.clone(), s.clone())],
            filter: gone.filter.iter().cloned().chain(on).collect(),
            ..Select::default()
        }))
    };
    let plain = arm(columns().map(|(_, stored, value)| stored.equals(value)).collect());
    let nullable = || columns().filter(|(k, ..)| may_be_null(*k));
    if nullable().next().is_none() {
        return plain;
    }
    let some_null = Scalar::or(nullable().map(|(_, stored, _)| stored.is_null()));
    let null_in_change = Scalar::or(nullable().map(|(_, _, value)| value.is_null()));
    let by_hash = (!table.null_keys().is_empty()).then(|| {
        let stored = row_hash(columns().map(|(_, stored, _)| stored).collect());
        stored.equals(row_hash(gone.key.clone()))
    });
    let matching = columns().map(|(k, stored, value)| match may_be_null(k) {
        true => stored.same_as(value),
        false => stored.equals(value),
    });
    let on = [some_null, null_in_change].into_iter().chain(by_hash).chain(matching);
    SetExpr::UnionAll(vec![plain, arm(on.collect())])
}

/// The keys that a change removes completely: no row with such a key is left.
pub(super) struct Gone {
    pub(super) from: FromItem,
    /// The expressions for the key's columns.
    pub(super) key: Vec<Scalar>,
    pub(super) filter: Vec<Scalar>,
}

/// Returns the keys that a change removes, as the relation `d`. For each key, the change removes at most one
/// row and adds at most one row. If no weight of a key is above 0, no row of the key is therefore left. One
/// pass over the change finds these keys. PostgreSQL therefore need not estimate a join of the change with
/// itself.
fn vanishing(change: &Change<'_>, key: &[usize], d: &Ident) -> Gone {
    let columns = change.columns(d);
    if let Rendered::Pairs { schema, revise, .. } = &change.rows {
        let read = revise.read(schema, &columns);
        let key = key.iter().map(|k| read.was[*k].clone()).collect();
        return Gone { from: change.from(d), key, filter: read.vanishes };
    }
    let values: Vec<Scalar> = key.iter().map(|k| columns[*k].clone()).collect();
    let keys = Select {
        items: values.iter().map(|v| SelectItem { expr: v.clone(), name: None }).collect(),
        from: vec![change.from(d)],
        group_by: (1i32..).take(key.len()).map(Scalar::int4).collect(),
        having: vec![Scalar::aggregate("max", vec![change.weight(d)]).op("<", Scalar::int8(0))],
        ..Select::default()
    };
    let query = Box::new(Query::select(keys));
    let from = FromItem::Subquery { query, alias: d.clone(), columns: Vec::new(), lateral: false };
    Gone { from, key: values, filter: Vec::new() }
}

pub(super) fn same(table: &Stored, column: usize, a: Scalar, b: Scalar) -> Scalar {
    if table.columns[column].nullable { a.same_as(b) } else { a.equals(b) }
}

/// Returns the query for the `ctid` of the only row of the table, if the change removes or replaces this row.
fn vanished_single(change: &Change<'_>) -> Select {
    let (d, s) = (Ident::fixed("d"), Ident::fixed("s"));
    let any = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![change.from(&d)],
        filter: change.leaves(&d).1,
        ..Select::default()
    };
    Select {
        items: vec![ctid(&s)],
        from: vec![FromItem::relation(change.table.name.clone(), s)],
        filter: vec![Scalar::Exists { query: Box::new(Query::select(any)), negated: false }],
        ..Select::default()
    }
}

/// Returns the query that finds, for each row of the change with weight −n, the `ctid`s of n stored rows of
/// the same image. The query also finds NULLs in columns that are never NULL according to the plan, since
/// another plan may have written the stored rows.
///
/// The query may not determine the image of equal values. Stored rows may then have other images than the
/// state from which the change was computed. In that case any row of equal value is deleted; a row of the
/// same image is preferred.
fn vanished_by_value(change: &Change<'_>) -> Select {
    let (d, s, m) = (Ident::fixed("d"), Ident::fixed("s"), Ident::fixed("m"));
    let table = change.table;
    let (leaving, leaves) = change.leaves(&d);
    let mut filter = Vec::new();
    let hashable = table.hashable();
    if !hashable.is_empty() {
        let of = |value: &dyn Fn(usize) -> Scalar| row_hash(hashable.iter().map(|i| value(*i)).collect());
        filter.push(of(&|i| Change::target(&s, table, i)).equals(of(&|i| leaving[i].clone())));
    }
    filter.extend((0..table.columns.len()).map(|i| {
        let (a, b) = (Change::target(&s, table, i), leaving[i].clone());
        match table.columns[i].ty.has_equality() {
            true => a.same_as(b),
            false => a.cast(Type::Text).same_as(b.cast(Type::Text)),
        }
    }));
    let (mut first, unsettled) = (Vec::new(), table.unsettled.columns());
    for (i, c) in table.columns.iter().enumerate() {
        let images = [Change::target(&s, table, i), leaving[i].clone()].map(|value| image(value, &c.ty));
        let [Some(a), Some(b)] = images else { continue };
        match unsettled.contains(i) {
            true => first.push(OrderBy { expr: a.equals(b), descending: true, nulls_first: false }),
            false => filter.push(a.equals(b)),
        }
    }
    let mut found = Query::select(Select {
        items: vec![ctid(&s)],
        from: vec![FromItem::relation(table.name.clone(), s)],
        filter,
        ..Select::default()
    });
    found.order_by = first;
    found.limit = Some(change.weight(&d).minus());
    let lateral =
        FromItem::Subquery { query: Box::new(found), alias: m.clone(), columns: Vec::new(), lateral: true };
    Select {
        items: vec![ctid(&m)],
        from: vec![change.from(&d), lateral],
        filter: leaves,
        ..Select::default()
    }
}

/// Returns `hash_record_extended(ROW(…), 0)`. Equal rows have equal hashes, even if their images differ.
pub(super) fn row_hash(values: Vec<Scalar>) -> Scalar {
    Scalar::call("hash_record_extended", vec![Scalar::Row(values), Scalar::int8(0)])
}

/// Builds the INSERT of the rows that the change adds. Without a key, a changed row is one removed row and
/// one added row. The old row is deleted first. The new row may therefore have the same key in a unique index
/// that a user made.
fn insertion(change: &Change<'_>, removed: &Ident) -> Insert {
    let d = Ident::fixed("d");
    let table = change.table;
    let (coming, comes) = change.comes(&d);
    let mut select = Select {
        items: coming.into_iter().map(|expr| SelectItem { expr, name: None }).collect(),
        from: vec![change.from(&d)],
        filter: comes,
        ..Select::default()
    };
    if table.identity == Identity::Bag {
        let series = Scalar::call("generate_series", vec![Scalar::int8(1), change.weight(&d)]);
        select.from.push(FromItem::call(series, Ident::fixed("copy")));
        select.filter.push(count(removed, None).op(">=", Scalar::int8(0)));
    }
    let on_conflict = match &table.identity {
        Identity::Key(key) => upsert(table, key, Vec::new()),
        _ => None,
    };
    insert_into(table, select, on_conflict)
}

/// Builds the INSERT of rows into a stored table, which returns for each row whether it is new.
pub(super) fn insert_into(table: &Stored, rows: Select, on_conflict: Option<OnConflict>) -> Insert {
    let inserted = Scalar::Column { table: None, name: Ident::fixed("xmax") }.equals(Scalar::int4(0));
    let inserted = if on_conflict.is_some() { inserted } else { Scalar::bool(true) };
    Insert {
        ctes: Vec::new(),
        note: None,
        table: table.name.clone(),
        alias: None,
        columns: table.all_names(),
        source: Query::select(rows),
        on_conflict,
        returning: vec![SelectItem::new(inserted, Ident::fixed("inserted"))],
    }
}

/// Returns the action for a row whose key is stored already. If `filter` is true, the action updates every
/// column in which rows of equal keys may differ. Returns `None` if there is no such column: an added row
/// then equals the removed row, so the two cancel in the change.
pub(super) fn upsert(table: &Stored, key: &[usize], filter: Vec<Scalar>) -> Option<OnConflict> {
    let excluded = Ident::fixed("excluded");
    let others = table.columns.iter().enumerate().filter(|(i, c)| !key.contains(i) || !c.ty.is_exact());
    let set: Vec<_> = others.map(|(_, c)| (c.name.clone(), Scalar::column(&excluded, &c.name))).collect();
    (!set.is_empty())
        .then(|| OnConflict { columns: table.names(key), action: ConflictAction::Update { set, filter } })
}
