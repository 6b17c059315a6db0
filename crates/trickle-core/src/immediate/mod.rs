//! Stream tables that are kept within the statements that write their sources: IMMEDIATE.
//!
//! Triggers on the sources apply the delta of each statement as it ends. The invariants:
//!
//! - **Once, with all changes.** A statement may change several sources (writable CTEs, cascades). Each AFTER
//!   trigger sees all of these changes already, but is given only the rows of its own table. So BEFORE
//!   triggers count up and AFTER triggers count down; changes before the last trigger are put aside, and the
//!   last trigger applies everything.
//! - **Nobody in between.** A writer of rows that a delta reads waits until earlier writers of them have
//!   ended their transactions, and then reads with a fresh snapshot. Where the isolation level gives none,
//!   PostgreSQL raises 40001, since the row that the writer waits for was written meanwhile. `exclusion.rs`
//!   says for which writers a writer waits.
//! - **Never half.** Everything that the triggers write, count and put aside is in rows of tables, so it is
//!   undone with its savepoint or transaction.
//! - **Filled and kept in one transaction.** A refresh runs the statements of this module, after it has
//!   computed the stream table in full while nobody writes its sources. From its commit on the triggers keep
//!   the table. A transaction whose snapshot is older finds no row in the control table, and gets 40001.
//!
//! | object | name |
//! |---|---|
//! | control table | `immediate_<id>`: one row; or one per bucket of groups, and as many for transactions |
//! | changes that are put aside | `immediate_<id>_<oid>`: `w`, then the referenced columns |
//! | functions | `immediate_<id>_<oid>_begin`, `immediate_<id>_lock`, `immediate_<id>_<oid>_<event>` |
//! | triggers | `trickle_immediate_<id>_<oid>_<event>`; the names of triggers that count up end in `_begin` |

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

/// The number of buckets that groups fall into. The control table has as many rows again, which count the
/// open statements of transactions. Of the pairs of writers to different groups, one in so many waits.
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

/// The objects that the triggers need beside the sources. No trigger fires when one of them is dropped, so
/// the triggers check each time, and writers go on without it.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Functions that the query calls, by oid.
    pub functions: Vec<u32>,
    /// Functions, among these and those behind them, that the owner was allowed to call when the plan was
    /// made, by oid (`pgtrickle.rights_of`).
    pub callable: Vec<u32>,
    /// Schemas of everything that the query names, and of the stream table, that the owner was allowed to use
    /// then, by oid.
    pub schemas: Vec<u32>,
    /// Names and bodies of these functions (`pgtrickle.functions_fingerprint`).
    pub bodies: String,
    /// Operators, casts and the like that values depend on, by catalog and oid.
    pub objects: Vec<String>,
    /// Properties of these objects that decide values (`pgtrickle.objects_fingerprint`).
    pub properties: String,
    /// Types that the query names, by oid.
    pub types: Vec<u32>,
    /// Names of these types, of the values of enums and of attributes among them (`pgtrickle.type_names`).
    pub names: Vec<String>,
    /// Schemas in which its functions and the operators of its types are found, and in which no other role
    /// may make any.
    pub path: Vec<String>,
    /// Keys of the sources and of the stream table itself.
    pub keys: Vec<Key>,
    /// The stream table itself, with the columns that it was made with; `None`: nobody else alters it.
    pub own: Option<Buffer>,
    /// Columns of the sources, by position, that the plan takes to have no NULL, though they may be given
    /// one.
    pub never_null: Vec<(TableId, usize)>,
}

/// A key of a source, by which its rows are found. The key is lost with its index, and no trigger fires then.
#[derive(Clone, Debug)]
pub struct Key {
    /// The source.
    pub table: TableId,
    /// The unique index that enforces the key, by oid.
    pub index: u32,
    /// The columns of the key, by attribute number.
    pub columns: Vec<i16>,
}

impl<'t> Immediate<'t> {
    /// Describes the stream table `id` (its `pgt_id`). `sources` are the buffers that would capture its
    /// sources; `settings` are those that were in force when it was created.
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

    /// Adds the objects that it needs beside its sources.
    #[must_use]
    pub fn needing(self, needs: Needs) -> Immediate<'t> {
        Immediate { needs, ..self }
    }

    /// Adds the tables from which its sources are computed, through stream tables at any depth, except those
    /// that it reads itself. A writer of such a table ends up writing a source. Such writers wait at the
    /// start of their statement, so that all writers wait in one order: by the ids of stream tables.
    #[must_use]
    pub fn below(self, above: Vec<Buffer>) -> Immediate<'t> {
        Immediate { above, ..self }
    }

    /// Returns the statements that make the triggers and the objects that these need; existing ones are made
    /// again. Run the statements when the stream table has just been computed, under locks that keep writers
    /// from its sources.
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

    /// Whether it matters which changes of a statement are applied first.
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
    /// Returns the table in which changes of a source are put aside.
    fn aside(&self, source: TableId) -> Qualified {
        self.named(&source.to_string())
    }
    fn event_name(&self, source: &Buffer, event: TriggerEvent) -> String {
        format!("{}_{}", source.table().id, event_word(event))
    }

    /// Makes the control table and the tables in which changes are put aside.
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

    /// Fills the control table.
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

    /// Makes a function that runs with the rights of the stream table's owner, under the settings of its
    /// query. Nobody else may have it called for a table of his own.
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

    /// Makes a trigger. Triggers of one table fire in the order of their names: where several stream tables
    /// read the table, in the order of their ids.
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

/// Returns the name of the function that counts a statement on a source as it begins.
fn begin_name(source: &Buffer) -> String {
    format!("{}_begin", source.table().id)
}

/// Returns a setting of a function. Its search path decides which operators of the query's types are found.
/// Objects in the caller's own temporary schema must not hide others, so that schema comes last.
fn in_force(s: &Setting) -> (String, Vec<String>) {
    let temporary = "pg_temp".to_owned();
    let last = s.name == "search_path" && !s.values.contains(&temporary);
    (s.name.clone(), s.values.iter().cloned().chain(last.then_some(temporary)).collect())
}
