//! The copies that stand for materialized views and foreign tables ([`crate::copies`] makes them).

use crate::db::{Connection, Row};
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use std::collections::BTreeMap;
use trickle_core::refresh::Relation;

/// The copies that belong to the current role, by the present qualified names of their sources. A source
/// that was dropped and made again is another table with the same name. Each role has its own copies, since
/// another role may see other rows of the source.
const COPIES: &str = "
SELECT coalesce(n.nspname, d.source_schema), coalesce(c.relname, d.source_name), s.pgt_name, s.pgt_relid
FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle.pgt_dependencies d USING (pgt_id)
JOIN pg_class o ON o.oid = s.pgt_relid AND o.relowner = quote_ident(current_user)::regrole
LEFT JOIN pg_class c ON c.oid = d.source_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE s.pgt_schema = 'pgtrickle_changes' AND s.pgt_name LIKE 'copy\\_%' AND d.source_type IN ('MATVIEW', 'FOREIGN_TABLE')
ORDER BY s.pgt_id DESC";

/// Copies, by the schemas and names of their sources.
pub(crate) type Copies = BTreeMap<(String, String), Copy>;

/// The name and oid of a copy.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) name: String,
    pub(crate) oid: u32,
}

/// Whether a relation is a copy.
pub(crate) fn is_copy(r: &Relation) -> bool {
    &*r.schema == HIDDEN && r.name.starts_with("copy_")
}

/// Returns all copies that belong to the current role.
pub(crate) async fn copies(db: &dyn Connection) -> Result<Copies> {
    let rows = db.query(COPIES, &[]).await.map_err(|e| Error::server("look for copies", e))?;
    let copy = |r: &Row| ((r.get(0), r.get(1)), Copy { name: r.get(2), oid: r.get(3) });
    Ok(rows.iter().map(copy).collect())
}
