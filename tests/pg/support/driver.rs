//! The driver of the tests: the library, or the SQL API of the extension in a run with
//! `TRICKLE_THROUGH=extension`. Most tests have the same result with either driver.

use super::{Db, run, sql_api};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use trickle_client::progress::Progress;
use trickle_client::{
    Alteration, Created, Name, NewStreamTable, RefreshOptions, Refreshed, Result, Session, Settings, Trickle,
};
use trickle_engine::db::Connections;

/// A connection of the library. In runs through the SQL API, it calls the SQL API for each operation that the
/// API has. The library does the other operations over the same catalog: reading, switching capture off and
/// on, watched refreshes, and refreshes with options of the schedule.
pub(crate) struct Driver {
    trickle: Trickle,
    by_sql: bool,
}

impl Deref for Driver {
    type Target = Trickle;

    fn deref(&self) -> &Trickle {
        &self.trickle
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut Trickle {
        &mut self.trickle
    }
}

impl Driver {
    /// Makes a driver of a connection that has a catalog.
    pub(crate) fn of(trickle: Trickle) -> Driver {
        Driver { trickle, by_sql: sql_api::is_meant() }
    }

    /// Makes a driver of a connection that has a catalog, with or without the SQL API, for a test that
    /// changes between the two.
    pub(crate) fn through(trickle: Trickle, by_sql: bool) -> Driver {
        Driver { trickle, by_sql }
    }

    /// Connects to a test's database, and makes a catalog.
    pub(crate) async fn open(db: &Db, settings: Settings) -> Driver {
        Driver::begin(&db.session().await, async || db.session().await, settings).await
    }

    /// Makes a catalog in any database. In runs through the SQL API, `first` installs the extension and
    /// stores the settings. Afterwards `connect` opens the driver's session, so that the session has the
    /// settings.
    pub(crate) async fn begin(
        first: &Session,
        connect: impl AsyncFnOnce() -> Session,
        settings: Settings,
    ) -> Driver {
        if sql_api::is_meant() {
            sql_api::install(first, &settings).await;
        }
        let mut trickle = Trickle::attach(connect().await, settings).await.unwrap();
        trickle.init().await.unwrap();
        Driver::beside_statements(trickle).await
    }

    /// Makes a driver of a connection in which the test also runs its own statements. The connection gets the
    /// search path of its role.
    pub(crate) async fn beside_statements(trickle: Trickle) -> Driver {
        trickle.connection().client().batch_execute("RESET search_path").await.unwrap();
        Driver::of(trickle)
    }

    /// Opens a driver as a role that is no superuser. With the extension the role first gets its rights by
    /// `grant_to`.
    pub(crate) async fn open_as(db: &Db, role: &str, settings: Settings) -> Driver {
        let admin = db.session().await;
        let create =
            "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO ROLE', current_database()); END $$";
        run(&admin, &create.replace("ROLE", role)).await;
        let connect = async || {
            if sql_api::is_meant() {
                run(&admin, &format!("SELECT pgtrickle.grant_to('{role}')")).await;
            }
            let s = db.session().await;
            run(&s, &format!("SET SESSION AUTHORIZATION {role}")).await;
            s
        };
        Driver::begin(&admin, connect, settings).await
    }

    pub(crate) fn with_connections(self, connections: Arc<dyn Connections>) -> Driver {
        Driver { trickle: self.trickle.with_connections(connections), ..self }
    }

    pub(crate) fn with_progress(self, progress: Arc<dyn Progress>) -> Driver {
        Driver { trickle: self.trickle.with_progress(progress), ..self }
    }

    pub(crate) async fn create(&mut self, new: &NewStreamTable) -> Result<Created> {
        // Only the program can poll sources by copies, and can create a stream table with settings of another
        // role.
        if self.by_sql && !new.snapshots && new.settings.is_none() {
            return sql_api::create(&self.trickle, new).await;
        }
        self.trickle.create(new).await
    }

    pub(crate) async fn alter(&mut self, name: &Name, wanted: &Alteration) -> Result<Created> {
        if self.by_sql {
            return sql_api::alter(&self.trickle, name, wanted).await;
        }
        self.trickle.alter(name, wanted).await
    }

    pub(crate) async fn drop(&mut self, name: &Name, cascade: bool) -> Result<Vec<String>> {
        if self.by_sql {
            return sql_api::drop(&self.trickle, name, cascade).await;
        }
        self.trickle.drop(name, cascade).await
    }

    pub(crate) async fn refresh(
        &mut self,
        names: &[Name],
        options: &RefreshOptions,
    ) -> Result<Vec<Refreshed>> {
        if self.by_sql && sql_api::has(&self.trickle, names, options).await? {
            return sql_api::refresh(&self.trickle, names, options.full).await;
        }
        self.trickle.refresh(names, options).await
    }

    /// Refreshes all stream tables of the current role.
    pub(crate) async fn refresh_all(&mut self, options: &RefreshOptions) -> Result<Vec<Refreshed>> {
        let names = sql_api::own(&self.trickle).await?;
        if self.by_sql && sql_api::has(&self.trickle, &names, options).await? {
            return sql_api::refresh(&self.trickle, &names, options.full).await;
        }
        self.trickle.refresh_all(options).await
    }

    /// Removes the catalog with all its objects. With the extension, also removes every object that depends
    /// on the extension.
    pub(crate) async fn uninstall(&mut self, cascade: bool) -> Result<Vec<String>> {
        if self.by_sql {
            let gone = sql_api::own(&self.trickle).await?;
            run(self.connection(), "DROP EXTENSION pg_trickle CASCADE").await;
            return Ok(gone.iter().map(Name::to_string).collect());
        }
        self.trickle.uninstall(cascade).await
    }

    /// Whether this run uses the SQL API.
    pub(crate) fn is_the_servers() -> bool {
        sql_api::is_meant()
    }

    /// Whether a refresh by another role runs with the rights of the stream table's owner. The
    /// library refuses such a refresh.
    pub(crate) fn refreshes_as_owner() -> bool {
        sql_api::is_meant()
    }

    /// Whether dropping a stream table also drops its hidden objects, by event triggers.
    pub(crate) fn is_told_of_drops() -> bool {
        sql_api::is_meant()
    }

    /// Whether the catalog keeps the note of a failed refresh. When a call of an SQL function fails, the call
    /// and its note are rolled back.
    pub(crate) fn notes_failures() -> bool {
        !sql_api::is_meant()
    }
}
