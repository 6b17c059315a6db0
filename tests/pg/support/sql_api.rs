//! The same tests through the SQL API of the extension, where a run asks for that: `TRICKLE_THROUGH=extension`. Stream tables are
//! made and refreshed by its functions then; what was stored is still compared by the library.

use super::{Db, name, run};
use std::sync::OnceLock;
use trickle_client::{Refreshed, Result, Settings, Trickle};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;
use trickle_core::refresh::{Action, MemberReport, Phases};
use trickle_engine::Error;
use trickle_engine::db::Refusal;

/// Whether tests go through the extension.
pub(crate) fn is_meant() -> bool {
    static MEANT: OnceLock<bool> = OnceLock::new();
    *MEANT.get_or_init(|| std::env::var("TRICKLE_THROUGH").is_ok_and(|t| t == "extension"))
}

/// Makes the extension, and the settings those of all sessions that come.
pub(crate) async fn install(db: &Db, settings: &Settings) {
    let s = db.session().await;
    let there = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trickle')";
    if !s.client().query_one(there, &[]).await.unwrap().get::<_, bool>(0) {
        run(&s, "CREATE SCHEMA extensions; CREATE EXTENSION pg_trickle SCHEMA extensions").await;
    }
    let strategy = match settings.force {
        Some(Force::Full) => "full",
        Some(Force::Incremental) => "differential",
        None => "auto",
    };
    let mode = if settings.capture.mode == Mode::Row { "row" } else { "statement" };
    let unlogged = if settings.capture.unlogged { "on" } else { "off" };
    for (setting, value) in
        [("refresh_strategy", strategy), ("cdc_trigger_mode", mode), ("change_buffer_unlogged", unlogged)]
    {
        // The library knows the settings' names once it is loaded.
        let text = format!(
            "SELECT pgtrickle.version(); \
             DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET pg_trickle.{setting} = {value}', current_database()); END $$"
        );
        run(&s, &text).await;
    }
}

pub(crate) async fn create(t: &Trickle, what: &str, query: &str) {
    create_as(t, what, query, "AUTO").await;
}

/// The same, kept in this way.
pub(crate) async fn create_as(t: &Trickle, what: &str, query: &str, mode: &str) {
    let text = "SELECT pgtrickle.create_stream_table($1::text, $2::text, refresh_mode => $3::text)";
    let made = t.connection().client().query_one(text, &[&what, &query, &mode]).await;
    made.unwrap_or_else(|e| panic!("{what}: {e:?}"));
}

/// What the history says was done.
pub(crate) async fn refresh(t: &Trickle, what: &str) -> Result<Vec<Refreshed>> {
    let client = t.connection().client();
    let last = "SELECT coalesce(max(refresh_id), 0) FROM pgtrickle.pgt_refresh_history";
    let last: i64 = client.query_one(last, &[]).await.unwrap().get(0);
    let text = "SELECT pgtrickle.refresh_stream_table($1::text)";
    if let Err(e) = client.query_one(text, &[&what]).await {
        let db = e.as_db_error().unwrap_or_else(|| panic!("{what}: {e:?}"));
        let e = Error::server(format!("refresh {what}"), Refusal::new(db.code().code(), db.message()));
        return Err(e.hint(db.hint().unwrap_or_default()));
    }
    let done = "SELECT s.pgt_id, h.action, coalesce(h.strategy_reason, ''), h.rows_inserted, h.rows_updated, h.rows_deleted, \
         h.delta_row_count FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
         WHERE h.refresh_id > $1 ORDER BY h.refresh_id";
    let rows = client.query(done, &[&last]).await.unwrap();
    let registry = t.registry().await?;
    let report = |r: &tokio_postgres::Row| {
        let mut report = MemberReport::no_data(r.get(0), &registry.get(r.get(0)).unwrap().relation);
        let actions = [Action::Full, Action::Differential, Action::Reinitialize, Action::NoData];
        report.action = *actions.iter().find(|a| a.name() == r.get::<_, &str>(1)).unwrap();
        report.reason = r.get(2);
        let count = |i| r.get::<_, Option<i64>>(i).unwrap_or(0);
        (report.rows_inserted, report.rows_updated, report.rows_deleted) = (count(3), count(4), count(5));
        report.delta_rows = count(6);
        Refreshed { report, shared: Phases::default() }
    };
    let mut done: Vec<Refreshed> = rows.iter().map(report).collect();
    let e = t.find(&name(what)).await?;
    if done.iter().all(|d| d.report.id != e.id) {
        // That nothing changed is not noted.
        done.push(Refreshed { report: MemberReport::no_data(e.id, &e.relation), shared: Phases::default() });
    }
    Ok(done)
}
