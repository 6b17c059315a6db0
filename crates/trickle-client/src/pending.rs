//! What has changes to apply, asked of many stream tables at once.

use crate::capture::HIDDEN;
use crate::copies::is_copy;
use crate::error::{Error, Result};
use crate::refresh::RefreshOptions;
use crate::registry::{Dependency, Entry, Runnable, shown};
use crate::trickle::Trickle;
use std::borrow::Borrow;
use tokio_postgres::Statement;
use trickle_core::catalog::TableId;
use trickle_core::refresh::{Reader, Relation, Source, peek_text};
use trickle_core::sql::Qualified;

/// Questions which tables have changes that are kept prepared: a refresher asks of those that it looks at equally often.
const QUESTIONS: usize = 8;

impl Trickle {
    /// Which stream tables a refresh with these options would have anything to do for; one round trip for all of them.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn pending<E: Borrow<Entry>>(
        &mut self,
        entries: &[E],
        options: &RefreshOptions,
    ) -> Result<Vec<i64>> {
        let entries: Vec<&Entry> = entries.iter().map(Borrow::borrow).collect();
        self.look(&entries, options, true).await
    }

    /// The same, of what the catalog lists of them, which is all that their plans read and maybe more: what is not among
    /// these has nothing to do. None of them is planned for it.
    pub(crate) async fn candidates(
        &mut self,
        entries: &[&Entry],
        options: &RefreshOptions,
    ) -> Result<Vec<i64>> {
        self.look(entries, options, false).await
    }

    /// Asks which of these have changes, of what their plans read or of what the catalog lists. To make the question for
    /// many tables, and to plan it, takes longer than to answer it: it is kept prepared while they are as they were.
    async fn look(
        &mut self,
        entries: &[&Entry],
        options: &RefreshOptions,
        planned: bool,
    ) -> Result<Vec<i64>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let fail = |e| Error::server("look for changes", e);
        let known = self.questions.iter().position(|q| q.is_of(entries, options, planned));
        let question = match known.map(|i| self.questions.remove(i)) {
            Some(known) => known,
            None => {
                let mut sources: Vec<Vec<Source>> = Vec::new();
                for e in entries {
                    sources.push(match planned {
                        true => {
                            Trickle::require_own(e)?;
                            sources_of(e, &self.runnable(e).await?)?
                        }
                        false => listed_sources(e),
                    });
                }
                let with_sources = entries.iter().zip(&sources);
                let readers: Vec<Reader<'_>> =
                    with_sources.map(|(e, sources)| reader(e, sources, options)).collect();
                let statement = self.client().prepare(&peek_text(&readers)).await.map_err(fail)?;
                Question::new(entries, options, planned, statement)
            }
        };
        let rows = self.client().query(&question.statement, &[]).await.map_err(fail)?;
        self.questions.insert(0, question);
        self.questions.truncate(QUESTIONS);
        Ok(rows.iter().map(|r| r.get(0)).collect())
    }
}

/// The question which of some stream tables have changes, prepared on a connection.
#[derive(Debug)]
pub(crate) struct Question {
    of: Vec<Asked>,
    planned: bool,
    statement: Statement,
}

/// A stream table that is asked of.
#[derive(Debug)]
struct Asked {
    id: i64,
    definition: String,
    polled: bool,
    timed: bool,
}

impl Question {
    fn new(entries: &[&Entry], options: &RefreshOptions, planned: bool, statement: Statement) -> Question {
        let asked = |e: &&Entry| Asked {
            id: e.id,
            definition: e.definition.clone(),
            polled: options.polls(e),
            timed: e.reads_clock,
        };
        Question { of: entries.iter().map(asked).collect(), planned, statement }
    }

    fn is_of(&self, entries: &[&Entry], options: &RefreshOptions, planned: bool) -> bool {
        let same = |(a, e): (&Asked, &&Entry)| {
            a.id == e.id
                && a.definition == e.definition
                && a.polled == options.polls(e)
                && a.timed == e.reads_clock
        };
        self.planned == planned && self.of.len() == entries.len() && self.of.iter().zip(entries).all(same)
    }
}

/// A stream table, for the question whether it has anything to do.
pub(crate) fn reader<'s>(e: &Entry, sources: &'s [Source], options: &RefreshOptions) -> Reader<'s> {
    let (unseen, timed) = (e.unseen().is_some(), e.reads_clock);
    Reader { id: e.id, sources, polled: options.polls(e), unseen, timed }
}

/// What a stream table reads, as the catalog lists it: all that its plan reads, and maybe more.
pub(crate) fn listed_sources(e: &Entry) -> Vec<Source> {
    e.read().map(|d| source(e, d, e.mode != "FULL" || !d.columns.is_empty())).collect()
}

/// A source, with the buffer that holds its changes where they are `wanted` of it.
fn source(e: &Entry, d: &Dependency, wanted: bool) -> Source {
    let id = d.relation.id;
    let changes = d.buffer.filter(|_| wanted).map(|oid| Relation {
        id: TableId(oid),
        schema: HIDDEN.into(),
        name: format!("changes_{id}").into(),
    });
    let uncaptured = match wanted && d.held {
        true => Some(held(&d.relation).into()),
        false => is_copy(&e.relation).then(|| compared(&d.relation).into()),
    };
    Source { relation: d.relation.clone(), kind: d.kind, changes, uncaptured }
}

/// Why nothing is known of the changes of a source whose capture the user holds off.
fn held(source: &Relation) -> String {
    let name = Qualified::new(&source.schema, &source.name);
    format!("trickle disable switched the capture of {name} off; trickle enable {name} switches it on")
}

/// Why a copy reads all of its source.
fn compared(source: &Relation) -> String {
    let name = Qualified::new(&source.schema, &source.name);
    format!("{name} was read as a whole and compared with its copy")
}

/// What a stream table reads, with the buffers that hold the changes.
pub(crate) fn sources_of(e: &Entry, runnable: &Runnable) -> Result<Vec<Source>> {
    let read: Vec<TableId> = match &runnable.table {
        Some(table) => table.sources().iter().map(|(t, _)| t.id).collect(),
        None => e.read().map(|d| d.relation.id).collect(),
    };
    let listed = |id: TableId| {
        let Some(d) = e.dependencies.iter().find(|d| d.relation.id == id) else {
            return Err(Error::input(format!("{} reads a table that the catalog does not list", shown(e)))
                .hint("Run trickle alter with its query, which plans it anew."));
        };
        // Without columns there is a buffer for the sake of another stream table only.
        Ok(source(e, d, runnable.table.is_some() || !d.columns.is_empty()))
    };
    read.into_iter().map(listed).collect()
}
