//! Reads CREATE AGGREGATE, which the parser crate does not read.

use sqlparser::ast::{DataType, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// The parts of CREATE AGGREGATE that a catalog of relations and functions needs (PostgreSQL manual, VI.I).
pub(super) struct CreateAggregate {
    pub(super) name: ObjectName,
    /// The argument types. In an ordered-set aggregate, the types of direct arguments come first, then the
    /// types of aggregated arguments.
    pub(super) args: Vec<DataType>,
    /// `STYPE`: the state type. Without a final function, this is also the type of the result.
    pub(super) state: DataType,
    /// The final function, `FINALFUNC`.
    pub(super) finish: Option<ObjectName>,
}

impl CreateAggregate {
    /// Reads CREATE AGGREGATE. Returns `None`, and consumes no token, for any other statement.
    pub(super) fn parse(p: &mut Parser<'_>) -> Result<Option<CreateAggregate>, ParserError> {
        use Keyword::{AGGREGATE, CREATE, OR, REPLACE};
        if !p.parse_keywords(&[CREATE, OR, REPLACE, AGGREGATE]) && !p.parse_keywords(&[CREATE, AGGREGATE]) {
            return Ok(None);
        }
        let name = p.parse_object_name(false)?;
        let args = arguments(p)?;
        p.expect_token(&Token::LParen)?;
        let (mut state, mut finish) = (None, None);
        loop {
            let option = p.parse_identifier()?.value.to_lowercase();
            if p.consume_token(&Token::Eq) {
                match option.as_str() {
                    "stype" => state = Some(p.parse_data_type()?),
                    "finalfunc" => finish = Some(p.parse_object_name(false)?),
                    _ => {
                        while !matches!(p.peek_token().token, Token::Comma | Token::RParen | Token::EOF) {
                            p.next_token();
                        }
                    }
                }
            }
            if !p.consume_token(&Token::Comma) {
                break;
            }
        }
        p.expect_token(&Token::RParen)?;
        match state {
            Some(state) => Ok(Some(CreateAggregate { name, args, state, finish })),
            None => p.expected("STYPE = type", p.peek_token()),
        }
    }
}

/// Reads the argument types: `(*)` or `([[mode] [name] type, …] [ORDER BY [mode] [name] type, …])`.
fn arguments(p: &mut Parser<'_>) -> Result<Vec<DataType>, ParserError> {
    p.expect_token(&Token::LParen)?;
    let mut args = Vec::new();
    if !p.consume_token(&Token::Mul) {
        loop {
            let _ = p.parse_keywords(&[Keyword::ORDER, Keyword::BY]);
            let _ = p.parse_one_of_keywords(&[Keyword::IN, Keyword::VARIADIC]);
            let first = p.parse_data_type()?;
            let more = |t: &Token| matches!(t, Token::Word(w) if w.keyword != Keyword::ORDER);
            args.push(if more(&p.peek_token().token) { p.parse_data_type()? } else { first });
            let ordered = matches!(p.peek_token().token, Token::Word(_));
            if !ordered && !p.consume_token(&Token::Comma) {
                break;
            }
        }
    }
    p.expect_token(&Token::RParen)?;
    Ok(args)
}
