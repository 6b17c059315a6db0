//! What has changes to apply, asked of many stream tables at once.

use crate::capture::HIDDEN;
use crate::copies::is_copy;
use crate::db::{Connection, Prepared, Refusal};
use crate::error::{Error, Result};
use crate::refresh::RefreshOptions;
use crate::registry::{Dependency, Entry, Runnable, require_own, shown};
use crate::say;
use crate::trickle::Trickle;
use std::borrow::Borrow;
use std::collections::BTreeSet;
use trickle_core::catalog::TableId;
use trickle_core::refresh::{Reader, Relation, Source, glance_text, peek_text};
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::Mode;

/// Questions which tables have changes that are kept prepared: a refresher asks of those that it looks at equally often.
const QUESTIONS: usize = 8;

/// What is known of stream tables after a look at them.
#[derive(Debug, Default)]
pub struct Looked {
    /// Those that a refresh would have something to do for, by `pgt_id`.
    pub pending: Vec<i64>,
    /// Sources whose buffers hold changes, counted or not.
    pub filled: BTreeSet<TableId>,
}

impl<C: Connection> Trickle<C> {
    /// Which stream tables a refresh with these options would have anything to do for. What is not among the answer holds all
    /// that was committed before the question, also what is to reach it through others of these. One round trip for all of
    /// them where the buffers are empty, two where they are not.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn pending<E: Borrow<Entry>>(
        &mut self,
        entries: &[E],
        options: &RefreshOptions,
    ) -> Result<Vec<i64>> {
        let entries: Vec<&Entry> = entries.iter().map(Borrow::borrow).collect();
        Ok(self.look(&entries, options, true).await?.pending)
    }

    /// The same, of what the catalog lists of them, which is all that their plans read and maybe more: what is not among
    /// these has nothing to do. None of them is planned for it.
    pub async fn candidates(&mut self, entries: &[&Entry], options: &RefreshOptions) -> Result<Looked> {
        self.look(entries, options, false).await
    }

    /// Asks which of these have changes, of what their plans read or of what the catalog lists. To make the questions for
    /// many tables, and to plan them, takes longer than to answer them: they are kept prepared while the tables are as they
    /// were.
    async fn look(&mut self, entries: &[&Entry], options: &RefreshOptions, planned: bool) -> Result<Looked> {
        if entries.is_empty() {
            return Ok(Looked::default());
        }
        let known = self.memory.questions.iter().position(|q| q.is_of(entries, options, planned));
        let mut question = match known.map(|i| self.memory.questions.remove(i)) {
            Some(known) => known,
            None => self.question(entries, options, planned).await?,
        };
        let looked = self.ask(&mut question, entries, options).await?;
        self.memory.questions.insert(0, question);
        self.memory.questions.truncate(QUESTIONS);
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
                    require_own(e)?;
                    sources_of(e, &self.runnable(e).await?)?
                }
                false => listed_sources(e),
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

fn fail(e: Refusal) -> Error {
    Error::server("look for changes", e)
}

/// The numbers of those tables that read what has changed, or what is downstream of it: between the questions somebody else
/// may have refreshed what reads the change, and so handed it on. Each table comes with what it reads.
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

/// The questions which of some stream tables have changes, prepared on a connection.
#[derive(Debug)]
pub(crate) struct Question {
    of: Vec<Asked>,
    planned: bool,
    /// What each reads.
    sources: Vec<Vec<Source>>,
    glance: Prepared,
    /// The second question, as it was last asked, with the numbers of those that it was asked of.
    peek: Option<(BTreeSet<usize>, Prepared)>,
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

/// A stream table, for the question whether it has anything to do.
pub(crate) fn reader<'s>(e: &Entry, sources: &'s [Source], options: &RefreshOptions) -> Reader<'s> {
    let (unseen, timed) = (e.unseen().is_some(), e.reads_clock);
    Reader { id: e.id, sources, polled: options.polls(e), unseen, timed }
}

/// What a refresh of a stream table reads the changes of, as the catalog lists it: all that its plan reads, and maybe more;
/// nothing where writers keep it.
pub(crate) fn listed_sources(e: &Entry) -> Vec<Source> {
    if e.is_immediate() {
        return Vec::new();
    }
    e.read().map(|d| source(e, d, e.mode != Mode::Full || !d.columns.is_empty())).collect()
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
    Source { relation: d.relation.clone(), kind: d.kind, changes, partitioned: d.partitioned, uncaptured }
}

/// Why nothing is known of the changes of a source whose capture the user holds off.
fn held(source: &Relation) -> String {
    let name = Qualified::new(&source.schema, &source.name);
    format!(
        "{} switched the capture of {name} off; {} switches it on",
        say::one("trickle disable", "the program's trickle disable"),
        say::enable(&name.to_string())
    )
}

/// Why a copy reads all of its source.
fn compared(source: &Relation) -> String {
    let name = Qualified::new(&source.schema, &source.name);
    format!("{name} was read as a whole and compared with its copy")
}

/// What a refresh of a stream table reads the changes of, with the buffers that hold them; nothing where writers keep it.
pub(crate) fn sources_of(e: &Entry, runnable: &Runnable) -> Result<Vec<Source>> {
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
                .hint(format!("{}, with its query, plans it anew.", say::alter_query(&shown(e)))));
        };
        // Without columns there is a buffer for the sake of another stream table only.
        Ok(source(e, d, runnable.table.is_some() || !d.columns.is_empty()))
    };
    read.into_iter().map(listed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_downstream_of_a_change_is_asked_of_too() {
        let table = |id, read: &[u32]| (TableId(id), read.iter().copied().map(TableId).collect());
        // 10 reads 1, 11 reads 10 and stands before it, 12 reads 11 and 2, 20 reads 2 alone.
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
