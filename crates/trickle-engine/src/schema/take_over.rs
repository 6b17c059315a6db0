//! Makes the current role, which must be a superuser, the owner of a catalog that another role made.
//! Afterwards the catalog has exactly the objects that trickle's scripts make. Other objects of its former
//! owner would run with a superuser's rights.

use super::{HANDED_OVER, LOCK, rise, version};
use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::hand_over::hand_over;
use crate::names::CATALOG;
use std::collections::BTreeSet;

/// The search path has only the server's schema, so that all other names are printed with their schemas.
/// Refreshes of the former owner may hold locks on tables of the catalog. If such a refresh lasts longer
/// than the timeout, the attempt ends with an error.
const SETTINGS: &str = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '10s'";

/// Whether the current role is a superuser, whether the catalog belongs to the extension, and whether the
/// database has a catalog. A catalog counts only if a plain table has its version, since a plain table can
/// be read without running code of its owner.
const STANDING: &str = "SELECT r.rolsuper, EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trickle'),
    EXISTS (SELECT FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.oid = to_regclass('pgtrickle.pgt_catalog_version') AND c.relkind = 'r' AND a.attname = 'version' AND a.atttypid = 'int4'::regtype)
FROM pg_roles r WHERE r.rolname = current_user";

/// The ordinary roles that own the catalog or one of its objects.
const FORMER: &str = "SELECT r.oid, r.rolname::text FROM pg_roles r WHERE NOT r.rolsuper AND r.oid IN (
    SELECT nspowner FROM pg_namespace WHERE nspname = 'pgtrickle'
    UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace
    UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace) ORDER BY 2";

/// The roles that `pgtrickle.grant_to` let in.
const LET_IN: &str = "SELECT a.grantee FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
    WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.proname = 'mark_readers' AND a.grantee NOT IN (0, p.proowner)";

/// Statements that give the objects of the catalog to the current role. Indexes, row types and sequences of
/// columns get the owner of their table.
const OWN: &str = "
SELECT format('ALTER SCHEMA %I OWNER TO CURRENT_USER', nspname) FROM pg_namespace WHERE nspname IN ('pgtrickle', 'pgtrickle_changes')
UNION ALL
SELECT format('ALTER TABLE %s OWNER TO CURRENT_USER', oid::regclass) FROM pg_class
WHERE relnamespace = 'pgtrickle'::regnamespace AND relkind IN ('r', 'v')
UNION ALL
SELECT format('ALTER ROUTINE %s OWNER TO CURRENT_USER', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace";

/// Statements that revoke the rights on the catalog that its former owner granted. A role with such a right
/// could make a trigger on a table of the catalog, and every role that refreshes would run the trigger.
const REVOKE: &str = "
SELECT DISTINCT format('REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle FROM %1$s CASCADE; REVOKE ALL ON ALL SEQUENCES IN SCHEMA pgtrickle FROM %1$s CASCADE; \
    REVOKE ALL ON ALL ROUTINES IN SCHEMA pgtrickle FROM %1$s CASCADE; REVOKE ALL ON SCHEMA pgtrickle, pgtrickle_changes FROM %1$s CASCADE',
    a.grantee::regrole)
FROM (
    SELECT nspacl FROM pg_namespace WHERE nspname IN ('pgtrickle', 'pgtrickle_changes')
    UNION ALL SELECT relacl FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace
    UNION ALL SELECT attacl FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'pgtrickle'::regnamespace
    UNION ALL SELECT proacl FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace) x(acl)
CROSS JOIN LATERAL aclexplode(x.acl) a WHERE a.grantee NOT IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user))";

/// All objects in the schema of the catalog and on its tables, each in one line. Functions are made again
/// later, so only their signatures are compared.
const HELD: &str = "
WITH here AS (SELECT * FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace)
SELECT concat_ws(' ', i.type, i.identity) FROM pg_depend d CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) i
WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'pgtrickle'::regnamespace
UNION ALL
SELECT format('%s of kind %s', c.oid::regclass, concat_ws(' ', c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
    c.reloptions, c.reloftype, (SELECT count(*) FROM pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent)))) FROM here c
UNION ALL
SELECT format('column %I of %s: %s', a.attname, c.oid::regclass, concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation,
    a.attnotnull, a.attidentity, a.attgenerated, pg_get_expr(f.adbin, f.adrelid)))
FROM here c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum WHERE c.relkind <> 'i'
UNION ALL
SELECT format('constraint %I on %s: %s', n.conname, c.oid::regclass, pg_get_constraintdef(n.oid)) FROM here c JOIN pg_constraint n ON n.conrelid = c.oid
UNION ALL
SELECT format('index %s: %s', x.indexrelid::regclass, pg_get_indexdef(x.indexrelid)) FROM here c JOIN pg_index x ON x.indrelid = c.oid
UNION ALL
SELECT format('trigger %I on %s: %s %s', g.tgname, c.oid::regclass, g.tgenabled, pg_get_triggerdef(g.oid))
FROM here c JOIN pg_trigger g ON g.tgrelid = c.oid WHERE NOT g.tgisinternal
UNION ALL
SELECT format('rule %I on %s: %s', r.rulename, c.oid::regclass, pg_get_ruledef(r.oid)) FROM here c JOIN pg_rewrite r ON r.ev_class = c.oid
UNION ALL
SELECT format('policy %I on %s: %s', y.polname, c.oid::regclass, concat_ws(' ', y.polcmd, y.polpermissive, y.polroles,
    pg_get_expr(y.polqual, y.polrelid), 'CHECK ' || pg_get_expr(y.polwithcheck, y.polrelid)))
FROM here c JOIN pg_policy y ON y.polrelid = c.oid
UNION ALL
SELECT format('statistics %I on %s', e.stxname, c.oid::regclass) FROM here c JOIN pg_statistic_ext e ON e.stxrelid = c.oid
UNION ALL
SELECT format('function %I(%s) returning %s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid))
FROM pg_proc p WHERE p.pronamespace = 'pgtrickle'::regnamespace
UNION ALL
SELECT format('%s for PUBLIC on %s', a.privilege_type, x.what) FROM (
    SELECT c.oid::regclass::text, c.relacl FROM here c
    UNION ALL SELECT format('column %I of %s', a.attname, c.oid::regclass), a.attacl FROM here c JOIN pg_attribute a ON a.attrelid = c.oid
    UNION ALL SELECT 'schema pgtrickle', nspacl FROM pg_namespace WHERE nspname = 'pgtrickle'
    UNION ALL SELECT p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner)) FROM pg_proc p
        WHERE p.pronamespace = 'pgtrickle'::regnamespace) x(what, acl)
CROSS JOIN LATERAL aclexplode(x.acl) a WHERE a.grantee = 0";

const FUNCTIONS: &str =
    "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace ORDER BY oid";

/// Stream tables whose owner is not one of the roles `$1` and has none of these roles as a member. One of the
/// roles `$1` could have written the queries of these stream tables in the catalog.
const OTHERS: &str = "SELECT c.oid::regclass::text FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid
    WHERE NOT EXISTS (SELECT FROM unnest($1::oid[]) f(role) WHERE pg_has_role(f.role, c.relowner, 'MEMBER')) ORDER BY 1";

/// Gives the catalog to the current role. Returns the names of the former owners, which are let in
/// afterwards.
pub(crate) async fn take_over(db: &mut dyn Connection) -> Result<Vec<String>> {
    let fail = |e| Error::server("take the catalog over", e);
    // Each statement reads a new snapshot, so it sees the commits of sessions that held a lock before.
    let t = db.fresh_transaction().await.map_err(fail)?;
    t.batch_execute(SETTINGS).await.map_err(fail)?;
    t.execute(LOCK, &[]).await.map_err(fail)?;
    fit(&t).await?;
    let former = t.query(FORMER, &[]).await.map_err(fail)?;
    let roles: Vec<u32> = former.iter().map(|r| r.get(0)).collect();
    let names: Vec<String> = former.iter().map(|r| r.get(1)).collect();
    let mut let_in: BTreeSet<u32> = roles.iter().copied().collect();
    let_in.extend(t.query(LET_IN, &[]).await.map_err(fail)?.iter().map(|r| r.get::<u32>(0)));
    for statement in lines(&t, OWN).await? {
        t.batch_execute(&statement).await.map_err(fail)?;
    }
    // From this point on no other role can add objects, or replace the table with the version by a view.
    fit(&t).await?;
    let functions = compared(&t).await?;
    for function in functions {
        t.batch_execute(&function).await.map_err(fail)?;
    }
    for statement in lines(&t, REVOKE).await? {
        t.batch_execute(&statement).await.map_err(fail)?;
    }
    for role in let_in {
        t.execute("SELECT pgtrickle.grant_to($1::oid::regrole)", &[&role]).await.map_err(fail)?;
    }
    if version(&*t).await?.is_some_and(|v| v >= HANDED_OVER) {
        hand_over(&*t, true).await?;
    }
    if !roles.is_empty() {
        own_alone(&t, &roles, &names).await?;
    }
    t.commit().await.map_err(fail)?;
    Ok(names)
}

/// Fails where there is no catalog to take over, or where the current role may not take it over.
async fn fit(t: &Transaction<'_>) -> Result<()> {
    let row = t.query_one(STANDING, &[]).await.map_err(|e| Error::server("look for the catalog", e))?;
    let (is_super, of_extension, there): (bool, bool, bool) = (row.get(0), row.get(1), row.get(2));
    match (is_super, of_extension, there) {
        (false, ..) => Err(Error::input("the catalog is taken over by superusers alone")
            .detail("What belongs to an ordinary role stays that one's.")
            .hint("Connect as a superuser.")),
        (_, true, _) => {
            Err(Error::input("the catalog is the extension's already").hint("Nothing is left to do."))
        }
        (.., false) => {
            Err(Error::input("this database has no trickle catalog to take over")
                .hint("trickle init makes one."))
        }
        _ => Ok(()),
    }
}

/// Compares the catalog with a new catalog of the same version, which is made temporarily and rolled back.
/// Returns the definitions of the functions of the new catalog.
async fn compared(t: &Transaction<'_>) -> Result<Vec<String>> {
    let fail = |e| Error::server("make a catalog to compare with", e);
    let found = t
        .query_one("SELECT max(version) FROM pgtrickle.pgt_catalog_version", &[])
        .await
        .map_err(fail)?
        .get(0);
    let held: BTreeSet<String> = lines(t, HELD).await?.into_iter().collect();
    let aside = format!(
        "SAVEPOINT beside; ALTER SCHEMA {CATALOG} RENAME TO pgtrickle_former; CREATE SCHEMA {CATALOG}"
    );
    t.batch_execute(&aside).await.map_err(fail)?;
    rise(&**t, 0, found).await?;
    let (expected, functions) = (lines(t, HELD).await?, lines(t, FUNCTIONS).await?);
    t.batch_execute("ROLLBACK TO SAVEPOINT beside; RELEASE SAVEPOINT beside").await.map_err(fail)?;
    let expected: BTreeSet<String> = expected.into_iter().collect();
    let list = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>().join("; ");
    let (strange, missing) = (list(&held, &expected), list(&expected, &held));
    if strange.is_empty() && missing.is_empty() {
        return Ok(functions);
    }
    let told = [("Not trickle's", strange), ("Trickle's, and not there", missing)];
    let told =
        told.iter().filter(|(_, list)| !list.is_empty()).map(|(what, list)| format!("{what}: {list}."));
    Err(Error::input(format!("schema {CATALOG} is not as trickle makes it"))
        .detail(told.collect::<Vec<_>>().join(" "))
        .hint("Put that right, as its owner, then try again; or have its owner run trickle uninstall."))
}

/// Fails if the catalog has stream tables whose queries could have been written by a role other than their
/// owner.
async fn own_alone(t: &Transaction<'_>, roles: &[u32], names: &[String]) -> Result<()> {
    let rows =
        t.query(OTHERS, &[&roles]).await.map_err(|e| Error::server("look whose the stream tables are", e))?;
    if rows.is_empty() {
        return Ok(());
    }
    let others: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    Err(Error::input(format!("stream tables of other roles than {} are in the catalog", names.join(", ")))
        .detail(format!("They are {}. Who owns the catalog could write their queries.", others.join(", ")))
        .hint("Drop them, and make them again when the catalog is taken over."))
}

/// Returns the first column of the rows of a query.
async fn lines(t: &Transaction<'_>, query: &str) -> Result<Vec<String>> {
    let rows = t.query(query, &[]).await.map_err(|e| Error::server("look at the catalog", e))?;
    Ok(rows.iter().map(|r| r.get(0)).collect())
}
