//! The SQL API's functions that create, alter, refresh and drop stream tables, in schema `pgtrickle`.

use crate::gucs;
use crate::inside::{attempt, done};
use crate::raise::raise_in;
use crate::unsafe_pg::{Acting, Path, SHUT, ServerConnection};
use crate::workers;
use pgrx::prelude::*;
use trickle_engine::db::Connection;
use trickle_engine::schema::LETS_OWNER_IN;
use trickle_engine::{
    Alteration, Created, Error, IfExists, Name, NewStreamTable, RefreshMode, RefreshOptions, Result, Trickle,
};

#[pg_schema]
mod pgtrickle {
    use crate::unsafe_pg::ServerConnection;
    use pgrx::prelude::*;
    use trickle_engine::IfExists;

    /// Returns the version of the extension's library.
    #[pg_extern(immutable, parallel_safe)]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Returns the number of the last command of this transaction.
    #[pg_extern(volatile)]
    fn last_command() -> i64 {
        i64::from(ServerConnection::last_command())
    }

    /// Creates a stream table; returns its `pgt_id`.
    #[pg_extern]
    #[allow(clippy::too_many_arguments, reason = "the names and defaults are the interface")]
    fn create_stream_table(
        name: Option<&str>,
        query: Option<&str>,
        schedule: default!(Option<&str>, "'calculated'"),
        refresh_mode: default!(Option<&str>, "'AUTO'"),
        initialize: default!(Option<bool>, true),
        cdc_mode: default!(Option<&str>, "NULL"),
        append_only: default!(Option<bool>, false),
        diamond_consistency: default!(Option<&str>, "NULL"),
    ) -> i64 {
        let options =
            super::Options { schedule, refresh_mode, initialize, cdc_mode, append_only, diamond_consistency };
        super::create(name, query, &options, IfExists::Fail)
    }

    /// Creates a stream table unless one of this name exists; returns its `pgt_id`.
    #[pg_extern]
    #[allow(clippy::too_many_arguments, reason = "the names and defaults are the interface")]
    fn create_stream_table_if_not_exists(
        name: Option<&str>,
        query: Option<&str>,
        schedule: default!(Option<&str>, "'calculated'"),
        refresh_mode: default!(Option<&str>, "'AUTO'"),
        initialize: default!(Option<bool>, true),
        cdc_mode: default!(Option<&str>, "NULL"),
        append_only: default!(Option<bool>, false),
        diamond_consistency: default!(Option<&str>, "NULL"),
    ) -> i64 {
        let options =
            super::Options { schedule, refresh_mode, initialize, cdc_mode, append_only, diamond_consistency };
        super::create(name, query, &options, IfExists::Skip)
    }

    /// Creates a stream table, or changes the query of the stream table with this name; returns its `pgt_id`.
    /// An existing stream table keeps its indexes, grants, comments and dependent views.
    #[pg_extern]
    #[allow(clippy::too_many_arguments, reason = "the names and defaults are the interface")]
    fn create_or_replace_stream_table(
        name: Option<&str>,
        query: Option<&str>,
        schedule: default!(Option<&str>, "'calculated'"),
        refresh_mode: default!(Option<&str>, "'AUTO'"),
        initialize: default!(Option<bool>, true),
        cdc_mode: default!(Option<&str>, "NULL"),
        append_only: default!(Option<bool>, false),
        diamond_consistency: default!(Option<&str>, "NULL"),
    ) -> i64 {
        let options =
            super::Options { schedule, refresh_mode, initialize, cdc_mode, append_only, diamond_consistency };
        super::create(name, query, &options, IfExists::Replace)
    }

    /// Changes the query, schedule, mode, status ('ACTIVE' or 'SUSPENDED') or `diamond_consistency` of a
    /// stream table. NULL leaves a property as it is.
    #[pg_extern(name = "alter_stream_table")]
    fn alter_stream_table_apart(
        name: Option<&str>,
        query: default!(Option<&str>, "NULL"),
        schedule: default!(Option<&str>, "NULL"),
        refresh_mode: default!(Option<&str>, "NULL"),
        status: default!(Option<&str>, "NULL"),
        diamond_consistency: default!(Option<&str>, "NULL"),
    ) {
        let changes = super::Changes { query, schedule, refresh_mode, status, diamond_consistency };
        super::alter(super::given("name", name), &changes);
    }

    /// Alters a stream table as version 0.1.0 declares the function, with fewer arguments. Databases call
    /// this function until ALTER EXTENSION … UPDATE.
    #[pg_extern(sql = false)]
    fn alter_stream_table(
        name: Option<&str>,
        query: Option<&str>,
        schedule: Option<&str>,
        refresh_mode: Option<&str>,
        status: Option<&str>,
    ) {
        super::alter(
            super::given("name", name),
            &super::Changes { query, schedule, refresh_mode, status, ..super::Changes::default() },
        );
    }

    /// Drops a stream table; with `cascade`, also the objects that depend on it.
    #[pg_extern]
    fn drop_stream_table(name: Option<&str>, cascade: default!(Option<bool>, false)) {
        let (name, cascade) = (super::given("name", name), cascade.unwrap_or(false));
        super::as_owner(name, "", async |trickle, name| trickle.drop(name, cascade).await.map(drop));
    }

    /// Refreshes a stream table and the stream tables that it reads.
    #[pg_extern]
    fn refresh_stream_table(name: Option<&str>) {
        super::refresh(super::given("name", name));
    }

    /// Makes missing or broken objects of a stream table again, and recomputes it.
    #[pg_extern]
    fn repair_stream_table(name: Option<&str>) {
        super::as_owner(super::given("name", name), "", async |trickle, name| {
            super::see_all("repair_stream_table")?;
            super::captures()?;
            trickle.repair(name).await.map(drop)
        });
    }

    /// Suspends stream tables, by default all of the current role; returns how many were not suspended
    /// before.
    #[pg_extern]
    fn pause_scheduler(names: default!(Option<Vec<Option<String>>>, "NULL")) -> i32 {
        super::suspend(names, true)
    }

    /// Resumes stream tables, by default all of the current role; returns how many were suspended before.
    #[pg_extern]
    fn resume_scheduler(names: default!(Option<Vec<Option<String>>>, "NULL")) -> i32 {
        super::suspend(names, false)
    }

    /// Makes those capture triggers again that are broken, or that differ from the settings
    /// pg_trickle.cdc_trigger_mode and pg_trickle.change_buffer_unlogged. Returns their tables. The next
    /// refresh recomputes the readers of these tables.
    #[pg_extern]
    fn rebuild_cdc_triggers() -> SetOfIterator<'static, String> {
        let rebuilt = super::with(async |trickle| {
            super::see_all("rebuild_cdc_triggers")?;
            super::captures()?;
            trickle.rebuild_triggers(&[]).await
        });
        SetOfIterator::new(rebuilt)
    }

    /// Resumes a suspended stream table.
    #[pg_extern]
    fn resume_stream_table(name: Option<&str>) {
        let name = super::given("name", name);
        super::alter(name, &super::Changes { status: Some("ACTIVE"), ..super::Changes::default() });
    }
}

/// Options of a new stream table. NULL stands for the default, except for the schedule, where NULL means that
/// only refreshes by hand are made.
struct Options<'o> {
    schedule: Option<&'o str>,
    refresh_mode: Option<&'o str>,
    initialize: Option<bool>,
    cdc_mode: Option<&'o str>,
    append_only: Option<bool>,
    diamond_consistency: Option<&'o str>,
}

/// Properties of a stream table that are to be changed; `None` leaves a property as it is.
#[derive(Default)]
struct Changes<'c> {
    query: Option<&'c str>,
    schedule: Option<&'c str>,
    refresh_mode: Option<&'c str>,
    status: Option<&'c str>,
    diamond_consistency: Option<&'c str>,
}

/// Returns the value of an argument that must not be NULL; raises an error if it is NULL.
fn given<T>(argument: &str, value: Option<T>) -> T {
    value.unwrap_or_else(|| {
        let error = Error::input(format!("the argument {argument} is NULL or holds NULL")).coded("22004");
        raise_in(&error.hint(format!("Give {argument} a value: nothing stands for a name or a query.")), None)
    })
}

/// Runs `work` on the database's stream tables. Raises the error of `work` only after everything that `work`
/// began has ended.
pub(crate) fn with<T>(work: impl AsyncFnOnce(&mut Trickle<ServerConnection>) -> Result<T>) -> T {
    about(None, work)
}

/// Runs `work` like [`with`]; an error may have a position in `query`.
pub(crate) fn about<T>(
    query: Option<&str>,
    work: impl AsyncFnOnce(&mut Trickle<ServerConnection>) -> Result<T>,
) -> T {
    match done(async { attempt(ServerConnection::enter(), gucs::of_calls(), work).await }) {
        Ok(done) => done,
        Err(e) => raise_in(&e, query),
    }
}

/// The privilege on a table that allows refreshing it, from PostgreSQL 17 on.
const MAINTAIN: &str = "MAINTAIN";

/// Returns the query for the owner of a table, if that owner is another role and the current role may act as
/// the owner. The current role needs membership in the owner, or privilege `$2` on the table where the server
/// knows that privilege.
fn others() -> String {
    format!(
        "SELECT c.relowner, n.nspname, c.relname, c.oid, \
    {LETS_OWNER_IN} FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.oid = $1 AND pg_get_userbyid(c.relowner) <> current_user AND (pg_has_role(c.relowner, 'USAGE') \
    OR CASE WHEN $2 <> '' AND current_setting('server_version_num')::int >= 170000 THEN has_table_privilege(c.oid, $2) END)"
    )
}

/// Runs `work` on a stream table as its owner, if the current role may act as the owner. The functions that
/// `work` calls then have no more rights than the owner, and leave nothing behind in this session. Otherwise
/// `work` runs as the current role.
pub(crate) fn as_owner<T>(
    name: &str,
    right: &str,
    work: impl AsyncFnOnce(&mut Trickle<ServerConnection>, &Name) -> Result<T>,
) -> T {
    as_owner_about(name, right, None, work)
}

/// Runs `work` like [`as_owner`]; an error may have a position in `query`.
fn as_owner_about<T>(
    name: &str,
    right: &str,
    query: Option<&str>,
    work: impl AsyncFnOnce(&mut Trickle<ServerConnection>, &Name) -> Result<T>,
) -> T {
    let done = done(async {
        let name = Name::parse(name)?;
        let inside = ServerConnection::enter();
        let db: &dyn Connection = &inside;
        let fail = |e| Error::server("look whose the table is", e);
        let meant = "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid";
        let meant = db.query_one(meant, &[&name.to_string()]).await.map_err(fail)?;
        let table: Option<u32> = meant.get(0);
        // Only the name is looked up in the user's search path. The following queries find built-in names
        // only.
        let shut = Path::begin(SHUT);
        let others = db.query_opt(&others(), &[&table, &right]).await;
        drop(shut);
        let others = others.map_err(fail)?;
        let Some(others) = others else {
            return attempt(inside, gucs::of_calls(), async |trickle| work(trickle, &name).await).await;
        };
        let name = Name { schema: Some(others.get(1)), name: others.get(2) };
        if !others.get::<bool>(4) {
            // The stream table has a new owner, who has no access to the catalog yet.
            let text = format!("SELECT pgtrickle.let_in_owners('{{{}}}')", others.get::<u32>(3));
            let let_in = Connection::as_catalog_owner(&inside, &text).await;
            let_in.map_err(|e| Error::server("let the owner of a stream table use the catalog", e))?;
        }
        let _acting = Acting::begin(others.get(0));
        if right == MAINTAIN {
            // The current role may have only the privilege MAINTAIN, without being a member of the owner. So
            // the search path of the current role must not choose the functions that the owner's query calls.
            let pinned =
                Connection::batch(&inside, &format!("SET search_path = {}", trickle_engine::SHUT)).await;
            pinned.map_err(|e| Error::server("begin", e))?;
        }
        attempt(inside, gucs::of_calls(), async |trickle| work(trickle, &name).await).await
    });
    match done {
        Ok(done) => done,
        Err(e) => raise_in(&e, query),
    }
}

/// Returns the name with the schema in which a new table would be created. A table of the same name in
/// another schema is a different one.
fn placed(name: &str) -> String {
    let placed = done(async {
        let name = Name::parse(name)?;
        if name.schema.is_some() {
            return Ok(name.to_string());
        }
        let inside = ServerConnection::enter();
        let db: &dyn Connection = &inside;
        let asked = db.query_one("SELECT pg_catalog.current_schema()::pg_catalog.text", &[]).await;
        let schema = asked.map_err(|e| Error::server("look for the schema of a new table", e))?.get(0);
        Ok(Name { schema, ..name }.to_string())
    });
    match placed {
        Ok(name) => name,
        Err(e) => raise_in(&e, None),
    }
}

fn create(name: Option<&str>, query: Option<&str>, options: &Options<'_>, if_exists: IfExists) -> i64 {
    let (name, query) = (given("name", name), given("query", query));
    let make = async |trickle: &mut Trickle<ServerConnection>, name: &Name| {
        see_all("create_stream_table")?;
        options.check()?;
        let mut new = NewStreamTable::new(name.clone(), query);
        new.schedule = Some(options.schedule.and_then(schedule));
        new.mode = Some(mode(options.refresh_mode.unwrap_or("AUTO"))?);
        new.initialize = options.initialize.unwrap_or(true);
        new.apart = options.diamond_consistency.map(is_apart).transpose()?;
        new.if_exists = if_exists;
        trickle.create(&new).await
    };
    // Replacing alters an existing stream table; a role that may act as its owner may do that.
    let created = match if_exists {
        IfExists::Replace => as_owner_about(&placed(name), "", Some(query), make),
        IfExists::Fail | IfExists::Skip => {
            about(Some(query), async |trickle| make(trickle, &Name::parse(name)?).await)
        }
    };
    if options.append_only == Some(true) {
        pgrx::notice!("append_only changes nothing: what comes and what goes is captured and followed");
    }
    tell(&created);
    created.id
}

/// Returns an error where a statement of this transaction may miss rows that were committed before the
/// statement. A fill must see every row that was committed before capture began.
fn see_all(function: &str) -> Result<()> {
    match ServerConnection::is_fresh() {
        true => Ok(()),
        false => Err(Error::input(format!(
            "{function} fills a table from all that is committed, and this transaction may not see that"
        ))
        .hint("Call it at READ COMMITTED.")),
    }
}

impl Options<'_> {
    /// Fails if the requested capture mode does not exist. The option names the mode; without the option, the
    /// setting does.
    fn check(&self) -> Result<()> {
        match self.cdc_mode.map(str::to_ascii_lowercase).as_deref() {
            None => captures()?,
            Some("auto" | "trigger") => {}
            Some("wal") => return Err(no_wal("Use cdc_mode => 'trigger'.")),
            Some(other) => {
                return Err(Error::input(format!("there is no cdc_mode \"{other}\""))
                    .hint("Use 'auto' or 'trigger'."));
            }
        }
        Ok(())
    }
}

/// Fails if the setting asks for capture from the WAL.
fn captures() -> Result<()> {
    if gucs::is_wal_wanted() { Err(no_wal("Set pg_trickle.cdc_mode to auto or trigger.")) } else { Ok(()) }
}

fn no_wal(hint: &str) -> Error {
    Error::input("capture from the WAL is not built yet").hint(hint)
}

/// Whether this `diamond_consistency` means that a stream table is refreshed in a transaction of its own,
/// after the stream tables that it reads.
fn is_apart(consistency: &str) -> Result<bool> {
    match consistency.to_ascii_lowercase().as_str() {
        "atomic" => Ok(false),
        "none" => Ok(true),
        _ => Err(Error::input(format!("there is no diamond_consistency \"{consistency}\""))
            .hint("Use 'atomic' or 'none'.")),
    }
}

/// Tells the user that a stream table is kept by full refreshes, and why deltas are not possible.
fn tell(created: &Created) {
    for reason in created.reasons.iter().filter(|_| created.made) {
        pgrx::notice!("{} is kept by full refreshes: {reason}", created.name);
    }
}

fn alter(name: &str, changes: &Changes<'_>) {
    let created = as_owner_about(name, "", changes.query, async |trickle, name| {
        if changes.query.is_some() || changes.refresh_mode.is_some() {
            see_all("alter_stream_table")?;
            captures()?;
        }
        let suspended = match changes.status.map(str::to_ascii_uppercase).as_deref() {
            None => None,
            Some("ACTIVE") => Some(false),
            Some("SUSPENDED") => Some(true),
            Some(other) => {
                let error = Error::input(format!("a stream table cannot be made \"{other}\""));
                return Err(error.hint("Use 'ACTIVE' or 'SUSPENDED'."));
            }
        };
        let wanted = Alteration {
            query: changes.query.map(str::to_owned),
            schedule: changes.schedule.map(schedule),
            mode: changes.refresh_mode.map(mode).transpose()?,
            apart: changes.diamond_consistency.map(is_apart).transpose()?,
            suspended,
        };
        trickle.alter(name, &wanted).await
    });
    tell(&created);
}

fn suspend(names: Option<Vec<Option<String>>>, suspended: bool) -> i32 {
    let done = match names.map(|names| names.into_iter().map(|n| given("names", n)).collect::<Vec<_>>()) {
        None => with(async |trickle| trickle.set_suspended(None, suspended).await).len(),
        Some(names) => {
            let one = |name: &String| {
                as_owner(name, "", async |trickle, name| {
                    trickle.set_suspended(Some(std::slice::from_ref(name)), suspended).await
                })
            };
            names.iter().map(|name| one(name).len()).sum()
        }
    };
    i32::try_from(done).unwrap_or(i32::MAX)
}

/// Refreshes a stream table. The refresh suspends a stream table that cannot be planned any more, but the
/// error of this call rolls the suspension back. So another process suspends the stream table afterwards.
fn refresh(name: &str) {
    as_owner(name, MAINTAIN, async |trickle, name| {
        let done = trickle.refresh(std::slice::from_ref(name), &RefreshOptions::default()).await;
        if let (Err(_), Some(id)) = (&done, trickle.unplannable()) {
            workers::suspend_after(id);
        }
        done.map(drop)
    });
}

/// Returns the schedule; `None` means that only refreshes by hand are made.
fn schedule(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|s| !s.eq_ignore_ascii_case("manual"))
}

fn mode(name: &str) -> Result<RefreshMode> {
    let found = RefreshMode::ALL.iter().find(|mode| mode.name().eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| {
        Error::input(format!("there is no refresh_mode \"{name}\""))
            .hint("Use 'AUTO', 'DIFFERENTIAL', 'FULL' or 'IMMEDIATE'.")
    })
}
