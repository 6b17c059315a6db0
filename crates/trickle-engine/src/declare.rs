//! Stream tables as they are declared: what is to be done so that a database has these, and doing it.
//!
//! What was made from declarations carries their label. So what is not declared any more can be told from what somebody made by
//! itself, which nobody touches.

use crate::alter::evolve::can_become;
use crate::alter::{Alteration, Readers};
use crate::copies::reads_copies;
use crate::create::{NewStreamTable, RefreshMode, consistency};
use crate::db::Connection;
use crate::error::{Error, Result};
use crate::follow::RENAMED;
use crate::names::Name;
use crate::registry::{Entry, Registry, require_own, shown};
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::apply::index_names;
use trickle_core::parse::parse_query;
use trickle_core::refresh::Relation;
use trickle_core::schedule::Schedule;
use trickle_core::sql::{Ident, Qualified};

/// A stream table as it is to be.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub name: Name,
    /// Its query, with the comments around it.
    pub query: String,
    /// Its schedule; `None` is manual.
    pub schedule: Option<String>,
    /// How it is to be kept.
    pub mode: RefreshMode,
    /// Whether it is refreshed by itself ([`NewStreamTable::apart`]).
    pub apart: bool,
    /// Whether materialized views and foreign tables are followed ([`NewStreamTable::snapshots`]).
    pub snapshots: bool,
}

/// What is done with a stream table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It gets its name; before, it was called so.
    Rename(String),
    /// It is made.
    Create,
    /// It stays the same table, and is filled with what another query or mode gives.
    Change,
    /// It is dropped and made again: its columns cannot become the new ones. Its indexes and grants go.
    Remake,
    /// Only what the catalog says of it becomes another.
    Set,
    /// It was made by itself, and belongs to the declarations from now on.
    Take,
    /// It is dropped, since it is not declared any more.
    Drop,
}

impl What {
    /// One word for it.
    pub fn name(&self) -> &'static str {
        match self {
            What::Rename(_) => "rename",
            What::Create => "create",
            What::Change => "change",
            What::Remake => "remake",
            What::Set => "set",
            What::Take => "take",
            What::Drop => "drop",
        }
    }

    /// Whether something is lost that no query gives back: a table with what is the user's of it.
    pub fn destroys(&self) -> bool {
        matches!(self, What::Remake | What::Drop)
    }
}

/// One thing to do.
#[derive(Clone, Debug)]
pub struct Step {
    /// What.
    pub what: What,
    /// `schema.name` of the stream table, quoted where needed; of one that is renamed, as it is called then.
    pub name: String,
    /// What is different, or why.
    pub why: Vec<String>,
    /// Its place among the declarations, if it is declared.
    pub declared: Option<usize>,
    /// The mode that it will be in force, where that can be told now.
    pub mode: Option<&'static str>,
}

/// All that is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The steps. Each is done by itself: where one fails those before it stay, and another plan begins where they end.
    pub steps: Vec<Step>,
    /// Stream tables that are as they are declared.
    pub unchanged: Vec<String>,
}

impl Plan {
    /// Whether a step destroys something.
    pub fn destroys(&self) -> bool {
        self.steps.iter().any(|s| s.what.destroys())
    }
}

/// Why something cannot be done, and for which of the declarations.
#[derive(Debug)]
pub struct Refused {
    /// Its place among them, if one is to blame.
    pub declared: Option<usize>,
    /// Why.
    pub error: Error,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused { declared: None, error }
    }
}

/// The declarations, with what the database has of them.
struct Survey<'d> {
    declared: &'d [Declared],
    registry: Registry,
    /// Where each is, or will be.
    places: Vec<Relation>,
    /// Of each, the stream table of its name or of its former name.
    found: Vec<Option<Entry>>,
    /// Those whose names the database does not know yet.
    coming: BTreeSet<usize>,
    /// Those of the label that are not declared any more.
    missing: Vec<Entry>,
    plan: Plan,
}

/// What a query turned out to be.
struct Seen {
    canonical: String,
    columns: Vec<crate::resolve::OutputColumn>,
    mode: Option<&'static str>,
    reasons: Vec<String>,
}

impl<C: Connection> Trickle<C> {
    /// What is to be done so that the database has these stream tables, and no others of this label. Changes nothing.
    ///
    /// # Errors
    /// A name that is declared twice, taken by something else or of another label; a query or schedule that is wrong.
    pub async fn plan_declared(
        &mut self,
        declared: &[Declared],
        label: &str,
    ) -> std::result::Result<Plan, Refused> {
        let mut survey = self.survey(declared, label).await?;
        find_renamed(&mut survey)?;
        let first = self.search_path.first().cloned().unwrap_or_default();
        for at in order(declared, &survey.places, &first) {
            self.plan_one(&mut survey, at).await.map_err(|error| Refused { declared: Some(at), error })?;
        }
        // Readers go before what they read.
        let order = survey.registry.dag()?.order();
        for id in order.iter().rev() {
            if let Some(e) = survey.missing.iter().find(|e| e.relation.id == *id) {
                survey.plan.steps.push(Step {
                    what: What::Drop,
                    name: shown(e),
                    why: vec!["it is not declared any more".to_owned()],
                    declared: None,
                    mode: None,
                });
            }
        }
        // What is renamed is so before anything reads it by its new name.
        survey.plan.steps.sort_by_key(|s| !matches!(s.what, What::Rename(_)));
        Ok(survey.plan)
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
                require_own(e).map_err(blame)?;
                if let Some(other) = e.declared.as_deref().filter(|l| *l != label) {
                    return Err(blame(
                        Error::input(format!("{} belongs to the declarations \"{other}\"", shown(e)))
                            .hint(format!("Apply these with --label {other}, or declare it in one place.")),
                    ));
                }
            }
            places.push(place);
            found.push(entry);
        }
        let is_there = |e: &Entry| found.iter().flatten().any(|f| f.id == e.id);
        let gone = |e: &&Entry| e.declared.as_deref() == Some(label) && e.own && !is_there(e);
        let missing = registry.entries().filter(gone).cloned().collect();
        let coming = (0..declared.len()).filter(|at| found[*at].is_none()).collect();
        Ok(Survey { declared, registry, places, found, coming, missing, plan: Plan::default() })
    }

    async fn plan_one(&mut self, survey: &mut Survey<'_>, at: usize) -> Result<()> {
        let d = &survey.declared[at];
        if let Some(schedule) = &d.schedule {
            Schedule::parse(schedule)?;
        }
        let place = survey.places[at].clone();
        let name = Qualified::new(&place.schema, &place.name).to_string();
        let seen = self.see(survey, at).await?;
        let mode = seen.as_ref().and_then(|s| s.mode);
        let reasons = seen.as_ref().map(|s| s.reasons.clone()).unwrap_or_default();
        let mut step = Step { what: What::Create, name, why: Vec::new(), declared: Some(at), mode };
        let Some(e) = survey.found[at].clone() else {
            step.why = reasons;
            survey.plan.steps.push(step);
            return Ok(());
        };
        let query = match &seen {
            Some(seen) => seen.canonical != e.query,
            None => !same_text(&d.query, &e.original),
        };
        if query {
            step.why.push("query".to_owned());
        }
        let mut differs = |what: &str, before: &str, after: &str| {
            if before != after {
                step.why.push(format!("{what} {before} → {after}"));
            }
            before != after
        };
        let follows = d.snapshots && !reads_copies(&e);
        let mode = differs("mode", &e.requested().name().to_lowercase(), &d.mode.name().to_lowercase());
        let manual = |s: &Option<String>| s.clone().unwrap_or_else(|| "manual".to_owned());
        let schedule = differs("schedule", &manual(&e.schedule), &manual(&d.schedule));
        let apart = differs("diamond_consistency", consistency(e.apart), consistency(d.apart));
        if follows {
            step.why.push("snapshots".to_owned());
        }
        step.what = if query || mode || follows {
            let fits = match &seen {
                Some(seen) => can_become(self.db(), &e, &seen.columns).await?,
                None => true,
            };
            if fits { What::Change } else { What::Remake }
        } else if schedule || apart {
            What::Set
        } else if e.declared.is_none() {
            What::Take
        } else {
            let renamed = |s: &Step| s.name == step.name && matches!(s.what, What::Rename(_));
            if !survey.plan.steps.iter().any(renamed) {
                survey.plan.unchanged.push(step.name);
            }
            return Ok(());
        };
        match step.what {
            What::Change => step.why.extend(reasons),
            What::Remake => step.why.push("its columns are in another order".to_owned()),
            What::Take => step.why.push("it was made by itself".to_owned()),
            _ => step.mode = None,
        }
        survey.plan.steps.push(step);
        Ok(())
    }

    /// What the query of a declaration is; `None` where it reads what is yet to come.
    async fn see(&mut self, survey: &Survey<'_>, at: usize) -> Result<Option<Seen>> {
        let d = &survey.declared[at];
        let place = &survey.places[at];
        let to_come = survey.coming.iter().filter(|o| **o != at).map(|o| &survey.places[*o]);
        let first = self.search_path.first().map_or("", String::as_str);
        if to_come.into_iter().any(|p| names(&d.query, p, first)) {
            return Ok(None);
        }
        let id = survey.found[at].as_ref().map_or(0, |e| e.id);
        let new = NewStreamTable { snapshots: false, ..d.stream_table() };
        match self.design(place.clone(), id, &new).await {
            Ok(design) => Ok(Some(Seen {
                mode: Some(design.mode()),
                reasons: design.reasons.iter().map(ToString::to_string).collect(),
                canonical: design.resolved.canonical.clone(),
                columns: design.columns(),
            })),
            // Over copies that are yet to be made, and over tables that change before it, it may be another.
            Err(_) if d.snapshots || self.reads_changing(survey, at) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether a declaration reads what a step before it changes.
    fn reads_changing(&self, survey: &Survey<'_>, at: usize) -> bool {
        let first = self.search_path.first().map_or("", String::as_str);
        let changes = |s: &&Step| matches!(s.what, What::Change | What::Remake);
        let changing = survey.plan.steps.iter().filter(changes).filter_map(|s| s.declared);
        changing.into_iter().any(|o| names(&survey.declared[at].query, &survey.places[o], first))
    }

    /// Does a step of a plan.
    ///
    /// # Errors
    /// Those of what it does; then the stream table is as it was before the step.
    pub async fn do_declared(
        &mut self,
        declared: &[Declared],
        label: &str,
        plan: &Plan,
        step: &Step,
    ) -> std::result::Result<(), Refused> {
        let blame = |error| Refused { declared: step.declared, error };
        let Some(d) = step.declared.and_then(|at| declared.get(at)) else {
            self.drop(&Name::parse(&step.name)?, false).await.map_err(blame)?;
            return Ok(());
        };
        match &step.what {
            What::Rename(from) => self.rename(from, &step.name).await,
            What::Create => self.create(&d.stream_table()).await.map(drop),
            What::Change => self.change(d, plan).await,
            What::Remake => match self.drop(&d.name, false).await {
                Ok(_) => self.create(&d.stream_table()).await.map(drop),
                Err(e) => Err(e),
            },
            What::Set | What::Take => {
                let wanted = Alteration {
                    schedule: Some(d.schedule.clone()),
                    apart: Some(d.apart),
                    ..Alteration::default()
                };
                self.alter(&d.name, &wanted).await.map(drop)
            }
            What::Drop => Ok(()),
        }
        .map_err(blame)?;
        let text = "UPDATE pgtrickle.pgt_stream_tables SET declared = $2, original_query = $3 \
             WHERE pgt_id = $1";
        let id = self.find(&Name::parse(&step.name)?).await.map_err(blame)?.id;
        let noted = self.db().execute(text, &[&id, &label, &d.query]).await;
        noted.map_err(|e| blame(Error::server(format!("note that {} is declared", step.name), e)))?;
        Ok(())
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
        let mut text = format!("ALTER TABLE {from} RENAME TO {new};\n");
        for (old, new) in index_names(&old).iter().zip(index_names(&new)) {
            text.push_str(&format!("ALTER INDEX IF EXISTS {schema}.{old} RENAME TO {new};\n"));
        }
        let layout =
            "UPDATE pgtrickle.pgt_stream_tables SET layout_hash = $3 WHERE pgt_id = $1 AND layout_hash = $2";
        let fail = |e| Error::server(format!("rename {from}"), e);
        let db: &mut dyn Connection = &mut self.connection;
        let t = db.transaction().await.map_err(fail)?;
        t.batch_execute(&text).await.map_err(fail)?;
        t.execute(RENAMED, &[&vec![e.relation.id.0]]).await.map_err(fail)?;
        t.execute(layout, &[&e.id, &before, &after]).await.map_err(fail)?;
        t.commit().await.map_err(fail)
    }
}

/// Finds what is declared by another name: of the same query, and the only one.
fn find_renamed(survey: &mut Survey<'_>) -> std::result::Result<(), Refused> {
    for at in survey.coming.clone() {
        let d = &survey.declared[at];
        let candidates: Vec<Entry> = survey
            .missing
            .iter()
            .filter(|e| e.relation.schema == survey.places[at].schema && same_text(&d.query, &e.original))
            .cloned()
            .collect();
        let others = survey.coming.iter().filter(|o| same_text(&survey.declared[**o].query, &d.query));
        let (Ok([e]), 1) = (<[Entry; 1]>::try_from(candidates), others.count()) else { continue };
        let step = Step {
            what: What::Rename(shown(&e)),
            name: Qualified::new(&survey.places[at].schema, &survey.places[at].name).to_string(),
            why: vec!["the query is the same".to_owned()],
            declared: Some(at),
            mode: None,
        };
        survey.missing.retain(|m| m.id != e.id);
        survey.found[at] = Some(e);
        survey.plan.steps.push(step);
    }
    for step in &survey.plan.steps {
        let Some(e) = step.declared.and_then(|at| survey.found[at].as_ref()) else { continue };
        if let Some(reader) = left_behind(survey, e) {
            let error = Error::input(format!("{} cannot become {}", shown(e), step.name))
                .detail(format!("{reader} reads it by its name, and is not to have another query."))
                .hint("Let its query name the new one, or keep the name.");
            return Err(Refused { declared: step.declared, error });
        }
    }
    Ok(())
}

/// A stream table that reads this one by the name that it is to lose.
fn left_behind(survey: &Survey<'_>, lost: &Entry) -> Option<String> {
    let reads = |e: &&Entry| e.dependencies.iter().any(|d| d.relation.id == lost.relation.id);
    let goes = |e: &Entry| survey.missing.iter().any(|m| m.id == e.id);
    let changes = |e: &Entry| {
        let at = survey.found.iter().position(|f| f.as_ref().is_some_and(|f| f.id == e.id));
        at.is_some_and(|at| !names(&survey.declared[at].query, &lost.relation, &lost.relation.schema))
    };
    survey.registry.entries().filter(reads).find(|e| !goes(e) && !changes(e)).map(shown)
}

impl Declared {
    fn stream_table(&self) -> NewStreamTable {
        NewStreamTable {
            schedule: Some(self.schedule.clone()),
            mode: Some(self.mode),
            apart: Some(self.apart),
            snapshots: self.snapshots,
            ..NewStreamTable::new(self.name.clone(), self.query.clone())
        }
    }
}

/// Whether two texts are one query: but for what stands around it.
fn same_text(a: &str, b: &str) -> bool {
    let bare = |s: &str| {
        let lines = s.lines().skip_while(|l| l.trim().is_empty() || l.trim_start().starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        text.trim().trim_end_matches(';').trim_end().to_owned()
    };
    bare(a) == bare(b)
}

/// Whether a query names this relation; without a schema it means one in `first`.
fn names(query: &str, relation: &Relation, first: &str) -> bool {
    let Ok(parsed) = parse_query(query) else { return false };
    let is = |(schema, name): &(Option<String>, String)| {
        *name == *relation.name && *schema.as_deref().unwrap_or(first) == *relation.schema
    };
    parsed.relations().iter().any(is)
}

/// The order in which each comes after those that it reads. What reads itself by way of others comes in any order: the server
/// says of it that something is not there.
fn order(declared: &[Declared], places: &[Relation], first: &str) -> Vec<usize> {
    let reads: BTreeMap<usize, Vec<usize>> = (0..declared.len())
        .map(|at| {
            let read = |other: &usize| *other != at && names(&declared[at].query, &places[*other], first);
            (at, (0..declared.len()).filter(read).collect())
        })
        .collect();
    let mut left: Vec<usize> = (0..declared.len()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let ready = left.iter().position(|at| reads[at].iter().all(|r| !left.contains(r)));
        order.push(left.remove(ready.unwrap_or(0)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use trickle_core::catalog::TableId;

    fn declared(name: &str, query: &str) -> Declared {
        Declared {
            name: Name::parse(name).unwrap(),
            query: query.to_owned(),
            schedule: None,
            mode: RefreshMode::Auto,
            apart: false,
            snapshots: false,
        }
    }

    fn place(name: &str) -> Relation {
        Relation { id: TableId(0), schema: "public".into(), name: name.into() }
    }

    #[test]
    fn each_comes_after_what_it_reads() {
        let all = [
            declared("c", "SELECT * FROM b JOIN public.a USING (id)"),
            declared("b", "SELECT id FROM a WHERE c > 1"),
            declared("a", "SELECT id, c FROM elsewhere.c"),
            declared("x", "SELECT * FROM y"),
            declared("y", "SELECT * FROM x"),
        ];
        let places = ["c", "b", "a", "x", "y"].map(place);
        assert_eq!(order(&all, &places, "public"), [2, 1, 0, 3, 4]);
    }

    #[test]
    fn what_stands_around_a_query_is_not_of_it() {
        assert!(same_text("-- schedule: 1m\nSELECT 1;\n", "\n-- mode: full\n\nSELECT 1"));
        assert!(!same_text("SELECT 1 -- one", "SELECT 1"));
        assert!(!same_text("SELECT 1", "SELECT 2"));
    }
}
