//! The refresh program of a query that is not incremental.

use super::plan::{Feed, Program, Template, Windows, Yield};
use crate::cost::Strategy;
use crate::error::{Error, Result};
use crate::sql::{Ident, Qualified};
use std::sync::Arc;

/// Empties the stored table and fills it from the query: what a materialized view does, but readers are never blocked.
/// The query may hold what the engine cannot read, so it is kept as text: the canonical text that the server gave for
/// it (`pg_get_viewdef`), which is one complete query.
#[derive(Clone, Debug)]
pub struct Recompute {
    statements: Arc<[Template]>,
}

impl Recompute {
    /// The program that keeps `columns` of `table` equal to `query`.
    pub fn new(table: &Qualified, columns: &[Ident], query: &str) -> Recompute {
        let query = query.trim_end().trim_end_matches(';');
        let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let list = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        let statements = Arc::new([
            Template::plain(format!("DELETE FROM {table}"), Yield::Deleted),
            Template::plain(
                format!("INSERT INTO {table}{list}\nSELECT * FROM (\n{query}\n) AS query"),
                Yield::Inserted,
            ),
        ]);
        Recompute { statements }
    }
}

impl Program for Recompute {
    fn strategies(&self) -> &[Strategy] {
        &[Strategy::Full]
    }

    fn statements(&self, strategy: Strategy, _: &Windows) -> Result<Arc<[Template]>> {
        match strategy {
            Strategy::NoData => Ok(Arc::new([])),
            Strategy::Full => Ok(self.statements.clone()),
            other => Err(Error::plan(format!("a query that is not incremental has no way {}", other.name()))),
        }
    }

    fn feed(&self, _: Strategy) -> Feed {
        Feed::Replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_stands_alone_and_names_are_quoted() {
        let table = Qualified::new("S", "select");
        let r = Recompute::new(&table, &[Ident::new("a b")], " SELECT 1 AS \"a b\" -- why\n;");
        let all = r.statements(Strategy::Full, &Windows::new()).unwrap();
        let texts: Vec<&str> = all.iter().map(|t| &*t.text).collect();
        let expected = "INSERT INTO \"S\".\"select\" (\"a b\")\nSELECT * FROM (\n SELECT 1 AS \"a b\" -- why\n\n) AS query";
        assert_eq!(texts, ["DELETE FROM \"S\".\"select\"", expected]);
        assert!(r.statements(Strategy::Delta, &Windows::new()).is_err());
    }
}
