//! Partitions that came to a table whose changes are captured: what they hold becomes changes of the table.
//!
//! Before a partition came the table had no row that it takes: none of the other partitions takes such a row, and none that did
//! has gone. So what all readers miss is what is in it now, less what was captured of such rows since, by statements that named
//! the table: to the buffer goes a row for each that it has, and the opposite of each that was captured. Where one of these cannot be
//! said to be so, readers are computed anew: there is a default partition, or was; a partition went, also one that came and
//! is noted in a mark; the buffer does not hold the columns that tell where a row belongs.

use super::{knowing, make, note, read, table_by_oid, unmark};
use crate::catalog::PgCatalog;
use crate::db::{Connection, Row, Transaction};
use crate::error::{Error, Result};
use std::fmt::Write;
use trickle_core::catalog::{TableDef, TableId};
use trickle_core::cdc::Buffer;
use trickle_core::sql::{BufferSources, Ident, Qualified};

/// Partitions that the triggers of a table were not made for.
const CAME: &str = "
SELECT c.oid, n.nspname, c.relname, pg_get_partition_constraintdef(c.oid)
FROM pgtrickle.pgt_buffers b CROSS JOIN LATERAL unnest(pgtrickle.children_beside(b.source_relid, b.children)) came(oid)
JOIN pg_class c ON c.oid = came.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE b.source_relid = $1 AND b.capture = 'ON' ORDER BY c.oid";

/// Whether these partitions `$2` that came to a table `$1` are all that happened to it, and their rows can be told among captured
/// ones, by columns that all segments hold and without code of anybody's: the catalog's owner compares them. More than a
/// buffer takes is not brought in.
const ADDED: &str = "
WITH RECURSIVE tree(oid) AS (
    SELECT $1::oid UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid
), came AS (
    SELECT c.* FROM pg_class c WHERE c.oid = ANY ($2)
), split AS (
    SELECT k.partrelid, k.partexprs, k.partclass::oid[] AS classes, k.partattrs::int2[] AS numbers
    FROM pg_partitioned_table k JOIN tree ON tree.oid = k.partrelid
)
SELECT n.nspname, r.relname FROM pgtrickle.pgt_buffers b JOIN pg_class r ON r.oid = b.source_relid JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE b.source_relid = $1 AND r.relkind = 'p'
  AND pgtrickle.still_serves(b.source_relid, pgtrickle.held_columns(b.segments) || b.paired, b.relied, true, $2) IS TRUE
  AND pgtrickle.triggers_fingerprint(b.source_relid, $2) IS NOT DISTINCT FROM b.triggers_fingerprint
  AND NOT EXISTS (SELECT FROM pgtrickle.pgt_marks m
    WHERE m.source_relid = b.source_relid AND m.pgt_id IS NULL AND (m.children <@ $2) IS NOT TRUE)
  AND NOT EXISTS (SELECT FROM tree JOIN pg_class c USING (oid) WHERE pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT')
  AND NOT EXISTS (SELECT FROM came c WHERE c.relkind <> 'r' OR NOT c.relispartition OR c.relrowsecurity AND c.relforcerowsecurity)
  AND NOT EXISTS (SELECT FROM split s WHERE s.partexprs IS NOT NULL
    OR EXISTS (SELECT FROM unnest(s.classes) k(oid) WHERE k.oid >= 16384)
    OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = s.partrelid AND a.attnum = ANY (s.numbers) AND NOT EXISTS (
        SELECT FROM pg_attribute o WHERE o.attrelid = $1 AND o.attname = a.attname AND o.attnum = ANY (pgtrickle.held_columns(b.segments)))))
  AND (SELECT count(DISTINCT s->'columns') FROM jsonb_array_elements(b.segments) s) = 1
  AND (SELECT coalesce(sum(pg_relation_size(c.oid)), 0) FROM came c) < b.limit_bytes";

/// The names of the columns by which the rows of a table and of its partitions are parted.
const SPLIT: &str = "
WITH RECURSIVE tree(oid) AS (
    SELECT $1::oid UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid
)
SELECT DISTINCT a.attname FROM tree JOIN pg_partitioned_table k ON k.partrelid = tree.oid
JOIN pg_attribute a ON a.attrelid = k.partrelid AND a.attnum = ANY (k.partattrs::int2[]) ORDER BY 1";

/// The columns (positions) that tell of captured rows to which partition they belong.
pub(super) async fn told_by(t: &Transaction<'_>, table: &TableDef) -> Result<Vec<usize>> {
    let rows = t.query(SPLIT, &[&table.id.0]).await;
    let rows = rows.map_err(|e| Error::server("read how a table is partitioned", e))?;
    let position = |r: &Row| table.columns.iter().position(|c| *c.name == *r.get::<&str>(0));
    Ok(rows.iter().filter_map(position).collect())
}

/// A partition that came.
struct Came {
    oid: u32,
    name: Qualified,
    /// The condition of the rows that it takes.
    takes: String,
}

/// Captures partitions that came to a table, and brings in what they hold; does nothing where none did, or where
/// what readers have must be computed anew.
pub(super) async fn bring_in(t: &Transaction<'_>, table: TableId) -> Result<()> {
    let doing = |e| Error::server("read the partitions of a table", e);
    let rows = t.query(CAME, &[&table.0]).await.map_err(doing)?;
    let Some(came) = rows.iter().map(came).collect::<Option<Vec<Came>>>().filter(|c| !c.is_empty()) else {
        return Ok(());
    };
    let oids: Vec<u32> = came.iter().map(|c| c.oid).collect();
    let Some(named) = t.query_opt(ADDED, &[&table.0, &oids]).await.map_err(doing)? else { return Ok(()) };
    let Some(def) = table_by_oid(t, &mut PgCatalog::new(), named.get(0), named.get(1)).await? else {
        return Ok(());
    };
    let Some(captured) = read(t, &def).await? else { return Ok(()) };
    let doing = format!("capture the partitions that came to {}.{}", def.schema, def.name);
    let names: Vec<Qualified> = came.iter().map(|c| c.name.clone()).collect();
    let buffer = knowing(t, captured.buffer).await?;
    make(t, table, &captured.mode.source().extend(&buffer, &names), &doing).await?;
    // Under the lock: what came since is another partition, and whoever wrote has ended.
    let fail = |e| Error::server(&doing, e);
    let still = t.query(CAME, &[&table.0]).await.map_err(fail)?;
    let is_same = still.iter().map(|r| r.get::<u32>(0)).eq(oids.iter().copied());
    if !is_same || t.query_opt(ADDED, &[&table.0, &oids]).await.map_err(fail)?.is_none() {
        return Err(Error::stale(format!("partitions of {}.{} come and go", def.schema, def.name)));
    }
    note(t, &buffer, captured.mode, &captured.attnums).await?;
    let rows = came.iter().filter_map(|c| c.rows(&buffer));
    // Other roles' stream tables may read it too.
    let texts: Vec<String> = rows.chain([unmark(table.0), relied(table, &oids)]).collect();
    t.as_keeper(&texts.join(";\n")).await.map_err(fail)
}

fn came(r: &Row) -> Option<Came> {
    let takes: Option<String> = r.get(3);
    Some(Came { oid: r.get(0), name: Qualified::new(r.get::<String>(1), r.get::<String>(2)), takes: takes? })
}

impl Came {
    /// The statement that writes to the buffer what its readers miss of the partition.
    fn rows(&self, buffer: &Buffer) -> Option<String> {
        let segment = buffer.current()?;
        let columns =
            || segment.columns.iter().filter_map(|c| buffer.table().columns.get(*c)).map(|c| &c.name);
        let (mut held, mut own, mut captured) = (String::new(), String::new(), String::new());
        for name in columns() {
            let (here, there) = (BufferSources::buffer_column(name), Ident::from(name));
            let _ = write!(held, ", {here}");
            let _ = write!(own, ", {there}");
            let _ = write!(captured, ", v.{here} AS {there}");
        }
        let weight = Ident::new("trickle weight");
        Some(format!(
            "INSERT INTO {} (w{held}) SELECT 1{own} FROM ONLY {} \
             UNION ALL SELECT -{weight}{own} FROM (SELECT v.w AS {weight}{captured} FROM {} v WHERE v.w <> 0) x WHERE {}",
            buffer.segment_name(segment),
            self.name,
            buffer.view(),
            self.takes
        ))
    }
}

/// The statement that notes what readers rely on of a table, with partitions that came and whose rows they are to read in its buffer.
fn relied(table: TableId, came: &[u32]) -> String {
    let came = came.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    format!(
        "UPDATE pgtrickle.pgt_dependencies d SET relied = (pgtrickle.relied(d.source_relid, n.numbers))[1:3] || d.relied[4:5] \
         FROM (SELECT o.pgt_id, pgtrickle.numbers(o.source_relid, o.columns_used) FROM pgtrickle.pgt_dependencies o \
             WHERE o.source_relid = {table}) n(pgt_id, numbers) \
         WHERE d.source_relid = {table} AND d.pgt_id = n.pgt_id \
         AND pgtrickle.still_serves({table}, n.numbers, d.relied, false, '{{{came}}}') IS TRUE"
    )
}
