//! Drops stream tables.

use crate::capture;
use crate::db::{Connection, RefreshDriver, Transaction};
use crate::error::{Error, Result};
use crate::immediate;
use crate::locks::{oids, patiently};
use crate::names::Name;
use crate::registry::{Entry, Registry, require_own, shown};
use crate::trickle::Trickle;
use std::collections::BTreeSet;
use trickle_core::catalog::TableId;

/// The states of a stream table, whose names match the pattern `$1`.
const STATES: &str = "
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'pgtrickle_changes' AND c.relkind = 'r' AND c.relname LIKE $1 ORDER BY c.oid";

impl<C: RefreshDriver> Trickle<C> {
    /// Drops a stream table with all objects that belong to it. With `cascade`, also drops its readers and
    /// dependent views. Returns the names of the dropped stream tables.
    ///
    /// # Errors
    /// No stream table has that name; another object depends on the stream table.
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
            self.cache.compiled.remove(&e.id);
        }
        Ok(gone.iter().map(shown).collect())
    }
}

/// Returns a stream table and, with `cascade`, all stream tables that read it, directly or through others.
/// Readers come before their sources. Without `cascade`, returns an error where there are readers.
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
            .hint(format!(
                "Use {} to drop them too.",
                registry.voice().one("--cascade", "cascade => true")
            )));
    }
    let mut order = dag.order_of(&below.into_iter().chain([e.relation.id]).collect());
    order.reverse();
    let gone: Vec<Entry> = order.iter().filter_map(|id| registry.by_table(*id)).cloned().collect();
    for e in gone.iter().filter(|e| e.exists) {
        require_own(e, registry.voice())?;
    }
    // If somebody has dropped the table of this stream table, the order of the existing tables lacks the
    // stream table.
    Ok(if gone.iter().any(|g| g.id == id) { gone } else { vec![e.clone()] })
}

/// Drops one stream table and its states, and deletes it from the catalog.
pub(crate) async fn remove(t: &Transaction<'_>, e: &Entry, cascade: bool) -> Result<()> {
    let doing = format!("drop {}", shown(e));
    let fail = |err| {
        let e = Error::server(&doing, err).blamed_on_input();
        // An object that is no stream table depends on the table, such as a view, a foreign key or a
        // function.
        if e.sqlstate() == Some("2BP01") {
            e.hint(format!(
                "Use {} to drop what depends on it too.",
                t.voice().one("--cascade", "cascade => true")
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
        // The locks are taken in the same order as by a refresh: first the table, then its catalog row.
        t.batch_execute(&format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", shown(e))).await.map_err(fail)?;
    }
    // The catalog row is deleted while the table exists, since row security finds the owner of the row by
    // the table.
    forget_row(t, e).await?;
    if there {
        t.batch_execute(&format!("DROP TABLE {}{fate}", shown(e))).await.map_err(fail)?;
    }
    clear(t, e).await
}

/// Drops all that belongs to a stream table whose table was dropped, and deletes it from the catalog.
pub(crate) async fn forget(t: &Transaction<'_>, e: &Entry) -> Result<()> {
    forget_row(t, e).await?;
    immediate::remove(t, e.id).await?;
    clear(t, e).await
}

/// Deletes a stream table from the catalog. If its table was dropped, only the catalog's owner may delete
/// the row.
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

/// Drops the remaining objects of a stream table that was deleted from the catalog.
async fn clear(t: &Transaction<'_>, e: &Entry) -> Result<()> {
    drop_states(t, e.id, &format!("drop {}", shown(e))).await?;
    // The stream table may itself be a source whose changes are captured.
    capture::release(t, e.relation.id.0).await.map(drop)
}

/// Drops the states of a stream table.
pub(crate) async fn drop_states(t: &dyn Connection, id: i64, doing: &str) -> Result<()> {
    let fail = |err| Error::server(doing, err);
    for r in t.query(STATES, &[&format!("state\\_{id}\\_%")]).await.map_err(fail)? {
        t.as_catalog_owner(&format!("DROP TABLE {}", r.get::<String>(0))).await.map_err(fail)?;
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
