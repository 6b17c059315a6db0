//! Types by oid and by name.

use crate::error::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::Client;
use trickle_core::types::{OtherType, Type};

/// Every type with what the engine must know of it. Enums, ranges, arrays and composites use the operator classes of
/// the pseudo-type they belong to; a type without its own may use those of one that it is binary-coercible to. A
/// composite is taken to have an operator only if all its fields do. An extension's type is taken to have equal values
/// that are written differently, as citext does: that costs a little where it is not so.
const TYPES: &str = "
WITH class AS (
    SELECT a.amname, c.opcintype FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
    WHERE c.opcdefault AND a.amname IN ('btree', 'hash')
), has AS (
    SELECT t.oid, t.typtype, m.amname, EXISTS (SELECT FROM class k WHERE k.amname = m.amname AND (k.opcintype IN (t.oid,
        CASE t.typtype WHEN 'e' THEN 'anyenum'::regtype WHEN 'r' THEN 'anyrange'::regtype
            WHEN 'm' THEN 'anymultirange'::regtype END)
        OR k.opcintype IN (SELECT casttarget FROM pg_cast WHERE castsource = t.oid AND castmethod = 'b' AND castcontext = 'i')
        )) AS it
    FROM pg_type t CROSS JOIN (VALUES ('btree'), ('hash')) m(amname) WHERE t.typtype <> 'c'
), base AS (
    SELECT t.oid, coalesce(bool_and(h.it) FILTER (WHERE h.amname = 'btree'), false) AS ordered,
        coalesce(bool_and(h.it) FILTER (WHERE h.amname = 'hash'), false) AS hashable
    FROM pg_type t LEFT JOIN has h ON h.oid = t.oid WHERE t.typtype <> 'c' GROUP BY t.oid
    UNION ALL
    SELECT t.oid, coalesce(bool_and(b.it), true), coalesce(bool_and(h.it), true)
    FROM pg_type t LEFT JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN has b ON b.oid = a.atttypid AND b.amname = 'btree' LEFT JOIN has h ON h.oid = a.atttypid AND h.amname = 'hash'
    WHERE t.typtype = 'c' GROUP BY t.oid
)
SELECT t.oid, format_type(t.oid, NULL), n.nspname, t.typname, t.typtype::text,
    CASE WHEN t.typcategory = 'A' AND t.typlen = -1 THEN t.typelem ELSE 0 END, t.typbasetype, b.ordered, b.hashable,
    t.typtype = 'e' OR n.nspname = 'pg_catalog' AND t.typname IN
        ('oid', 'name', 'money', 'inet', 'cidr', 'macaddr', 'macaddr8', 'bit', 'varbit', 'int4range', 'int8range',
         'daterange', 'tsrange', 'tstzrange', 'xid8', 'pg_lsn', 'timetz', 'char')
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace JOIN base b ON b.oid = t.oid
WHERE t.typtype <> 'p' OR t.typname IN ('record', 'unknown') ORDER BY t.oid";

/// The types of a database.
#[derive(Debug, Default)]
pub(super) struct Types {
    by_oid: HashMap<u32, Type>,
    by_name: HashMap<(String, String), u32>,
}

struct Entry {
    spelled: String,
    element: u32,
    base: u32,
    is_domain: bool,
    ordered: bool,
    hashable: bool,
    exact: bool,
}

impl Types {
    pub(super) async fn read(client: &Client) -> Result<Types> {
        let rows =
            client.query(TYPES, &[]).await.map_err(|e| Error::server("read the types of the database", e))?;
        let mut entries: HashMap<u32, Entry> = HashMap::new();
        let mut types = Types::default();
        for r in rows {
            let oid: u32 = r.get(0);
            types.by_name.insert((r.get(2), r.get(3)), oid);
            let kind: String = r.get(4);
            entries.insert(
                oid,
                Entry {
                    spelled: r.get(1),
                    element: r.get(5),
                    base: r.get(6),
                    is_domain: kind == "d",
                    ordered: r.get(7),
                    hashable: r.get(8),
                    exact: r.get(9),
                },
            );
        }
        types.by_oid = entries.keys().map(|oid| (*oid, resolve(&entries, *oid))).collect();
        Ok(types)
    }

    /// The type of an oid.
    pub(super) fn by_oid(&self, oid: u32) -> Option<Type> {
        self.by_oid.get(&oid).cloned()
    }

    /// The type of a column: `spelled` is what `format_type` says with its modifiers.
    pub(super) fn column(&self, oid: u32, spelled: &str) -> Type {
        let known = Type::parse(spelled).or_else(|| self.by_oid(oid));
        match known {
            Some(Type::Other(o)) => {
                Type::Other(Arc::new(OtherType { sql_name: spelled.to_owned(), ..(*o).clone() }))
            }
            Some(known) => known,
            None => opaque(spelled, false, false, false),
        }
    }

    /// A type by name; without a schema, in `pg_catalog` or else in `public`.
    pub(super) fn by_name(&self, schema: Option<&str>, name: &str) -> Option<Type> {
        let schemas = schema.map_or(vec!["pg_catalog", "public"], |s| vec![s]);
        let oid = schemas.iter().find_map(|s| self.by_name.get(&((*s).to_owned(), name.to_owned())))?;
        self.by_oid(*oid)
    }
}

/// A domain computes and compares as its base type does, an array as its elements do.
fn resolve(entries: &HashMap<u32, Entry>, oid: u32) -> Type {
    let Some(e) = entries.get(&oid) else { return opaque("unknown", false, false, false) };
    if let Some(known) = Type::parse(&e.spelled) {
        return known;
    }
    if e.is_domain {
        return resolve(entries, e.base);
    }
    if e.element != 0 {
        return resolve(entries, e.element).array();
    }
    opaque(&e.spelled, e.ordered, e.hashable, e.exact)
}

fn opaque(spelled: &str, ordered: bool, hashable: bool, exact: bool) -> Type {
    let other =
        OtherType { sql_name: spelled.to_owned(), equality: ordered || hashable, hashable, ordered, exact };
    Type::Other(Arc::new(other))
}
