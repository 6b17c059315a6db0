//! Reads the clauses `FOR NO KEY UPDATE` and `FOR KEY SHARE`, which the parser crate does not know.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Returns the tokens with `FOR UPDATE` in place of `FOR NO KEY UPDATE`, and `FOR SHARE` in place of
/// `FOR KEY SHARE`. All four clauses lock rows, so a query with any of them is refused for the same reason.
pub(super) fn reworded(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<(usize, String)> = tokens.iter().enumerate().filter_map(word).collect();
    let texts: Vec<&str> = words.iter().map(|(_, word)| word.as_str()).collect();
    let mut left_out = Vec::new();
    for i in 0..texts.len() {
        let more = match &texts[i..] {
            ["FOR", "NO", "KEY", "UPDATE", ..] => 2,
            ["FOR", "KEY", "SHARE", ..] => 1,
            _ => 0,
        };
        left_out.extend(words.iter().skip(i + 1).take(more).map(|(at, _)| *at));
    }
    let mut at = 0..;
    tokens.retain(|_| at.next().is_none_or(|at| left_out.binary_search(&at).is_err()));
    tokens
}

/// Returns the place of a token and its word in capitals. Tokens that are not words are words without
/// letters, so no clause goes across them. Blanks and comments are left out.
fn word((at, t): (usize, &TokenWithSpan)) -> Option<(usize, String)> {
    match &t.token {
        Token::Whitespace(_) => None,
        Token::Word(word) if word.quote_style.is_none() => Some((at, word.value.to_ascii_uppercase())),
        _ => Some((at, String::new())),
    }
}
