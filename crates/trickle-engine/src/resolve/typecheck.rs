//! Compares the types that a plan expects with the types that the server derives.

use super::columns::{BASES, OutputColumn};
use super::place::Place;
use crate::db::{Connection, Row, ServerError, Transaction};
use crate::error::{Error, Result};
use crate::in_force::{StoredSetting, put_in_force};
use crate::security::SHUT;
use trickle_core::apply::StoredColumn;
use trickle_core::refresh::Setting;
use trickle_core::sql::Ident;
use trickle_core::stream_table::StreamTable;
use trickle_core::typecheck::{PAIRS, TypeCheck};
use trickle_core::{Cause, Reason, ReasonKind};

/// The pairs of columns of the view `$1` whose types differ: the number of the pair, from 0, and the two
/// types.
///
/// A plan computes with the type that a domain is over. So a column of a domain, or of an array of a domain,
/// counts as a column of that type. Only the modifiers that the plan expects count.
const DIFFERENT: &str = ", shown AS (
    SELECT DISTINCT ON (b.place) b.*, format_type(b.type, b.modifier) || coalesce(' COLLATE ' || nullif(b.collated, 0)::regcollation, '') AS name
    FROM base b ORDER BY b.place, b.depth DESC
)
SELECT (computed.place - 1) / 2, computed.name, expected.name FROM shown computed
JOIN shown expected ON expected.place = computed.place + 1
WHERE computed.place % 2 = 1 AND (computed.type <> expected.type OR computed.collated <> expected.collated
    OR expected.modifier <> -1 AND computed.modifier <> expected.modifier) ORDER BY 1";

/// Returns a reason for each type that the plan and the server derive differently. Also compares the plan's
/// result with `columns`. A query for which a reason is returned is recomputed.
///
/// # Errors
/// Errors of the server, except its refusal of an expression of the plan, which is a reason.
pub(crate) async fn type_differences(
    db: &mut dyn Connection,
    table: &StreamTable,
    columns: &[OutputColumn],
    settings: &[StoredSetting],
) -> Result<Vec<Reason>> {
    let mut checks = table.type_checks()?;
    checks.extend(results(table, columns)?);
    let settings: Vec<Setting> =
        settings.iter().map(|s| Setting { name: s.name.clone(), values: s.values.clone() }).collect();
    let transaction = db.transaction().await.map_err(asking)?;
    let found = found(&transaction, &checks, &settings).await;
    transaction.rollback().await.map_err(asking)?;
    found
}

fn asking(refusal: ServerError) -> Error {
    Error::server("ask for the types of the query's expressions", refusal)
}

/// Returns the checks of the columns of the result.
fn results(table: &StreamTable, columns: &[OutputColumn]) -> Result<Vec<TypeCheck>> {
    let stored = &table.layout().result.columns;
    if stored.len() != columns.len() {
        return Err(trickle_core::Error::internal("the plan has not the columns of its query").into());
    }
    let pairs: Vec<_> = columns.iter().zip(stored).collect();
    let check = |part: &[(&OutputColumn, &StoredColumn)]| {
        let pair = |(i, (column, stored)): (usize, &(&OutputColumn, &StoredColumn))| {
            format!(
                "NULL::{} AS c{}, NULL::{} AS c{}",
                column.spelled,
                2 * i,
                stored.ty.unmodified(),
                2 * i + 1
            )
        };
        let pairs: Vec<String> = part.iter().enumerate().map(pair).collect();
        let values = part.iter().map(|(column, _)| format!("column {}", Ident::new(&column.name))).collect();
        TypeCheck { query: format!("SELECT {}", pairs.join(", ")), values }
    };
    Ok(pairs.chunks(PAIRS).map(check).collect())
}

/// Makes a view of each check, under the settings of the query, and compares the columns of the views.
async fn found(t: &Transaction<'_>, checks: &[TypeCheck], settings: &[Setting]) -> Result<Vec<Reason>> {
    let place = Place::of(t).await.map_err(asking)?;
    put_in_force(t, settings).await.map_err(asking)?;
    let mut views: Vec<u32> = Vec::new();
    for (i, check) in checks.iter().enumerate() {
        let view = format!("trickle_types_{i}");
        if let Err(refusal) = t.execute(&format!("{}{}", place.create(&view), check.query), &[]).await {
            // After a refusal, the transaction takes no further statement.
            let begin = place.create(&view).chars().count();
            let reason = refused_check(&refusal, &check.query, begin);
            return reason.map(|reason| vec![reason]).ok_or_else(|| asking(refusal));
        }
        let view = t.query_one("SELECT to_regclass($1)::oid", &[&place.of_name(&view)]).await;
        views.push(view.map_err(asking)?.get(0));
    }
    t.batch_execute(&format!("SET LOCAL search_path = {SHUT}")).await.map_err(asking)?;
    let mut reasons = Vec::new();
    for (view, check) in views.iter().zip(checks) {
        for row in t.query(&format!("{BASES}{DIFFERENT}"), &[view]).await.map_err(asking)? {
            reasons.push(difference(check, &row)?);
        }
    }
    Ok(reasons)
}

fn difference(check: &TypeCheck, row: &Row) -> Result<Reason> {
    let pair = usize::try_from(row.get::<i32>(0)).ok();
    let value = pair.and_then(|pair| check.values.get(pair));
    let value =
        value.ok_or_else(|| trickle_core::Error::internal("a check of types has a column too many"))?;
    let (computed, expected): (&str, &str) = (row.get(1), row.get(2));
    Ok(Reason {
        span: None,
        kind: ReasonKind::NotYet,
        cause: Cause::Construct,
        construct: format!("{value}, which has the type {computed} in PostgreSQL,"),
        help: format!("The engine expects {expected}. A cast to that may keep the query by deltas."),
    })
}

/// Returns the reason for recomputing a query where the server refuses an expression of its plan. Returns
/// `None` where the refusal comes from the moment, and not from the expression.
fn refused_check(refusal: &ServerError, query: &str, begin: usize) -> Option<Reason> {
    let state = refusal.sqlstate()?;
    let of_expression = state.starts_with("42") || state.starts_with("22") || state == "0A000";
    // The relation exists already; the role lacks a privilege.
    let of_moment = matches!(state, "42P07" | "42501");
    // The position counts characters of the statement from 1, and the query begins after `begin` of them.
    let place = refusal.position().and_then(|position| position.checked_sub(begin + 1));
    let text: String = place.map(|place| query.chars().skip(place).take(40).collect()).unwrap_or_default();
    let at = if text.is_empty() { String::new() } else { format!(" at \"{} …\"", text.replace('\n', " ")) };
    (of_expression && !of_moment).then(|| Reason {
        span: None,
        kind: ReasonKind::NotYet,
        cause: Cause::Construct,
        construct: format!("an expression that the engine writes otherwise ({}{at})", refusal.message()),
        help: "Write the expression with explicit casts or COLLATE clauses.".to_owned(),
    })
}
