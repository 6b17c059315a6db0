//! Compares the queries of declarations, and finds the order in which they read each other.

use super::{Declared, Refused};
use crate::error::Error;
use std::collections::BTreeMap;
use trickle_core::parse::{find_name, parse_query};
use trickle_core::refresh::Relation;
use trickle_core::sql::Qualified;

/// Whether two texts are the same query, apart from comments before it and semicolons after it.
pub(super) fn same_text(a: &str, b: &str) -> bool {
    let bare = |s: &str| {
        let lines = s.lines().skip_while(|l| l.trim().is_empty() || l.trim_start().starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        text.trim().trim_end_matches(';').trim_end().to_owned()
    };
    bare(a) == bare(b)
}

/// Whether a query names this relation. A name without a schema may mean a relation in any schema of the
/// search path. In a query that the engine cannot read, every word that equals the name of the relation
/// counts.
pub(super) fn names(query: &str, relation: &Relation, search_path: &[String]) -> bool {
    let Ok(parsed) = parse_query(query) else {
        return find_name(query, &relation.name).is_ok_and(|found| found.is_some());
    };
    let is = |(schema, name): &(Option<String>, String)| {
        let there = schema.as_ref().map_or(search_path, std::slice::from_ref);
        *name == *relation.name && there.iter().any(|s| *s == *relation.schema)
    };
    parsed.relations().iter().any(is)
}

/// Returns an order of the declarations in which each comes after the declarations that it reads.
///
/// # Errors
/// Declarations that read each other in a circle.
pub(super) fn order(
    declared: &[Declared],
    places: &[Relation],
    search_path: &[String],
) -> std::result::Result<Vec<usize>, Refused> {
    let reads: BTreeMap<usize, Vec<usize>> = (0..declared.len())
        .map(|at| {
            let read =
                |other: &usize| *other != at && names(&declared[at].query, &places[*other], search_path);
            (at, (0..declared.len()).filter(read).collect())
        })
        .collect();
    let mut left: Vec<usize> = (0..declared.len()).collect();
    let mut order = Vec::new();
    while let Some(first) = left.first() {
        let ready = left.iter().position(|at| reads[at].iter().all(|r| !left.contains(r)));
        if ready.is_none() {
            require_no_circle(declared, places, &reads, &left, *first)?;
        }
        order.push(left.remove(ready.unwrap_or(0)));
    }
    Ok(order)
}

/// Returns an error where declarations read each other in a circle. Each declaration in `left` reads another
/// declaration in `left`. If the engine cannot read a query on the circle, the circle may be only apparent,
/// and it is no error.
fn require_no_circle(
    declared: &[Declared],
    places: &[Relation],
    reads: &BTreeMap<usize, Vec<usize>>,
    left: &[usize],
    first: usize,
) -> std::result::Result<(), Refused> {
    let mut walk = vec![first];
    let back = loop {
        let last = walk[walk.len() - 1];
        let Some(next) = reads[&last].iter().find(|r| left.contains(r)) else { return Ok(()) };
        if let Some(at) = walk.iter().position(|w| w == next) {
            break at;
        }
        walk.push(*next);
    };
    let circle = &walk[back..];
    if circle.iter().any(|at| parse_query(&declared[*at].query).is_err()) {
        return Ok(());
    }
    let name = |at: &usize| Qualified::new(&places[*at].schema, &places[*at].name).to_string();
    let path: Vec<String> = circle.iter().chain(circle.first()).map(name).collect();
    let error = Error::input(format!("{} reads itself: {}", path[0], path.join(" reads ")))
        .hint("Let one of them read the tables that the others are made from.");
    Err(Refused { declared: circle.first().copied(), error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;
    use trickle_core::catalog::TableId;
    use trickle_core::vocabulary::RefreshMode;

    fn declared(name: &str, query: &str) -> Declared {
        Declared {
            name: Name::parse(name).unwrap(),
            query: query.to_owned(),
            schedule: None,
            mode: RefreshMode::Auto,
            apart: false,
            snapshots: false,
        }
    }

    fn place(name: &str) -> Relation {
        Relation { id: TableId(0), schema: "public".into(), name: name.into() }
    }

    #[test]
    fn each_comes_after_what_it_reads() {
        let all = [
            declared("c", "SELECT * FROM b JOIN public.a USING (id)"),
            declared("b", "SELECT id FROM a WHERE c > 1"),
            declared("a", "SELECT id, c FROM elsewhere.c"),
        ];
        let (places, path) = (["c", "b", "a"].map(place), ["public".to_owned()]);
        assert_eq!(order(&all, &places, &path).unwrap(), [2, 1, 0]);
    }

    #[test]
    fn those_that_read_each_other_are_named() {
        let (places, path) = (["w", "x", "y", "z"].map(place), ["public".to_owned()]);
        let with = |x: &str| {
            let queries = [("w", "TABLE x"), ("x", x), ("y", "TABLE z"), ("z", "SELECT * FROM t, x")];
            order(&queries.map(|(name, query)| declared(name, query)), &places, &path)
        };
        let refused = with("TABLE y").unwrap_err();
        assert_eq!(refused.declared, Some(1));
        let expected = "public.x reads itself: public.x reads public.y reads public.z reads public.x";
        assert_eq!(refused.error.message(), expected);
        // The name may belong to something other than a relation.
        assert_eq!(with("SELECT 1 AS y FETCH WHAT").unwrap().len(), 4);
    }

    #[test]
    fn what_stands_around_a_query_is_not_of_it() {
        assert!(same_text("-- schedule: 1m\nSELECT 1;\n", "\n-- mode: full\n\nSELECT 1"));
        assert!(!same_text("SELECT 1 -- one", "SELECT 1"));
        assert!(!same_text("SELECT 1", "SELECT 2"));
    }

    #[test]
    fn what_cannot_be_read_names_every_word_of_it() {
        let path = ["one".to_owned(), "public".to_owned()];
        assert!(names("SELECT * FROM a", &place("a"), &path));
        assert!(!names("SELECT a FROM elsewhere.a", &place("a"), &path));
        assert!(names("SELECT * FROM a FETCH WHAT", &place("a"), &path));
        assert!(!names("SELECT 'a' FROM b FETCH WHAT", &place("a"), &path));
    }
}
