//! Rewrites PostgreSQL syntax that the parser crate does not read into syntax that the parser crate reads.
//!
//! A rewrite may add markers: names that begin with a NUL, which no text on a server can contain. A marker
//! carries information for which the parser crate's tree has no place. Without markers, the rewritten query
//! means the same as the original.

mod calls;
mod domain;
mod operators;
mod query;
mod reader;
mod recursion;
mod rows;
mod sets;

use super::limits::GROUPS;
use crate::window::Exclusion;
pub(super) use calls::{FormPart, form_name, form_over_query, form_parts, is_document, json_aggregate};
pub(super) use domain::collation;
pub(super) use operators::{is_local, operator_of_any, variadic};
use reader::Reader;
pub(super) use recursion::{Cycle, Search, search_and_cycle};
pub(super) use rows::{RowsFrom, is_rows_from};
pub(super) use sets::GroupItem;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart, OrderByExpr,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

const ONLY: &str = "\0only";
const DISTINCT: &str = "\0distinct";
const VIRTUAL: &str = "\0virtual";
const EXCLUDED: [(&str, Exclusion); 4] = [
    ("\0exclude no others", Exclusion::NoOthers),
    ("\0exclude current row", Exclusion::CurrentRow),
    ("\0exclude group", Exclusion::Group),
    ("\0exclude ties", Exclusion::Ties),
];
/// The character with which every marker begins. The character alone is the alias of a query in parentheses.
/// Before the last name in USING, the character tells that this name is the alias of USING.
const MARK: &str = "\0";

/// Whether a table is named as `ONLY t`.
pub(in crate::parse) fn is_only(name: &ObjectName) -> bool {
    matches!(name.0.first(), Some(ObjectNamePart::Identifier(i)) if i.value == ONLY)
}

/// Whether a part of a dotted name is a marker, such as that for ONLY.
pub(super) fn is_mark(part: &ObjectNamePart) -> bool {
    matches!(part, ObjectNamePart::Identifier(i) if i.value.starts_with(MARK))
}

/// Whether the rewriting gave this alias to a query in parentheses.
pub(in crate::parse) fn is_alias_mark(alias: &Ident) -> bool {
    alias.value == MARK
}

/// Whether the first key of GROUP BY is the marker for `GROUP BY DISTINCT`.
pub(in crate::parse) fn is_group_distinct(key: &Expr) -> bool {
    matches!(key, Expr::Identifier(i) if i.value == DISTINCT)
}

/// Returns the alias in `USING (…) AS alias`, which is stored as the last of the names.
pub(in crate::parse) fn using_alias(names: &[ObjectName]) -> Option<Ident> {
    match names.last()?.0.as_slice() {
        [ObjectNamePart::Identifier(i)] => {
            Some(Ident { value: i.value.strip_prefix(MARK)?.to_owned(), ..i.clone() })
        }
        _ => None,
    }
}

/// Returns the keys of an ORDER BY without a marker at their end. Returns also the EXCLUDE clause for which
/// the marker stands.
pub(in crate::parse) fn excluded(keys: &[OrderByExpr]) -> (&[OrderByExpr], Exclusion) {
    if let Some((OrderByExpr { expr: Expr::Identifier(i), .. }, before)) = keys.split_last()
        && let Some((_, what)) = EXCLUDED.iter().find(|(mark, _)| i.value == *mark)
    {
        return (before, *what);
    }
    (keys, Exclusion::NoOthers)
}

/// Returns the expression of a generated column, and whether the column is virtual.
pub(in crate::parse) fn generated(e: &Expr) -> (&Expr, bool) {
    if let Expr::Function(f) = e
        && let [ObjectNamePart::Identifier(name)] = f.name.0.as_slice()
        && name.value == VIRTUAL
        && let FunctionArguments::List(list) = &f.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] = list.args.as_slice()
    {
        return (inner, true);
    }
    (e, false)
}

/// Returns the tokens. All syntax that the parser crate does not read is rewritten.
pub(super) fn reworded(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let suspect = |t: &TokenWithSpan| {
        let word = matches!(
            keyword(t),
            Keyword::ONLY
                | Keyword::GROUP
                | Keyword::ROWS
                | Keyword::USING
                | Keyword::GENERATED
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::VALUES
                | Keyword::TABLE
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::FETCH
                | Keyword::EXCLUDE
                | Keyword::PRECEDING
                | Keyword::FOLLOWING
                | Keyword::SEARCH
                | Keyword::CYCLE
                | Keyword::DOMAIN
                | Keyword::COLLATE
                | Keyword::COLLATION
                | Keyword::SUBSTRING
                | Keyword::AT
                | Keyword::TRIM
                | Keyword::VARIADIC
                | Keyword::ANY
                | Keyword::SOME
                | Keyword::ALL
                | Keyword::OPERATOR
        );
        word || calls::is_suspect(t)
    };
    let row_cast =
        |pair: &[TokenWithSpan]| matches!((&pair[0].token, &pair[1].token), (Token::Mul, Token::DoubleColon));
    if !tokens.iter().any(suspect) && !tokens.windows(2).any(row_cast) {
        return tokens;
    }
    let reader = Reader::new(&tokens);
    // Tokens that are nested more deeply than GROUPS are not rewritten, since the work would grow with the
    // depth. A text with such tokens is refused later.
    let edits = if reader.depth <= GROUPS { reader.edits() } else { Vec::new() };
    if edits.is_empty() {
        return tokens;
    }
    edited(tokens, edits)
}

/// Returns the alias of a `JSON_TABLE` or `XMLTABLE`, if the alias renames the columns.
pub(super) fn renamed_columns(tokens: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    let reader = Reader::new(tokens);
    reader.renamed_columns().map(|at| reader.words[at].1)
}

/// A change of the tokens at a position.
enum Edit {
    /// Inserts these tokens before the token at the position.
    Before(Vec<Token>),
    /// Replaces the token at the position by these tokens.
    Instead(Vec<Token>),
    /// Inserts these tokens after the token at the position.
    After(Vec<Token>),
}

fn edited(tokens: Vec<TokenWithSpan>, mut edits: Vec<(usize, Edit)>) -> Vec<TokenWithSpan> {
    // The sort is stable, so edits at one position keep their order.
    edits.sort_by_key(|(at, _)| *at);
    let mut edits = edits.into_iter().peekable();
    let mut out = Vec::with_capacity(tokens.len());
    for (i, token) in tokens.into_iter().enumerate() {
        let (mut kept, mut after) = (true, Vec::new());
        let span = token.span;
        let here = |t| TokenWithSpan::new(t, span);
        while let Some((_, edit)) = edits.next_if(|(at, _)| *at == i) {
            match edit {
                Edit::Before(new) => out.extend(new.into_iter().map(here)),
                Edit::Instead(new) => {
                    kept = false;
                    out.extend(new.into_iter().map(here));
                }
                Edit::After(new) => after.extend(new.into_iter().map(here)),
            }
        }
        if kept {
            out.push(token);
        }
        out.append(&mut after);
    }
    out
}

fn keyword(t: &TokenWithSpan) -> Keyword {
    match &t.token {
        Token::Word(w) if w.quote_style.is_none() => w.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn name(text: impl Into<String>) -> Token {
    Token::Word(Word { value: text.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword })
}

fn word(text: &str) -> Token {
    Token::make_keyword(text)
}

#[cfg(test)]
mod tests {
    use super::super::parse_query;
    use super::super::tests::rewritten as read;

    #[test]
    fn what_the_parser_does_not_read_is_put_into_other_words() {
        for (sql, wanted) in [
            ("SELECT 1 FROM ONLY a, ONLY (s.b) AS x", "SELECT 1 FROM \"!only\".a, \"!only\".s.b AS x"),
            ("SELECT 1 FROM a JOIN b USING (k) AS u", "SELECT 1 FROM a JOIN b USING(k, \"!u\")"),
            ("SELECT k FROM a GROUP BY DISTINCT k", "SELECT k FROM a GROUP BY \"!distinct\", k"),
            ("SELECT k FROM a GROUP BY ALL k", "SELECT k FROM a GROUP BY k"),
            (
                "SELECT 1 = ANY ((SELECT 1) UNION (SELECT 2))",
                "SELECT 1 = ANY(SELECT * FROM ((SELECT 1) UNION (SELECT 2)) AS \"!\")",
            ),
            (
                "SELECT (((SELECT 1) UNION (SELECT 2)) EXCEPT SELECT 3)",
                "SELECT (SELECT * FROM (((SELECT 1) UNION (SELECT 2)) EXCEPT SELECT 3) AS \"!\")",
            ),
            ("SELECT 1 < ALL (VALUES (2))", "SELECT 1 < ALL(SELECT * FROM (VALUES (2)) AS \"!\")"),
            (
                "WITH RECURSIVE r AS (SELECT 1) SEARCH DEPTH FIRST BY A, b SET o CYCLE a SET c TO 'Y' DEFAULT 'N' USING p SELECT 1",
                "WITH RECURSIVE r AS (SELECT 1 ORDER BY \"!search depth\"(\"o\", \"a\", \"b\"), \"!cycle to\"(\"c\", \"p\", 'Y', 'N', \"a\")) SELECT 1",
            ),
            (
                "SELECT (a)::text COLLATE \"C\", s.f(x)::varchar(3)::text COLLATE c, t.a::character varying COLLATE c",
                "SELECT ((a)::TEXT) COLLATE \"C\", (s.f(x)::VARCHAR(3)::TEXT) COLLATE c, (t.a::CHARACTER VARYING) COLLATE c",
            ),
            (
                "SELECT a::text AND upper(b) COLLATE c, (a::text) COLLATE c",
                "SELECT a::TEXT AND upper(b) COLLATE c, (a::TEXT) COLLATE c",
            ),
            ("SELECT t.*::t, x = s.t.*::s.t FROM t", "SELECT (t.*)::t, x = (s.t.*)::s.t FROM t"),
            (
                "SELECT TRIM(BOTH FROM a), trim(LEADING FROM s.b), TRIM(from a), trim(both 'x' from a), trim(a)",
                "SELECT \"btrim\"(a), \"ltrim\"(s.b), \"btrim\"(a), TRIM(BOTH 'x' FROM a), TRIM(a)",
            ),
            ("SELECT s.f(g(a), (b), VARIADIC ARRAY[b])", "SELECT s.f(g(a), (b), \"!variadic\" => ARRAY[b])"),
            (
                "SELECT a OPERATOR(s.=) ANY (b), a @> ALL (ARRAY[b]), a <<= SOME (SELECT b), a ~~ ANY (b)",
                "SELECT a = ANY(\"!any =\"((b))), a = ALL(\"!any @>\"((ARRAY[b]))), a = SOME(\"!any <<=\"((SELECT b))), a ~~ ANY(b)",
            ),
            ("SELECT a OPERATOR(s.===) b", "SELECT a OPERATOR(s.===) b"),
            ("SELECT COLLATION FOR (a || b)", "SELECT \"pg_collation_for\"(a || b)"),
            (
                "SELECT SUBSTRING(a SIMILAR f(b, c) ESCAPE '#'), substring(a, 1)",
                "SELECT SUBSTRING(a, f(b, c), '#'), SUBSTRING(a, 1)",
            ),
            (
                "SELECT a AT LOCAL, at local, t.at local",
                "SELECT a AT TIME ZONE \"!local\", at AS local, t.at AS local",
            ),
            ("TABLE a LIMIT 2", "SELECT * FROM a LIMIT 2"),
            (
                "WITH a AS (TABLE ONLY s.b) TABLE a UNION ALL TABLE c ORDER BY 1",
                "WITH a AS (SELECT * FROM \"!only\".s.b) SELECT * FROM a UNION ALL SELECT * FROM c ORDER BY 1",
            ),
            ("SELECT 1 ORDER BY 1 FETCH FIRST (3) ROWS ONLY", "SELECT 1 ORDER BY 1 FETCH FIRST 3 ROWS ONLY"),
            (
                "SELECT sum(a) OVER (PARTITION BY (b) ROWS 1 PRECEDING EXCLUDE NO OTHERS)",
                "SELECT sum(a) OVER (PARTITION BY (b) ORDER BY \"!exclude no others\" ROWS 1 PRECEDING)",
            ),
            (
                "SELECT sum(a) OVER (w ORDER BY b RANGE BETWEEN '1 day'::interval PRECEDING AND CURRENT ROW EXCLUDE TIES)",
                "SELECT sum(a) OVER (w ORDER BY b, \"!exclude ties\" RANGE BETWEEN ('1 day'::INTERVAL) PRECEDING AND CURRENT ROW)",
            ),
        ] {
            assert_eq!(read(sql), wanted);
        }
    }

    #[test]
    fn what_nobody_reads_ends() {
        for sql in [
            "SELECT f(ARRAY[a, VARIADIC b])",
            "SELECT (a[1, VARIADIC",
            "VARIADIC ), VARIADIC ANY (",
            "SELECT OPERATOR(.) ANY ()",
        ] {
            assert!(parse_query(sql).is_err(), "{sql}");
        }
    }

    #[test]
    fn what_it_reads_stays() {
        for sql in [
            "SELECT (SELECT 1) UNION SELECT 2",
            "SELECT ((SELECT 1)) + 1",
            "SELECT 1 WHERE 1 IN ((SELECT 1) UNION (SELECT 2)) AND EXISTS ((SELECT 1) EXCEPT (SELECT 2))",
            "((SELECT 1) UNION (SELECT 2)) ORDER BY 1 FETCH FIRST 1 ROWS ONLY",
            "SELECT 1 FROM ((SELECT 1) UNION (SELECT 2)) AS x JOIN (VALUES (1)) AS y ON true",
            "SELECT (a, b) FROM t GROUP BY (a), b ORDER BY a",
            "SELECT array_agg((SELECT 1) ORDER BY a) FROM t",
            "(SELECT 1) UNION ALL ((SELECT 2) UNION (SELECT 3))",
        ] {
            assert!(!read(sql).contains('!'), "{sql}");
        }
    }
}
