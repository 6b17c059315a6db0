//! Who refreshes on schedule: of all refreshers of a role's stream tables one at a time, which holds their lease.
//!
//! A lease is a row of the catalog. It ends by the server's clock unless it is renewed, so that whoever dies is followed soon,
//! and it has a number, its fence, that is another for each holder. A scheduled refresh is committed only if the lease under
//! which it began is still held: one that stood still while another took over undoes what it did. Nothing about what a stream
//! table holds depends on it: locks and frontiers keep that right among any number of refreshers.

use crate::db::Connection;
use crate::error::{Error, Result};
use std::time::Duration;
use trickle_core::refresh::Lease;

/// What who asked for a lease was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Leading {
    /// It is its own, for as long as was asked for, counted from when it asked.
    Own(Lease),
    /// Another refresher has it.
    Another {
        /// How that one named itself.
        holder: String,
        /// When it ends, unless it is renewed.
        left: Duration,
    },
}

const TAKE: &str = "SELECT * FROM pgtrickle.take_lease($1, $2, $3::int8 * interval '1 millisecond')";

/// Renews the lease on the current role's stream tables if this holder `held` it, or takes it if nobody does.
///
/// # Errors
/// Those of the server.
pub async fn take(db: &dyn Connection, holder: &str, held: Option<Lease>, term: Duration) -> Result<Leading> {
    let ms = i64::try_from(term.as_millis()).unwrap_or(i64::MAX);
    let row = db.query_one(TAKE, &[&holder, &held.map(|l| l.fence), &ms]).await;
    let row = row.map_err(|e| Error::server("ask for the lease on refreshes", e))?;
    let found: String = row.get(2);
    if found == holder {
        return Ok(Leading::Own(Lease { role: row.get(0), fence: row.get(1) }));
    }
    let left = Duration::try_from_secs_f64(row.get::<f64>(3) / 1e3).unwrap_or_default();
    Ok(Leading::Another { holder: found, left })
}

/// Gives a lease up, for others to take at once.
///
/// # Errors
/// Those of the server.
pub async fn give(db: &dyn Connection, held: Lease) -> Result<()> {
    let given = db.query("SELECT pgtrickle.give_lease($1)", &[&held.fence]).await;
    given.map(drop).map_err(|e| Error::server("give up the lease on refreshes", e))
}
