//! The objects that a query reads and calls, according to the dependencies of its view.

use super::READING;
use crate::catalog::{DEPENDENCIES, KIND};
use crate::db::{Row, Transaction};
use crate::error::{Error, Result};

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

/// Returns the relations that a view reads, directly or through other views.
pub(super) async fn relations(t: &Transaction<'_>, view: u32) -> Result<Vec<Dependency>> {
    let text = format!(
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
    let rows = t.query(&text, &[&view]).await.map_err(|e| Error::server(READING, e))?;
    let dependency = |r: &Row| Dependency {
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
    };
    Ok(rows.iter().map(dependency).collect())
}

/// Returns the functions that a view calls, except built-in ones, and their fingerprint.
pub(super) async fn functions(t: &Transaction<'_>, view: u32) -> Result<(Vec<u32>, Option<String>)> {
    let text = format!(
        "{DEPENDENCIES} SELECT array_agg(DISTINCT oid), pgtrickle.functions_fingerprint(array_agg(DISTINCT oid)) FROM (\
         SELECT object FROM reads WHERE class = 'pg_proc'::regclass UNION ALL \
         SELECT o.oprcode FROM reads JOIN pg_operator o ON o.oid = object \
         WHERE class = 'pg_operator'::regclass AND o.oprcode >= 16384) called(oid)"
    );
    let row = t.query_one(&text, &[&view]).await.map_err(|e| Error::server(READING, e))?;
    let functions: Vec<u32> = row.get::<Option<Vec<u32>>>(0).unwrap_or_default();
    let fingerprint = (!functions.is_empty()).then(|| row.get(1));
    Ok((functions, fingerprint))
}

/// Whether the query locks rows, according to the server's parse tree of the view. In the text of that tree,
/// a space within a name has a backslash before it.
const LOCKS: &str =
    "SELECT EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = $1 AND r.ev_action::text ~ ':rowMarks \\(')";

/// Whether the query of a view locks the rows that it reads.
pub(super) async fn locks(t: &Transaction<'_>, view: u32) -> Result<bool> {
    Ok(t.query_one(LOCKS, &[&view]).await.map_err(|e| Error::server(READING, e))?.get(0))
}

/// Returns a volatile operator that a view uses, directly or through other views.
pub(super) async fn volatile_operator(t: &Transaction<'_>, view: u32) -> Result<Option<String>> {
    let text = format!(
        "{DEPENDENCIES} SELECT o.oid::regoperator::text FROM reads JOIN pg_operator o ON o.oid = reads.object \
         JOIN pg_proc p ON p.oid = o.oprcode WHERE reads.class = 'pg_operator'::regclass AND p.provolatile = 'v' ORDER BY 1 LIMIT 1"
    );
    let row = t.query_opt(&text, &[&view]).await.map_err(|e| Error::server(READING, e))?;
    Ok(row.map(|r| r.get(0)))
}

/// Matches a written row without a type of its own, in the server's parse tree, and captures the names of its
/// fields.
const NAMES_OF_ROWS: &str = ":row_typeid 2249 :row_format [0-9] :colnames \\(((?:[^()\\\\]|\\\\.)*)\\)";

/// A row whose fields lose their names in the text of a query: the whole row of `JOIN … USING (…) AS x`,
/// which the text has as ROW(…).
#[derive(Debug)]
pub(super) struct UnnamedRow {
    /// The view whose text has the row; `None` for the query itself.
    pub(super) view: Option<String>,
    /// The names of the fields, as a list.
    pub(super) fields: String,
}

/// Finds a row whose fields lose their names in the text of a view, or of a view that it reads. A row that is
/// written as ROW(…) has the fields `f1`, `f2` and so on, and loses nothing.
pub(super) async fn unnamed_row(t: &Transaction<'_>, view: u32) -> Result<Option<UnnamedRow>> {
    let text = format!(
        "{DEPENDENCIES}, tree(view, action) AS (SELECT r.ev_class, r.ev_action::text FROM pg_rewrite r \
             JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v' WHERE r.ev_class = $1::oid \
             OR r.ev_class IN (SELECT object FROM reads WHERE class = 'pg_class'::regclass)) \
         SELECT CASE WHEN view <> $1::oid THEN view::regclass::text END, replace(names[1], '\" \"', '\", \"') \
         FROM tree, regexp_matches(action, $2, 'g') f(names) \
         WHERE names[1] <> (SELECT coalesce(string_agg(pg_catalog.format('\"f%s\"', n), ' ' ORDER BY n), '') \
             FROM generate_series(1, cardinality(string_to_array(names[1], ' '))) n) ORDER BY 1 NULLS FIRST, 2 LIMIT 1"
    );
    let row = t.query_opt(&text, &[&view, &NAMES_OF_ROWS]).await.map_err(|e| Error::server(READING, e))?;
    Ok(row.map(|r| UnnamedRow { view: r.get(0), fields: r.get(1) }))
}
