//! Creates stream tables. Makes the tables of a stream table and the capture of its sources, writes the
//! stream table into the catalog, and fills it. Submodules choose its place (`place`) and design it from its
//! query (`from_query`, `sources`).

mod from_query;
mod place;
mod sources;

use crate::alter::{Readers, Replacement};
use crate::capture;
use crate::db::RefreshDriver;
use crate::design::{Created, Design, IfExists, NewStreamTable};
use crate::error::{Error, Result};
use crate::in_force::left_out;
use crate::locks::{oids, patiently};
use crate::names::{CATALOG, HIDDEN, Name};
use crate::say::Voice;
use crate::trickle::Trickle;
use trickle_core::refresh::Relation;
use trickle_core::sql::Qualified;

impl<C: RefreshDriver> Trickle<C> {
    /// Makes a stream table and fills it.
    ///
    /// # Errors
    /// The name, query, schedule or mode is wrong. After an error nothing is changed.
    pub async fn create(&mut self, new: &NewStreamTable) -> Result<Created> {
        self.require_foreign_schema(&new.name)?;
        if !new.snapshots {
            return self.create_over(new).await;
        }
        let made = match self.ensure_copies(&new.query).await {
            Ok(()) => self.create_over(new).await,
            Err(e) => Err(e),
        };
        // A copy that no stream table reads is dropped even after an error.
        let swept = self.sweep_copies().await;
        made.and_then(|made| swept.map(|()| made))
    }

    /// Returns an error where the schema is one of trickle's own, which are made and dropped together with
    /// the catalog.
    fn require_foreign_schema(&self, name: &Name) -> Result<()> {
        match name.schema.as_ref().or(self.search_path.first()) {
            Some(own) if own == CATALOG || own == HIDDEN => {
                Err(Error::input(format!("schema {own} belongs to trickle"))
                    .hint("Make the stream table in a schema of your own."))
            }
            _ => Ok(()),
        }
    }

    /// Makes a stream table over the copies that exist.
    pub(crate) async fn create_over(&mut self, new: &NewStreamTable) -> Result<Created> {
        let (relation, taken) = self.place(&new.name).await?;
        if let Some(id) = taken {
            return self.taken(new, relation, id).await;
        }
        self.forget_gone(&relation).await?;
        let id = self.next_id().await?;
        let design = self.design_fitting(relation, id, new).await?;
        self.tell_left_out(&design).await?;
        let name = Qualified::new(&design.relation.schema, &design.relation.name).to_string();
        let tables = oids(design.captured.iter().map(|(t, _)| t.id));
        let (patience, capture, progress) =
            (self.settings.patience, self.settings.capture, self.progress.clone());
        patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            design.make_tables(t, id).await?;
            design.note(t, id).await?;
            for (table, columns) in design.buffered() {
                capture::ensure(t, table, columns, capture).await?;
            }
            Ok(())
        })
        .await
        .map_err(|e| overtaken(e, self.voice()))?;
        if new.initialize
            && let Err(e) = self.fill(id).await
        {
            self.drop_id(id, false).await?;
            return Err(e);
        }
        Ok(Created { id, name, made: true, mode: design.mode(), reasons: design.reasons })
    }

    /// Reports the schemas that refreshes leave out of the search path. Only a query that calls functions
    /// gets a report, since only functions could look in these schemas. For a new table that is built beside
    /// a stream table, the report was already made for the stream table.
    pub(crate) async fn tell_left_out(&self, design: &Design) -> Result<()> {
        if &*design.relation.schema == HIDDEN || design.resolved.functions.is_empty() {
            return Ok(());
        }
        let left = left_out(self.db(), &design.settings).await?;
        if !left.is_empty() {
            self.progress.say(&format!(
                "{}: functions of its query find nothing in schema {} by search_path, since others may create there",
                design.name(),
                left.join(", ")
            ));
        }
        Ok(())
    }

    /// Deletes the stream table of this name from the catalog if somebody dropped its table.
    async fn forget_gone(&mut self, relation: &Relation) -> Result<()> {
        let text = "SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_schema = $1 AND s.pgt_name = $2 \
             AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.pgt_relid)";
        let gone = self.db().query_opt(text, &[&&*relation.schema, &&*relation.name]).await;
        match gone.map_err(|e| Error::server("look for a stream table of this name", e))? {
            Some(row) => self.drop_id(row.get(0), false).await.map(drop),
            None => Ok(()),
        }
    }

    /// Takes the action of [`IfExists`] where a stream table has the name already.
    async fn taken(&mut self, new: &NewStreamTable, relation: Relation, id: i64) -> Result<Created> {
        let name = Qualified::new(&relation.schema, &relation.name).to_string();
        let registry = self.linked(&[relation.id]).await?;
        let there = registry.get(id);
        match new.if_exists {
            IfExists::Fail => {
                let error = Error::input(format!("stream table {name} already exists")).coded("42P07");
                Err(if there.is_some_and(|e| !e.is_populated) {
                    error
                        .detail("It was never filled: whoever created it left it empty, or ended before it was filled.")
                        .hint(format!("{} fills it; {} drops it.", self.voice().refresh(&name), self.voice().drop(&name)))
                } else {
                    error.hint(self.voice().one(
                        "Use --or-replace to give it this query, or --if-not-exists to keep the one that is there.",
                        "Use pgtrickle.create_or_replace_stream_table to give it this query, or \
                         create_stream_table_if_not_exists to keep the one that is there.",
                    ))
                })
            }
            IfExists::Skip => {
                let e =
                    there.ok_or_else(|| Error::busy(format!("stream table {name} was dropped meanwhile")))?;
                Ok(Created { id, name, made: false, mode: e.mode, reasons: Vec::new() })
            }
            IfExists::Replace => {
                let new = NewStreamTable {
                    schedule: new.schedule.clone().or(there.map(|e| e.schedule.clone())),
                    mode: new.mode.or(there.map(|e| e.requested)),
                    apart: new.apart.or(there.map(|e| e.apart)),
                    ..new.clone()
                };
                self.replace(relation, id, &new, Replacement::Same(Readers::Stay)).await
            }
        }
    }

    async fn next_id(&self) -> Result<i64> {
        let text = "SELECT nextval(pg_get_serial_sequence('pgtrickle.pgt_stream_tables', 'pgt_id'))";
        Ok(self
            .db()
            .query_one(text, &[])
            .await
            .map_err(|e| Error::server("number a stream table", e))?
            .get(0))
    }
}

/// Adds a hint to the error that another session has just made an object of this name.
fn overtaken(e: Error, voice: Voice) -> Error {
    match e.sqlstate() {
        Some("42P07" | "42710" | "23505") => e.blamed_on_input().hint(format!(
            "Somebody made something of this name just now: look at it with {}.",
            voice.one("trickle status", "SELECT * FROM pgtrickle.pgt_status()")
        )),
        _ => e,
    }
}
