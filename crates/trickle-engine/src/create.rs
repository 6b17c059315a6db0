//! Creates stream tables. Designs a stream table from its query, makes its tables and the capture of its
//! sources, writes it into the catalog, and fills it.

mod design;

use crate::alter::{Readers, Replacement};
use crate::capture;
use crate::catalog::{self, PgCatalog, PlannedWith};
use crate::copies::is_copy;
use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::locks::{oids, patiently};
use crate::names::Name;
use crate::registry::{StoredSetting, options};
use crate::resolve::{Dependency, Resolved, resolve, type_differences};
use crate::say;
use crate::schema;
use crate::security::{Agreed, left_out, safe_path};
use crate::trickle::Trickle;
use std::collections::BTreeMap;
use std::sync::Arc;
use trickle_core::catalog::{TableDef, TableId, TableKind};
use trickle_core::dag::StreamTableNode;
use trickle_core::parse::parse_query;
use trickle_core::refresh::{Relation, Setting};
use trickle_core::schedule::Schedule;
use trickle_core::sql::{Ident, Qualified};
use trickle_core::stream_table::{Options, StreamTable, Verdict};
use trickle_core::vocabulary::{self, Mode, RefreshMode};
use trickle_core::{Cause, Reason, ReasonKind};

pub(crate) use design::Design;

/// The action where a stream table of the requested name exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Return an error.
    #[default]
    Fail,
    /// Do nothing.
    Skip,
    /// Give the existing stream table the new query. Its indexes, grants, comments and dependent views stay.
    Replace,
}

/// A request for a new stream table.
#[derive(Clone, Debug)]
pub struct NewStreamTable {
    /// The name of the stream table. Without a schema, the table is made in the first schema of the search
    /// path.
    pub name: Name,
    /// The defining query.
    pub query: String,
    /// The schedule; `Some(None)` means that only refreshes by hand are made. `None` takes the schedule of
    /// the stream table that is replaced, or `calculated` where none is replaced.
    pub schedule: Option<Option<String>>,
    /// The mode. `None` takes the mode of the stream table that is replaced, or [`RefreshMode::Auto`] where
    /// none is replaced.
    pub mode: Option<RefreshMode>,
    /// Whether to fill the stream table when it is created.
    pub initialize: bool,
    /// The action where a stream table of that name exists already.
    pub if_exists: IfExists,
    /// Whether materialized views and foreign tables are followed. Each refresh then reads all of them and
    /// compares them with copies. Where they are not followed, they rule out deltas. The value `false` has no
    /// effect where the stream table that is replaced reads copies.
    pub snapshots: bool,
    /// Whether the stream table is refreshed in a transaction of its own, after the stream tables that it
    /// reads ([`StreamTableNode::apart`]). Otherwise it is linked with them. `None` takes the value of the
    /// stream table that is replaced; where none is replaced, the tables are linked.
    pub apart: Option<bool>,
    /// The settings that decide the meaning of the query; `None` takes the settings of the session.
    pub settings: Option<Vec<Setting>>,
    /// The code and tables of other roles to which the owner has agreed. The request agrees to nothing more.
    /// With `None`, the request agrees to everything of other roles that the query uses now.
    pub agreed: Option<Agreed>,
}

impl NewStreamTable {
    /// Makes a request with the defaults: the schedule that its readers need, the incremental mode where
    /// possible, and a first fill at creation. If the request replaces a stream table, the schedule and the
    /// mode of that table are used.
    pub fn new(name: Name, query: impl Into<String>) -> NewStreamTable {
        NewStreamTable {
            name,
            query: query.into(),
            schedule: None,
            mode: None,
            initialize: true,
            if_exists: IfExists::Fail,
            snapshots: false,
            apart: None,
            settings: None,
            agreed: None,
        }
    }

    /// Returns the settings to put in force for the query.
    pub(crate) fn settings(&self) -> &[Setting] {
        self.settings.as_deref().unwrap_or_default()
    }
}

/// The result of creating or changing a stream table.
#[derive(Clone, Debug)]
pub struct Created {
    /// The `pgt_id` of the stream table, also where creation was skipped because the stream table existed.
    pub id: i64,
    /// `schema.name` of the stream table, quoted where needed.
    pub name: String,
    /// Whether the call made or changed anything.
    pub made: bool,
    /// The mode in force.
    pub mode: Mode,
    /// The reasons why the stream table is not incremental.
    pub reasons: Vec<Reason>,
}

/// Settings that can change a value of a result. These settings are therefore stored, and put in force for
/// every refresh.
const SETTINGS: &str = "
SELECT name, setting FROM pg_settings WHERE name IN ('TimeZone', 'DateStyle', 'IntervalStyle', 'lc_monetary',
    'lc_numeric', 'lc_time', 'extra_float_digits', 'bytea_output', 'xmlbinary', 'xmloption',
    'default_text_search_config', 'transform_null_equals', 'array_nulls')
ORDER BY name";

impl<C: Connection> Trickle<C> {
    /// Makes a stream table and fills it.
    ///
    /// # Errors
    /// The name, query, schedule or mode is wrong. After an error nothing is changed.
    pub async fn create(&mut self, new: &NewStreamTable) -> Result<Created> {
        self.require_foreign_schema(&new.name)?;
        if !new.snapshots {
            return self.create_over(new).await;
        }
        let made = match self.ensure_copies(&new.query).await {
            Ok(()) => self.create_over(new).await,
            Err(e) => Err(e),
        };
        // A copy that no stream table reads is dropped even after an error.
        let swept = self.sweep_copies().await;
        made.and_then(|made| swept.map(|()| made))
    }

    /// Returns an error where the schema is one of trickle's own, which are made and dropped together with
    /// the catalog.
    fn require_foreign_schema(&self, name: &Name) -> Result<()> {
        match name.schema.as_ref().or(self.search_path.first()) {
            Some(own) if own == schema::CATALOG || own == capture::HIDDEN => {
                Err(Error::input(format!("schema {own} belongs to trickle"))
                    .hint("Make the stream table in a schema of your own."))
            }
            _ => Ok(()),
        }
    }

    /// Makes a stream table over the copies that exist.
    pub(crate) async fn create_over(&mut self, new: &NewStreamTable) -> Result<Created> {
        let (relation, taken) = self.place(&new.name).await?;
        if let Some(id) = taken {
            return self.taken(new, relation, id).await;
        }
        self.forget_gone(&relation).await?;
        let id = self.next_id().await?;
        let design = self.design_fitting(relation, id, new).await?;
        self.tell_left_out(&design).await?;
        let name = Qualified::new(&design.relation.schema, &design.relation.name).to_string();
        let tables = oids(design.captured.iter().map(|(t, _)| t.id));
        let (patience, capture, progress) =
            (self.settings.patience, self.settings.capture, self.progress.clone());
        patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            design.make_tables(t, id).await?;
            design.note(t, id).await?;
            for (table, columns) in design.buffered() {
                capture::ensure(t, table, columns, capture).await?;
            }
            Ok(())
        })
        .await
        .map_err(overtaken)?;
        if new.initialize
            && let Err(e) = self.fill(id).await
        {
            self.drop_id(id, false).await?;
            return Err(e);
        }
        Ok(Created { id, name, made: true, mode: design.mode(), reasons: design.reasons })
    }

    /// Reports the schemas that refreshes leave out of the search path. For a table that is built beside,
    /// the report was made for its stream table already.
    pub(crate) async fn tell_left_out(&self, design: &Design) -> Result<()> {
        if &*design.relation.schema != capture::HIDDEN
            && let Some(left) = left_out(self.db(), design).await?
        {
            self.progress.say(&left);
        }
        Ok(())
    }

    /// Deletes the stream table of this name from the catalog if somebody dropped its table.
    async fn forget_gone(&mut self, relation: &Relation) -> Result<()> {
        let text = "SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_schema = $1 AND s.pgt_name = $2 \
             AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.pgt_relid)";
        let gone = self.db().query_opt(text, &[&&*relation.schema, &&*relation.name]).await;
        match gone.map_err(|e| Error::server("look for a stream table of this name", e))? {
            Some(row) => self.drop_id(row.get(0), false).await.map(drop),
            None => Ok(()),
        }
    }

    /// Takes the action of [`IfExists`] where a stream table has the name already.
    async fn taken(&mut self, new: &NewStreamTable, relation: Relation, id: i64) -> Result<Created> {
        let name = Qualified::new(&relation.schema, &relation.name).to_string();
        let registry = self.linked(&[relation.id]).await?;
        let there = registry.get(id);
        match new.if_exists {
            IfExists::Fail => {
                let error = Error::input(format!("stream table {name} already exists")).coded("42P07");
                Err(if there.is_some_and(|e| !e.is_populated) {
                    error
                        .detail("It was never filled: whoever created it left it empty, or ended before it was filled.")
                        .hint(format!("{} fills it; {} drops it.", say::refresh(&name), say::drop(&name)))
                } else {
                    error.hint(say::one(
                        "Use --or-replace to give it this query, or --if-not-exists to keep the one that is there.",
                        "Use pgtrickle.create_or_replace_stream_table to give it this query, or \
                         create_stream_table_if_not_exists to keep the one that is there.",
                    ))
                })
            }
            IfExists::Skip => {
                let e =
                    there.ok_or_else(|| Error::busy(format!("stream table {name} was dropped meanwhile")))?;
                Ok(Created { id, name, made: false, mode: e.mode, reasons: Vec::new() })
            }
            IfExists::Replace => {
                let new = NewStreamTable {
                    schedule: new.schedule.clone().or(there.map(|e| e.schedule.clone())),
                    mode: new.mode.or(there.map(|e| e.requested)),
                    apart: new.apart.or(there.map(|e| e.apart)),
                    ..new.clone()
                };
                self.replace(relation, id, &new, Replacement::Same(Readers::Stay)).await
            }
        }
    }

    /// Returns the schema and the name that a new table of this name gets, and the `pgt_id` of the stream
    /// table that has this name already.
    pub(crate) async fn place(&self, name: &Name) -> Result<(Relation, Option<i64>)> {
        let doing = |e| {
            let e = Error::server(format!("look for {name}"), e);
            match (e.sqlstate(), &name.schema) {
                (Some("42501"), Some(schema)) => {
                    let schema = Ident::new(schema);
                    e.hint(format!(
                        "As the schema's owner: GRANT USAGE, CREATE ON SCHEMA {schema} TO this role"
                    ))
                }
                _ => e,
            }
        };
        let schema = match &name.schema {
            Some(s) => s.clone(),
            None => self.search_path.first().cloned().ok_or_else(|| {
                Error::input(format!("no schema to create {name} in"))
                    .hint("Set search_path, or write schema.name.")
            })?,
        };
        let row = self
            .db()
            .query_one(
                "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL, c.oid, c.relkind::text, s.pgt_id, \
                 has_schema_privilege(to_regnamespace(quote_ident($1)), 'CREATE'), current_user::text \
                 FROM (SELECT to_regclass(pg_catalog.format('%I.%I', $1::text, $2::text))::oid AS oid) o \
                 LEFT JOIN pg_class c ON c.oid = o.oid LEFT JOIN pgtrickle.pgt_stream_tables s ON s.pgt_relid = c.oid",
                &[&schema, &name.name],
            )
            .await
            .map_err(doing)?;
        if !row.get::<bool>(0) {
            return Err(Error::input(format!("schema \"{schema}\" does not exist"))
                .hint(format!("CREATE SCHEMA {}", Ident::new(&schema))));
        }
        let oid: Option<u32> = row.get(1);
        let relation = Relation {
            id: TableId(oid.unwrap_or(0)),
            schema: schema.into(),
            name: name.name.as_str().into(),
        };
        let id: Option<i64> = row.get(3);
        if oid.is_some() && id.is_none() {
            let what = match row.get::<&str>(2) {
                "v" => "view",
                "m" => "materialized view",
                "i" | "I" => "index",
                "S" => "sequence",
                "c" => "composite type",
                "f" => "foreign table",
                "r" | "p" => "table",
                unknown => {
                    return Err(vocabulary::unknown("kind of relation", unknown).into());
                }
            };
            let shown = Qualified::new(&relation.schema, &relation.name);
            return Err(Error::input(format!("{what} {shown} already exists and is no stream table"))
                .coded("42P07")
                .hint("Choose another name."));
        }
        if oid.is_none() && row.get::<Option<bool>>(4) != Some(true) {
            let (shown, role) = (Ident::new(&relation.schema), Ident::new(row.get::<String>(5)));
            return Err(Error::input(format!("role {role} may not create tables in schema {shown}"))
                .hint(format!("As the schema's owner: GRANT CREATE ON SCHEMA {shown} TO {role}")));
        }
        Ok((relation, id))
    }

    async fn next_id(&self) -> Result<i64> {
        let text = "SELECT nextval(pg_get_serial_sequence('pgtrickle.pgt_stream_tables', 'pgt_id'))";
        Ok(self
            .db()
            .query_one(text, &[])
            .await
            .map_err(|e| Error::server("number a stream table", e))?
            .get(0))
    }

    /// Designs a stream table without changing anything in the database. Checks everything about its query
    /// that can be checked in this way.
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
        catalog.plan_with(former);
        if new.snapshots || self.follows_copies(id).await? {
            catalog.put_copies(self.put_copies(&mut resolved).await?);
        }
        let options = options(&relation, id, self.server);
        let (table, reasons) = self.planned(&resolved, &mut catalog, &options, &settings).await?;
        let mut reasons = self.as_typed(reasons, &new.query, &resolved, &mut catalog, &options).await?;
        if let Some(refusal) = reasons.iter().find_map(Reason::refusal) {
            return Err(refusal.into());
        }
        if let Some(refusal) = resolved.refusal().filter(|_| table.is_none()) {
            return Err(refusal);
        }
        let mut captured = Vec::new();
        let full = mode == RefreshMode::Full;
        if table.is_none() || full {
            // A recompute reads the sources themselves and not their copies.
            resolved.dependencies.retain(|d| d.schema != capture::HIDDEN);
            catalog = PgCatalog::under(path);
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
            return Err(impossible(&reasons));
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
        let own = |d: &&Dependency| d.schema == schema::CATALOG || d.schema == capture::HIDDEN;
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

    /// Returns the sources of an incremental query whose changes can be captured. Adds a reason against
    /// deltas for every other source.
    fn capturable(
        &self,
        resolved: &Resolved,
        sources: Vec<(Arc<TableDef>, Vec<usize>)>,
        reasons: &mut Vec<Reason>,
    ) -> Vec<(Arc<TableDef>, Vec<usize>)> {
        let mut captured = Vec::new();
        for (table, columns) in sources {
            let place = format!("{}.{}", table.schema, table.name);
            let dependency = resolved.dependencies.iter().find(|d| d.oid == table.id.0);
            let owned = dependency.is_some_and(|d| d.owned);
            let is_secured = dependency.is_some_and(|d| d.row_security.is_some());
            let kind = if is_secured { TableKind::View } else { table.kind };
            let against = match kind {
                TableKind::Table | TableKind::StreamTable if owned && &*table.schema != "pg_catalog" => None,
                TableKind::Table | TableKind::StreamTable => Some((
                    format!("the table {place} of {}", dependency.map_or("another owner", |d| &d.owner)),
                    "Only its owner may capture the changes of a table: make the stream table as that role.",
                )),
                TableKind::View => Some((
                    format!("row-level security on {place}"),
                    "What is read depends on who reads: query the table as its owner, or without policies.",
                )),
                TableKind::MaterializedView => Some((
                    format!("the materialized view {place}"),
                    say::one(
                        "Create it with --snapshots, which reads all of the view at each refresh and compares, or make the view \
                         a stream table, whose changes are known.",
                        "Make the view a stream table, whose changes are known; or create this one by the program with trickle \
                         create --snapshots, which reads all of the view at each refresh and compares.",
                    ),
                )),
                TableKind::ForeignTable => Some((
                    match table.descendants {
                        true => {
                            format!("the table {place}, of whose partitions or children some are foreign")
                        }
                        false => format!("the foreign table {place}"),
                    },
                    say::one(
                        "Its changes happen elsewhere: create it with --snapshots, which reads all of the table at each refresh \
                         and compares.",
                        "Its changes happen elsewhere: create it by the program with trickle create --snapshots, which reads all \
                         of the table at each refresh and compares.",
                    ),
                )),
            };
            match against {
                None => captured.push((table, columns)),
                Some((construct, help)) => {
                    reasons.push(Reason {
                        span: None,
                        kind: ReasonKind::NotYet,
                        cause: Cause::Source,
                        construct,
                        help: help.to_owned(),
                    });
                }
            }
        }
        captured
    }

    /// Returns the sources of a query that full refreshes bring up to date, if the changes of all of them
    /// can be captured; otherwise none. A refresh of such a query does nothing where no change was captured.
    async fn watched(
        &self,
        catalog: &mut PgCatalog,
        resolved: &Resolved,
    ) -> Result<Vec<(Arc<TableDef>, Vec<usize>)>> {
        let mut watched = Vec::new();
        for d in resolved.dependencies.iter().filter(|d| d.relkind != "v") {
            let table = capture::table_by_oid(self.db(), catalog, &d.schema, &d.name).await?;
            let Some(table) = table else { return Ok(Vec::new()) };
            let known = matches!(table.kind, TableKind::Table | TableKind::StreamTable);
            if !known || d.row_security.is_some() || !d.owned || d.schema == "pg_catalog" {
                return Ok(Vec::new());
            }
            let stored = |c: &usize| table.columns[*c].is_stored();
            let columns = (0..table.columns.len()).filter(stored).collect();
            watched.push((table, columns));
        }
        Ok(watched)
    }

    /// Whether a stream table reads copies of its sources.
    async fn follows_copies(&self, id: i64) -> Result<bool> {
        let text = "SELECT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables c \
             ON c.pgt_relid = d.source_relid WHERE d.pgt_id = $1 AND c.pgt_schema = $2)";
        let row = self.db().query_one(text, &[&id, &capture::HIDDEN]).await;
        Ok(row.map_err(|e| Error::server("look for copies", e))?.get(0))
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

/// Adds a hint to the error that another session has just made an object of this name.
fn overtaken(e: Error) -> Error {
    match e.sqlstate() {
        Some("42P07" | "42710" | "23505") => e.blamed_on_input().hint(format!(
            "Somebody made something of this name just now: look at it with {}.",
            say::one("trickle status", "SELECT * FROM pgtrickle.pgt_status()")
        )),
        _ => e,
    }
}

/// Makes the error for a request for deltas that `reasons` rule out.
fn impossible(reasons: &[Reason]) -> Error {
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
            say::one("--mode auto", "refresh_mode => 'AUTO'")
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

/// Returns the catalog's word for a stream table that is refreshed in a transaction of its own (`apart`), or
/// linked.
pub(crate) fn consistency(apart: bool) -> &'static str {
    if apart { "none" } else { "atomic" }
}

/// Returns the statement that sets the comment of a stored table, which names its stream table.
pub(crate) fn comment(id: i64, table: &Qualified) -> String {
    format!(
        "COMMENT ON TABLE {table} IS 'Stream table {id} of trickle: kept equal to its query; do not write it.'"
    )
}

/// Makes the trigger that lets only refreshes write to a stored table, and refuses all other writes. The
/// trigger also has the id of the stream table as its argument, and only the owner of the table can make it.
/// So a search by name for the tables of a restored catalog trusts this trigger alone.
pub(crate) async fn guard(t: &Transaction<'_>, id: i64, table: &Qualified, doing: &str) -> Result<()> {
    let text = format!(
        "CREATE OR REPLACE TRIGGER trickle_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} \
         FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle.refuse_writes('{id}')"
    );
    t.batch_execute(&text).await.map_err(|e| Error::server(doing, e))
}
