//! The text form of a case: the first state, the changes, and the expected results.
//!
//! ```text
//! # Both sides insert a matching pair in a window: a delta that reads both new states counts the pair twice.
//! tables:
//! CREATE TABLE a (id int PRIMARY KEY, k int);
//! query:
//! SELECT id, k FROM a
//! rows:
//! INSERT INTO a VALUES (1, NULL);
//! change:
//! UPDATE a SET k = 7;
//! expect:
//! 1 | 7
//! ```
//!
//! A section starts with a line that has only its name and a colon. `rows:` is the first state, and may have
//! its own `expect:`. Each `change:` is one window. An expected row lists its values as PostgreSQL writes
//! them. Rows may be in any order. A value is bare, or in quotes if its text is empty, reads NULL, or begins
//! or ends with a blank. `expect:` may instead say `ERROR: message`, if the query itself raises an error.
//!
//! `since:` names the first version of PostgreSQL that has the feature of the case. A case without windows
//! has a `verdict:` or an `error:`. `time:` before `rows:` or `change:` sets the clock from that section on.
//!
//! `plan:`, `delta:` and `sql:` at the end are snapshots. The test writes them, and people review them. In
//! most cases a `digest:` pins the SQL; `just sql-diff` shows how the SQL differs between two commits.

use std::collections::BTreeMap;
use xxhash_rust::xxh64::xxh64;

/// One case.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// The mistake that the case would reveal.
    pub about: String,
    /// The first major version of PostgreSQL that has the feature of the case. `None` if all supported
    /// versions have it.
    pub since: Option<u32>,
    /// The time of the clock in the first state. Only a case about time has this time.
    pub time: Option<String>,
    /// CREATE statements.
    pub tables: String,
    /// The query.
    pub query: String,
    /// DML that makes the first state.
    pub rows: String,
    /// The expected result of the query over the first state, if the case states one.
    pub first: Option<Expected>,
    /// The windows, in order.
    pub windows: Vec<Window>,
    /// The snapshot sections: `verdict`, `error`, `plan`, `delta`, `digest`, `sql`.
    pub snapshots: BTreeMap<String, String>,
}

/// Several statements, followed by one refresh.
#[derive(Clone, Debug)]
pub struct Window {
    /// The time of the clock from this window on, which may be later or earlier than before.
    pub time: Option<String>,
    /// DML statements.
    pub change: String,
    /// The expected result of the query after the statements.
    pub expect: Expected,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Rows in sorted order. A value is its text or NULL.
    Rows(Vec<Vec<Option<String>>>),
    /// An error with this message.
    Error(String),
}

/// The sections that people write, in the order in which a file has them.
const SECTIONS: &[&str] = &["since", "tables", "query", "time", "rows", "change", "expect"];
/// The sections that the runner writes, in the order in which it writes them.
pub(super) const SNAPSHOTS: &[&str] = &["verdict", "error", "plan", "delta", "digest", "sql"];

/// Returns the name of the section that a line starts.
fn header(line: &str) -> Option<&str> {
    let name = line.strip_suffix(':')?;
    (SECTIONS.contains(&name) || SNAPSHOTS.contains(&name)).then_some(name)
}

impl Case {
    /// Reads a case file.
    ///
    /// # Errors
    /// Fails with a text for people, which names the section that is missing or out of order.
    pub fn parse(text: &str) -> Result<Case, String> {
        let mut case = Case::default();
        let mut sections: Vec<(&str, String)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            match (header(line), sections.last_mut()) {
                (Some(name), _) => sections.push((name, String::new())),
                (None, Some((_, body))) => {
                    body.push_str(line);
                    body.push('\n');
                }
                (None, None) => match line.strip_prefix('#') {
                    Some(about) => case.about.push_str(&format!("{}\n", about.trim())),
                    None if line.trim().is_empty() => {}
                    None => return Err(format!("line {}: text before the first section", number + 1)),
                },
            }
        }
        let mut change: Option<String> = None;
        let mut time: Option<String> = None;
        for (name, body) in sections {
            let body = body.trim_matches('\n').to_owned();
            if name != "expect" && change.is_some() {
                return Err("a change: without an expect:".to_owned());
            }
            match name {
                "since" => case.since = Some(body.trim().parse().map_err(|_| "since: is a version")?),
                "tables" => case.tables = body,
                "query" => case.query = body,
                "time" => time = Some(body.trim().to_owned()),
                "rows" => {
                    case.rows = body;
                    case.time = time.take();
                }
                "change" => change = Some(body),
                "expect" => {
                    let expect = expected(&body)?;
                    match change.take() {
                        Some(change) => case.windows.push(Window { time: time.take(), change, expect }),
                        None if case.windows.is_empty() && case.first.is_none() => case.first = Some(expect),
                        None => return Err("an expect: without a change:".to_owned()),
                    }
                }
                snapshot => {
                    case.snapshots.insert(snapshot.to_owned(), body);
                }
            }
        }
        case.complete(change.is_some())
    }

    fn complete(self, open: bool) -> Result<Case, String> {
        if self.about.trim().is_empty() {
            return Err("no comment says what goes wrong elsewhere".to_owned());
        }
        if self.query.trim().is_empty() {
            return Err("no query:".to_owned());
        }
        if open {
            return Err("a change: without an expect:".to_owned());
        }
        let refused = self.snapshots.contains_key("verdict") || self.snapshots.contains_key("error");
        if self.windows.is_empty() != refused {
            return Err("a case has windows, or else a verdict: or an error:".to_owned());
        }
        Ok(self)
    }

    /// Selects the snapshots of a run that the file pins. If the file has a `sql:` section, it pins the SQL
    /// as text; otherwise it pins the SQL's digest.
    pub fn pinned(&self, mut found: BTreeMap<String, String>) -> BTreeMap<String, String> {
        if !self.snapshots.contains_key("sql")
            && let Some(sql) = found.remove("sql")
        {
            let digest = format!("{:016x}, {} lines", xxh64(sql.as_bytes(), 0), sql.lines().count());
            found.insert("digest".to_owned(), digest);
        }
        found
    }

    /// Returns the text of a file with new snapshots. The part before the first snapshot stays unchanged.
    pub fn with_snapshots(text: &str, snapshots: &BTreeMap<String, String>) -> String {
        let kept = text.lines().take_while(|l| !header(l).is_some_and(|n| SNAPSHOTS.contains(&n)));
        let mut out = kept.collect::<Vec<_>>().join("\n").trim_end().to_owned();
        out.push('\n');
        for name in SNAPSHOTS {
            if let Some(body) = snapshots.get(*name) {
                out.push_str(&format!("\n{name}:\n{}\n", body.trim_end()));
            }
        }
        out
    }
}

fn expected(body: &str) -> Result<Expected, String> {
    if let Some(message) = body.trim().strip_prefix("ERROR:") {
        return Ok(Expected::Error(message.trim().to_owned()));
    }
    let lines = body.lines().filter(|l| !l.trim().is_empty());
    let mut rows = lines.map(values).collect::<Result<Vec<_>, _>>()?;
    rows.sort();
    Ok(Expected::Rows(rows))
}

/// Reads the values of one line, which are separated by bars.
fn values(line: &str) -> Result<Vec<Option<String>>, String> {
    let mut values = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let value = if let Some(quoted) = rest.strip_prefix('\'') {
            let (value, after) = unquote(quoted).ok_or_else(|| format!("an open quote: {line}"))?;
            rest = after.trim_start();
            Some(value)
        } else {
            let end = rest.find('|').unwrap_or(rest.len());
            let bare = rest[..end].trim_end();
            rest = &rest[end..];
            (bare != "NULL").then(|| bare.to_owned())
        };
        values.push(value);
        match rest.strip_prefix('|') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(values),
            None => return Err(format!("text after a quoted value: {line}")),
        }
    }
}

/// Returns the text up to the closing quote, and the rest of the line. In the text, `''` counts as one quote.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('\'')?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some((value, rest)),
        }
    }
}

/// Writes a row as in an `expect:` section.
pub(super) fn written(row: &[Option<String>]) -> String {
    let value = |v: &Option<String>| match v {
        None => "NULL".to_owned(),
        Some(t)
            if t.is_empty()
                || t == "NULL"
                || t.trim() != t
                || t.starts_with('\'')
                || t.contains(['|', '\n']) =>
        {
            format!("'{}'", t.replace('\'', "''"))
        }
        Some(t) => t.clone(),
    };
    row.iter().map(value).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bare_or_quoted() {
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(values("1 | NULL | a b").unwrap(), [some("1"), None, some("a b")]);
        assert_eq!(values("'' | 'NULL' | ' it''s | '").unwrap(), [some(""), some("NULL"), some(" it's | ")]);
        assert!(values("'a").is_err());
        assert_eq!(written(&[some(""), None, some("x"), some("NULL")]), "'' | NULL | x | 'NULL'");
    }

    #[test]
    fn snapshots_are_replaced_at_the_end() {
        let text = "# why\nquery:\nSELECT 1\nchange:\nexpect:\n1\n\nplan:\nold\n";
        let case = Case::parse(text).unwrap();
        assert_eq!((case.windows.len(), case.snapshots["plan"].as_str()), (1, "old"));
        let new = BTreeMap::from([("plan".to_owned(), "new\n".to_owned())]);
        assert_eq!(
            Case::with_snapshots(text, &new),
            "# why\nquery:\nSELECT 1\nchange:\nexpect:\n1\n\nplan:\nnew\n"
        );
        assert!(Case::parse("query:\nSELECT 1\n").is_err());
    }

    #[test]
    fn sql_is_pinned_by_its_text_or_its_digest() {
        let found = BTreeMap::from([("sql".to_owned(), "SELECT 1;\nSELECT 2;".to_owned())]);
        let case = Case::default();
        let pinned = case.pinned(found.clone());
        assert_eq!(pinned.keys().collect::<Vec<_>>(), ["digest"]);
        assert!(pinned["digest"].ends_with(", 2 lines"), "{pinned:?}");
        let text = Case { snapshots: found.clone(), ..case };
        assert_eq!(text.pinned(found.clone()), found);
    }
}
