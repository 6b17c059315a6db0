//! The errors for queries that PostgreSQL refuses, with the place in the query as the user typed it.

use crate::db::ServerError;
use crate::error::Error;
use trickle_core::Span;
use trickle_core::parse::{find_name, statements};

/// Turns PostgreSQL's refusal of a query into an error that has the place in the query as the user typed it.
/// `before` is the number of characters that come before the query in the statement.
pub(super) fn refused(sql: &str, before: usize, e: ServerError) -> Error {
    let place = e.position().and_then(|at| span(sql, at.checked_sub(before + 1)?));
    if e.is_lost() {
        return Error::server("check the query", e);
    }
    let message = e.message().to_owned();
    let mut error = Error::server("check the query", e).saying(message).blamed_on_input();
    if error.hint_text().is_none() {
        let hint = hint(error.sqlstate().unwrap_or_default());
        error = error.hint(hint);
    }
    if error.sqlstate() == Some("42601")
        && place.is_none()
        && let Ok(Some(second)) = statements(sql).map(|s| s.get(1).map(|s| s.span))
    {
        return error.saying("there is another statement after the query").at(second);
    }
    match place.or_else(|| repeated(sql, &error)) {
        Some(span) => error.at(span),
        None => error,
    }
}

/// Returns the error for a result column that has the name of a system column, which no table can have.
pub(super) fn reserved(sql: &str, column: &str) -> Error {
    let message = format!("column \"{column}\" has the name of a system column");
    let error = Error::from(trickle_core::Error::duplicate_column(message))
        .hint("Give it another name with AS; it says where a row is stored, not what it holds.");
    match find_name(sql, column) {
        Ok(Some(span)) => error.at(span),
        _ => error,
    }
}

/// Returns the place of a column that is named twice, since PostgreSQL's error does not have it. Returns
/// `None` where the server's messages are not in English.
fn repeated(sql: &str, e: &Error) -> Option<Span> {
    let name = e.message().strip_prefix("column \"")?.strip_suffix("\" specified more than once")?;
    let first = find_name(sql, name).ok()??;
    let rest = sql.get(first.end..)?;
    let second = find_name(rest, name).ok()??;
    span(sql, sql[..first.end + second.start].chars().count())
}

/// Returns a hint for an error to which PostgreSQL adds no hint.
fn hint(sqlstate: &str) -> &'static str {
    match sqlstate {
        "42601" => "A stream table holds the result of one SELECT, VALUES or WITH statement.",
        "42P01" => "Write schema.table for a table that is in no schema of the search path.",
        "42703" => "None of the tables in FROM has such a column.",
        "42501" => "The owner can GRANT the right to this role.",
        "42701" => "Give one of the two columns another name with AS.",
        _ => "PostgreSQL itself refuses the query: mend it until it runs in psql.",
    }
}

/// Returns the place that begins with the character `at` (from 0), or at the end of the text. The place ends
/// with the word that begins there.
fn span(sql: &str, at: usize) -> Option<Span> {
    let start = sql.char_indices().map(|(i, _)| i).chain([sql.len()]).nth(at)?;
    let before = &sql[..start];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    let word = sql[start..].chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '"'));
    let length = word.map(char::len_utf8).sum::<usize>().max(1);
    Some(Span {
        start,
        end: (start + length).min(sql.len()),
        line: u32::try_from(line).ok()?,
        column: u32::try_from(column).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_place_has_line_and_column_in_characters() {
        let s = span("SELECT é,\n  nope FROM t", 12).unwrap();
        assert_eq!((s.line, s.column), (2, 3));
        assert_eq!(&"SELECT é,\n  nope FROM t"[s.start..s.end], "nope");
        assert!(span("SELECT", 99).is_none());
        assert_eq!(span("SELECT", 6).map(|s| (s.start, s.end)), Some((6, 6)));
    }
}
