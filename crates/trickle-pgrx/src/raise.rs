//! Raises the engine's errors as PostgreSQL errors.

use pgrx::PgSqlErrorCode;
use trickle_engine::Error;

/// Raises an error as a PostgreSQL error.
pub(crate) fn raise(e: &Error) -> ! {
    raise_in(e, None)
}

/// Raises an error as a PostgreSQL error; its span, if it has one, becomes a position in `query`.
pub(crate) fn raise_in(e: &Error, query: Option<&str>) -> ! {
    let mut report = pgrx::pg_sys::panic::ErrorReport::new(code(e), e.message().to_owned(), "pg_trickle");
    if let Some(detail) = e.detail_text() {
        report = report.set_detail(detail.to_owned());
    }
    if let Some(hint) = e.hint_text() {
        report = report.set_hint(hint.to_owned());
    }
    let place = query.zip(e.span()).and_then(|(q, span)| Some((q, q.get(..span.start)?.chars().count() + 1)));
    crate::unsafe_pg::raise(report, e.sqlstate().map(encoded), place)
}

fn code(e: &Error) -> PgSqlErrorCode {
    let known = e.sqlstate().map(encoded).map(PgSqlErrorCode::from);
    known.unwrap_or(match e {
        e if e.is_busy() => PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
        e if e.is_input() => PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        _ => PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
    })
}

/// Encodes an SQLSTATE as the server does: six bits for each of its five characters, the first in the least
/// significant bits.
fn encoded(sqlstate: &str) -> i32 {
    sqlstate
        .bytes()
        .take(5)
        .enumerate()
        .map(|(i, b)| (i32::from(b.wrapping_sub(b'0')) & 0x3f) << (6 * i))
        .sum()
}
