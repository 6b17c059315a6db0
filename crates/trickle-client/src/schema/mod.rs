//! The catalog in the database: how it comes, is upgraded, and goes.

use crate::error::{Error, Result};
use tokio_postgres::{Client, GenericClient};

/// One step of the catalog: what leads to its version from the one before, and back.
struct Migration {
    version: i32,
    up: &'static str,
    down: &'static str,
}

/// All steps, in order. A step that was released is never edited; a change is a new step.
const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    up: include_str!("v1.sql"),
    down: "DROP SCHEMA pgtrickle_changes CASCADE; DROP SCHEMA pgtrickle CASCADE",
}];

/// The version that this program works with.
pub const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The catalog's version; `None` where there is no catalog.
///
/// # Errors
/// Those of the server.
pub async fn version<C: GenericClient>(client: &C) -> Result<Option<i32>> {
    let there = "SELECT to_regclass('pgtrickle.pgt_catalog_version') IS NOT NULL";
    let row = client.query_one(there, &[]).await.map_err(|e| {
        let e = Error::server("look for the catalog", e);
        if e.sqlstate() != Some("42501") {
            return e;
        }
        e.hint("The catalog belongs to another role: connect as the one that ran trickle init.")
    })?;
    if !row.get::<_, bool>(0) {
        return Ok(None);
    }
    let text = "SELECT version FROM pgtrickle.pgt_catalog_version";
    let row =
        client.query_one(text, &[]).await.map_err(|e| Error::server("read the catalog's version", e))?;
    Ok(Some(row.get(0)))
}

/// Fails unless the catalog is there and of this program's version.
///
/// # Errors
/// No catalog, an older one, or a newer one, each with what to do.
pub async fn require(client: &Client) -> Result<()> {
    match version(client).await? {
        Some(VERSION) => Ok(()),
        None => Err(Error::input("this database has no trickle catalog").hint("Run trickle init.")),
        Some(found) if found < VERSION => Err(Error::input(format!(
            "the trickle catalog of this database is version {found}, and this program needs version {VERSION}"
        ))
        .hint("Run trickle init, which upgrades it and keeps everything.")),
        Some(found) => Err(newer(found)),
    }
}

/// Says what to do where the catalog cannot be made.
fn advised(e: Error) -> Error {
    match e.sqlstate() {
        Some("42501") => e.hint(
            "As the owner of the database: GRANT CREATE ON DATABASE … TO …; trickle doctor writes it out for this role.",
        ),
        Some("42P06") => e.blamed_on_input().hint(
            "Trickle needs this schema for itself: the extension pg_trickle, or something else, made it. Take that out \
             first, or use another database.",
        ),
        _ => e,
    }
}

fn newer(found: i32) -> Error {
    Error::input(format!(
        "the trickle catalog of this database is version {found}, and this program knows versions up to {VERSION}"
    ))
    .hint("Use the newer trickle that made it; its `trickle init --catalog-version` can take the catalog back.")
}

/// Held while the catalog is brought to another version: who comes second finds the work done.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('trickle catalog', 0))";

/// Brings the catalog to `target`, up or down, in one transaction; returns the version before.
///
/// # Errors
/// A catalog newer than this program; no privilege to create a schema; a step down that would lose data.
pub async fn migrate(client: &mut Client, target: i32) -> Result<Option<i32>> {
    if !(0..=VERSION).contains(&target) {
        return Err(Error::input(format!(
            "there is no catalog version {target}; this program knows 0 to {VERSION}"
        )));
    }
    let transaction = client.transaction().await.map_err(|e| Error::server("begin", e))?;
    transaction.execute(LOCK, &[]).await.map_err(|e| Error::server("lock the catalog", e))?;
    let found = version(&transaction).await?;
    if let Some(newest) = found.filter(|v| *v > VERSION) {
        return Err(newer(newest));
    }
    for m in MIGRATIONS.iter().filter(|m| m.version > found.unwrap_or(0) && m.version <= target) {
        let doing = || format!("bring the catalog to version {}", m.version);
        transaction.batch_execute(m.up).await.map_err(|e| advised(Error::server(doing(), e)))?;
    }
    for m in MIGRATIONS.iter().rev().filter(|m| m.version <= found.unwrap_or(0) && m.version > target) {
        let doing = || format!("take the catalog back from version {}", m.version);
        transaction.batch_execute(m.down).await.map_err(|e| Error::server(doing(), e))?;
    }
    transaction.commit().await.map_err(|e| Error::server("commit the catalog", e))?;
    Ok(found)
}
