//! Plans the steps after which a database has the declared stream tables.

use super::differences::Differences;
use super::queries::{names, order};
use super::renamed::find_renamed;
use super::{Declared, Plan, Refused, Step, StepAction};
use crate::alter::Replacement;
use crate::alter::evolve::{can_become, loses};
use crate::db::RefreshDriver;
use crate::design::NewStreamTable;
use crate::error::{Error, Result};
use crate::registry::{Entry, Registry, require_own, shown};
use crate::resolve::OutputColumn;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::TableId;
use trickle_core::refresh::Relation;
use trickle_core::schedule::Schedule;
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::Mode;

/// The declarations, and the stream tables of the database that match them.
pub(super) struct Survey<'d> {
    pub(super) declared: &'d [Declared],
    pub(super) registry: Registry,
    /// For each declaration, the schema and name that its stream table has or will have.
    pub(super) places: Vec<Relation>,
    /// For each declaration, the existing stream table that has the declared name, or has the declared query
    /// under another name.
    pub(super) found: Vec<Option<Entry>>,
    /// The positions of declarations whose names no stream table has yet.
    pub(super) coming: BTreeSet<usize>,
    /// Stream tables that have the label, but are not declared any more.
    pub(super) missing: Vec<Entry>,
    /// The result columns of each declaration whose query can be read now, by position.
    pub(super) columns: BTreeMap<usize, Vec<OutputColumn>>,
    /// The relations and columns that the declared queries read, by `pgt_id`.
    pub(super) reads: BTreeMap<i64, Vec<(TableId, Vec<String>)>>,
    pub(super) plan: Plan,
}

/// The properties of a declared query that could be read.
pub(super) struct Seen {
    pub(super) canonical: String,
    columns: Vec<OutputColumn>,
    pub(super) reads: Vec<(TableId, Vec<String>)>,
    pub(super) functions: Vec<u32>,
    mode: Option<Mode>,
    reasons: Vec<String>,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Plans the steps after which the database has the declared stream tables, and no other stream tables
    /// with this label. Changes nothing in the database.
    ///
    /// # Errors
    /// A name is declared twice, is taken by another object, or has another label; a query or schedule is
    /// wrong.
    pub async fn plan_declared(
        &mut self,
        declared: &[Declared],
        label: &str,
    ) -> std::result::Result<Plan, Refused> {
        let mut survey = self.survey(declared, label).await?;
        find_renamed(&mut survey, &self.search_path)?;
        for at in order(declared, &survey.places, &self.search_path)? {
            self.plan_one(&mut survey, at).await.map_err(|error| Refused { declared: Some(at), error })?;
        }
        // Readers are dropped before their sources.
        let dag = survey.registry.dag()?;
        for id in dag.order().iter().rev() {
            if let Some(e) = survey.missing.iter().find(|e| e.relation.id == *id) {
                survey.plan.steps.push(Step {
                    action: StepAction::Drop,
                    name: shown(e),
                    why: vec!["it is not declared any more".to_owned()],
                    declared: None,
                    id: Some(e.id),
                    mode: None,
                    loses: Some(Vec::new()),
                });
            }
        }
        // Renames come first, since the other steps use the new names.
        survey.plan.steps.sort_by_key(|s| !matches!(s.action, StepAction::Rename(_)));
        for step in &survey.plan.steps {
            self.require_possible(&survey, step)
                .await
                .map_err(|error| Refused { declared: step.declared, error })?;
        }
        Ok(survey.plan)
    }

    /// Returns an error, before any step is taken, where the step cannot succeed because of an object that
    /// depends on the stream table.
    async fn require_possible(&self, survey: &Survey<'_>, step: &Step) -> Result<()> {
        let Some(e) = step.id.and_then(|id| survey.registry.get(id)) else { return Ok(()) };
        match &step.action {
            StepAction::Change | StepAction::Remake => {
                let columns = step.declared.and_then(|at| survey.columns.get(&at));
                let Some(columns) = columns else { return Ok(()) };
                let replacement = survey.plan.replacement(&survey.registry, e, &step.action);
                self.require_takes(e, columns, replacement).await?;
                for reader in
                    survey.registry.readers(e.relation.id).filter(|_| replacement != Replacement::Another)
                {
                    let read = survey.reads.get(&reader.id).into_iter().flatten();
                    let read =
                        read.filter(|(table, _)| *table == e.relation.id).flat_map(|(_, columns)| columns);
                    self.require_kept(e, columns, reader, read)?;
                }
                Ok(())
            }
            StepAction::Drop => {
                let still = |r: &Entry| {
                    let mut read = survey.reads.get(&r.id).into_iter().flatten();
                    read.any(|(table, _)| *table == e.relation.id)
                };
                let mut readers = survey.registry.readers(e.relation.id);
                let left = readers.find(|r| !survey.plan.changes(r) || still(r));
                if let Some(reader) = left {
                    let message =
                        format!("{} reads {}, which is not declared any more", shown(reader), shown(e));
                    return Err(Error::input(message).hint(format!(
                        "Drop {0} first, give it another query, or declare {1} again.",
                        shown(reader),
                        shown(e)
                    )));
                }
                self.require_free(e, None).await
            }
            StepAction::Rename(_) | StepAction::Create | StepAction::Set | StepAction::Take => Ok(()),
        }
    }

    async fn survey<'d>(
        &mut self,
        declared: &'d [Declared],
        label: &str,
    ) -> std::result::Result<Survey<'d>, Refused> {
        let registry = self.registry().await?;
        let (mut places, mut found) = (Vec::new(), Vec::new());
        for (at, d) in declared.iter().enumerate() {
            let blame = |error| Refused { declared: Some(at), error };
            let (place, id) = self.place(&d.name).await.map_err(blame)?;
            let twice = |p: &Relation| (&p.schema, &p.name) == (&place.schema, &place.name);
            if places.iter().any(twice) {
                return Err(blame(
                    Error::input(format!("{} is declared twice", d.name))
                        .hint("Each stream table has a file of its own; a comment \"-- name: …\" gives another name than the file's."),
                ));
            }
            let entry = id.and_then(|id| registry.get(id)).cloned();
            if let Some(e) = &entry {
                require_own(e, self.voice()).map_err(blame)?;
                if let Some(other) = e.declared.as_deref().filter(|l| *l != label) {
                    return Err(blame(
                        Error::input(format!("{} belongs to the declarations \"{other}\"", shown(e)))
                            .hint(format!("Apply these with --label '{other}', or declare it in one place.")),
                    ));
                }
            }
            places.push(place);
            found.push(entry);
        }
        let is_there = |e: &Entry| found.iter().flatten().any(|f| f.id == e.id);
        // A declaration with the name of a stream table whose table was dropped creates that stream table
        // again.
        let comes_again = |e: &Entry| {
            let same = |p: &Relation| (&p.schema, &p.name) == (&e.relation.schema, &e.relation.name);
            !e.exists && places.iter().any(same)
        };
        let gone =
            |e: &&Entry| e.declared.as_deref() == Some(label) && e.own && !is_there(e) && !comes_again(e);
        let missing = registry.entries().filter(gone).cloned().collect();
        let coming = (0..declared.len()).filter(|at| found[*at].is_none()).collect();
        let (columns, reads, plan) = (BTreeMap::new(), BTreeMap::new(), Plan::new(declared, label));
        Ok(Survey { declared, registry, places, found, coming, missing, columns, reads, plan })
    }

    /// Plans the step for one declaration. No step is needed where the stream table equals the declaration.
    async fn plan_one(&mut self, survey: &mut Survey<'_>, at: usize) -> Result<()> {
        let d = &survey.declared[at];
        if let Some(schedule) = &d.schedule {
            Schedule::parse(schedule)?;
        }
        let place = survey.places[at].clone();
        let seen = self.see(survey, at).await?;
        let reasons = seen.as_ref().map(|s| s.reasons.clone()).unwrap_or_default();
        let mut step = Step {
            action: StepAction::Create,
            name: Qualified::new(&place.schema, &place.name).to_string(),
            why: Vec::new(),
            declared: Some(at),
            id: survey.found[at].as_ref().map(|e| e.id),
            mode: seen.as_ref().and_then(|s| s.mode),
            loses: Some(Vec::new()),
        };
        let Some(e) = survey.found[at].clone() else {
            step.why = reasons;
            survey.plan.steps.push(step);
            return Ok(());
        };
        let differences = Differences::of(d, &e, seen.as_ref());
        step.why = differences.why;
        step.action = if differences.in_rows {
            let (action, loses) = self.change_or_remake(&e, seen.as_ref()).await?;
            step.loses = loses;
            survey.reads.extend(seen.as_ref().map(|s| (e.id, s.reads.clone())));
            survey.columns.extend(seen.map(|s| (at, s.columns)));
            action
        } else if differences.in_properties {
            StepAction::Set
        } else if e.declared.is_none() {
            StepAction::Take
        } else {
            let renamed = |s: &Step| s.name == step.name && matches!(s.action, StepAction::Rename(_));
            if !survey.plan.steps.iter().any(renamed) {
                survey.plan.unchanged.push(step.name);
            }
            return Ok(());
        };
        explain(&mut step, &e, reasons);
        survey.plan.steps.push(step);
        Ok(())
    }

    /// Decides whether a table stays and gets the rows of a new query, or another table takes its place.
    /// Returns also the losses of a table that stays ([`Step::loses`]).
    async fn change_or_remake(
        &self,
        e: &Entry,
        seen: Option<&Seen>,
    ) -> Result<(StepAction, Option<Vec<String>>)> {
        let Some(seen) = seen else { return Ok((StepAction::Change, None)) };
        if can_become(self.db(), e, &seen.columns).await? {
            return Ok((StepAction::Change, Some(loses(self.db(), e, &seen.columns).await?)));
        }
        Ok((StepAction::Remake, Some(Vec::new())))
    }

    /// Returns an error where the new query of a reader still reads a column that would be dropped.
    fn require_kept<'c>(
        &self,
        e: &Entry,
        after: &[OutputColumn],
        reader: &Entry,
        read: impl Iterator<Item = &'c String>,
    ) -> Result<()> {
        let mut read = read;
        match read.find(|column| !after.iter().any(|a| a.name == **column)) {
            None => Ok(()),
            Some(column) => {
                Err(Error::input(format!("{} reads the column {column} of {}", shown(reader), shown(e)))
                    .hint(format!("Give {} a query without it.", shown(reader))))
            }
        }
    }

    /// Reads the query of a declaration. Returns `None` where the query reads a relation that does not exist
    /// yet.
    async fn see(&mut self, survey: &Survey<'_>, at: usize) -> Result<Option<Seen>> {
        let d = &survey.declared[at];
        let place = &survey.places[at];
        let to_come = survey.coming.iter().filter(|o| **o != at).map(|o| &survey.places[*o]);
        if to_come.into_iter().any(|p| names(&d.query, p, &self.search_path)) {
            return Ok(None);
        }
        let found = survey.found[at].as_ref();
        let id = found.map_or(0, |e| e.id);
        // Constants in the canonical text are written under the settings with which the stream table was
        // made. Names are looked up in the search path of the session that declares the query. This path may
        // have schemas that refreshes leave out.
        let kept = |e: &Entry| e.settings.iter().filter(|s| s.name != "search_path").cloned().collect();
        let settings = found.map(kept);
        let new = NewStreamTable { snapshots: false, settings, ..d.stream_table() };
        match self.design(place.clone(), id, &new).await {
            Ok(design) => Ok(Some(Seen {
                mode: Some(design.mode()),
                reasons: design.reasons.iter().map(ToString::to_string).collect(),
                canonical: design.resolved.canonical.clone(),
                columns: design.columns(),
                reads: design.reads(),
                functions: design.resolved.functions.clone(),
            })),
            // The error may not occur any more once the copies of the query exist, or once earlier steps
            // have changed its sources.
            Err(_) if d.snapshots || self.reads_changing(survey, at) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether a declared query reads a stream table that an earlier step changes.
    fn reads_changing(&self, survey: &Survey<'_>, at: usize) -> bool {
        let changes = |s: &&Step| matches!(s.action, StepAction::Change | StepAction::Remake);
        let changing = survey.plan.steps.iter().filter(changes).filter_map(|s| s.declared);
        changing.into_iter().any(|o| names(&survey.declared[at].query, &survey.places[o], &self.search_path))
    }
}

/// Completes the reasons for a step on an existing stream table. `reasons` say why the new query is not
/// incremental.
fn explain(step: &mut Step, e: &Entry, reasons: Vec<String>) {
    match step.action {
        StepAction::Change => {
            let lost = step.loses.iter().flatten();
            step.why.extend(lost.map(|lost| format!("{lost} goes")));
            step.why.extend(reasons);
        }
        StepAction::Remake => step.why.push("its columns are in another order".to_owned()),
        StepAction::Take => {}
        StepAction::Rename(_) | StepAction::Create | StepAction::Set | StepAction::Drop => step.mode = None,
    }
    if e.declared.is_none() {
        step.why.push("it was made by itself, and belongs to these declarations from now on".to_owned());
    }
}
