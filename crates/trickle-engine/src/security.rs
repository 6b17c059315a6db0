//! What the rights of a stream table's owner have to do with what it holds.

use crate::db::Connection;
use crate::error::{Error, Result};

/// Why what a stream table holds is not what its owner may see, where row security is another than it was planned for.
const SECURED: &str = "
SELECT pg_catalog.format('row security of %I.%I is not what it was for the owner''s query', d.source_schema, d.source_name)
FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) JOIN pg_class c ON c.oid = s.pgt_relid
WHERE d.pgt_id = $1 AND pgtrickle.row_security(d.source_relid, d.read_through, c.relowner) IS DISTINCT FROM d.row_security
ORDER BY d.source_relid LIMIT 1";

/// Why a stream table is planned anew, for history.
pub(crate) async fn why_planned(db: &dyn Connection, id: i64) -> Result<String> {
    let row = db.query_opt(SECURED, &[&id]).await;
    let row = row.map_err(|e| Error::server("compare what the owner of a stream table may see", e))?;
    Ok(row.map_or("it was planned anew".to_owned(), |r| r.get(0)))
}
