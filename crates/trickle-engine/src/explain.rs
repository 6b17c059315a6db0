//! Explains how a query is kept, or would be kept.

use crate::catalog::{self, Reach};
use crate::copies::compared;
use crate::create::{Design, NewStreamTable};
use crate::db::Connection;
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

/// The way in which a query is kept, or would be kept.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The name of the stream table, or `query`.
    pub name: String,
    /// The text of the query; the reasons point into it.
    pub query: String,
    /// The plan, where the query is incremental.
    pub table: Option<Arc<StreamTable>>,
    /// Why the query is not incremental.
    pub reasons: Vec<Reason>,
    /// The statements that are run where the query is not incremental, each list under `create`, `refresh` or
    /// `drop`.
    pub recompute: Vec<(&'static str, Vec<String>)>,
    /// The time between two recomputes by a refresher, where a source is not captured.
    pub polled_every: Option<Duration>,
    /// The sources without triggers: each refresh reads all of such a source and compares it with a copy.
    pub compared: Vec<String>,
    /// How deltas find rows of each source.
    pub reach: BTreeMap<TableId, Reach>,
}

impl<C: Connection> Trickle<C> {
    /// Explains how a query would be kept in this database. Changes nothing.
    ///
    /// # Errors
    /// The errors of the query.
    pub async fn explain_query(&mut self, query: &str) -> Result<Explained> {
        let name = Name { schema: None, name: "query".to_owned() };
        let schema = self.search_path.first().map_or("public", String::as_str);
        let relation = Relation { id: TableId(0), schema: schema.into(), name: "query".into() };
        self.explained("query".to_owned(), relation, 0, &NewStreamTable::new(name, query)).await
    }

    /// Explains how a stream table is kept, with a new plan.
    ///
    /// # Errors
    /// There is no stream table of that name, or its query is no longer valid.
    pub async fn explain(&mut self, name: &Name) -> Result<Explained> {
        let registry = self.of_names(std::slice::from_ref(name)).await?;
        let e = registry.find(name, &self.search_path)?.clone();
        // Planning a query runs functions of its owner.
        require_own(&e)?;
        // The mode is automatic even where the user asked for full refreshes, to show whether deltas are
        // possible.
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

/// Returns the statements that make, refresh and drop a stream table that is kept by full refreshes.
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
