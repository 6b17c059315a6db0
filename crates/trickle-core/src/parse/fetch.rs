//! `FETCH FIRST (n) ROWS`, as PostgreSQL writes it, for a parser that wants a bare number.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// The tokens with the parentheses around such a number made blanks.
pub(super) fn bare(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let keyword = |t: &Token, k: &[Keyword]| matches!(t, Token::Word(w) if k.contains(&w.keyword));
    if !tokens.iter().any(|t| keyword(&t.token, &[Keyword::FETCH])) {
        return tokens;
    }
    let dense: Vec<usize> =
        (0..tokens.len()).filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_))).collect();
    for at in dense.windows(5) {
        let token = |i: usize| &tokens[at[i]].token;
        let fits = keyword(token(0), &[Keyword::FETCH])
            && keyword(token(1), &[Keyword::FIRST, Keyword::NEXT])
            && *token(2) == Token::LParen
            && matches!(token(3), Token::Number(..))
            && *token(4) == Token::RParen;
        if fits {
            for i in [at[2], at[4]] {
                tokens[i].token = Token::Whitespace(Whitespace::Space);
            }
        }
    }
    tokens
}
