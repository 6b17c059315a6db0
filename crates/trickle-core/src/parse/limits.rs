//! Limits the depth of a syntax tree. The depth is computed from the tokens, before the tree exists.
//!
//! A parser recurses into parentheses and prefixes. Infix chains (`1+1+1…`) make left-deep trees. Every later
//! walk of such a tree, even Drop, recurses along the left operands. The depth of groups and the number of
//! operators are limited for each path from the root. A path lies in nested groups. The number of operators
//! on the path is the sum over these groups.

use super::Source;
use crate::error::{Error, Result};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The greatest depth of nested groups (parentheses, brackets, CASE … END).
pub(super) const GROUPS: usize = 200;
/// The greatest number of operators on one path, without AND, OR and set operations.
const OPERATORS: usize = 1_000;
/// The greatest number of AND, OR, UNION, … on one path.
const LINKS: usize = 10_000;
/// The parser's own limit, which is above any depth that [`GROUPS`] and [`OPERATORS`] allow.
pub(super) const RECURSION: usize = 4 * (GROUPS + OPERATORS);

/// The counts of one open group, up to the current token.
#[derive(Default)]
struct Group {
    /// The number of operators since the last comma, AND or OR.
    operators: usize,
    /// The greatest count of operators in one inner group since the last comma, AND or OR.
    nested_operators: usize,
    /// The number of links (AND, OR, UNION, …) since the last comma.
    links: usize,
    /// The greatest count of links in one inner group since the last comma.
    nested_links: usize,
    /// The greatest count of operators in a complete part of the group.
    most_operators: usize,
    /// The greatest count of links in a complete part of the group.
    most_links: usize,
}

impl Group {
    fn operators(&self) -> usize {
        self.most_operators.max(self.operators + self.nested_operators)
    }
    fn links(&self) -> usize {
        self.most_links.max(self.links + self.nested_links)
    }
    fn comma(&mut self) {
        self.link();
        self.most_links = self.links();
        (self.links, self.nested_links) = (0, 0);
    }
    fn link(&mut self) {
        self.most_operators = self.operators();
        (self.operators, self.nested_operators) = (0, 0);
        self.links += 1;
    }
    fn absorb(&mut self, inner: &Group) {
        self.nested_operators = self.nested_operators.max(inner.operators() + 1);
        self.nested_links = self.nested_links.max(inner.links());
    }
}

/// An upper bound for the depth of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    groups: usize,
    operators: usize,
    links: usize,
}

impl Depth {
    /// Returns the size of the stack, in bytes, with which a tree of this depth is parsed, walked and
    /// dropped. The size is a constant, plus an amount for each level of each kind. The deepest tree of one
    /// kind gets more than 24 MiB. (The parser's most recursive functions grow the stack themselves.)
    pub(super) fn stack(self) -> usize {
        (256 << 10) + (self.groups << 17) + (self.operators << 15) + (self.links << 13)
    }
}

/// Returns the depth of the tree of a text. Refuses a text whose tree would be too deep. The error points at
/// the token that exceeds a limit.
pub(super) fn check(source: &Source, tokens: &[TokenWithSpan]) -> Result<Depth> {
    let mut depth = Depth { groups: 0, operators: 0, links: 0 };
    let mut open = vec![Group::default()];
    let mut before = &Token::EOF;
    for t in tokens {
        let Some(group) = open.last_mut() else { break };
        // `int[][]` is an array of arrays: a bracket directly after a bracket adds one level.
        if t.token == Token::LBracket && *before == Token::RBracket {
            group.operators += 1;
        }
        if !matches!(t.token, Token::Whitespace(_)) {
            before = &t.token;
        }
        match &t.token {
            Token::Whitespace(_) | Token::EOF | Token::Period | Token::Number(..) => continue,
            Token::LParen | Token::LBracket | Token::LBrace => open.push(Group::default()),
            Token::RParen | Token::RBracket | Token::RBrace => close(&mut open),
            Token::Comma | Token::SemiColon => group.comma(),
            Token::Word(w) => match w.keyword {
                Keyword::CASE => open.push(Group::default()),
                Keyword::END => close(&mut open),
                Keyword::AND
                | Keyword::OR
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::FROM
                | Keyword::WHERE
                | Keyword::ON
                | Keyword::SELECT => group.link(),
                Keyword::JOIN => group.comma(),
                Keyword::NoKeyword => {}
                _ => group.operators += 1,
            },
            _ => group.operators += 1,
        }
        depth.groups = depth.groups.max(open.len());
        if let Some(group) = open.last() {
            depth.operators = depth.operators.max(group.operators());
            depth.links = depth.links.max(group.links());
        }
        if depth.groups > GROUPS || depth.operators > OPERATORS || depth.links > LINKS {
            return Err(too_deep(source, t));
        }
    }
    // Groups that are never closed count as if nested in each other.
    while open.len() > 1 {
        close(&mut open);
    }
    if let Some(whole) = open.last() {
        depth.operators = depth.operators.max(whole.operators());
        depth.links = depth.links.max(whole.links());
    }
    Ok(depth)
}

/// Returns the error for the token that exceeds a limit.
fn too_deep(source: &Source, token: &TokenWithSpan) -> Error {
    let e = Error::too_complex("the query nests too deeply, or chains too many operators")
        .detail(format!(
            "At most {GROUPS} parentheses may be open, {OPERATORS} operators and {LINKS} ANDs, ORs or UNIONs \
             follow each other."
        ))
        .hint("Split the expression, or use IN (…) or = ANY (ARRAY[…]) for long lists.");
    match source.span(token.span) {
        Some(span) => e.at(span),
        None => e,
    }
}

fn close(open: &mut Vec<Group>) {
    // An unmatched closing token is ignored here, since the parser reports it.
    if open.len() > 1
        && let (Some(inner), Some(outer)) = (open.pop(), open.last_mut())
    {
        outer.absorb(&inner);
    }
}
