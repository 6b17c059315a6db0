//! Stream tables that are kept within the statements that write their sources: IMMEDIATE.
//!
//! Triggers on the sources apply the delta of each statement as it ends. What holds:
//!
//! - **Once, with all of it.** A statement may change several sources (writable CTEs, cascades), and each AFTER trigger already
//!   sees all of it, while it is given the rows of its own table alone. So BEFORE triggers count up and AFTER triggers count
//!   down; what comes before the last is put aside, and the last applies everything.
//! - **Nobody in between.** Who writes what a delta reads waits for whoever wrote it before, until that transaction ends, and
//!   then reads with a fresh snapshot; where the isolation level gives none, PostgreSQL raises 40001, since the row that is
//!   waited for was written meanwhile. Whom a writer waits for is in `exclusion.rs`.
//! - **Never half.** What the triggers write, count and put aside is in rows of tables, so it goes with the savepoint or
//!   transaction that it belongs to.
//! - **Filled and kept in one transaction.** The statements here are run by a refresh that computes the stream table in full
//!   while nobody writes its sources; from its commit on the triggers keep it. Who holds a snapshot from before finds no row in
//!   the control table, and gets 40001.
//!
//! | object | name |
//! |---|---|
//! | control table | `immediate_<id>`: one row; or one for each bucket of groups, and as many for transactions |
//! | what is put aside | `immediate_<id>_<oid>`: `w`, then the referenced columns |
//! | trigger functions | `immediate_<id>_<oid>_begin`, `immediate_<id>_lock`, `immediate_<id>_<oid>_<event>` |
//! | triggers | `trickle_immediate_<id>_<oid>_<event>`, those that count up end in `_begin` |

mod body;
mod exclusion;
#[cfg(test)]
mod tests;

use crate::catalog::TableId;
use crate::cdc::{Buffer, EVENTS, event_word, xid8};
use crate::error::Result;
use crate::refresh::Setting;
use crate::sql::ast::{
    ColumnSpec, CreateTable, CreateTrigger, CreateTriggerFunction, DropObject, EnableAlways, FromItem,
    Insert, Instruction, ObjectKind, Query, Scalar, Select, SelectItem, SetExpr, Statement, TriggerEvent,
    TriggerTiming,
};
use crate::sql::{Ident, Qualified};
use crate::stream_table::StreamTable;
use crate::types::Type;
use exclusion::Exclusion;
use std::collections::BTreeSet;

/// How many buckets groups fall into, and after these how many rows count the open statements of transactions: of writers to
/// different groups, one pair in so many waits for the other.
const BUCKETS: i64 = 1024;

/// A stream table that is kept by triggers.
#[derive(Debug)]
pub struct Immediate<'t> {
    table: &'t StreamTable,
    id: i64,
    sources: Vec<Buffer>,
    above: Vec<Buffer>,
    settings: Vec<(String, Vec<String>)>,
    needs: Needs,
    exclusion: Exclusion,
}

/// Needs of its triggers beside the sources. Nobody tells the triggers that one is gone, so they ask each
/// time, and writers go on without it.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Functions that its query calls, by oid.
    pub functions: Vec<u32>,
    /// Functions that its owner might call as it was planned, among these and those behind them, by oid
    /// (`pgtrickle.rights_of`).
    pub callable: Vec<u32>,
    /// The schemas of all that it names, itself included, that its owner might use then, by oid.
    pub schemas: Vec<u32>,
    /// Of these functions, their names and bodies (`pgtrickle.functions_fingerprint`).
    pub bodies: String,
    /// Operators, casts and the like on which its values rest, by catalog and oid.
    pub objects: Vec<String>,
    /// Of these objects, everything that makes values (`pgtrickle.objects_fingerprint`).
    pub properties: String,
    /// Types that it names, by oid.
    pub types: Vec<u32>,
    /// Names of these types, of the values of enums and of attributes among them (`pgtrickle.type_names`).
    pub names: Vec<String>,
    /// The schemas in which its functions and the operators of its types are found, where nobody else makes
    /// any.
    pub path: Vec<String>,
    /// Keys of the sources and of the stream table itself.
    pub keys: Vec<Key>,
    /// The stream table itself, with the columns that it was made with; `None`: nobody else alters it.
    pub own: Option<Buffer>,
    /// Columns of the sources, by position, that the plan believes to have no NULL and that may be given one.
    pub never_null: Vec<(TableId, usize)>,
}

/// A key of a source, by which its rows are found. It goes with its index, which nobody tells the triggers
/// of.
#[derive(Clone, Debug)]
pub struct Key {
    /// The source.
    pub table: TableId,
    /// The unique index that enforces it, by oid.
    pub index: u32,
    /// Its columns, by attribute number.
    pub columns: Vec<i16>,
}

impl<'t> Immediate<'t> {
    /// The stream table of this `pgt_id`, whose sources are captured as buffers would capture them. `settings` are those that were
    /// in force when it was created.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn new(
        table: &'t StreamTable,
        id: i64,
        sources: Vec<Buffer>,
        settings: &[Setting],
    ) -> Result<Immediate<'t>> {
        let settings = settings.iter().map(in_force).collect();
        let (above, needs, exclusion) = (Vec::new(), Needs::default(), Exclusion::of(table)?);
        Ok(Immediate { table, id, sources, above, settings, needs, exclusion })
    }

    /// The same with needs beside its sources.
    #[must_use]
    pub fn needing(self, needs: Needs) -> Immediate<'t> {
        Immediate { needs, ..self }
    }

    /// The tables that stream tables read which it reads, however far above, where it does not read them itself. Who writes them
    /// ends up writing what it reads; so that all wait for each other in one order, that of the ids of stream tables, they wait
    /// as they begin.
    #[must_use]
    pub fn below(self, above: Vec<Buffer>) -> Immediate<'t> {
        Immediate { above, ..self }
    }

    /// Makes its triggers and what they need, anew where they are there. To be run where the stream table has just been computed,
    /// under locks that keep writers from its sources.
    ///
    /// # Errors
    /// A broken contract: a bug in a rule.
    pub fn install(&self) -> Result<Vec<Statement>> {
        let mut made = self.tables();
        let counts = self.counts();
        if counts {
            for source in &self.sources {
                made.extend(self.function(begin_name(source), self.of_own(source, self.begin())));
            }
        }
        if self.exclusion == Exclusion::All && !self.above.is_empty() {
            made.extend(self.function("lock".to_owned(), self.lock()));
            for (source, event) in self.above.iter().flat_map(|s| EVENTS.map(|e| (s, e))) {
                let triggers = source.triggered(false).into_iter();
                made.extend(
                    triggers.flat_map(|t| self.trigger(t, source, event, TriggerTiming::Before, "lock")),
                );
            }
        }
        for source in &self.sources {
            for event in EVENTS {
                let name = self.event_name(source, event);
                let body = self.of_own(source, body::writing(self.end(source, event)?));
                made.extend(self.function(name.clone(), body));
                for table in source.triggered(false) {
                    if counts {
                        made.extend(self.trigger(
                            table,
                            source,
                            event,
                            TriggerTiming::Before,
                            &begin_name(source),
                        ));
                    }
                    made.extend(self.trigger(table, source, event, TriggerTiming::After, &name));
                }
            }
        }
        Ok(made)
    }

    /// Whether it matters what of a statement is applied first.
    fn counts(&self) -> bool {
        self.exclusion != Exclusion::Keys
    }

    fn named(&self, rest: &str) -> Qualified {
        let rest = if rest.is_empty() { String::new() } else { format!("_{rest}") };
        Qualified::new(self.table.hidden_schema(), format!("immediate_{}{rest}", self.id))
    }
    fn control(&self) -> Qualified {
        self.named("")
    }
    /// Where changes of a source are put aside.
    fn aside(&self, source: TableId) -> Qualified {
        self.named(&source.to_string())
    }
    fn event_name(&self, source: &Buffer, event: TriggerEvent) -> String {
        format!("{}_{}", source.table().id, event_word(event))
    }

    /// The control table, and where changes are put aside.
    fn tables(&self) -> Vec<Statement> {
        let column = |name: &str, ty: Type, default: Option<Scalar>| ColumnSpec {
            name: Ident::new(name),
            ty,
            not_null: true,
            default,
        };
        let drop = |name| Statement::Drop(DropObject { kind: ObjectKind::Table, name, cascade: false });
        let create = |name, columns, primary_key| {
            Statement::CreateTable(CreateTable {
                name,
                unlogged: false,
                if_not_exists: false,
                columns,
                primary_key,
                fillfactor: None,
            })
        };
        let columns = vec![
            column("bucket", Type::Int4, None),
            column("xid", xid8(), Some(Scalar::call("pg_current_xact_id", vec![]))),
            column("pending", Type::Int4, Some(Scalar::int4(0))),
            column("aside", Type::Bool, Some(Scalar::bool(false))),
            column("anew", Type::Bool, Some(Scalar::bool(false))),
        ];
        let control = self.control();
        let mut made = vec![
            drop(control.clone()),
            create(control.clone(), columns, vec![Ident::fixed("bucket")]),
            self.buckets(),
        ];
        if !self.counts() {
            return made;
        }
        for source in &self.sources {
            let own = ColumnSpec { name: Ident::fixed("w"), ty: Type::Int2, not_null: true, default: None };
            let columns = source.columns().iter().filter_map(|c| source.column(*c));
            let columns = columns.map(|(name, ty)| ColumnSpec { name, ty, not_null: false, default: None });
            let name = self.aside(source.table().id);
            made.push(drop(name.clone()));
            made.push(create(name, std::iter::once(own).chain(columns).collect(), Vec::new()));
        }
        made
    }

    /// The rows of the control table.
    fn buckets(&self) -> Statement {
        let (s, n) = (Ident::fixed("s"), Ident::fixed("bucket"));
        let last = if matches!(self.exclusion, Exclusion::Groups { .. }) { 2 * BUCKETS - 1 } else { 0 };
        let series = Scalar::call("generate_series", vec![Scalar::int8(0), Scalar::int8(last)]);
        let rows = Select {
            items: vec![SelectItem { expr: Scalar::column(&s, &n).cast(Type::Int4), name: None }],
            from: vec![FromItem::call_naming(series, s, vec![n.clone()])],
            ..Select::default()
        };
        Statement::Insert(Insert {
            ctes: Vec::new(),
            note: None,
            table: self.control(),
            alias: None,
            columns: vec![n],
            source: Query::new(SetExpr::Select(Box::new(rows))),
            on_conflict: None,
            returning: Vec::new(),
        })
    }

    /// A function that runs with the rights of the stream table's owner, under the settings that its query was made under. Nobody
    /// else is to have it called for a table of his own.
    fn function(&self, name: String, body: Vec<Instruction>) -> [Statement; 2] {
        let own = [("jit", "off"), body::FOR_FEW];
        let own = own.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]));
        let name = self.named(&name);
        let made = CreateTriggerFunction {
            name: name.clone(),
            security_definer: true,
            settings: self.settings.iter().cloned().chain(own).collect(),
            variables: body::variables(),
            body: self.unless_gone(body),
        };
        [Statement::CreateTriggerFunction(made), Statement::RevokeFunction(name)]
    }

    /// Triggers of one table fire in the order of their names: where several stream tables read it, in that of their ids.
    fn trigger(
        &self,
        table: &Qualified,
        source: &Buffer,
        event: TriggerEvent,
        timing: TriggerTiming,
        function: &str,
    ) -> [Statement; 2] {
        let after = timing == TriggerTiming::After;
        let end = if after { "" } else { "_begin" };
        let name = Ident::new(format!(
            "trickle_immediate_{:010}_{}_{}{end}",
            self.id,
            source.table().id,
            event_word(event)
        ));
        let has = |of: &[TriggerEvent]| after && of.contains(&event);
        let old = has(&[TriggerEvent::Update, TriggerEvent::Delete]);
        let new = has(&[TriggerEvent::Insert, TriggerEvent::Update]);
        [
            Statement::CreateTrigger(CreateTrigger {
                replace: true,
                name: name.clone(),
                table: table.clone(),
                timing,
                event,
                old_table: old.then(body::old),
                new_table: new.then(body::new),
                for_each_row: false,
                function: self.named(function),
            }),
            Statement::EnableAlways(EnableAlways { table: table.clone(), trigger: name }),
        ]
    }

    /// Whether an expression of the query can raise.
    fn can_raise(&self) -> bool {
        let graph = self.table.graph();
        graph.reachable(self.table.prepared()).into_iter().any(|id| graph.rel(id).can_raise())
    }

    fn all(&self) -> BTreeSet<TableId> {
        self.sources.iter().map(|s| s.table().id).collect()
    }
}

/// The function that counts a statement on a source as it begins.
fn begin_name(source: &Buffer) -> String {
    format!("{}_begin", source.table().id)
}

/// A setting of a function. What operators of the query's types are is found by its search path; nothing of the caller's own
/// temporary schema must stand in for anything, so that comes last.
fn in_force(s: &Setting) -> (String, Vec<String>) {
    let temporary = "pg_temp".to_owned();
    let last = s.name == "search_path" && !s.values.contains(&temporary);
    (s.name.clone(), s.values.iter().cloned().chain(last.then_some(temporary)).collect())
}
