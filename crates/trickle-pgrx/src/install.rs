//! CREATE EXTENSION makes the catalog or adopts the existing one. The extension also brings the catalog up to
//! date, and can leave the catalog behind before DROP EXTENSION.

use crate::comments::COMMENTS;
use crate::inside::done;
use crate::raise::raise;
use crate::unsafe_pg::{ApartFromScript, Path, SHUT, ServerConnection, is_creating_extension, is_preloaded};
use crate::workers;
use pgrx::prelude::*;
use trickle_engine::db::Connection;
use trickle_engine::{Error, Result, capture, hand_over, schema};

// Creates or adopts the schemas before anything is put into them.
extension_sql!(
    "DO $$
    DECLARE name text; stranger text;
    BEGIN
        FOREACH name IN ARRAY ARRAY['pgtrickle', 'pgtrickle_changes'] LOOP
            -- What belongs to somebody else may do anything when it is read or called.
            SELECT o.owner::pg_catalog.regrole INTO stranger FROM (
                SELECT nspowner FROM pg_catalog.pg_namespace WHERE nspname = name
                UNION ALL SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.relnamespace = pg_catalog.to_regnamespace(name)
                UNION ALL SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace = pg_catalog.to_regnamespace(name)
            ) o(owner) JOIN pg_catalog.pg_roles r ON r.oid = o.owner
            WHERE name = 'pgtrickle' AND NOT r.rolsuper AND r.rolname <> current_user LIMIT 1;
            IF stranger IS NOT NULL THEN
                RAISE EXCEPTION 'schema % or something in it belongs to %', name, stranger
                    USING HINT = 'The program''s trickle init --take-over, as a superuser, makes it that one''s and keeps all stream tables.';
            END IF;
            IF pg_catalog.to_regnamespace(name) IS NULL THEN
                EXECUTE pg_catalog.format('CREATE SCHEMA %I', name);
            ELSE
                EXECUTE pg_catalog.format('ALTER EXTENSION pg_trickle ADD SCHEMA %I', name);
            END IF;
        END LOOP;
    END $$;",
    name = "schemas",
    bootstrap,
);

// In versions 1 and 2 of the catalog, `pgtrickle.grant_to` lets a role use this language for its own capture
// functions. In version 3 all such functions belong to the catalog's owner.
extension_sql!(
    "CREATE FUNCTION pgtrickle.copy_handler() RETURNS language_handler LANGUAGE c AS 'MODULE_PATHNAME', 'trickle_copy';
    REVOKE ALL ON FUNCTION pgtrickle.copy_handler() FROM PUBLIC;
    CREATE TRUSTED LANGUAGE pgtrickle_copy HANDLER pgtrickle.copy_handler;
    REVOKE ALL ON LANGUAGE pgtrickle_copy FROM PUBLIC;
    COMMENT ON LANGUAGE pgtrickle_copy IS 'Triggers that copy what a statement changed into a change buffer.';",
    name = "language",
);

extension_sql!(
    "SELECT pgtrickle.install();
    REVOKE ALL ON FUNCTION pgtrickle.install(), pgtrickle.follow_drops(oid[]), pgtrickle.follow_alters(oid[], oid[]) FROM PUBLIC;
    CREATE EVENT TRIGGER pg_trickle_drops ON sql_drop EXECUTE FUNCTION pgtrickle.on_drop();
    CREATE EVENT TRIGGER pg_trickle_alters ON ddl_command_end
        WHEN TAG IN ('ALTER TABLE', 'ALTER VIEW', 'ALTER SCHEMA', 'ALTER FUNCTION', 'ALTER ROUTINE', 'ALTER TYPE', 'ALTER FOREIGN TABLE',
            'ALTER MATERIALIZED VIEW', 'ALTER OPERATOR', 'ALTER AGGREGATE', 'ALTER COLLATION', 'ALTER TEXT SEARCH CONFIGURATION',
            'ALTER TEXT SEARCH DICTIONARY', 'CREATE TABLE', 'CREATE FOREIGN TABLE', 'CREATE VIEW', 'CREATE FUNCTION', 'CREATE AGGREGATE',
            'GRANT', 'REVOKE')
        EXECUTE FUNCTION pgtrickle.on_alter();",
    name = "catalog",
    finalize,
);

/// Statements that make the objects of an existing catalog members of the extension. Objects that belong to
/// an extension already are left out. Roles that had access to the catalog (those that may execute
/// `mark_readers`) get the right to use the language.
const ADOPTED: &str = "
SELECT pg_catalog.format('ALTER EXTENSION pg_trickle ADD %s %s', CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'v' THEN 'VIEW' ELSE 'SEQUENCE' END, c.oid::regclass)
FROM pg_class c WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind IN ('r', 'v', 'S')
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
UNION ALL
SELECT pg_catalog.format('ALTER EXTENSION pg_trickle ADD FUNCTION %s', p.oid::regprocedure) FROM pg_proc p
WHERE p.pronamespace = 'pgtrickle'::regnamespace
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')";

/// The query that writes the COMMENT statement for one of the extension's own functions.
const COMMENT: &str = "SELECT pg_catalog.format('COMMENT ON FUNCTION %s IS %L', p.oid::regprocedure, $2::text) FROM pg_proc p \
    JOIN pg_language l ON l.oid = p.prolang \
    WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.proname = $1::text AND l.lanname = 'c'";

/// The catalog's tables and sequences, whose contents `pg_dump` is to include.
const DUMPED: &str = "SELECT c.oid FROM pg_class c \
    WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind IN ('r', 'S') ORDER BY c.oid";

/// Statements that take the catalog out of the extension. The extension keeps only its own functions: those
/// in C, and those that event triggers call.
const RELEASED: &str = "
SELECT pg_catalog.format('ALTER EXTENSION pg_trickle DROP %s %s',
    CASE i.type WHEN 'table' THEN 'TABLE' WHEN 'view' THEN 'VIEW' WHEN 'sequence' THEN 'SEQUENCE' WHEN 'function' THEN 'FUNCTION'
        ELSE 'SCHEMA' END, i.identity)
FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) i
LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid LEFT JOIN pg_language l ON l.oid = p.prolang
WHERE e.extname = 'pg_trickle' AND i.type IN ('table', 'view', 'sequence', 'function', 'schema') AND l.lanname IS DISTINCT FROM 'c'
  AND p.prorettype IS DISTINCT FROM 'event_trigger'::regtype
ORDER BY i.type = 'schema', i.identity";

#[pg_schema]
mod pgtrickle {
    use pgrx::prelude::*;

    /// Creates the catalog, adopts an existing one, or brings it up to date. Only the scripts of CREATE
    /// EXTENSION and ALTER EXTENSION … UPDATE call it.
    #[pg_extern]
    fn install() {
        super::install();
    }

    /// Leaves the catalog behind, with every stream table as it is. DROP EXTENSION then removes only the
    /// extension's own functions, and the program `trickle` goes on with the catalog. CREATE EXTENSION adopts
    /// the catalog again.
    #[pg_extern]
    fn release_catalog() {
        super::release();
    }
}

fn release() {
    let released = done(async {
        let inside = ServerConnection::enter();
        let _shut = Path::begin(SHUT);
        let db: &dyn Connection = &inside;
        let fail = |e| Error::server("release the catalog", e);
        capture::leave_extension(db).await?;
        for row in db.query(RELEASED, &[]).await.map_err(fail)? {
            db.batch_execute(row.get(0)).await.map_err(fail)?;
        }
        Ok::<(), Error>(())
    });
    if let Err(e) = released {
        raise(&e);
    }
}

fn install() {
    if !is_creating_extension() {
        pgrx::error!(
            "the catalog of pg_trickle comes with CREATE EXTENSION pg_trickle, and ALTER EXTENSION pg_trickle UPDATE"
        );
    }
    let made = done(async {
        let inside = ServerConnection::enter();
        let _shut = Path::begin(SHUT);
        filled(&inside).await
    });
    if let Err(e) = made {
        raise(&e);
    }
    if is_preloaded() {
        workers::start_when_committed();
    }
}

/// Returns the version of the catalog that belongs to a version of the extension.
fn catalog_of(extension: &str) -> i32 {
    match extension {
        "0.1.0" => 1,
        "0.2.0" => 2,
        _ => schema::VERSION,
    }
}

async fn filled(db: &dyn Connection) -> Result<()> {
    let fail = |e| Error::server("adopt the catalog", e);
    let declared =
        db.query_one("SELECT extversion FROM pg_extension WHERE extname = 'pg_trickle'", &[]).await;
    let declared: String = declared.map_err(fail)?.get(0);
    let renewed = schema::fill(db, catalog_of(&declared)).await?;
    if catalog_of(&declared) >= 3 {
        // Objects that are derived from hidden objects do not become members of the extension.
        let _apart = ApartFromScript::begin();
        if renewed {
            capture::renew(db).await?;
        }
        hand_over(db, true).await?;
    }
    for row in db.query(ADOPTED, &[]).await.map_err(fail)? {
        db.batch_execute(row.get(0)).await.map_err(fail)?;
    }
    for (function, comment) in COMMENTS {
        let commented = db.query(COMMENT, &[&function, &comment]).await.map_err(fail)?;
        for row in commented {
            db.batch_execute(row.get(0)).await.map_err(fail)?;
        }
    }
    for row in db.query(DUMPED, &[]).await.map_err(fail)? {
        let noted =
            db.query("SELECT pg_extension_config_dump($1::regclass, '')", &[&row.get::<u32>(0)]).await;
        noted.map_err(fail)?;
    }
    Ok(())
}
