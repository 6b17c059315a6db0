//! Finds users' objects that a plan would take for PostgreSQL's own, or whose properties PostgreSQL's catalog
//! does not show in full.
//!
//! The canonical text of a query names an operator, a function or a cast in a few words. The text leaves out
//! the operator of IN, of NULLIF or of a simple CASE, and each cast that the types decide. The engine fills
//! these gaps from tables of its own. So a query that uses one of these objects is recomputed.

use crate::catalog::DEPENDENCIES;
use crate::db::Transaction;
use crate::error::{Error, Result};
use trickle_core::catalog::Volatility;
use trickle_core::{Cause, Reason, ReasonKind};

/// The users' objects in the view `$1` that this module looks for: for each object its kind, its name, and
/// the volatility of the function behind it.
///
/// - An operator counts if PostgreSQL has an operator of that name for the same types. It also counts if
///   PostgreSQL has one for types that these are binary-coercible to, or for any enum, array or range. A
///   comparison that belongs to no default operator class counts too. An operator in the default class of a
///   user's type, such as citext, does not count.
/// - A cast that belongs to an extension does not count. Any other cast counts if it is between types of
///   PostgreSQL's own, or if its function is not immutable.
/// - A function counts under two conditions. Its schema has another function of the same name with as many
///   parameters. A parameter of one of the two functions has a domain as its type.
/// - An aggregate counts if a function behind it is not immutable. `pg_proc` calls each aggregate immutable,
///   whatever these functions are.
const LOOKALIKES: &str = ", called AS (
    SELECT * FROM pg_proc WHERE oid >= 16384 AND oid IN (SELECT object FROM reads WHERE class = 'pg_proc'::regclass)
), meant AS (
    SELECT * FROM pg_operator WHERE oid >= 16384 AND oid IN (SELECT object FROM reads WHERE class = 'pg_operator'::regclass)
), operand AS (
    SELECT t.* FROM pg_type t WHERE t.oid IN (SELECT unnest(ARRAY[oprleft, oprright]) FROM meant)
), stored AS (
    SELECT t.oid AS type, t.oid AS counts_as FROM operand t
    UNION ALL SELECT t.oid, t.typbasetype FROM operand t WHERE t.typtype = 'd'
    UNION ALL SELECT t.oid, CASE t.typtype WHEN 'e' THEN 'anyenum'::regtype WHEN 'r' THEN 'anyrange'::regtype
        WHEN 'm' THEN 'anymultirange'::regtype END FROM operand t WHERE t.typtype IN ('e', 'r', 'm')
    UNION ALL SELECT t.oid, a.like_it FROM operand t, (VALUES ('anyarray'::regtype), ('anycompatiblearray')) a (like_it)
    WHERE t.typcategory = 'A'
    UNION ALL SELECT t.oid, c.casttarget FROM operand t JOIN pg_cast c ON c.castsource = t.oid
    WHERE c.castmethod = 'b' AND c.castcontext = 'i'
), known AS (
    SELECT o.oid FROM meant o JOIN pg_operator s ON s.oprname = o.oprname AND s.oid < 16384
    WHERE (o.oprleft = s.oprleft OR EXISTS (SELECT FROM stored x JOIN pg_type t ON t.oid = x.type
            WHERE x.type = o.oprleft AND x.counts_as = s.oprleft AND (t.oid < 16384 OR t.typtype <> 'b' OR t.typcategory = 'A')))
        AND (o.oprright = s.oprright OR EXISTS (SELECT FROM stored x JOIN pg_type t ON t.oid = x.type
            WHERE x.type = o.oprright AND x.counts_as = s.oprright AND (t.oid < 16384 OR t.typtype <> 'b' OR t.typcategory = 'A')))
), of_class AS (
    SELECT m.oid FROM meant m WHERE EXISTS (SELECT FROM pg_amop a JOIN pg_opclass c ON c.opcfamily = a.amopfamily
        WHERE a.amopopr IN (m.oid, nullif(m.oprnegate, 0)) AND c.opcdefault AND c.opcintype >= 16384)
), behind AS (
    SELECT c.oid, f.provolatile FROM called c JOIN pg_aggregate a ON a.aggfnoid = c.oid
    JOIN pg_proc f ON f.oid IN (a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn, a.aggmtransfn,
        a.aggminvtransfn, a.aggmfinalfn)
)
SELECT 'operator' AS kind, o.oid::regoperator::text AS name, 'i' AS volatility FROM meant o
WHERE o.oid NOT IN (SELECT oid FROM of_class)
    AND (o.oid IN (SELECT oid FROM known) OR o.oprname IN ('=', '<>', '<', '<=', '>', '>='))
UNION SELECT 'cast', pg_catalog.format('%s AS %s', c.castsource::regtype, c.casttarget::regtype), f.provolatile::text
FROM called f JOIN pg_cast c ON c.castfunc = f.oid
WHERE NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_cast'::regclass AND d.objid = c.oid AND d.deptype = 'e')
    AND (f.provolatile <> 'i' OR c.castsource < 16384 AND c.casttarget < 16384)
UNION SELECT 'function', f.oid::regprocedure::text, 'i' FROM called f
WHERE EXISTS (SELECT FROM pg_proc g, unnest(f.proargtypes::oid[] || g.proargtypes::oid[]) a (type) JOIN pg_type t ON t.oid = a.type
    WHERE g.proname = f.proname AND g.pronamespace = f.pronamespace AND g.oid <> f.oid AND g.pronargs = f.pronargs AND t.typtype = 'd')
UNION SELECT 'aggregate', b.oid::regprocedure::text, max(b.provolatile::text) FROM behind b GROUP BY b.oid
HAVING max(b.provolatile::text) <> 'i' ORDER BY 1, 2";

/// Returns the reasons why the query of a view is recomputed, one for each object that [`LOOKALIKES`] finds.
///
/// # Errors
/// Errors of the server.
pub(super) async fn reasons(t: &Transaction<'_>, view: u32) -> Result<Vec<Reason>> {
    let rows = t.query(&format!("{DEPENDENCIES}{LOOKALIKES}"), &[&view]).await;
    let rows = rows.map_err(|e| Error::server("read what the query depends on", e))?;
    rows.iter().map(|r| Ok(reason(r.get(0), r.get(1), Volatility::parse(r.get(2))?))).collect()
}

fn reason(object: &str, name: &str, volatility: Volatility) -> Reason {
    const MARK: &str = "Mark the function behind it IMMUTABLE if it is.";
    let (kind, cause, how, help) = match volatility {
        Volatility::Volatile => (ReasonKind::Never, Cause::Volatile, "volatile ", MARK),
        Volatility::Stable => (ReasonKind::NotYet, Cause::Surroundings, "stable ", MARK),
        Volatility::Immutable => (
            ReasonKind::NotYet,
            Cause::Construct,
            "",
            "PostgreSQL has one like it, and its text of the query does not tell them apart. Another name would.",
        ),
    };
    Reason { span: None, kind, cause, construct: format!("the {how}{object} {name}"), help: help.to_owned() }
}

/// Returns the reason why a query is recomputed that reads the view `view`, whose text loses names of fields
/// ([`UnnamedRow`](super::reads::UnnamedRow)). Full refreshes read the view itself.
pub(super) fn of_unnamed_row(view: &str) -> Reason {
    Reason {
        span: None,
        kind: ReasonKind::NotYet,
        cause: Cause::Construct,
        construct: format!("the whole row of JOIN … USING (…) AS a name, in the view {view}"),
        help: "PostgreSQL's text of the view leaves out the names of its fields. A subquery in place of the join keeps them."
            .to_owned(),
    }
}
