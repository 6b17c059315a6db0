//! Corrects the tokens of operators. The tokenizer splits some operators of several characters, such as
//! `@@@`. It joins some neighbouring operators, such as `>-` in `a>-1`.

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

/// The characters of operators (PostgreSQL manual, Lexical Structure, Operators).
pub(super) const CHARACTERS: &str = "+-*/<>=~!@#%^&|`?";

/// The characters with which an operator of several characters may end in `+` or `-`.
const SPECIAL: &str = "~!@#%^&|`?";

/// Returns the tokens with each operator as one token, as PostgreSQL reads it.
pub(super) fn join(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut run: Vec<(TokenWithSpan, String)> = Vec::new();
    for t in tokens {
        let text = operator(&t.token);
        if text.is_none() || run.last().is_some_and(|(last, _)| last.span.end != t.span.start) {
            end(&mut run, &mut joined);
        }
        match text {
            Some(text) => run.push((t, text)),
            None => joined.push(t),
        }
    }
    end(&mut run, &mut joined);
    joined
}

/// Returns the text of a token that consists only of operator characters.
fn operator(token: &Token) -> Option<String> {
    if matches!(token, Token::Whitespace(_) | Token::Word(_) | Token::Number(..) | Token::EOF) {
        return None;
    }
    let text = token.to_string();
    (!text.is_empty() && text.chars().all(|c| CHARACTERS.contains(c))).then_some(text)
}

/// Adds the tokens that PostgreSQL reads from a run of tokens without blanks between them.
fn end(run: &mut Vec<(TokenWithSpan, String)>, joined: &mut Vec<TokenWithSpan>) {
    let text: String = run.iter().map(|(_, text)| text.as_str()).collect();
    let pieces = pieces(&text);
    if pieces.iter().eq(run.iter().map(|(_, text)| text)) {
        joined.extend(run.drain(..).map(|(t, _)| t));
        return;
    }
    let Some(mut start) = run.first().map(|(t, _)| t.span.start) else { return };
    run.clear();
    for piece in pieces {
        let end = Location { column: start.column + piece.len() as u64, ..start };
        joined.push(TokenWithSpan { token: token(piece), span: Span { start, end } });
        start = end;
    }
}

/// Splits a run of operator characters into operators. An operator of several characters ends in `+` or `-`
/// only if it has one of the special characters, so that `a=-1` has two operators.
fn pieces(mut run: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !run.is_empty() {
        let length = match run.contains(|c| SPECIAL.contains(c)) {
            true => run.len(),
            false => run.trim_end_matches(['+', '-']).len().max(1),
        };
        let (piece, rest) = run.split_at(length);
        pieces.push(piece);
        run = rest;
    }
    pieces
}

fn token(operator: &str) -> Token {
    match Tokenizer::new(&PostgreSqlDialect {}, operator).tokenize().as_deref() {
        Ok([one]) => one.clone(),
        Ok(_) | Err(_) => Token::CustomBinaryOperator(operator.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;
    use super::*;

    #[test]
    fn an_operator_is_one_token_as_in_postgresql() {
        for (run, operators) in [
            ("@@@", "@@@"),
            ("^-", "^-"),
            ("=-", "= -"),
            ("<>-+", "<> - +"),
            ("->-", "-> -"),
            ("->>-", "->> -"),
            ("#>-", "#>-"),
            ("-+", "- +"),
            ("*-", "* -"),
            ("<->", "<->"),
        ] {
            assert_eq!(pieces(run).join(" "), operators);
        }
        for (sql, spaced) in [
            (
                "SELECT a>-1, a<>-1, b>=-1, a=-1, a->-1, a*-1",
                "SELECT a > -1, a <> -1, b >= -1, a = -1, a -> -1, a * -1",
            ),
            ("SELECT a-+b, -+a, a+-1, *, t.* FROM t", "SELECT a - +b, - +a, a + -1, *, t.* FROM t"),
            ("SELECT a@@@b, a<->b", "SELECT a @@@ b, a <-> b"),
            ("SELECT a=/**/b, a*/**/b, /***//**/ c", "SELECT a = b, a * b, c"),
            ("SELECT '@@@', \"%-\" FROM t -- ^-1", "SELECT '@@@', \"%-\" FROM t"),
        ] {
            assert_eq!(rewritten(sql), rewritten(spaced), "{sql}");
        }
    }
}
