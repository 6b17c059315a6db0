//! Errors of the engine as errors of the server's.

use pgrx::PgSqlErrorCode;
use pgrx::prelude::*;
use trickle_engine::Error;

/// Raises an error of the server's.
pub(crate) fn raise(e: &Error) -> ! {
    let place = e.span().map(|s| format!("At line {}, column {} of the query.", s.line, s.column));
    let detail =
        [e.detail_text().map(str::to_owned), place].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let mut report = pgrx::pg_sys::panic::ErrorReport::new(code(e), e.message().to_owned(), "pg_trickle");
    if !detail.is_empty() {
        report = report.set_detail(detail);
    }
    if let Some(hint) = e.hint_text() {
        report = report.set_hint(hint.to_owned());
    }
    report.report(PgLogLevel::ERROR);
    unreachable!("an error was raised")
}

fn code(e: &Error) -> PgSqlErrorCode {
    let known = e.sqlstate().map(encoded).map(PgSqlErrorCode::from);
    known.unwrap_or(match e {
        e if e.is_busy() => PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
        e if e.is_input() => PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        _ => PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
    })
}

/// Five characters as the server's number: six bits each, from the least significant.
fn encoded(sqlstate: &str) -> i32 {
    sqlstate
        .bytes()
        .take(5)
        .enumerate()
        .map(|(i, b)| (i32::from(b.wrapping_sub(b'0')) & 0x3f) << (6 * i))
        .sum()
}
