//! The queries before a refresh, which find the stream tables that have anything to do.

use super::counted::{PENDING, by_source, frontiers};
use super::{array, qualified};
use crate::refresh::plan::Reader;
use crate::sql::quoted;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a segment may hold rows, decided without reading the segment. The answer is correct for the
/// statement's snapshot: a file that is empty now was empty at the snapshot, unless a later TRUNCATE replaced
/// the file. A segment without WAL always holds a row, unless a crash emptied it.
const FILLED: &str = "CASE WHEN c.relpersistence = 'u' OR pg_relation_size(c.oid) > 0 THEN true ELSE pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode END";

/// Returns the first query before a refresh. The query finds the members that need a refresh even if their
/// buffers are empty. It also finds the buffers that hold any row. The query keeps no lock after it ends,
/// assigns no transaction id and reads no buffer. Its cost per member is therefore next to nothing. The
/// query's columns are a `pgt_id` and the name of a buffer's view; one of the two is NULL.
///
/// The name of a segment consists of the view's name and a number. A missing buffer counts as a buffer with
/// rows. The statement that then reads the buffer reports the error.
pub fn glance_text(members: &[Reader<'_>]) -> String {
    let all = array(members.iter().map(|m| &m.id));
    let may_differ = |m: &&Reader<'_>| m.timed || m.part || (m.polled && m.unseen);
    let mut always: BTreeSet<i64> = members.iter().filter(may_differ).map(|m| m.id).collect();
    let polled: BTreeSet<i64> = members.iter().filter(|m| m.polled).map(|m| m.id).collect();
    let mut views: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (source, readers) in by_source(members) {
        match &source.changes {
            Some(view) => views.entry(&*view.schema).or_default().push(&*view.name),
            None => always.extend(readers.intersection(&polled)),
        }
    }
    let filled = views.iter().map(|(schema, views)| {
        // The names of all segments lie between `first` and `last`, since '`' comes after '_'. PostgreSQL can
        // therefore find them by an index.
        let first = views.iter().map(|v| format!("{v}_")).min().unwrap_or_default();
        let last = views.iter().map(|v| format!("{v}`")).max().unwrap_or_default();
        let (first, last) = (quoted(&first), quoted(&last));
        let (schema, views) = (quoted(schema), views.iter().map(|v| quoted(v)).collect::<Vec<_>>().join(", "));
        format!(
            " UNION ALL SELECT DISTINCT NULL::int8, v.view FROM unnest(ARRAY[{views}]) v(view) LEFT JOIN (SELECT c.oid, c.relfilenode, c.relpersistence, \
             rtrim(rtrim(c.relname, '0123456789'), '_') AS view FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = {schema} AND c.relname BETWEEN {first} AND {last} AND c.relkind = 'r') c USING (view) \
             WHERE c.oid IS NULL OR {FILLED}"
        )
    });
    format!(
        "SELECT t.pgt_id, NULL::text FROM pgtrickle.pgt_stream_tables t CROSS JOIN pg_control_system() c \
         JOIN pg_database d ON d.datname = current_database() WHERE t.pgt_id = ANY ({all}) \
         AND (t.frontier IS NULL OR t.needs_reinit OR NOT t.is_populated OR t.pgt_id = ANY ({}) \
         OR t.frontier->>'system' IS DISTINCT FROM c.system_identifier::text OR t.frontier->>'database' IS DISTINCT FROM d.oid::text){}",
        array(&always),
        filled.collect::<String>()
    )
}

/// Returns the second query before a refresh, for buffers that hold rows. The query returns the `pgt_id`s of
/// those members whose frontiers do not count all of these rows. The query keeps no lock after it ends, and
/// assigns no transaction id. For each frontier, it looks once into each buffer.
pub fn peek_text(members: &[Reader<'_>]) -> String {
    let (mut ids, mut numbers, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    for (source, readers) in by_source(members) {
        let Some(buffer) = &source.changes else { continue };
        let number = i64::try_from(looks.len()).unwrap_or(i64::MAX);
        numbers.extend(readers.iter().map(|_| number));
        ids.extend(readers);
        looks.push(format!("EXISTS (SELECT FROM {} b WHERE {PENDING})", qualified(buffer)));
    }
    if looks.is_empty() {
        return "SELECT NULL::int8 WHERE false".to_owned();
    }
    format!(
        "{}, reads AS MATERIALIZED (SELECT s.source, f.low, f.high, (array_agg(f.snapshot))[1] AS snapshot, f.own, \
         min(f.command) AS command, array_agg(i.id) AS ids FROM frontiers f CROSS JOIN LATERAL unnest(f.ids) i(id) \
         JOIN unnest({}, {}) s(id, source) ON s.id = i.id GROUP BY f.n, f.low, f.high, f.own, s.source) \
         SELECT DISTINCT unnest(f.ids) FROM reads f WHERE {}",
        frontiers(members),
        array(&ids),
        array(&numbers),
        chosen(0, &looks)
    )
}

/// Builds the CASE that evaluates the condition with number `f.source`. The conditions are numbered from
/// `first`. The CASE finds the condition by binary search, so the cost of many sources does not grow with the
/// square of their number.
fn chosen(first: usize, conditions: &[String]) -> String {
    let (low, high) = conditions.split_at(conditions.len() / 2);
    match high {
        [one] if low.is_empty() => one.clone(),
        _ => {
            let middle = first + low.len();
            let (low, high) = (chosen(first, low), chosen(middle, high));
            format!("CASE WHEN f.source < {middle} THEN {low} ELSE {high} END")
        }
    }
}
