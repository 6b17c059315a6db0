//! Explains how refreshes bring a query's result up to date, or how they would.

use crate::catalog::{self, Reach};
use crate::copies::compared;
use crate::db::RefreshDriver;
use crate::design::{Design, NewStreamTable};
use crate::error::Result;
use crate::names::Name;
use crate::registry::{require_own, shown};
use crate::trickle::Trickle;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use trickle_core::Reason;
use trickle_core::catalog::TableId;
use trickle_core::cost::Strategy;
use trickle_core::refresh::{Program, Recompute, Relation, Windows};
use trickle_core::schedule;
use trickle_core::sql::Ident;
use trickle_core::stream_table::StreamTable;
use trickle_core::vocabulary::RefreshMode;

/// An explanation of the refreshes of a query: its plan, or the reasons for full refreshes.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The name of the stream table, or `query`.
    pub name: String,
    /// The text of the query, to which the places of the reasons refer.
    pub query: String,
    /// The plan, where the query is incremental.
    pub table: Option<Arc<StreamTable>>,
    /// The reasons why the query is not incremental.
    pub reasons: Vec<Reason>,
    /// The statements that are run where the query is not incremental, each list with its label `create`,
    /// `refresh` or `drop`.
    pub recompute: Vec<(&'static str, Vec<String>)>,
    /// The time between two recomputes by a refresher, where a source of the query is not captured.
    pub polled_every: Option<Duration>,
    /// The sources without triggers. Each refresh reads a source without triggers as a whole, and compares
    /// the source with a copy.
    pub compared: Vec<String>,
    /// The indexes and statistics by which deltas find rows of each source.
    pub reach: BTreeMap<TableId, Reach>,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Explains how refreshes would bring a query's result up to date in this database. Changes nothing in
    /// the database.
    ///
    /// # Errors
    /// The errors of the query.
    pub async fn explain_query(&mut self, query: &str) -> Result<Explained> {
        let name = Name { schema: None, name: "query".to_owned() };
        let schema = self.search_path.first().map_or("public", String::as_str);
        let relation = Relation { id: TableId(0), schema: schema.into(), name: "query".into() };
        self.explained("query".to_owned(), relation, 0, &NewStreamTable::new(name, query)).await
    }

    /// Explains how refreshes bring a stream table up to date, by a new plan for its query.
    ///
    /// # Errors
    /// No stream table has that name; its query is not valid any more.
    pub async fn explain(&mut self, name: &Name) -> Result<Explained> {
        let registry = self.of_names(std::slice::from_ref(name)).await?;
        let e = registry.find(name, &self.search_path)?.clone();
        // Planning a query runs functions of its owner, so another role must not plan it.
        require_own(&e, self.voice())?;
        // The mode is automatic even where the user asked for full refreshes, so that the answer shows
        // whether deltas are possible.
        let new = NewStreamTable { mode: Some(RefreshMode::Auto), ..self.as_now(&e, name.clone()).await? };
        let explained = self.explained(shown(&e), e.relation.clone(), e.id, &new).await?;
        let period = registry.periods(&schedule::Options::default())?.remove(&e.id);
        Ok(Explained { polled_every: period.filter(|_| e.polls()), ..explained })
    }

    async fn explained(
        &mut self,
        name: String,
        relation: Relation,
        id: i64,
        new: &NewStreamTable,
    ) -> Result<Explained> {
        let design = self.design(relation, id, new).await?;
        let mut reach = BTreeMap::new();
        for (def, _) in design.table.iter().flat_map(|t| t.sources()) {
            reach.insert(def.id, catalog::reach(self.db(), def.id).await?);
        }
        let compared = compared(&design.resolved);
        let recompute = if design.table.is_none() { recompute(&design)? } else { Vec::new() };
        Ok(Explained {
            name,
            recompute,
            query: design.query,
            table: design.table,
            reasons: design.reasons,
            polled_every: None,
            compared,
            reach,
        })
    }
}

/// Returns the statements that make, refresh and drop a stream table that full refreshes bring up to date.
fn recompute(design: &Design) -> Result<Vec<(&'static str, Vec<String>)>> {
    let columns: Vec<Ident> = design.resolved.columns.iter().map(|c| Ident::new(&c.name)).collect();
    let program = Recompute::new(&design.name(), &columns, &[], &design.resolved.canonical);
    let refresh = program.statements(Strategy::Full, &Windows::new())?;
    Ok(vec![
        ("create", vec![design.create_table()]),
        ("refresh", refresh.iter().map(|t| t.text.to_string()).collect()),
        ("drop", vec![format!("DROP TABLE {}", design.name())]),
    ])
}
