//! Converts the parser's errors to errors of this crate, with position, offending token and expected token.

use super::Source;
use crate::error::{Error, Span};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, TokenizerError, Word};

/// Converts an error of the tokeniser, which is mostly an unterminated string or comment.
pub(super) fn convert_token(source: &Source, e: &TokenizerError) -> Error {
    let at = sqlparser::tokenizer::Span { start: e.location, end: e.location };
    Error::syntax(lower_first(&e.message)).at(source.span(at).unwrap_or_else(|| source.end()))
}

/// Converts an error of the parser. Precondition: this function runs on the same stack as the parser, since
/// it parses a part of the text again.
pub(super) fn convert(source: &Source, e: ParserError, parser: &Parser<'_>) -> Error {
    let mut e = complaint(source, e, parser);
    let Ok((tokens, _)) = super::tokens(source) else { return e };
    let tokens: Vec<_> =
        tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF)).collect();
    for _ in 0..MISREAD {
        match inside(source, &tokens, &e) {
            Some(inner) => e = inner,
            None => break,
        }
    }
    e
}

/// The greatest number of nested expressions that are parsed again to find the real error.
const MISREAD: usize = 20;

/// Finds the real error inside the CASE, NOT or EXTRACT just before the position of `e`. If such an
/// expression is wrong, the parser reads its keyword as a name, and reports an error at the next word.
fn inside(source: &Source, tokens: &[TokenWithSpan], e: &Error) -> Option<Error> {
    let at = e.span()?.start;
    let place = |t: &TokenWithSpan| source.span(t.span).map_or(0, |s| s.start);
    let stopped = tokens.partition_point(|t| place(t) < at);
    (stopped.saturating_sub(2)..=stopped).find_map(|first| {
        let opened = opens(tokens, first)?;
        let mut again = super::parser(tokens[first..].to_vec());
        again.advance_token();
        let wrong = match opened {
            Keyword::CASE => again.parse_case_expr(),
            Keyword::NOT => again.parse_not(),
            _ => again.parse_extract_expr(),
        };
        let inner = complaint(source, wrong.err()?, &again);
        (inner.span()?.start > at).then_some(inner)
    })
}

/// Returns the keyword of a CASE, NOT or EXTRACT that begins at this token.
fn opens(tokens: &[TokenWithSpan], at: usize) -> Option<Keyword> {
    match &tokens.get(at)?.token {
        Token::Word(Word { quote_style: None, keyword, .. }) => {
            [Keyword::CASE, Keyword::NOT, Keyword::EXTRACT].into_iter().find(|k| k == keyword)
        }
        _ => None,
    }
}

/// Converts the parser's own error, without looking for a real error inside an expression.
fn complaint(source: &Source, e: ParserError, parser: &Parser<'_>) -> Error {
    let text = match e {
        ParserError::TokenizerError(s) | ParserError::ParserError(s) => s,
        ParserError::RecursionLimitExceeded => {
            let at = source.span(parser.get_current_token().span).unwrap_or_else(|| source.end());
            return Error::too_complex("the query nests too deeply").at(at);
        }
    };
    let (text, place) = match text.rsplit_once(" at Line: ") {
        Some((head, tail)) => (head.to_owned(), place(source, tail)),
        None => (text, None),
    };
    let readable = |expected: &str| match expected {
        "EOF" | "end of statement" => "the end of the statement".to_owned(),
        other => other.to_owned(),
    };
    let (expected, found) = match text.strip_prefix("Expected: ").and_then(|t| t.rsplit_once(", found: ")) {
        Some((expected, found)) => (Some(readable(expected)), Some(found.to_owned())),
        None => (None, None),
    };
    let current = parser.get_current_token();
    let place = place.or_else(|| source.span(current.span));
    match (expected, found) {
        (Some(expected), Some(found)) if found == "EOF" => Error::syntax("syntax error at end of input")
            .at(source.end())
            .detail(format!("Expected {expected}.")),
        (Some(expected), Some(found)) => Error::syntax(format!("syntax error at or near \"{found}\""))
            .at(place.unwrap_or_else(|| source.end()))
            .detail(format!("Expected {expected}.")),
        _ if current.token == Token::EOF => {
            Error::syntax("syntax error at end of input").at(source.end()).detail(text)
        }
        _ => {
            let e = Error::syntax(format!("syntax error at or near \"{}\"", current.token))
                .at(place.unwrap_or_else(|| source.end()));
            // The text "No infix parser …" is about the parser, not about the query.
            if text.starts_with("No infix parser") { e } else { e.detail(text) }
        }
    }
}

/// Reads a position such as `3, Column: 7` as a span of one character.
fn place(source: &Source, text: &str) -> Option<Span> {
    let (line, column) = text.split_once(", Column: ")?;
    let start =
        sqlparser::tokenizer::Location { line: line.parse().ok()?, column: column.trim().parse().ok()? };
    let end = sqlparser::tokenizer::Location { line: start.line, column: start.column + 1 };
    source.span(sqlparser::tokenizer::Span { start, end })
}

fn lower_first(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}
