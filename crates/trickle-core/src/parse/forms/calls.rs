//! Rewrites calls with keywords between their arguments, such as the calls of SQL/JSON and SQL/XML.
//!
//! A call with keywords becomes a plain call of a function `"\0form NAME"`. Its arguments are those of the
//! call with keywords, and also the tokens between these arguments. Keywords, commas and parentheses become
//! `"\0WORDS"`, names that the call gives become `"\0name NAME"`, and types become `"\0type"(NULL::TYPE)`.
//! `JSON_OBJECTAGG` and `JSON_ARRAYAGG` become calls of the aggregates by which PostgreSQL computes them.

use super::reader::Reader;
use super::{Edit, MARK, name, word};
use sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, JsonKeyUniqueness,
    ObjectName, ObjectNamePart,
};
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
/// Keywords that occur before an expression or instead of an expression.
const BEFORE: [&str; 12] = [
    "CONTENT",
    "DEFAULT",
    "DOCUMENT",
    "NAME",
    "RETURNING",
    "STANDALONE NO",
    "STANDALONE NO VALUE",
    "STANDALONE YES",
    "VERSION",
    "VERSION NO VALUE",
    "XMLATTRIBUTES",
    "XMLNAMESPACES",
];
/// Keywords that occur after an expression, a name or a type.
const BEHIND: [&str; 54] = [
    "ABSENT ON NULL",
    "AS",
    "BY REF",
    "BY VALUE",
    "COLUMNS",
    "DEFAULT",
    "EMPTY ARRAY ON EMPTY",
    "EMPTY ARRAY ON ERROR",
    "EMPTY OBJECT ON EMPTY",
    "EMPTY OBJECT ON ERROR",
    "EMPTY ON EMPTY",
    "EMPTY ON ERROR",
    "ERROR ON EMPTY",
    "ERROR ON ERROR",
    "FALSE ON EMPTY",
    "FALSE ON ERROR",
    "FORMAT JSON",
    "FORMAT JSON ENCODING UTF8",
    "INDENT",
    "KEEP QUOTES",
    "KEEP QUOTES ON SCALAR STRING",
    "NO INDENT",
    "NULL ON EMPTY",
    "NULL ON ERROR",
    "NULL ON NULL",
    "OMIT QUOTES",
    "OMIT QUOTES ON SCALAR STRING",
    "ON EMPTY",
    "ON ERROR",
    "PASSING",
    "PASSING BY REF",
    "PASSING BY VALUE",
    "PRESERVE WHITESPACE",
    "RETURNING",
    "STRIP WHITESPACE",
    "TRUE ON EMPTY",
    "TRUE ON ERROR",
    "UNKNOWN ON EMPTY",
    "UNKNOWN ON ERROR",
    "VALUE",
    "WITH ARRAY WRAPPER",
    "WITH CONDITIONAL ARRAY WRAPPER",
    "WITH CONDITIONAL WRAPPER",
    "WITH UNCONDITIONAL ARRAY WRAPPER",
    "WITH UNCONDITIONAL WRAPPER",
    "WITH UNIQUE",
    "WITH UNIQUE KEYS",
    "WITH WRAPPER",
    "WITHOUT ARRAY WRAPPER",
    "WITHOUT CONDITIONAL ARRAY WRAPPER",
    "WITHOUT CONDITIONAL WRAPPER",
    "WITHOUT UNIQUE",
    "WITHOUT UNIQUE KEYS",
    "WITHOUT WRAPPER",
];
/// Keywords of a column definition.
const COLUMN: [&str; 7] = ["EXISTS", "FOR ORDINALITY", "NESTED", "NESTED PATH", "NOT NULL", "NULL", "PATH"];
const SIGNS: [&str; 4] = [",", ":", "(", ")"];

/// A part of a call with keywords.
pub(in crate::parse) enum FormPart<'q> {
    /// An argument.
    Argument(&'q Expr),
    /// Keywords, a comma, a colon or a parenthesis between arguments.
    Word(&'static str),
    /// A name, with its case folded as by PostgreSQL.
    Name(&'q str),
    /// A type.
    Type(&'q DataType),
}

/// Returns the name, in upper case, of a call that was rewritten from a call with keywords. Returns `None`
/// for any other call.
pub(in crate::parse) fn form_name(called: &ObjectName) -> Option<&'static str> {
    one_of_calls(marked(called)?.strip_prefix(FORM)?)
}

/// Returns the name of a call that had a query as its argument, such as `JSON_ARRAY(SELECT …)`. Returns
/// `None` for any other call. The rewriting leaves out the query.
pub(in crate::parse) fn form_over_query(called: &ObjectName) -> Option<&'static str> {
    one_of_calls(marked(called)?.strip_prefix(OVER_QUERY)?)
}

fn one_of_calls(name: &str) -> Option<&'static str> {
    CALLS.into_iter().find(|call| call.eq_ignore_ascii_case(name))
}

/// Returns the parts of a rewritten call. Returns `None` if the rewriting cannot have made one of the
/// arguments.
pub(in crate::parse) fn form_parts(args: &[FunctionArg]) -> Option<Vec<FormPart<'_>>> {
    fn part(arg: &FunctionArg) -> Option<FormPart<'_>> {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg else { return None };
        Some(match e {
            Expr::Identifier(Ident { value, .. }) if value.starts_with(MARK) => {
                match value.strip_prefix(NAME) {
                    Some(given) => FormPart::Name(given),
                    None => FormPart::Word(known(value.strip_prefix(MARK)?)?),
                }
            }
            Expr::Function(f) if marked(&f.name) == Some(TYPE) => FormPart::Type(type_of(f)?),
            other => FormPart::Argument(other),
        })
    }
    args.iter().map(part).collect()
}

/// Returns the name of an aggregate in SQL/JSON syntax, and the name of the function that computes the
/// aggregate. If the arguments decide between json and jsonb, the function's name contains `?` instead of
/// this word.
pub(in crate::parse) fn json_aggregate(called: &ObjectName) -> Option<(&str, &str)> {
    marked(called)?.strip_prefix(AGGREGATE)?.split_once(' ')
}

/// Whether a test `a IS [NOT] JSON …` in the tree was rewritten from `a IS [NOT] DOCUMENT`.
pub(in crate::parse) fn is_document(keys: Option<&JsonKeyUniqueness>) -> bool {
    keys == Some(&JsonKeyUniqueness::WithoutUniqueKeys)
}

fn marked(called: &ObjectName) -> Option<&str> {
    match called.0.as_slice() {
        [ObjectNamePart::Identifier(i)] if i.value.starts_with(MARK) => Some(&i.value),
        _ => None,
    }
}

fn known(words: &str) -> Option<&'static str> {
    let lists = [&BEFORE[..], &BEHIND, &COLUMN, &SIGNS];
    lists.into_iter().flatten().copied().find(|known| *known == words)
}

fn type_of(f: &Function) -> Option<&DataType> {
    let FunctionArguments::List(list) = &f.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Cast { data_type, .. }))] => Some(data_type),
        _ => None,
    }
}

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

    /// Rewrites `a IS [NOT] DOCUMENT` to `a IS [NOT] JSON WITHOUT UNIQUE KEYS`. The clause WITHOUT UNIQUE
    /// KEYS identifies the rewritten test, since [`Reader::json_test`] removes this clause from real tests of
    /// JSON.
    pub(super) fn document(&self, i: usize) -> Vec<(usize, Edit)> {
        if !self.is_test(i) {
            return Vec::new();
        }
        vec![(i, Edit::Instead(["JSON", "WITHOUT", "UNIQUE", "KEYS"].map(word).into()))]
    }

    /// Rewrites `a IS JSON … WITHOUT UNIQUE KEYS`: the clause is the default, and is left out.
    pub(super) fn json_test(&self, i: usize) -> Vec<(usize, Edit)> {
        if !self.ends_json_test(i) || !self.is_word(i + 1, "unique") {
            return Vec::new();
        }
        let keys = usize::from(self.is_word(i + 2, "keys"));
        (i..i + 2 + keys).map(|gone| (gone, Edit::Instead(Vec::new()))).collect()
    }

    /// Whether `IS [NOT]` comes directly before word `i`.
    fn is_test(&self, i: usize) -> bool {
        let word = |back: usize, text: &str| i.checked_sub(back).is_some_and(|at| self.is_word(at, text));
        word(1, "is") || word(1, "not") && word(2, "is")
    }

    /// Whether `IS [NOT] JSON [kind]` comes directly before word `i`.
    fn ends_json_test(&self, i: usize) -> bool {
        let kinds = ["value", "scalar", "array", "object"];
        let Some(before) = i.checked_sub(1) else { return false };
        let kind = kinds.iter().any(|kind| self.is_word(before, kind));
        let json = if kind { before.checked_sub(1) } else { Some(before) };
        json.is_some_and(|json| self.is_word(json, "json") && self.is_test(json))
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
        let mut scan =
            Scan { reader: self, called: &called, at: i + 2, parts: 0, words: 0, edits: Vec::new() };
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
        let scan = |at| Scan { reader: self, called: stem, at, parts: 0, words: 0, edits: Vec::new() };
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

/// The kind of part that is expected next among the arguments of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedPart {
    /// The definition of a table's column, which begins with the column's name.
    Column,
    /// An expression, or keywords before an expression.
    Expression,
    /// Keywords after an expression.
    Words,
}

/// Splits the arguments of a call into parts.
struct Scan<'r, 't> {
    reader: &'r Reader<'t>,
    called: &'r str,
    at: usize,
    parts: usize,
    /// The number of parts that are keywords.
    words: usize,
    edits: Vec<(usize, Edit)>,
}

impl Scan<'_, '_> {
    /// Reads the parts up to `end`. With `columns`, the parts are the column definitions of a table.
    fn list(&mut self, end: usize, columns: bool) {
        let first = if columns { ExpectedPart::Column } else { ExpectedPart::Expression };
        let mut due = first;
        while self.at < end {
            if self.reader.is(self.at, &Token::Comma) {
                self.mark(1, ",");
                due = first;
            } else if self.reader.is(self.at, &Token::Colon) {
                self.mark(1, ":");
                self.words += 1;
                due = ExpectedPart::Expression;
            } else if due == ExpectedPart::Column && !self.is_nested() {
                due = ExpectedPart::Words;
                self.named();
                if self.words(due, true).is_none_or(|(words, _)| words != "FOR ORDINALITY") {
                    self.typed(end, true);
                }
            } else if let Some((words, count)) = self.words(due, columns) {
                self.mark(count, words);
                self.words += 1;
                self.follow(words, end);
                let before = matches!(words, "NESTED" | "NESTED PATH" | "PATH" | "VALUE")
                    || words.starts_with("PASSING")
                    || BEFORE.contains(&words) && words != "RETURNING";
                due = if before { ExpectedPart::Expression } else { ExpectedPart::Words };
            } else {
                self.part(Vec::new());
                self.skip(end, columns);
                due = ExpectedPart::Words;
            }
        }
    }

    /// Reads the parts that must follow the keywords `words` and that are not expressions.
    fn follow(&mut self, words: &str, end: usize) {
        match words {
            "AS" if self.called == "xmlserialize" => self.typed(end, false),
            "RETURNING" => self.typed(end, false),
            "AS" | "NAME" => self.named(),
            "COLUMNS" | "XMLATTRIBUTES" | "XMLNAMESPACES" => {
                let columns = words == "COLUMNS";
                match self.reader.partner.get(self.at).copied().flatten() {
                    Some(close) if self.reader.is(self.at, &Token::LParen) => {
                        self.mark(1, "(");
                        self.list(close, columns);
                        self.mark(1, ")");
                    }
                    _ => self.list(end, columns),
                }
            }
            _ => {}
        }
    }

    /// Returns the longest entry of the keyword lists at the current position, and the number of its words.
    fn words(&self, due: ExpectedPart, columns: bool) -> Option<(&'static str, usize)> {
        let lists: [&[&str]; 2] = match (due, columns) {
            (ExpectedPart::Expression, _) => [&BEFORE, &[]],
            (_, true) => [&BEHIND, &COLUMN],
            (_, false) => [&BEHIND, &[]],
        };
        let begins = |at| [Token::Comma, Token::LParen].iter().any(|t| self.reader.is(at, t));
        let goes_on = |at| !begins(at) && self.reader.awaits_operand(at);
        if due != ExpectedPart::Expression && self.at.checked_sub(1).is_some_and(goes_on) {
            return None;
        }
        let here = |words: &&&'static str| {
            words.split(' ').enumerate().all(|(i, w)| self.reader.is_word(self.at + i, w))
                && self.may_be(words)
        };
        let count = |words: &&str| words.split(' ').count();
        let found = lists.into_iter().flatten().filter(here).max_by_key(|w| count(w))?;
        Some((*found, count(found)))
    }

    /// Whether these words are keywords at the current position. In other places the same words may be a name
    /// or a part of an expression.
    fn may_be(&self, words: &str) -> bool {
        match words {
            // For JSON_OBJECTAGG, `called` is the stem `object`.
            "VALUE" => matches!(self.called, "json_object" | "object"),
            unique if unique.contains(" UNIQUE") => !self.reader.ends_json_test(self.at),
            "NAME" => self.parts == 0 && matches!(self.called, "xmlelement" | "xmlpi"),
            "DOCUMENT" | "CONTENT" => self.parts == 0 && matches!(self.called, "xmlparse" | "xmlserialize"),
            "NULL" | "NOT NULL" => self.called == "xmltable",
            "INDENT" | "NO INDENT" => self.called == "xmlserialize",
            root if root.starts_with("VERSION") || root.starts_with("STANDALONE") => {
                let before = self.at.checked_sub(1);
                self.called == "xmlroot" && before.is_some_and(|b| self.reader.is(b, &Token::Comma))
            }
            _ => true,
        }
    }

    /// Whether a nested path begins at the current position, rather than a column named `nested`.
    fn is_nested(&self) -> bool {
        let text = |t: &Token| matches!(t, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_));
        let next = self.reader.words.get(self.at + 1);
        self.reader.is_word(self.at, "nested")
            && (self.reader.is_word(self.at + 1, "path") || next.is_some_and(|(_, t)| text(&t.token)))
    }

    /// Begins a part before the current word. The part consists of `tokens`. If `tokens` is empty, the part
    /// consists of the following words.
    fn part(&mut self, tokens: Vec<Token>) {
        let comma = (self.parts > 0).then_some(Token::Comma);
        self.parts += 1;
        let new: Vec<Token> = comma.into_iter().chain(tokens).collect();
        if !new.is_empty() {
            self.edits.push((self.at, Edit::Before(new)));
        }
    }

    /// Makes a part `token` that replaces `count` words.
    fn instead(&mut self, count: usize, token: Token) {
        self.part(vec![token]);
        self.edits.extend((self.at..self.at + count).map(|gone| (gone, Edit::Instead(Vec::new()))));
        self.at += count;
    }

    fn mark(&mut self, count: usize, words: &str) {
        self.instead(count, name(format!("{MARK}{words}")));
    }

    fn named(&mut self) {
        if let Some(given) = self.reader.folded(self.at) {
            self.instead(1, name(format!("{NAME}{given}")));
        }
    }

    fn typed(&mut self, end: usize, columns: bool) {
        if self.at < end {
            self.part(vec![name(TYPE), Token::LParen, word("NULL"), Token::DoubleColon]);
            self.skip(end, columns);
            self.edits.push((self.at, Edit::Before(vec![Token::RParen])));
        }
    }

    /// Moves to the end of the current expression or type.
    fn skip(&mut self, end: usize, columns: bool) {
        let ends = |scan: &Self| {
            [Token::Comma, Token::Colon].iter().any(|t| scan.reader.is(scan.at, t))
                || scan.words(ExpectedPart::Words, columns).is_some()
        };
        self.at = self.reader.behind(self.at).min(end);
        while self.at < end && !ends(self) {
            self.at = self.reader.behind(self.at).min(end);
        }
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
