//! The design of a stream table. The tables of a stream table, and its rows in the catalog, are made from
//! the design.

mod request;

pub use request::{Created, IfExists, NewStreamTable};

use crate::capture::{run_all, run_as_catalog_owner, whole_rows};
use crate::catalog::is_copy;
use crate::db::{Json, Transaction};
use crate::error::{Error, Result};
use crate::in_force::StoredSetting;
use crate::resolve::{Dependency, Resolved};
use crate::security::Agreed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trickle_core::Reason;
use trickle_core::catalog::{TableDef, TableId, TableKind};
use trickle_core::refresh::Relation;
use trickle_core::sql::{Ident, Profile, Qualified};
use trickle_core::stream_table::{Options, StreamTable};
use trickle_core::vocabulary::{Mode, RefreshMode};
use xxhash_rust::xxh64::xxh64;

/// A compiled query that is ready to become a stream table, or to become the new query of one.
pub(crate) struct Design {
    pub(crate) relation: Relation,
    pub(crate) query: String,
    pub(crate) schedule: Option<String>,
    pub(crate) requested: RefreshMode,
    pub(crate) apart: bool,
    pub(crate) resolved: Resolved,
    pub(crate) table: Option<Arc<StreamTable>>,
    pub(crate) reasons: Vec<Reason>,
    /// The tables whose changes are captured, with the columns that the plan reads.
    pub(crate) captured: Vec<(Arc<TableDef>, Vec<usize>)>,
    pub(crate) settings: Vec<StoredSetting>,
    /// The code and tables of other roles to which the owner agreed.
    pub(crate) agreed: Agreed,
}

impl Design {
    /// Returns the mode in which the stream table will be refreshed.
    pub(crate) fn mode(&self) -> Mode {
        let is_incremental = self.table.is_some() && !is_copy(&self.relation);
        match (self.requested, is_incremental) {
            (RefreshMode::Immediate, _) => Mode::Immediate,
            (RefreshMode::Auto | RefreshMode::Differential | RefreshMode::Full, true) => Mode::Differential,
            (RefreshMode::Auto | RefreshMode::Differential | RefreshMode::Full, false) => Mode::Full,
        }
    }

    /// Returns the tables whose changes are written to change buffers, with the columns that the plan reads.
    pub(crate) fn buffered(&self) -> &[(Arc<TableDef>, Vec<usize>)] {
        if self.requested == RefreshMode::Immediate { &[] } else { &self.captured }
    }

    /// Returns the reasons why the stream table is not incremental.
    pub(crate) fn mode_reason(&self) -> Option<String> {
        if is_copy(&self.relation) {
            return Some("it is a copy of what is not captured: all of that is read and compared".to_owned());
        }
        if self.requested == RefreshMode::Full {
            return Some("full refreshes were asked for".to_owned());
        }
        // Places in the query are left out. A session that reads the reason later has another text of the
        // query.
        let anywhere = |r: &Reason| Reason { span: None, ..r.clone() }.to_string();
        let all: Vec<String> = self.reasons.iter().map(anywhere).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    /// Returns the catalog's word for a stream table that is refreshed in a transaction of its own, or
    /// linked.
    pub(crate) fn consistency(&self) -> &'static str {
        consistency(self.apart)
    }

    /// Returns the relations of the query, each with the names of the columns that the plan reads.
    pub(crate) fn reads(&self) -> Vec<(TableId, Vec<String>)> {
        let columns = |d| self.columns_of(d).map(str::to_owned).collect();
        self.resolved.dependencies.iter().map(|d| (TableId(d.oid), columns(d))).collect()
    }

    pub(crate) fn name(&self) -> Qualified {
        Qualified::new(&self.relation.schema, &self.relation.name)
    }

    /// Whether deltas bring the stream table up to date, and a delta may arise from the passing of time
    /// alone.
    pub(crate) fn reads_clock(&self) -> bool {
        self.table.as_deref().is_some_and(StreamTable::reads_clock)
    }

    /// Returns the hash that identifies the stored tables of an incremental query.
    pub(crate) fn layout_hash(&self) -> Option<String> {
        self.table.as_deref().map(layout_hash)
    }

    /// Returns the hash that identifies the plans whose results are stored.
    pub(crate) fn stored_hash(&self) -> Result<Option<String>> {
        self.table.as_deref().map(stored_hash).transpose()
    }

    /// Returns the statement that makes the stored table of a query that full refreshes bring up to date.
    pub(crate) fn create_table(&self) -> String {
        let columns = self.resolved.columns.iter().map(|c| format!("{} {}", Ident::new(&c.name), c.spelled));
        format!("CREATE TABLE {} ({})", self.name(), columns.collect::<Vec<_>>().join(", "))
    }

    /// Makes the stored tables of the stream table, which only its refreshes may write.
    pub(crate) async fn make_tables(&self, t: &Transaction<'_>, id: i64) -> Result<()> {
        let doing = format!("create {}", self.name());
        match &self.table {
            Some(table) => {
                let types: Vec<String> = self.columns().into_iter().map(|c| c.spelled).collect();
                run_all(t, &table.result_ddl(&types), &doing).await?;
                run_as_catalog_owner(t, &table.state_ddl(), &doing).await?;
            }
            None => {
                t.batch_execute(&[self.create_table(), whole_rows(&self.name())].join(";\n"))
                    .await
                    .map_err(|e| Error::server(&doing, e).blamed_on_input())?;
            }
        }
        guard(t, id, &self.name(), &doing).await?;
        t.batch_execute(&comment(id, &self.name())).await.map_err(|e| Error::server(&doing, e))
    }

    /// Writes the stream table into the catalog. From this commit on, a drain keeps each change until the
    /// stream table has read it.
    pub(crate) async fn note(&self, t: &Transaction<'_>, id: i64) -> Result<()> {
        let doing = |e| Error::server("note the stream table", e);
        t.execute(
            "INSERT INTO pgtrickle.pgt_stream_tables (pgt_id, pgt_relid, pgt_schema, pgt_name, defining_query, \
             original_query, schedule, refresh_mode, requested_mode, mode_reason, settings, layout_hash, functions, \
             functions_fingerprint, reads_clock, diamond_consistency, agreed, agreed_by, types, types_fingerprint, \
             agreed_tables, stored_hash, objects, objects_fingerprint) OVERRIDING SYSTEM VALUE \
             VALUES ($1, to_regclass(pg_catalog.format('%I.%I', $2::text, $3::text)), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
             $16, quote_ident(current_user::text)::regrole, $17, $18, $19, $20, $21, $22)",
            &[
                &id,
                &&*self.relation.schema,
                &&*self.relation.name,
                &self.resolved.canonical,
                &self.query,
                &self.schedule,
                &self.mode().name(),
                &self.requested.name(),
                &self.mode_reason(),
                &Json(&self.settings),
                &self.layout_hash(),
                &self.resolved.functions,
                &self.resolved.functions_fingerprint,
                &self.reads_clock(),
                &self.consistency(),
                &self.agreed.functions,
                &self.resolved.code.types,
                &self.resolved.code.types_fingerprint,
                &self.agreed.tables,
                &self.stored_hash()?,
                &self.resolved.code.objects,
                &self.resolved.code.objects_fingerprint,
            ],
        )
        .await
        .map_err(doing)?;
        self.note_dependencies(t, id).await
    }

    /// Returns the columns of a source that the plan reads.
    fn columns_of(&self, d: &Dependency) -> impl Iterator<Item = &str> {
        let captured = self.captured.iter().filter(|(t, _)| t.id.0 == d.oid);
        captured.flat_map(|(t, columns)| columns.iter().filter_map(|c| t.columns.get(*c))).map(|c| &*c.name)
    }

    /// Returns the oids of the query's relations, each with the set of columns that the plan reads.
    pub(crate) fn read_columns(&self) -> BTreeMap<u32, BTreeSet<&str>> {
        self.resolved.dependencies.iter().map(|d| (d.oid, self.columns_of(d).collect())).collect()
    }

    /// Writes into the catalog which relations the query reads, with their definitions as they were when the
    /// plan was made.
    pub(crate) async fn note_dependencies(&self, t: &Transaction<'_>, id: i64) -> Result<()> {
        for d in &self.resolved.dependencies {
            // Sequences count as tables, and so do TOAST tables, which hold values out of line (see the
            // manual, pg_class).
            let kind = match (d.is_stream_table, d.relkind.as_str()) {
                (true, _) => TableKind::StreamTable,
                (false, "v") => TableKind::View,
                (false, "m") => TableKind::MaterializedView,
                (false, "f") => TableKind::ForeignTable,
                (false, "r" | "p" | "S" | "t") => TableKind::Table,
                (false, other) => {
                    let text =
                        format!("{}.{} is a relation of an unknown kind, \"{other}\"", d.schema, d.name);
                    return Err(Error::input(text));
                }
            };
            let used: Vec<&str> = self.columns_of(d).collect();
            t.execute(
                "INSERT INTO pgtrickle.pgt_dependencies (pgt_id, source_relid, source_type, source_schema, source_name, \
                 columns_used, schema_fingerprint, read_through, row_security, column_names, named_columns, relied, parts) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                 $10::text::text[], $11::text::int2[], CASE WHEN pgtrickle.fingerprint($2) = $7 THEN pgtrickle.relied($2, pgtrickle.numbers($2, $6)) END, \
                 CASE WHEN pgtrickle.fingerprint($2) = $7 THEN pgtrickle.parts($2, false) END)",
                &[
                    &id,
                    &d.oid,
                    &kind.name(),
                    &d.schema,
                    &d.name,
                    &used,
                    &d.fingerprint,
                    &d.read_through,
                    &d.row_security,
                    &d.names,
                    &d.named,
                ],
            )
            .await
            .map_err(|e| Error::server("note what the query reads", e))?;
        }
        Ok(())
    }
}

/// Returns the engine's options for a stream table of this name and id.
pub(crate) fn options(relation: &Relation, id: i64, server: u32) -> Options {
    let mut options = Options::new(&*relation.schema, &*relation.name);
    options.state_prefix = format!("state_{id}");
    options.profile = Profile::postgres(server);
    options
}

/// Returns a hash of the plans whose results are stored. Plans with equal hashes have the same stored
/// results.
fn stored_hash(table: &StreamTable) -> Result<String> {
    Ok(format!("{:016x}", xxh64(table.explain_stored()?.as_bytes(), 0)))
}

/// Returns a hash of the stored tables of a plan. A plan is run only over stored tables with the same hash.
pub(crate) fn layout_hash(table: &StreamTable) -> String {
    let texts: Vec<String> = table.ddl().iter().map(ToString::to_string).collect();
    format!("{:016x}", xxh64(texts.join(";").as_bytes(), 0))
}

/// Returns the catalog's word for a stream table that is refreshed in a transaction of its own (`apart`), or
/// linked.
pub(crate) fn consistency(apart: bool) -> &'static str {
    if apart { "none" } else { "atomic" }
}

/// Returns the statement that sets the comment of a stored table, which names its stream table.
pub(crate) fn comment(id: i64, table: &Qualified) -> String {
    format!(
        "COMMENT ON TABLE {table} IS 'Stream table {id} of trickle: kept equal to its query; do not write it.'"
    )
}

/// Makes the trigger that lets only refreshes write to a stored table, and refuses all other writes. The
/// trigger also has the id of the stream table as its argument, and only the owner of the table can make it.
/// So a search by name for the tables of a restored catalog trusts this trigger alone.
pub(crate) async fn guard(t: &Transaction<'_>, id: i64, table: &Qualified, doing: &str) -> Result<()> {
    let text = format!(
        "CREATE OR REPLACE TRIGGER trickle_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} \
         FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle.refuse_writes('{id}')"
    );
    t.batch_execute(&text).await.map_err(|e| Error::server(doing, e))
}
