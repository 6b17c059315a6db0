//! The surroundings of a session: a process of the server, whose transactions belong to callers, or a pooler
//! between the session and the server.

use super::ServerError;
use crate::say::Voice;
use std::sync::Arc;

/// The statement that marks a transaction in which the program alters and drops objects. The extension's
/// event triggers do not follow the commands of a transaction with this lock. The event triggers trust the
/// lock only in sessions of roles that have the rights of the catalog's owner. The lock conflicts only with
/// statements that replace the catalog itself.
const AT_WORK: &str = "LOCK TABLE pgtrickle.pgt_catalog_version IN ROW SHARE MODE";

/// The surroundings of a session. The default of each method is right for a session that has a server process
/// of its own, and begins and ends its transactions itself.
pub trait Host {
    /// Returns the caller's transaction, where refreshes run in a transaction that the caller begins and
    /// ends.
    fn callers(&self) -> Option<Callers> {
        None
    }

    /// Fails where this session is in the middle of a statement that reads or changes one of these tables.
    /// The rows that such a statement sees, and the captured changes of these rows, would belong to
    /// different moments.
    fn require_idle(&self, _tables: &[u32]) -> Result<(), ServerError> {
        Ok(())
    }

    /// Locks tables by oid in mode ACCESS EXCLUSIVE, in this order. Without `waits`, locks none and returns
    /// false if another session has a lock on one of them. A table can be locked by oid only inside the
    /// server, so elsewhere the answer is always false.
    fn lock(&self, _tables: &[u32], _waits: bool) -> Result<bool, ServerError> {
        Ok(false)
    }

    /// Whether this session runs a security-restricted operation. Such an operation acts for a role that did
    /// not start it, and leaves nothing behind in the session.
    fn is_restricted(&self) -> bool {
        false
    }

    /// Returns the language in which errors and checks give advice to the user of this session.
    fn voice(&self) -> Voice {
        Voice::Program
    }

    /// Returns the statement that marks a transaction as one in which trickle itself alters and drops
    /// objects. Returns `None` where the server recognizes such a transaction without a mark.
    fn mark_of_work(&self) -> Option<&'static str> {
        Some(AT_WORK)
    }

    /// Returns the number of the server process that the server reported when the connection was made. A
    /// pooler invents a number for each of its clients, so behind a pooler this is not the number of the
    /// process that answers.
    fn greeted(&self) -> Option<i32> {
        None
    }

    /// Prepares the connection for a pooler, which may give each transaction another server process and lets
    /// other clients use that process in between. Afterwards the connection leaves no state in a server
    /// process, and relies on no state of an earlier transaction. Each transaction begins with the statements
    /// `_locals`, whose effects must end with the transaction.
    fn share(&mut self, _locals: &'static [&'static str]) {}
}

/// The caller's transaction, for a refresh that runs in it.
#[derive(Clone, Debug)]
pub struct Callers {
    /// A query that returns, as `bigint`, the number of the last command that the transaction has run.
    pub command: Arc<str>,
    /// Whether each statement of the transaction sees all that was committed before the statement, and none
    /// reads an older snapshot.
    pub fresh: bool,
    /// Whether the transaction ends with the statement that started the refresh, so that its locks are
    /// released soon.
    pub brief: bool,
}
