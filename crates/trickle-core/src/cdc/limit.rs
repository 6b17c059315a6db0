//! The limit of a buffer. Changes that no reader has applied must not fill the disk.
//!
//! A statement that finds the segment at its limit writes one row, the mark, instead of its own rows. The
//! mark has weight 0, as a TRUNCATE does, and a transaction id that no frontier counts. Every reader
//! therefore finds the mark in every window until the segment is emptied. One mark is enough for all later
//! changes, so a statement that sees a mark writes nothing at all.
//!
//! Locks make it safe to write nothing. A statement that looks for the mark holds a lock on the segment until
//! its transaction ends. The segment is emptied by TRUNCATE under a lock that excludes such transactions, and
//! its readers are recomputed after the TRUNCATE. A transaction that wrote nothing into the segment has
//! therefore ended before the recompute. The recompute reads its changes in the source. A statement with an
//! older snapshot finds the segment empty, since TRUNCATE is not MVCC-safe, and writes the mark again.

use super::Buffer;
use crate::sql::ast::{FromItem, Insert, Query, Scalar, Select, SelectItem, SpecialCall, Statement};
use crate::sql::{Ident, Qualified, opaque};
use crate::types::{Datum, Type};
use std::sync::Arc;

/// The greatest size of a segment by default, in bytes.
pub(crate) const DEFAULT_LIMIT: i64 = 1 << 30;

/// The transaction id of the mark, as text of `xid8`; no frontier counts this transaction.
pub const OVERFLOWED: &str = "9223372036854775806";

/// The number of pages at the end of the segment that are searched for the mark. A mark can be followed only
/// by other marks, and by rows that were being written at the same time. A statement that does not find the
/// mark in these pages writes one more mark.
const LOOKED_AT: i64 = 2;

pub(super) fn named(name: &str) -> Type {
    Type::Other(Arc::new(opaque(name)))
}

/// Returns a constant of a type, from its text.
pub(super) fn constant(text: &str, ty: &str) -> Scalar {
    Scalar::Literal(Datum::text(text), named(ty))
}

/// Returns the size of the current segment in bytes. The value is NULL where the segment no longer exists.
pub(super) fn size(buffer: &Buffer) -> Option<Scalar> {
    let name = buffer.segment_name(buffer.current()?).to_string();
    let segment = Scalar::call("to_regclass", vec![Scalar::text(&name)]);
    Some(Scalar::call("pg_relation_size", vec![segment]))
}

/// Writes the mark, unless it is visible already or the condition `changed` is false.
pub(super) fn overflow_row(buffer: &Buffer, changed: Option<Scalar>) -> Vec<Statement> {
    let (Some(segment), Some(seen)) = (buffer.current(), is_marked(buffer)) else { return Vec::new() };
    let (xid, w) = (Ident::fixed("xid"), Ident::fixed("w"));
    let select = Select {
        items: [overflowed(), Scalar::Literal(Datum::Int(0), Type::Int2)]
            .map(|expr| SelectItem { expr, name: None })
            .into(),
        filter: changed.into_iter().chain([seen.negated()]).collect(),
        ..Select::default()
    };
    vec![Statement::Insert(Insert {
        ctes: Vec::new(),
        note: None,
        table: buffer.segment_name(segment),
        alias: None,
        columns: vec![xid, w],
        source: Query::select(select),
        on_conflict: None,
        returning: Vec::new(),
    })]
}

fn overflowed() -> Scalar {
    constant(OVERFLOWED, "xid8")
}

/// Whether the mark is visible at the end of the segment. A subquery computes the first page of the search.
/// The page is therefore computed once, and the pages before it are not read.
fn is_marked(buffer: &Buffer) -> Option<Scalar> {
    let alias = Ident::fixed("s");
    let pages = size(buffer)?
        .op("/", Scalar::call("current_setting", vec![Scalar::text("block_size")]).cast(Type::Int8))
        .op("-", Scalar::int8(LOOKED_AT));
    let from = Scalar::Special(SpecialCall::Greatest, vec![pages, Scalar::int8(0)]);
    let from = Scalar::call("format", vec![Scalar::text("(%s,0)"), from]).cast(named("tid"));
    let from = Select { items: vec![SelectItem { expr: from, name: None }], ..Select::default() };
    let column = |name| Scalar::column(&alias, &Ident::fixed(name));
    let marks = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::relation(buffer.segment_name(buffer.current()?), alias.clone())],
        filter: vec![
            column("ctid").op(">=", Scalar::Subquery(Box::new(Query::select(from)))),
            column("w").equals(Scalar::Literal(Datum::Int(0), Type::Int2)),
            column("xid").equals(overflowed()),
        ],
        ..Select::default()
    };
    Some(Scalar::Exists { query: Box::new(Query::select(marks)), negated: false })
}

/// Whether a relation has a row.
pub(super) fn any_row(relation: &Ident) -> Scalar {
    let select = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::relation(Qualified::bare(relation.clone()), Ident::fixed("r"))],
        ..Select::default()
    };
    Scalar::Exists { query: Box::new(Query::select(select)), negated: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::MemoryCatalog;
    use crate::cdc::Mode;
    use crate::sql::print;

    #[test]
    fn every_writer_minds_the_limit_of_its_segment() {
        let t = MemoryCatalog::from_ddl("CREATE TABLE t (id int PRIMARY KEY, a text)").unwrap();
        for mode in Mode::PLAIN {
            let buffer = Buffer::new(t.tables()[0].clone(), "ch", &[0, 1]).with_limit(4096);
            let (_, statements) = mode.source().rotate(&buffer);
            let texts: Vec<String> = statements.iter().map(|s| print(s).text).collect();
            let functions: Vec<&String> = texts.iter().filter(|t| t.contains("RETURNS trigger")).collect();
            assert_eq!(functions.len(), 4);
            for f in functions {
                let guard = "IF pg_relation_size(to_regclass('ch.changes_1_2'::text)) >= 4096::bigint THEN";
                assert!(f.contains(guard), "{f}");
                assert!(f.contains("INSERT INTO ch.changes_1_2 (xid, w)"), "{f}");
            }
        }
    }
}
