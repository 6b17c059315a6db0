//! Gives hidden objects of other roles to the catalog's owner.
//!
//! Before version 3 of the catalog, each role owned the buffers and states of its stream tables. That role
//! could add code to its buffers and states, and the code runs when another role reads or writes them.
//! Buffers and states without such code get the catalog's owner as their owner, and keep their rows. Views
//! and functions are made again from the descriptions in the catalog. All other objects are dropped, and
//! their readers are recomputed, so no change is lost.

use crate::capture;
use crate::catalog::PgCatalog;
use crate::db::Connection;
use crate::drop::drop_states;
use crate::error::{Error, Result};
use crate::immediate;
use trickle_core::sql::print;
use trickle_core::vocabulary::Capture;

const DOING: &str = "hand hidden objects over to the catalog's owner";

/// The reason that is noted for recomputing the readers of a table whose buffer was dropped.
const REBUILT: &str = "its buffer was another role's, and not as it was made";

/// All buffers, each with its source, the source's present schema and name, and whether an object of the
/// buffer belongs to another role.
const BUFFERS: &str = "
SELECT b.source_relid, n.nspname, c.relname, EXISTS (
    SELECT FROM pg_class h WHERE h.relnamespace = 'pgtrickle_changes'::regnamespace AND h.relowner <> k.nspowner
        AND (h.relname = pg_catalog.format('changes_%s', b.source_relid) OR starts_with(h.relname, pg_catalog.format('changes_%s_', b.source_relid)))
    UNION ALL SELECT FROM pg_proc p WHERE p.pronamespace = 'pgtrickle_changes'::regnamespace AND p.proowner <> k.nspowner
        AND starts_with(p.proname, pg_catalog.format('capture_%s_', b.source_relid)))
FROM pgtrickle.pgt_buffers b JOIN pg_namespace k ON k.nspname = 'pgtrickle'
LEFT JOIN pg_class c ON c.oid = b.source_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE b.capture = 'ON' ORDER BY 1";

/// Statements that give the view and the functions of a buffer, which were just made again, to the catalog's
/// owner. Other statements revoke the rights of other roles on the view.
const OWN: &str = "
SELECT pg_catalog.format('ALTER VIEW %s OWNER TO %s; SELECT pgtrickle.without_grants(%s)', c.oid::regclass, k.nspowner::regrole, c.oid)
FROM pg_class c, pg_namespace k WHERE k.nspname = 'pgtrickle' AND c.relnamespace = 'pgtrickle_changes'::regnamespace
    AND c.relkind = 'v' AND c.relname = pg_catalog.format('changes_%s', $1::oid)
UNION ALL
SELECT pg_catalog.format('ALTER FUNCTION %s OWNER TO %s', p.oid::regprocedure, k.nspowner::regrole)
FROM pg_proc p, pg_namespace k WHERE k.nspname = 'pgtrickle' AND p.pronamespace = 'pgtrickle_changes'::regnamespace
    AND p.proowner <> k.nspowner AND starts_with(p.proname, pg_catalog.format('capture_%s_%s_', $1::oid, $2::int8))";

/// Functions that belong to other roles, have a name of the form that capture uses, and are run by no trigger
/// of trickle.
const STRAY: &str = "
SELECT pg_catalog.format('DROP FUNCTION %s', p.oid::regprocedure) FROM pg_proc p, pg_namespace k
WHERE k.nspname = 'pgtrickle' AND p.pronamespace = 'pgtrickle_changes'::regnamespace AND p.proowner <> k.nspowner
    AND starts_with(p.proname, 'capture_') ORDER BY p.oid";

/// Gives hidden objects of other roles to the catalog's owner. The current role must be the catalog's owner
/// and a superuser. With `all`, the views and functions of all buffers are made again, including buffers
/// that the current role owns already.
///
/// # Errors
/// An object has a name of the form that trickle uses, and was not made by trickle; errors of the server.
pub async fn hand_over(db: &dyn Connection, all: bool) -> Result<()> {
    let fail = |e| Error::server(DOING, e);
    for r in
        db.query("SELECT kind, number FROM pgtrickle.hand_over() GROUP BY 1, 2", &[]).await.map_err(fail)?
    {
        let number: i64 = r.get(1);
        match (r.get::<&str>(0), u32::try_from(number)) {
            ("changes", Ok(source)) => abandon(db, source).await?,
            _ => forget_states(db, number).await?,
        }
    }
    for r in db.query(BUFFERS, &[]).await.map_err(fail)? {
        let name = r.get::<Option<String>>(1).zip(r.get::<Option<String>>(2));
        if all || r.get::<bool>(3) {
            remake(db, r.get(0), name).await?;
        }
    }
    for r in db.query(STRAY, &[]).await.map_err(fail)? {
        db.batch_execute(r.get(0)).await.map_err(fail)?;
    }
    let kept = "SELECT pgtrickle.hand_to_owner(pgt_id) FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid \
         WHERE refresh_mode = 'IMMEDIATE' ORDER BY pgt_id";
    db.query(kept, &[]).await.map(drop).map_err(fail)
}

/// Makes the view and the functions of a buffer again, in place. Drops the buffer where the definition of the
/// source is no longer the one that the view and the functions were made for.
async fn remake(db: &dyn Connection, source: u32, name: Option<(String, String)>) -> Result<()> {
    let mut catalog = PgCatalog::new();
    let table = match &name {
        Some((schema, name)) => capture::table_by_oid(db, &mut catalog, schema, name).await?,
        None => None,
    };
    let known = match &table {
        Some(table) => capture::read(db, table).await?,
        None => None,
    };
    let Some(c) = known.filter(|c| c.state == Capture::On) else { return abandon(db, source).await };
    if !capture::fresh(db, &c).await? {
        return abandon(db, source).await;
    }
    let mut texts = vec![c.buffer.create_view()];
    texts.extend(c.mode.source().redirect(&c.buffer));
    let texts: Vec<String> = texts.iter().map(|s| print(s).text).collect();
    // The statement fails where the view has other columns, which means that trickle did not make the view.
    if db.attempt_as_catalog_owner(&texts.join(";\n")).await.is_err() {
        return abandon(db, source).await;
    }
    let fail = |e| Error::server(DOING, e);
    let generation = i64::from(c.buffer.generation());
    for r in db.query(OWN, &[&source, &generation]).await.map_err(fail)? {
        db.batch_execute(r.get(0)).await.map_err(fail)?;
    }
    Ok(())
}

/// Drops a buffer that differs from the one that trickle made. Readers of its table are marked for a
/// recompute. Their next refresh captures the table again.
async fn abandon(db: &dyn Connection, source: u32) -> Result<()> {
    capture::rebuild_readers(db, source, REBUILT).await?;
    capture::switch_off(db, source, Capture::Off).await
}

/// Drops the states of a stream table that differ from those that trickle made. Marks the stream table to be
/// planned again and recomputed.
async fn forget_states(db: &dyn Connection, id: i64) -> Result<()> {
    let text = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, layout_hash = NULL, updated_at = now(), \
         reinit_reason = 'its hidden tables were not as they were made' WHERE pgt_id = $1";
    db.execute(text, &[&id]).await.map_err(|e| Error::server(DOING, e))?;
    immediate::remove(db, id).await?;
    drop_states(db, id, DOING).await
}
