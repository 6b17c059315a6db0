//! Doing what a plan says, step by step.

use super::{Declared, Plan, Refused, Step, What, beside};
use crate::alter::{Alteration, Readers};
use crate::create::NewStreamTable;
use crate::db::Connection;
use crate::error::{Error, Result};
use crate::follow::RENAMED;
use crate::locks::patiently;
use crate::names::Name;
use crate::registry::{Entry, shown};
use crate::trickle::Trickle;
use trickle_core::apply::index_names;
use trickle_core::refresh::Relation;
use trickle_core::sql::Ident;

impl<C: Connection> Trickle<C> {
    /// Does a step of a plan.
    ///
    /// # Errors
    /// Those of what it does; then the stream table is as it was before the step.
    pub async fn do_step(&mut self, plan: &Plan, step: &Step) -> std::result::Result<(), Refused> {
        let done = match step.declared.and_then(|at| plan.declared.get(at)) {
            Some(d) => self.do_declared(plan, step, d).await,
            None if step.what == What::Drop => self.drop(&Name::parse(&step.name)?, false).await.map(drop),
            None => Err(Error::input(format!("{} is not declared", step.name))),
        };
        done.map_err(|error| Refused { declared: step.declared, error })
    }

    async fn do_declared(&mut self, plan: &Plan, step: &Step, d: &Declared) -> Result<()> {
        match &step.what {
            What::Rename(from) => self.rename(from, &step.name).await?,
            What::Create => self.create(&d.stream_table()).await.map(drop)?,
            What::Change => self.change(d, plan).await?,
            What::Remake => self.remake(d, plan).await?,
            What::Drop => return self.drop(&d.name, false).await.map(drop),
            What::Set | What::Take => {
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

    /// Notes of which declarations a stream table is.
    async fn note(&mut self, name: &Name, d: &Declared, label: &str) -> Result<()> {
        let text =
            "UPDATE pgtrickle.pgt_stream_tables SET declared = $2, original_query = $3 WHERE pgt_id = $1";
        let id = self.find(name).await?.id;
        let noted = self.db().execute(text, &[&id, &label, &d.query]).await;
        noted.map(drop).map_err(|e| Error::server(format!("note that {name} is declared"), e))
    }

    /// Gives a stream table the query and mode of its declaration. A column that goes may be read by those that the plan changes
    /// after it.
    async fn change(&mut self, d: &Declared, plan: &Plan) -> Result<()> {
        let e = self.find(&d.name).await?;
        let registry = self.linked(&[e.relation.id]).await?;
        let goes_along = |reader: &Entry| {
            let changes = |s: &&Step| matches!(s.what, What::Change | What::Remake | What::Drop);
            plan.steps.iter().filter(changes).any(|s| s.name == shown(reader))
        };
        let reads = |r: &&Entry| r.dependencies.iter().any(|d| d.relation.id == e.relation.id);
        let all = registry.entries().filter(reads).all(goes_along);
        if d.snapshots {
            self.ensure_copies(&d.query).await?;
        }
        let readers = if all { Readers::Change } else { Readers::Stay };
        let changed = self.replace(e.relation.clone(), e.id, &d.stream_table(), readers).await;
        // Whatever came of it, no copy is kept that nothing reads.
        let swept = self.sweep_copies().await;
        changed.and(swept)
    }

    /// Makes a stream table anew that takes the place of the one of this name. It is made beside that one: what its query
    /// raises, it raises before anything is dropped. Whoever dies on the way leaves what the next plan goes on with.
    async fn remake(&mut self, d: &Declared, plan: &Plan) -> Result<()> {
        let e = self.find(&d.name).await?;
        let beside = beside(&e.relation);
        let left = self.find(&beside).await.ok().and_then(|left| left.declared);
        let is_declared = plan.declared.iter().any(|d| d.name.name == beside.name);
        if left.as_deref() == Some(&*plan.label) && !is_declared {
            self.drop(&beside, false).await?;
        }
        self.create(&NewStreamTable { name: beside.clone(), ..d.stream_table() }).await?;
        self.note(&beside, d, &plan.label).await?;
        if let Err(kept) = self.drop(&d.name, false).await {
            self.drop(&beside, false).await?;
            return Err(kept);
        }
        let (schema, name) = (Ident::new(&e.relation.schema), Ident::new(&beside.name));
        self.rename(&format!("{schema}.{name}"), &shown(&e)).await
    }

    /// Gives a stream table another name in its schema, and its indexes theirs. What is stored fits the plan as before, since
    /// nothing but names differs; where it did not, the next refresh plans it anew.
    async fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let e = self.find(&Name::parse(from)?).await?;
        let (old, name) = (Ident::new(&e.relation.name), Name::parse(to)?);
        let new = Ident::new(&name.name);
        let again = e.as_new(name.clone());
        let renamed = Relation { name: name.name.as_str().into(), ..e.relation.clone() };
        let before = self.design(e.relation.clone(), e.id, &again).await?.layout_hash();
        let after = self.design(renamed, e.id, &again).await?.layout_hash();
        let schema = Ident::new(&e.relation.schema);
        let mut text = format!("ALTER TABLE {schema}.{old} RENAME TO {new};\n");
        for (old, new) in index_names(&old).iter().zip(index_names(&new)) {
            text.push_str(&format!("ALTER INDEX IF EXISTS {schema}.{old} RENAME TO {new};\n"));
        }
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
