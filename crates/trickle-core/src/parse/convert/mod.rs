//! Converts the parser crate's tree to [`crate::syntax`]. The markers of `forms` and `arrays` are decoded
//! here. Clauses that PostgreSQL does not have are refused.

mod call;
mod ddl;
mod expr;
mod from;
mod group;
mod names;
mod operators;
mod query;
mod select;
mod special;
mod window;

use super::Source;
use super::source::extent;
use crate::error::{Error, Result};
use crate::syntax::Query;
pub(super) use ddl::{aggregate, statement};
pub(super) use names::{ident, object_name};
use sqlparser::ast::{self, Spanned};
use sqlparser::tokenizer::Span;

/// Converts a query. Precondition: the stack is large enough to walk the tree.
///
/// # Errors
/// Fails with a syntax error for a clause or an expression that PostgreSQL does not have.
pub(super) fn query(source: &Source, query: &ast::Query) -> Result<Query> {
    Converter { source }.query(query)
}

struct Converter<'a> {
    source: &'a Source,
}

impl Converter<'_> {
    /// Makes an error point at a part of the tree.
    fn at(&self, e: Error, span: Span) -> Error {
        match self.source.of(&extent(span)) {
            Some(span) => e.at(span),
            None => e,
        }
    }

    /// Returns a syntax error at a part of the tree.
    fn refused<T>(&self, message: impl Into<String>, part: &impl Spanned) -> Result<T> {
        Err(self.at(Error::syntax(message), part.span()))
    }

    /// Refuses a part of a query if it has a clause that PostgreSQL does not have.
    fn plain(&self, foreign: bool, part: &impl Spanned) -> Result<()> {
        match foreign {
            true => self.refused("a clause that PostgreSQL does not have", part),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_query;

    /// The names that the rewriting gives to the columns of `ARRAY(SELECT …)` stay, since no query can
    /// contain such names.
    #[test]
    fn no_mark_is_left_in_the_syntax_tree() {
        for sql in [
            "SELECT a FROM ONLY t JOIN u USING (a) AS b GROUP BY DISTINCT ROLLUP (a, (b, c)), GROUPING SETS ((), (a))",
            "SELECT 1 = ANY ((SELECT 1) UNION (SELECT 2)), a <<= ALL (b), a AT LOCAL, f(VARIADIC a) FROM t",
            "SELECT sum(a) OVER (ORDER BY a ROWS 1 PRECEDING EXCLUDE TIES), json_objectagg(a : b) FROM t",
            "WITH RECURSIVE r AS (SELECT 1 UNION SELECT 2) SEARCH DEPTH FIRST BY a SET o CYCLE a SET c USING p SELECT 1 FROM r",
            "SELECT * FROM ROWS FROM (f(1), g(2) AS (a int)) AS x, JSON_TABLE(d, '$' COLUMNS (a int PATH '$.a'))",
            "SELECT JSON_OBJECT('a' : xmlelement(NAME b, c) RETURNING jsonb), json_array(SELECT 1), x IS DOCUMENT",
        ] {
            let tree = format!("{:?}", parse_query(sql).expect(sql).query());
            assert!(!tree.contains("\\0"), "{sql}: {tree}");
        }
    }

    #[test]
    fn foreign_syntax_is_refused_where_it_stands() {
        for (sql, column, message) in [
            ("SELECT 1 FROM a WHERE b XOR c", 23, "operator XOR is not PostgreSQL"),
            ("SELECT a, TRY_CAST(b AS int)", 20, "an expression that PostgreSQL does not have"),
            ("SELECT ceil(a, 2)", 13, "ceil takes one argument"),
            ("SELECT X'1G'", 8, "\"1G\" is no bit string"),
            ("SELECT 1 FROM a JOIN b", 22, "a join without ON or USING"),
            ("SELECT 1 FROM a LEFT SEMI JOIN b ON true", 32, "a join that PostgreSQL does not have"),
            ("SELECT a INTO b FROM c", 15, "SELECT INTO makes a table and is no query"),
        ] {
            let e = parse_query(sql).expect_err(sql);
            assert_eq!((e.message(), e.span().map(|s| s.column)), (message, Some(column)), "{sql}");
            assert_eq!(e.sqlstate(), "42601", "{sql}");
        }
    }

    #[test]
    fn long_chains_are_converted() {
        for sql in [
            format!("SELECT 1 FROM t WHERE {}", vec!["a = 1"; 9_900].join(" AND ")),
            vec!["SELECT a FROM t"; 3_000].join(" UNION ALL "),
            format!("SELECT 1{}", " + 1".repeat(990)),
        ] {
            parse_query(&sql).expect("a long chain");
        }
    }
}
