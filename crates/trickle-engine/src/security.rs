//! What the rights of a stream table's owner have to do with what it holds.

use crate::create::Design;
use crate::db::Connection;
use crate::error::{Error, Result};
use crate::registry::StoredSetting;
use trickle_core::sql::Ident;

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

/// Of the stored search path of a design what is safe for the current role, which is to own it.
const PATH: &str = "
SELECT pgtrickle.safe_path($1::text[], quote_ident(current_user::text)::regrole),
    ARRAY(SELECT p.name FROM unnest($1::text[]) p(name) JOIN pg_namespace n ON n.nspname = p.name WHERE p.name NOT LIKE 'pg\\_%')";

async fn paths(db: &dyn Connection, settings: &[StoredSetting]) -> Result<(Vec<String>, Vec<String>)> {
    let path = settings.iter().find(|s| s.name == "search_path").map(|s| s.values.clone());
    let row = db.query_one(PATH, &[&path.unwrap_or_default()]).await;
    let row = row.map_err(|e| Error::server("look who may create anything in the search path", e))?;
    Ok((row.get(0), row.get(1)))
}

/// The search path under which a query with these settings is computed.
pub(crate) async fn safe_path(db: &dyn Connection, settings: &[StoredSetting]) -> Result<Vec<String>> {
    Ok(paths(db, settings).await?.0)
}

/// What to say of schemas that are not in that path, where the query calls functions that may look for something there.
pub(crate) async fn left_out(db: &dyn Connection, design: &Design) -> Result<Option<String>> {
    if design.resolved.functions.is_empty() {
        return Ok(None);
    }
    let (safe, all) = paths(db, &design.settings).await?;
    let left: Vec<String> =
        all.iter().filter(|s| !safe.contains(s)).map(|s| Ident::new(s).to_string()).collect();
    Ok((!left.is_empty()).then(|| {
        format!(
            "{}: functions of its query find nothing in schema {} by search_path, since others may create there",
            design.name(),
            left.join(", ")
        )
    }))
}
