//! Checks whether a publication keeps refreshes from writing trickle's stored tables.

use super::{Check, Verdict, asking};
use crate::db::{Connection, Row};
use crate::error::Result;

/// The tables of trickle that are published with updates or deletes and have no replica identity, each with a
/// publication. The server refuses updates and deletes of the rows of such a table (PostgreSQL manual,
/// Logical Replication). A user can cause this by dropping a primary key or the index of a replica identity,
/// or by `REPLICA IDENTITY NOTHING`.
const REFUSED: &str = "
SELECT c.oid::regclass::text, min(b.pubname)::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_publication_tables t ON t.schemaname = n.nspname AND t.tablename = c.relname
JOIN pg_publication b ON b.pubname = t.pubname AND (b.pubupdate OR b.pubdelete)
WHERE c.relkind = 'r' AND (c.relnamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace)
    OR c.oid IN (SELECT s.pgt_relid FROM pgtrickle.pgt_stream_tables s))
AND c.relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
GROUP BY 1 ORDER BY 1";

/// Checks that each published table of trickle has a replica identity.
pub(super) async fn published(db: &dyn Connection) -> Result<Check> {
    let rows = db.query(REFUSED, &[]).await.map_err(asking)?;
    if rows.is_empty() {
        return Ok(Check::new("publications", Verdict::Good, "none refuses a refresh", ""));
    }
    let refused = |r: &Row| format!("{} refuses updates of {}", r.get::<String>(1), r.get::<String>(0));
    let found: Vec<String> = rows.iter().map(refused).collect();
    let mend = |r: &Row| format!("ALTER TABLE {} REPLICA IDENTITY FULL", r.get::<String>(0));
    let mended: Vec<String> = rows.iter().map(mend).collect();
    let advice = format!("The table has no replica identity. As its owner: {}", mended.join("; "));
    Ok(Check::new("publications", Verdict::Bad, super::installation::some(&found), advice))
}
