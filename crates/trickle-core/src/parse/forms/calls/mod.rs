//! Rewrites calls with keywords between their arguments, such as the calls of SQL/JSON and SQL/XML.
//!
//! A call with keywords becomes a plain call of a function `"\0form NAME"`. Its arguments are those of the
//! call with keywords, and also the tokens between these arguments. Keywords, commas and parentheses become
//! `"\0WORDS"`, names that the call gives become `"\0name NAME"`, and types become `"\0type"(NULL::TYPE)`.
//! `JSON_OBJECTAGG` and `JSON_ARRAYAGG` become calls of the aggregates by which PostgreSQL computes them.

mod keywords;
mod parts;
mod predicates;
mod scan;

pub(in crate::parse) use parts::{FormPart, form_name, form_over_query, form_parts, json_aggregate};
pub(in crate::parse) use predicates::is_document;

use super::reader::Reader;
use super::{Edit, name};
use scan::{ExpectedPart, Scan};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

const FORM: &str = "\0form ";
const OVER_QUERY: &str = "\0over a query ";
const AGGREGATE: &str = "\0aggregate ";
const NAME: &str = "\0name ";
const TYPE: &str = "\0type";

/// The functions whose calls can have keywords between their arguments.
const CALLS: [&str; 20] = [
    "JSON",
    "JSON_ARRAY",
    "JSON_ARRAYAGG",
    "JSON_EXISTS",
    "JSON_OBJECT",
    "JSON_OBJECTAGG",
    "JSON_QUERY",
    "JSON_SCALAR",
    "JSON_SERIALIZE",
    "JSON_TABLE",
    "JSON_VALUE",
    "XMLCONCAT",
    "XMLELEMENT",
    "XMLEXISTS",
    "XMLFOREST",
    "XMLPARSE",
    "XMLPI",
    "XMLROOT",
    "XMLSERIALIZE",
    "XMLTABLE",
];

/// Whether a token may belong to a call or a test that this module rewrites.
pub(super) fn is_suspect(t: &TokenWithSpan) -> bool {
    let others = ["document", "normalize", "without"];
    let one_of = |w: &Word| CALLS.iter().chain(&others).any(|c| w.value.eq_ignore_ascii_case(c));
    matches!(&t.token, Token::Word(w) if one_of(w))
}

impl Reader<'_> {
    /// Whether a call with keywords starts at word `i`. A name with a list of columns is not such a call.
    pub(super) fn is_call(&self, i: usize) -> bool {
        let Some(end) = self.partner.get(i + 1).copied().flatten().filter(|_| self.is(i + 1, &Token::LParen))
        else {
            return false;
        };
        let called = CALLS.iter().any(|call| self.is_word(i, call));
        // In `WITH json (a) AS [NOT MATERIALIZED] (…)` the word is the name of a CTE.
        let defines = self.keyword(end + 1) == Keyword::AS
            && (self.is(end + 2, &Token::LParen)
                || self.is_word(end + 2, "materialized")
                || self.is_word(end + 2, "not"));
        called && !defines && i.checked_sub(1).is_some_and(|before| self.begins_call(before))
    }

    /// Returns the alias with a list of columns after a `JSON_TABLE` or `XMLTABLE`.
    pub(super) fn renamed_columns(&self) -> Option<usize> {
        let table = |i: &usize| {
            ["json_table", "xmltable"].iter().any(|call| self.is_word(*i, call)) && self.is_call(*i)
        };
        (0..self.words.len()).filter(table).find_map(|i| {
            let end = self.partner[i + 1]?;
            let alias = end + 1 + usize::from(self.keyword(end + 1) == Keyword::AS);
            (self.is_name(alias) && self.is(alias + 1, &Token::LParen)).then_some(alias)
        })
    }

    /// Whether a call, in an expression or in FROM, may follow token `i`.
    fn begins_call(&self, i: usize) -> bool {
        let words = ["content", "document", "path", "passing", "value", "default", "returning", "escape"];
        match self.keyword(i) {
            Keyword::ON => !(i.saturating_sub(6)..i).any(|at| self.keyword(at) == Keyword::INDEX),
            Keyword::FROM
            | Keyword::JOIN
            | Keyword::LATERAL
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::IN
            | Keyword::FOR
            | Keyword::TO => true,
            _ => words.iter().any(|word| self.is_word(i, word)) || self.awaits_operand(i),
        }
    }

    /// Whether an operand may follow token `i`.
    pub(super) fn awaits_operand(&self, i: usize) -> bool {
        match self.words.get(i).map(|(_, t)| &t.token) {
            Some(
                Token::Number(..)
                | Token::SingleQuotedString(_)
                | Token::EscapedStringLiteral(_)
                | Token::UnicodeStringLiteral(_)
                | Token::NationalStringLiteral(_)
                | Token::DollarQuotedString(_)
                | Token::HexStringLiteral(_)
                | Token::SingleQuotedByteStringLiteral(_)
                | Token::Placeholder(_)
                | Token::RBracket
                | Token::Period
                | Token::EOF,
            ) => false,
            _ => self.begins_operand(i),
        }
    }

    /// Whether a word names a Unicode normalization form.
    pub(super) fn is_normal_form(&self, i: usize) -> bool {
        ["nfc", "nfd", "nfkc", "nfkd"].iter().any(|form| self.is_word(i, form))
    }

    /// Rewrites `normalize(a, NFD)`: the form becomes a text constant.
    pub(super) fn normal_form(&self, i: usize) -> Vec<(usize, Edit)> {
        let open = self.partner.get(i + 1).copied().flatten().and_then(|open| open.checked_sub(1));
        let last = i.checked_sub(1).is_some_and(|b| self.is(b, &Token::Comma));
        match self.folded(i) {
            Some(form) if last && open.is_some_and(|f| self.is_word(f, "normalize")) => {
                vec![(i, Edit::Instead(vec![Token::SingleQuotedString(form.to_ascii_uppercase())]))]
            }
            _ => Vec::new(),
        }
    }

    /// Rewrites a call over a query to a call without arguments. Returns the position where the call ends.
    pub(super) fn call_over_query(&self, i: usize, edits: &mut Vec<(usize, Edit)>) -> Option<usize> {
        let query = ["select", "with", "values"].iter().any(|query| self.is_word(i + 2, query));
        let end = self.partner.get(i + 1).copied().flatten().filter(|_| query && self.is_call(i))?;
        let called = name(format!("{OVER_QUERY}{}", self.folded(i)?));
        edits.push((self.words[i].0, Edit::Instead(vec![called])));
        edits.extend((i + 2..end).map(|gone| (self.words[gone].0, Edit::Instead(Vec::new()))));
        Some(end)
    }

    /// Rewrites a call with keywords to a call of a function.
    pub(super) fn call(&self, i: usize) -> Vec<(usize, Edit)> {
        let (Some(called), Some(end)) = (self.folded(i), self.partner[i + 1]) else { return Vec::new() };
        if let Some(stem) = called.strip_prefix("json_").and_then(|c| c.strip_suffix("agg"))
            && let Some(edits) = self.aggregate(i, end, stem)
        {
            return edits;
        }
        let mut scan = Scan::new(self, &called, i + 2);
        scan.list(end, false);
        if scan.words == 0 && scan.parts > 0 && matches!(called.as_str(), "json_object" | "xmlexists") {
            return Vec::new();
        }
        let named = (i, Edit::Instead(vec![name(format!("{FORM}{called}"))]));
        std::iter::once(named).chain(scan.edits).collect()
    }

    /// Rewrites `JSON_OBJECTAGG(k : v …)` and `JSON_ARRAYAGG(v …)`, if there is an aggregate that returns the
    /// type of the call.
    fn aggregate(&self, i: usize, end: usize, stem: &str) -> Option<Vec<(usize, Edit)>> {
        let (mut unique, mut strict, mut returns) = (false, stem == "array", "?");
        let scan = |at| Scan::new(self, stem, at);
        let (mut at, mut due, mut edits) = (i + 2, ExpectedPart::Expression, Vec::new());
        while at < end {
            let found = if self.is(at, &Token::Colon) { Some((":", 1)) } else { scan(at).words(due, false) };
            let Some((words, mut count)) = found else {
                due = if self.is(at, &Token::Comma) { ExpectedPart::Expression } else { ExpectedPart::Words };
                at = self.behind(at);
                continue;
            };
            match words {
                ":" | "VALUE" => {
                    edits.push((at, Edit::Instead(vec![Token::Comma])));
                    (at, due) = (at + 1, ExpectedPart::Expression);
                    continue;
                }
                "NULL ON NULL" => strict = false,
                "ABSENT ON NULL" => strict = true,
                "WITH UNIQUE" | "WITH UNIQUE KEYS" => unique = true,
                "WITHOUT UNIQUE" | "WITHOUT UNIQUE KEYS" => {}
                "RETURNING" => {
                    count = 2;
                    returns = ["json", "jsonb"].into_iter().find(|ty| self.is_word(at + 1, ty))?;
                }
                _ => return None,
            }
            edits.extend((at..at + count).map(|gone| (gone, Edit::Instead(Vec::new()))));
            at += count;
        }
        let stem_of = if stem == "array" { "" } else { "_object" };
        let (unique, strict) = (if unique { "_unique" } else { "" }, if strict { "_strict" } else { "" });
        let called = format!("{AGGREGATE}json_{stem}agg {returns}{stem_of}_agg{unique}{strict}");
        edits.push((i, Edit::Instead(vec![name(called)])));
        Some(edits)
    }

    /// Returns the position after the word at `i` and after the tokens that belong to this word: parentheses,
    /// brackets, a name after a dot.
    fn behind(&self, i: usize) -> usize {
        let mut at = self.partner[i].filter(|close| *close > i).unwrap_or(i) + 1;
        while self.is(at, &Token::Period) {
            at += 2;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::rewritten as read;

    #[test]
    fn words_between_arguments_are_arguments() {
        for (sql, wanted) in [
            (
                "SELECT json_value(d, '$.a[1]' PASSING 1 + 1 AS x, y AS \"Z\" RETURNING numeric(9,2) DEFAULT -1 ON EMPTY NULL ON ERROR)",
                r#"SELECT "!form json_value"(d, "!,", '$.a[1]', "!PASSING", 1 + 1, "!AS", "!name x", "!,", y, "!AS", "!name Z", "!RETURNING", "!type"(NULL::NUMERIC(9,2)), "!DEFAULT", -1, "!ON EMPTY", "!NULL ON ERROR")"#,
            ),
            (
                "SELECT json_query(d, '$' WITH CONDITIONAL ARRAY WRAPPER OMIT QUOTES ON SCALAR STRING)",
                r#"SELECT "!form json_query"(d, "!,", '$', "!WITH CONDITIONAL ARRAY WRAPPER", "!OMIT QUOTES ON SCALAR STRING")"#,
            ),
            (
                "SELECT JSON_OBJECT('a': t.value, k VALUE f(x, y) NULL ON NULL WITH UNIQUE KEYS RETURNING jsonb)",
                r#"SELECT "!form json_object"('a', "!:", t.value, "!,", k, "!VALUE", f(x, y), "!NULL ON NULL", "!WITH UNIQUE KEYS", "!RETURNING", "!type"(NULL::JSONB))"#,
            ),
            ("SELECT JSON_OBJECT()", r#"SELECT "!form json_object"()"#),
            ("SELECT json_array(a[1:2], name)", r#"SELECT "!form json_array"(a[1:2], "!,", name)"#),
            (
                "SELECT json_objectagg(k : v ABSENT ON NULL WITH UNIQUE KEYS) FILTER (WHERE true)",
                r#"SELECT "!aggregate json_objectagg ?_object_agg_unique_strict"(k, v) FILTER (WHERE true)"#,
            ),
            (
                "SELECT JSON_ARRAYAGG(v ORDER BY k DESC NULL ON NULL RETURNING jsonb)",
                r#"SELECT "!aggregate json_arrayagg jsonb_agg"(v ORDER BY k DESC)"#,
            ),
            (
                "SELECT * FROM JSON_TABLE(d, '$' AS p COLUMNS (n FOR ORDINALITY, at timestamp with time zone PATH '$.a', path int EXISTS, NESTED PATH '$.b' COLUMNS (nested text DEFAULT 'x' ON ERROR)) ERROR ON ERROR) AS j",
                r#"SELECT * FROM "!form json_table"(d, "!,", '$', "!AS", "!name p", "!COLUMNS", "!(", "!name n", "!FOR ORDINALITY", "!,", "!name at", "!type"(NULL::TIMESTAMP WITH TIME ZONE), "!PATH", '$.a', "!,", "!name path", "!type"(NULL::INT), "!EXISTS", "!,", "!NESTED PATH", '$.b', "!COLUMNS", "!(", "!name nested", "!type"(NULL::TEXT), "!DEFAULT", 'x', "!ON ERROR", "!)", "!)", "!ERROR ON ERROR") AS j"#,
            ),
            (
                "SELECT xmlelement(NAME \"A b\", XMLATTRIBUTES(a AS x, b), 'text', xmlcomment(c))",
                r#"SELECT "!form xmlelement"("!NAME", "!name A b", "!,", "!XMLATTRIBUTES", "!(", a, "!AS", "!name x", "!,", b, "!)", "!,", 'text', "!,", xmlcomment(c))"#,
            ),
            (
                "SELECT xmlserialize(CONTENT x AS character varying(10) NO INDENT), xmlroot(x, VERSION NO VALUE, STANDALONE YES)",
                r#"SELECT "!form xmlserialize"("!CONTENT", x, "!AS", "!type"(NULL::CHARACTER VARYING(10)), "!NO INDENT"), "!form xmlroot"(x, "!,", "!VERSION NO VALUE", "!,", "!STANDALONE YES")"#,
            ),
            (
                "SELECT a FROM t, XMLTABLE(XMLNAMESPACES('u' AS p), '/r' PASSING BY VALUE t.x COLUMNS a int PATH '@a' DEFAULT 1 NOT NULL, n FOR ORDINALITY)",
                r#"SELECT a FROM t, "!form xmltable"("!XMLNAMESPACES", "!(", 'u', "!AS", "!name p", "!)", "!,", '/r', "!PASSING BY VALUE", t.x, "!COLUMNS", "!name a", "!type"(NULL::INT), "!PATH", '@a', "!DEFAULT", 1, "!NOT NULL", "!,", "!name n", "!FOR ORDINALITY")"#,
            ),
            (
                "SELECT x IS NOT DOCUMENT AND y IS DOCUMENT = true, z IS JSON OBJECT WITHOUT UNIQUE KEYS",
                "SELECT x IS NOT JSON WITHOUT UNIQUE KEYS AND y IS JSON WITHOUT UNIQUE KEYS = true, z IS JSON OBJECT",
            ),
            ("SELECT xmlexists('//a' PASSING y)", r#"SELECT "!form xmlexists"('//a', "!PASSING", y)"#),
            (
                "SELECT JSON_OBJECT('a': 1, 'b': price * value)",
                r#"SELECT "!form json_object"('a', "!:", 1, "!,", 'b', "!:", price * value)"#,
            ),
            (
                "SELECT JSON_OBJECT('a': CASE WHEN value > 1 THEN value END NULL ON NULL), json_objectagg(k : 2 * value)",
                r#"SELECT "!form json_object"('a', "!:", CASE WHEN value > 1 THEN value END, "!NULL ON NULL"), "!aggregate json_objectagg ?_object_agg"(k, 2 * value)"#,
            ),
            (
                "SELECT json_array(value, name, path, content, document, columns, nested, passing, a IS JSON WITH UNIQUE KEYS)",
                r#"SELECT "!form json_array"(value, "!,", name, "!,", path, "!,", content, "!,", document, "!,", columns, "!,", nested, "!,", passing, "!,", a IS JSON WITH UNIQUE KEYS)"#,
            ),
            (
                "SELECT xmlroot(version, VERSION version), xmlforest(a || indent), xmlelement(NAME name, content)",
                r#"SELECT "!form xmlroot"(version, "!,", "!VERSION", version), "!form xmlforest"(a || indent), "!form xmlelement"("!NAME", "!name name", "!,", content)"#,
            ),
            (
                "SELECT json_array(SELECT a, json_object('a': b) FROM ONLY t RETURNING jsonb)",
                r#"SELECT "!over a query json_array"()"#,
            ),
        ] {
            assert_eq!(read(sql), wanted);
        }
    }

    #[test]
    fn plain_calls_of_such_names_stay() {
        for sql in [
            "SELECT json_object(keys, vals), s.json_value(a, b), \"json\"(x), json '{}', xmlexists(a, b)",
            "SELECT json_value, document FROM json_table AS xmltable",
            "SELECT json.v FROM t, jsonb_array_elements(t.d) AS json(v), f() json_value(x)",
            "WITH json(a) AS (SELECT 1), xmltable(b) AS NOT MATERIALIZED (SELECT 2) SELECT a FROM json",
        ] {
            assert!(!read(sql).contains('!'), "{sql}");
        }
    }
}
