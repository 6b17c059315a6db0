//! Suggests an existing name where PostgreSQL does not find a name of the query.

use crate::db::Connection;
use crate::error::Error;
use trickle_core::near::nearest;
use trickle_core::sql::Ident;

/// The names of relations (with `$2`) or of functions (without) in the schemas `$1`. Functions in
/// `pg_catalog` are included.
const NAMES: &str = "
SELECT DISTINCT name FROM (
    SELECT c.relname::text, c.relnamespace FROM pg_class c WHERE $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    UNION ALL SELECT p.proname::text, p.pronamespace FROM pg_proc p WHERE NOT $2) o(name, schema)
JOIN pg_namespace n ON n.oid = o.schema
WHERE n.nspname = ANY ($1) OR NOT $2 AND n.nspname = 'pg_catalog'
ORDER BY name LIMIT 10000";

/// Adds the existing name that is most similar to the hint, if there is a similar one. `path` is the search
/// path in which names without a schema are looked up.
pub(super) async fn suggested(db: &dyn Connection, sql: &str, path: &[String], error: Error) -> Error {
    let relation = match error.sqlstate() {
        Some("42P01") => true,
        Some("42883") => false,
        _ => return error,
    };
    let Some((schema, name)) = error.span().and_then(|at| named(sql.get(at.start..)?)) else { return error };
    let schemas = schema.map_or_else(|| path.to_vec(), |s| vec![s]);
    let Ok(rows) = db.query(NAMES, &[&schemas, &relation]).await else { return error };
    let names: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    // If a function has exactly this name, it has other arguments, which PostgreSQL's own hint says.
    match nearest(&name, names.iter().map(String::as_str)) {
        Some(near) if !names.contains(&name) => error.hint(format!("Did you mean {}?", Ident::new(near))),
        _ => error,
    }
}

/// Returns the name at the beginning of a text, and the schema of the name.
fn named(text: &str) -> Option<(Option<String>, String)> {
    let (first, rest) = part(text)?;
    Some(match rest.strip_prefix('.').and_then(part) {
        Some((name, _)) => (Some(first), name),
        None => (None, first),
    })
}

/// Returns the identifier at the beginning of a text, folded as PostgreSQL folds it, and the rest of the
/// text.
fn part(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"')?;
        return Some((name.to_owned(), rest));
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (end > 0).then(|| (name.to_lowercase(), rest))
}
