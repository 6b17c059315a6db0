//! The rights of a stream table's owner, and the effect of these rights on the contents of the stream table.

use crate::catalog::DEPENDENCIES;
use crate::db::{Connection, Row};
use crate::error::{Error, Result};

/// The search path under which trickle's own statements run. These statements name most of the server's
/// operators and functions without a schema. Only superusers can ever create objects in the schemas of this
/// path.
pub const SHUT: &str = "pg_catalog, pg_temp";

/// The reason why a stream table has other rows than its owner may see: row security was changed after the
/// stream table was planned.
const SECURED: &str = "
SELECT pg_catalog.format('row security of %I.%I is not what it was for the owner''s query', d.source_schema, d.source_name)
FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) JOIN pg_class c ON c.oid = s.pgt_relid
WHERE d.pgt_id = $1 AND pgtrickle.row_security(d.source_relid, d.read_through, c.relowner) IS DISTINCT FROM d.row_security
ORDER BY d.source_relid LIMIT 1";

/// Returns the reason why a stream table is planned again, in the form in which history stores it.
pub(crate) async fn why_planned(db: &dyn Connection, id: i64) -> Result<String> {
    let row = db.query_opt(SECURED, &[&id]).await;
    let row = row.map_err(|e| Error::server("compare what the owner of a stream table may see", e))?;
    Ok(row.map_or("it was planned anew".to_owned(), |r| r.get(0)))
}

/// The functions and tables of other roles to which the owner of a stream table agreed. No other functions of
/// other roles run with the owner's rights, and no other tables of theirs are read with these rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The functions of other roles that may run, by oid.
    pub functions: Vec<u32>,
    /// The relations that views of other roles may read with the owner's rights (`security_invoker`), by
    /// oid.
    pub tables: Vec<u32>,
}

/// The code that a query would run and that belongs neither to the current role nor to a superuser.
///
/// All such code consists of functions. The query calls these functions, or uses them in its operators, casts
/// or aggregates, or in the domains and ranges among its types. Row security policies of the relations call
/// such functions too. The casts of all column types that the query can reach count too, since stored values
/// are written as text and compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    /// The functions and tables of other roles to which the owner of the stream table must agree.
    pub(crate) strange: Agreed,
    /// The types that the query can reach, except built-in ones. The owners of these types can change their
    /// functions and names at any time.
    pub(crate) types: Vec<u32>,
    /// The fingerprint of these types (`pgtrickle.types_fingerprint`); `None` where the query reaches no
    /// such types.
    pub(crate) types_fingerprint: Option<String>,
    /// The other objects that the values of the query depend on, except built-in ones, as
    /// `pgtrickle.objects_fingerprint` reads them. The kinds of objects are operators, casts, collations,
    /// text search configurations and dictionaries. Functions and operators that these objects, aggregates
    /// or function bodies use are included, if the server records the dependency. If rows can name text
    /// search configurations or dictionaries, oid 0 stands for all of them.
    pub(crate) objects: Vec<String>,
    /// The fingerprint of these objects; `None` where the query depends on no such objects.
    pub(crate) objects_fingerprint: Option<String>,
}

/// The part of a statement, after [`DEPENDENCIES`], that lists the types and functions which a view `$1` can
/// reach.
const REACHED: &str = "
, relation(oid) AS (
    SELECT $1::oid UNION SELECT object FROM reads WHERE class = 'pg_class'::regclass
), type(oid) AS (
    (SELECT object FROM reads WHERE class = 'pg_type'::regclass
    UNION SELECT a.atttypid FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION SELECT u.oid FROM reads y JOIN pg_proc p ON y.class = 'pg_proc'::regclass AND p.oid = y.object
        CROSS JOIN LATERAL unnest(p.proargtypes::oid[] || p.prorettype) u(oid)
    UNION SELECT u.oid FROM reads y JOIN pg_operator o ON y.class = 'pg_operator'::regclass AND o.oid = y.object
        CROSS JOIN LATERAL unnest(ARRAY[o.oprleft, o.oprright, o.oprresult]) u(oid))
    UNION SELECT part.oid FROM type t JOIN pg_type y ON y.oid = t.oid CROSS JOIN LATERAL (
        SELECT unnest(ARRAY[y.typelem, y.typbasetype, y.typarray])
        UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT g.rngsubtype FROM pg_range g WHERE y.oid IN (g.rngtypid, g.rngmultitypid)) part(oid)
    WHERE part.oid >= 16384 OR part.oid IN ('regconfig'::regtype, 'regdictionary'::regtype)
), called(class, oid) AS (
    SELECT class, object FROM reads WHERE class IN ('pg_proc'::regclass, 'pg_operator'::regclass)
    UNION SELECT d.refclassid, d.refobjid FROM type t JOIN pg_constraint n ON n.contypid = t.oid
        JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = n.oid
    UNION SELECT d.refclassid, d.refobjid FROM relation r JOIN pg_policy n ON n.polrelid = r.oid
        JOIN pg_depend d ON d.classid = 'pg_policy'::regclass AND d.objid = n.oid
), code(oid) AS (
    SELECT oid FROM called WHERE class = 'pg_proc'::regclass
    UNION SELECT o.oprcode FROM called c JOIN pg_operator o ON c.class = 'pg_operator'::regclass AND o.oid = c.oid
    UNION SELECT u.oid FROM called c JOIN pg_aggregate a ON c.class = 'pg_proc'::regclass AND a.aggfnoid = c.oid
        CROSS JOIN LATERAL unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn,
            a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::oid[]) u(oid)
    UNION SELECT k.castfunc FROM type t JOIN pg_cast k ON t.oid IN (k.castsource, k.casttarget) WHERE t.oid >= 16384
    UNION SELECT u.oid FROM type t JOIN pg_range g ON g.rngtypid = t.oid
        CROSS JOIN LATERAL unnest(ARRAY[g.rngcanonical, g.rngsubdiff]::oid[]) u(oid)
), followed(class, oid) AS (
    (SELECT class, object FROM reads WHERE class IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_collation'::regclass,
            'pg_ts_config'::regclass, 'pg_ts_dict'::regclass)
    UNION SELECT 'pg_proc'::regclass, oid FROM code WHERE oid >= 16384
    UNION SELECT 'pg_collation'::regclass, a.attcollation FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND NOT a.attisdropped
        WHERE a.attcollation >= 16384
    UNION SELECT 'pg_collation'::regclass, y.typcollation FROM type t JOIN pg_type y USING (oid) WHERE y.typcollation >= 16384
    UNION SELECT 'pg_ts_config'::regclass, c.oid FROM pg_ts_config c JOIN pg_namespace n ON n.oid = c.cfgnamespace
        WHERE c.oid >= 16384 AND current_setting('default_text_search_config')
            IN (pg_catalog.format('%I.%I', n.nspname, c.cfgname), quote_ident(c.cfgname))
    UNION SELECT 'pg_proc'::regclass, u.oid FROM type t JOIN pg_opclass c ON c.opcdefault AND c.opcintype = t.oid CROSS JOIN LATERAL (
        SELECT f.amproc::oid FROM pg_amproc f WHERE f.amprocfamily = c.opcfamily
        UNION ALL SELECT o.oprcode FROM pg_amop m JOIN pg_operator o ON o.oid = m.amopopr WHERE m.amopfamily = c.opcfamily) u(oid)
        WHERE t.oid >= 16384 AND u.oid >= 16384
    UNION SELECT class, 0 FROM (VALUES ('pg_ts_config'::regclass), ('pg_ts_dict')) any_of(class)
        WHERE EXISTS (SELECT FROM type WHERE oid IN ('regconfig'::regtype, 'regdictionary'::regtype))
            OR EXISTS (SELECT FROM relation r JOIN pg_rewrite w ON w.ev_class = r.oid
                WHERE w.ev_action::text ~ pg_catalog.format(':resulttype (%s|%s) ', 'regconfig'::regtype::oid, 'regdictionary'::regtype::oid))
    UNION SELECT d.refclassid, d.refobjid FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attgenerated = 'v'
        JOIN pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
        JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid
        WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_collation'::regclass, 'pg_ts_config'::regclass,
            'pg_ts_dict'::regclass))
    UNION SELECT d.refclassid, d.refobjid FROM followed f JOIN pg_depend d ON d.classid = f.class AND d.objid = f.oid
    WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_collation'::regclass, 'pg_ts_config'::regclass,
        'pg_ts_dict'::regclass, 'pg_type'::regclass)
)";

/// Rows of four kinds. The first kind is functions of other roles, with their owners. The second kind is
/// relations that views of other roles read with the caller's rights, each with such a view. The third kind
/// is all types. The fourth kind is all other objects that the values depend on.
const OF_OTHERS: &str = "
, trusted(oid) AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname = current_user)
SELECT 'function', p.oid, p.oid::regprocedure::text, p.proowner::regrole::text
FROM code JOIN pg_proc p USING (oid) WHERE p.proowner NOT IN (SELECT oid FROM trusted)
UNION ALL SELECT 'table', c.oid, c.oid::regclass::text, min(pg_catalog.format('view %s of %s', v.oid::regclass, v.relowner::regrole))
FROM reads r JOIN pg_class v ON v.oid = r.view AND v.oid <> $1::oid AND v.relkind = 'v'
    AND v.relowner NOT IN (SELECT oid FROM trusted)
    AND EXISTS (SELECT FROM pg_options_to_table(v.reloptions) o WHERE o.option_name = 'security_invoker' AND o.option_value::bool)
JOIN pg_class c ON r.class = 'pg_class'::regclass AND c.oid = r.object AND c.relkind IN ('r', 'p', 'v', 'm', 'f') GROUP BY c.oid
UNION ALL SELECT 'type', oid, NULL, NULL FROM type WHERE oid >= 16384
UNION ALL SELECT 'object', f.oid, f.class::regclass::text, NULL FROM followed f
    WHERE (f.class, f.oid) NOT IN (SELECT class, object FROM reads WHERE class = 'pg_proc'::regclass)
UNION ALL SELECT 'object', k.oid, 'pg_cast', NULL FROM pg_cast k
    WHERE k.castsource IN (SELECT oid FROM type WHERE oid >= 16384) OR k.casttarget IN (SELECT oid FROM type WHERE oid >= 16384)
        OR k.castfunc IN (SELECT oid FROM code WHERE oid >= 16384)
ORDER BY 1, 3, 2";

impl Code {
    /// Returns the code that a view would run. If `agreed` is given, fails if the view uses a function or
    /// table of other roles that is not in `agreed`.
    pub(crate) async fn of(db: &dyn Connection, view: u32, agreed: Option<&Agreed>) -> Result<Code> {
        let fail = |e| Error::server("read whose functions the query would run", e);
        let text = format!("{DEPENDENCIES}{REACHED}{OF_OTHERS}");
        let mut code = Code::default();
        for r in &db.query(&text, &[&view]).await.map_err(fail)? {
            let (kind, oid): (String, u32) = (r.get(0), r.get(1));
            match kind.as_str() {
                "function" if agreed.is_some_and(|a| !a.functions.contains(&oid)) => return Err(runs(r)),
                "function" => code.strange.functions.push(oid),
                "table" if agreed.is_some_and(|a| !a.tables.contains(&oid)) => return Err(reads(r)),
                "table" => code.strange.tables.push(oid),
                "type" => code.types.push(oid),
                "object" => code.objects.push(format!("{} {oid}", r.get::<String>(2))),
                other => {
                    let what = format!("a query reaches something of the unknown kind {other}");
                    return Err(trickle_core::Error::internal(what).into());
                }
            }
        }
        if !code.types.is_empty() {
            let text = "SELECT pgtrickle.types_fingerprint($1)";
            code.types_fingerprint = Some(db.query_one(text, &[&code.types]).await.map_err(fail)?.get(0));
        }
        if !code.objects.is_empty() {
            let text = "SELECT pgtrickle.objects_fingerprint($1)";
            code.objects_fingerprint = Some(db.query_one(text, &[&code.objects]).await.map_err(fail)?.get(0));
        }
        Ok(code)
    }
}

/// Returns the error for another role's function, if the owner of the stream table has not agreed to run it.
fn runs(r: &Row) -> Error {
    let (name, owner): (String, String) = (r.get(2), r.get(3));
    Error::input(format!(
        "its query would run the function {name} of {owner}, to which the owner of the stream table has not agreed"
    ))
    .detail("Something that it reads was altered, or the stream table got another owner: a cast, an operator, a view, a domain or a policy \
             calls that function.")
    .hint("Look at that function; to give the stream table its query again is to agree.")
}

/// Returns the error for a relation that a view of another role reads, if the owner has not agreed to the
/// relation.
fn reads(r: &Row) -> Error {
    let (name, view): (String, String) = (r.get(2), r.get(3));
    Error::input(format!(
        "its query would read {name} for the {view}, to which the owner of the stream table has not agreed"
    ))
    .detail("The view was altered, or the stream table got another owner. With security_invoker it reads whatever that one may read.")
    .hint("Look at that view; to give the stream table its query again is to agree.")
}

/// Statements that make the owner of the catalog the owner of a stream table's states, where another role
/// owns them.
const LEFT_BEHIND: &str = "
SELECT string_agg(pg_catalog.format('ALTER TABLE %s OWNER TO %s', c.oid::regclass, n.nspowner::regrole), '; ' ORDER BY c.relname)
FROM pg_namespace n JOIN pg_class c ON c.relowner <> n.nspowner
WHERE n.nspname = 'pgtrickle' AND c.relnamespace = to_regnamespace('pgtrickle_changes') AND c.relkind = 'r'
    AND starts_with(c.relname, pg_catalog.format('state_%s_', $1::int8))";

/// Returns a hint if states of a stream table belong to another role than the owner of the catalog.
pub(crate) async fn left_behind(db: &dyn Connection, id: i64) -> Result<Option<String>> {
    let row = db.query_one(LEFT_BEHIND, &[&id]).await;
    let row = row.map_err(|e| Error::server("look whose the tables of a stream table are", e))?;
    let mends: Option<String> = row.get(0);
    Ok(mends.map(|m| {
        format!(
            "Hidden tables of the stream table belong to another role than the catalog. As a superuser: {m}"
        )
    }))
}
