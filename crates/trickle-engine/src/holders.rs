//! Descriptions of the sessions and prepared transactions that hold locks.

use crate::db::{Connection, Row};
use crate::error::{Error, Result};

/// The sessions and prepared transactions that hold locks on the tables `$1`, in modes that make writers and
/// DDL wait. A lock of a prepared transaction has no process. Each prepared transaction also holds a lock on
/// its own number. The query finds the prepared transaction of a lock by the lock on the number, since both
/// locks have the same virtual transaction.
const HOLDERS: &str = "
SELECT DISTINCT coalesce(h.pid, 0), coalesce(a.usename::text, x.owner::text, '?'), coalesce(a.application_name, ''),
    coalesce(a.state, '?'), extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, x.prepared))::int8,
    h.relation::regclass::text, x.gid
FROM pg_locks h LEFT JOIN pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_locks o ON h.pid IS NULL AND o.pid IS NULL AND o.locktype = 'transactionid' AND o.granted
    AND o.virtualtransaction = h.virtualtransaction
LEFT JOIN pg_prepared_xacts x ON x.transaction = o.transactionid
WHERE h.relation = ANY ($1) AND h.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND h.granted AND h.pid IS DISTINCT FROM pg_backend_pid() AND (a.pid IS NOT NULL OR x.gid IS NOT NULL)
    AND h.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock',
    'ExclusiveLock', 'AccessExclusiveLock') ORDER BY 1, 7";

/// The sessions and prepared transactions that block the process `$1`, with the table whose lock it waits
/// for. `pg_blocking_pids` returns 0 for each prepared transaction. A prepared transaction is therefore found
/// by a lock that it holds. That lock is on the table that the process waits for. If the process waits for
/// the end of the prepared transaction, that lock is on the number of the transaction.
pub(crate) const BLOCKERS: &str = "
SELECT b.pid, coalesce(a.usename::text, x.owner::text, '?'), coalesce(a.application_name, ''), coalesce(a.state, '?'),
    extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, x.prepared))::int8,
    (SELECT min(l.relation::regclass::text) FROM pg_locks l WHERE l.pid = $1 AND NOT l.granted), x.gid
FROM (SELECT DISTINCT unnest(pg_blocking_pids($1))) b(pid) LEFT JOIN pg_stat_activity a ON a.pid = b.pid
LEFT JOIN LATERAL (
    SELECT DISTINCT p.gid, p.owner, p.prepared FROM pg_locks w
    JOIN pg_locks h ON h.pid IS NULL AND h.granted
        AND (h.relation = w.relation AND h.database = w.database OR h.transactionid = w.transactionid)
    JOIN pg_locks o ON o.pid IS NULL AND o.locktype = 'transactionid' AND o.granted AND o.virtualtransaction = h.virtualtransaction
    JOIN pg_prepared_xacts p ON p.transaction = o.transactionid
    WHERE w.pid = $1 AND NOT w.granted) x ON b.pid = 0 ORDER BY 1, 7";

/// Returns the sessions and prepared transactions that hold locks on these tables, in modes that make writers
/// and DDL wait. Each of them is described in one line.
pub(crate) async fn holders(db: &dyn Connection, tables: &[u32]) -> Result<Vec<String>> {
    let rows = db.query(HOLDERS, &[&tables]).await;
    let rows = rows.map_err(|e| Error::server("look who holds a lock", e))?;
    Ok(rows.iter().map(holder).collect())
}

/// Describes the holder of a lock in one line. The first columns of the row are the process (0 for a prepared
/// transaction), its role, its program and its state. Then follow the seconds since its transaction began or
/// was prepared, the locked table, and the name of the prepared transaction.
pub(crate) fn holder(r: &Row) -> String {
    let (role, seconds) = (r.get::<String>(1), r.get::<Option<i64>>(4).unwrap_or(0));
    let on = match r.get::<Option<String>>(5) {
        Some(table) => format!("holds a lock on {table}"),
        None => "holds a lock".to_owned(),
    };
    if let Some(gid) = r.get::<Option<String>>(6) {
        return format!("prepared transaction \"{gid}\" ({role}), prepared {seconds} s ago, {on}");
    }
    let app: String = r.get(2);
    let app = if app.is_empty() { String::new() } else { format!(", {app}") };
    let (pid, state) = (r.get::<i32>(0), r.get::<String>(3));
    if pid == 0 {
        return format!("a prepared transaction {on}");
    }
    format!("process {pid} ({role}{app}), {state} for {seconds} s, {on}")
}

/// Returns the two statements that can end a prepared transaction, for advice to the user, who must choose
/// one of them.
pub(crate) fn ends_prepared(gid: &str) -> String {
    let gid = gid.replace('\'', "''");
    format!("COMMIT PREPARED '{gid}'; or ROLLBACK PREPARED '{gid}';")
}
