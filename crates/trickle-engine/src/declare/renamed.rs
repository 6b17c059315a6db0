//! Finds stream tables whose declaration gives them a new name.

use super::plan::Survey;
use super::queries::{names, same_text};
use super::{Refused, Step, StepAction};
use crate::error::Error;
use crate::registry::{Entry, shown};
use trickle_core::sql::Qualified;

/// Finds stream tables whose declaration gives them a new name. A stream table counts as renamed if it and
/// one new declaration have the same query and schema. The stream table must not be declared under its
/// present name, and no other stream table or declaration may have that query.
pub(super) fn find_renamed(
    survey: &mut Survey<'_>,
    search_path: &[String],
) -> std::result::Result<(), Refused> {
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
