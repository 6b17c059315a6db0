//! Operators, functions with polymorphic parameters, fields of composite types, and collations. The server
//! must describe them where the engine knows a type by its name only.

use super::types::{Types, spelled};
use super::{Name, Wanted};
use crate::db::{Connection, Row};
use crate::error::{Error, Result};
use std::sync::Arc;
use trickle_core::catalog::{Collation, FuncKind, FuncSig, Volatility, reads_settings_alone};
use trickle_core::types::Type;

/// Operators that take arguments of these types, and functions with a pseudo-type among their parameters that
/// take such arguments; the nearest come first. A parameter is nearest if it has the argument's own type.
/// Then come a pseudo-type for arguments of that sort, a type that the argument is binary-coercible to, and a
/// pseudo-type for any argument.
///
/// A result whose declared type is a pseudo-type gets the type of the first argument whose parameter has the
/// same pseudo-type. If there is no such argument, the result gets a type that belongs to a range or an array
/// among the arguments.
///
/// An operator without a schema is the server's own, since the canonical text names the schema of every other
/// operator. Somebody may since have made an operator that fits better. A function without a schema is also
/// one of the server's own. If the server has no function of that name, the function is looked for in the
/// search path of the connection.
const CALLS: &str = "
WITH arg AS (
    SELECT a.at, t.oid, t.typtype, t.typcategory = 'A' AND t.typlen = -1 AS is_array
    FROM unnest($3::text[]) WITH ORDINALITY a(name, at) JOIN pg_type t ON t.oid = to_regtype(a.name)
), candidate AS (
    SELECT p.oid, p.proargtypes, n.nspname, p.prorettype, p.provolatile, p.proisstrict, p.prokind
    FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE $1 AND o.oprname = $2 AND n.nspname = coalesce($4, 'pg_catalog')
    UNION ALL
    SELECT p.oid, p.proargtypes, n.nspname, p.prorettype, p.provolatile, p.proisstrict, p.prokind
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace LEFT JOIN pg_aggregate a ON a.aggfnoid = p.oid
    WHERE NOT $1 AND p.proname = $2 AND (n.nspname = $4 OR $4::text IS NULL AND (n.nspname = 'pg_catalog' OR pg_function_is_visible(p.oid)
            AND NOT EXISTS (SELECT FROM pg_proc b WHERE b.proname = $2 AND b.pronamespace = 'pg_catalog'::regnamespace)))
        AND (p.prokind = 'f' OR a.aggkind = 'n') AND NOT p.proretset AND p.provariadic = 0
        AND EXISTS (SELECT FROM unnest(p.proargtypes) a(oid) JOIN pg_type t ON t.oid = a.oid WHERE t.typtype = 'p')
), fits AS (
    SELECT c.*, s.score FROM candidate c CROSS JOIN LATERAL (
        SELECT count(*) AS args, count(m.score) AS taken, sum(m.score) AS score
        FROM unnest(c.proargtypes) WITH ORDINALITY d(oid, at) LEFT JOIN arg a ON a.at = d.at CROSS JOIN LATERAL (
            SELECT CASE
                WHEN d.oid = a.oid THEN 4
                WHEN d.oid = 'anyrange'::regtype AND a.typtype = 'r' OR d.oid = 'anymultirange'::regtype AND a.typtype = 'm'
                    OR d.oid = 'anyenum'::regtype AND a.typtype = 'e' OR d.oid = 'record'::regtype AND a.typtype = 'c'
                    OR d.oid IN ('anyarray'::regtype, 'anycompatiblearray'::regtype) AND a.is_array THEN 3
                WHEN EXISTS (SELECT FROM pg_cast k WHERE k.castsource = a.oid AND k.casttarget = d.oid
                    AND k.castmethod = 'b' AND k.castcontext = 'i') THEN 2
                WHEN d.oid IN ('anyelement'::regtype, 'anycompatible'::regtype, 'pg_catalog.\"any\"'::regtype) AND a.oid IS NOT NULL THEN 1
            END AS score
        ) m
    ) s WHERE s.args = cardinality($3) AND s.taken = s.args
)
SELECT f.nspname, f.provolatile::text, f.proisstrict, f.score, coalesce(p.oid, e.oid, m.oid, f.prorettype), f.prokind::text FROM fits f
LEFT JOIN LATERAL (
    SELECT a.oid FROM arg a JOIN unnest(f.proargtypes) WITH ORDINALITY d(oid, at) ON d.at = a.at
    WHERE f.prorettype = d.oid AND (SELECT t.typtype FROM pg_type t WHERE t.oid = d.oid) = 'p' ORDER BY a.at LIMIT 1
) p ON true
LEFT JOIN LATERAL (
    SELECT CASE f.prorettype WHEN 'anyrange'::regtype THEN r.rngtypid WHEN 'anymultirange'::regtype THEN r.rngmultitypid
        ELSE r.rngsubtype END AS oid
    FROM arg a JOIN pg_range r ON a.oid IN (r.rngtypid, r.rngmultitypid)
    WHERE f.prorettype IN ('anyelement'::regtype, 'anyrange'::regtype, 'anymultirange'::regtype) ORDER BY a.at LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT CASE WHEN a.is_array THEN t.typelem ELSE t.typarray END AS oid
    FROM arg a JOIN unnest(f.proargtypes) WITH ORDINALITY d(oid, at) ON d.at = a.at JOIN pg_type t ON t.oid = a.oid
    WHERE f.prorettype IN ('anyarray'::regtype, 'anycompatiblearray'::regtype) AND d.oid IN ('anyelement'::regtype, 'anycompatible'::regtype)
        OR f.prorettype IN ('anyelement'::regtype, 'anycompatible'::regtype) AND d.oid IN ('anyarray'::regtype, 'anycompatiblearray'::regtype)
    ORDER BY a.at LIMIT 1
) m ON true
ORDER BY f.score DESC, f.oid";

const FIELDS: &str = "
SELECT a.attname, a.atttypid, {spelled} FROM pg_type t
JOIN pg_attribute a ON a.attrelid = t.typrelid
WHERE t.oid = to_regtype($1) AND t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

const COLLATION: &str = "
SELECT CASE n.nspname WHEN 'pg_catalog' THEN quote_ident(c.collname) ELSE pg_catalog.format('%I.%I', n.nspname, c.collname) END,
    c.collisdeterministic
FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE c.collname = $2 AND (n.nspname = $1 OR $1::text IS NULL AND (n.nspname = 'pg_catalog' OR pg_collation_is_visible(c.oid)
    AND NOT EXISTS (SELECT FROM pg_collation b WHERE b.collname = $2 AND b.collnamespace = 'pg_catalog'::regnamespace)))
ORDER BY c.collencoding DESC LIMIT 1";

/// A call, by the name of the function or operator and the types of its arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    pub(super) operator: bool,
    pub(super) name: Name,
    pub(super) args: Vec<Type>,
}

impl Call {
    /// Returns the call as a question to the server; `None` where the type of an argument is not known yet.
    pub(super) fn wanted(self) -> Option<Wanted> {
        let open = |t: &Type| matches!(t, Type::Unknown | Type::Record(_));
        (!self.args.iter().any(open)).then_some(Wanted::Call(self))
    }
}

/// Returns the function that PostgreSQL means by a call; `None` where this cannot be decided with certainty.
/// PostgreSQL accepted the text, so the call means the candidate that fits best.
pub(super) async fn call(
    db: &dyn Connection,
    types: &mut Types,
    call: &Call,
) -> Result<Option<Arc<FuncSig>>> {
    let doing = |e| Error::server(format!("look for \"{}\"", call.name.1), e);
    let names: Vec<String> = call.args.iter().map(|t| t.uncollated().sql_name()).collect();
    let rows = db.query(CALLS, &[&call.operator, &call.name.1, &names, &call.name.0]).await;
    let rows = rows.map_err(doing)?;
    let score = |i: usize| rows.get(i).map(|r| r.get::<i64>(3));
    let Some(best) = rows.first().filter(|_| score(0) != score(1)) else { return Ok(None) };
    types.load(db, [best.get(4)]).await?;
    let Some(ret) = types.by_oid(best.get(4)) else { return Ok(None) };
    let schema: String = best.get(0);
    let volatility = Volatility::parse(best.get(1))?;
    let builtin = schema == "pg_catalog";
    // The signature of an operator has the schema even where it is `pg_catalog`. The engine recognizes by the
    // schema that the operator is not one of its own.
    let schema = (call.operator || !builtin).then(|| Arc::from(schema.as_str()));
    let sig = FuncSig {
        schema,
        name: Arc::from(call.name.1.as_str()),
        kind: if call.operator { FuncKind::Operator } else { super::functions::kind(best.get(5), false)? },
        args: call.args.clone(),
        ret,
        columns: Vec::new(),
        form: Vec::new(),
        volatility,
        strict: best.get(2),
        never_null: false,
        raises: true,
    };
    // Any other operator that is not immutable stays unknown, so that no plan contains it. A query with a
    // volatile operator is refused by `Resolved::refusal`.
    let is_kept = volatility == Volatility::Immutable || reads_settings_alone(&sig);
    Ok((is_kept || !call.operator).then(|| Arc::new(sig)))
}

/// Reads the fields of a composite type.
pub(super) async fn fields(
    db: &dyn Connection,
    types: &mut Types,
    ty: &str,
) -> Result<Option<Vec<(Arc<str>, Type)>>> {
    let doing = |e| Error::server(format!("read the fields of type {ty}"), e);
    let text = FIELDS.replace("{spelled}", &spelled("a.atttypid", "a.atttypmod"));
    let rows = db.query(&text, &[&ty]).await.map_err(doing)?;
    types.load_columns(db, rows.iter().map(|r| (r.get(1), r.get(2)))).await?;
    let field = |r: &Row| (Arc::from(r.get::<&str>(0)), types.column(r.get(1), r.get::<&str>(2)));
    Ok((!rows.is_empty()).then(|| rows.iter().map(field).collect()))
}

/// Reads a collation by name.
pub(super) async fn collation(db: &dyn Connection, name: &Name) -> Result<Option<Collation>> {
    let doing = |e| Error::server(format!("look for collation \"{}\"", name.1), e);
    let row = db.query_opt(COLLATION, &[&name.0, &name.1]).await.map_err(doing)?;
    Ok(row.map(|r| Collation { sql_name: r.get(0), deterministic: r.get(1) }))
}
