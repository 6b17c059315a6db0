//! The history of refreshes.

use super::instant;
use crate::db::{Json, RefreshDriver, Row};
use crate::error::{Error, Result};
use crate::names::Name;
use crate::trickle::Trickle;
use serde::Serialize;
use serde_json::Value;
use trickle_core::vocabulary::{Action, Ending, Initiator};

/// A refresh in history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryEntry {
    /// The number of the refresh. Later refreshes have greater numbers.
    pub refresh_id: i64,
    /// The time at which the transaction of the refresh began.
    pub start_time: String,
    /// The time at which the refresh ended.
    pub end_time: Option<String>,
    /// A time up to which the stream table has all committed changes after the refresh.
    pub data_timestamp: Option<String>,
    /// The action of the refresh.
    pub action: Action,
    /// The way in which the refresh ended.
    pub status: Ending,
    /// The origin of the refresh.
    pub initiated_by: Initiator,
    /// The number of changed rows that the refresh read.
    pub delta_row_count: Option<i64>,
    /// The number of rows that were inserted into the stream table.
    pub rows_inserted: Option<i64>,
    /// The number of rows that were updated.
    pub rows_updated: Option<i64>,
    /// The number of rows that were deleted.
    pub rows_deleted: Option<i64>,
    /// The reason why the refresh used the delta or a recompute.
    pub strategy_reason: Option<String>,
    /// The time that was predicted for the refresh, in milliseconds.
    pub predicted_ms: Option<f64>,
    /// The time of each phase, in milliseconds.
    pub phase_ms: Option<Value>,
    /// An upper bound of the time from the commit of the changes to their being visible, in milliseconds,
    /// for a refresh on schedule.
    pub lag_ms: Option<f64>,
    /// The message of the error with which the refresh failed.
    pub error_message: Option<String>,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the last refreshes of a stream table, the newest first.
    ///
    /// # Errors
    /// No stream table has that name; errors of the server.
    pub async fn history(&self, name: &Name, limit: u32) -> Result<Vec<HistoryEntry>> {
        let e = self.find(name).await?;
        let text = format!(
            "SELECT refresh_id, {}, {}, {}, action, status, initiated_by, delta_row_count, rows_inserted, rows_updated, \
             rows_deleted, strategy_reason, predicted_ms, phase_ms, error_message, lag_ms FROM pgtrickle.pgt_refresh_history \
             WHERE pgt_id = $1 ORDER BY start_time DESC, refresh_id DESC LIMIT $2",
            instant("start_time"),
            instant("end_time"),
            instant("data_timestamp")
        );
        let rows = self.db().query(&text, &[&e.id, &i64::from(limit)]).await;
        let rows = rows.map_err(|e| Error::server("read history", e))?;
        rows.iter().map(history_entry).collect()
    }
}

fn history_entry(r: &Row) -> Result<HistoryEntry> {
    Ok(HistoryEntry {
        refresh_id: r.get(0),
        start_time: r.get(1),
        end_time: r.get(2),
        data_timestamp: r.get(3),
        action: Action::parse(r.get(4))?,
        status: Ending::parse(r.get(5))?,
        initiated_by: Initiator::parse(r.get(6))?,
        delta_row_count: r.get(7),
        rows_inserted: r.get(8),
        rows_updated: r.get(9),
        rows_deleted: r.get(10),
        strategy_reason: r.get(11),
        predicted_ms: r.get(12),
        phase_ms: r.get::<Option<Json<Value>>>(13).map(|j| j.0),
        error_message: r.get(14),
        lag_ms: r.get(15),
    })
}
