//! Refuses operators that the tokeniser splits otherwise than PostgreSQL does, since the parts would mean other
//! operators.

use super::Source;
use crate::error::{Error, Result};
use sqlparser::tokenizer::TokenWithSpan;
use std::ops::Range;

/// The characters of operators (PostgreSQL manual, Lexical Structure, Operators).
const CHARACTERS: &str = "+-*/<>=~!@#%^&|`?";

/// The characters with which an operator of several characters may end in `+` or `-`.
const SPECIAL: &str = "~!@#%^&|`?";

/// Fails unless each operator in the source is one token.
pub(super) fn check(source: &Source, tokens: &[TokenWithSpan]) -> Result<()> {
    let text = source.text();
    let mut run: Vec<Range<usize>> = Vec::new();
    for t in tokens {
        let Some(span) = source.span(t.span) else { continue };
        let part = span.start..span.end;
        let is_operator = !part.is_empty() && text[part.clone()].chars().all(|c| CHARACTERS.contains(c));
        if !is_operator || run.last().is_some_and(|last| last.end != part.start) {
            check_run(source, &run)?;
            run.clear();
        }
        if is_operator {
            run.push(part);
        }
    }
    check_run(source, &run)
}

/// Fails unless PostgreSQL has the same tokens as the tokeniser in a run of tokens without blanks in between.
fn check_run(source: &Source, run: &[Range<usize>]) -> Result<()> {
    let [first, .., last] = run else { return Ok(()) };
    let mut rest = &source.text()[first.start..last.end];
    for token in run {
        let operator = &rest[..length(rest)];
        if operator.len() != token.len() {
            let message = format!("the operator {operator} is not implemented");
            return Err(Error::unsupported(message).at(source.at(token.start)));
        }
        rest = &rest[operator.len()..];
    }
    Ok(())
}

/// Returns the length of the operator with which a run of operator characters begins. An operator ends in `+`
/// or `-` only if it has one of the special characters, so that `a=-1` has two operators.
fn length(run: &str) -> usize {
    if run.contains(|c| SPECIAL.contains(c)) {
        return run.len();
    }
    run.trim_end_matches(['+', '-']).len().max(1)
}

#[cfg(test)]
mod tests {
    use super::super::parse_query;

    #[test]
    fn an_operator_is_one_token_as_in_postgresql() {
        for (sql, operator) in [("SELECT a @@@ b", "@@@"), ("SELECT a ^-1", "^-")] {
            let e = parse_query(sql).expect_err(sql);
            assert!(e.message().contains(&format!("the operator {operator} ")), "{sql}: {e}");
            assert!(e.span().is_some(), "{sql}");
        }
        for sql in [
            "SELECT a=-1, a<-1, a->-1, a*-1, a- -1, a+-1, - -a, a@>b, a<@b, a#>>b, a<->b, a ~~* b, a !~ b, a@@b",
            "SELECT *, t.*, count(*) FROM t WHERE a<>-1 AND a>=-b AND a ? 'x' AND a ?| b AND a #- b AND a || b",
            "SELECT '@@@', \"%-\" FROM t -- ^-1",
        ] {
            parse_query(sql).expect(sql);
        }
    }
}
