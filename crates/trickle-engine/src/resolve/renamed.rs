//! A query by the names that its relations and their columns have now.
//!
//! PostgreSQL follows renames under a view, by oid and attribute number. So the query is put over tables that
//! stand in for those with other names now: each has the columns of one, under the names that the query
//! knows. These are renamed, and the view over them says what the query is called now: with aliases for the
//! columns of its result, and for those that USING merges.

use super::Place;
use crate::catalog::canonical;
use crate::create::NewStreamTable;
use crate::db::{Connection, Row, Transaction};
use crate::drive::put_in_force;
use crate::error::{Error, Result};
use crate::names::Name;
use crate::registry::{Entry, shown};
use crate::security::SHUT;
use crate::trickle::Trickle;
use std::fmt::Write;
use trickle_core::parse::over_other_tables;
use trickle_core::sql::{Ident, Qualified};

/// The relations that the query of `$1` names and that have other names by now, or whose columns have that it
/// names.
const RENAMED: &str = "
SELECT c.oid, d.source_schema, d.source_name, n.nspname, c.relname, pgtrickle.names(c.oid)::text FROM pgtrickle.pgt_dependencies d
JOIN pg_class c ON c.oid = d.source_relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.pgt_id = $1 AND coalesce(0 = ANY (d.read_through), true) AND c.relnamespace IS DISTINCT FROM to_regnamespace('pgtrickle_changes')
  AND ((d.source_schema, d.source_name) IS DISTINCT FROM (n.nspname, c.relname) OR EXISTS (
    SELECT FROM unnest(d.names, pgtrickle.names(c.oid)) WITH ORDINALITY name(known, now, number)
    WHERE name.known <> name.now AND (d.named IS NULL OR name.number = ANY (d.named))))
ORDER BY 1";

/// The columns of a relation: the number of each, its name now, and that which the query of a stream table
/// knows. A column that took the name of one that is gone is that one; a column that nobody knew has a name
/// that nobody gives.
const COLUMNS: &str = "
WITH name AS (
    SELECT u.number, u.known, u.now FROM pgtrickle.pgt_dependencies d
    CROSS JOIN LATERAL unnest(coalesce(d.names, pgtrickle.names($2)), pgtrickle.names($2)) WITH ORDINALITY u(known, now, number)
    WHERE d.pgt_id = $1 AND d.source_relid = $2
)
SELECT number, now, coalesce(known, CASE WHEN EXISTS (SELECT FROM name gone WHERE gone.known = name.now AND gone.now IS NULL) THEN now END,
    'trickle ' || number) FROM name WHERE now IS NOT NULL ORDER BY number";

/// The columns of a primary key, on which columns of groups may depend.
const PRIMARY_KEY: &str = "
SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.place) FROM pg_index i
CROSS JOIN LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = $1 AND i.indisprimary AND pgtrickle.is_key(i.indexrelid)";

/// A relation that has other names now, and the table that stands in for it.
struct StandIn {
    oid: u32,
    known: (String, String),
    now: Qualified,
    names: String,
    place: Qualified,
    /// The number, the name now and the name that the query knows, of each column.
    columns: Vec<(i64, String, String)>,
}

impl StandIn {
    async fn of(t: &Transaction<'_>, place: &Place, e: &Entry, r: &Row) -> Result<StandIn> {
        let oid: u32 = r.get(0);
        let columns = t.query(COLUMNS, &[&e.id, &oid]).await.map_err(|err| fail(e, err))?;
        Ok(StandIn {
            oid,
            known: (r.get(1), r.get(2)),
            now: Qualified::new(r.get::<String>(3), r.get::<String>(4)),
            names: r.get(5),
            place: place.qualified(&stand_in(oid)),
            columns: columns.iter().map(|r| (r.get(0), r.get(1), r.get(2))).collect(),
        })
    }

    /// Makes the table, with the names that the query knows.
    async fn make(&self, t: &Transaction<'_>, place: &Place) -> Result<(), crate::db::Refusal> {
        let key: Option<String> = t.query_one(PRIMARY_KEY, &[&self.oid]).await?.get(0);
        let table = place.table(&stand_in(self.oid));
        let mut text = format!("CREATE {table} (LIKE {});", self.now);
        if let Some(key) = key {
            let _ = write!(text, "ALTER TABLE {} ADD PRIMARY KEY ({key});", self.place);
        }
        let columns = self.columns.iter().map(|(n, now, known)| (*n, now.as_str(), known.as_str()));
        text.push_str(&self.rename(columns));
        t.batch_execute(&text).await
    }

    /// Gives its columns the names of now.
    async fn follow(&self, t: &Transaction<'_>) -> Result<(), crate::db::Refusal> {
        let columns = self.columns.iter().map(|(n, now, known)| (*n, known.as_str(), now.as_str()));
        t.batch_execute(&self.rename(columns)).await
    }

    /// Renames columns, of which two may have each other's names.
    fn rename<'a>(&self, columns: impl Iterator<Item = (i64, &'a str, &'a str)>) -> String {
        let (mut apart, mut given) = (String::new(), String::new());
        for (number, from, to) in columns.filter(|(_, from, to)| from != to) {
            let (from, to, between) = (Ident::new(from), Ident::new(to), format!("\"between {number}\""));
            let _ = write!(apart, "ALTER TABLE {} RENAME {from} TO {between};", self.place);
            let _ = write!(given, "ALTER TABLE {} RENAME {between} TO {to};", self.place);
        }
        apart + &given
    }
}

fn stand_in(oid: u32) -> String {
    format!("trickle_stands_in_{oid}")
}

/// The view over the tables that stand in.
const VIEW: &str = "trickle_renamed";

fn fail(e: &Entry, err: crate::db::Refusal) -> Error {
    Error::server(format!("follow what was renamed under {}", shown(e)), err)
}

/// A query by the names of now.
struct Renamed {
    query: String,
    relations: Vec<StandIn>,
}

impl<C: Connection> Trickle<C> {
    /// The definition that makes a stream table again, with its query by the names of now.
    ///
    /// # Errors
    /// PostgreSQL's refusal of the query where a column that it names is gone.
    pub(crate) async fn as_now(&mut self, e: &Entry, name: Name) -> Result<NewStreamTable> {
        let mut new = e.as_new(name);
        if let Some(renamed) = self.by_names_of_now(e).await? {
            new.query = renamed.query;
        }
        Ok(new)
    }

    /// Notes the query of a stream table by the names of now, which changes nothing of what it means. The
    /// stream table as it is then.
    ///
    /// # Errors
    /// Those of [`Trickle::as_now`].
    pub(crate) async fn follow_names(&mut self, e: &Entry) -> Result<Entry> {
        let Some(renamed) = self.by_names_of_now(e).await? else { return Ok(e.clone()) };
        self.progress.say(&format!("{}: something that it reads has another name; following it", shown(e)));
        let db: &mut dyn Connection = &mut self.connection;
        let t = db.transaction().await.map_err(|err| fail(e, err))?;
        let held = t.execute(NOTE_QUERY, &[&e.id, &e.definition, &renamed.query]).await;
        if held.map_err(|err| fail(e, err))? == 0 {
            return Err(Error::stale(format!("somebody else alters {}", shown(e))));
        }
        for r in &renamed.relations {
            let (known, now): (Vec<String>, Vec<String>) =
                r.columns.iter().map(|(_, now, known)| (known.clone(), now.clone())).unzip();
            let schema = r.now.schema.as_ref().map_or("", Ident::as_str);
            let name = r.now.name.as_str();
            let noted = t.execute(NOTE_NAMES, &[&e.id, &r.oid, &schema, &name, &r.names, &known, &now]).await;
            noted.map_err(|err| fail(e, err))?;
        }
        t.commit().await.map_err(|err| fail(e, err))?;
        let registry = self.linked(&[e.relation.id]).await?;
        registry.get(e.id).cloned().ok_or_else(|| Error::stale(format!("{} is gone", shown(e))))
    }

    /// The query of a stream table by the names of now; `None` where it has these.
    async fn by_names_of_now(&mut self, e: &Entry) -> Result<Option<Renamed>> {
        let renamed = self.db().query(RENAMED, &[&e.id]).await.map_err(|err| fail(e, err))?;
        if renamed.is_empty() {
            return Ok(None);
        }
        let db: &mut dyn Connection = &mut self.connection;
        let t = db.transaction().await.map_err(|err| fail(e, err))?;
        let written = written(&t, e, &renamed).await;
        t.rollback().await.map_err(|err| Error::server("roll back", err))?;
        written.map(Some)
    }
}

/// Notes the query `$3` of a stream table `$1`, unless somebody altered it since it was `$2`.
const NOTE_QUERY: &str = "UPDATE pgtrickle.pgt_stream_tables SET defining_query = $3, original_query = $3, updated_at = clock_timestamp() \
     WHERE pgt_id = $1 AND pgtrickle.definition(pgt_id) = $2";

/// Notes the names of a relation `$2`, and of its columns, by which the query of `$1` knows it.
const NOTE_NAMES: &str = "UPDATE pgtrickle.pgt_dependencies SET source_schema = $3, source_name = $4, names = $5::text::text[], \
     columns_used = ARRAY(SELECT coalesce(m.now, u.name) FROM unnest(columns_used) WITH ORDINALITY u(name, place) \
         LEFT JOIN unnest($6::text[], $7::text[]) m(known, now) ON m.known = u.name ORDER BY u.place) \
     WHERE pgt_id = $1 AND source_relid = $2";

async fn written(t: &Transaction<'_>, e: &Entry, renamed: &[Row]) -> Result<Renamed> {
    let doing = |err| fail(e, err);
    let place = Place::of(t).await.map_err(doing)?;
    put_in_force(t, &e.in_force).await.map_err(doing)?;
    let mut all = Vec::new();
    for r in renamed {
        all.push(StandIn::of(t, &place, e, r).await?);
    }
    for s in &all {
        s.make(t, &place).await.map_err(doing)?;
    }
    let query = over_other_tables(&e.query, |schema, name| {
        let named = all.iter().find(|s| schema == Some(s.known.0.as_str()) && name == s.known.1);
        named.map(|s| (s.place.to_string(), stand_in(s.oid)))
    })?;
    let view = format!("{}{}", place.create(VIEW), query.trim_end().trim_end_matches(';'));
    // The message names what is missing by the name that the query knows.
    t.batch_execute(&view).await.map_err(|err| {
        let message = err.message.clone();
        doing(err).saying(message).blamed_on_input()
    })?;
    for s in &all {
        s.follow(t).await.map_err(doing)?;
    }
    t.batch_execute(&format!("SET LOCAL search_path = {SHUT}")).await.map_err(doing)?;
    let text = format!("SELECT {}", canonical("pg_get_viewdef(to_regclass($1)::oid)"));
    let text: String = t.query_one(&text, &[&place.of_name(VIEW)]).await.map_err(doing)?.get(0);
    let query = over_other_tables(&text, |_, name| {
        let stood_for = all.iter().find(|s| name == stand_in(s.oid));
        stood_for.map(|s| (s.now.to_string(), s.now.name.as_str().to_owned()))
    })?;
    Ok(Renamed { query, relations: all })
}
