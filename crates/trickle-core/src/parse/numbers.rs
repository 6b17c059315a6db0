//! Corrects the tokens of numbers that the tokenizer does not read as numbers.

use super::Source;
use crate::error::{Error, Result};
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// Reads integers of other bases. The tokenizer reads `0x1F` as a bit string, and `0b11` and `0o17` as a
/// number with an alias. Refuses any other word that touches a number, as PostgreSQL does: `1x` is not
/// `1 AS x`.
pub(super) fn join(source: &Source, tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for mut t in tokens {
        match &t.token {
            // The text `0x1F` has two characters that are not digits; the bit string `X'1F'` has three.
            Token::HexStringLiteral(digits) if columns(t.span) == digits.len() + 2 => {
                t.token = Token::Number(format!("0x{digits}"), false);
            }
            Token::Number(_, true) => return Err(junk(source, t.span)),
            Token::Word(word) if word.quote_style.is_none() => {
                if let Some(TokenWithSpan { token: Token::Number(number, _), span }) = joined.last_mut() {
                    if number != "0" || !other_base(&word.value) {
                        return Err(junk(source, t.span));
                    }
                    number.push_str(&word.value);
                    span.end = t.span.end;
                    continue;
                }
            }
            _ => {}
        }
        joined.push(t);
    }
    Ok(joined)
}

fn other_base(word: &str) -> bool {
    let digits = word.strip_prefix(['b', 'B', 'o', 'O']).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Returns the number of characters of a token. Returns 0 if the token contains a line break.
fn columns(span: Span) -> usize {
    let same_line = span.start.line == span.end.line;
    let columns = span.end.column.saturating_sub(span.start.column);
    if same_line { usize::try_from(columns).unwrap_or(0) } else { 0 }
}

fn junk(source: &Source, at: Span) -> Error {
    let e = Error::syntax("trailing junk after numeric literal").hint("Write a space after the number.");
    source.span(at).map_or(e.clone(), |span| e.at(span))
}

#[cfg(test)]
mod tests {
    use super::super::parse_query;

    #[test]
    fn a_word_that_touches_a_number_is_no_alias() {
        for sql in
            ["SELECT 1x", "SELECT 1e", "SELECT 0b", "SELECT 0q1", "SELECT 1L", "SELECT 1.5AND", "SELECT 10b1"]
        {
            let e = parse_query(sql).expect_err(sql);
            assert!(e.message().contains("trailing junk") && e.span().is_some(), "{sql}: {e}");
        }
        for sql in
            ["SELECT 1 x", "SELECT 1\"x\"", "SELECT 0x1F, 0b1_1, 0O17, 1_000, 1e5, .5", "SELECT (1)x, X'1F'"]
        {
            parse_query(sql).expect(sql);
        }
    }
}
