//! Finds the tables of a catalog again, in a database that was restored from a dump.

use crate::gucs;
use crate::inside::done;
use crate::raise::raise;
use crate::unsafe_pg::ServerConnection;
use pgrx::prelude::*;
use trickle_engine::db::Connection;
use trickle_engine::{Error, Result, Trickle, schema};

#[pg_schema]
mod pgtrickle {
    use pgrx::prelude::*;

    /// Finds the tables of the catalog by their names, in a database that was restored from a dump. The next
    /// refresh of each stream table plans it again, and makes its capture objects again. Returns whether the
    /// database was a restored one.
    #[pg_extern]
    fn rehome() -> bool {
        super::rehome()
    }
}

fn rehome() -> bool {
    match done(rehomed(ServerConnection::enter())) {
        Ok(found) => found,
        Err(e) => raise(&e),
    }
}

/// A query that returns whether a restore may still be running. A restore creates triggers late. Before that,
/// the restore writes to stream tables as to any other table. After the triggers, the restore grants rights
/// on functions that [`pgtrickle::rehome`] drops, so `pg_restore` must have disconnected as well.
const UNGUARDED: &str = "
SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name = 'pg_restore')
    OR EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s
    JOIN pg_class c ON c.oid = to_regclass(pg_catalog.format('%I.%I', s.pgt_schema, s.pgt_name))
    WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgfoid = to_regproc('pgtrickle.refuse_writes')))";

/// Does the work of [`pgtrickle::rehome`] without a call by a user, but only once the restore is done.
/// Returns whether the work was done; false while the restore may still be running.
pub(crate) async fn rehomed_when_restored(inside: ServerConnection) -> Result<bool> {
    let asked = Connection::run(&inside, UNGUARDED, Vec::new(), false).await;
    let asked = asked.map_err(|e| Error::server("look whether a restore is done", e))?;
    if asked.rows.first().is_some_and(|r| r.get(0)) {
        return Ok(false);
    }
    rehomed(inside).await
}

/// Does the work of [`pgtrickle::rehome`], as the owner of the catalog.
async fn rehomed(inside: ServerConnection) -> Result<bool> {
    let mut trickle = Trickle::attach(inside, gucs::settings()).await?;
    let restored = schema::is_restored(trickle.db()).await?;
    if restored {
        trickle.migrate(schema::VERSION).await?;
    }
    Ok(restored)
}
