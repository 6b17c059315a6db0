//! The settings under which the query of a stream table runs: their stored form, the search path with only
//! the schemas that the owner can trust, and the statements that put the settings in force.

use crate::db::{Connection, ServerError};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use trickle_core::refresh::Setting;
use trickle_core::sql::Ident;

/// A setting at the creation of a stream table, as the catalog stores it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredSetting {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

/// The schemas of the search path `$1` that the current role, which is to own the stream table, can trust.
/// The query also returns all existing schemas of that path, except the server's own.
const PATH: &str = "
SELECT pgtrickle.safe_path($1::pg_catalog.text[], pg_catalog.quote_ident(current_user::pg_catalog.text)::pg_catalog.regrole::pg_catalog.oid),
    ARRAY(SELECT p.name FROM pg_catalog.unnest($1::pg_catalog.text[]) p(name) JOIN pg_catalog.pg_namespace n
        ON n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) p.name WHERE NOT pg_catalog.starts_with(p.name, 'pg_'))";

async fn paths(db: &dyn Connection, path: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let row = db.query_one(PATH, &[&path.to_vec()]).await;
    let row = row.map_err(|e| Error::server("look who may create anything in the search path", e))?;
    Ok((row.get(0), row.get(1)))
}

fn stored(settings: &[StoredSetting]) -> &[String] {
    settings.iter().find(|s| s.name == "search_path").map_or(&[], |s| &s.values)
}

/// Returns the search path under which a query with these settings runs.
pub(crate) async fn safe_path(db: &dyn Connection, settings: &[StoredSetting]) -> Result<Vec<String>> {
    Ok(paths(db, stored(settings)).await?.0)
}

/// Returns the schemas that are left out of the search path of a query with these settings.
pub(crate) async fn left_out(db: &dyn Connection, settings: &[StoredSetting]) -> Result<Vec<String>> {
    let (safe, all) = paths(db, stored(settings)).await?;
    Ok(all.iter().filter(|s| !safe.contains(s)).map(|s| Ident::new(s).to_string()).collect())
}

/// Sets the search path to the schemas among `$1` that the current role can trust. All names in the statement
/// are qualified, since the statement may itself run under an unsafe path.
const SAFE_PATH: &str = "
SELECT pg_catalog.set_config('search_path', pg_catalog.array_to_string(ARRAY(
    SELECT pg_catalog.quote_ident(p.name) FROM pg_catalog.unnest(pgtrickle.safe_path($1::pg_catalog.text[],
        pg_catalog.quote_ident(current_user::pg_catalog.text)::pg_catalog.regrole::pg_catalog.oid)) p(name)), ', '), true)";

/// Puts settings in force for the rest of the transaction. A search path is put in force without the schemas
/// that the current role cannot trust. The first of these statements takes the snapshot of the transaction.
pub(crate) async fn put_in_force(
    db: &dyn Connection,
    settings: &[Setting],
) -> std::result::Result<(), ServerError> {
    for s in settings {
        match s.name.as_str() {
            "search_path" => db.query(SAFE_PATH, &[&s.values]).await?,
            name => {
                db.query("SELECT pg_catalog.set_config($1, $2, true)", &[&name, &s.values.concat()]).await?
            }
        };
    }
    Ok(())
}
