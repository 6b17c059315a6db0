//! Reads the names in the parser crate's tree as PostgreSQL does.

use super::convert::{ident, object_name};
use sqlparser::ast::{Ident, Query, visit_relations};
use std::ops::ControlFlow;

/// Returns the name that an identifier denotes.
pub(super) fn fold(name: &Ident) -> String {
    ident(name).folded()
}

/// Returns the schema and the name of `schema.name` or `name`. The name of a database before the schema is
/// dropped.
#[cfg(feature = "testing")]
pub(super) fn qualified(name: &sqlparser::ast::ObjectName) -> (Option<String>, String) {
    object_name(name).qualified()
}

/// Returns the names of relations in a query, each with its schema if one is given. Names of CTEs are
/// included.
pub(super) fn relations(query: &Query) -> Vec<(Option<String>, String)> {
    let mut found = Vec::new();
    let _ = visit_relations(query, |relation| {
        // The name of a rewritten call, such as ROWS FROM, consists of a marker alone.
        let name = object_name(relation);
        if !name.parts.is_empty() {
            found.push(name.qualified());
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn relations_are_found_wherever_they_stand() {
        let sql = "WITH w AS (SELECT * FROM a) SELECT (SELECT 1 FROM s.b) FROM w, ONLY \"C\" x WHERE EXISTS (TABLE d)";
        let found = crate::parse::parse_query(sql).unwrap().relations();
        let mut names: Vec<String> =
            found.into_iter().map(|(s, n)| s.map_or(n.clone(), |s| format!("{s}.{n}"))).collect();
        names.sort();
        assert_eq!(names, ["C", "a", "d", "s.b", "w"]);
    }
}
