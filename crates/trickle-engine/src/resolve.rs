//! Asks PostgreSQL for the meaning of a defining query.
//!
//! This module makes a view of the query, in a transaction that is rolled back. The view is temporary where
//! the role may make temporary objects. PostgreSQL checks the query and returns its canonical text (stars
//! expanded, names qualified, casts explicit). PostgreSQL also returns the columns of the result, and the
//! objects that the query depends on (`columns`, `reads`). Further views check the types of a plan
//! (`typecheck`).

mod columns;
mod lookalikes;
mod place;
mod reads;
mod refused;
mod suggested;
mod typecheck;

pub(crate) use columns::{OWN_COLLATION, OutputColumn};
pub(crate) use reads::Dependency;
use reads::UnnamedRow;
pub(crate) use typecheck::type_differences;

use crate::catalog::canonical;
use crate::db::{Connection, Row, Transaction};
use crate::error::{Error, Result};
use crate::in_force::put_in_force;
use crate::security::{Agreed, Code, SHUT};
pub(crate) use place::Place;
use refused::{refused, reserved};
use trickle_core::Reason;
use trickle_core::catalog::SYSTEM_COLUMNS;
use trickle_core::parse::renamed_columns;
use trickle_core::refresh::Setting;
use trickle_core::sql::Ident;

/// The work that errors of the server name while a query is resolved.
const READING: &str = "read what the query depends on";

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
    /// The reasons for full refreshes that arise because the canonical text does not say everything: a plan
    /// would take an object of the query for one of PostgreSQL's own (`lookalikes`), or names of fields are
    /// lost.
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

/// The name of the view of the query.
const VIEW: &str = "trickle_query";

/// The name of the second view, which is made of the canonical text.
const AGAIN: &str = "trickle_query_again";

/// The result columns of a query with grouping sets, according to the server's parse tree. Each has the
/// number of its key in GROUP BY, DISTINCT and ORDER BY. For a query without grouping sets there are no rows.
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
            db.voice().one("trickle doctor", "pgtrickle.health_check()")
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

/// Makes the view of the query, and reads everything about the query from it.
async fn within(t: &Transaction<'_>, place: &Place, sql: &str, agreed: Option<&Agreed>) -> Result<Resolved> {
    let doing = |e| Error::server(READING, e);
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
    let canonical = canonical_text(t, place, view).await?;
    let columns = columns::of_view(t, view).await?;
    if let Some(column) = columns.iter().find(|c| SYSTEM_COLUMNS.contains(&&*c.name)) {
        return Err(reserved(sql, &column.name));
    }
    let mut lookalikes = lookalikes::reasons(t, view).await?;
    if let Some(UnnamedRow { view, fields }) = reads::unnamed_row(t, view).await? {
        let Some(view) = view else { return Err(refused_row(&fields)) };
        lookalikes.push(lookalikes::of_unnamed_row(&view));
    }
    let dependencies = reads::relations(t, view).await?;
    let (functions, functions_fingerprint) = reads::functions(t, view).await?;
    Ok(Resolved {
        locks: reads::locks(t, view).await?,
        volatile_operator: reads::volatile_operator(t, view).await?,
        lookalikes,
        canonical,
        columns,
        dependencies,
        functions,
        functions_fingerprint,
        code,
    })
}

/// Returns the error for the whole row of a join's alias, which has these fields. A query that is run by its
/// canonical text would give such a row other names.
fn refused_row(fields: &str) -> Error {
    Error::input("the query uses the whole row of JOIN … USING (…) AS a name as a value")
        .detail(format!(
            "The fields of the row are {fields}. PostgreSQL leaves these names out where it says what a query means, \
             and so does a dump."
        ))
        .hint("Write the join as a subquery: FROM (SELECT * FROM … JOIN … USING (…)) AS the name.")
        .coded("0A000")
}

/// Returns the canonical text of a view.
///
/// # Errors
/// The text does not distinguish two keys of grouping sets; errors of the server.
async fn canonical_text(t: &Transaction<'_>, place: &Place, view: u32) -> Result<String> {
    let text = format!("SELECT {}", canonical("pg_get_viewdef($1::oid)"));
    let row = t.query_one(&text, &[&view]).await.map_err(|e| Error::server(READING, e))?;
    let canonical: String = row.get(0);
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
    Ok(canonical)
}
