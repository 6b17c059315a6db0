//! Takes the steps of a plan, one by one.

use super::{Declared, Plan, Refused, Step, StepAction};
use crate::alter::Alteration;
use crate::alter::evolve::{can_become, loses};
use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::follow::RENAMED;
use crate::locks::patiently;
use crate::names::{Name, rename_table};
use crate::registry::{Entry, shown};
use crate::trickle::Trickle;
use trickle_core::refresh::Relation;
use trickle_core::sql::Ident;

impl<C: RefreshDriver> Trickle<C> {
    /// Takes one step of a plan.
    ///
    /// # Errors
    /// The errors of the step's action, after which the stream table is as it was before the step.
    pub async fn do_step(&mut self, plan: &Plan, step: &Step) -> std::result::Result<(), Refused> {
        let done = match step.declared.and_then(|at| plan.declared.get(at)) {
            Some(d) => self.do_declared(plan, step, d).await,
            None if step.action == StepAction::Drop => {
                self.drop(&Name::parse(&step.name)?, false).await.map(drop)
            }
            None => Err(Error::input(format!("{} is not declared", step.name))),
        };
        done.map_err(|error| Refused { declared: step.declared, error })
    }

    async fn do_declared(&mut self, plan: &Plan, step: &Step, d: &Declared) -> Result<()> {
        match &step.action {
            StepAction::Rename(from) => self.rename(from, &step.name).await?,
            StepAction::Create => self.create(&d.stream_table()).await.map(drop)?,
            StepAction::Change | StepAction::Remake => self.change(d, plan, step).await?,
            StepAction::Drop => return self.drop(&d.name, false).await.map(drop),
            StepAction::Set | StepAction::Take => {
                let wanted = Alteration {
                    schedule: Some(d.schedule.clone()),
                    apart: Some(d.apart),
                    ..Alteration::default()
                };
                self.alter(&d.name, &wanted).await.map(drop)?;
            }
        }
        self.note(&Name::parse(&step.name)?, d, &plan.label).await
    }

    /// Stores the label of the declarations, and the declared query, with a stream table.
    async fn note(&mut self, name: &Name, d: &Declared, label: &str) -> Result<()> {
        let text =
            "UPDATE pgtrickle.pgt_stream_tables SET declared = $2, original_query = $3 WHERE pgt_id = $1";
        let id = self.find(name).await?.id;
        let noted = self.db().execute(text, &[&id, &label, &d.query]).await;
        noted.map(drop).map_err(|e| Error::server(format!("note that {name} is declared"), e))
    }

    /// Gives a stream table the query and mode of its declaration.
    async fn change(&mut self, d: &Declared, plan: &Plan, step: &Step) -> Result<()> {
        let e = self.find(&d.name).await?;
        let registry = self.linked(&[e.relation.id]).await?;
        let replacement = plan.replacement(&registry, &e, &step.action);
        if d.snapshots {
            self.ensure_copies(&d.query).await?;
        }
        if step.loses.is_none() && !plan.may_destroy {
            self.require_loses_nothing(&e, d).await?;
        }
        let changed = self.replace(e.relation.clone(), e.id, &d.stream_table(), replacement).await;
        // A copy that no stream table reads is dropped even after an error.
        let swept = self.sweep_copies().await;
        changed.and(swept)
    }

    /// Returns an error where a stream table loses something that the plan could not foresee, because the
    /// query read relations that did not exist yet when the plan was made.
    async fn require_loses_nothing(&mut self, e: &Entry, d: &Declared) -> Result<()> {
        let design = self.design(e.relation.clone(), e.id, &d.stream_table()).await?;
        let columns = design.columns();
        if !can_become(self.db(), e, &columns).await? {
            // The columns are in another order, which the change itself reports.
            return Ok(());
        }
        let lost = loses(self.db(), e, &columns).await?;
        if lost.is_empty() {
            return Ok(());
        }
        let message = format!("{} would lose {}", shown(e), lost.join(", "));
        Err(Error::input(message)
            .detail("That could not be told before what it reads was made.")
            .hint("Apply again: the plan shows it now. --allow-drop allows it."))
    }

    /// Gives a stream table another name in its schema, and renames its indexes. The stored tables should
    /// still fit the plan, since only names differ. If they do not fit, the next refresh plans the stream
    /// table again.
    async fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let e = self.find(&Name::parse(from)?).await?;
        let (old, name) = (Ident::new(&e.relation.name), Name::parse(to)?);
        let new = Ident::new(&name.name);
        let again = self.as_now(&e, name.clone()).await?;
        let renamed = Relation { name: name.name.as_str().into(), ..e.relation.clone() };
        let before = self.design(e.relation.clone(), e.id, &again).await?.layout_hash();
        let after = self.design(renamed, e.id, &again).await?.layout_hash();
        let text = rename_table(&e.relation.schema, &old, &new);
        let layout =
            "UPDATE pgtrickle.pgt_stream_tables SET layout_hash = $3 WHERE pgt_id = $1 AND layout_hash = $2";
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        let table = [e.relation.id.0];
        patiently(&mut self.connection, patience, &table, &*progress, async |t| {
            let fail = |e| Error::server(format!("rename {from}"), e);
            t.batch_execute(&text).await.map_err(fail)?;
            t.execute(RENAMED, &[&table.to_vec()]).await.map_err(fail)?;
            t.execute(layout, &[&e.id, &before, &after]).await.map_err(fail)?;
            Ok(())
        })
        .await
    }
}
