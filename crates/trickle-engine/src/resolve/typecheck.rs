//! Asks the server whether a plan takes the types of its expressions for what they are.

use super::{OutputColumn, Place};
use crate::db::{Connection, Row, Transaction};
use crate::drive::put_in_force;
use crate::error::{Error, Result};
use crate::registry::StoredSetting;
use trickle_core::apply::StoredColumn;
use trickle_core::refresh::Setting;
use trickle_core::sql::Ident;
use trickle_core::stream_table::StreamTable;
use trickle_core::typecheck::TypeCheck;
use trickle_core::{Cause, Reason, ReasonKind};

/// The greatest number of columns of the result in one check. A view has at most 1,600 columns.
const PAIRS: usize = 500;

/// The name of the view of a check.
const VIEW: &str = "trickle_types";

/// The pairs of columns of the view `$1` whose types differ: the number of the pair, from 0, and the two types.
///
/// Columns of a domain, or of an array of a domain, count as columns of the type that the domain is over, since a plan
/// computes with that type. Of the modifiers, only those that the plan expects count.
const DIFFERENT: &str = "
WITH RECURSIVE base(place, type, modifier, collated, depth) AS (
    SELECT attnum, atttypid, atttypmod, attcollation, 0 FROM pg_attribute WHERE attrelid = $1 AND attnum > 0
    UNION ALL
    SELECT b.place, n.type, n.modifier, b.collated, b.depth + 1 FROM base b JOIN pg_type t ON t.oid = b.type CROSS JOIN LATERAL (
        SELECT t.typbasetype, t.typtypmod WHERE t.typtype = 'd'
        UNION ALL SELECT s.typarray, e.typtypmod FROM pg_type e JOIN pg_type s ON s.oid = e.typbasetype
        WHERE e.oid = t.typelem AND e.typtype = 'd' AND t.typcategory = 'A' AND s.typarray <> 0
    ) n(type, modifier)
), shown AS (
    SELECT DISTINCT ON (b.place) b.*, format_type(b.type, b.modifier) || coalesce(' COLLATE ' || nullif(b.collated, 0)::regcollation, '') AS name
    FROM base b ORDER BY b.place, b.depth DESC
)
SELECT (computed.place - 1) / 2, computed.name, expected.name FROM shown computed
JOIN shown expected ON expected.place = computed.place + 1
WHERE computed.place % 2 = 1 AND (computed.type <> expected.type OR computed.collated <> expected.collated
    OR expected.modifier <> -1 AND computed.modifier <> expected.modifier) ORDER BY 1";

/// Returns the reasons why a query is recomputed whose plan takes a type for another one. The types of the plan's
/// result are compared with `columns`, too.
///
/// # Errors
/// Those of the connection.
pub(crate) async fn mistaken(
    db: &mut dyn Connection,
    table: &StreamTable,
    columns: &[OutputColumn],
    settings: &[StoredSetting],
) -> Result<Vec<Reason>> {
    let mut checks = table.type_checks()?;
    checks.extend(results(table, columns));
    let settings: Vec<Setting> =
        settings.iter().map(|s| Setting { name: s.name.clone(), values: s.values.clone() }).collect();
    let doing = |e| Error::server("ask for the types of the query's expressions", e);
    let transaction = db.transaction().await.map_err(doing)?;
    let place = Place::of(&transaction).await.map_err(doing)?;
    put_in_force(&transaction, &settings).await.map_err(doing)?;
    let mut reasons = Vec::new();
    for check in &checks {
        match differences(&transaction, &place, check).await? {
            Ok(found) => reasons.extend(found),
            // The transaction takes no further statement after an error.
            Err(unread) => {
                reasons.push(unread);
                break;
            }
        }
    }
    transaction.rollback().await.map_err(doing)?;
    Ok(reasons)
}

/// Returns the checks of the columns of the result.
fn results(table: &StreamTable, columns: &[OutputColumn]) -> Vec<TypeCheck> {
    let pairs: Vec<_> = columns.iter().zip(&table.layout().result.columns).collect();
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
    pairs.chunks(PAIRS).map(check).collect()
}

/// Returns a reason for each difference. Where the server does not accept the query of the check, the inner result is
/// the reason of that.
async fn differences(
    t: &Transaction<'_>,
    place: &Place,
    check: &TypeCheck,
) -> Result<std::result::Result<Vec<Reason>, Reason>> {
    let doing = |e| Error::server("ask for the types of the query's expressions", e);
    let name = place.of_name(VIEW);
    if let Err(refusal) = t.execute(&format!("{}{}", place.create(VIEW), check.query), &[]).await {
        let reason = unread(&refusal.message);
        let e = doing(refusal);
        return if e.is_connection() { Err(e) } else { Ok(Err(reason)) };
    }
    let view: u32 = t.query_one("SELECT to_regclass($1)::oid", &[&name]).await.map_err(doing)?.get(0);
    let rows = t.query(DIFFERENT, &[&view]).await.map_err(doing)?;
    t.batch_execute(&format!("DROP VIEW {name}")).await.map_err(doing)?;
    let reason = |r: &Row| {
        let value = usize::try_from(r.get::<i32>(0)).ok().and_then(|pair| check.values.get(pair));
        reason(value.map_or("an expression", String::as_str), r.get(1), r.get(2))
    };
    Ok(Ok(rows.iter().map(reason).collect()))
}

fn reason(value: &str, computed: &str, expected: &str) -> Reason {
    Reason {
        span: None,
        kind: ReasonKind::NotYet,
        cause: Cause::Construct,
        construct: format!("{value} of the type {computed}"),
        help: format!("The engine takes its type for {expected}."),
    }
}

/// The reason that the server does not accept what the engine made of an expression.
fn unread(message: &str) -> Reason {
    Reason {
        span: None,
        kind: ReasonKind::NotYet,
        cause: Cause::Construct,
        construct: format!("an expression that PostgreSQL reads otherwise than the engine ({message})"),
        help: "Written otherwise it may be read alike.".to_owned(),
    }
}
