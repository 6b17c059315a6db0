//! The lease on refreshes on schedule. Of all refreshers of a role's stream tables, one at a time holds the
//! lease and refreshes on schedule.
//!
//! A lease is a row of the catalog. The lease ends by the server's clock unless its holder renews it. So if
//! the holder dies, another refresher soon takes the lease. The number of a lease, called its fence, differs
//! for each holder. A refresh on schedule is committed only if the lease under which it began is still held.
//! So a refresher that was halted rolls back if another refresher took over meanwhile. The contents of stream
//! tables do not depend on the lease, since locks and frontiers keep them right under any number of
//! refreshers.

use crate::db::Connection;
use crate::error::{Error, Result};
use std::time::Duration;
use trickle_core::refresh::Lease;
use trickle_core::sql::quoted;

/// The answer to a refresher that asked for a lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Leading {
    /// The refresher holds the lease for the requested term, counted from the request.
    Own(Lease),
    /// Another refresher holds the lease.
    Another {
        /// The name that the other refresher gave itself.
        holder: String,
        /// The time until the lease of the other refresher ends, unless that refresher renews it.
        left: Duration,
    },
}

/// The holder of a role's lease, and the time in milliseconds until the lease ends unless the holder renews
/// it.
const HELD: &str = "SELECT l.fence, l.holder, extract(epoch FROM t.expires_at - clock_timestamp())::float8 * 1000 \
     FROM pgtrickle.pgt_leases l JOIN pgtrickle.pgt_lease_terms t USING (role) WHERE l.role = $1";

/// Renews the lease on the current role's stream tables if the caller holds it (`held`). Takes the lease if
/// no refresher holds it.
///
/// # Errors
/// Errors of the server.
pub async fn take(db: &dyn Connection, holder: &str, held: Option<Lease>, term: Duration) -> Result<Leading> {
    let fail = |e| Error::server("ask for the lease on refreshes", e);
    let role = match held {
        Some(lease) => lease.role,
        None => {
            db.query_one("SELECT quote_ident(current_user)::regrole::oid", &[]).await.map_err(fail)?.get(0)
        }
    };
    let (held, ms) = (held.map_or("NULL".to_owned(), |l| l.fence.to_string()), term.as_millis());
    let who = quoted(holder);
    let taken =
        format!("SELECT pgtrickle.take_lease({role}, {who}, {held}, {ms} * interval '1 millisecond')");
    db.as_catalog_owner(&taken).await.map_err(fail)?;
    let row = db.query_one(HELD, &[&role]).await.map_err(fail)?;
    let found: String = row.get(1);
    if found == holder {
        return Ok(Leading::Own(Lease { role, fence: row.get(0) }));
    }
    let left = Duration::try_from_secs_f64(row.get::<f64>(2) / 1e3).unwrap_or_default();
    Ok(Leading::Another { holder: found, left })
}

/// Gives a lease up, so that another refresher can take it at once.
///
/// # Errors
/// Errors of the server.
pub async fn give(db: &dyn Connection, held: Lease) -> Result<()> {
    let given = format!("SELECT pgtrickle.give_lease({}, {})", held.role, held.fence);
    db.as_catalog_owner(&given).await.map_err(|e| Error::server("give up the lease on refreshes", e))
}
