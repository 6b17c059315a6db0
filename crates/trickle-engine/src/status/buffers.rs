//! The state of the capture of each source.

use crate::db::{RefreshDriver, Row};
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use crate::trickle::Trickle;
use serde::Serialize;

/// The state of the capture of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferStatus {
    /// `schema.name` of the table, or its oid where the table was dropped.
    pub source: String,
    /// The kind of the triggers, `STATEMENT` or `ROW`.
    pub trigger_mode: String,
    /// Whether changes of the table are not captured at present, for any reason.
    pub disabled: bool,
    /// Whether the user holds capture off ([`Trickle::disable`]) until [`Trickle::enable`] is called.
    pub held: bool,
    /// The bytes of all segments on disk.
    pub bytes: i64,
    /// The number of segments that the buffer has.
    pub segments: i32,
    /// The number of bytes above which new changes are left out.
    pub limit_bytes: i64,
    /// Whether the buffer has reached its limit.
    pub full: bool,
}

impl BufferStatus {
    /// Whether the buffer has a quarter of its limit or more, which means that it is drained too seldom.
    pub fn is_large(&self) -> bool {
        self.bytes >= self.limit_bytes / 4
    }
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the state of the capture of each source.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn buffers(&self) -> Result<Vec<BufferStatus>> {
        // Each segment is looked up by its name. In a database with thousands of buffers, a scan of pg_class
        // for each buffer would take seconds.
        let text = "SELECT CASE WHEN c.oid IS NULL THEN b.source_relid::text ELSE pg_catalog.format('%I.%I', n.nspname, c.relname) END, \
             b.trigger_mode, b.capture <> 'ON', coalesce(g.bytes, 0), jsonb_array_length(b.segments), b.limit_bytes, \
             coalesce(g.last >= b.limit_bytes, false), b.capture = 'HELD' \
             FROM pgtrickle.pgt_buffers b LEFT JOIN pg_class c ON c.oid = b.source_relid \
             LEFT JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL ( \
                SELECT sum(pg_total_relation_size(t.oid))::int8, \
                    (array_agg(pg_relation_size(t.oid) ORDER BY s.place DESC))[1] \
                FROM jsonb_array_elements(b.segments) WITH ORDINALITY s(segment, place) \
                CROSS JOIN LATERAL to_regclass(pg_catalog.format('%I.%I', $1::text, \
                    pg_catalog.format('changes_%s_%s', b.source_relid, s.segment->>'number'))) t(oid)) g(bytes, last) \
             ORDER BY 1";
        let rows = self.db().query(text, &[&HIDDEN]).await;
        let rows = rows.map_err(|e| Error::server("read how changes are captured", e))?;
        let buffer = |r: &Row| BufferStatus {
            source: r.get(0),
            trigger_mode: r.get(1),
            disabled: r.get(2),
            bytes: r.get(3),
            segments: r.get(4),
            limit_bytes: r.get(5),
            full: r.get(6),
            held: r.get(7),
        };
        Ok(rows.iter().map(buffer).collect())
    }
}
