//! Rewrites a query to read other tables.

use super::names::fold;
use super::{Source, forms, read};
use crate::error::{Error, Result};
use sqlparser::ast::{ObjectName, ObjectNamePart, TableAlias, TableFactor, Visit, Visitor};
use std::ops::ControlFlow;

/// A replacement table: the text by which a query refers to the table, and the table's name without a schema.
pub type Other = (String, String);

/// Returns the query with some tables replaced by others. `now` gets the schema and the name of a table, with
/// case folded as by PostgreSQL, and returns the replacement of this table. The names of columns must keep
/// their meaning. If the replacement has another name, a table without an alias therefore gets its old name
/// as the alias. An alias that equals the replacement's name is left out. The rest of the text is unchanged.
///
/// # Errors
/// Fails with a syntax error, or if the parser crate did not store the position of a name.
pub fn over_other_tables(
    sql: &str,
    mut now: impl FnMut(Option<&str>, &str) -> Option<Other>,
) -> Result<String> {
    let (mut edits, ..) = read(sql, |query, source| {
        let mut found = Tables { now: &mut now, source, edits: Vec::new(), lost: false };
        let _ = query.visit(&mut found);
        match found.lost {
            true => Err(Error::internal("the place of a table in a query is not known")),
            false => Ok(found.edits),
        }
    })?;
    edits.sort_unstable_by_key(|e| std::cmp::Reverse(e.0));
    let mut text = sql.to_owned();
    for (start, end, name) in edits {
        text.replace_range(start..end, &name);
    }
    Ok(text)
}

struct Tables<'a> {
    now: &'a mut dyn FnMut(Option<&str>, &str) -> Option<Other>,
    source: &'a Source,
    edits: Vec<(usize, usize, String)>,
    lost: bool,
}

impl Tables<'_> {
    fn replace(&mut self, name: &ObjectName, alias: Option<&TableAlias>) {
        let parts = name.0.iter().filter(|p| !forms::is_mark(p)).filter_map(ObjectNamePart::as_ident);
        let parts: Vec<_> = parts.collect();
        let Some((last, schema)) = parts.split_last() else { return };
        let own = fold(last);
        let schema_name = schema.last().map(|s| fold(s));
        let Some((mut text, other)) = (self.now)(schema_name.as_deref(), &own) else { return };
        let needless = alias.filter(|a| a.columns.is_empty() && fold(&a.name) == other);
        let places = (self.source.span(schema.first().unwrap_or(last).span), self.source.span(last.span));
        let end = needless.map_or(places.1, |a| self.source.span(a.name.span));
        let ((Some(first), Some(last)), Some(end)) = (places, end) else {
            self.lost = true;
            return;
        };
        if alias.is_none() && other != own {
            text.push_str(" AS ");
            text.extend(self.source.text().get(last.start..last.end));
        }
        self.edits.push((first.start, end.end, text));
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
            (schema == Some("public") && name == "Größe").then(|| ("new.g".to_owned(), "g".to_owned()))
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
