//! The refresh program of a query that can only be refreshed in full.

use super::plan::{Effect, Program, ReaderView, Template, Windows};
use crate::cost::Strategy;
use crate::error::{Error, Result};
use crate::sql::{Ident, Qualified};
use std::sync::Arc;

/// The program that computes a query and writes the whole result, or only the difference from the stored
/// rows. The program never blocks sessions that read the stream table. The query may hold constructs that the
/// engine cannot read, so it is stored as text. The text is the server's canonical form of the query
/// (`pg_get_viewdef`), and is one complete query. The engine knows only the names of the query's columns.
/// Rows are therefore compared by the bytes of their values (`*<>`, PostgreSQL manual, 9.25.6), which works
/// for every type.
#[derive(Debug)]
pub struct Recompute {
    replaced: Arc<[Template]>,
    difference: Option<Arc<[Template]>>,
}

/// A column of a key of the stored table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// The column's position among the stored columns.
    pub position: usize,
    /// The operator, with its schema, by which the unique index of the key compares values of the column.
    pub equality: Qualified,
    /// The collation of the index for the column, with its schema, where the type has a collation.
    pub collation: Option<Qualified>,
}

impl Recompute {
    /// Makes the program that keeps `columns` of `table` equal to `query`. A unique index of the table
    /// enforces `key`. With a key, a changed row is updated, so triggers on the table and foreign keys to it
    /// see one change. Without a key, a changed row is deleted and inserted.
    pub fn new(table: &Qualified, columns: &[Ident], key: &[KeyColumn], query: &str) -> Recompute {
        let query = query.trim_end().trim_end_matches(';');
        let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let list = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        let replaced = Arc::new([
            Template::plain(format!("DELETE FROM {table}"), Effect::Deleted),
            Template::plain(
                format!("INSERT INTO {table}{list}\nSELECT * FROM (\n{query}\n) AS query"),
                Effect::Inserted,
            ),
        ]);
        let difference = (!columns.is_empty()).then(|| {
            let text = difference(table, &names, key, query);
            Arc::from([Template::plain(text, Effect::Counts)])
        });
        Recompute { replaced, difference }
    }

    /// Returns the program without the strategy that writes the difference.
    #[must_use]
    pub fn without_difference(self) -> Recompute {
        Recompute { difference: None, ..self }
    }
}

/// Builds the statement that writes the difference. Stored and computed rows are sorted together by the bytes
/// of their values. A stored row and an equal computed row cancel. Among the remaining rows, a stored row and
/// a computed row with the same key make an update. All other stored rows are deleted, and all other computed
/// rows are inserted. Deletes come before inserts, so no inserted row conflicts with the key of a deleted
/// row.
fn difference(table: &Qualified, names: &[String], key: &[KeyColumn], query: &str) -> String {
    let own: Vec<String> = (1..=names.len()).map(|n| format!("c{n}")).collect();
    let of = |alias: &str| own.iter().map(|c| format!("{alias}.{c}")).collect::<Vec<_>>().join(", ");
    let (all, listed) = (own.join(", "), names.join(", "));
    let stored: Vec<String> = names.iter().map(|n| format!("t.{n}")).collect();
    let stored = stored.join(", ");
    let sides = format!(
        "computed({all}) AS MATERIALIZED (SELECT * FROM (\n{query}\n) AS query),\n\
         sides(w, at, {all}) AS (SELECT -1, t.ctid, {stored} FROM ONLY {table} t UNION ALL SELECT 1, NULL, {} FROM computed q),\n\
         imaged AS (SELECT s.*, ROW({}) AS image FROM sides s),\n\
         sorted AS (SELECT i.*, pg_catalog.row_number() OVER o AS n, CASE WHEN pg_catalog.row_number() OVER o OPERATOR(pg_catalog.=) 1 \
         OR pg_catalog.lag(i.image) OVER o OPERATOR(pg_catalog.*<>) i.image THEN 1 ELSE 0 END AS begins \
         FROM imaged i WINDOW o AS (ORDER BY i.image USING OPERATOR(pg_catalog.*<))),\n\
         equal AS (SELECT s.*, pg_catalog.sum(s.begins) OVER (ORDER BY s.n) AS run FROM sorted s),\n\
         counted AS (SELECT e.*, pg_catalog.row_number() OVER (PARTITION BY e.run, e.w ORDER BY e.n) AS nth FROM equal e),\n\
         odd AS MATERIALIZED (SELECT c.* FROM (SELECT c.*, pg_catalog.count(*) OVER (PARTITION BY c.run, c.nth) AS copies FROM counted c) c \
         WHERE c.copies OPERATOR(pg_catalog.=) 1)",
        of("q"),
        of("s"),
    );
    let (gone, come) = ("w OPERATOR(pg_catalog.=) -1", "w OPERATOR(pg_catalog.=) 1");
    // If a key column is not stored, the other key columns do not identify rows. In that case no rows are
    // paired.
    let paired: Option<Vec<String>> = key.iter().map(|k| same(k, &own)).collect();
    let paired = paired.unwrap_or_default();
    let pairs = match paired.is_empty() {
        true => format!("pairs(at, n, {all}) AS (SELECT o.at, o.n, {} FROM odd o WHERE false)", of("o")),
        false => format!(
            "pairs(at, n, {all}) AS MATERIALIZED (SELECT DISTINCT ON (g.at) g.at, c.n, {} FROM odd g JOIN odd c ON g.{gone} AND c.{come} AND {} \
             ORDER BY g.at, c.n)",
            of("c"),
            paired.join(" AND "),
        ),
    };
    let set: Vec<String> = names.iter().zip(&own).map(|(name, c)| format!("{name} = p.{c}")).collect();
    let after = |cte: &str| format!("(SELECT pg_catalog.count(*) FROM {cte}) OPERATOR(pg_catalog.>=) 0");
    format!(
        "WITH {sides},\n{pairs},\n\
         gone AS (DELETE FROM ONLY {table} t WHERE t.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT o.at FROM odd o WHERE o.{gone} \
         AND NOT EXISTS (SELECT FROM pairs p WHERE p.at OPERATOR(pg_catalog.=) o.at))) RETURNING 1),\n\
         changed AS (UPDATE ONLY {table} t SET {} FROM pairs p WHERE t.ctid OPERATOR(pg_catalog.=) p.at AND {} RETURNING 1),\n\
         come AS (INSERT INTO {table} ({listed}) SELECT {} FROM odd o WHERE o.{come} \
         AND NOT EXISTS (SELECT FROM pairs p WHERE p.n OPERATOR(pg_catalog.=) o.n) AND {} AND {} RETURNING 1)\n\
         SELECT (SELECT pg_catalog.count(*) FROM come), (SELECT pg_catalog.count(*) FROM changed), (SELECT pg_catalog.count(*) FROM gone)",
        set.join(", "),
        after("gone"),
        of("o"),
        after("gone"),
        after("changed"),
    )
}

/// Builds the condition that a deleted row and an inserted row have the same value in a column of the key.
fn same(k: &KeyColumn, own: &[String]) -> Option<String> {
    let column = own.get(k.position)?;
    let schema = k.equality.schema.as_ref().map(|s| format!("{s}.")).unwrap_or_default();
    let collation = k.collation.as_ref().map(|c| format!(" COLLATE {c}")).unwrap_or_default();
    Some(format!("g.{column} OPERATOR({schema}{}) c.{column}{collation}", k.equality.name.as_str()))
}

impl Program for Recompute {
    fn strategies(&self) -> &[Strategy] {
        match self.difference {
            Some(_) => &[Strategy::FullDifference, Strategy::Full],
            None => &[Strategy::Full],
        }
    }

    fn statements(&self, strategy: Strategy, _: &Windows) -> Result<Arc<[Template]>> {
        match (strategy, &self.difference) {
            (Strategy::NoData, _) => Ok(Arc::new([])),
            (Strategy::Full, _) => Ok(self.replaced.clone()),
            (Strategy::FullDifference, Some(difference)) => Ok(difference.clone()),
            (other, _) => {
                Err(Error::plan(format!("a query that is not incremental has no way {}", other.name())))
            }
        }
    }

    fn feed(&self, strategy: Strategy) -> ReaderView {
        match strategy {
            Strategy::Full => ReaderView::Replaced,
            Strategy::NoData
            | Strategy::Delta
            | Strategy::AffectedGroups
            | Strategy::FullDifference
            | Strategy::Part => ReaderView::Changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_stands_alone_and_names_are_quoted() {
        let table = Qualified::new("S", "select");
        let r = Recompute::new(&table, &[Ident::new("a b")], &[], " SELECT 1 AS \"a b\" -- why\n;");
        let all = r.statements(Strategy::Full, &Windows::new()).unwrap();
        let texts: Vec<&str> = all.iter().map(|t| &*t.text).collect();
        let expected = "INSERT INTO \"S\".\"select\" (\"a b\")\nSELECT * FROM (\n SELECT 1 AS \"a b\" -- why\n\n) AS query";
        assert_eq!(texts, ["DELETE FROM \"S\".\"select\"", expected]);
        assert!(r.statements(Strategy::Delta, &Windows::new()).is_err());
    }

    #[test]
    fn a_row_of_a_key_is_updated_and_others_go_first() {
        let key = KeyColumn {
            position: 1,
            equality: Qualified::new("pg_catalog", "="),
            collation: Some(Qualified::new("pg_catalog", "C")),
        };
        let columns = [Ident::new("v"), Ident::new("id")];
        let r = Recompute::new(&Qualified::new("s", "t"), &columns, &[key], "SELECT 1, 'a'");
        assert_eq!(r.strategies(), [Strategy::FullDifference, Strategy::Full]);
        let all = r.statements(Strategy::FullDifference, &Windows::new()).unwrap();
        let text = &all[0].text;
        assert_eq!(text.matches("SELECT 1, 'a'").count(), 1, "{text}");
        assert!(text.contains("g.c2 OPERATOR(pg_catalog.=) c.c2 COLLATE pg_catalog.\"C\""), "{text}");
        assert!(text.contains("SET v = p.c1, id = p.c2"), "{text}");
        let none = Recompute::new(&Qualified::new("s", "t"), &[], &[], "SELECT");
        assert_eq!(none.strategies(), [Strategy::Full]);
    }
}
