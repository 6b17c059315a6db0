//! The operations on the catalog as a whole: opening, making, upgrading and removing it.

use super::{VERSION, is_restored, migrate, rehome, require, take_over};
use crate::capture;
use crate::db::RefreshDriver;
use crate::drop::remove;
use crate::error::{Error, Result};
use crate::locks::{oids, patiently};
use crate::registry::{Entry, require_own, shown};
use crate::settings::Settings;
use crate::trickle::Trickle;

impl<C: RefreshDriver> Trickle<C> {
    /// Opens trickle over a connection. The database must have a catalog of this program's version.
    ///
    /// # Errors
    /// The database has no catalog, or a catalog of another version; the server is older than 15.
    pub async fn open(connection: C, settings: Settings) -> Result<Trickle<C>> {
        let trickle = Trickle::attach(connection, settings).await?;
        require(trickle.db()).await?;
        Ok(trickle)
    }

    /// Makes or upgrades the catalog, and stores the settings that all clients share. Returns the version
    /// that the catalog had before.
    ///
    /// # Errors
    /// The catalog is newer than this program; the role may not create schemas.
    pub async fn init(&mut self) -> Result<Option<i32>> {
        self.migrate(VERSION).await
    }

    /// Gives a catalog of another role to the current role, which must be a superuser, so that the extension
    /// can adopt the catalog. Returns the ordinary roles that owned the catalog. These roles get the rights
    /// that `pgtrickle.grant_to` gives. Other rights on the catalog are revoked. No stream table is changed.
    ///
    /// # Errors
    /// The current role is no superuser. The database has no catalog, or the catalog belongs to the
    /// extension. The catalog has an object that trickle's scripts do not make. A role could have written the
    /// query of a stream table that it does not own.
    pub async fn take_catalog(&mut self) -> Result<Vec<String>> {
        take_over(&mut self.connection).await
    }

    /// Brings the catalog to a version, which may be later or earlier than the present one. Returns the
    /// version that the catalog had before. In a catalog that was restored from a dump, the tables are found
    /// again by their names.
    ///
    /// # Errors
    /// The errors of [`migrate`].
    pub async fn migrate(&mut self, version: i32) -> Result<Option<i32>> {
        let found = migrate(&mut self.connection, version).await?;
        if version == VERSION && is_restored(self.db()).await? {
            let (patience, progress) = (self.settings.patience, self.progress.clone());
            progress.say("this database was restored from a dump: finding the tables again by name");
            patiently(&mut self.connection, patience, &[], &*progress, rehome).await?;
        }
        if let (Some(bytes), true) = (self.settings.buffer_limit_bytes, version == VERSION) {
            let text = "UPDATE pgtrickle.pgt_catalog_version SET buffer_limit_bytes = $1";
            let stored = self.db().execute(text, &[&bytes]).await;
            stored.map_err(|e| Error::server("store the limit of buffers", e).blamed_on_input())?;
        }
        Ok(found)
    }

    /// Removes the catalog from the database, together with every stream table, trigger and buffer.
    ///
    /// # Errors
    /// An object that a user made depends on a stream table; errors of the server.
    pub async fn uninstall(&mut self, cascade: bool) -> Result<Vec<String>> {
        let registry = self.registry().await?;
        let dag = registry.dag()?;
        let gone: Vec<Entry> =
            dag.order().iter().rev().filter_map(|id| registry.by_table(*id)).cloned().collect();
        for e in gone.iter().filter(|e| e.exists) {
            require_own(e, self.voice())?;
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
        migrate(&mut self.connection, 0).await?;
        self.cache.compiled.clear();
        Ok(gone.iter().map(shown).collect())
    }
}
