//! Converts errors of the driver into errors of the engine.

use tokio_postgres::error::ErrorPosition;
use trickle_engine::Error;
use trickle_engine::db::ServerError;

/// Converts the driver's error into the engine's.
pub(crate) fn server_error(e: tokio_postgres::Error) -> ServerError {
    let Some(db) = e.as_db_error() else { return ServerError::lost(chain(&e)) };
    let position = match db.position() {
        Some(ErrorPosition::Original(at)) => usize::try_from(*at).ok(),
        _ => None,
    };
    ServerError::new(db.code().code(), db.message())
        .with_detail(db.detail())
        .with_hint(db.hint())
        .with_position(position)
}

/// Converts an error of the driver; `doing` describes the work that failed.
pub fn failed(doing: impl AsRef<str>, e: tokio_postgres::Error) -> Error {
    Error::server(doing, server_error(e))
}

/// Returns the text of an error, followed by the texts of its causes. A cause whose text is already there is
/// left out.
fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(c) = cause {
        let more = c.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = c.source();
    }
    text
}
