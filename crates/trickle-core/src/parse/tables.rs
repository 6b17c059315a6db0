//! A query over other tables.

use super::ast::{ObjectName, ObjectNamePart, TableAlias, TableFactor, Visit, Visitor};
use super::{Source, fold, forms, parse_query};
use crate::error::{Error, Result};
use crate::sql::{Ident, Qualified};
use std::ops::ControlFlow;

/// The query with other tables in the place of those of which `now` gives another name (it is asked with schema and name, as
/// PostgreSQL folds them). Columns are found as before: a table that had no alias keeps its name as one, where the other's is
/// another; an alias that is the other's name is left out. All else of the text stays as it is.
///
/// # Errors
/// A syntax error; a name whose place the parser did not keep.
pub fn over_other_tables(
    sql: &str,
    mut now: impl FnMut(Option<&str>, &str) -> Option<Qualified>,
) -> Result<String> {
    let parsed = parse_query(sql)?;
    let (Some(query), source) = (parsed.query(), &parsed.source) else {
        return Err(Error::internal("a query without a tree"));
    };
    let mut found = Tables { now: &mut now, source, edits: Vec::new(), lost: false };
    let _ = parsed.deep(|| query.visit(&mut found));
    if found.lost {
        return Err(Error::internal("the place of a table in a query is not known"));
    }
    let mut edits = found.edits;
    edits.sort_unstable_by_key(|e| std::cmp::Reverse(e.0));
    let mut text = sql.to_owned();
    for (start, end, name) in edits {
        text.replace_range(start..end, &name);
    }
    Ok(text)
}

struct Tables<'a> {
    now: &'a mut dyn FnMut(Option<&str>, &str) -> Option<Qualified>,
    source: &'a Source,
    edits: Vec<(usize, usize, String)>,
    lost: bool,
}

impl Tables<'_> {
    fn replace(&mut self, name: &ObjectName, alias: Option<&TableAlias>) {
        let parts = name.0.iter().filter(|p| !forms::is_mark(p)).filter_map(ObjectNamePart::as_ident);
        let parts: Vec<_> = parts.collect();
        let Some((last, schema)) = parts.split_last() else { return };
        let own = Ident::new(fold(last));
        let Some(other) = (self.now)(schema.last().map(|s| fold(s)).as_deref(), own.as_str()) else { return };
        let needless = alias.filter(|a| a.columns.is_empty() && fold(&a.name) == other.name.as_str());
        let text = if alias.is_none() && other.name != own {
            format!("{other} AS {own}")
        } else {
            other.to_string()
        };
        let end = needless.map_or(*last, |a| &a.name);
        match (self.source.of(*schema.first().unwrap_or(last)), self.source.of(end)) {
            (Some(first), Some(last)) => self.edits.push((first.start, last.end, text)),
            _ => self.lost = true,
        }
    }
}

impl Visitor for Tables<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: None, .. } = factor {
            self.replace(name, alias.as_ref());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(sql: &str) -> String {
        let now = |schema: Option<&str>, name: &str| {
            (schema == Some("public") && name == "Größe").then(|| Qualified::new("new", "g"))
        };
        over_other_tables(sql, now).unwrap()
    }

    #[test]
    fn names_of_tables_alone_are_replaced() {
        assert_eq!(
            over(
                "SELECT 'ä', \"Größe\".a\n  FROM public.\"Größe\"\n JOIN public.\"Größe\" x(a, b) USING (a)"
            ),
            "SELECT 'ä', \"Größe\".a\n  FROM new.g AS \"Größe\"\n JOIN new.g x(a, b) USING (a)"
        );
        assert_eq!(
            over(
                "WITH c AS (SELECT 1 FROM ONLY public.\"Größe\") SELECT (SELECT count(*) FROM public.\"Größe\" AS g) FROM c, \"Größe\""
            ),
            "WITH c AS (SELECT 1 FROM ONLY new.g AS \"Größe\") SELECT (SELECT count(*) FROM new.g) FROM c, \"Größe\""
        );
    }
}
