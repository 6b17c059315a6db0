//! Compares the stored rows of a stream table with the result of its query.

use crate::catalog::{PgCatalog, spelled};
use crate::db::{Connection, RefreshDriver};
use crate::drive::{Watch, drive};
use crate::error::{Error, Result};
use crate::in_force::put_in_force;
use crate::registry::{Entry, require_own, shown};
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::pin::Pin;
use trickle_core::graph::Unsettled;
use trickle_core::refresh::{Kind, Setting, Statement};
use trickle_core::sql::{Ident, image_of};
use trickle_core::stream_table::StreamTable;
use trickle_core::types::Type;
use trickle_core::vocabulary::{Activity, Initiator};

/// A row that is stored more often or less often than the query returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of times that the row is stored.
    pub stored: i64,
    /// The number of times that the query returns the row.
    pub expected: i64,
    /// The row, as PostgreSQL prints a record.
    pub row: String,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// `schema.name`, quoted where needed.
    pub name: String,
    /// The number of rows stored.
    pub rows: i64,
    /// The number of rows that differ, each counted as often as it is missing or superfluous.
    pub different: i64,
    /// The number of rows that are equal except for the rounding of sums of floats.
    pub rounded: i64,
    /// The first rows that differ.
    pub differences: Vec<Difference>,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Brings a stream table up to date. In the same snapshot, compares its stored rows with the result of
    /// its query, as bags over all columns. The result lists at most `show` rows that differ. Other sessions
    /// can write during the check.
    ///
    /// Values must be equal. Their images must also be equal wherever the query decides the image. There are
    /// two exceptions. Sums of floats may differ by the fraction [`ROUNDING`] of themselves. Each addition
    /// is rounded, so the last digits depend on the order in which the server reads rows. Lists that the
    /// query aggregates in any order, by `array_agg(x)` without a total ORDER BY, are compared by their
    /// parts. The parts are the elements of arrays, and the characters of texts.
    ///
    /// # Errors
    /// The errors of a refresh; errors of the query itself.
    pub async fn check(&mut self, e: &Entry, show: usize) -> Result<Checked> {
        require_own(e, self.voice())?;
        let registry = self.adapt(&[e.relation.id], Initiator::Manual).await?.registry;
        let e = registry.get(e.id).unwrap_or(e);
        let group: Vec<Entry> = registry.with_upstream([e.relation.id])?.into_iter().cloned().collect();
        self.heal(&group).await?;
        let plan = self.plan(&group, &RefreshOptions::default()).await?;
        let runnable = self.runnable(e).await?;
        let table = runnable.table.as_deref();
        let text = comparison(self.db(), e, table, show).await?;
        let name = shown(e);
        let mut compare = Compare { db: self.db(), settings: &e.in_force, text, name: &name, found: None };
        let looking = self.onlooker(format!("checking {name}"), None);
        let failure = looking.during(drive(&self.connection, plan, Some(&mut compare))).await.err();
        let found = compare.found.take();
        let again = self.suspend_again(&group).await;
        let checked = match (failure, found) {
            (None, Some(found)) => found,
            (_, Some(Err(e))) => Err(e),
            (Some(f), _) => {
                let error = Error::from(f);
                let message = format!("cannot refresh {name} to check it: {}", error.message());
                Err(error.saying(message))
            }
            (None, None) => Err(not_compared(&name)),
        }?;
        again.map(|()| checked)
    }

    /// Suspends the stream tables again that errors had suspended before the check. A refresh puts such
    /// stream tables back on schedule, and a check must not.
    async fn suspend_again(&self, group: &[Entry]) -> Result<()> {
        let text = "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', consecutive_errors = $2, last_error_message = $3, \
             updated_at = now() WHERE pgt_id = $1 AND status = 'ACTIVE'";
        for e in group.iter().filter(|e| e.status == Activity::Suspended) {
            let again = self.db().execute(text, &[&e.id, &e.consecutive_errors, &e.last_error]).await;
            again.map_err(|err| Error::server(format!("leave {} suspended", shown(e)), err))?;
        }
        Ok(())
    }
}

fn not_compared(name: &str) -> Error {
    Error::input(format!("{name} was not compared"))
}

/// Compares just before the refresh commits. The comparison runs in the snapshot of the refresh, and sees
/// the rows that the refresh wrote.
struct Compare<'c> {
    db: &'c dyn Connection,
    settings: &'c [Setting],
    text: String,
    name: &'c str,
    found: Option<Result<Checked>>,
}

impl Watch for Compare<'_> {
    fn before<'s>(&'s mut self, statement: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            if statement.kind == Kind::Commit && self.found.is_none() {
                let found = self.compare().await;
                self.found = Some(found);
            }
            Ok(())
        })
    }
}

impl Compare<'_> {
    async fn compare(&self) -> Result<Checked> {
        let fail = |err| Error::server(format!("check {}", self.name), err);
        put_in_force(self.db, self.settings).await.map_err(fail)?;
        let rows = self.db.written(&self.text).await.map_err(fail)?;
        let (mut counts, mut differences) = (None, Vec::new());
        for r in &rows {
            let text = |i: usize| r.get(i).and_then(Option::as_deref);
            let int = |i: usize| text(i).and_then(|v| v.parse::<i64>().ok());
            counts = int(0).zip(int(1)).zip(int(2));
            if let (Some(stored), Some(expected), Some(row)) = (int(3), int(4), text(5)) {
                differences.push(Difference { stored, expected, row: row.to_owned() });
            }
        }
        match counts {
            Some(((rows, different), rounded)) => {
                Ok(Checked { name: self.name.to_owned(), rows, different, rounded, differences })
            }
            None => Err(not_compared(self.name)),
        }
    }
}

/// Returns the query that compares the stored rows with the rows of the defining query, grouped by row.
/// Values without equality are compared by their texts. Values with equality are compared by their image
/// too, unless the query leaves open which of several equal values is shown.
///
/// The comparison runs the user's own canonical query instead of the plan, so that it checks the plan too.
/// The exception is a query that computes further with values that it leaves open. Examples are the text of a
/// group's key, or the first rows of an order with ties. Such a query may return other rows than a refresh,
/// and both are right. So the comparison runs the recompute of the plan instead.
async fn comparison(
    db: &dyn Connection,
    e: &Entry,
    table: Option<&StreamTable>,
    show: usize,
) -> Result<String> {
    let types = stored_types(db, e).await?;
    let aliases: Vec<String> = (0..types.len()).map(|i| format!("c{i}")).collect();
    let list = if aliases.is_empty() { String::new() } else { format!("({})", aliases.join(", ")) };
    let (mut compared, mut grouped) = (vec!["1 AS one".to_owned()], vec!["one".to_owned()]);
    let mut shuffled: Vec<&str> = Vec::new();
    let open = table.map(|t| Unsettled::of(t.graph(), t.query()));
    for (i, (ty, alias)) in types.iter().zip(&aliases).enumerate() {
        compared.push(if ty.is_ordered() { alias.clone() } else { format!("{alias}::text AS {alias}") });
        if open.as_ref().is_some_and(|open| open.shuffled.contains(i)) {
            compared.push(format!("{} AS parts{i}", parts(alias, ty)));
            grouped.push(format!("parts{i}"));
            shuffled.push(alias);
            continue;
        }
        grouped.push(alias.clone());
        let settled =
            open.as_ref().is_some_and(|open| !open.columns().contains(i) && !open.rounded.contains(i));
        if let Some(image) = image_of(Ident::new(alias), ty).filter(|_| settled && ty.is_ordered()) {
            compared.push(format!("{image} AS i{i}"));
            grouped.push(format!("i{i}"));
        }
    }
    let (compared, row) = (compared.join(", "), aliases.join(", "));
    let query = match (table, open.as_ref().is_none_or(Unsettled::is_settled_by_value)) {
        (Some(table), false) => table.recomputed()?.to_string(),
        _ => e.query.trim_end().trim_end_matches(';').to_owned(),
    };
    let name = shown(e);
    let rounded: Vec<&str> = match &open {
        Some(open) => open.rounded.iter().filter_map(|i| aliases.get(i).map(String::as_str)).collect(),
        None => Vec::new(),
    };
    let settled: Vec<&str> = grouped.iter().map(String::as_str).filter(|c| !rounded.contains(c)).collect();
    let one_of: String = shuffled.iter().map(|c| format!(", min({c}::text) AS {c}")).collect();
    let all: String = shuffled.iter().map(|c| format!(", {c}")).collect();
    Ok(format!(
        "WITH exact AS (\
         SELECT {grouped}{one_of}, sum(s)::int8 AS stored, sum(q)::int8 AS expected FROM (\
         SELECT {compared}, 1 AS s, 0 AS q FROM {name} AS stored{list} \
         UNION ALL SELECT {compared}, 0, 1 FROM (\n{query}\n) AS query{list}) both_bags \
         GROUP BY {grouped} HAVING sum(s) <> sum(q)), {}, d AS MATERIALIZED (\
         SELECT ROW({row})::text AS r, sum(stored) AS stored, sum(expected) AS expected FROM judged WHERE far GROUP BY {grouped}{all}) \
         SELECT (SELECT count(*) FROM {name}), (SELECT coalesce(sum(abs(stored - expected)), 0) FROM d)::int8, \
         (SELECT count(*) / 2 FROM judged WHERE NOT far), \
         d.stored::int8, d.expected::int8, d.r FROM (SELECT 1) always LEFT JOIN d ON true ORDER BY d.r LIMIT {}",
        judged(&settled, &rounded, &all),
        show.max(1),
        grouped = grouped.join(", "),
    ))
}

/// Returns the types of the columns of a stored table.
async fn stored_types(db: &dyn Connection, e: &Entry) -> Result<Vec<Type>> {
    let text = format!(
        "SELECT atttypid, {} FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        spelled("atttypid", "atttypmod")
    );
    let columns = db.query(&text, &[&e.relation.id.0]).await;
    let columns = columns.map_err(|err| Error::server("read the columns of a stream table", err))?;
    let named: Vec<(u32, &str)> = columns.iter().map(|c| (c.get(0), c.get(1))).collect();
    PgCatalog::under(e.path()).column_types(db, &named).await
}

/// Returns an expression for the parts of a list without their order: the elements of an array, or the
/// characters of a text.
fn parts(list: &str, ty: &Type) -> String {
    match ty.element() {
        Some(_) => format!("(SELECT array_agg(x::text ORDER BY x::text) FROM unnest({list}) AS x)::text"),
        None => format!(
            "(SELECT string_agg(x, '' ORDER BY x COLLATE \"C\") FROM regexp_split_to_table({list}::text, '') AS x)"
        ),
    }
}

/// The greatest allowed difference of two sums of floats, as a fraction of the sums. Even the sum of all
/// values of a huge table is more exact than this. The exception is a sum that is far smaller than the values
/// in it, because these values cancelled each other.
pub const ROUNDING: f64 = 1e-9;

/// Returns the relation `judged`, which has the rows of `exact`. The flag `far` says that a row has no
/// partner whose floats are near its own. Rows with equal `settled` columns are paired in the order of their
/// `rounded` columns, each stored row with one row of the query. The columns `more` are added.
fn judged(settled: &[&str], rounded: &[&str], more: &str) -> String {
    if rounded.is_empty() {
        return "judged AS MATERIALIZED (SELECT *, true AS far FROM exact)".to_owned();
    }
    let (settled, order) = (settled.join(", "), rounded.join(", "));
    // Differences are computed as numerics, which do not overflow, and in which an infinity equals itself.
    let near = rounded.iter().map(|c| {
        let [high, low] = ["max", "min"].map(|f| format!("{f}({c}::numeric) OVER pair"));
        format!(
            "(count({c}) OVER pair = 0 OR count({c}) OVER pair = 2 AND ({high} = {low} \
             OR {high} - {low} <= {ROUNDING} * greatest(abs({high}), abs({low}))))"
        )
    });
    let near: Vec<String> = near.collect();
    format!(
        "copies AS (SELECT exact.*, row_number() OVER (PARTITION BY {settled}, stored > expected ORDER BY {order}) AS copy \
         FROM exact, generate_series(1, abs(stored - expected))), \
         judged AS MATERIALIZED (SELECT {settled}, {order}{more}, (stored > expected)::int AS stored, (stored < expected)::int AS expected, \
         NOT (count(*) OVER pair = 2 AND {}) AS far FROM copies WINDOW pair AS (PARTITION BY {settled}, copy))",
        near.join(" AND ")
    )
}
