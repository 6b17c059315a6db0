//! Runs the tests through the SQL API of the extension if `TRICKLE_THROUGH=extension` is set. Functions of
//! the extension then create, alter, refresh and drop stream tables. The library still compares the stored
//! rows.

use super::{count, run};
use std::sync::OnceLock;
use tokio_postgres::types::ToSql;
use trickle_client::{
    Alteration, Created, IfExists, Name, NewStreamTable, RefreshMode, RefreshOptions, Refreshed, Result,
    Session, Settings, Trickle,
};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;
use trickle_core::refresh::{Action, MemberReport, Phases};
use trickle_engine::Error;
use trickle_engine::db::ServerError;

/// Whether this run uses the SQL API of the extension.
pub(crate) fn is_meant() -> bool {
    static MEANT: OnceLock<bool> = OnceLock::new();
    *MEANT.get_or_init(|| std::env::var("TRICKLE_THROUGH").is_ok_and(|t| t == "extension"))
}

/// Creates the extension if it is missing, and stores the settings for all later sessions of the database.
pub(crate) async fn install(s: &Session, settings: &Settings) {
    let there = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trickle')";
    if !s.client().query_one(there, &[]).await.unwrap().get::<_, bool>(0) {
        run(s, "CREATE SCHEMA extensions; CREATE EXTENSION pg_trickle SCHEMA extensions").await;
    }
    let strategy = match settings.force {
        Some(Force::Full) => "full",
        Some(Force::Incremental) => "differential",
        None => "auto",
    };
    let mode = if settings.capture.mode == Mode::Row { "row" } else { "statement" };
    let unlogged = if settings.capture.unlogged { "on" } else { "off" };
    let segment = settings.segment_bytes.to_string();
    for (setting, value) in [
        ("refresh_strategy", strategy),
        ("cdc_trigger_mode", mode),
        ("change_buffer_unlogged", unlogged),
        ("segment_bytes", &segment),
    ] {
        // Calling a function loads the library, so that the session knows the names of the settings.
        let text = format!(
            "SELECT pgtrickle.version(); \
             DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET pg_trickle.{setting} = {value}', current_database()); END $$"
        );
        run(s, &text).await;
    }
}

/// Calls a function. A refusal is returned as an error of the library's type.
async fn call(t: &Trickle, text: &str, given: &[&(dyn ToSql + Sync)]) -> Result<()> {
    let client = t.connection().client();
    let path: String = client.query_one("SHOW search_path", &[]).await.unwrap().get(0);
    // A client calls functions under its own search path. So the restricted path of the library's connection
    // is reset for the call.
    let is_shut = path == "pg_catalog, pg_temp";
    if is_shut {
        client.batch_execute("RESET search_path").await.unwrap();
    }
    let called = client.query(text, given).await;
    if is_shut {
        let _ = client.batch_execute("SET search_path = pg_catalog, pg_temp").await;
    }
    let Err(e) = called else { return Ok(()) };
    let db = e.as_db_error().unwrap_or_else(|| panic!("{text}: {e:?}"));
    let answered = ServerError::new(db.code().code(), db.message());
    let answered = answered.with_detail(db.detail()).with_hint(db.hint());
    let said = Error::server("call a function", answered).saying(db.message());
    // The extension raises an error without an SQLSTATE of its own as an invalid parameter. A refused query
    // has an SQLSTATE of syntax or of an unsupported feature.
    let is_input = ["22023", "42", "0A"].iter().any(|class| db.code().code().starts_with(class));
    Err(if is_input { said.blamed_on_input() } else { said })
}

/// Returns the properties of a stream table after a call that created or altered it.
async fn made(t: &Trickle, name: &Name, made: bool) -> Result<Created> {
    let e = t.find(name).await?;
    Ok(Created { id: e.id, name: e.relation.name.to_string(), made, mode: e.mode, reasons: Vec::new() })
}

/// Returns the argument for `diamond_consistency`.
fn consistency(apart: Option<bool>) -> Option<&'static str> {
    apart.map(|apart| if apart { "none" } else { "atomic" })
}

pub(crate) async fn create(t: &Trickle, new: &NewStreamTable) -> Result<Created> {
    let function = match new.if_exists {
        IfExists::Fail => "create_stream_table",
        IfExists::Skip => "create_stream_table_if_not_exists",
        IfExists::Replace => "create_or_replace_stream_table",
    };
    let there = t.find(&new.name).await.is_ok();
    let text = format!(
        "SELECT pgtrickle.{function}($1::text, $2::text, schedule => $3::text, refresh_mode => $4::text, initialize => $5::bool, \
         diamond_consistency => $6::text)"
    );
    let schedule = new.schedule.clone().unwrap_or_else(|| Some("calculated".to_owned()));
    let mode = new.mode.map(RefreshMode::name);
    let apart = consistency(new.apart);
    let name = new.name.to_string();
    call(t, &text, &[&name, &new.query, &schedule, &mode, &new.initialize, &apart]).await?;
    made(t, &new.name, !(there && new.if_exists == IfExists::Skip)).await
}

pub(crate) async fn alter(t: &Trickle, name: &Name, wanted: &Alteration) -> Result<Created> {
    let text =
        "SELECT pgtrickle.alter_stream_table($1::text, $2::text, $3::text, $4::text, $5::text, $6::text)";
    let schedule = wanted.schedule.clone().map(|s| s.unwrap_or_else(|| "manual".to_owned()));
    let mode = wanted.mode.map(RefreshMode::name);
    let status = wanted.suspended.map(|suspended| if suspended { "SUSPENDED" } else { "ACTIVE" });
    let apart = consistency(wanted.apart);
    call(t, text, &[&name.to_string(), &wanted.query, &schedule, &mode, &status, &apart]).await?;
    made(t, name, true).await
}

/// Drops a stream table, and returns the names of all stream tables that were dropped.
pub(crate) async fn drop(t: &Trickle, name: &Name, cascade: bool) -> Result<Vec<String>> {
    let before = own(t).await?;
    let text = "SELECT pgtrickle.drop_stream_table($1::text, $2::bool)";
    call(t, text, &[&name.to_string(), &cascade]).await?;
    let left = own(t).await?;
    Ok(before.iter().filter(|n| !left.contains(n)).map(Name::to_string).collect())
}

/// Whether the SQL API can do a refresh with these options. Some options are only for refreshes on schedule.
/// For an IMMEDIATE stream table the SQL API has only a repair, which waits for all writers.
pub(crate) async fn has(t: &Trickle, names: &[Name], options: &RefreshOptions) -> Result<bool> {
    for name in names {
        if options.full && t.find(name).await?.is_immediate() {
            return Ok(false);
        }
    }
    Ok(options.polled.is_none()
        && options.initiated_by == trickle_client::Initiator::Manual
        && options.lease.is_none())
}

/// Returns the current role's stream tables.
pub(crate) async fn own(t: &Trickle) -> Result<Vec<Name>> {
    let registry = t.registry().await?;
    registry.entries().filter(|e| e.own && e.exists).map(|e| Name::parse(e.relation.name.as_ref())).collect()
}

/// Refreshes the stream tables in one statement, so that all have the same time of the clock. The report of a
/// stream table is its first new entry in the history. There may be several new entries, since a source of
/// several stream tables may be refreshed several times. Refreshes by the server's scheduler are left out. A
/// full refresh uses `repair_stream_table`.
pub(crate) async fn refresh(t: &Trickle, names: &[Name], full: bool) -> Result<Vec<Refreshed>> {
    let client = t.connection().client();
    let last = "SELECT coalesce(max(refresh_id), 0) FROM pgtrickle.pgt_refresh_history";
    let last: i64 = client.query_one(last, &[]).await.unwrap().get(0);
    let function = if full { "repair_stream_table" } else { "refresh_stream_table" };
    let text = format!("SELECT pgtrickle.{function}(n) FROM unnest($1::text[]) n");
    call(t, &text, &[&names.iter().map(Name::to_string).collect::<Vec<_>>()]).await?;
    let done = "SELECT s.pgt_id, h.action, coalesce(h.strategy_reason, ''), h.rows_inserted, h.rows_updated, h.rows_deleted, \
         h.delta_row_count, ((h.phase_ms->>'wait')::float8 * 1000)::int8, ((h.phase_ms->>'decide')::float8 * 1000)::int8 \
         FROM (SELECT DISTINCT ON (pgt_id) * FROM pgtrickle.pgt_refresh_history WHERE refresh_id > $1 AND initiated_by <> 'SCHEDULER' \
         ORDER BY pgt_id, refresh_id) h \
         JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) ORDER BY h.refresh_id";
    let rows = client.query(done, &[&last]).await.unwrap();
    let registry = t.registry().await?;
    let report = |r: &tokio_postgres::Row| {
        let mut report = MemberReport::no_data(r.get(0), &registry.get(r.get(0)).unwrap().relation);
        report.action = Action::parse(r.get(1)).unwrap();
        report.reason = r.get(2);
        let count = |i| r.get::<_, Option<i64>>(i).unwrap_or(0);
        (report.rows_inserted, report.rows_updated, report.rows_deleted) = (count(3), count(4), count(5));
        report.delta_rows = count(6);
        let micros = |i| u64::try_from(count(i)).unwrap();
        Refreshed { report, shared: Phases { wait: micros(7), decide: micros(8), ..Phases::default() } }
    };
    let mut done: Vec<Refreshed> = rows.iter().map(report).collect();
    for name in names {
        let e = t.find(name).await?;
        if done.iter().all(|d| d.report.id != e.id) {
            // The history has no entry for a refresh without changes.
            done.push(Refreshed {
                report: MemberReport::no_data(e.id, &e.relation),
                shared: Phases::default(),
            });
        }
    }
    Ok(done)
}

/// Returns the number of refreshes by delta so far that changed rows.
pub(crate) async fn applied(t: &Trickle) -> i64 {
    let text = "SELECT count(*) FROM pgtrickle.pgt_refresh_history \
         WHERE action = 'DIFFERENTIAL' AND rows_inserted + rows_updated + rows_deleted > 0";
    count(t.connection(), text).await
}
