//! Asks PostgreSQL for the meaning of a defining query.
//!
//! A view is made of the query in a transaction that is rolled back. The view is temporary where the role
//! may make temporary objects. PostgreSQL checks the query and returns its canonical text (stars expanded,
//! names qualified, casts explicit). PostgreSQL also returns the columns of the result, and the objects that
//! the query depends on. Further views check the types of a plan (`typecheck`).

mod lookalikes;
mod renamed;
mod suggested;
mod typecheck;

pub(crate) use typecheck::type_differences;

use crate::catalog::{KIND, canonical};
use crate::db::{Connection, Refusal, Row, Transaction};
use crate::drive::put_in_force;
use crate::error::{Error, Result};
use crate::say;
use crate::security::{Agreed, Code, SHUT};
use trickle_core::catalog::SYSTEM_COLUMNS;
use trickle_core::parse::{find_name, renamed_columns, statements};
use trickle_core::refresh::Setting;
use trickle_core::sql::{Ident, Qualified};
use trickle_core::{Reason, Span};

/// A relation that a query reads, directly or through views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// The value of `pg_class.relkind`.
    pub(crate) relkind: String,
    pub(crate) fingerprint: String,
    pub(crate) is_stream_table: bool,
    /// Whether the current role may make triggers on the relation.
    pub(crate) owned: bool,
    pub(crate) owner: String,
    /// Whether the query names the row type of the relation, or an array type of it.
    pub(crate) is_named_as_type: bool,
    /// The views that read the relation; 0 stands for the query itself.
    pub(crate) read_through: Vec<u32>,
    /// The rows that row security lets the query read as the current role (`pgtrickle.row_security`); `None`
    /// stands for all rows.
    pub(crate) row_security: Option<String>,
    /// The names of the relation's columns, in the text form of `pgtrickle.column_names`; `None` where no
    /// query names the relation.
    pub(crate) names: Option<String>,
    /// The numbers of the relation's columns that are named by the query, or by a view that the query reads,
    /// as a text.
    pub(crate) named: Option<String>,
}

/// A column of a query's result, or of a table.
#[derive(Clone, Debug)]
pub(crate) struct OutputColumn {
    pub(crate) name: String,
    /// The type of the column, as CREATE TABLE writes it.
    pub(crate) spelled: String,
    /// The type that a domain, or an array of a domain, is over; `None` for other types.
    pub(crate) base: Option<String>,
    /// The type without its modifiers. A table that an earlier version made has this type for the column.
    pub(crate) former: Option<String>,
}

impl OutputColumn {
    pub(crate) fn new(name: String, spelled: String) -> OutputColumn {
        OutputColumn { name, spelled, base: None, former: None }
    }

    /// Whether `there`, a column of an existing table, has the name and the type of this column.
    pub(crate) fn is(&self, there: &OutputColumn) -> bool {
        self.name == there.name && self.has_type_of(there)
    }

    /// Whether the type of `there` is the type of this column.
    pub(crate) fn has_type_of(&self, there: &OutputColumn) -> bool {
        self.spelled == there.spelled || self.former.as_ref() == Some(&there.spelled)
    }
}

/// An SQL expression for the COLLATE clause of a column `a` of type `t`. The text is empty where the column
/// has the collation of its type.
pub(crate) const OWN_COLLATION: &str = "CASE WHEN a.attcollation <> t.typcollation \
    THEN (SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, l.collname) FROM pg_collation l \
    JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = a.attcollation) ELSE '' END";

/// The columns of the view `$1`: the name, the type, and the type that a domain or an array of a domain is
/// over.
fn columns_text() -> String {
    let spelled = |modifier: &str| format!("format_type(t.oid, {modifier}) || {OWN_COLLATION}");
    let (own, base) = (spelled("a.atttypmod"), spelled("b.modifier"));
    format!(
        "{BASES} SELECT a.attname, {own}, (SELECT {base} FROM base b JOIN pg_type t ON t.oid = b.type \
         WHERE b.place = a.attnum AND b.depth > 0 ORDER BY b.depth DESC LIMIT 1) \
         FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1 AND a.attnum > 0 ORDER BY a.attnum"
    )
}

/// The types of the columns of the view `$1`, and behind each domain or array of a domain the type that it is
/// over.
const BASES: &str = "
WITH RECURSIVE base(place, type, modifier, collated, depth) AS (
    SELECT attnum, atttypid, atttypmod, attcollation, 0 FROM pg_attribute WHERE attrelid = $1 AND attnum > 0
    UNION ALL
    SELECT b.place, n.type, n.modifier, b.collated, b.depth + 1 FROM base b JOIN pg_type t ON t.oid = b.type CROSS JOIN LATERAL (
        SELECT t.typbasetype, t.typtypmod WHERE t.typtype = 'd'
        UNION ALL SELECT s.typarray, e.typtypmod FROM pg_type e JOIN pg_type s ON s.oid = e.typbasetype
        WHERE e.oid = t.typelem AND e.typtype = 'd' AND t.typcategory = 'A' AND s.typarray <> 0
    ) n(type, modifier)
)";

/// A query after PostgreSQL has resolved its names and types.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// The canonical text, which has the same meaning under every search path.
    pub(crate) canonical: String,
    pub(crate) columns: Vec<OutputColumn>,
    pub(crate) dependencies: Vec<Dependency>,
    /// The functions that the query calls, by name or through operators, directly or through views, except
    /// built-in ones.
    pub(crate) functions: Vec<u32>,
    pub(crate) functions_fingerprint: Option<String>,
    /// The code of other roles that the query would run with the owner's rights.
    pub(crate) code: Code,
    /// Whether the query locks the rows that it reads.
    pub(crate) locks: bool,
    /// A volatile operator in the query, or in a view that the query reads.
    pub(crate) volatile_operator: Option<String>,
    /// The reasons for full refreshes because a plan would take an object of the query for one of
    /// PostgreSQL's own (`lookalikes`).
    pub(crate) lookalikes: Vec<Reason>,
}

impl Resolved {
    /// Returns the error of creating a stream table with this query. The caller uses this error where the
    /// engine cannot read the query, and so cannot find the reason itself.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if let Some(operator) = &self.volatile_operator {
            let message = format!("a stream table cannot be kept equal to the volatile operator {operator}");
            let e = Error::input(message).detail("Its value is another each time the query runs.");
            let hint = "Mark its function IMMUTABLE if it is, or compute the value where the row is written.";
            return Some(e.hint(hint).coded("0A000"));
        }
        self.locks.then(|| {
            Error::input("the query of a stream table has FOR UPDATE or FOR SHARE")
                .detail("It does more than read, and the query runs whenever the table is refreshed.")
                .hint("Leave it out: a stream table is refreshed under its own locks.")
                .coded("0A000")
        })
    }
}

/// Whether the query locks rows, according to the server's parse tree of the view. In the text of that tree,
/// a space within a name has a backslash before it.
const LOCKS: &str =
    "SELECT EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = $1 AND r.ev_action::text ~ ':rowMarks \\(')";

/// The dependencies of the rules of a view, and of the views that it reads. `part` is the number of a
/// column.
pub(crate) const DEPENDENCIES: &str = "
WITH RECURSIVE reads(view, class, object, part) AS (
    SELECT r.ev_class, d.refclassid, d.refobjid, d.refobjsubid FROM pg_rewrite r
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    WHERE r.ev_class = $1::oid AND d.refobjid <> r.ev_class
    UNION
    SELECT r.ev_class, d.refclassid, d.refobjid, d.refobjsubid FROM reads
    JOIN pg_rewrite r ON reads.class = 'pg_class'::regclass AND r.ev_class = reads.object
    JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v'
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    WHERE d.refobjid <> r.ev_class
)";

/// The schema in which the view of the query is made.
#[derive(Clone, Debug)]
enum Place {
    Temporary,
    /// A schema of its own, which is dropped together with the view. This variant is needed because a
    /// security-restricted operation cannot make temporary objects, and no role may make objects in a
    /// permanent schema of trickle's.
    Apart(String),
}

impl Place {
    /// Returns the schema for the view, and makes it where needed. The caller must roll back its
    /// transaction.
    async fn of(t: &Transaction<'_>) -> Result<Place, Refusal> {
        if !t.is_restricted() {
            return Ok(Place::Temporary);
        }
        let text = "SELECT 'pgtrickle_query_' || pg_backend_pid(), quote_ident(current_user)";
        let row = t.query_one(text, &[]).await?;
        let (schema, role): (String, &str) = (row.get(0), row.get(1));
        t.as_keeper(&format!("CREATE SCHEMA {schema} AUTHORIZATION {role}")).await?;
        Ok(Place::Apart(schema))
    }

    /// Returns the beginning of the statement that makes a view in this schema.
    fn create(&self, name: &str) -> String {
        let temporary = if matches!(self, Place::Temporary) { "TEMPORARY " } else { "" };
        format!("CREATE {temporary}VIEW {} AS\n", self.of_name(name))
    }

    /// Returns the beginning of the statement that makes a table in this schema.
    fn table(&self, name: &str) -> String {
        let temporary = if matches!(self, Place::Temporary) { "TEMPORARY " } else { "" };
        format!("{temporary}TABLE {}", self.of_name(name))
    }

    fn of_name(&self, name: &str) -> String {
        self.qualified(name).to_string()
    }

    /// Whether `schema` means this schema, in the form in which the server writes names under the search
    /// path [`SHUT`].
    fn is(&self, schema: Option<&str>) -> bool {
        match self {
            Place::Temporary => schema.is_none_or(|s| s.starts_with("pg_temp")),
            Place::Apart(own) => schema == Some(own.as_str()),
        }
    }

    fn qualified(&self, name: &str) -> Qualified {
        match self {
            Place::Temporary => Qualified::new("pg_temp", name),
            Place::Apart(schema) => Qualified::new(schema, name),
        }
    }
}

/// The name of the view of the query.
const VIEW: &str = "trickle_query";

/// The name of the second view, which is made of the canonical text.
const AGAIN: &str = "trickle_query_again";

/// The result columns of a query with grouping sets, each with the number of its key in GROUP BY, DISTINCT
/// and ORDER BY, according to the server's parse tree. For a query without grouping sets there are no rows.
const KEYS: &str = "\
    SELECT regexp_replace(m[1], '\\\\(.)', '\\1', 'g'), m[2] FROM pg_rewrite r, \
           regexp_matches(r.ev_action::text, ':resname ((?:\\\\.|[^\\s\\\\])+) :ressortgroupref (\\d+)', 'g') \
           WITH ORDINALITY AS found(m, place) \
    WHERE r.ev_class = $1 AND r.ev_action::text ~ ':groupingSets \\(' ORDER BY place";

/// Asks the server for the meaning of a query under the connection's settings, overridden by `settings`. If
/// `settings` has no search path, `typed` is the search path. Changes nothing in the database.
///
/// # Errors
/// PostgreSQL refuses the query; the error has the place in the query. The role may not create temporary
/// objects. The query uses an object of another role to which the owner has not `agreed`.
pub(crate) async fn resolve(
    db: &mut dyn Connection,
    sql: &str,
    settings: &[Setting],
    typed: &[String],
    agreed: Option<&Agreed>,
) -> Result<Resolved> {
    let transaction = db.transaction().await.map_err(|e| Error::server("begin", e))?;
    let place = Place::of(&transaction).await.map_err(|e| Error::server("make room for the query", e))?;
    if settings.iter().all(|s| s.name != "search_path") {
        let list: Vec<String> = typed.iter().map(|s| Ident::new(s).to_string()).collect();
        let list = if list.is_empty() { "''".to_owned() } else { list.join(", ") };
        let path = transaction.batch_execute(&format!("SET LOCAL search_path = {list}")).await;
        path.map_err(|e| Error::server("set the query's search path", e))?;
    }
    put_in_force(&transaction, settings).await.map_err(|e| Error::server("set the query's settings", e))?;
    let resolved = within(&transaction, &place, sql, agreed).await;
    transaction.rollback().await.map_err(|e| Error::server("roll back", e))?;
    match resolved {
        Err(e) if e.sqlstate() == Some("42501") && !may_make_views(db).await? => Err(e.hint(format!(
            "PostgreSQL says what a query means by a temporary view. As the owner of the database: \
             GRANT TEMPORARY ON DATABASE … TO …; {} writes it out for this role.",
            say::one("trickle doctor", "pgtrickle.health_check()")
        ))),
        Err(e) => {
            let stored = settings.iter().find(|s| s.name == "search_path").map(|s| s.values.as_slice());
            Err(suggested::suggested(db, sql, stored.unwrap_or(typed), e).await)
        }
        Ok(resolved) => Ok(resolved),
    }
}

/// Returns a column of a view that the canonical text groups by another key than the view does. Such a
/// column exists because the canonical text of grouping sets may not distinguish keys that are written
/// alike.
async fn ambiguous_key(
    t: &Transaction<'_>,
    place: &Place,
    view: u32,
    canonical: &str,
) -> Result<Option<String>> {
    let fail = |e| Error::server("read how the query groups", e);
    let keys = t.query(KEYS, &[&view]).await.map_err(fail)?;
    if keys.is_empty() {
        return Ok(None);
    }
    let again = format!("{}{canonical}", place.create(AGAIN));
    t.batch_execute("SET LOCAL standard_conforming_strings = on").await.map_err(fail)?;
    t.execute(again.trim_end().trim_end_matches(';'), &[]).await.map_err(fail)?;
    let view = t.query_one("SELECT to_regclass($1)::oid", &[&place.of_name(AGAIN)]).await.map_err(fail)?;
    let same = t.query(KEYS, &[&view.get::<u32>(0)]).await.map_err(fail)?;
    // Only the keys are compared, since the canonical text may name the columns of subqueries differently.
    let key = |row: &Row| row.get::<String>(1);
    let mut again = same.iter().map(key);
    Ok(keys.iter().find(|row| again.next() != Some(key(row))).map(|row| row.get(0)))
}

async fn may_make_views(db: &dyn Connection) -> Result<bool> {
    let allowed = "SELECT has_database_privilege(current_database(), 'TEMPORARY')";
    let row =
        db.query_one(allowed, &[]).await.map_err(|e| Error::server("read this role's privileges", e))?;
    Ok(row.get(0))
}

async fn within(t: &Transaction<'_>, place: &Place, sql: &str, agreed: Option<&Agreed>) -> Result<Resolved> {
    let doing = |e| Error::server("read what the query depends on", e);
    let sql = sql.trim_end().trim_end_matches(';');
    if let Ok(Some(span)) = renamed_columns(sql) {
        return Err(Error::input("the columns of JSON_TABLE or XMLTABLE have other names behind the alias")
            .detail("PostgreSQL leaves those out where it says what a query means.")
            .hint("Give them their names in COLUMNS.")
            .at(span));
    }
    // The extended protocol accepts one statement only, so the text of the query cannot add a second one.
    let (create, name) = (place.create(VIEW), place.of_name(VIEW));
    let refused = |e| refused(sql, create.len(), e);
    t.execute(&format!("{create}{sql}"), &[]).await.map_err(refused)?;
    let view: u32 = t.query_one("SELECT to_regclass($1)::oid", &[&name]).await.map_err(doing)?.get(0);
    // Planning a query may run functions that it calls, so the code of other roles is checked first.
    let code = Code::of(&**t, view, agreed).await?;
    // Making a view needs no right to read its tables, but planning a query over the view does.
    t.execute(&format!("EXPLAIN SELECT * FROM {name}"), &[]).await.map_err(refused)?;
    t.batch_execute(&format!("SET LOCAL search_path = {SHUT}")).await.map_err(doing)?;
    let canonical: String = t
        .query_one(&format!("SELECT {}", canonical("pg_get_viewdef($1::oid)")), &[&view])
        .await
        .map_err(doing)?
        .get(0);
    if let Some(column) = ambiguous_key(t, place, view, &canonical).await? {
        let column = Ident::new(column);
        return Err(Error::input(format!(
            "the grouping sets name the expression of {column} more than once"
        ))
        .detail(
            "PostgreSQL does not say which of its columns is which key where it says what a query means, \
                 nor does a dump.",
        )
        .hint(format!("Write {column} otherwise than the other column, such as x AS a, (x + 0) AS b.")));
    }
    let columns = t.query(&columns_text(), &[&view]).await.map_err(doing)?;
    let column = |c: &Row| OutputColumn { base: c.get(2), ..OutputColumn::new(c.get(0), c.get(1)) };
    let columns: Vec<OutputColumn> = columns.iter().map(column).collect();
    if let Some(column) = columns.iter().find(|c| SYSTEM_COLUMNS.contains(&&*c.name)) {
        return Err(reserved(sql, &column.name));
    }
    let relations = format!(
        "{DEPENDENCIES}, relation AS (SELECT object AS oid, array_agg(DISTINCT CASE view WHEN $1::oid THEN 0::oid ELSE view END) AS through, \
             array_agg(DISTINCT part) FILTER (WHERE part > 0) AS named FROM reads WHERE class = 'pg_class'::regclass GROUP BY object) \
         SELECT c.oid, n.nspname, c.relname, {KIND}, pgtrickle.fingerprint(c.oid), \
         EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid = c.oid), \
         pg_has_role(current_user, c.relowner, 'USAGE'), c.relowner::regrole::text, \
         EXISTS (SELECT FROM reads y JOIN pg_type t ON t.oid = c.reltype \
             WHERE y.class = 'pg_type'::regclass AND y.object IN (t.oid, t.typarray)), r.through, \
         CASE WHEN c.relrowsecurity THEN pgtrickle.row_security(c.oid, r.through, quote_ident(current_user)::regrole) END, \
         pgtrickle.column_names(c.oid)::text, coalesce(r.named, '{{}}')::text FROM relation r JOIN pg_class c USING (oid) \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY c.oid"
    );
    let relations = t.query(&relations, &[&view]).await.map_err(doing)?;
    let functions = format!(
        "{DEPENDENCIES} SELECT array_agg(DISTINCT oid), pgtrickle.functions_fingerprint(array_agg(DISTINCT oid)) FROM (\
         SELECT object FROM reads WHERE class = 'pg_proc'::regclass UNION ALL \
         SELECT o.oprcode FROM reads JOIN pg_operator o ON o.oid = object \
         WHERE class = 'pg_operator'::regclass AND o.oprcode >= 16384) called(oid)"
    );
    let functions = t.query_one(&functions, &[&view]).await.map_err(doing)?;
    let names: Vec<u32> = functions.get::<Option<Vec<u32>>>(0).unwrap_or_default();
    let locks = t.query_one(LOCKS, &[&view]).await.map_err(doing)?.get(0);
    let volatile = format!(
        "{DEPENDENCIES} SELECT o.oid::regoperator::text FROM reads JOIN pg_operator o ON o.oid = reads.object \
         JOIN pg_proc p ON p.oid = o.oprcode WHERE reads.class = 'pg_operator'::regclass AND p.provolatile = 'v' ORDER BY 1 LIMIT 1"
    );
    let volatile = t.query_opt(&volatile, &[&view]).await.map_err(doing)?;
    Ok(Resolved {
        locks,
        volatile_operator: volatile.map(|r| r.get(0)),
        lookalikes: lookalikes::reasons(t, view).await?,
        canonical,
        columns,
        dependencies: relations
            .iter()
            .map(|r| Dependency {
                oid: r.get(0),
                schema: r.get(1),
                name: r.get(2),
                relkind: r.get(3),
                fingerprint: r.get(4),
                is_stream_table: r.get(5),
                owned: r.get(6),
                owner: r.get(7),
                is_named_as_type: r.get(8),
                read_through: r.get(9),
                row_security: r.get(10),
                names: r.get(11),
                named: r.get(12),
            })
            .collect(),
        functions_fingerprint: (!names.is_empty()).then(|| functions.get(1)),
        functions: names,
        code,
    })
}

/// Turns PostgreSQL's refusal of a query into an error that has the place in the query as the user typed it.
/// `before` is the number of characters that come before the query in the statement.
fn refused(sql: &str, before: usize, e: Refusal) -> Error {
    let place = e.position.and_then(|at| span(sql, at.checked_sub(before + 1)?));
    if e.sqlstate.is_none() {
        return Error::server("check the query", e);
    }
    let message = e.message.clone();
    let mut error = Error::server("check the query", e).saying(message).blamed_on_input();
    if error.hint_text().is_none() {
        let hint = hint(error.sqlstate().unwrap_or_default());
        error = error.hint(hint);
    }
    if error.sqlstate() == Some("42601")
        && place.is_none()
        && let Ok(Some(second)) = statements(sql).map(|s| s.get(1).map(|s| s.span))
    {
        return error.saying("there is another statement after the query").at(second);
    }
    match place.or_else(|| repeated(sql, &error)) {
        Some(span) => error.at(span),
        None => error,
    }
}

/// Returns the error for a result column that has the name of a system column, which no table can have.
fn reserved(sql: &str, column: &str) -> Error {
    let message = format!("column \"{column}\" has the name of a system column");
    let error = Error::from(trickle_core::Error::duplicate_column(message))
        .hint("Give it another name with AS; it says where a row is stored, not what it holds.");
    match find_name(sql, column) {
        Ok(Some(span)) => error.at(span),
        _ => error,
    }
}

/// Returns the place of a column that is named twice, since PostgreSQL's error does not have it. Returns
/// `None` where the server's messages are not in English.
fn repeated(sql: &str, e: &Error) -> Option<Span> {
    let name = e.message().strip_prefix("column \"")?.strip_suffix("\" specified more than once")?;
    let first = find_name(sql, name).ok()??;
    let rest = sql.get(first.end..)?;
    let second = find_name(rest, name).ok()??;
    span(sql, sql[..first.end + second.start].chars().count())
}

/// Returns a hint for an error to which PostgreSQL adds none.
fn hint(sqlstate: &str) -> &'static str {
    match sqlstate {
        "42601" => "A stream table holds the result of one SELECT, VALUES or WITH statement.",
        "42P01" => "Write schema.table for a table that is in no schema of the search path.",
        "42703" => "None of the tables in FROM has such a column.",
        "42501" => "The owner can GRANT the right to this role.",
        "42701" => "Give one of the two columns another name with AS.",
        _ => "PostgreSQL itself refuses the query: mend it until it runs in psql.",
    }
}

/// Returns the place that begins with the character `at` (from 0), or at the end of the text. The place ends
/// with the word that begins there.
fn span(sql: &str, at: usize) -> Option<Span> {
    let start = sql.char_indices().map(|(i, _)| i).chain([sql.len()]).nth(at)?;
    let before = &sql[..start];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    let word = sql[start..].chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '"'));
    let length = word.map(char::len_utf8).sum::<usize>().max(1);
    Some(Span {
        start,
        end: (start + length).min(sql.len()),
        line: u32::try_from(line).ok()?,
        column: u32::try_from(column).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_place_has_line_and_column_in_characters() {
        let s = span("SELECT é,\n  nope FROM t", 12).unwrap();
        assert_eq!((s.line, s.column), (2, 3));
        assert_eq!(&"SELECT é,\n  nope FROM t"[s.start..s.end], "nope");
        assert!(span("SELECT", 99).is_none());
        assert_eq!(span("SELECT", 6).map(|s| (s.start, s.end)), Some((6, 6)));
    }
}
