//! The catalog in the database: its creation, its upgrades and its removal.

mod operations;
mod take_over;

pub(crate) use take_over::take_over;

use crate::capture;
use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::hand_over::hand_over;
use crate::say::Voice;

/// One migration of the catalog: the statements that lead from the previous version to this version, and the
/// statements that lead back.
struct Migration {
    version: i32,
    up: &'static str,
    down: &'static str,
}

/// All migrations, in order. A migration that was released is never edited; every change is a new migration.
const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        up: include_str!("v1.sql"),
        down: "DROP SCHEMA pgtrickle_changes CASCADE; DROP SCHEMA pgtrickle CASCADE",
    },
    Migration { version: 2, up: include_str!("v2.sql"), down: include_str!("v2_down.sql") },
    Migration { version: 3, up: include_str!("v3.sql"), down: include_str!("v3_down.sql") },
];

/// Makes the two schemas of the catalog.
const SCHEMAS: &str = "CREATE SCHEMA pgtrickle; CREATE SCHEMA pgtrickle_changes";

/// An SQL condition: whether the owner of relation `c` of a statement is a superuser or was let in by name.
/// Rights through membership in another role do not count, since they end together with the membership.
pub const LETS_OWNER_IN: &str = "(c.relowner IN (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolsuper) OR EXISTS (SELECT \
     FROM pg_catalog.pg_proc p CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) a \
     WHERE p.pronamespace = pg_catalog.to_regnamespace('pgtrickle') AND p.proname = 'mark_readers' AND a.grantee = c.relowner))";

/// The first version in which all hidden objects belong to the catalog's owner.
const HANDED_OVER: i32 = 3;

/// The version of the catalog that this program works with.
pub const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Whether the database has a catalog. The query also returns the owner of the catalog, if the current role
/// is a superuser and the owner is not.
const THERE: &str = "
SELECT pg_catalog.to_regclass('pgtrickle.pgt_catalog_version') IS NOT NULL, (
    SELECT n.nspowner::pg_catalog.regrole::pg_catalog.text FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_roles o ON o.oid OPERATOR(pg_catalog.=) n.nspowner AND NOT o.rolsuper
    JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) current_user AND r.rolsuper
    WHERE n.nspname OPERATOR(pg_catalog.=) 'pgtrickle')";

/// Returns the error for a superuser in a database whose catalog belongs to an ordinary role. Functions of
/// such a catalog would run with a superuser's rights, and its rows decide which role owns each query.
fn foreign(owner: &str, voice: Voice) -> Error {
    Error::input(format!("the trickle catalog of this database belongs to {owner}, and this role is a superuser"))
        .detail("Functions of that catalog would run, and queries that its owner wrote, with the rights of a superuser.")
        .hint(format!(
            "Connect as {owner}{}.",
            voice.one(", or make the catalog this role's: trickle init --take-over", "")
        ))
}

/// Returns the catalog's version; `None` where the database has no catalog.
///
/// # Errors
/// The current role is a superuser and the catalog belongs to an ordinary role; errors of the server.
pub async fn version(db: &dyn Connection) -> Result<Option<i32>> {
    let row =
        db.query_one(THERE, &[]).await.map_err(|e| not_let_in(Error::server("look for the catalog", e)))?;
    if !row.get::<bool>(0) {
        return Ok(None);
    }
    if let Some(owner) = row.get::<Option<String>>(1) {
        return Err(foreign(&owner, db.voice()));
    }
    // The table has no row if only the definitions were dumped and restored. The table has two rows if the
    // data was restored into an existing catalog.
    let text = "SELECT max(version) FROM pgtrickle.pgt_catalog_version";
    let row = db.query_one(text, &[]).await;
    Ok(row.map_err(|e| not_let_in(Error::server("read the catalog's version", e)))?.get(0))
}

/// Adds advice to an error about rights on a catalog that another role owns.
fn not_let_in(e: Error) -> Error {
    if e.sqlstate() != Some("42501") {
        return e;
    }
    e.hint(
        "The catalog belongs to another role: connect as the one that made it, or have that one let this one in with \
         SELECT pgtrickle.grant_to('…').",
    )
}

/// Fails unless the database has a catalog of this program's version.
///
/// # Errors
/// The catalog is missing, older, newer, or restored from a dump; each error has a hint.
pub async fn require(db: &dyn Connection) -> Result<()> {
    match version(db).await? {
        Some(VERSION) if is_restored(db).await? => Err(Error::input(
            "this database was restored from a dump",
        )
        .detail("A dump keeps the names of tables and not their identities, by which the catalog knows them.")
        .hint(format!(
            "{} finds them again by name; the next refresh of each stream table rebuilds it.",
            db.voice().one("trickle init", "SELECT pgtrickle.rehome()")
        ))),
        Some(VERSION) => Ok(()),
        None => Err(Error::input("this database has no trickle catalog")
            .hint(db.voice().one("Run trickle init.", "Run CREATE EXTENSION pg_trickle."))),
        Some(found) if found < VERSION => {
            let by =
                if is_extension(db).await? { "ALTER EXTENSION pg_trickle UPDATE" } else { "trickle init" };
            Err(Error::input(format!(
                "the trickle catalog of this database is version {found}, and version {VERSION} is needed"
            ))
            .hint(format!("Run {by}, which upgrades it and keeps everything.")))
        }
        Some(found) => Err(newer(found, db.voice())),
    }
}

/// Whether the catalog belongs to the extension.
async fn is_extension(db: &dyn Connection) -> Result<bool> {
    let text = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trickle')";
    Ok(db.query_one(text, &[]).await.map_err(|e| Error::server("look for the extension", e))?.get(0))
}

/// Whether the catalog was restored from a dump, which keeps the names of tables and not their oids.
///
/// # Errors
/// Errors of the server.
pub async fn is_restored(db: &dyn Connection) -> Result<bool> {
    let text =
        "SELECT bool_or(home IS DISTINCT FROM pgtrickle.home()) IS TRUE FROM pgtrickle.pgt_catalog_version";
    let row = db.query_one(text, &[]).await;
    Ok(row.map_err(|e| Error::server("look where the catalog was made", e))?.get(0))
}

/// Finds the tables of a restored catalog again by their names. The capture objects of such a catalog have
/// the old oids in their names. So the capture objects are dropped. The next refresh of each stream table
/// plans it again and makes new capture objects.
pub(crate) async fn rehome(t: &Transaction<'_>) -> Result<()> {
    let fail = |e| Error::server("find the tables of a restored catalog", e);
    if !is_restored(t).await? {
        return Ok(());
    }
    let buffers = "SELECT b.source_relid, b.trigger_mode, b.unlogged, b.limit_bytes, b.capture = 'HELD', \
         (SELECT to_regclass(pg_catalog.format('%I.%I', d.source_schema, d.source_name))::oid FROM pgtrickle.pgt_dependencies d \
          WHERE d.source_relid = b.source_relid LIMIT 1) FROM pgtrickle.pgt_buffers b ORDER BY 1";
    let buffers = t.query(buffers, &[]).await.map_err(fail)?;
    for b in &buffers {
        capture::remove(t, b.get(0)).await?;
    }
    for b in buffers.iter().filter(|b| b.get::<Option<u32>>(5).is_some()) {
        let off = "INSERT INTO pgtrickle.pgt_buffers (source_relid, trigger_mode, unlogged, generation, segments, capture, \
             limit_bytes, schema_fingerprint) VALUES ($1, $2, $3, 1, '[]', CASE WHEN $5 THEN 'HELD' ELSE 'OFF' END, $4, '') \
             ON CONFLICT DO NOTHING";
        let (mode, unlogged, limit, held): (&str, bool, i64, bool) = (b.get(1), b.get(2), b.get(3), b.get(4));
        t.execute(off, &[&b.get::<u32>(5), &mode, &unlogged, &limit, &held]).await.map_err(fail)?;
    }
    t.batch_execute(REHOME).await.map_err(fail)
}

/// The statements that give the rows of the catalog the new oids of their tables, which are found by name.
/// The row of a table that does not exist gets an oid that no table has. All rows get such oids first, since
/// a new oid may be the old oid of another table.
///
/// The catalog of a dump may have any name in the row of a stream table. So a table counts as the stream
/// table only if its own guard says so. Only the owner of the table, and roles with the right TRIGGER on it,
/// can make this guard. Writers of the table run the code of these roles anyway. Guards of version 0.1 do not
/// name their stream table.
///
/// A stream table that was renamed before the dump is found by its guard if the catalog's owner owns the
/// table. Only the catalog's owner can make a guard on such a table.
const REHOME: &str = "
    UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = 4294967295::int8 - pgt_id;
    UPDATE pgtrickle.pgt_stream_tables s SET pgt_relid = coalesce((SELECT c.oid FROM pg_class c
        WHERE c.oid = to_regclass(pg_catalog.format('%I.%I', s.pgt_schema, s.pgt_name))
            AND EXISTS (SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
                WHERE g.tgrelid = c.oid AND g.tgname = 'trickle_guard' AND p.pronamespace = 'pgtrickle'::regnamespace
                AND p.proname = 'refuse_writes'
                AND (g.tgnargs = 0 OR g.tgargs = convert_to(s.pgt_id::text, 'UTF8') || '\\x00'::bytea))),
        (SELECT min(g.tgrelid::int8)::oid FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
            WHERE g.tgname = 'trickle_guard' AND p.pronamespace = 'pgtrickle'::regnamespace AND p.proname = 'refuse_writes'
                AND g.tgargs = convert_to(s.pgt_id::text, 'UTF8') || '\\x00'::bytea
                AND EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspowner = c.relowner
                    WHERE c.oid = g.tgrelid) HAVING count(*) = 1),
        pgt_relid), frontier = NULL, needs_reinit = true, reinit_reason = 'the database was restored from a dump',
        agreed = NULL, agreed_by = NULL, types = '{0}', types_fingerprint = NULL;
    CREATE TEMPORARY TABLE trickle_rehomed ON COMMIT DROP AS
        SELECT pgt_id, row_number() OVER () AS n, coalesce((SELECT c.oid FROM pgtrickle.pgt_stream_tables s
                JOIN pg_class c ON c.oid = s.pgt_relid WHERE s.pgt_schema = source_schema AND s.pgt_name = source_name),
            to_regclass(pg_catalog.format('%I.%I', source_schema, source_name))::oid) AS oid,
            source_type, source_schema, source_name, columns_used, cdc_mode FROM pgtrickle.pgt_dependencies;
    DELETE FROM pgtrickle.pgt_dependencies;
    INSERT INTO pgtrickle.pgt_dependencies (pgt_id, source_relid, source_type, source_schema, source_name, columns_used,
        cdc_mode, schema_fingerprint)
        SELECT pgt_id, coalesce(oid, 4294967295::int8 - n), source_type, source_schema, source_name, columns_used, cdc_mode,
        '' FROM trickle_rehomed;
    UPDATE pgtrickle.pgt_catalog_version SET version = (SELECT max(v.version) FROM pgtrickle.pgt_catalog_version v);
    DELETE FROM pgtrickle.pgt_catalog_version WHERE ctid <> (SELECT v.ctid FROM pgtrickle.pgt_catalog_version v
        ORDER BY v.home IS NOT DISTINCT FROM pgtrickle.home() LIMIT 1);
    UPDATE pgtrickle.pgt_catalog_version SET home = pgtrickle.home()";

/// Adds advice to the error of creating a catalog.
fn advised(e: Error, voice: Voice) -> Error {
    match e.sqlstate() {
        Some("42501") => e.hint(format!(
            "As the owner of the database: GRANT CREATE ON DATABASE … TO …; {} writes it out for this role.",
            voice.one("trickle doctor", "pgtrickle.health_check()")
        )),
        Some("42P06") => e.blamed_on_input().hint(
            "Trickle needs this schema for itself: the extension pg_trickle, or something else, made it. Take that out \
             first, or use another database.",
        ),
        _ => e,
    }
}

fn newer(found: i32, voice: Voice) -> Error {
    Error::input(format!(
        "the trickle catalog of this database is version {found}, and this program knows versions up to {VERSION}"
    ))
    .hint(voice.one(
        "Use the newer trickle that made it; its `trickle init --catalog-version` can take the catalog back.",
        "Use the newer library of pg_trickle, or the newer program, that made it.",
    ))
}

/// Whether the current role is a superuser, and so can take over objects of other roles.
async fn is_superuser(db: &dyn Connection) -> Result<bool> {
    let row = db.query_one("SELECT rolsuper FROM pg_roles WHERE rolname = current_user", &[]).await;
    Ok(row.map_err(|e| Error::server("look for the current role", e))?.get(0))
}

/// The lock that is held while the catalog is brought to another version. A second session that waited for
/// the lock finds the work done.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('trickle catalog', 0))";

/// Fills the two existing schemas of the catalog, or brings the catalog in them to version `target`. A
/// catalog of a later version stays unchanged. Returns whether the caller must renew capture
/// ([`capture::renew`]).
///
/// # Errors
/// The catalog is newer than this program; errors of the server.
pub async fn fill(db: &dyn Connection, target: i32) -> Result<bool> {
    match version(db).await? {
        Some(newest) if newest > VERSION => Err(newer(newest, db.voice())),
        found => {
            rise(db, found.unwrap_or(0), target).await?;
            Ok(lacks_guards(found, target) && !is_restored(db).await?)
        }
    }
}

/// Whether a catalog that was brought from version `found` to version `now` has trigger functions that do
/// not check their tables.
fn lacks_guards(found: Option<i32>, now: i32) -> bool {
    found.is_some_and(|v| v < GUARDED) && now >= GUARDED
}

/// The first version whose trigger functions check whether their table still has the definition that they
/// were made for.
const GUARDED: i32 = 3;

async fn rise(db: &dyn Connection, from: i32, to: i32) -> Result<()> {
    for m in MIGRATIONS.iter().filter(|m| m.version > from && m.version <= to) {
        let doing = || format!("bring the catalog to version {}", m.version);
        db.batch_execute(m.up).await.map_err(|e| advised(Error::server(doing(), e), db.voice()))?;
    }
    Ok(())
}

/// Whether the database has a catalog that does not belong to the extension. The condition is used where the
/// catalog has no version, as after restoring a dump of definitions alone.
const EMPTIED: &str = "SELECT to_regclass('pgtrickle.pgt_catalog_version') IS NOT NULL \
     AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trickle')";

/// Drops a catalog that was restored without its rows, together with its triggers on users' tables. The
/// former stream tables stay in the database as ordinary tables.
async fn drop_emptied(t: &Transaction<'_>) -> Result<()> {
    let fail = |e| Error::server("make a catalog anew that came without its rows", e);
    if !t.query_one(EMPTIED, &[]).await.map_err(fail)?.get::<bool>(0) {
        return Ok(());
    }
    let listed = "SELECT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables)";
    if t.query_one(listed, &[]).await.map_err(fail)?.get(0) {
        return Err(Error::input("the trickle catalog of this database has no version")
            .detail("It lists stream tables, and pgtrickle.pgt_catalog_version has no row.")
            .hint("Restore the database with all of schema pgtrickle, its data too."));
    }
    let made = "DROP SCHEMA IF EXISTS pgtrickle_changes CASCADE; DROP SCHEMA pgtrickle CASCADE";
    t.batch_execute(made).await.map_err(|e| advised(fail(e), t.voice()))
}

/// Brings the catalog to version `target`, up or down, in one transaction. Returns the version that the
/// catalog had before.
///
/// # Errors
/// The catalog is newer than this program; the role may not create a schema; a migration down would lose
/// data.
pub async fn migrate(db: &mut dyn Connection, target: i32) -> Result<Option<i32>> {
    if !(0..=VERSION).contains(&target) {
        return Err(Error::input(format!(
            "there is no catalog version {target}; this program knows 0 to {VERSION}"
        )));
    }
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        match migrate_once(db, target).await {
            Err(e) if e.is_transient() && attempts > 0 => {}
            done => return done,
        }
    }
}

/// The number of attempts to bring the catalog to a version. A refresher may lock tables of the catalog in
/// another order, so that a deadlock ends an attempt.
const ATTEMPTS: u32 = 5;

async fn migrate_once(db: &mut dyn Connection, target: i32) -> Result<Option<i32>> {
    let transaction = db.transaction().await.map_err(|e| Error::server("begin", e))?;
    transaction.execute(LOCK, &[]).await.map_err(|e| Error::server("lock the catalog", e))?;
    let found = version(&transaction).await?;
    if let Some(newest) = found.filter(|v| *v > VERSION) {
        return Err(newer(newest, transaction.voice()));
    }
    if found.is_none() {
        drop_emptied(&transaction).await?;
    }
    if found.is_none() && target > 0 {
        let made = transaction.batch_execute(SCHEMAS).await;
        made.map_err(|e| advised(Error::server("make the catalog's schemas", e), transaction.voice()))?;
    }
    rise(&transaction, found.unwrap_or(0), target).await?;
    if lacks_guards(found, target) && !is_restored(&transaction).await? {
        capture::renew(&transaction).await?;
    }
    if found.is_some_and(|v| v < HANDED_OVER) && target >= HANDED_OVER && is_superuser(&transaction).await? {
        hand_over(&transaction, true).await?;
    }
    if found.is_some_and(|v| v >= GUARDED) && target < GUARDED {
        capture::stop(&transaction).await?;
    }
    for m in MIGRATIONS.iter().rev().filter(|m| m.version <= found.unwrap_or(0) && m.version > target) {
        let doing = || format!("take the catalog back from version {}", m.version);
        transaction.batch_execute(m.down).await.map_err(|e| Error::server(doing(), e))?;
    }
    transaction.commit().await.map_err(|e| Error::server("commit the catalog", e))?;
    Ok(found)
}
