//! Finds which of many stream tables have changes to apply, by few queries.

use crate::cache::{Asked, Question, Runnable};
use crate::catalog::is_copy;
use crate::db::{Prepared, RefreshDriver, ServerError};
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use crate::registry::{Dependency, Entry, require_own, shown};
use crate::say::Voice;
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::borrow::Borrow;
use std::collections::BTreeSet;
use trickle_core::catalog::TableId;
use trickle_core::refresh::{Reader, Relation, Source, glance_text, peek_text};
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::Mode;

/// The greatest number of prepared questions. A refresher groups the stream tables by the time between two
/// looks, and asks one question for each group.
const QUESTIONS: usize = 8;

/// The result of a look at stream tables.
#[derive(Debug, Default)]
pub struct Looked {
    /// The stream tables that a refresh would change, by `pgt_id`.
    pub pending: Vec<i64>,
    /// The sources whose buffers have changes, whether or not all readers have counted them.
    pub filled: BTreeSet<TableId>,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the stream tables, by `pgt_id`, that a refresh with these options would change. Every other
    /// stream table of `entries` has all changes that were committed before this function asked the server. A
    /// change of a source is counted also for a stream table that reads the source through other stream
    /// tables of `entries`. The question takes one round trip for all stream tables if the buffers are empty,
    /// and two round trips otherwise.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn pending<E: Borrow<Entry>>(
        &mut self,
        entries: &[E],
        options: &RefreshOptions,
    ) -> Result<Vec<i64>> {
        let entries: Vec<&Entry> = entries.iter().map(Borrow::borrow).collect();
        Ok(self.look(&entries, options, true).await?.pending)
    }

    /// Does the same as [`Trickle::pending`], but asks for the sources that the catalog lists. The list has
    /// all sources that the plans read, and may have more. So the answer may have too many stream tables, but
    /// never too few. This function plans no stream table.
    pub async fn candidates(&mut self, entries: &[&Entry], options: &RefreshOptions) -> Result<Looked> {
        self.look(entries, options, false).await
    }

    /// Asks the server which of these stream tables have changes. The sources are those that the plans read
    /// (`planned`), or those that the catalog lists. For many stream tables, making and planning the
    /// questions takes longer than answering them. So the questions stay prepared as long as the stream
    /// tables are unchanged.
    async fn look(&mut self, entries: &[&Entry], options: &RefreshOptions, planned: bool) -> Result<Looked> {
        if entries.is_empty() {
            return Ok(Looked::default());
        }
        let known = self.cache.questions.iter().position(|q| q.is_of(entries, options, planned));
        let mut question = match known.map(|i| self.cache.questions.remove(i)) {
            Some(known) => known,
            None => self.question(entries, options, planned).await?,
        };
        let looked = self.ask(&mut question, entries, options).await?;
        self.cache.questions.insert(0, question);
        self.cache.questions.truncate(QUESTIONS);
        Ok(looked)
    }

    async fn question(
        &mut self,
        entries: &[&Entry],
        options: &RefreshOptions,
        planned: bool,
    ) -> Result<Question> {
        let mut sources: Vec<Vec<Source>> = Vec::new();
        for e in entries {
            sources.push(match planned {
                true => {
                    require_own(e, self.voice())?;
                    sources_of(e, &self.runnable(e).await?, self.voice())?
                }
                false => listed_sources(e, self.voice()),
            });
        }
        let with_sources = entries.iter().zip(&sources);
        let readers: Vec<Reader<'_>> = with_sources.map(|(e, sources)| reader(e, sources, options)).collect();
        let glance = self.db().prepare(&glance_text(&readers)).await.map_err(fail)?;
        Ok(Question::new(entries, options, planned, sources, glance))
    }

    async fn ask(&self, q: &mut Question, entries: &[&Entry], options: &RefreshOptions) -> Result<Looked> {
        let (mut pending, mut views) = (Vec::new(), BTreeSet::new());
        for row in self.db().again(&q.glance).await.map_err(fail)? {
            pending.extend(row.get::<Option<i64>>(0));
            views.extend(row.get::<Option<String>>(1));
        }
        let all = q.sources.iter().flatten();
        let is_filled = |s: &&Source| s.changes.as_ref().is_some_and(|c| views.contains(&*c.name));
        let filled: BTreeSet<TableId> = all.filter(is_filled).map(|s| s.relation.id).collect();
        if filled.is_empty() {
            return Ok(Looked { pending, filled });
        }
        let read = |s: &Vec<Source>| s.iter().map(|s| s.relation.id).collect();
        let tables = entries.iter().zip(&q.sources).map(|(e, s)| (e.relation.id, read(s)));
        let reached = reached(&tables.collect::<Vec<_>>(), filled.clone());
        let peek = match q.peek.take().filter(|(of, _)| *of == reached) {
            Some((_, peek)) => peek,
            None => {
                let asked = reached.iter().filter_map(|i| Some((entries.get(*i)?, q.sources.get(*i)?)));
                let readers: Vec<Reader<'_>> = asked.map(|(e, s)| reader(e, s, options)).collect();
                self.db().prepare(&peek_text(&readers)).await.map_err(fail)?
            }
        };
        let rows = self.db().again(&peek).await.map_err(fail)?;
        q.peek = Some((reached, peek));
        pending.extend(rows.iter().map(|r| r.get::<i64>(0)));
        pending.sort_unstable();
        pending.dedup();
        Ok(Looked { pending, filled })
    }
}

fn fail(e: ServerError) -> Error {
    Error::server("look for changes", e)
}

/// Returns the positions of the tables that read a changed table, directly or through others. Indirect
/// readers count because another session may refresh a direct reader between the two questions. Such a
/// refresh changes a source of the indirect readers. Each table is listed with the tables that it reads.
fn reached(tables: &[(TableId, Vec<TableId>)], mut changed: BTreeSet<TableId>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    loop {
        let before = reached.len();
        for (i, (table, read)) in tables.iter().enumerate() {
            if !reached.contains(&i) && read.iter().any(|r| changed.contains(r)) {
                reached.insert(i);
                changed.insert(*table);
            }
        }
        if reached.len() == before {
            return reached;
        }
    }
}

impl Question {
    fn new(
        entries: &[&Entry],
        options: &RefreshOptions,
        planned: bool,
        sources: Vec<Vec<Source>>,
        glance: Prepared,
    ) -> Question {
        let asked = |e: &&Entry| Asked {
            id: e.id,
            definition: e.definition.clone(),
            polled: options.polls(e),
            timed: e.reads_clock,
        };
        Question { of: entries.iter().map(asked).collect(), planned, sources, glance, peek: None }
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

/// Returns a stream table in the form in which a question for changes is built from it.
pub(crate) fn reader<'s>(e: &Entry, sources: &'s [Source], options: &RefreshOptions) -> Reader<'s> {
    let (unseen, part) = (e.unseen().is_some(), e.in_part().next().is_some());
    Reader { id: e.id, sources, polled: options.polls(e), unseen, timed: e.reads_clock, part }
}

/// Returns the sources whose changes a refresh of a stream table reads, as the catalog lists them. The list
/// has all sources that the plan reads, and may have more. An IMMEDIATE stream table has an empty list.
pub(crate) fn listed_sources(e: &Entry, voice: Voice) -> Vec<Source> {
    if e.is_immediate() {
        return Vec::new();
    }
    e.read().map(|d| source(e, d, e.mode != Mode::Full || !d.columns.is_empty(), voice)).collect()
}

/// Returns a source, with the buffer that has its changes if these are `wanted`.
fn source(e: &Entry, d: &Dependency, wanted: bool, voice: Voice) -> Source {
    let id = d.relation.id;
    let changes = d.buffer.filter(|_| wanted).map(|oid| Relation {
        id: TableId(oid),
        schema: HIDDEN.into(),
        name: format!("changes_{id}").into(),
    });
    let uncaptured = match wanted && d.held {
        true => Some(held(&d.relation, voice).into()),
        false => is_copy(&e.relation).then(|| compared(&d.relation).into()),
    };
    Source { relation: d.relation.clone(), kind: d.kind, changes, partitioned: d.partitioned, uncaptured }
}

/// Returns the reason why the changes of a source are unknown while the user holds its capture off.
fn held(source: &Relation, voice: Voice) -> String {
    let name = Qualified::new(&source.schema, &source.name);
    format!(
        "{} switched the capture of {name} off; {} switches it on",
        voice.one("trickle disable", "the program's trickle disable"),
        voice.enable(&name.to_string())
    )
}

/// Returns the reason of a refresh that read a whole source to compare it with its copy.
fn compared(source: &Relation) -> String {
    let name = Qualified::new(&source.schema, &source.name);
    format!("{name} was read as a whole and compared with its copy")
}

/// Returns the sources whose changes a refresh of a stream table reads, with the buffers that have these
/// changes. The list is empty for an IMMEDIATE stream table.
pub(crate) fn sources_of(e: &Entry, runnable: &Runnable, voice: Voice) -> Result<Vec<Source>> {
    if e.is_immediate() {
        return Ok(Vec::new());
    }
    let read: Vec<TableId> = match &runnable.table {
        Some(table) => table.sources().iter().map(|(t, _)| t.id).collect(),
        None => e.read().map(|d| d.relation.id).collect(),
    };
    let listed = |id: TableId| {
        let Some(d) = e.dependencies.iter().find(|d| d.relation.id == id) else {
            return Err(Error::input(format!("{} reads a table that the catalog does not list", shown(e)))
                .hint(format!("{}, with its query, plans it anew.", voice.alter_query(&shown(e)))));
        };
        // If no column of a source is read, the source has its buffer only because of another stream table.
        Ok(source(e, d, runnable.table.is_some() || !d.columns.is_empty(), voice))
    };
    read.into_iter().map(listed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_downstream_of_a_change_is_asked_of_too() {
        let table = |id, read: &[u32]| (TableId(id), read.iter().copied().map(TableId).collect());
        // In this list, 10 reads 1; 11 reads 10 and comes before it; 12 reads 11 and 2; 20 reads 2 alone.
        let tables = [table(12, &[11, 2]), table(11, &[10]), table(10, &[1]), table(20, &[2])];
        let of = |changed: &[u32]| -> Vec<usize> {
            reached(&tables, changed.iter().copied().map(TableId).collect()).into_iter().collect()
        };
        assert_eq!(of(&[1]), [0, 1, 2]);
        assert_eq!(of(&[2]), [0, 3]);
        assert_eq!(of(&[10]), [0, 1]);
        assert!(of(&[3]).is_empty());
    }
}
