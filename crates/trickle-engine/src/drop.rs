//! Drops stream tables, and takes the catalog out of a database.

use crate::capture;
use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::immediate;
use crate::locks::{oids, patiently};
use crate::names::Name;
use crate::registry::{Entry, Registry, require_own, shown};
use crate::say;
use crate::trickle::Trickle;
use std::collections::BTreeSet;
use trickle_core::catalog::TableId;

/// The states of a stream table, by the pattern `$1` of their names.
const STATES: &str = "
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'pgtrickle_changes' AND c.relkind = 'r' AND c.relname LIKE $1 ORDER BY c.oid";

impl<C: Connection> Trickle<C> {
    /// Drops a stream table with all that belongs to it; with `cascade`, also its readers and dependent
    /// views. Returns the names of the dropped stream tables.
    ///
    /// # Errors
    /// There is no stream table of that name; an object depends on it.
    pub async fn drop(&mut self, name: &Name, cascade: bool) -> Result<Vec<String>> {
        let e = self.find(name).await?;
        self.drop_left(Some(e.id)).await?;
        let gone = self.drop_id(e.id, cascade).await?;
        self.sweep_copies().await?;
        Ok(gone)
    }

    pub(crate) async fn drop_id(&mut self, id: i64, cascade: bool) -> Result<Vec<String>> {
        let registry = self.registry().await?;
        let gone = doomed(&registry, id, cascade)?;
        let tables = oids(
            gone.iter().flat_map(|e| e.dependencies.iter().map(|d| d.relation.id).chain([e.relation.id])),
        );
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            for e in &gone {
                remove(t, e, cascade).await?;
            }
            release_sources(t, &gone).await
        })
        .await?;
        for e in &gone {
            self.memory.compiled.remove(&e.id);
        }
        Ok(gone.iter().map(shown).collect())
    }

    /// Takes the catalog out of the database, and with it every stream table, trigger and buffer.
    ///
    /// # Errors
    /// An object of a user's depends on a stream table; the server's errors.
    pub async fn uninstall(&mut self, cascade: bool) -> Result<Vec<String>> {
        let registry = self.registry().await?;
        let dag = registry.dag()?;
        let gone: Vec<Entry> =
            dag.order().iter().rev().filter_map(|id| registry.by_table(*id)).cloned().collect();
        for e in gone.iter().filter(|e| e.exists) {
            require_own(e)?;
        }
        let tables = oids(gone.iter().flat_map(|e| e.dependencies.iter().map(|d| d.relation.id)));
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            for e in &gone {
                remove(t, e, cascade).await?;
            }
            let buffers = "SELECT source_relid FROM pgtrickle.pgt_buffers ORDER BY 1";
            let fail = |e| Error::server("read the buffers", e);
            for r in t.query(buffers, &[]).await.map_err(fail)? {
                capture::remove(t, r.get(0)).await?;
            }
            Ok(())
        })
        .await?;
        crate::schema::migrate(&mut self.connection, 0).await?;
        self.memory.compiled.clear();
        Ok(gone.iter().map(shown).collect())
    }
}

/// Returns a stream table and, with `cascade`, all stream tables downstream of it, readers first.
fn doomed(registry: &Registry, id: i64, cascade: bool) -> Result<Vec<Entry>> {
    let Some(e) = registry.get(id) else { return Ok(Vec::new()) };
    let dag = registry.dag()?;
    let below: BTreeSet<TableId> = dag.downstream(e.relation.id);
    let name = |id: &TableId| registry.by_table(*id).map(shown).unwrap_or_default();
    if !below.is_empty() && !cascade {
        let readers: Vec<String> = below.iter().map(name).collect();
        return Err(Error::input(format!("cannot drop {}: other stream tables read it", shown(e)))
            .coded("2BP01")
            .detail(format!("They are {}.", readers.join(", ")))
            .hint(format!("Use {} to drop them too.", say::one("--cascade", "cascade => true"))));
    }
    let mut order = dag.order_of(&below.into_iter().chain([e.relation.id]).collect());
    order.reverse();
    let gone: Vec<Entry> = order.iter().filter_map(|id| registry.by_table(*id)).cloned().collect();
    for e in gone.iter().filter(|e| e.exists) {
        require_own(e)?;
    }
    // A stream table whose table somebody has dropped is in no order of existing tables.
    Ok(if gone.iter().any(|g| g.id == id) { gone } else { vec![e.clone()] })
}

/// Drops one stream table and its states, and forgets it.
pub(crate) async fn remove(t: &Transaction<'_>, e: &Entry, cascade: bool) -> Result<()> {
    let doing = format!("drop {}", shown(e));
    let fail = |err| {
        let e = Error::server(&doing, err).blamed_on_input();
        // An object that is no stream table depends on it: a view, a foreign key, a function.
        if e.sqlstate() == Some("2BP01") {
            e.hint(format!(
                "Use {} to drop what depends on it too.",
                say::one("--cascade", "cascade => true")
            ))
        } else {
            e
        }
    };
    immediate::remove(t, e.id).await?;
    let fate = if cascade { " CASCADE" } else { "" };
    let there = t.query_one("SELECT EXISTS (SELECT FROM pg_class WHERE oid = $1)", &[&e.relation.id.0]).await;
    let there: bool = there.map_err(fail)?.get(0);
    if there {
        // The locks are taken in the order of a refresh: the table, then its row.
        t.batch_execute(&format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", shown(e))).await.map_err(fail)?;
    }
    // The row goes while the table is there: row security finds its owner by the table.
    forget_row(t, e).await?;
    if there {
        t.batch_execute(&format!("DROP TABLE {}{fate}", shown(e))).await.map_err(fail)?;
    }
    clear(t, e).await
}

/// Drops all that belongs to a stream table whose table is gone, and forgets it.
pub(crate) async fn forget(t: &Transaction<'_>, e: &Entry) -> Result<()> {
    forget_row(t, e).await?;
    immediate::remove(t, e.id).await?;
    clear(t, e).await
}

/// Takes a stream table out of the catalog. Where its table is gone, the catalog's owner alone may do so.
async fn forget_row(t: &Transaction<'_>, e: &Entry) -> Result<()> {
    let text = "DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";
    let fail = |err| Error::server(format!("drop {}", shown(e)), err);
    if t.execute(text, &[&e.id]).await.map_err(fail)? > 0 {
        return Ok(());
    }
    let known = t.query_opt("SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1", &[&e.id]).await;
    match known.map_err(fail)? {
        None => Ok(()),
        Some(_) => Err(Error::input(format!("must be owner of the catalog to drop {}", shown(e)))
            .coded("42501")
            .detail("Its table is gone, and with it whose it was.")
            .hint("Drop it as the owner of schema pgtrickle.")),
    }
}

/// Drops the rest of a stream table that is not in the catalog any more.
async fn clear(t: &Transaction<'_>, e: &Entry) -> Result<()> {
    drop_states(t, e.id, &format!("drop {}", shown(e))).await?;
    // Its own changes were captured for its readers.
    capture::release(t, e.relation.id.0).await.map(drop)
}

/// Drops the states of a stream table.
pub(crate) async fn drop_states(t: &dyn Connection, id: i64, doing: &str) -> Result<()> {
    let fail = |err| Error::server(doing, err);
    for r in t.query(STATES, &[&format!("state\\_{id}\\_%")]).await.map_err(fail)? {
        t.as_keeper(&format!("DROP TABLE {}", r.get::<String>(0))).await.map_err(fail)?;
    }
    Ok(())
}

/// Stops capturing the sources that no stream table reads any more.
pub(crate) async fn release_sources(t: &Transaction<'_>, gone: &[Entry]) -> Result<()> {
    let sources: BTreeSet<u32> =
        gone.iter().flat_map(|e| e.dependencies.iter().map(|d| d.relation.id.0)).collect();
    for s in sources {
        capture::release(t, s).await?;
    }
    Ok(())
}
