//! How a query is kept, or would be.

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

/// How a query is kept, or would be.
#[derive(Clone, Debug)]
pub struct Explained {
    /// What it is about: the stream table's name, or `query`.
    pub name: String,
    /// The query; the reasons point into it.
    pub query: String,
    /// The plan, where the query is incremental.
    pub table: Option<Arc<StreamTable>>,
    /// Why it is not.
    pub reasons: Vec<Reason>,
    /// What is run for it where it is not: statements by when.
    pub recompute: Vec<(&'static str, Vec<String>)>,
    /// Where something that it reads is not captured: how often a refresher computes it anew.
    pub polled_every: Option<Duration>,
    /// What it follows without being told of changes: all of it is read at each refresh, and compared with a copy.
    pub compared: Vec<String>,
    /// How the rows of the tables that it reads are found.
    pub reach: BTreeMap<TableId, Reach>,
}

impl<C: Connection> Trickle<C> {
    /// How a query would be kept in this database. Changes nothing.
    ///
    /// # Errors
    /// What is wrong with the query.
    pub async fn explain_query(&mut self, query: &str) -> Result<Explained> {
        let name = Name { schema: None, name: "query".to_owned() };
        let schema = self.search_path.first().map_or("public", String::as_str);
        let relation = Relation { id: TableId(0), schema: schema.into(), name: "query".into() };
        self.explained("query".to_owned(), relation, 0, &NewStreamTable::new(name, query)).await
    }

    /// How a stream table is kept, planned anew.
    ///
    /// # Errors
    /// None of that name; its query means nothing any more.
    pub async fn explain(&mut self, name: &Name) -> Result<Explained> {
        let registry = self.of_names(std::slice::from_ref(name)).await?;
        let e = registry.find(name, &self.search_path)?.clone();
        // To plan a query is to run its owner's functions.
        require_own(&e)?;
        // Also where full refreshes were asked for: what would be possible is of interest.
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

/// What makes, refreshes and drops a stream table that is kept by full refreshes.
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
