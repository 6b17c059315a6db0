//! Types by oid and by name.

use super::Name;
use crate::db::{Connection, Row};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use trickle_core::types::{OtherType, Type};

/// The types `$1` and the types that these consist of, with all facts that the engine needs. Enums, ranges
/// and arrays use the operator classes of their pseudo-type. A type without an operator class may use the
/// operator class of a type to which it is binary-coercible.
///
/// Two kinds of types count as types without operators, since the engine could not compare their values by an
/// operator in a statement. The first kind are types whose `=` is in none of the schemas `$2`, so the text
/// `=` would mean the operator of another type. The second kind are composite types. IS NULL tests the fields
/// of a composite value and not the value itself. So a composite value with some NULL fields is neither NULL
/// nor NOT NULL.
///
/// A type counts as an array only if its element type names it as the array type (`typarray`). The types
/// int2vector and oidvector have elements as well, but do not count, since their values are written
/// otherwise.
///
/// A type of an extension counts as one whose equal values may be written differently, as citext values are.
/// Where its equal values are in fact written alike, this costs a little extra work.
const TYPES: &str = "
WITH RECURSIVE wanted AS (
    SELECT unnest($1::oid[]) AS oid
    UNION
    SELECT part.oid FROM wanted w JOIN pg_type t ON t.oid = w.oid
    CROSS JOIN LATERAL (VALUES (t.typelem), (t.typbasetype)) part(oid) WHERE part.oid <> 0
), type AS (
    SELECT t.* FROM pg_type t WHERE t.oid IN (SELECT oid FROM wanted)
), class AS (
    SELECT a.amname, c.opcintype, EXISTS (SELECT FROM pg_amop o WHERE o.amopfamily = c.opcfamily
        AND o.amoplefttype = c.opcintype AND o.amoprighttype = c.opcintype
        AND o.amopstrategy = CASE a.amname WHEN 'btree' THEN 3 ELSE 1 END AND CASE WHEN $2::text[] IS NULL
            THEN pg_operator_is_visible(o.amopopr) ELSE EXISTS (SELECT FROM pg_operator x JOIN pg_namespace n ON n.oid = x.oprnamespace
                WHERE x.oid = o.amopopr AND n.nspname::text = ANY ($2::text[])) END) AS found
    FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod WHERE c.opcdefault AND a.amname IN ('btree', 'hash')
), has AS (
    SELECT t.oid, m.amname, NOT EXISTS (SELECT FROM class k WHERE k.opcintype = t.oid AND NOT k.found)
        AND EXISTS (SELECT FROM class k WHERE k.amname = m.amname AND (k.opcintype = t.oid
        OR NOT EXISTS (SELECT FROM class own WHERE own.opcintype = t.oid) AND (k.opcintype =
            CASE t.typtype WHEN 'e' THEN 'anyenum'::regtype WHEN 'r' THEN 'anyrange'::regtype
                WHEN 'm' THEN 'anymultirange'::regtype END
        OR k.opcintype IN (SELECT casttarget FROM pg_cast WHERE castsource = t.oid AND castmethod = 'b' AND castcontext = 'i')
        ))) AS it
    FROM type t CROSS JOIN (VALUES ('btree'), ('hash')) m(amname) WHERE t.typtype <> 'c'
), base AS (
    SELECT t.oid, coalesce(bool_and(h.it) FILTER (WHERE h.amname = 'btree'), false) AS ordered,
        coalesce(bool_and(h.it) FILTER (WHERE h.amname = 'hash'), false) AS hashable
    FROM type t LEFT JOIN has h ON h.oid = t.oid WHERE t.typtype <> 'c' GROUP BY t.oid
    UNION ALL
    SELECT t.oid, false, false FROM type t WHERE t.typtype = 'c'
)
SELECT t.oid, {type},
    coalesce((SELECT e.oid FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid), 0), b.ordered, b.hashable, t.typtype = 'e',
    t.typtype = 'd', t.typbasetype, {base},
    t.typnotnull OR EXISTS (SELECT FROM pg_constraint k WHERE k.contypid = t.oid) OR t.typtype = 'c' AND EXISTS (
        WITH RECURSIVE part(oid) AS (
            SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            UNION SELECT u.oid FROM part JOIN pg_type y ON y.oid = part.oid CROSS JOIN LATERAL (
                SELECT y.typelem UNION ALL SELECT y.typbasetype
                UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ) u(oid) WHERE u.oid <> 0
        ) SELECT FROM part JOIN pg_type d ON d.oid = part.oid
        WHERE d.typnotnull OR EXISTS (SELECT FROM pg_constraint k WHERE k.contypid = d.oid)),
    CASE WHEN t.typcollation <> 'default'::regcollation THEN (
        SELECT CASE n.nspname WHEN 'pg_catalog' THEN quote_ident(l.collname) ELSE pg_catalog.format('%I.%I', n.nspname, l.collname) END
        FROM pg_namespace n WHERE n.oid = l.collnamespace) END,
    coalesce(l.collisdeterministic, true)
FROM type t JOIN base b ON b.oid = t.oid LEFT JOIN pg_collation l ON l.oid = t.typcollation
WHERE t.typtype <> 'p' OR t.typname IN ('record', 'unknown') ORDER BY t.oid";

/// The types for which the text `=` would mean an operator that a user made, instead of the `=` of the type's
/// default operator class. `$1` are the schemas of the search path; NULL stands for the search path of the
/// connection.
const HIDDEN: &str = "
SELECT DISTINCT x.oprleft FROM pg_operator x JOIN pg_namespace n ON n.oid = x.oprnamespace
WHERE x.oprname = '=' AND x.oprleft = x.oprright AND x.oid >= 16384
    AND NOT EXISTS (SELECT FROM pg_amop o JOIN pg_opclass c ON c.opcfamily = o.amopfamily
        WHERE o.amopopr = x.oid AND c.opcdefault AND c.opcintype = x.oprleft)
    AND CASE WHEN $1::text[] IS NULL THEN pg_operator_is_visible(x.oid)
        ELSE n.nspname::text = ANY ($1::text[]) AND NOT EXISTS (SELECT FROM pg_operator s
            WHERE s.oprname = '=' AND s.oprleft = x.oprleft AND s.oprright = x.oprright AND s.oprnamespace = 'pg_catalog'::regnamespace
                AND coalesce(array_position($1::text[], 'pg_catalog'), 0) < array_position($1::text[], n.nspname::text)) END";

/// The oid of a type name, in the first of the schemas `$1` that has the type.
const NAMED: &str = "
SELECT t.oid FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = ANY ($1) AND t.typname = $2 ORDER BY array_position($1, n.nspname::text) LIMIT 1";

/// The types that were read so far.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// The types by oid. `None` stands for a type that the engine cannot express (a pseudo-type), and for a
    /// type that does not exist.
    by_oid: HashMap<u32, Option<Type>>,
    by_name: HashMap<Name, Option<u32>>,
    /// The domains that have constraints, and the composite types that contain such domains.
    constrained: HashSet<u32>,
    /// The arrays of domains. Operators of arrays do not accept such an array as an array of the base type.
    of_domains: HashSet<u32>,
    /// The types for which the text `=` would mean another operator; `None` where the server was not asked
    /// yet.
    hidden: Option<HashSet<u32>>,
    /// The schemas in which statements find their operators; `None` for the search path of the connection.
    path: Option<Vec<String>>,
}

/// Returns an SQL expression for the text that `format_type` returns for a type. The text has the schema of
/// the type, whatever the search path is. The text has no schema for the server's own types.
pub(crate) fn spelled(oid: &str, modifier: &str) -> String {
    format!(
        "(SELECT CASE WHEN n.nspname <> 'pg_catalog' AND pg_type_is_visible(b.oid) THEN quote_ident(n.nspname::text) || '.' ELSE '' END \
         || format_type(y.oid, {modifier}) FROM pg_type y \
         JOIN pg_type b ON b.oid = CASE WHEN y.typcategory = 'A' AND y.typlen = -1 AND y.typelem <> 0 THEN y.typelem ELSE y.oid END \
         JOIN pg_namespace n ON n.oid = b.typnamespace WHERE y.oid = {oid})"
    )
}

struct Entry {
    spelled: String,
    element: u32,
    ordered: bool,
    hashable: bool,
    exact: bool,
    constrained: bool,
    domain: Option<Domain>,
}

struct Domain {
    base: u32,
    /// The base type of the domain, with its modifiers.
    spelled: String,
    /// The collation of the domain, and whether it is deterministic; `None` where the domain has the default
    /// collation.
    collation: Option<(String, bool)>,
}

impl Domain {
    fn read(r: &Row) -> Domain {
        let collation = r.get::<Option<String>>(10).map(|name| (name, r.get(11)));
        Domain { base: r.get(7), spelled: r.get(8), collation }
    }
}

impl Types {
    /// Makes an empty list of types, for statements that run under a search path.
    pub(super) fn under(path: Vec<String>) -> Types {
        Types { path: Some(path), ..Types::default() }
    }

    /// Reads the types that were not read before.
    pub(super) async fn load(
        &mut self,
        db: &dyn Connection,
        oids: impl IntoIterator<Item = u32>,
    ) -> Result<()> {
        let new: Vec<u32> = oids.into_iter().filter(|oid| !self.by_oid.contains_key(oid)).collect();
        if new.is_empty() {
            return Ok(());
        }
        // Without a modifier, `format_type` calls bpchar and bit by the names of character(1) and bit(1).
        let text = TYPES.replace("{type}", &spelled("t.oid", "-1"));
        let text = text.replace("{base}", &spelled("t.typbasetype", "t.typtypmod"));
        let rows = db.query(&text, &[&new, &self.path]).await.map_err(|e| Error::server("read types", e))?;
        let entry = |r: &Row| {
            let entry = Entry {
                spelled: r.get(1),
                element: r.get(2),
                ordered: r.get(3),
                hashable: r.get(4),
                exact: r.get(5),
                constrained: r.get(9),
                domain: r.get::<bool>(6).then(|| Domain::read(r)),
            };
            (r.get(0), entry)
        };
        let entries: HashMap<u32, Entry> = rows.iter().map(entry).collect();
        self.by_oid.extend(new.into_iter().map(|oid| (oid, None)));
        self.by_oid.extend(entries.keys().map(|oid| (*oid, Some(resolve(&entries, *oid)))));
        self.look_for_hidden(db).await?;
        let hidden: Vec<_> = entries.iter().filter(|(oid, _)| self.is_hidden(**oid)).collect();
        let opaque = hidden.into_iter().map(|(oid, e)| (*oid, Some(opaque(&e.spelled, false, false, false))));
        self.by_oid.extend(opaque.collect::<Vec<_>>());
        let of_domain = |e: &Entry| entries.get(&e.element).is_some_and(|e| e.domain.is_some());
        self.of_domains.extend(entries.iter().filter(|(_, e)| of_domain(e)).map(|(oid, _)| *oid));
        self.constrained.extend(entries.keys().filter(|oid| is_constrained(&entries, **oid)));
        Ok(())
    }

    /// Reads the types that [`Types::column`] needs, by oid and by the text that `format_type` returns.
    pub(super) async fn load_columns<'s>(
        &mut self,
        db: &dyn Connection,
        columns: impl IntoIterator<Item = (u32, &'s str)>,
    ) -> Result<()> {
        self.look_for_hidden(db).await?;
        let unknown = columns.into_iter().filter(|(_, spelled)| Type::parse(spelled).is_none());
        self.load(db, unknown.map(|(oid, _)| oid)).await
    }

    /// Reads a type by its name. A name without a schema is looked for in `pg_catalog` and then in `public`.
    pub(super) async fn load_named(&mut self, db: &dyn Connection, name: &Name) -> Result<()> {
        let schemas = name.0.as_deref().map_or(vec!["pg_catalog", "public"], |s| vec![s]);
        let doing = |e| Error::server(format!("look for type \"{}\"", name.1), e);
        let oid = db.query_opt(NAMED, &[&schemas, &name.1]).await.map_err(doing)?.map(|r| r.get(0));
        self.load(db, oid).await?;
        self.by_name.insert(name.clone(), oid);
        Ok(())
    }

    /// Returns the type with this oid, if it was loaded.
    pub(super) fn by_oid(&self, oid: u32) -> Option<Type> {
        self.by_oid.get(&oid).cloned().flatten()
    }

    /// Returns the type of a column, where `spelled` is the text that `format_type` returns for the type
    /// with its modifiers.
    pub(super) fn column(&self, oid: u32, spelled: &str) -> Type {
        if self.is_hidden(oid) {
            return opaque(spelled, false, false, false);
        }
        let known = Type::parse(spelled).or_else(|| self.by_oid(oid));
        match known {
            // The modifiers are added to a type of an extension.
            Some(Type::Other(o)) if spelled.starts_with(&o.sql_name) => {
                Type::Other(Arc::new(OtherType { sql_name: spelled.to_owned(), ..(*o).clone() }))
            }
            Some(known) => known,
            None => opaque(spelled, false, false, false),
        }
    }

    /// Reads the types for which the text `=` would mean another operator.
    async fn look_for_hidden(&mut self, db: &dyn Connection) -> Result<()> {
        if self.hidden.is_none() {
            let rows = db.query(HIDDEN, &[&self.path]).await.map_err(|e| Error::server("read types", e))?;
            self.hidden = Some(rows.iter().map(|r| r.get(0)).collect());
        }
        Ok(())
    }

    fn is_hidden(&self, oid: u32) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden.contains(&oid))
    }

    /// Whether a type that was loaded is an array of a domain.
    pub(super) fn is_array_of_domain(&self, oid: u32) -> bool {
        self.of_domains.contains(&oid)
    }

    /// Whether a name means a domain that has constraints, or a composite type that contains such a domain.
    pub(super) fn is_constrained(&self, name: &Name) -> bool {
        self.by_name.get(name).copied().flatten().is_some_and(|oid| self.constrained.contains(&oid))
    }

    /// Returns the type of this name: `None` where it was not read yet, `Some(None)` where no type has the
    /// name.
    pub(super) fn by_name(&self, name: &Name) -> Option<Option<Type>> {
        self.by_name.get(name).map(|oid| oid.and_then(|oid| self.by_oid(oid)))
    }
}

/// Returns a type as the engine sees it. A domain computes as its base type does. A domain compares as its
/// base type does under the domain's collation. An array compares as its elements do.
fn resolve(entries: &HashMap<u32, Entry>, oid: u32) -> Type {
    let Some(e) = entries.get(&oid) else { return opaque("unknown", false, false, false) };
    if let Some(known) = Type::parse(&e.spelled) {
        return known;
    }
    if let Some(domain) = &e.domain {
        let base = Type::parse(&domain.spelled).unwrap_or_else(|| resolve(entries, domain.base));
        return match &domain.collation {
            Some((name, deterministic)) => base.collated(name, *deterministic),
            None => base.uncollated(),
        };
    }
    if e.element != 0 {
        return resolve(entries, e.element).array();
    }
    opaque(&e.spelled, e.ordered, e.hashable, e.exact)
}

/// Whether a type is a domain with constraints, is made of such a domain, or contains one.
fn is_constrained(entries: &HashMap<u32, Entry>, oid: u32) -> bool {
    let of_domain = |d: &Domain| is_constrained(entries, d.base);
    entries.get(&oid).is_some_and(|e| e.constrained || e.domain.as_ref().is_some_and(of_domain))
}

pub(super) fn opaque(spelled: &str, ordered: bool, hashable: bool, exact: bool) -> Type {
    let other =
        OtherType { sql_name: spelled.to_owned(), equality: ordered || hashable, hashable, ordered, exact };
    Type::Other(Arc::new(other))
}
