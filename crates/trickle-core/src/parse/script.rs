//! Splits a file of SQL statements. Finds the statements that define a query, and the position of each
//! query's text. A statement that the parser does not know does not affect other statements.

use super::{Source, tokens};
use crate::error::{Result, Span};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};

/// One statement of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptStatement {
    /// The position of the statement, without the final semicolon.
    pub span: Span,
    /// The comments between the previous statement and this statement, line by line, without `--`.
    pub comments: Vec<Comment>,
    /// The kind of statement.
    pub kind: StatementKind,
}

/// A one-line comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// The position of the comment.
    pub span: Span,
    /// The text after `--`, trimmed.
    pub text: String,
}

/// The kind of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// SELECT, WITH, VALUES, TABLE or a parenthesis: a query.
    Query,
    /// A statement that gives a name to a query.
    Defines {
        /// The kind of object that the statement makes.
        object: Defined,
        /// Schema, if given, and name, unquoted.
        name: (Option<String>, String),
        /// The names that the statement gives to the columns. The list is empty if the columns keep their
        /// names from the query.
        columns: Vec<String>,
        /// The position of the query.
        body: Span,
    },
    /// CREATE of a table, view, type, domain, collation, function, aggregate, index or extension, or ALTER
    /// TABLE. A [`MemoryCatalog`](crate::catalog::MemoryCatalog) reads these statements.
    Schema,
    /// Any other statement.
    Other,
    /// A text that is not a statement of PostgreSQL, since no statement begins with the text's first word.
    Unknown,
}

/// The kind of object that CREATE … AS makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defined {
    /// CREATE VIEW
    View,
    /// CREATE MATERIALIZED VIEW
    MaterializedView,
    /// CREATE TABLE … AS
    Table,
}

/// Splits a text at its semicolons. Lines for `psql` (`\connect`, `\restrict`) are skipped.
///
/// # Errors
/// Fails if a string, identifier or comment is not terminated, or if the text is nested too deeply.
pub fn statements(sql: &str) -> Result<Vec<ScriptStatement>> {
    let source = Source::new(sql);
    let (tokens, _) = tokens(&source)?;
    let pieces = split(&source, &tokens).into_iter();
    Ok(pieces.filter_map(|piece| statement(&source, &piece.words, piece.comments)).collect())
}

/// The tokens of one statement, without white space and the semicolon.
#[derive(Default)]
pub(super) struct Piece<'t> {
    pub(super) words: Vec<&'t TokenWithSpan>,
    comments: Vec<Comment>,
}

/// Splits tokens at the semicolons between statements.
pub(super) fn split<'t>(source: &Source, tokens: &'t [TokenWithSpan]) -> Vec<Piece<'t>> {
    let (mut pieces, mut piece) = (Vec::new(), Piece::default());
    let mut meta = false;
    for token in tokens {
        match &token.token {
            Token::Whitespace(w) => {
                meta &= !matches!(w, Whitespace::Newline);
                if let (Whitespace::SingleLineComment { comment, .. }, true) = (w, piece.words.is_empty()) {
                    meta = false;
                    let span = source.span(token.span).unwrap_or_else(|| source.end());
                    piece.comments.push(Comment { span, text: comment.trim().to_owned() });
                }
            }
            _ if meta => {}
            Token::Backslash if piece.words.is_empty() => meta = true,
            Token::SemiColon if in_routine(&piece.words) => piece.words.push(token),
            Token::SemiColon | Token::EOF => pieces.push(std::mem::take(&mut piece)),
            _ => piece.words.push(token),
        }
    }
    pieces.push(piece);
    pieces
}

fn statement(source: &Source, tokens: &[&TokenWithSpan], comments: Vec<Comment>) -> Option<ScriptStatement> {
    let span = extent(source, tokens)?;
    let kind = match keyword(tokens.first()?) {
        Some(Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE) => StatementKind::Query,
        None if tokens[0].token == Token::LParen => StatementKind::Query,
        Some(Keyword::CREATE) => defines(source, tokens).unwrap_or_else(|| described(tokens)),
        _ => described(tokens),
    };
    Some(ScriptStatement { span, comments, kind })
}

fn described(tokens: &[&TokenWithSpan]) -> StatementKind {
    match word(tokens[0]).filter(|w| w.quote_style.is_none()) {
        _ if describes(tokens) => StatementKind::Schema,
        Some(w) if FIRST.contains(&w.value.to_uppercase().as_str()) => StatementKind::Other,
        _ => StatementKind::Unknown,
    }
}

/// The words with which PostgreSQL's statements begin.
const FIRST: &[&str] = &[
    "ABORT",
    "ALTER",
    "ANALYSE",
    "ANALYZE",
    "BEGIN",
    "CALL",
    "CHECKPOINT",
    "CLOSE",
    "CLUSTER",
    "COMMENT",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DISCARD",
    "DO",
    "DROP",
    "END",
    "EXECUTE",
    "EXPLAIN",
    "FETCH",
    "GRANT",
    "IMPORT",
    "INSERT",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MERGE",
    "MOVE",
    "NOTIFY",
    "PREPARE",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "RELEASE",
    "REPACK",
    "RESET",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SECURITY",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "TABLE",
    "TRUNCATE",
    "UNLISTEN",
    "UPDATE",
    "VACUUM",
    "VALUES",
    "WAIT",
    "WITH",
];

/// Whether the tokens end inside the body of a routine: BEGIN ATOMIC … END, possibly with CASE … END inside.
fn in_routine(tokens: &[&TokenWithSpan]) -> bool {
    let mut words = tokens.iter().filter_map(|t| keyword(t)).skip_while(|k| *k != Keyword::BEGIN).skip(1);
    if words.next() != Some(Keyword::ATOMIC) {
        return false;
    }
    let depth = words.fold(1i64, |depth, k| match k {
        Keyword::CASE => depth + 1,
        Keyword::END => depth - 1,
        _ => depth,
    });
    depth > 0
}

/// Whether a statement begins with the words of a kind of statement that a catalog reads.
pub(super) fn describes(tokens: &[&TokenWithSpan]) -> bool {
    use Keyword::{
        AGGREGATE, ALTER, COLLATION, CREATE, DOMAIN, EXTENSION, FUNCTION, GLOBAL, INDEX, LOCAL, OR, REPLACE,
        TABLE, TEMP, TEMPORARY, TYPE, UNIQUE, UNLOGGED, VIEW,
    };
    let mut words = tokens.iter().map_while(|t| keyword(t));
    match words.next() {
        Some(ALTER) => words.next() == Some(TABLE),
        Some(CREATE) => {
            let what = |k: &Keyword| {
                !matches!(k, OR | REPLACE | UNIQUE | TEMP | TEMPORARY | UNLOGGED | GLOBAL | LOCAL)
            };
            let object = words.find(what);
            matches!(
                object,
                Some(TABLE | VIEW | TYPE | DOMAIN | FUNCTION | INDEX | AGGREGATE | COLLATION | EXTENSION)
            )
        }
        _ => false,
    }
}

/// Whether a text that no catalog reads may still be a statement. The text's first word is then a keyword of
/// SQL.
pub(super) fn begins(tokens: &[&TokenWithSpan]) -> bool {
    tokens.first().is_none_or(|t| keyword(t).is_some_and(|k| k != Keyword::NoKeyword))
}

/// Reads `CREATE [OR REPLACE] [TEMPORARY] [MATERIALIZED] VIEW | TABLE [IF NOT EXISTS] name [(columns)] … AS
/// body …`.
fn defines(source: &Source, tokens: &[&TokenWithSpan]) -> Option<StatementKind> {
    let key = |i: usize| tokens.get(i).and_then(|t| keyword(t));
    let mut at = 1;
    let object = loop {
        match key(at)? {
            Keyword::VIEW if key(at - 1) == Some(Keyword::MATERIALIZED) => break Defined::MaterializedView,
            Keyword::VIEW => break Defined::View,
            Keyword::TABLE => break Defined::Table,
            Keyword::OR
            | Keyword::REPLACE
            | Keyword::TEMP
            | Keyword::TEMPORARY
            | Keyword::UNLOGGED
            | Keyword::MATERIALIZED => at += 1,
            _ => return None,
        }
    };
    at += 1;
    if key(at) == Some(Keyword::IF) {
        at += 3;
    }
    let mut name = (None, fold(tokens.get(at)?)?);
    at += 1;
    if tokens.get(at)?.token == Token::Period {
        name = (Some(name.1), fold(tokens.get(at + 1)?)?);
        at += 2;
    }
    let mut columns = Vec::new();
    if tokens.get(at)?.token == Token::LParen {
        let close = at + tokens[at..].iter().position(|t| t.token == Token::RParen)?;
        columns = tokens[at + 1..close].iter().filter_map(|t| fold(t)).collect();
    }
    let mut depth = 0usize;
    let start = at
        + 1
        + tokens[at..].iter().position(|t| match t.token {
            Token::LParen => {
                depth += 1;
                false
            }
            Token::RParen => {
                depth = depth.saturating_sub(1);
                false
            }
            _ => depth == 0 && keyword(t) == Some(Keyword::AS),
        })?;
    let last = |n: usize| tokens.len().checked_sub(n).and_then(key);
    let tail = match (last(3), last(2), last(1)) {
        (_, Some(Keyword::WITH), Some(Keyword::DATA)) => 2,
        (Some(Keyword::WITH), _, Some(Keyword::DATA)) => 3,
        (_, Some(Keyword::CHECK), Some(Keyword::OPTION)) if last(3) == Some(Keyword::WITH) => 3,
        (_, Some(Keyword::CHECK), Some(Keyword::OPTION)) => 4,
        _ => 0,
    };
    let body = extent(source, tokens.get(start..tokens.len() - tail)?)?;
    Some(StatementKind::Defines { object, name, columns, body })
}

fn extent(source: &Source, tokens: &[&TokenWithSpan]) -> Option<Span> {
    let first = source.span(tokens.first()?.span)?;
    let last = source.span(tokens.last()?.span)?;
    Some(Span { end: last.end.max(first.end), ..first })
}

fn word(token: &TokenWithSpan) -> Option<&Word> {
    match &token.token {
        Token::Word(w) => Some(w),
        _ => None,
    }
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    word(token).filter(|w| w.quote_style.is_none()).map(|w| w.keyword)
}

fn fold(token: &TokenWithSpan) -> Option<String> {
    word(token).map(|w| if w.quote_style.is_some() { w.value.clone() } else { w.value.to_lowercase() })
}

/// Finds the first identifier in a text that PostgreSQL folds to `name`. Strings and comments are skipped.
///
/// # Errors
/// Fails as [`statements`] does.
pub fn find_name(sql: &str, name: &str) -> Result<Option<Span>> {
    let source = Source::new(sql);
    let (tokens, _) = tokens(&source)?;
    let token = tokens.into_iter().find(|t| fold(t).as_deref() == Some(name));
    Ok(token.and_then(|t| source.span(t.span)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(sql: &str) -> Vec<(Defined, String, Vec<String>, &str)> {
        let defined = statements(sql).unwrap().into_iter().filter_map(|s| match s.kind {
            StatementKind::Defines { object, name, columns, body } => {
                let name = name.0.map_or(name.1.clone(), |s| format!("{s}.{}", name.1));
                Some((object, name, columns, &sql[body.start..body.end]))
            }
            _ => None,
        });
        defined.collect()
    }

    #[test]
    fn the_query_of_a_definition_is_found_by_its_place() {
        let found = bodies(
            "CREATE MATERIALIZED VIEW IF NOT EXISTS s.\"M v\" AS SELECT a::text AS b FROM t WITH NO DATA;
             create or replace view v (p, \"Q\") as (select 1, ';') with local check option;
             CREATE TABLE c WITH (fillfactor = 70) AS WITH x AS (SELECT 1) SELECT * FROM x WITH DATA",
        );
        let none: Vec<String> = Vec::new();
        assert_eq!(
            found,
            [
                (Defined::MaterializedView, "s.M v".into(), none.clone(), "SELECT a::text AS b FROM t"),
                (Defined::View, "v".into(), vec!["p".into(), "Q".into()], "(select 1, ';')"),
                (Defined::Table, "c".into(), none, "WITH x AS (SELECT 1) SELECT * FROM x"),
            ]
        );
    }

    #[test]
    fn statements_are_told_apart() {
        let sql = "\\restrict x;y\n-- schedule: 30s\n\nSELECT 1; ;\nCREATE TABLE t (a int, b int GENERATED ALWAYS \
                   AS (a) STORED);\nALTER TABLE t ADD c int; ALTER ROLE r LOGIN;\nSET x = 'a;b'; /* no ; */ (TABLE t)";
        let all = statements(sql).unwrap();
        let kinds: Vec<&StatementKind> = all.iter().map(|s| &s.kind).collect();
        use StatementKind::{Other, Query, Schema, Unknown};
        assert_eq!(kinds, [&Query, &Schema, &Schema, &Other, &Other, &Query]);
        assert_eq!(all[0].comments.len(), 1);
        assert_eq!((all[0].comments[0].text.as_str(), all[0].comments[0].span.line), ("schedule: 30s", 2));
        assert_eq!((all[0].span.line, &sql[all[0].span.start..all[0].span.end]), (4, "SELECT 1"));
        let routine = "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; \
                       CREATE SEQUENCE s; CREATE UNIQUE INDEX ON t (a); CREATE OR REPLACE TRIGGER x AFTER INSERT ON t";
        let kinds: Vec<StatementKind> = statements(routine).unwrap().into_iter().map(|s| s.kind).collect();
        assert_eq!(kinds, [Schema, Other, Schema, Other]);
        let wrong = "SELEC * FROM t; 3; refresh MATERIALIZED VIEW v; \"SELECT\" 1";
        let kinds: Vec<StatementKind> = statements(wrong).unwrap().into_iter().map(|s| s.kind).collect();
        assert_eq!(kinds, [Unknown, Unknown, Other, Unknown]);
        assert!(statements("SELECT 'a").is_err());
        assert_eq!(statements(" -- nothing\n").unwrap(), []);
    }

    #[test]
    fn a_name_is_found_where_it_is_one() {
        let sql = "SELECT 'orders' -- orders\nFROM ORDERS, \"Orders\"";
        let at = |name| find_name(sql, name).unwrap().map(|s| (s.line, s.column));
        assert_eq!((at("orders"), at("Orders"), at("x")), (Some((2, 6)), Some((2, 14)), None));
    }
}
