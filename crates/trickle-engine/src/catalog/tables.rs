//! Tables, with keys and foreign keys, and views.

use super::types::{Types, opaque, spelled};
use super::{Name, Relation};
use crate::db::{Connection, Row};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use trickle_core::catalog::{ColumnDef, ForeignKey, Generated, TableDef, TableId, TableKind};
use trickle_core::refresh::size;
use trickle_core::types::{OtherType, Type};
use trickle_core::vocabulary;

/// Returns an SQL expression that writes a definition, under settings that make the text mean the same under
/// all settings of a user. Dates and intervals are then read in one format only, floats are written with
/// their last digit, and a backslash is an ordinary character. The settings stay in force to the end of the
/// statement's transaction.
pub(crate) fn canonical(definition: &str) -> String {
    format!(
        "CASE WHEN (SELECT count(set_config(name, value, true)) FROM (VALUES ('DateStyle', 'ISO, YMD'), \
         ('IntervalStyle', 'postgres'), ('extra_float_digits', '3'), ('bytea_output', 'hex'), \
         ('standard_conforming_strings', 'on')) AS setting(name, value)) > 0 THEN {definition} END"
    )
}

/// The kind of relation `c`, as `pg_class.relkind` has it. A table with a foreign table among its partitions
/// or children counts as foreign. Changes of a foreign table happen on another server. Moreover, the server
/// refuses statements that write a foreign table among the children of a table whose triggers have
/// transition tables.
pub(crate) const KIND: &str = "CASE WHEN c.relhassubclass AND EXISTS (SELECT FROM unnest(pgtrickle.children(c.oid)) h(oid) \
     JOIN pg_class f ON f.oid = h.oid AND f.relkind = 'f') THEN 'f' ELSE c.relkind::text END";

/// The dependencies of the rules of a view, and of the views that it reads. `part` is the number of a
/// column.
pub(crate) const DEPENDENCIES: &str = "
WITH RECURSIVE reads(view, class, object, part) AS (
    SELECT r.ev_class, d.refclassid, d.refobjid, d.refobjsubid FROM pg_rewrite r
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    WHERE r.ev_class = $1::oid AND d.refobjid <> r.ev_class
    UNION
    SELECT r.ev_class, d.refclassid, d.refobjid, d.refobjsubid FROM reads
    JOIN pg_rewrite r ON reads.class = 'pg_class'::regclass AND r.ev_class = reads.object
    JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v'
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    WHERE d.refobjid <> r.ev_class
)";

const RELATION: &str = "
SELECT c.oid, n.nspname, c.relname, {kind}, row_security_active(c.oid),
    pgtrickle.children(c.oid) <> '{}', c.relkind = 'v',
    EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid = c.oid), c.relpersistence::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(CASE WHEN $1::text IS NULL THEN quote_ident($2) ELSE pg_catalog.format('%I.%I', $1, $2) END)
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')";

/// The columns of a table. A collation that is not the default of its type decides about order. A
/// nondeterministic collation decides about equality too.
const COLUMNS: &str = "
SELECT a.attnum, a.attname, a.atttypid, {spelled}, a.attnum = ANY (g.columns),
    CASE WHEN a.attcollation <> t.typcollation THEN CASE n.nspname WHEN 'pg_catalog' THEN quote_ident(l.collname)
        ELSE pg_catalog.format('%I.%I', n.nspname, l.collname) END END,
    coalesce(l.collisdeterministic, true), a.attgenerated::text, {generated}
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid CROSS JOIN (SELECT pgtrickle.never_null($1)) g(columns)
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated <> ''
LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_namespace n ON n.oid = l.collnamespace
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// The keys of a table. Included columns of a covering index come after its key columns, and are left out.
const KEYS: &str = "
SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] FROM pg_index i
WHERE i.indrelid = $1 AND i.indisunique AND pgtrickle.is_key(i.indexrelid) ORDER BY i.indisprimary DESC, i.indexrelid";

const FOREIGN_KEYS: &str = "
SELECT k.conkey, k.confrelid, k.confkey, k.convalidated AND NOT k.condeferrable,
    ARRAY(SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = k.confrelid AND a.attnum > 0 AND NOT a.attisdropped
          ORDER BY a.attnum)
FROM pg_constraint k WHERE k.conrelid = $1 AND k.contype = 'f' ORDER BY k.oid";

/// The keys and the never-NULL columns that a table had when a plan was made. If the table has got more keys
/// or never-NULL columns since, rows that were stored or captured earlier may violate the new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedWith {
    /// The keys, each as the attribute numbers of its columns.
    keys: Vec<Vec<i16>>,
    /// The attribute numbers of columns that are never NULL.
    never_null: Vec<i16>,
}

impl PlannedWith {
    /// Reads keys and never-NULL columns from the text that `pgtrickle.relied` writes.
    ///
    /// # Errors
    /// A column number in the text cannot be read.
    pub(crate) fn parse(keys: Option<&str>, never_null: Option<&str>) -> Result<PlannedWith> {
        let number = |text: &str| {
            let fail = |_| Error::input(format!("the catalog has {text:?} for the number of a column"));
            text.parse().map_err(fail)
        };
        let list = |text: Option<&str>, by| -> Vec<String> {
            text.into_iter().flat_map(|t| t.split(by)).filter(|t| !t.is_empty()).map(str::to_owned).collect()
        };
        let key = |k: &String| list(k.split('/').next(), ',').iter().map(|n| number(n)).collect();
        Ok(PlannedWith {
            keys: list(keys, ';').iter().map(key).collect::<Result<_>>()?,
            never_null: list(never_null, ';').iter().map(|n| number(n)).collect::<Result<_>>()?,
        })
    }

    /// Whether plans may rely on this key of the table.
    pub(crate) fn has_key(&self, columns: &[i16]) -> bool {
        self.keys.iter().any(|k| k == columns)
    }
}

/// Reads a relation; returns `None` where no relation has that name. Of a table in `former`, only the keys
/// and never-NULL columns that a former plan relied on are read.
pub(super) async fn read(
    db: &dyn Connection,
    types: &mut Types,
    former: &BTreeMap<TableId, PlannedWith>,
    name: &Name,
) -> Result<Option<Relation>> {
    let doing = |e| Error::server(format!("read the definition of \"{}\"", name.1), e);
    let row = db.query_opt(&RELATION.replace("{kind}", KIND), &[&name.0, &name.1]).await.map_err(doing)?;
    let Some(row) = row else { return Ok(None) };
    let oid: u32 = row.get(0);
    if row.get(6) {
        let text = format!("SELECT {}", canonical("pg_get_viewdef($1::oid)"));
        return Ok(Some(Relation::View(db.query_one(&text, &[&oid]).await.map_err(doing)?.get(0))));
    }
    let columns = COLUMNS.replace("{generated}", &canonical("pg_get_expr(d.adbin, d.adrelid)"));
    let columns = columns.replace("{spelled}", &spelled("a.atttypid", "a.atttypmod"));
    let columns = db.query(&columns, &[&oid]).await.map_err(doing)?;
    types.load_columns(db, columns.iter().map(|c| (c.get(2), c.get(3)))).await?;
    let attnums: Vec<i16> = columns.iter().map(|c| c.get(0)).collect();
    let mut columns: Vec<ColumnDef> = columns.iter().map(|c| column(types, c)).collect::<Result<_>>()?;
    let former = former.get(&TableId(oid));
    if let Some(former) = former {
        let other = columns.iter_mut().filter(|c| !former.never_null.contains(&c.number));
        other.for_each(|c| c.nullable = true);
    }
    // A key of a parent does not hold for the rows of its children. So keys are read only for a table without
    // children and for a partitioned table.
    let descendants: bool = row.get(5);
    let mut keys = Vec::new();
    if !descendants || row.get::<&str>(3) == "p" {
        for key in db.query(KEYS, &[&oid]).await.map_err(doing)? {
            let numbers: Vec<i16> = key.get(0);
            let key = positions(&attnums, &numbers).filter(|_| former.is_none_or(|f| f.has_key(&numbers)));
            keys.extend(key.filter(|k| k.iter().all(|c| !columns[*c].nullable)));
        }
    }
    let mut foreign_keys = Vec::new();
    for fk in db.query(FOREIGN_KEYS, &[&oid]).await.map_err(doing)? {
        let (here, there): (Vec<i16>, Vec<i16>) = (fk.get(0), fk.get(2));
        let target_attnums: Vec<i16> = fk.get(4);
        let (here, there) = (positions(&attnums, &here), positions(&target_attnums, &there));
        if let (Some(columns), Some(target_columns)) = (here, there) {
            let target = TableId(fk.get(1));
            foreign_keys.push(ForeignKey { columns, target, target_columns, validated: fk.get(3) });
        }
    }
    Ok(Some(Relation::Table(Arc::new(TableDef {
        keys,
        foreign_keys,
        kind: kind(&row)?,
        descendants,
        ..TableDef::new(TableId(oid), row.get::<String>(1), row.get::<String>(2), columns)
    }))))
}

/// The indexes by which rows can be looked up, each as its columns up to the first expression. The indexes
/// of keys are included.
const INDEXES: &str = "
SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree' ORDER BY i.indexrelid";

/// The server's statistics of the values in a table (`pg_stats.n_distinct`), and, in place of `{rows}`, the
/// number of its rows.
const STATISTICS: &str = "
SELECT {rows}::float8,
    ARRAY(SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          ORDER BY a.attnum),
    ARRAY(SELECT (SELECT s.n_distinct::float8 FROM pg_stats s WHERE s.schemaname = n.nspname AND s.tablename = c.relname
                  AND s.attname = a.attname ORDER BY s.inherited DESC LIMIT 1)
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1";

/// The indexes by which a delta can find the rows of a table, and statistics of the rows.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The indexes, each as the columns (positions) that it starts with.
    pub indexes: Vec<Vec<usize>>,
    /// The number of rows, as the server estimates it; `None` where there is no server to ask.
    pub rows: Option<f64>,
    /// The number of different values of a column (position), for columns with statistics.
    pub distinct: BTreeMap<usize, f64>,
}

/// Reads the indexes and statistics of a table. Returns none where the table does not exist.
pub(crate) async fn reach(db: &dyn Connection, table: TableId) -> Result<Reach> {
    let doing = |e| Error::server("read the indexes and statistics of a table", e);
    let Some(row) =
        db.query_opt(&STATISTICS.replace("{rows}", &size("$1::oid")), &[&table.0]).await.map_err(doing)?
    else {
        return Ok(Reach::default());
    };
    let (all, attnums): (f64, Vec<i16>) = (row.get(0), row.get(1));
    let distinct = row.get::<Vec<Option<f64>>>(2).into_iter().enumerate();
    // A negative `n_distinct` is a fraction of the number of rows.
    let distinct = distinct.filter_map(|(c, n)| Some((c, n.map(|n| if n < 0.0 { -n * all } else { n })?)));
    let rows = db.query(INDEXES, &[&table.0]).await.map_err(doing)?;
    let columns = |key: Vec<i16>| key.iter().map_while(|k| attnums.iter().position(|a| a == k)).collect();
    let indexes = rows.iter().map(|r| columns(r.get(0))).collect();
    Ok(Reach { indexes, rows: Some(all), distinct: distinct.filter(|(_, n)| *n > 0.0).collect() })
}

/// Returns the kind of a relation. Under row security, different readers see different rows of a table. So
/// the changes of the table are not the changes of the rows that a query reads. Such a table is read whole,
/// as a view is.
fn kind(row: &Row) -> Result<TableKind> {
    let (relkind, hidden, stream): (String, bool, bool) = (row.get(3), row.get(4), row.get(7));
    match relkind.as_str() {
        _ if stream => Ok(TableKind::StreamTable),
        _ if hidden => Ok(TableKind::View),
        "r" | "p" => Ok(TableKind::Table),
        "v" => Ok(TableKind::View),
        "m" => Ok(TableKind::MaterializedView),
        "f" => Ok(TableKind::ForeignTable),
        unknown => Err(vocabulary::unknown("kind of relation", unknown).into()),
    }
}

fn column(types: &Types, c: &Row) -> Result<ColumnDef> {
    let spelled: String = c.get(3);
    let ty = types.column(c.get(2), &spelled);
    let ty = match c.get::<Option<String>>(5) {
        None => ty,
        Some(collation) if ty.collated(&collation, true).collation().is_some() => {
            ty.collated(&collation, c.get(6))
        }
        // A type of an extension may compare values in its own way, so the engine knows the type by its name
        // only.
        Some(collation) => Type::Other(Arc::new(OtherType {
            sql_name: format!("{spelled} COLLATE {collation}"),
            equality: true,
            hashable: true,
            ordered: true,
            exact: c.get(6),
        })),
    };
    let expression: Option<String> = c.get(8);
    let generated = match (expression, c.get(7)) {
        (None, _) => None,
        (Some(e), "s") => Some(Generated::Stored(e.into())),
        (Some(e), "v") => Some(Generated::Virtual(e.into())),
        (Some(_), unknown) => {
            return Err(vocabulary::unknown("kind of generated column", unknown).into());
        }
    };
    let (ty, read_as) = match types.is_array_of_domain(c.get(2)) {
        true => (opaque(&spelled, false, false, false), Some(ty)),
        false => (ty, None),
    };
    Ok(ColumnDef {
        generated,
        read_as,
        number: c.get(0),
        type_id: c.get(2),
        ..ColumnDef::new(c.get::<String>(1), ty, !c.get::<bool>(4))
    })
}

/// Returns the positions of columns with these attribute numbers; `None` where a number belongs to no
/// column.
fn positions(attnums: &[i16], wanted: &[i16]) -> Option<Vec<usize>> {
    wanted.iter().map(|w| attnums.iter().position(|a| a == w)).collect()
}
