//! Creates stream tables. Makes the tables of a stream table and the capture of its sources, writes the
//! stream table into the catalog, and fills it. Submodules choose its place (`place`) and design it from its
//! query (`from_query`, `sources`, `design`).

mod design;
mod from_query;
mod place;
mod sources;

use crate::alter::{Readers, Replacement};
use crate::capture;
use crate::db::{RefreshDriver, Transaction};
use crate::error::{Error, Result};
use crate::locks::{oids, patiently};
use crate::names::Name;
use crate::say::Voice;
use crate::schema;
use crate::security::{Agreed, left_out};
use crate::trickle::Trickle;
use trickle_core::Reason;
use trickle_core::refresh::{Relation, Setting};
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::{Mode, RefreshMode};

pub(crate) use design::Design;

/// The action where a stream table of the requested name exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Return an error.
    #[default]
    Fail,
    /// Do nothing.
    Skip,
    /// Give the existing stream table the new query. Its indexes, grants, comments and dependent views stay.
    Replace,
}

/// A request for a new stream table.
#[derive(Clone, Debug)]
pub struct NewStreamTable {
    /// The name of the stream table. Without a schema, the table is made in the first schema of the search
    /// path.
    pub name: Name,
    /// The defining query.
    pub query: String,
    /// The schedule; `Some(None)` means that only refreshes by hand are made. `None` takes the schedule of
    /// the stream table that is replaced, or `calculated` where none is replaced.
    pub schedule: Option<Option<String>>,
    /// The mode. `None` takes the mode of the stream table that is replaced, or [`RefreshMode::Auto`] where
    /// none is replaced.
    pub mode: Option<RefreshMode>,
    /// Whether to fill the stream table when it is created.
    pub initialize: bool,
    /// The action where a stream table of that name exists already.
    pub if_exists: IfExists,
    /// Whether materialized views and foreign tables are followed. Each refresh then reads all of them and
    /// compares them with copies. Where they are not followed, they rule out deltas. The value `false` has no
    /// effect where the stream table that is replaced reads copies.
    pub snapshots: bool,
    /// Whether the stream table is refreshed in a transaction of its own, after the stream tables that it
    /// reads ([`apart`](trickle_core::dag::StreamTableNode::apart)). Otherwise it is linked with them. `None`
    /// takes the value of the stream table that is replaced; where none is replaced, the tables are linked.
    pub apart: Option<bool>,
    /// The settings that decide the meaning of the query; `None` takes the settings of the session.
    pub settings: Option<Vec<Setting>>,
    /// The code and tables of other roles to which the owner has agreed. With `None`, the request agrees to
    /// all code and tables of other roles that the query uses now.
    pub agreed: Option<Agreed>,
}

impl NewStreamTable {
    /// Makes a request with the defaults: the schedule that its readers need, the incremental mode where
    /// possible, and a first fill at creation. If the request replaces a stream table, the schedule and the
    /// mode of that table are used.
    pub fn new(name: Name, query: impl Into<String>) -> NewStreamTable {
        NewStreamTable {
            name,
            query: query.into(),
            schedule: None,
            mode: None,
            initialize: true,
            if_exists: IfExists::Fail,
            snapshots: false,
            apart: None,
            settings: None,
            agreed: None,
        }
    }

    /// Returns the settings to put in force for the query.
    pub(crate) fn settings(&self) -> &[Setting] {
        self.settings.as_deref().unwrap_or_default()
    }
}

/// The result of creating or changing a stream table.
#[derive(Clone, Debug)]
pub struct Created {
    /// The `pgt_id` of the stream table, also where creation was skipped because the stream table existed.
    pub id: i64,
    /// `schema.name` of the stream table, quoted where needed.
    pub name: String,
    /// Whether the call made or changed anything.
    pub made: bool,
    /// The mode in force.
    pub mode: Mode,
    /// The reasons why the stream table is not incremental.
    pub reasons: Vec<Reason>,
}

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
            Some(own) if own == schema::CATALOG || own == capture::HIDDEN => {
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

    /// Reports the schemas that refreshes leave out of the search path. For a new table that is built beside
    /// a stream table, the report was already made for the stream table.
    pub(crate) async fn tell_left_out(&self, design: &Design) -> Result<()> {
        if &*design.relation.schema != capture::HIDDEN
            && let Some(left) = left_out(self.db(), design).await?
        {
            self.progress.say(&left);
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
