//! Designs a stream table from its query: resolves and plans the query, and chooses the mode. Changes
//! nothing in the database.

use crate::catalog::{self, PgCatalog, PlannedWith, is_copy};
use crate::db::RefreshDriver;
use crate::design::{Design, NewStreamTable, options};
use crate::error::{Error, Result};
use crate::in_force::{StoredSetting, safe_path};
use crate::names::{CATALOG, HIDDEN};
use crate::resolve::{Dependency, Resolved, resolve, type_differences};
use crate::say::Voice;
use crate::trickle::Trickle;
use std::collections::BTreeMap;
use std::sync::Arc;
use trickle_core::catalog::TableId;
use trickle_core::dag::StreamTableNode;
use trickle_core::parse::parse_query;
use trickle_core::refresh::{Relation, Setting};
use trickle_core::schedule::Schedule;
use trickle_core::stream_table::{Options, StreamTable, Verdict};
use trickle_core::vocabulary::RefreshMode;
use trickle_core::{Cause, Reason, ReasonKind};

/// Settings that can change a value of a result. These settings are therefore stored, and put in force for
/// every refresh.
const SETTINGS: &str = "
SELECT name, setting FROM pg_settings WHERE name IN ('TimeZone', 'DateStyle', 'IntervalStyle', 'lc_monetary',
    'lc_numeric', 'lc_time', 'extra_float_digits', 'bytea_output', 'xmlbinary', 'xmloption',
    'default_text_search_config', 'transform_null_equals', 'array_nulls')
ORDER BY name";

impl<C: RefreshDriver> Trickle<C> {
    /// Designs a stream table without changing anything in the database. Makes all checks of its query that
    /// need no change of the database.
    pub(crate) async fn design(
        &mut self,
        relation: Relation,
        id: i64,
        new: &NewStreamTable,
    ) -> Result<Design> {
        self.design_with(relation, id, new, BTreeMap::new()).await
    }

    /// Designs a stream table by a plan that relies on no more properties of the tables in `former` than a
    /// former plan did.
    pub(crate) async fn design_with(
        &mut self,
        relation: Relation,
        id: i64,
        new: &NewStreamTable,
        former: BTreeMap<TableId, PlannedWith>,
    ) -> Result<Design> {
        let schedule = new.schedule.clone().unwrap_or_else(|| Some("calculated".to_owned()));
        if let Some(schedule) = &schedule {
            Schedule::parse(schedule)?;
        }
        if is_copy(&relation) {
            return self.design_copy(relation, id, new).await;
        }
        let mode = new.mode.unwrap_or_default();
        let typed = self.search_path.clone();
        let mut resolved =
            resolve(&mut self.connection, &new.query, new.settings(), &typed, new.agreed.as_ref()).await?;
        self.check_dependencies(&resolved)?;
        self.check_cycle(&relation, &resolved).await?;
        let settings = self.settings_of(new).await?;
        let path = safe_path(self.db(), &settings).await?;
        let mut catalog = PgCatalog::under(path.clone());
        catalog.calling(&resolved.functions);
        catalog.plan_with(former);
        if new.snapshots || self.follows_copies(id).await? {
            catalog.put_copies(self.put_copies(&mut resolved).await?);
        }
        let options = options(&relation, id, self.server);
        let (table, reasons) = self.planned(&resolved, &mut catalog, &options, &settings).await?;
        let mut reasons = self.as_typed(reasons, &new.query, &resolved, &mut catalog, &options).await?;
        require_allowed(&resolved, table.as_deref(), &reasons)?;
        let mut captured = Vec::new();
        let full = mode == RefreshMode::Full;
        if table.is_none() || full {
            // A recompute reads the sources themselves and not their copies.
            resolved.dependencies.retain(|d| d.schema != HIDDEN);
            catalog = PgCatalog::under(path);
            catalog.calling(&resolved.functions);
        }
        match &table {
            Some(table) if !full => captured = self.capturable(&resolved, table.sources(), &mut reasons),
            // The clock and settings change without firing a trigger, so a query that depends on them is
            // recomputed at each refresh.
            _ if reasons.iter().any(depends_on_more) => {}
            _ => captured = self.watched(&mut catalog, &resolved).await?,
        }
        if mode == RefreshMode::Immediate {
            reasons.extend(self.against_immediate(&resolved, table.as_deref()).await?);
        }
        let table = table.filter(|_| reasons.is_empty() && !full);
        if table.is_none() && matches!(mode, RefreshMode::Differential | RefreshMode::Immediate) {
            return Err(impossible(&reasons, self.voice()));
        }
        let agreed = new.agreed.clone().unwrap_or_else(|| resolved.code.strange.clone());
        Ok(Design {
            relation,
            query: new.query.clone(),
            schedule,
            requested: mode,
            apart: new.apart.unwrap_or_default(),
            resolved,
            table,
            reasons,
            captured,
            settings,
            agreed,
        })
    }

    /// Plans a query. Returns the plan, or the reasons why there is none.
    async fn planned(
        &mut self,
        resolved: &Resolved,
        catalog: &mut PgCatalog,
        options: &Options,
        settings: &[StoredSetting],
    ) -> Result<(Option<Arc<StreamTable>>, Vec<Reason>)> {
        let verdict = match parse_query(&resolved.canonical) {
            Ok(parsed) => catalog::compile(self.db(), catalog, &parsed, options).await,
            Err(e) => Err(e.into()),
        };
        let (table, mut reasons) = match verdict {
            Ok(Verdict::Incremental(table)) => (Some(Arc::new(*table)), Vec::new()),
            Ok(Verdict::FullRefresh(reasons)) => (None, reasons),
            Err(e) if e.is_connection() => return Err(e),
            // PostgreSQL accepted the query, but the engine cannot read it. So no deltas can be compiled for
            // it.
            Err(e) => (None, vec![unread(&e)]),
        };
        reasons.extend(resolved.lookalikes.iter().cloned());
        if let Some(table) = table.as_ref().filter(|_| reasons.is_empty()) {
            let found = type_differences(&mut self.connection, table, &resolved.columns, settings).await?;
            reasons.extend(found);
        }
        Ok((table.filter(|_| reasons.is_empty()), reasons))
    }

    /// Replaces the places of reasons in the canonical text by their places in the query as it was typed. A
    /// reason has no place where its construct occurs only in the canonical text.
    async fn as_typed(
        &self,
        mut reasons: Vec<Reason>,
        typed: &str,
        resolved: &Resolved,
        catalog: &mut PgCatalog,
        options: &Options,
    ) -> Result<Vec<Reason>> {
        if reasons.is_empty() || typed == resolved.canonical {
            return Ok(reasons);
        }
        catalog.typed_under(&self.search_path);
        let verdict = match parse_query(typed) {
            Ok(parsed) => catalog::compile(self.db(), catalog, &parsed, options).await,
            Err(e) => Err(e.into()),
        };
        let mut places = match verdict {
            Ok(Verdict::FullRefresh(places)) => places,
            Err(e) if e.is_connection() => return Err(e),
            Ok(Verdict::Incremental(_)) | Err(_) => Vec::new(),
        };
        for r in &mut reasons {
            let same = places.iter().position(|p| p.construct == r.construct);
            r.span = same.and_then(|i| places.remove(i).span);
        }
        Ok(reasons)
    }

    fn check_dependencies(&self, resolved: &Resolved) -> Result<()> {
        let own = |d: &&Dependency| d.schema == CATALOG || d.schema == HIDDEN;
        if let Some(d) = resolved.dependencies.iter().find(own) {
            return Err(Error::input(format!(
                "a stream table cannot read {}.{}, which belongs to trickle",
                d.schema, d.name
            ))
            .hint("Query it directly, or copy it into a table of your own."));
        }
        let temporary = |d: &&Dependency| d.schema.starts_with("pg_temp");
        if let Some(d) = resolved.dependencies.iter().find(temporary) {
            return Err(Error::input(format!("a stream table cannot read the temporary table {}", d.name))
                .hint("It is gone with your session: use a permanent table."));
        }
        Ok(())
    }

    async fn check_cycle(&self, relation: &Relation, resolved: &Resolved) -> Result<()> {
        if relation.id.0 == 0 {
            return Ok(());
        }
        let name = |schema: &str, name: &str| Arc::from(format!("{schema}.{name}"));
        let sources = resolved.dependencies.iter().map(|d| (TableId(d.oid), name(&d.schema, &d.name)));
        let mut dag = self.registry().await?.dag()?;
        let node = StreamTableNode {
            id: relation.id,
            name: name(&relation.schema, &relation.name),
            sources: sources.collect(),
            apart: false,
        };
        Ok(dag.put(&node)?)
    }

    /// Returns the settings under which every refresh runs a query.
    pub(crate) async fn settings_of(&self, new: &NewStreamTable) -> Result<Vec<StoredSetting>> {
        match &new.settings {
            Some(kept) => {
                let stored = |s: &Setting| StoredSetting { name: s.name.clone(), values: s.values.clone() };
                Ok(kept.iter().map(stored).collect())
            }
            None => self.settings_in_force().await,
        }
    }

    async fn settings_in_force(&self) -> Result<Vec<StoredSetting>> {
        let doing = |e| Error::server("read the settings in force", e);
        let rows = self.db().query(SETTINGS, &[]).await.map_err(doing)?;
        let mut settings: Vec<StoredSetting> =
            rows.iter().map(|r| StoredSetting { name: r.get(0), values: vec![r.get(1)] }).collect();
        settings.push(StoredSetting { name: "search_path".into(), values: self.search_path.clone() });
        // Canonical text is written under this setting, whatever setting the query was typed under.
        settings
            .push(StoredSetting { name: "standard_conforming_strings".into(), values: vec!["on".into()] });
        Ok(settings)
    }
}

/// Returns an error for a query to which no stream table can be kept equal, in any mode.
fn require_allowed(resolved: &Resolved, table: Option<&StreamTable>, reasons: &[Reason]) -> Result<()> {
    if let Some(refusal) = reasons.iter().find_map(Reason::refusal) {
        return Err(refusal.into());
    }
    match resolved.refusal().filter(|_| table.is_none()) {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

/// Makes the error for a request for deltas that `reasons` rule out.
fn impossible(reasons: &[Reason], voice: Voice) -> Error {
    let why: Vec<&str> = reasons.iter().map(|r| r.construct.as_str()).collect();
    let mut help: Vec<&str> = Vec::new();
    for r in reasons {
        if !help.contains(&r.help.as_str()) {
            help.push(&r.help);
        }
    }
    let e = Error::input("the query cannot be maintained incrementally")
        .detail(format!("In the way: {}.", why.join("; ")))
        .hint(format!(
            "{} Or use {} to keep it by full refreshes.",
            help.join(" "),
            voice.one("--mode auto", "refresh_mode => 'AUTO'")
        ));
    match reasons.iter().find_map(|r| r.span) {
        Some(span) => e.at(span),
        None => e,
    }
}

/// Whether a reason says that the result may change while no source changes.
fn depends_on_more(reason: &Reason) -> bool {
    matches!(reason.cause, Cause::Surroundings | Cause::Unread)
}

/// Returns the reason for full refreshes of a query that the engine could not read.
fn unread(e: &Error) -> Reason {
    Reason {
        span: e.span(),
        kind: ReasonKind::NotYet,
        cause: Cause::Unread,
        construct: format!("something that the engine does not read ({})", e.message()),
        help: "Write it another way, or report it with the query.".to_owned(),
    }
}
