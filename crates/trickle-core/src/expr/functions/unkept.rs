//! Built-in functions of PostgreSQL whose value changes while the data stays the same. A plan calls none of
//! them, except those that return the transaction's time.

use crate::types::Type;

/// The cause for which a function's value depends on more than its arguments and the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unkept {
    /// The value is the time of the transaction: a `timestamptz`, or this time cast to the given type.
    Time(Option<Type>),
    /// The value is the time of the call.
    Clock,
    /// The value differs from call to call, or the call has side effects.
    Random,
    /// The value depends on the search path, and each refresh sets its own search path.
    SearchPath,
    /// The value depends on the session, the server or the moment.
    Surroundings,
}

/// Returns the cause for the function with this name. Returns `None` for a function that is not listed here.
pub(crate) fn unkept(name: &str) -> Option<Unkept> {
    Some(match name {
        "now" | "current_timestamp" | "transaction_timestamp" => Unkept::Time(None),
        "current_date" => Unkept::Time(Some(Type::Date)),
        "localtimestamp" => Unkept::Time(Some(Type::Timestamp)),
        "clock_timestamp" | "timeofday" => Unkept::Clock,
        "random"
        | "random_normal"
        | "gen_random_uuid"
        | "uuidv4"
        | "uuidv7"
        | "uuid_generate_v1"
        | "uuid_generate_v4"
        | "nextval"
        | "currval"
        | "lastval"
        | "setval"
        | "setseed"
        | "txid_current"
        | "pg_current_xact_id"
        | "pg_sleep"
        | "pg_notify"
        | "pg_advisory_lock"
        | "pg_try_advisory_lock" => Unkept::Random,
        "current_schema" | "current_schemas" => Unkept::SearchPath,
        _ if name.starts_with("pg_") && name.ends_with("_is_visible") => Unkept::SearchPath,
        "current_time"
        | "localtime"
        | "statement_timestamp"
        | "current_user"
        | "session_user"
        | "user"
        | "current_role"
        | "current_catalog"
        | "current_database"
        | "current_setting"
        | "pg_backend_pid"
        | "inet_client_addr"
        | "version"
        | "txid_current_snapshot"
        | "pg_current_snapshot" => Unkept::Surroundings,
        _ => return None,
    })
}
