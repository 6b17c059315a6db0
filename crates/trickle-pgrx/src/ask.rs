//! The read-only part of the SQL API: functions of schema `pgtrickle` that change nothing.

#![allow(clippy::type_complexity, reason = "the columns of a result are its interface")]

use crate::api::{about, as_owner, with};
use crate::gucs;
use crate::raise::raise_in;
use crate::unsafe_pg::{Board, Scheduled, is_preloaded};
use pgrx::prelude::*;
use std::time::Duration;
use trickle_core::graph::Format;
use trickle_core::stream_table::Refresh;
use trickle_engine::db::Connection;
use trickle_engine::health::{Check, Verdict};
use trickle_engine::scheduler::now;
use trickle_engine::words::duration;
use trickle_engine::{Error, Explained, Name, Result, Status};

/// Reports which refreshers of this database are at work, and for which roles; `None` where the library is
/// not preloaded.
async fn refreshers(db: &dyn Connection) -> Result<Option<Check>> {
    if !is_preloaded() {
        return Ok(None);
    }
    let (most, time) = (gucs::max_concurrent(), now());
    let at_work = Board::at_work(Scheduled::database().to_u32());
    let mut held = Vec::new();
    let mut longest = Duration::ZERO;
    for refresher in &at_work {
        let asked = db.query_one(NAMES, &[&refresher.role, &refresher.table]).await;
        let names = asked.map_err(|e| Error::server("name who holds a refresher", e))?;
        let (role, table): (String, String) = (names.get(0), names.get(1));
        let lasts = time.since(refresher.since);
        longest = longest.max(lasts);
        held.push(format!("{role} for {} by {table} (process {})", duration(lasts), refresher.process));
    }
    let found = match held.as_slice() {
        [] => format!("none of {most} at work"),
        held => format!("{} of {most} at work: {}", held.len(), held.join(", ")),
    };
    let verdict = if longest < LONG { Verdict::Good } else { Verdict::Warning };
    let advice = "Of several owners one has at most half of the refreshers. SELECT pg_terminate_backend(…) ends one, \
                  pgtrickle.alter_stream_table('…', status => 'SUSPENDED') takes its stream table off the schedule, and \
                  pg_trickle.statement_timeout_ms bounds them all.";
    Ok(Some(Check::new("refreshers", verdict, found, advice)))
}

/// The duration from which on a running refresh is reported as a warning.
const LONG: Duration = Duration::from_secs(60);

const NAMES: &str = "SELECT coalesce(r.rolname::text, $1::text), coalesce(c.oid::regclass::text, $2::text) \
     FROM (SELECT) one LEFT JOIN pg_catalog.pg_roles r ON r.oid = $1 LEFT JOIN pg_catalog.pg_class c ON c.oid = $2";

#[pg_schema]
mod pgtrickle {
    use crate::gucs;
    use pgrx::JsonB;
    use pgrx::prelude::*;
    use trickle_engine::Name;
    use trickle_engine::health::{self, Scheduling};

    /// Stands for the function as version 0.1.0 declares it, and raises an error that says how to update.
    #[pg_extern(sql = false)]
    fn pgt_status() {
        super::outdated();
    }

    /// Returns the status of all stream tables.
    #[pg_extern(name = "pgt_status")]
    fn status_of_all() -> TableIterator<
        'static,
        (
            name!(name, String),
            name!(mode, String),
            name!(requested_mode, String),
            name!(mode_reason, Option<String>),
            name!(status, String),
            name!(schedule, Option<String>),
            name!(staleness_ms, Option<i64>),
            name!(lag_ms, Option<f64>),
            name!(last_refresh_at, Option<TimestampWithTimeZone>),
            name!(consecutive_errors, i32),
            name!(last_error_message, Option<String>),
            name!(pending_changes, Option<i64>),
        ),
    > {
        let all = super::status(&[]);
        TableIterator::new(all.into_iter().map(|s| {
            (
                s.name,
                s.mode.to_string(),
                s.requested_mode.to_string(),
                s.mode_reason,
                s.status.to_string(),
                s.schedule,
                s.staleness_ms,
                s.lag_ms,
                s.last_refresh_at.as_deref().and_then(super::instant),
                s.consecutive_errors,
                s.last_error,
                s.pending_changes,
            )
        }))
    }

    /// Stands for the function as version 0.1.0 declares it, and raises an error that says how to update.
    #[pg_extern(sql = false)]
    fn get_refresh_history() {
        super::outdated();
    }

    /// Returns the newest refreshes of a stream table, newest first.
    #[pg_extern(name = "get_refresh_history")]
    fn newest_refreshes(
        name: &str,
        limit: default!(i32, 20),
    ) -> TableIterator<
        'static,
        (
            name!(refresh_id, i64),
            name!(start_time, Option<TimestampWithTimeZone>),
            name!(end_time, Option<TimestampWithTimeZone>),
            name!(data_timestamp, Option<TimestampWithTimeZone>),
            name!(action, String),
            name!(status, String),
            name!(initiated_by, String),
            name!(delta_row_count, Option<i64>),
            name!(rows_inserted, Option<i64>),
            name!(rows_updated, Option<i64>),
            name!(rows_deleted, Option<i64>),
            name!(strategy_reason, Option<String>),
            name!(predicted_ms, Option<f64>),
            name!(phase_ms, Option<JsonB>),
            name!(lag_ms, Option<f64>),
            name!(error_message, Option<String>),
        ),
    > {
        let limit = u32::try_from(limit).unwrap_or(0);
        let all = super::with(async |t| t.history(&Name::parse(name)?, limit).await);
        TableIterator::new(all.into_iter().map(|h| {
            (
                h.refresh_id,
                super::instant(&h.start_time),
                h.end_time.as_deref().and_then(super::instant),
                h.data_timestamp.as_deref().and_then(super::instant),
                h.action.to_string(),
                h.status.to_string(),
                h.initiated_by.to_string(),
                h.delta_row_count,
                h.rows_inserted,
                h.rows_updated,
                h.rows_deleted,
                h.strategy_reason,
                h.predicted_ms,
                h.phase_ms.map(JsonB),
                h.lag_ms,
                h.error_message,
            )
        }))
    }

    /// Returns for how many milliseconds a stream table has been behind its sources: 0 if it is up to date,
    /// NULL if it was never filled.
    #[pg_extern]
    fn get_staleness(name: &str) -> Option<i64> {
        super::status(&[name]).into_iter().next().and_then(|s| s.staleness_ms)
    }

    /// Returns the change buffers and their sizes.
    #[pg_extern]
    fn change_buffer_sizes() -> TableIterator<
        'static,
        (
            name!(source, String),
            name!(trigger_mode, String),
            name!(disabled, bool),
            name!(bytes, i64),
            name!(segments, i32),
            name!(limit_bytes, i64),
        ),
    > {
        let all = super::with(async |t| t.buffers().await);
        let row = |b: trickle_engine::BufferStatus| {
            (b.source, b.trigger_mode, b.disabled, b.bytes, b.segments, b.limit_bytes)
        };
        TableIterator::new(all.into_iter().map(row))
    }

    /// Returns the checks of the server and of the stream tables. Each has a result ('ok', 'warning' or
    /// 'problem'), a finding and advice.
    #[pg_extern]
    fn health_check() -> TableIterator<
        'static,
        (
            name!(check_name, String),
            name!(result, String),
            name!(found, String),
            name!(advice, Option<String>),
        ),
    > {
        let all = super::with(async |t| {
            let mut all = health::of_server(t.db(), gucs::settings().long_transaction).await?;
            all.extend(t.health(Scheduling::Server { enabled: gucs::is_enabled() }).await?);
            all.extend(super::refreshers(t.db()).await?);
            Ok(all)
        });
        TableIterator::new(all.into_iter().map(|c| {
            let advice = Some(c.advice).filter(|a| !a.is_empty());
            (c.name.to_owned(), c.verdict.name().to_owned(), c.found, advice)
        }))
    }

    /// Returns all stream tables, each after the stream tables that it reads.
    #[pg_extern]
    fn dependency_tree() -> TableIterator<
        'static,
        (
            name!(stream_table, String),
            name!(level, i32),
            name!(reads, Vec<String>),
            name!(read_by, Vec<String>),
        ),
    > {
        let all = super::with(async |t| trickle_engine::tree(&t.registry().await?));
        let level = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        TableIterator::new(all.into_iter().map(move |d| (d.name, level(d.level), d.reads, d.read_by)))
    }

    /// Returns the number of changed rows per source row from which on a recompute is expected to cost less
    /// than a delta. The value 0 means that a recompute always costs less, and 2 that it never does. NULL
    /// means that the stream table has no delta.
    #[pg_extern]
    fn st_auto_threshold(name: &str) -> Option<f64> {
        super::with(async |t| t.threshold(&Name::parse(name)?).await)
    }

    /// Returns whether deltas can bring the result of a query up to date. If not, returns each construct that
    /// rules out deltas, with its place and advice.
    #[pg_extern]
    fn validate_query(
        query: &str,
    ) -> TableIterator<
        'static,
        (
            name!(incremental, bool),
            name!(construct, Option<String>),
            name!(line, Option<i32>),
            name!(position, Option<i32>),
            name!(help, Option<String>),
        ),
    > {
        let explained = super::about(Some(query), async |t| t.explain_query(query).await);
        if explained.table.is_some() {
            return TableIterator::once((true, None, None, None, None));
        }
        let place = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        TableIterator::new(explained.reasons.into_iter().map(move |r| {
            let (line, column) = (r.span.map(|s| place(s.line)), r.span.map(|s| place(s.column)));
            (false, Some(r.construct), line, column, Some(r.help))
        }))
    }

    /// Returns the plan of a stream table, and the plan of its delta.
    #[pg_extern]
    fn explain_st(name: &str) -> String {
        super::as_owner(name, "", async |t, name| super::plans(&t.explain(name).await?))
    }

    /// Returns the statement that applies the changes of all sources, for a stream table, or for a query as
    /// if it defined one.
    #[pg_extern]
    fn explain_delta(name_or_query: &str) -> String {
        match Name::parse(name_or_query) {
            Ok(_) => {
                super::as_owner(name_or_query, "", async |t, name| super::delta(&t.explain(name).await?))
            }
            Err(_) => super::about(Some(name_or_query), async |t| {
                super::delta(&t.explain_query(name_or_query).await?)
            }),
        }
    }

    /// Returns the mode in force of a stream table, the requested mode, and why they differ.
    #[pg_extern]
    fn explain_refresh_mode(
        name: &str,
    ) -> TableIterator<
        'static,
        (name!(mode, String), name!(requested_mode, String), name!(mode_reason, Option<String>)),
    > {
        let all = super::status(&[name]);
        TableIterator::new(
            all.into_iter().map(|s| (s.mode.to_string(), s.requested_mode.to_string(), s.mode_reason)),
        )
    }

    /// Hashes a text (xxHash64, seed 0).
    #[pg_extern(immutable, parallel_safe, strict)]
    fn pg_trickle_hash(value: &str) -> i64 {
        super::hash(value.as_bytes())
    }

    /// Hashes a list of texts; NULL hashes differently from the empty text.
    #[pg_extern(immutable, parallel_safe, strict)]
    fn pg_trickle_hash_multi(values: Vec<Option<String>>) -> i64 {
        let mut bytes = Vec::new();
        for v in values {
            match v {
                None => bytes.push(0),
                Some(v) => {
                    bytes.push(1);
                    bytes.extend((v.len() as u64).to_le_bytes());
                    bytes.extend(v.as_bytes());
                }
            }
        }
        super::hash(&bytes)
    }
}

fn status(names: &[&str]) -> Vec<Status> {
    with(async |t| {
        let names = names.iter().map(|n| Name::parse(n)).collect::<Result<Vec<_>>>()?;
        t.status(&names).await
    })
}

/// Raises the error for a function that is still declared as an older version of the extension declared it.
fn outdated() {
    let error = Error::input("this function is of an older version of the extension than its library");
    raise_in(&error.hint("ALTER EXTENSION pg_trickle UPDATE"), None);
}

/// Parses a time as the catalog's queries write it.
fn instant(text: &str) -> Option<TimestampWithTimeZone> {
    text.parse().ok()
}

/// Returns `xxh64` of the bytes, as a signed number, since SQL has no unsigned numbers.
fn hash(bytes: &[u8]) -> i64 {
    i64::from_ne_bytes(xxhash_rust::xxh64::xxh64(bytes, 0).to_ne_bytes())
}

fn full(explained: &Explained) -> Error {
    let why: Vec<String> = explained.reasons.iter().map(ToString::to_string).collect();
    Error::input(format!("{} is kept by full refreshes", explained.name)).detail(why.join(" "))
}

fn plans(explained: &Explained) -> Result<String> {
    let table = explained.table.as_ref().ok_or_else(|| full(explained))?;
    let delta = table.explain_delta(None, Format::Text)?;
    Ok(format!("{}\n\n{delta}", table.explain(Format::Text)))
}

fn delta(explained: &Explained) -> Result<String> {
    let table = explained.table.as_ref().ok_or_else(|| full(explained))?;
    let statements = table.refresh(Refresh::Delta, &table.changing())?;
    Ok(statements.iter().map(ToString::to_string).collect::<Vec<_>>().join(";\n"))
}
