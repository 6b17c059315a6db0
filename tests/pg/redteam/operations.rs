//! The operations of the superuser on stream tables.

use super::world::{Kept, Place, name_of, role, run_in, say};
use crate::support::{Driver, name, sql_api};
use std::cell::RefCell;
use std::pin::Pin;
use std::time::Duration;
use trickle_client::capture::CaptureOptions;
use trickle_client::daemon::{self, DaemonOptions, Event};
use trickle_client::schema::VERSION;
use trickle_client::{
    Alteration, Connect, IfExists, NewStreamTable, RefreshMode, RefreshOptions, Result, Session, Settings,
};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;

/// The mode of a stream table with the kind of capture of its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keeping {
    /// A stream table updated by deltas. Statement triggers in PL/pgSQL capture its sources.
    Statement,
    /// A stream table updated by deltas. Row triggers capture its sources.
    Row,
    /// A stream table updated by deltas. Triggers in C capture its sources.
    Copied,
    /// A stream table updated by full refreshes.
    Full,
    /// A stream table that the statements of writers update (IMMEDIATE).
    Immediate,
}

impl Keeping {
    pub(super) const ALL: [Keeping; 5] =
        [Keeping::Statement, Keeping::Row, Keeping::Copied, Keeping::Full, Keeping::Immediate];

    pub(super) fn read(text: &str) -> Keeping {
        *Keeping::ALL
            .iter()
            .find(|k| format!("{k:?}").to_lowercase() == text)
            .unwrap_or_else(|| panic!("{text}"))
    }

    fn mode(self) -> Option<RefreshMode> {
        match self {
            // The mode AUTO uses deltas if the query has a delta.
            Keeping::Statement | Keeping::Row | Keeping::Copied => None,
            Keeping::Full => Some(RefreshMode::Full),
            Keeping::Immediate => Some(RefreshMode::Immediate),
        }
    }

    pub(super) fn settings(self) -> Settings {
        let mode = if self == Keeping::Row { Mode::Row } else { Mode::Statement };
        let force = Some(Force::Incremental);
        let capture = CaptureOptions { mode, ..CaptureOptions::default() };
        Settings { force, capture, lock_timeout_ms: 1000, ..Settings::default() }
    }

    /// Returns the value of the extension's setting for capture in C.
    pub(super) fn native(self) -> &'static str {
        if self == Keeping::Copied { "on" } else { "off" }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Create,
    Replace,
    Refresh,
    RefreshFull,
    Check,
    /// A refresh that also drains the changes that it has applied.
    Drain,
    Alter,
    Drop,
    Repair,
    /// An upgrade of the catalog, which makes all trigger functions again.
    Upgrade,
    Explain,
    /// A refresh on schedule. The test waits until the refresh has succeeded or failed.
    Run,
}

impl Operation {
    pub(super) const ALL: [Operation; 12] = [
        Operation::Create,
        Operation::Replace,
        Operation::Refresh,
        Operation::RefreshFull,
        Operation::Check,
        Operation::Drain,
        Operation::Alter,
        Operation::Drop,
        Operation::Repair,
        Operation::Upgrade,
        Operation::Explain,
        Operation::Run,
    ];

    /// Whether the operation contains the query again. The owner thereby agrees to the functions that
    /// the query names.
    pub(super) fn gives(self) -> bool {
        matches!(self, Operation::Create | Operation::Replace | Operation::Alter | Operation::Drop)
    }
}

/// Returns the declaration of the superuser's stream table.
pub(super) fn new(what: &str, query: &str, keeping: Keeping) -> NewStreamTable {
    let schedule = Some((keeping != Keeping::Immediate).then(|| "1h".to_owned()));
    NewStreamTable { mode: keeping.mode(), schedule, ..NewStreamTable::new(name(what), query) }
}

/// Does an operation on the attacked stream table, or on another stream table with the same query.
pub(super) async fn work(
    place: &Place,
    t: &mut Driver,
    admin: &Session,
    kept: &Kept<'_>,
    what: Operation,
) -> std::result::Result<(), String> {
    let Kept { keeping, target, query } = *kept;
    let through = Driver::is_the_servers();
    let kept = name(target);
    let refused = |e: trickle_client::Error| format!("{e:?}");
    match what {
        Operation::Create => t.create(&new("again", query, keeping)).await.map(drop).map_err(refused),
        Operation::Replace => {
            let wanted = NewStreamTable {
                if_exists: IfExists::Replace,
                ..new(target, &format!("SELECT q.* FROM ({query}) q"), keeping)
            };
            t.create(&wanted).await.map(drop).map_err(refused)
        }
        Operation::Refresh => t.refresh(&[kept], &RefreshOptions::default()).await.map(drop).map_err(refused),
        Operation::RefreshFull => {
            let full = RefreshOptions { full: true, ..RefreshOptions::default() };
            t.refresh(&[kept], &full).await.map(drop).map_err(refused)
        }
        Operation::Check => {
            let e = t.find(&kept).await.map_err(refused)?;
            let checked = t.check(&e, 3).await.map_err(refused)?;
            if checked.different == 0 { Ok(()) } else { Err(format!("wrong: {checked:?}")) }
        }
        Operation::Drain if through => {
            let text = format!(
                "SET pg_trickle.segment_bytes = 1; SELECT pgtrickle.refresh_stream_table('{target}'); RESET pg_trickle.segment_bytes"
            );
            say(admin, &text).await
        }
        Operation::Drain => {
            t.refresh(std::slice::from_ref(&kept), &RefreshOptions::default()).await.map_err(refused)?;
            let e = t.find(&kept).await.map_err(refused)?;
            let sources: Vec<u32> = e.dependencies.iter().map(|d| d.relation.id.0).collect();
            t.empty_counted(&sources).await.map_err(refused)
        }
        Operation::Alter => {
            let query = Some(format!("SELECT * FROM ({query}) q WHERE true"));
            let wanted = Alteration { query, ..Alteration::default() };
            t.alter(&kept, &wanted).await.map(drop).map_err(refused)
        }
        Operation::Drop => {
            t.drop(&kept, true).await.map_err(refused)?;
            t.create(&new(target, query, keeping)).await.map(drop).map_err(refused)
        }
        Operation::Repair if through => {
            say(admin, &format!("SELECT pgtrickle.repair_stream_table('{target}')")).await
        }
        Operation::Repair => t.repair(&kept).await.map(drop).map_err(refused),
        Operation::Upgrade if through => {
            say(admin, "SELECT pgtrickle.release_catalog(); DROP EXTENSION pg_trickle").await?;
            let taken = say(admin, "CREATE EXTENSION pg_trickle SCHEMA extensions").await;
            // This call makes the session load the library, and so know the extension's settings.
            say(admin, "SELECT * FROM pgtrickle.rebuild_cdc_triggers()").await?;
            taken
        }
        Operation::Upgrade => {
            t.migrate(VERSION - 1).await.map_err(refused)?;
            t.migrate(VERSION).await.map(drop).map_err(refused)
        }
        Operation::Explain if through => {
            say(
                admin,
                &format!("SELECT pgtrickle.explain_st('{target}'), pgtrickle.explain_delta('{target}')"),
            )
            .await?;
            say(admin, "SELECT * FROM pgtrickle.pgt_status(); SELECT * FROM pgtrickle.health_check()").await
        }
        Operation::Explain => {
            t.explain(&kept).await.map_err(refused)?;
            t.status(&[]).await.map(drop).map_err(refused)
        }
        Operation::Run if keeping == Keeping::Immediate => {
            t.refresh(&[kept], &RefreshOptions::default()).await.map(drop).map_err(refused)
        }
        Operation::Run if through => scheduled(admin, target).await,
        Operation::Run => refresher(place, t, target).await.map_err(refused)?,
    }
}

/// Waits until the server's own workers have refreshed the stream table or failed to refresh it.
async fn scheduled(admin: &Session, target: &str) -> std::result::Result<(), String> {
    let last = "SELECT coalesce(max(refresh_id), 0) FROM pgtrickle.pgt_refresh_history";
    let last = crate::support::count(admin, last).await;
    say(admin, &format!("SELECT pgtrickle.alter_stream_table('{target}', schedule => '50ms')")).await?;
    let target_name = target.rsplit('.').next().unwrap();
    // A refresh on schedule that finds no changes leaves no history, so the test needs the writes before this
    // operation.
    let done = format!(
        "SELECT count(*) + (SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = '{target_name}' AND status <> 'ACTIVE') \
         FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
         WHERE refresh_id > {last} AND pgt_name = '{target_name}' AND initiated_by = 'SCHEDULER'"
    );
    let began = std::time::Instant::now();
    while crate::support::count(admin, &done).await == 0 {
        if began.elapsed() > Duration::from_secs(10) {
            return Err("nothing was refreshed on schedule".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let failed = format!(
        "SELECT string_agg(error_message, '; ') FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
         WHERE refresh_id > {last} AND pgt_name = '{target_name}'"
    );
    let failed: Option<String> = admin.client().query_one(&failed, &[]).await.unwrap().get(0);
    say(admin, &format!("SELECT pgtrickle.alter_stream_table('{target}', schedule => '1h')")).await?;
    failed.map_or(Ok(()), Err)
}

/// A connector that opens connections to a test's database.
struct To<'p>(&'p Place);

impl Connect for To<'_> {
    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<Session>> + '_>> {
        Box::pin(async { Ok(self.0.session("postgres").await) })
    }
}

/// Runs the program's refresher until it has refreshed the stream table or failed to refresh it.
async fn refresher(place: &Place, t: &mut Driver, target: &str) -> Result<std::result::Result<(), String>> {
    let often = Alteration { schedule: Some(Some("50ms".to_owned())), ..Alteration::default() };
    t.alter(&name(target), &often).await?;
    let mut options = DaemonOptions::default();
    options.scheduler.reload = Duration::from_millis(50);
    options.scheduler.schedule.min_period = Duration::from_millis(50);
    options.scheduler.schedule.default_period = Duration::from_millis(50);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stop = RefCell::new(Some(stop));
    let failed = RefCell::new(Ok(()));
    let tell = |event: Event<'_>| {
        let bare = target.rsplit('.').next().unwrap();
        let seen = match event {
            Event::Refreshed(done) => done.iter().any(|d| d.report.name.as_str().ends_with(bare)),
            Event::Failed { error: e, .. } | Event::Trouble(e) => {
                *failed.borrow_mut() = Err(format!("{e:?}"));
                true
            }
            Event::Suspended(_) | Event::Foreign(_) => true,
            _ => false,
        };
        if let Some(stop) = seen.then(|| stop.borrow_mut().take()).flatten() {
            let _ = stop.send(());
        }
    };
    let to = To(place);
    daemon::run(&to, &options, &tell, async {
        let _ = tokio::time::timeout(Duration::from_secs(10), stopped).await;
    })
    .await?;
    let seldom = Alteration { schedule: Some(Some("1h".to_owned())), ..Alteration::default() };
    t.alter(&name(target), &seldom).await?;
    Ok(failed.into_inner())
}

/// Makes the stream table `calm` over a table of alice. No attempt concerns this stream table. Its refresh
/// stands for refreshes of other owners.
pub(super) async fn make_calm(place: &Place, t: &mut Driver) {
    if !Driver::is_the_servers() {
        let new = NewStreamTable::new(name("calm"), name_of(place, "SELECT id, word FROM alice.vault"));
        t.create(&new).await.unwrap_or_else(|e| panic!("{e:?}"));
        return;
    }
    let s = place.session(&role(place, "alice")).await;
    let text = "SELECT pgtrickle.create_stream_table('alice.calm', 'SELECT id, word FROM alice.vault', '1h')";
    run_in(place, &s, text).await;
}

/// Refreshes the stream table `calm`, and returns the fault, if any.
pub(super) async fn calm(place: &Place, t: &mut Driver, admin: &Session) -> Option<String> {
    run_in(place, admin, "INSERT INTO alice.vault SELECT max(id) + 1, 'SECRET' FROM alice.vault").await;
    let calm = if Driver::is_the_servers() { name_of(place, "alice.calm") } else { "public.calm".to_owned() };
    let (names, options) = ([name(&calm)], RefreshOptions::default());
    let refreshed = t.refresh(&names, &options);
    match tokio::time::timeout(Duration::from_secs(10), refreshed).await {
        Err(_) => return Some("another's refresh waits".to_owned()),
        Ok(Err(e)) => return Some(format!("another's refresh fails: {e:?}")),
        Ok(Ok(_)) => {}
    }
    let (stored, wanted) = (format!("TABLE {calm}"), name_of(place, "TABLE alice.vault"));
    super::world::different(admin, &stored, &wanted).await.map_or_else(
        |e| Some(format!("another's stream table cannot be compared: {e}")),
        |n| (n != 0).then(|| format!("another's stream table is wrong in {n} rows")),
    )
}

/// Makes a catalog, and opens a driver over its database.
pub(super) async fn open(place: &Place, keeping: Keeping) -> Driver {
    let first = place.session("postgres").await;
    if Driver::is_the_servers() {
        sql_api::install(&first, &keeping.settings()).await;
        let native = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET pg_trickle.native_capture = {}', current_database()); END $$",
            keeping.native()
        );
        run_in(place, &first, &native).await;
    }
    let t = Driver::begin(&first, async || place.session("postgres").await, keeping.settings()).await;
    if Driver::is_the_servers() {
        // In this branch the queries of the library run as the superuser's own statements, and are no part of
        // the extension. So they get a safe search path.
        run_in(place, t.connection(), "SET search_path = pg_catalog, pg_temp").await;
        return t;
    }
    // The driver is opened as the program opens a database that has a catalog: with a safe search path.
    Driver::of(
        trickle_client::Trickle::open(place.session("postgres").await, keeping.settings()).await.unwrap(),
    )
}

/// Makes the catalog in a database in which mallory already acted. Returns whether the server or trickle
/// refuses the catalog.
pub(super) async fn settle(place: &Place, keeping: Keeping) -> bool {
    let first = place.session("postgres").await;
    if Driver::is_the_servers() {
        return say(&first, "CREATE SCHEMA extensions; CREATE EXTENSION pg_trickle SCHEMA extensions")
            .await
            .is_err();
    }
    match trickle_client::Trickle::attach(first, keeping.settings()).await {
        Ok(mut t) => t.init().await.is_err(),
        Err(_) => true,
    }
}
