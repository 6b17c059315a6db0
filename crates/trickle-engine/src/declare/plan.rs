//! Plans the steps after which a database has the declared stream tables.

use super::{Declared, Plan, Refused, Step, StepAction};
use crate::alter::Replacement;
use crate::alter::evolve::{can_become, loses};
use crate::copies::{is_copy, reads_copies};
use crate::create::{NewStreamTable, consistency};
use crate::db::Connection;
use crate::error::{Error, Result};
use crate::registry::{Entry, Registry, require_own, shown};
use crate::resolve::OutputColumn;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::TableId;
use trickle_core::parse::{find_name, parse_query};
use trickle_core::refresh::Relation;
use trickle_core::schedule::Schedule;
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::Mode;

/// The declarations, and the stream tables of the database that match them.
struct Survey<'d> {
    declared: &'d [Declared],
    registry: Registry,
    /// For each declaration, the schema and name that its stream table has or will have.
    places: Vec<Relation>,
    /// For each declaration, the existing stream table that has its name, or had its query under another
    /// name.
    found: Vec<Option<Entry>>,
    /// The positions of declarations whose names no stream table has yet.
    coming: BTreeSet<usize>,
    /// Stream tables with the label that are not declared any more.
    missing: Vec<Entry>,
    /// The result columns of each declaration whose query can be read now, by position.
    columns: BTreeMap<usize, Vec<OutputColumn>>,
    /// The relations and columns that the declared queries read, by `pgt_id`.
    reads: BTreeMap<i64, Vec<(TableId, Vec<String>)>>,
    plan: Plan,
}

/// The properties of a declared query that could be read.
struct Seen {
    canonical: String,
    columns: Vec<OutputColumn>,
    reads: Vec<(TableId, Vec<String>)>,
    functions: Vec<u32>,
    mode: Option<Mode>,
    reasons: Vec<String>,
}

impl<C: Connection> Trickle<C> {
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
                require_own(e).map_err(blame)?;
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
        let id = survey.found[at].as_ref().map(|e| e.id);
        let mut step = Step {
            action: StepAction::Create,
            name,
            why: Vec::new(),
            declared: Some(at),
            id,
            mode,
            loses: Some(Vec::new()),
        };
        let Some(e) = survey.found[at].clone() else {
            step.why = reasons;
            survey.plan.steps.push(step);
            return Ok(());
        };
        let query = match &seen {
            // The names in the query may now mean other relations and functions.
            Some(seen) => {
                let mut read: Vec<TableId> = seen.reads.iter().map(|(id, _)| *id).collect();
                read.sort_unstable();
                let mut known: Vec<TableId> =
                    e.dependencies.iter().filter(|d| !is_copy(&d.relation)).map(|d| d.relation.id).collect();
                known.sort_unstable();
                seen.canonical != e.query || read != known || seen.functions != e.functions
            }
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
        let mode = differs("mode", &e.requested.name().to_lowercase(), &d.mode.name().to_lowercase());
        let manual = |s: &Option<String>| s.clone().unwrap_or_else(|| "manual".to_owned());
        let schedule = differs("schedule", &manual(&e.schedule), &manual(&d.schedule));
        let apart = differs("diamond_consistency", consistency(e.apart), consistency(d.apart));
        if follows {
            step.why.push("snapshots".to_owned());
        }
        step.action = if query || mode || follows {
            let fits = match &seen {
                Some(seen) => can_become(self.db(), &e, &seen.columns).await?,
                None => true,
            };
            step.loses = match &seen {
                Some(seen) if fits => Some(loses(self.db(), &e, &seen.columns).await?),
                Some(_) => Some(Vec::new()),
                None => None,
            };
            survey.reads.extend(seen.as_ref().map(|s| (e.id, s.reads.clone())));
            survey.columns.extend(seen.map(|s| (at, s.columns)));
            if fits { StepAction::Change } else { StepAction::Remake }
        } else if schedule || apart {
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
        match step.action {
            StepAction::Change => {
                let lost = step.loses.iter().flatten();
                step.why.extend(lost.map(|lost| format!("{lost} goes")));
                step.why.extend(reasons);
            }
            StepAction::Remake => step.why.push("its columns are in another order".to_owned()),
            StepAction::Take => {}
            StepAction::Rename(_) | StepAction::Create | StepAction::Set | StepAction::Drop => {
                step.mode = None
            }
        }
        if e.declared.is_none() {
            step.why.push("it was made by itself, and belongs to these declarations from now on".to_owned());
        }
        survey.plan.steps.push(step);
        Ok(())
    }

    /// Returns an error where a column would be dropped that the new query of a reader still reads.
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

/// Finds stream tables that are declared under another name than they have. A stream table counts as renamed
/// if it and one new declaration have the same query and schema. The stream table must not be declared under
/// its present name, and no other stream table or declaration may have that query.
fn find_renamed(survey: &mut Survey<'_>, search_path: &[String]) -> std::result::Result<(), Refused> {
    for at in survey.coming.clone() {
        let d = &survey.declared[at];
        let candidates: Vec<Entry> = survey
            .missing
            .iter()
            .filter(|e| e.exists && e.relation.schema == survey.places[at].schema)
            .filter(|e| same_text(&d.query, &e.original))
            .cloned()
            .collect();
        let others = survey.coming.iter().filter(|o| same_text(&survey.declared[**o].query, &d.query));
        let (Ok([e]), 1) = (<[Entry; 1]>::try_from(candidates), others.count()) else { continue };
        let step = Step {
            action: StepAction::Rename(shown(&e)),
            name: Qualified::new(&survey.places[at].schema, &survey.places[at].name).to_string(),
            why: vec!["the query is the same".to_owned()],
            declared: Some(at),
            id: Some(e.id),
            mode: None,
            loses: Some(Vec::new()),
        };
        survey.missing.retain(|m| m.id != e.id);
        survey.found[at] = Some(e);
        survey.plan.steps.push(step);
    }
    for step in &survey.plan.steps {
        let Some(e) = step.declared.and_then(|at| survey.found[at].as_ref()) else { continue };
        if let Some(reader) = left_behind(survey, e, search_path) {
            let error = Error::input(format!("{} cannot become {}", shown(e), step.name))
                .detail(format!("{reader} reads it by its name, and is not to have another query."))
                .hint("Let its query name the new one, or keep the name.");
            return Err(Refused { declared: step.declared, error });
        }
    }
    Ok(())
}

/// Returns a stream table that still reads `lost` by the name that `lost` is to lose.
fn left_behind(survey: &Survey<'_>, lost: &Entry, search_path: &[String]) -> Option<String> {
    let reads = |e: &&Entry| e.dependencies.iter().any(|d| d.relation.id == lost.relation.id);
    let goes = |e: &Entry| survey.missing.iter().any(|m| m.id == e.id);
    let changes = |e: &Entry| {
        let at = survey.found.iter().position(|f| f.as_ref().is_some_and(|f| f.id == e.id));
        at.is_some_and(|at| !names(&survey.declared[at].query, &lost.relation, search_path))
    };
    survey.registry.entries().filter(reads).find(|e| !goes(e) && !changes(e)).map(shown)
}

/// Whether two texts are the same query, apart from comments before it and semicolons after it.
fn same_text(a: &str, b: &str) -> bool {
    let bare = |s: &str| {
        let lines = s.lines().skip_while(|l| l.trim().is_empty() || l.trim_start().starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        text.trim().trim_end_matches(';').trim_end().to_owned()
    };
    bare(a) == bare(b)
}

/// Whether a query names this relation. A name without a schema may mean a relation in any schema of the
/// search path. In a query that the engine cannot read, every word that equals the name of the relation
/// counts.
fn names(query: &str, relation: &Relation, search_path: &[String]) -> bool {
    let Ok(parsed) = parse_query(query) else {
        return find_name(query, &relation.name).is_ok_and(|found| found.is_some());
    };
    let is = |(schema, name): &(Option<String>, String)| {
        let there = schema.as_ref().map_or(search_path, std::slice::from_ref);
        *name == *relation.name && there.iter().any(|s| *s == *relation.schema)
    };
    parsed.relations().iter().any(is)
}

/// Returns an order of the declarations in which each comes after the declarations that it reads.
///
/// # Errors
/// Declarations that read each other in a circle.
fn order(
    declared: &[Declared],
    places: &[Relation],
    search_path: &[String],
) -> std::result::Result<Vec<usize>, Refused> {
    let reads: BTreeMap<usize, Vec<usize>> = (0..declared.len())
        .map(|at| {
            let read =
                |other: &usize| *other != at && names(&declared[at].query, &places[*other], search_path);
            (at, (0..declared.len()).filter(read).collect())
        })
        .collect();
    let mut left: Vec<usize> = (0..declared.len()).collect();
    let mut order = Vec::new();
    while let Some(first) = left.first() {
        let ready = left.iter().position(|at| reads[at].iter().all(|r| !left.contains(r)));
        if ready.is_none() {
            require_no_circle(declared, places, &reads, &left, *first)?;
        }
        order.push(left.remove(ready.unwrap_or(0)));
    }
    Ok(order)
}

/// Returns an error where declarations read each other in a circle. Each declaration in `left` reads another
/// declaration in `left`. If the engine cannot read a query on the circle, the circle may be only apparent,
/// and it is no error.
fn require_no_circle(
    declared: &[Declared],
    places: &[Relation],
    reads: &BTreeMap<usize, Vec<usize>>,
    left: &[usize],
    first: usize,
) -> std::result::Result<(), Refused> {
    let mut walk = vec![first];
    let back = loop {
        let last = walk[walk.len() - 1];
        let Some(next) = reads[&last].iter().find(|r| left.contains(r)) else { return Ok(()) };
        if let Some(at) = walk.iter().position(|w| w == next) {
            break at;
        }
        walk.push(*next);
    };
    let circle = &walk[back..];
    if circle.iter().any(|at| parse_query(&declared[*at].query).is_err()) {
        return Ok(());
    }
    let name = |at: &usize| Qualified::new(&places[*at].schema, &places[*at].name).to_string();
    let path: Vec<String> = circle.iter().chain(circle.first()).map(name).collect();
    let error = Error::input(format!("{} reads itself: {}", path[0], path.join(" reads ")))
        .hint("Let one of them read the tables that the others are made from.");
    Err(Refused { declared: circle.first().copied(), error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;
    use trickle_core::vocabulary::RefreshMode;

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
        ];
        let (places, path) = (["c", "b", "a"].map(place), ["public".to_owned()]);
        assert_eq!(order(&all, &places, &path).unwrap(), [2, 1, 0]);
    }

    #[test]
    fn those_that_read_each_other_are_named() {
        let (places, path) = (["w", "x", "y", "z"].map(place), ["public".to_owned()]);
        let with = |x: &str| {
            let queries = [("w", "TABLE x"), ("x", x), ("y", "TABLE z"), ("z", "SELECT * FROM t, x")];
            order(&queries.map(|(name, query)| declared(name, query)), &places, &path)
        };
        let refused = with("TABLE y").unwrap_err();
        assert_eq!(refused.declared, Some(1));
        let expected = "public.x reads itself: public.x reads public.y reads public.z reads public.x";
        assert_eq!(refused.error.message(), expected);
        // The name may belong to something other than a relation.
        assert_eq!(with("SELECT 1 AS y FETCH WHAT").unwrap().len(), 4);
    }

    #[test]
    fn what_stands_around_a_query_is_not_of_it() {
        assert!(same_text("-- schedule: 1m\nSELECT 1;\n", "\n-- mode: full\n\nSELECT 1"));
        assert!(!same_text("SELECT 1 -- one", "SELECT 1"));
        assert!(!same_text("SELECT 1", "SELECT 2"));
    }

    #[test]
    fn what_cannot_be_read_names_every_word_of_it() {
        let path = ["one".to_owned(), "public".to_owned()];
        assert!(names("SELECT * FROM a", &place("a"), &path));
        assert!(!names("SELECT a FROM elsewhere.a", &place("a"), &path));
        assert!(names("SELECT * FROM a FETCH WHAT", &place("a"), &path));
        assert!(!names("SELECT 'a' FROM b FETCH WHAT", &place("a"), &path));
    }
}
