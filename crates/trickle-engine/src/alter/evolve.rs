//! Changes the result table of a stream table in place, so that the table fits another query. The result
//! table stays the same object for users.

use crate::alter::Readers;
use crate::capture;
use crate::catalog::spelled;
use crate::db::{Connection, Transaction};
use crate::design::{Design, guard};
use crate::drop::drop_states;
use crate::error::{Error, Result};
use crate::registry::{Entry, shown};
use crate::resolve::{OWN_COLLATION, OutputColumn};
use trickle_core::apply::{StoredColumn, index_names};
use trickle_core::sql::ast::Statement;
use trickle_core::sql::{Ident, print};
use trickle_core::vocabulary::Capture;

/// Changes the result table in place so that it fits a design, and drops the states. The result table stays
/// the same object, so its columns must keep their order.
pub(super) async fn evolve(
    t: &Transaction<'_>,
    old: &Entry,
    design: &Design,
    readers: Readers,
) -> Result<()> {
    let doing = format!("change {}", shown(old));
    let fail = |err| kept(Error::server(&doing, err));
    t.batch_execute("SET LOCAL pgtrickle.refreshing = 'on'").await.map_err(fail)?;
    drop_states(t, old.id, &doing).await?;
    let before = columns_of(&**t, old).await?;
    let table = shown(old);
    let after = design.columns();
    let gone = gone(&before, &after);
    if readers == Readers::Stay {
        require_unread(&**t, old, &gone.dropped).await?;
    }
    release_capture(t, old, &[gone.dropped, gone.retyped].concat()).await?;
    let kept_key = kept_key(&primary_key(t, old, &doing).await?, design, &before, &after);
    for text in drop_identity(t, old, &kept_key, &doing).await? {
        t.batch_execute(&text).await.map_err(fail)?;
    }
    for text in changes(&table, &before, &after).ok_or_else(|| another_order(&table))? {
        t.batch_execute(&text).await.map_err(fail)?;
    }
    // Rows of the former query may violate the new key. If they do, all rows are deleted.
    let new = |s: &&Statement| kept_key.is_empty() || !matches!(s, Statement::AddPrimaryKey(_));
    let identity: Vec<String> = design.identity().iter().filter(new).map(|s| print(s).text).collect();
    if !identity.is_empty() && t.attempt(&identity.join(";\n")).await.is_err() {
        t.batch_execute(&format!("DELETE FROM {table}")).await.map_err(fail)?;
        t.batch_execute(&identity.join(";\n")).await.map_err(fail)?;
    }
    t.batch_execute(&replica_identity(t, old, &doing).await?).await.map_err(fail)?;
    guard(t, old.id, &design.name(), &doing).await
}

/// Returns the statement that corrects the replica identity of a stored table: the primary key, or all
/// columns where the table has no primary key. An index that the user chose as replica identity stays. The
/// text is empty where the replica identity is right already.
async fn replica_identity(t: &Transaction<'_>, old: &Entry, doing: &str) -> Result<String> {
    let text = "SELECT coalesce(pg_catalog.format('ALTER TABLE %s REPLICA IDENTITY ', c.oid::regclass) || \
         CASE WHEN k.is_keyed AND c.relreplident = 'f' THEN 'DEFAULT' WHEN NOT k.is_keyed AND c.relreplident = 'd' THEN 'FULL' END, '') \
         FROM pg_class c CROSS JOIN LATERAL (SELECT EXISTS ( \
            SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)) k(is_keyed) WHERE c.oid = $1";
    let row = t.query_one(text, &[&old.relation.id.0]).await.map_err(|e| Error::server(doing, e))?;
    Ok(row.get(0))
}

fn another_order(table: &str) -> Error {
    Error::input(format!("the columns of the new query are in another order than those of {table}"))
        .detail(
            "A table cannot be given columns in the middle, and views may depend on the ones that it has.",
        )
        .hint("Put new columns last, or drop the stream table and create it anew.")
}

/// The columns of a table that do not survive a change to new columns.
pub(super) struct Gone {
    /// Columns whose names are not among the new columns.
    pub(super) dropped: Vec<String>,
    /// Columns that get another type.
    pub(super) retyped: Vec<String>,
}

fn gone(before: &[OutputColumn], after: &[OutputColumn]) -> Gone {
    let of = |b: &&OutputColumn| after.iter().find(|a| a.name == b.name);
    let (kept, dropped): (Vec<&OutputColumn>, Vec<&OutputColumn>) =
        before.iter().partition(|b| of(b).is_some());
    let retyped = kept.into_iter().filter(|b| of(b).is_some_and(|a| !a.has_type_of(b)));
    let names = |columns: Vec<&OutputColumn>| columns.into_iter().map(|c| c.name.clone()).collect();
    Gone { dropped: names(dropped), retyped: names(retyped.collect()) }
}

/// Returns the columns that a stream table loses when it gets the columns `after`.
///
/// # Errors
/// The columns that stay would get another order, which the table cannot take.
pub(super) async fn lost(db: &dyn Connection, old: &Entry, after: &[OutputColumn]) -> Result<Gone> {
    let (before, table) = (columns_of(db, old).await?, shown(old));
    changes(&table, &before, after).map(|_| gone(&before, after)).ok_or_else(|| another_order(&table))
}

/// The user's indexes, constraints and statistics over the columns `$2` of table `$1`. All of these are
/// dropped together with the columns. `$3` are the names of the indexes that trickle made.
const OVER: &str = "SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
    JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND a.attname = ANY ($2) AND d.deptype = 'a'
    AND NOT EXISTS (SELECT FROM pg_class c WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relname = ANY ($3))
    AND NOT EXISTS (SELECT FROM pg_constraint k WHERE d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
        AND k.contype IN ('p', 'n')) ORDER BY 1";

/// Describes the losses of a stream table that gets the columns `after`: its lost columns, and the user's
/// objects that are dropped with them.
///
/// # Errors
/// The columns that stay would get another order, which the table cannot take.
pub(crate) async fn loses(db: &dyn Connection, old: &Entry, after: &[OutputColumn]) -> Result<Vec<String>> {
    let dropped = lost(db, old, after).await?.dropped;
    let own = index_names(&Ident::new(&old.relation.name)).map(|n| n.as_str().to_owned()).to_vec();
    let over = db.query(OVER, &[&old.relation.id.0, &dropped, &own]).await;
    let over =
        over.map_err(|e| Error::server(format!("look what goes with columns of {}", shown(old)), e))?;
    let columns = dropped.iter().map(|c| format!("column {}", Ident::new(c)));
    Ok(columns.chain(over.iter().map(|r| r.get(0))).collect())
}

/// Returns an error where another stream table reads one of the columns to drop.
pub(super) async fn require_unread(db: &dyn Connection, old: &Entry, dropped: &[String]) -> Result<()> {
    let text = "SELECT pg_catalog.format('%I.%I', s.pgt_schema, s.pgt_name), u.name \
         FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
         CROSS JOIN LATERAL unnest(d.columns_used) u(name) \
         WHERE d.source_relid = $1 AND u.name = ANY ($2) ORDER BY 1, 2 LIMIT 1";
    let reader = db.query_opt(text, &[&old.relation.id.0, &dropped.to_vec()]).await;
    let reader = reader.map_err(|e| Error::server(format!("look who reads {}", shown(old)), e))?;
    let Some(row) = reader else { return Ok(()) };
    let (reader, column): (&str, &str) = (row.get(0), row.get(1));
    Err(Error::input(format!("{reader} reads the column {column} of {}", shown(old)))
        .hint(format!("Give {reader} a query without it first, or drop it.")))
}

/// Switches off the capture of the result table where a captured column is dropped or gets another type, even
/// if nobody reads the column any more. Readers of the table are planned again afterwards, and capture the
/// new columns.
async fn release_capture(t: &Transaction<'_>, old: &Entry, gone: &[String]) -> Result<()> {
    let text = "SELECT EXISTS (SELECT FROM pgtrickle.pgt_buffers b CROSS JOIN LATERAL jsonb_array_elements(b.segments) s \
         CROSS JOIN LATERAL jsonb_array_elements_text(s->'columns') n JOIN pg_attribute a \
         ON a.attrelid = b.source_relid AND a.attnum = n::int2 \
         WHERE b.source_relid = $1 AND b.capture = 'ON' AND a.attname = ANY ($2))";
    let read = t.query_one(text, &[&old.relation.id.0, &gone.to_vec()]).await;
    let read = read.map_err(|e| Error::server(format!("look who reads {}", shown(old)), e))?;
    match read.get(0) {
        true => capture::switch_off(t, old.relation.id.0, Capture::Off).await,
        false => Ok(()),
    }
}

/// Returns the columns of the result table.
async fn columns_of(db: &dyn Connection, old: &Entry) -> Result<Vec<OutputColumn>> {
    let text = format!(
        "SELECT attname, {} || {OWN_COLLATION} FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
         WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        spelled("atttypid", "atttypmod")
    );
    let columns = db.query(&text, &[&old.relation.id.0]).await;
    let columns = columns.map_err(|e| Error::server(format!("read the columns of {}", shown(old)), e))?;
    Ok(columns.iter().map(|c| OutputColumn::new(c.get(0), c.get(1))).collect())
}

/// Whether the result table has exactly these columns.
pub(crate) async fn has_columns(db: &dyn Connection, e: &Entry, columns: &[OutputColumn]) -> Result<bool> {
    let there = columns_of(db, e).await?;
    Ok(there.len() == columns.len() && columns.iter().zip(&there).all(|(c, there)| c.is(there)))
}

/// Whether the result table can get the columns `after` and stay the same object.
pub(crate) async fn can_become(db: &dyn Connection, old: &Entry, after: &[OutputColumn]) -> Result<bool> {
    Ok(changes("", &columns_of(db, old).await?, after).is_some())
}

/// Adds a hint to the error by which PostgreSQL refuses a change because of a dependent object. trickle never
/// drops an object of the user's.
pub(super) fn kept(e: Error) -> Error {
    match e.sqlstate() {
        Some("2BP01" | "0A000") => {
            e.blamed_on_input().hint("Drop what depends on it, alter the stream table, and make it again.")
        }
        _ => e,
    }
}

/// Returns the columns of the primary key of a stored table.
async fn primary_key(t: &Transaction<'_>, old: &Entry, doing: &str) -> Result<Vec<String>> {
    let text = "SELECT a.attname FROM pg_constraint c CROSS JOIN LATERAL unnest(c.conkey) WITH ORDINALITY k(attnum, n) \
         JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum \
         WHERE c.conrelid = $1 AND c.contype = 'p' ORDER BY k.n";
    let rows = t.query(text, &[&old.relation.id.0]).await.map_err(|e| Error::server(doing, e))?;
    Ok(rows.iter().map(|r| r.get(0)).collect())
}

/// Returns the columns of the primary key where the new design has the same key over unchanged columns, and
/// no columns otherwise. Such a key is not dropped, since foreign keys of the user's may depend on it.
fn kept_key(
    present: &[String],
    design: &Design,
    before: &[OutputColumn],
    after: &[OutputColumn],
) -> Vec<String> {
    let primary = |s: &Statement| match s {
        Statement::AddPrimaryKey(p) => Some(p.columns.iter().map(|c| c.as_str().to_owned()).collect()),
        _ => None,
    };
    let wanted: Vec<String> = design.identity().iter().find_map(primary).unwrap_or_default();
    let same = |name: &String| {
        let (before, after) =
            (before.iter().find(|c| c.name == *name), after.iter().find(|c| c.name == *name));
        before.zip(after).is_some_and(|(before, after)| after.is(before))
    };
    if wanted == present && wanted.iter().all(same) { wanted } else { Vec::new() }
}

/// Returns the statements that drop the primary key of a stored table, the index that trickle made, and the
/// NOT NULL constraints. The primary key stays if the new design has the same key.
async fn drop_identity(
    t: &Transaction<'_>,
    old: &Entry,
    kept_key: &[String],
    doing: &str,
) -> Result<Vec<String>> {
    let names = index_names(&Ident::new(&old.relation.name)).map(|n| n.as_str().to_owned()).to_vec();
    let rows = t
        .query(
            "SELECT pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint \
             WHERE conrelid = $1 AND contype = 'p' AND $3 \
             UNION ALL SELECT pg_catalog.format('DROP INDEX %s', c.oid::regclass) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
             WHERE i.indrelid = $1 AND NOT i.indisprimary \
             AND c.relname = ANY ($2)",
            &[&old.relation.id.0, &names, &kept_key.is_empty()],
        )
        .await
        .map_err(|e| Error::server(doing, e))?;
    let mut texts: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    let rows = t
        .query(
            "SELECT pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', attrelid::regclass, attname) \
             FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND attnotnull AND NOT attisdropped \
             AND attname <> ALL ($2)",
            &[&old.relation.id.0, &kept_key],
        )
        .await
        .map_err(|e| Error::server(doing, e))?;
    texts.extend(rows.iter().map(|r| r.get::<String>(0)));
    Ok(texts)
}

/// Returns the statements that turn the columns `before` of a table into the columns `after`. The statements
/// drop columns, change types, and add columns at the end. Returns `None` where the columns that stay would
/// get another order, or a new column would come before one of them.
fn changes(table: &str, before: &[OutputColumn], after: &[OutputColumn]) -> Option<Vec<String>> {
    let stays: Vec<&OutputColumn> =
        before.iter().filter(|b| after.iter().any(|a| a.name == b.name)).collect();
    let prefix = after.get(..stays.len())?;
    if !stays.iter().zip(prefix).all(|(b, a)| b.name == a.name) {
        return None;
    }
    let mut texts = Vec::new();
    for b in before.iter().filter(|b| !after.iter().any(|a| a.name == b.name)) {
        texts.push(format!("ALTER TABLE {table} DROP COLUMN {}", Ident::new(&b.name)));
    }
    for (b, a) in stays.iter().zip(prefix).filter(|(b, a)| !a.has_type_of(b)) {
        // The old values are not needed, since the table is filled after the change.
        let (name, ty) = (Ident::new(&b.name), &a.spelled);
        texts.push(format!("ALTER TABLE {table} ALTER COLUMN {name} TYPE {ty} USING NULL::{ty}"));
    }
    for a in &after[stays.len()..] {
        texts.push(format!("ALTER TABLE {table} ADD COLUMN {} {}", Ident::new(&a.name), a.spelled));
    }
    Some(texts)
}

impl Design {
    /// Returns the columns of the result table.
    pub(crate) fn columns(&self) -> Vec<OutputColumn> {
        match &self.table {
            Some(table) => {
                // A column of a domain type would have its values checked at each refresh, although the query
                // does not check them.
                let column = |(stored, of): (&StoredColumn, &OutputColumn)| OutputColumn {
                    spelled: of.base.clone().unwrap_or_else(|| of.spelled.clone()),
                    former: stored.ty.collation().is_none().then(|| stored.ty.unmodified().sql_name()),
                    ..of.clone()
                };
                table.layout().result.columns.iter().zip(&self.resolved.columns).map(column).collect()
            }
            None => self.resolved.columns.clone(),
        }
    }

    /// Returns the statements that make the key, or the index, by which a refresh finds rows of the result
    /// table.
    pub(crate) fn identity(&self) -> Vec<Statement> {
        self.table.iter().flat_map(|t| t.identity_ddl()).collect()
    }

    /// Returns the statements that make the states.
    pub(super) fn state_tables(&self) -> Vec<Statement> {
        self.table.iter().flat_map(|t| t.state_ddl()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputColumn, changes};

    fn columns(list: &str) -> Vec<OutputColumn> {
        let column = |c: &str| c.split_once(' ').map(|(n, t)| OutputColumn::new(n.into(), t.into()));
        list.split(", ").filter_map(column).collect()
    }

    #[test]
    fn a_table_takes_new_columns_at_its_end_only() {
        let to = |a: &str, b: &str| changes("t", &columns(a), &columns(b));
        assert_eq!(to("a int, b text", "a int, b text"), Some(vec![]));
        let expected =
            ["DROP COLUMN b", "ALTER COLUMN c TYPE bigint USING NULL::bigint", "ADD COLUMN d date"];
        let found = to("a int, b text, c int", "a int, c bigint, d date").unwrap();
        assert_eq!(found, expected.map(|e| format!("ALTER TABLE t {e}")));
        assert_eq!(to("a int, b text", "b text, a int"), None);
        assert_eq!(to("a int, b text", "a int, x int, b text"), None);
    }
}
