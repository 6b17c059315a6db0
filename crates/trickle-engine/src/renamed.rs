//! Rewrites the query of a stream table so that it uses the present names of its relations and columns.
//!
//! PostgreSQL follows renames under a view, by oid and attribute number. So the query is made a view over
//! stand-in tables, one for each renamed relation. The columns of a stand-in table have the names that the
//! query uses. The stand-in tables are then renamed, and PostgreSQL returns the query of the view with the
//! present names. In the new query, the columns of its result and the columns that USING merges have
//! aliases.

use crate::catalog::{canonical, is_copy};
use crate::db::{Connection, RefreshDriver, Row, ServerError, Transaction};
use crate::design::NewStreamTable;
use crate::error::{Error, Result};
use crate::in_force::put_in_force;
use crate::names::Name;
use crate::registry::{Entry, hold_and_compare, shown};
use crate::resolve::Place;
use crate::security::SHUT;
use crate::trickle::Trickle;
use std::fmt::Write;
use trickle_core::parse::over_other_tables;
use trickle_core::sql::{Ident, Qualified};

/// The relations that the query of stream table `$1` names, if the relation or a column that the query names
/// was renamed. Relations that got or lost a column which the query does not name are listed too, since
/// column aliases count columns by position.
const CHANGED: &str = "
SELECT c.oid, d.source_schema, d.source_name, n.nspname, c.relname, now.names::text, c.relkind IN ('r', 'p') FROM pgtrickle.pgt_dependencies d
JOIN pg_class c ON c.oid = d.source_relid JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT pgtrickle.column_names(c.oid)) now(names)
WHERE d.pgt_id = $1 AND coalesce(0 = ANY (d.read_through), true) AND c.relnamespace IS DISTINCT FROM to_regnamespace('pgtrickle_changes')
  AND ((d.source_schema, d.source_name) IS DISTINCT FROM (n.nspname, c.relname) OR EXISTS (
    SELECT FROM unnest(d.column_names, now.names) WITH ORDINALITY name(known, now, number)
    WHERE CASE WHEN name.now IS NULL THEN name.known IS NOT NULL AND name.number <> ALL (d.named_columns)
        WHEN name.known IS NULL THEN d.column_names IS NOT NULL ELSE name.known <> name.now AND (d.named_columns IS NULL OR name.number = ANY (d.named_columns)) END))
ORDER BY 1";

/// The columns of relation `$2` in their order, including columns that were dropped after the query of
/// stream table `$1` was planned. Each row has the number of the column, its present name, the name that the
/// query uses, and its type. The first of two flags says that the column was dropped though the query names
/// it. The second flag says that the column was added after the query was planned.
///
/// A new column that has the name of a dropped column takes the place of the dropped column. Every other new
/// column gets a name that no query uses. A dropped column whose place a new column takes gets such a name
/// too.
const COLUMNS: &str = "
WITH name AS (
    SELECT u.number, u.known, u.now, u.number = ANY (d.named_columns) AS named FROM pgtrickle.pgt_dependencies d
    CROSS JOIN LATERAL unnest(coalesce(d.column_names, pgtrickle.column_names($2)), pgtrickle.column_names($2))
        WITH ORDINALITY u(known, now, number)
    WHERE d.pgt_id = $1 AND d.source_relid = $2
), paired AS (
    SELECT n.*, EXISTS (SELECT FROM name o WHERE CASE WHEN n.now IS NULL THEN o.now = n.known AND o.known IS NULL
        ELSE n.known IS NULL AND o.known = n.now AND o.now IS NULL END) AS stands FROM name n
)
SELECT p.number, p.now, CASE WHEN p.now IS NULL THEN CASE WHEN p.stands THEN 'trickle ' || p.number ELSE p.known END
        WHEN p.known IS NOT NULL THEN p.known WHEN p.stands THEN p.now ELSE 'trickle ' || p.number END,
    CASE WHEN p.now IS NULL THEN 'int' ELSE format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attcollation <> t.typcollation
        THEN (SELECT pg_catalog.format(' COLLATE %I.%I', s.nspname, l.collname) FROM pg_collation l
            JOIN pg_namespace s ON s.oid = l.collnamespace WHERE l.oid = a.attcollation) ELSE '' END END,
    p.now IS NULL AND p.named AND NOT p.stands, p.known IS NULL AND NOT p.stands
FROM paired p LEFT JOIN pg_attribute a ON a.attrelid = $2 AND a.attnum = p.number
LEFT JOIN pg_type t ON t.oid = a.atttypid
WHERE p.now IS NOT NULL OR p.known IS NOT NULL ORDER BY p.number";

/// The numbers of the columns of a table's primary key. A query may use ungrouped columns if it groups by
/// the primary key.
const PRIMARY_KEY: &str = "
SELECT unnest((i.indkey::int2[])[0:i.indnkeyatts - 1])::int8 FROM pg_index i
WHERE i.indrelid = $1 AND i.indisprimary AND pgtrickle.is_key(i.indexrelid)";

/// A column of a stand-in table.
struct Column {
    number: i64,
    /// The present name of the column; `None` where the column was dropped.
    now: Option<String>,
    /// The name of the column that the query uses.
    known: String,
    spelled: String,
    /// Whether the column was added after the query was planned. Such a column is added to the stand-in
    /// table only after the view is made, since the view counts columns by position.
    new: bool,
}

/// A relation with changed names, and the stand-in table for it.
struct StandIn {
    oid: u32,
    known: (String, String),
    now: Qualified,
    /// The present names of the relation's columns, in the text form of `pgtrickle.column_names`.
    names: String,
    place: Qualified,
    columns: Vec<Column>,
}

impl StandIn {
    async fn of(t: &Transaction<'_>, place: &Place, e: &Entry, r: &Row) -> Result<StandIn> {
        let oid: u32 = r.get(0);
        let now = Qualified::new(r.get::<String>(3), r.get::<String>(4));
        let columns = t.query(COLUMNS, &[&e.id, &oid]).await.map_err(|err| fail(e, err))?;
        if let Some(gone) = columns.iter().find(|c| c.get(4)) {
            let column = Ident::new(gone.get::<&str>(2));
            return Err(Error::input(format!("column {column} of {now} was dropped")).coded("42703"));
        }
        let column = |r: &Row| Column {
            number: r.get(0),
            now: r.get(1),
            known: r.get(2),
            spelled: r.get(3),
            new: r.get(5),
        };
        Ok(StandIn {
            oid,
            known: (r.get(1), r.get(2)),
            now,
            names: r.get(5),
            place: place.qualified(&stand_in(oid)),
            columns: columns.iter().map(column).collect(),
        })
    }

    /// Makes the stand-in table with the names that the query uses.
    async fn make(&self, t: &Transaction<'_>, place: &Place) -> Result<(), ServerError> {
        let key = t.query(PRIMARY_KEY, &[&self.oid]).await?;
        let key: Vec<i64> = key.iter().map(|r| r.get(0)).collect();
        let named = |c: &Column| format!("{} {}", Ident::new(&c.known), c.spelled);
        let mut parts: Vec<String> = self.columns.iter().filter(|c| !c.new).map(named).collect();
        let number = |n: &i64| self.columns.iter().find(|c| c.number == *n && c.now.is_some() && !c.new);
        let key: Option<Vec<&Column>> = key.iter().map(number).collect();
        let key: Vec<String> =
            key.unwrap_or_default().iter().map(|c| Ident::new(&c.known).to_string()).collect();
        if !key.is_empty() {
            parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        t.batch_execute(&format!("CREATE {} ({})", place.table(&stand_in(self.oid)), parts.join(", "))).await
    }

    /// Gives the columns of the stand-in table their present names, adds new columns, and drops columns that
    /// the relation has lost.
    async fn follow(&self, t: &Transaction<'_>) -> Result<(), ServerError> {
        let (mut gone, mut come) = (String::new(), String::new());
        for c in &self.columns {
            match &c.now {
                Some(now) if c.new => {
                    let now = Ident::new(now);
                    let _ = write!(come, "ALTER TABLE {} ADD {now} {};", self.place, c.spelled);
                }
                Some(_) => {}
                None => {
                    let _ = write!(gone, "ALTER TABLE {} DROP {};", self.place, Ident::new(&c.known));
                }
            }
        }
        t.batch_execute(&(gone + &self.renames(&self.place) + &come)).await
    }

    /// Returns the statements that give the columns of a table their present names. Each column first gets
    /// an intermediate name, since two columns may have exchanged their names.
    fn renames(&self, table: &Qualified) -> String {
        let (mut apart, mut given) = (String::new(), String::new());
        for c in self.columns.iter().filter(|c| !c.new) {
            let Some(now) = c.now.as_ref().filter(|now| **now != c.known) else { continue };
            let (known, now, between) = (Ident::new(&c.known), Ident::new(now), self.between(c.number));
            let _ = write!(apart, "ALTER TABLE {table} RENAME {known} TO {between};");
            let _ = write!(given, "ALTER TABLE {table} RENAME {between} TO {now};");
        }
        apart + &given
    }

    /// Returns an intermediate name for a column. No other column has this name.
    fn between(&self, number: i64) -> Ident {
        let taken =
            |name: &str| self.columns.iter().any(|c| c.known == name || c.now.as_deref() == Some(name));
        let mut name = format!("between {number}");
        while taken(&name) {
            name.push('\'');
        }
        Ident::new(&name)
    }

    /// Gives the columns of a copy the present names of the source's columns, since the readers of the copy
    /// use these names.
    async fn rename_copy(&self, t: &Transaction<'_>, e: &Entry) -> Result<(), ServerError> {
        let copy = Qualified::new(&e.relation.schema, &e.relation.name);
        t.batch_execute(&self.renames(&copy)).await
    }

    /// Replaces the name of the stand-in table in a message of PostgreSQL by the name that the query uses.
    fn unmasked(&self, message: &str) -> String {
        message.replace(&stand_in(self.oid), &self.known.1)
    }
}

fn stand_in(oid: u32) -> String {
    format!("trickle_stands_in_{oid}")
}

/// The name of the view over the stand-in tables.
const OVER: &str = "trickle_renamed";

fn fail(e: &Entry, err: ServerError) -> Error {
    Error::server(format!("follow what was renamed under {}", shown(e)), err)
}

/// A query that uses present names, and the relations whose names changed.
struct Renamed {
    query: String,
    relations: Vec<StandIn>,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the request that would make a stream table again, with present names in its query.
    ///
    /// # Errors
    /// PostgreSQL refuses the query because a column that it names was dropped.
    pub(crate) async fn as_now(&mut self, e: &Entry, name: Name) -> Result<NewStreamTable> {
        let mut new = e.as_new(name);
        if let Some(renamed) = self.by_names_of_now(e).await? {
            new.query = renamed.query;
        }
        Ok(new)
    }

    /// Stores the query of a stream table with present names. The meaning of the query does not change.
    /// Returns the stream table with its new query; `None` where no name changed.
    ///
    /// # Errors
    /// The errors of [`Trickle::as_now`].
    pub(crate) async fn follow_names(&mut self, e: &Entry) -> Result<Option<Entry>> {
        let Some(renamed) = self.by_names_of_now(e).await? else { return Ok(None) };
        if renamed.query != e.query {
            self.progress
                .say(&format!("{}: something that it reads has another name; following it", shown(e)));
        }
        let db: &mut dyn Connection = &mut self.connection;
        let t = db.transaction().await.map_err(|err| fail(e, err))?;
        if !hold_and_compare(&t, e).await? {
            return Err(Error::stale(format!("somebody else alters {}", shown(e))));
        }
        if is_copy(&e.relation) {
            for r in &renamed.relations {
                r.rename_copy(&t, e).await.map_err(|err| fail(e, err))?;
            }
        }
        t.execute(NOTE_QUERY, &[&e.id, &renamed.query]).await.map_err(|err| fail(e, err))?;
        for r in &renamed.relations {
            let there = r.columns.iter().filter_map(|c| Some((c.known.clone(), c.now.clone()?)));
            let (known, now): (Vec<String>, Vec<String>) = there.unzip();
            let schema = r.now.schema.as_ref().map_or("", Ident::as_str);
            let name = r.now.name.as_str();
            let noted = t.execute(NOTE_NAMES, &[&e.id, &r.oid, &schema, &name, &r.names, &known, &now]).await;
            noted.map_err(|err| fail(e, err))?;
        }
        t.commit().await.map_err(|err| fail(e, err))?;
        let registry = self.linked(&[e.relation.id]).await?;
        let now = registry.get(e.id).cloned();
        now.map(Some).ok_or_else(|| Error::stale(format!("{} is gone", shown(e))))
    }

    /// Whether relations or columns that the query uses have other names than those stored in the catalog.
    pub(crate) async fn is_renamed(&self, e: &Entry) -> Result<bool> {
        let renamed = self.db().query(CHANGED, &[&e.id]).await.map_err(|err| fail(e, err))?;
        Ok(!renamed.is_empty())
    }

    /// Returns the query of a stream table with present names; `None` where no name changed.
    async fn by_names_of_now(&mut self, e: &Entry) -> Result<Option<Renamed>> {
        let renamed = self.db().query(CHANGED, &[&e.id]).await.map_err(|err| fail(e, err))?;
        if renamed.is_empty() {
            return Ok(None);
        }
        let db: &mut dyn Connection = &mut self.connection;
        let t = db.transaction().await.map_err(|err| fail(e, err))?;
        let written = match is_copy(&e.relation) {
            true => mirrored(&t, e, renamed).await,
            false => written(&t, e, renamed).await,
        };
        t.rollback().await.map_err(|err| Error::server("roll back", err))?;
        written.map(Some)
    }
}

/// The statement that stores the query `$2` of stream table `$1`. If the query is the same as before, the
/// text as it was typed stays.
const NOTE_QUERY: &str = "UPDATE pgtrickle.pgt_stream_tables SET defining_query = $2, \
     original_query = CASE WHEN defining_query = $2 THEN original_query ELSE $2 END WHERE pgt_id = $1";

/// The statement that stores the present names of relation `$2` and of its columns, which the query of
/// stream table `$1` now uses.
const NOTE_NAMES: &str = "UPDATE pgtrickle.pgt_dependencies SET source_schema = $3, source_name = $4, column_names = $5::text::text[], \
     columns_used = ARRAY(SELECT coalesce(m.now, u.name) FROM unnest(columns_used) WITH ORDINALITY u(name, place) \
         LEFT JOIN unnest($6::text[], $7::text[]) m(known, now) ON m.known = u.name ORDER BY u.place) \
     WHERE pgt_id = $1 AND source_relid = $2";

/// The names of a table's columns, in the order of the columns.
const COLUMN_NAMES: &str = "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Returns the query of a copy, which has the columns of the source under their present names.
async fn mirrored(t: &Transaction<'_>, e: &Entry, renamed: Vec<Row>) -> Result<Renamed> {
    let doing = |err| fail(e, err);
    let place = Place::of(t).await.map_err(doing)?;
    let mut all = Vec::new();
    for r in &renamed {
        all.push(StandIn::of(t, &place, e, r).await?);
    }
    let [source] = &all[..] else {
        return Err(trickle_core::Error::internal("a copy has one source").into());
    };
    let names = t.query(COLUMN_NAMES, &[&e.relation.id.0]).await.map_err(doing)?;
    let now = |r: &Row| {
        let column = source.columns.iter().find(|c| c.known == r.get::<&str>(0) && !c.new)?;
        column.now.as_ref().map(|now| Ident::new(now).to_string())
    };
    let names: Vec<String> = names.iter().filter_map(now).collect();
    let query = format!("SELECT {} FROM {}", names.join(", "), source.now);
    Ok(Renamed { query, relations: all })
}

async fn written(t: &Transaction<'_>, e: &Entry, renamed: Vec<Row>) -> Result<Renamed> {
    let doing = |err| fail(e, err);
    let place = Place::of(t).await.map_err(doing)?;
    put_in_force(t, &e.in_force).await.map_err(doing)?;
    // After these locks no table can be renamed, so the query and the names belong to one moment. The tables
    // are locked and not read, since planning a query over them would run code of their owners. Other kinds
    // of relations cannot be locked by name. Their names are compared again after the query is planned
    // ([`Trickle::is_renamed`]).
    for r in renamed.iter().filter(|r| r.get(6)) {
        let now = Qualified::new(r.get::<String>(3), r.get::<String>(4));
        t.batch_execute(&format!("LOCK TABLE {now} IN ACCESS SHARE MODE")).await.map_err(doing)?;
    }
    let named = |r: &Row| (r.get::<u32>(0), r.get::<String>(3), r.get::<String>(4));
    let still = t.query(CHANGED, &[&e.id]).await.map_err(doing)?;
    if !still.iter().map(named).eq(renamed.iter().map(named)) {
        return Err(Error::stale(format!("somebody else renames what {} reads", shown(e))));
    }
    let mut all = Vec::new();
    for r in &still {
        all.push(StandIn::of(t, &place, e, r).await?);
    }
    for s in &all {
        s.make(t, &place).await.map_err(doing)?;
    }
    let not_followed = |why: String| {
        let why = all.iter().fold(why, |why, s| s.unmasked(&why));
        Error::input(format!(
            "its query cannot be written with the names that tables and columns have now: {why}"
        ))
    };
    let query = over_other_tables(&e.query, |schema, name| {
        let named = all.iter().find(|s| schema == Some(s.known.0.as_str()) && name == s.known.1);
        named.map(|s| (s.place.to_string(), stand_in(s.oid)))
    });
    let query = query.map_err(|err| not_followed(err.to_string()))?;
    let view = format!("{}{}", place.create(OVER), query.trim_end().trim_end_matches(';'));
    let refused = |err: ServerError| match err.sqlstate() {
        // Class 42 means that the query is not valid over the stand-in tables.
        Some(code) if code.starts_with("42") => {
            let (message, code) = (err.message().to_owned(), code.to_owned());
            not_followed(message).coded(&code)
        }
        _ => doing(err),
    };
    t.batch_execute(&view).await.map_err(refused)?;
    for s in &all {
        s.follow(t).await.map_err(doing)?;
    }
    t.batch_execute(&format!("SET LOCAL search_path = {SHUT}")).await.map_err(doing)?;
    let text = format!("SELECT {}", canonical("pg_get_viewdef(to_regclass($1)::oid)"));
    let text: String = t.query_one(&text, &[&place.of_name(OVER)]).await.map_err(doing)?.get(0);
    let query = over_other_tables(&text, |schema, name| {
        let stood_for = all.iter().find(|s| name == stand_in(s.oid) && place.is(schema));
        stood_for.map(|s| (s.now.to_string(), s.now.name.as_str().to_owned()))
    })?;
    Ok(Renamed { query, relations: all })
}
