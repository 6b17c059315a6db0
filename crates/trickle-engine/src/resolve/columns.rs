//! The columns of a query's result, or of a table.

use super::READING;
use crate::db::{Row, Transaction};
use crate::error::{Error, Result};

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

/// The types of the columns of the view `$1`. A domain, or an array of a domain, is followed by the type that
/// the domain is over.
pub(super) const BASES: &str = "
WITH RECURSIVE base(place, type, modifier, collated, depth) AS (
    SELECT attnum, atttypid, atttypmod, attcollation, 0 FROM pg_attribute WHERE attrelid = $1 AND attnum > 0
    UNION ALL
    SELECT b.place, n.type, n.modifier, b.collated, b.depth + 1 FROM base b JOIN pg_type t ON t.oid = b.type CROSS JOIN LATERAL (
        SELECT t.typbasetype, t.typtypmod WHERE t.typtype = 'd'
        UNION ALL SELECT s.typarray, e.typtypmod FROM pg_type e JOIN pg_type s ON s.oid = e.typbasetype
        WHERE e.oid = t.typelem AND e.typtype = 'd' AND t.typcategory = 'A' AND s.typarray <> 0
    ) n(type, modifier)
)";

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

/// Returns the columns of a view.
pub(super) async fn of_view(t: &Transaction<'_>, view: u32) -> Result<Vec<OutputColumn>> {
    let columns = t.query(&columns_text(), &[&view]).await.map_err(|e| Error::server(READING, e))?;
    let column = |c: &Row| OutputColumn { base: c.get(2), ..OutputColumn::new(c.get(0), c.get(1)) };
    Ok(columns.iter().map(column).collect())
}
