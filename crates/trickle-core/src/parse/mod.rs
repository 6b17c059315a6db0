//! Parses SQL text to the tree of `syntax`. Only this module knows the parser crate. `forms` and `arrays`
//! rewrite syntax that the crate does not read, and `convert` turns the crate's tree into the syntax tree.
//!
//! No input makes the parser panic or overflow the stack. `limits` bounds the depth of a tree before the tree
//! is built. Every walk or drop of a tree runs on a large enough stack.

mod aggregate;
mod arrays;
mod convert;
mod errors;
mod forms;
mod limits;
mod locks;
mod names;
mod numbers;
mod operators;
mod script;
mod source;
mod tables;
#[cfg(feature = "testing")]
mod writes;

pub use script::{Comment, Defined, ScriptStatement, StatementKind, find_name, statements};
pub(crate) use source::Source;
pub use tables::{Other, over_other_tables};
#[cfg(feature = "testing")]
pub(crate) use writes::parse_writes;

use crate::error::{Error, Result, Span};
use crate::syntax::{Query, Statement};
use aggregate::CreateAggregate;
use limits::Depth;
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The syntax tree of a query, with the text of the query.
pub struct Parsed {
    query: Option<Box<Query>>,
    relations: Vec<(Option<String>, String)>,
    source: Source,
    depth: Depth,
}

impl Parsed {
    /// Returns the syntax tree.
    pub(crate) fn query(&self) -> Option<&Query> {
        self.query.as_deref()
    }
    /// Runs `f` with enough stack to walk the tree.
    pub(crate) fn deep<T>(&self, f: impl FnOnce() -> T) -> T {
        deep(self.depth, f)
    }
    /// Returns the names of relations in the query, with case folded as by PostgreSQL. Each name comes with
    /// its schema, if the query gives one. Names of CTEs are included. A relation may occur several times.
    pub fn relations(&self) -> Vec<(Option<String>, String)> {
        self.relations.clone()
    }
    /// Returns the text as a [`Source`], which converts positions in the tree to spans.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }
    /// Returns the text that was parsed.
    pub(crate) fn text(&self) -> &str {
        self.source.text()
    }
}

impl std::fmt::Debug for Parsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parsed").field("text", &self.text()).finish_non_exhaustive()
    }
}

impl Drop for Parsed {
    fn drop(&mut self) {
        let query = self.query.take();
        deep(self.depth, move || drop(query));
    }
}

/// Runs `f` with enough stack for a tree of this depth. Plain queries use the present stack: any thread's
/// stack is large enough, and a new stack costs more than the parsing.
fn deep<T>(depth: Depth, f: impl FnOnce() -> T) -> T {
    let need = depth.stack();
    stacker::maybe_grow(need, 2 * need, f)
}

/// Parses one query: SELECT, VALUES, TABLE, WITH or a set operation. A final semicolon is allowed.
///
/// # Errors
/// Fails with a syntax error, which has the position and the unexpected token, or if the text is nested too
/// deeply.
pub fn parse_query(sql: &str) -> Result<Parsed> {
    let source = Source::new(sql);
    let tokens = tokens(&source)?;
    parsed(source, tokens)
}

/// Parses a query that a catalog holds. The query may contain markers of the rewriting, if the parser crate
/// printed it.
///
/// # Errors
/// Fails as [`parse_query`] does.
pub(crate) fn parse_stored(sql: &str) -> Result<Parsed> {
    let source = Source::new(sql);
    let tokens = reworded(&source)?;
    parsed(source, tokens)
}

fn parsed(source: Source, tokens: (Vec<TokenWithSpan>, Depth)) -> Result<Parsed> {
    let converted = |q: Box<ast::Query>, source: &Source| {
        Ok((Box::new(convert::query(source, &q)?), names::relations(&q)))
    };
    let ((query, relations), source, depth) = read_tokens(source, tokens, converted)?;
    Ok(Parsed { query: Some(query), relations, source, depth })
}

/// Parses one query to the parser crate's tree, and runs `f` with enough stack to walk the tree.
fn read<T>(sql: &str, f: impl FnOnce(Box<ast::Query>, &Source) -> Result<T>) -> Result<(T, Source, Depth)> {
    let source = Source::new(sql);
    let tokens = tokens(&source)?;
    read_tokens(source, tokens, f)
}

fn read_tokens<T>(
    source: Source,
    (tokens, depth): (Vec<TokenWithSpan>, Depth),
    f: impl FnOnce(Box<ast::Query>, &Source) -> Result<T>,
) -> Result<(T, Source, Depth)> {
    if tokens.iter().all(|t| matches!(t.token, Token::Whitespace(_) | Token::SemiColon)) {
        return Err(Error::syntax("the query is empty").at(source.end()).hint("Write a SELECT statement."));
    }
    let rewordable = arrays::may_stand_in(&tokens);
    let made = deep(depth, || {
        let mut parser = parser(tokens);
        let parsed = parser.parse_query().and_then(|q| {
            while parser.consume_token(&Token::SemiColon) {}
            parser.expect_token(&Token::EOF).map(|_| q)
        });
        let mut query = parsed.map_err(|e| errors::convert(&source, e, &parser))?;
        if rewordable {
            arrays::reword(&mut query);
        }
        f(query, &source)
    })?;
    Ok((made, source, depth))
}

/// Parses the statements of a text that define objects of a catalog. Calls `f` with each such statement, and
/// with the text that contains the statement. All other statements are skipped unread, so syntax that the
/// parser crate does not know does no harm.
///
/// # Errors
/// Fails with a syntax error, or with an error of `f`.
pub(crate) fn each_definition(sql: &str, mut f: impl FnMut(Statement, &Source) -> Result<()>) -> Result<()> {
    let source = Source::new(sql);
    let (tokens, depth) = tokens(&source)?;
    deep(depth, || {
        for piece in script::split(&source, &tokens) {
            if script::describes(&piece.words) {
                if let Some(statement) = definition(&source, &piece)? {
                    f(statement, &source)?;
                }
            } else if !script::begins(&piece.words) {
                parse_piece(&source, &piece, |p| p.parse_statement().map(|_| ()))?;
            }
        }
        Ok(())
    })
}

/// Reads a statement. Returns `None` for a statement whose objects a catalog does not record.
fn definition(source: &Source, piece: &script::Piece<'_>) -> Result<Option<Statement>> {
    parse_piece(source, piece, |p| match CreateAggregate::parse(p)? {
        Some(aggregate) => Ok(Some(convert::aggregate(&aggregate))),
        None => Ok(convert::statement(&p.parse_statement()?)),
    })
}

/// Calls `read` once, with a parser over the tokens of a statement.
///
/// # Errors
/// Returns a syntax error if `read` fails or leaves tokens unread.
fn parse_piece<T>(
    source: &Source,
    piece: &script::Piece<'_>,
    read: impl FnOnce(&mut Parser<'_>) -> std::result::Result<T, ParserError>,
) -> Result<T> {
    let mut parser = parser(piece.words.iter().map(|t| (*t).clone()).collect());
    let read = read(&mut parser).and_then(|t| parser.expect_token(&Token::EOF).map(|_| t));
    read.map_err(|e| errors::convert(source, e, &parser))
}

/// Parses statements separated by semicolons, and calls `f` with each statement.
///
/// # Errors
/// Fails with a syntax error, or with an error of `f`.
#[cfg(feature = "testing")]
pub(crate) fn each_statement(sql: &str, f: impl FnMut(ast::Statement) -> Result<()>) -> Result<()> {
    let source = Source::new(sql);
    let (tokens, depth) = tokens(&source)?;
    deep(depth, || {
        let mut parser = parser(tokens);
        let statements = parser.parse_statements().map_err(|e| errors::convert(&source, e, &parser))?;
        statements.into_iter().try_for_each(f)
    })
}

/// Finds the position where a query renames the columns of a `JSON_TABLE` or `XMLTABLE` by a list after the
/// alias. In its output, `pg_get_viewdef` leaves out these names.
///
/// # Errors
/// Fails if a string, identifier or comment is not terminated.
pub fn renamed_columns(sql: &str) -> Result<Option<Span>> {
    let source = Source::new(sql);
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, source.text())
        .tokenize_with_location()
        .map_err(|e| errors::convert_token(&source, &e))?;
    Ok(forms::renamed_columns(&tokens).and_then(|t| source.span(t.span)))
}

/// Returns the rewritten tokens of a text that may hold no marks.
fn tokens(source: &Source) -> Result<(Vec<TokenWithSpan>, Depth)> {
    if let Some(at) = source.text().find('\0') {
        // Names that begin with a NUL are the engine's own markers.
        let e = Error::syntax("a text holds no character 0").hint("Take it out: PostgreSQL knows none.");
        return Err(e.at(source.at(at)));
    }
    reworded(source)
}

fn reworded(source: &Source) -> Result<(Vec<TokenWithSpan>, Depth)> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, source.text())
        .tokenize_with_location()
        .map_err(|e| errors::convert_token(source, &e))?;
    let tokens = forms::reworded(locks::reworded(operators::join(tokens)));
    let depth = limits::check(source, &tokens)?;
    Ok((numbers::join(source, tokens)?, depth))
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(limits::RECURSION)
        .with_tokens_with_locations(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of the tree that the parser crate makes from a rewritten query, with `!` for markers.
    pub(super) fn rewritten(sql: &str) -> String {
        let read = read(sql, |query, _| Ok(query.to_string().replace('\0', "!")));
        read.unwrap_or_else(|e| panic!("{sql}: {e}")).0
    }

    fn error(sql: &str) -> Error {
        parse_query(sql).expect_err(sql)
    }

    #[test]
    fn a_syntax_error_names_the_token_and_its_place() {
        let e = error("SELECT a\nFROM t\nWHERE a = = 1");
        assert_eq!((e.span().unwrap().line, e.span().unwrap().column), (3, 11), "{e}");
        assert!(e.is_syntax() && e.message().contains("\"=\""), "{e}");
        assert_eq!(error("SELECT 'abc").sqlstate(), "42601");
        for (sql, column, found) in [
            ("SELECT CASE WHEN a = = 3 THEN 1 END", 22, "\"=\""),
            ("SELECT CASE WHEN a THEN 'x' FROM t", 29, "\"FROM\""),
            ("SELECT CASE a WHEN 1 THEN 2 ELS 3 END", 29, "\"ELS\""),
            ("SELECT 1, CASE WHEN a THEN CASE WHEN b THEN 1, END END", 46, "\",\""),
            ("SELECT 1 FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHER b = 1)", 56, "\"b\""),
            ("SELECT 1 FROM t WHERE NOT CASE b WHEN 1 THEN 2 , END", 48, "\",\""),
            ("SELECT extract(year FRM d)", 16, "\"year\""),
            ("SELECT s COLLATE \"C\" COLLATE \"D\"", 22, "\"COLLATE\""),
        ] {
            let e = error(sql);
            assert_eq!(e.span().unwrap().column, column, "{sql}: {e}");
            assert!(e.message().ends_with(found) && !e.to_string().contains("parser"), "{sql}: {e}");
        }
        assert!(error("SELECT (1").message().contains("end of input"));
        assert!(error("SELECT 1; SELECT 2").is_syntax());
        assert!(error("  ").message().contains("empty"));
        assert!(error("DROP TABLE t").is_syntax());
    }

    #[test]
    fn attacks_on_the_stack_are_refused() {
        let repeat = |s: &str, n: usize| s.repeat(n);
        let n = 10_000;
        for sql in [
            format!("SELECT {}1{}", repeat("(", n), repeat(")", n)),
            format!("SELECT 1{}", repeat("+1", 500_000)),
            format!("SELECT {} true", repeat("NOT ", n)),
            format!("SELECT {} 1", repeat("- ", n)),
            format!("SELECT {} 1", repeat("~ ", n)),
            format!("SELECT 1{}", repeat("::int", n)),
            format!("SELECT a::int{}", repeat("[]", n)),
            format!("SELECT 1{}", repeat(" IS NULL", n)),
            format!("SELECT {} 1 {}", repeat("(SELECT ", n), repeat(")", n)),
            format!("SELECT {} x {}", repeat("CASE WHEN ", n), repeat(" THEN 1 END", n)),
            format!("SELECT * FROM {} t {}", repeat("(", n), repeat(")", n)),
            format!("SELECT {} 1 {}", repeat("array[", n), repeat("]", n)),
            format!("SELECT {} 1 {}", repeat("f(", n), repeat(")", n)),
            format!("SELECT 1 {}", repeat("UNION ALL SELECT 1 ", 100_000)),
            format!("{} SELECT 1 {}", repeat("WITH a AS (", n), repeat(") SELECT 1", n)),
            format!("SELECT xmlelement(NAME a, {} {})", repeat("XMLATTRIBUTES(", n), repeat(")", n)),
            format!("SELECT json_table({} {})", repeat("a COLUMNS (NESTED '$' ", n), repeat(")", n)),
            format!("SELECT {} 1 {}", repeat("json_array(SELECT ", n), repeat(")", n)),
            format!("SELECT json_array({})", repeat("[", n)),
        ] {
            let e = error(&sql);
            assert_eq!(e.sqlstate(), "54001", "{e} {}", &sql[..40]);
            assert!(e.span().is_some());
        }
        for sql in [repeat("(", 1_000_000), repeat("\u{e9}'", 100_001), repeat("/*", 100_000)] {
            error(&sql);
        }
    }

    #[test]
    fn reasonable_sql_passes() {
        let and: Vec<String> = (0..800).map(|i| format!("(t.a{i} = '{i}'::text)")).collect();
        let list: Vec<String> = (0..10_000).map(|i| i.to_string()).collect();
        for sql in [
            format!("SELECT 1 FROM t WHERE {}", and.join(" AND ")),
            format!("SELECT 1 FROM t WHERE a IN ({})", list.join(",")),
            format!(
                "SELECT a FROM t {}",
                " UNION ALL SELECT a FROM t WHERE b = 1 AND c IS NOT NULL".repeat(100)
            ),
            format!("SELECT {}1{}", "(".repeat(100), ")".repeat(100)),
            format!("SELECT 1{}", " + 1".repeat(400)),
            format!("SELECT {} 1 -- {}", " ".repeat(1_000_000), "x".repeat(100_000)),
        ] {
            parse_query(&sql).unwrap();
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(sql in "\\PC{0,200}") {
            let _ = parse_query(&sql);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse_query(&String::from_utf8_lossy(&bytes));
        }
    }
}
