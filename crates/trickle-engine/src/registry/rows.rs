//! Reads stream tables, and the relations that they read, from the catalog.

use super::{Dependency, Entry, Registry};
use crate::catalog::PlannedWith;
use crate::db::{Bind, Connection, Json, Row};
use crate::error::{Error, Result};
use crate::in_force::StoredSetting;
use crate::security::Agreed;
use std::collections::btree_map;
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::refresh::{Relation, Setting};
use trickle_core::schedule::Time;
use trickle_core::vocabulary::{Activity, Mode, RefreshMode};

/// The stream tables whose tables are in `$1`, and the stream tables that these read or that read these,
/// directly or through others. Where `$1` is NULL, the query returns all stream tables.
const LINKED: &str = "
WITH RECURSIVE linked(id, relid) AS (
    SELECT pgt_id, pgt_relid FROM pgtrickle.pgt_stream_tables WHERE pgt_relid = ANY ($1::oid[])
    UNION SELECT s.pgt_id, s.pgt_relid FROM linked l CROSS JOIN LATERAL (
        SELECT u.pgt_id, u.pgt_relid FROM pgtrickle.pgt_dependencies d
            JOIN pgtrickle.pgt_stream_tables u ON u.pgt_relid = d.source_relid WHERE d.pgt_id = l.id
        UNION ALL SELECT r.pgt_id, r.pgt_relid FROM pgtrickle.pgt_dependencies d
            JOIN pgtrickle.pgt_stream_tables r ON r.pgt_id = d.pgt_id WHERE d.source_relid = l.relid) s
), wanted AS MATERIALIZED (
    SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE $1::oid[] IS NULL UNION ALL SELECT id FROM linked
)";

/// One row for each relation that a stream table reads, and one row for a stream table that reads no
/// relation. A single statement returns all rows, so that all facts belong to one moment.
const ENTRIES: &str = "
, listed AS MATERIALIZED (
    SELECT s.pgt_id, s.pgt_relid, coalesce(n.nspname, s.pgt_schema) AS nspname, coalesce(c.relname, s.pgt_name) AS relname,
        s.defining_query, s.original_query, s.schedule, s.refresh_mode,
        s.requested_mode, s.mode_reason, s.status, s.consecutive_errors, e.last_error_message, s.settings,
        r.rolname, coalesce(r.rolname = current_user, true) AS own, s.layout_hash,
        u.id IS NOT NULL AS unchanged, s.is_populated, c.oid IS NOT NULL AS there,
        pgtrickle.definition(s.pgt_id), s.reads_clock, s.needs_reinit, s.diamond_consistency = 'none' AS apart, s.declared,
        (extract(epoch FROM s.data_timestamp) * 1000)::int8 AS data_at,
        pgtrickle.safe_path(s.settings, c.relowner) AS safe_path,
        CASE WHEN s.agreed_by = c.relowner OR s.agreed IS NULL THEN s.agreed ELSE '{}' END AS agreed,
        CASE WHEN s.agreed_by = c.relowner THEN s.agreed_tables ELSE '{}' END AS agreed_tables, s.functions, s.types, s.objects
    FROM wanted JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) LEFT JOIN pgtrickle.pgt_errors e USING (pgt_id)
    LEFT JOIN pgtrickle.unchanged(ARRAY(SELECT pgt_id FROM wanted)) u(id) ON u.id = s.pgt_id
    LEFT JOIN pg_class c ON c.oid = s.pgt_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_roles r ON r.oid = c.relowner
)
SELECT l.*, d.source_relid, coalesce(n.nspname, d.source_schema), coalesce(c.relname, d.source_name),
    d.source_type, d.columns_used, d.schema_fingerprint,
    CASE WHEN b.capture = 'ON' THEN to_regclass(pg_catalog.format('pgtrickle_changes.changes_%s', b.source_relid))::oid END,
    coalesce(b.unlogged, false),
    coalesce(pg_relation_size(to_regclass(pg_catalog.format('pgtrickle_changes.changes_%s_%s', b.source_relid,
        b.segments->-1->>'number'))) >= b.limit_bytes, false),
    coalesce(b.capture = 'HELD', false), coalesce(c.relkind = 'p', false), d.relied IS NOT NULL, d.relied[4], d.relied[5], d.keeps_plan, d.stayed
FROM listed l LEFT JOIN pgtrickle.pgt_dependencies d USING (pgt_id)
LEFT JOIN pg_class c ON c.oid = d.source_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pgtrickle.pgt_buffers b ON b.source_relid = d.source_relid
ORDER BY l.pgt_id, d.source_relid";

/// The position in the rows of [`ENTRIES`] at which the columns about the read relation begin.
const READ: usize = 32;

impl Registry {
    /// Reads the catalog: all stream tables, or only the stream tables `of` and those linked with them.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn read(db: &dyn Connection, of: Option<&[TableId]>) -> Result<Registry> {
        let doing = |e| Error::server("read the stream tables", e);
        let of: Option<Vec<u32>> = of.map(|ids| ids.iter().map(|id| id.0).collect());
        let params: [&dyn Bind; 1] = [&of];
        let rows = db.ask(&format!("{LINKED}{ENTRIES}"), &params).await.map_err(doing)?;
        let mut registry = Registry { voice: db.voice(), ..Registry::default() };
        for r in &rows {
            let id: i64 = r.get(0);
            let entry = match registry.entries.entry(id) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(new) => new.insert(entry(r)?),
            };
            registry.by_table.insert(entry.relation.id, id);
            if r.get::<Option<u32>>(READ).is_some() {
                entry.dependencies.push(dependency(r)?);
            }
        }
        Ok(registry)
    }
}

fn relation(id: u32, schema: Option<String>, name: Option<String>) -> Relation {
    Relation {
        id: TableId(id),
        schema: schema.unwrap_or_default().into(),
        name: name.unwrap_or_default().into(),
    }
}

fn dependency(r: &Row) -> Result<Dependency> {
    Ok(Dependency {
        relation: relation(r.get(READ), r.get(READ + 1), r.get(READ + 2)),
        kind: TableKind::parse(r.get(READ + 3))?,
        columns: r.get(READ + 4),
        fingerprint: r.get(READ + 5),
        buffer: r.get(READ + 6),
        unlogged: r.get(READ + 7),
        full: r.get(READ + 8),
        held: r.get(READ + 9),
        partitioned: r.get(READ + 10),
        relied: match r.get(READ + 11) {
            true => Some(PlannedWith::parse(r.get(READ + 12), r.get(READ + 13))?),
            false => None,
        },
        keeps_plan: r.get(READ + 14),
        stayed: r.get(READ + 15),
    })
}

fn entry(r: &Row) -> Result<Entry> {
    let settings: Json<Vec<StoredSetting>> = r.get(13);
    let settings: Vec<Setting> =
        settings.0.into_iter().map(|s| Setting { name: s.name, values: s.values }).collect();
    let path: Vec<String> = r.get::<Option<Vec<String>>>(26).unwrap_or_default();
    let safe = |s: &Setting| match s.name.as_str() {
        "search_path" => Setting { name: s.name.clone(), values: path.clone() },
        _ => s.clone(),
    };
    Ok(Entry {
        id: r.get(0),
        relation: relation(r.get(1), r.get(2), r.get(3)),
        query: r.get(4),
        original: r.get(5),
        schedule: r.get(6),
        mode: Mode::parse(r.get(7))?,
        requested: RefreshMode::parse(r.get(8))?,
        mode_reason: r.get(9),
        status: Activity::parse(r.get(10))?,
        consecutive_errors: r.get(11),
        last_error: r.get(12),
        in_force: settings.iter().map(safe).collect(),
        settings,
        dependencies: Vec::new(),
        owner: r.get::<Option<String>>(14).unwrap_or_default(),
        own: r.get(15),
        exists: r.get(19),
        definition: r.get(20),
        layout_hash: r.get(16),
        reads_clock: r.get(21),
        unchanged: r.get(17),
        is_populated: r.get(18),
        needs_reinit: r.get(22),
        apart: r.get(23),
        declared: r.get(24),
        data_at: r.get::<Option<i64>>(25).map(Time),
        agreed: r.get::<Option<Vec<u32>>>(27).map(|functions| Agreed { functions, tables: r.get(28) }),
        functions: r.get(29),
        types: r.get(30),
        objects: r.get(31),
    })
}
