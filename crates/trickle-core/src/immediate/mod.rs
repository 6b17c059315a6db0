//! IMMEDIATE stream tables, which triggers update within the statements that write their sources.
//!
//! Triggers on the sources apply the delta of each statement when the statement ends. The invariants are:
//!
//! - **The changes of a statement are applied once, all together.** A statement may change several sources
//!   (writable CTEs, cascades). When an AFTER trigger fires, all these changes are visible, but the trigger
//!   gets only the rows of its own table. BEFORE triggers therefore count up, and AFTER triggers count down.
//!   All triggers but the last put their changes aside, and the last trigger applies all changes.
//! - **No other writer comes in between.** A writer of rows that a delta reads waits until the transactions
//!   of earlier writers of these rows have ended. The waiting writer then reads with a fresh snapshot. Where
//!   the isolation level gives no fresh snapshot, PostgreSQL raises 40001, since an earlier writer wrote the
//!   row for which this writer waits. `exclusion.rs` defines which writers wait for each other.
//! - **No change is applied in part.** Everything that the triggers write, count and put aside is in rows of
//!   tables. It is therefore undone together with its savepoint or transaction.
//! - **The fill and the triggers are made in one transaction.** While nobody writes the sources, a refresh
//!   computes the stream table in full, and then runs the statements of this module. From the commit of this
//!   refresh, the triggers keep the table up to date. A transaction whose snapshot is older finds no row in
//!   the control table, and gets 40001.
//!
//! | object | name |
//! |---|---|
//! | control table | `immediate_<id>`: one row; or one per bucket of groups, and as many for transactions |
//! | changes that are put aside | `immediate_<id>_<oid>`: `w`, then the referenced columns |
//! | functions | `immediate_<id>_<oid>_begin`, `immediate_<id>_lock`, `immediate_<id>_<oid>_<event>` |
//! | triggers | `trickle_immediate_<id>_<oid>_<event>`; the names of triggers that count up end in `_begin` |

mod body;
mod exclusion;
mod guard;
mod modifiers;
#[cfg(test)]
mod tests;
mod waits;

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
use crate::table::TableId;
use crate::types::Type;
use exclusion::Exclusion;
pub use modifiers::Modified;
use std::collections::BTreeSet;

/// The number of buckets into which groups are hashed. The control table has the same number of additional
/// rows, which count the open statements of transactions. Two writers of different groups wait for each other
/// with a probability of 1 in 1024.
const BUCKETS: i64 = 1024;

/// An IMMEDIATE stream table, which triggers keep up to date.
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

/// The objects, other than the sources, that the triggers need. PostgreSQL fires no trigger when one of these
/// objects is dropped or altered, so the triggers check the objects each time. If one of them is missing,
/// writers succeed and the stream table is not updated.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Functions that the query calls, by oid.
    pub functions: Vec<u32>,
    /// Functions that the owner was allowed to execute when the plan was made, by oid
    /// (`pgtrickle.rights_of`). They are among [`Needs::functions`] and the functions that those call.
    pub callable: Vec<u32>,
    /// Schemas of the stream table and of all objects that the query names, by oid. Only schemas that the
    /// owner was allowed to use when the plan was made are listed.
    pub schemas: Vec<u32>,
    /// Names and bodies of [`Needs::functions`], as a fingerprint (`pgtrickle.functions_fingerprint`).
    pub bodies: String,
    /// Operators, casts and similar objects that values depend on, by catalog and oid.
    pub objects: Vec<String>,
    /// Properties of [`Needs::objects`] that decide values, as a fingerprint
    /// (`pgtrickle.objects_fingerprint`).
    pub properties: String,
    /// Types that the query names, by oid.
    pub types: Vec<u32>,
    /// Names of [`Needs::types`], and of their enum values and attributes (`pgtrickle.type_names`).
    pub names: Vec<String>,
    /// Schemas in which PostgreSQL finds the functions of the query and the operators of its types. No other
    /// role may create functions or operators in these schemas.
    pub path: Vec<String>,
    /// Keys of the sources and of the stream table itself.
    pub keys: Vec<Key>,
    /// The stream table itself, with its columns from the time when it was made. `None` if nobody else alters
    /// the stream table.
    pub own: Option<Buffer>,
    /// Columns of the sources, by position, that contain no NULL according to the plan, although a writer
    /// could store a NULL in them.
    pub never_null: Vec<(TableId, usize)>,
    /// Columns of the sources whose types have modifiers.
    pub modified: Vec<Modified>,
}

/// A key of a source or of the stream table, by which rows are found. The key is lost when its index is
/// dropped, which fires no trigger.
#[derive(Clone, Debug)]
pub struct Key {
    /// The table that has the key.
    pub table: TableId,
    /// The unique index that enforces the key, by oid.
    pub index: u32,
    /// The columns of the key, by attribute number.
    pub columns: Vec<i16>,
}

impl<'t> Immediate<'t> {
    /// Describes the stream table `id` (its `pgt_id`). `sources` are the sources of the stream table, each
    /// described by the change buffer that it would have in another mode. `settings` are the settings that
    /// were in force when the stream table was created.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
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

    /// Adds the objects that the triggers need in addition to the sources.
    #[must_use]
    pub fn needing(self, needs: Needs) -> Immediate<'t> {
        Immediate { needs, ..self }
    }

    /// Adds the tables from which the sources are computed, through stream tables at any depth. Tables that
    /// are sources themselves are not among them. A writer of such a table indirectly writes a source. Such
    /// writers wait at the start of their statement. All writers therefore wait in one order: by the ids of
    /// the stream tables.
    #[must_use]
    pub fn below(self, above: Vec<Buffer>) -> Immediate<'t> {
        Immediate { above, ..self }
    }

    /// Returns the statements that make the triggers, their functions and their tables; existing triggers and
    /// functions are replaced. Run these statements directly after the stream table is computed, under locks
    /// that keep writers away from its sources.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
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

    /// Whether the order in which a statement's changes are applied matters, so that open statements must be
    /// counted.
    fn counts(&self) -> bool {
        self.exclusion != Exclusion::Keys
    }

    fn named(&self, rest: &str) -> Qualified {
        let rest = if rest.is_empty() { String::new() } else { format!("_{rest}") };
        Qualified::new(self.table.state_schema(), format!("immediate_{}{rest}", self.id))
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

    /// Makes a function that runs with the rights of the stream table's owner, under the settings of the
    /// query. No other role may attach the function to another table.
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

    /// Makes a trigger. Triggers of one table fire in the order of their names. If several stream tables read
    /// the table, their triggers therefore fire in the order of the stream tables' ids.
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

    /// Whether an expression of the query can raise an error.
    fn can_raise(&self) -> bool {
        let graph = self.table.graph();
        graph.reachable(self.table.prepared()).into_iter().any(|id| graph.rel(id).can_raise())
    }

    fn all(&self) -> BTreeSet<TableId> {
        self.sources.iter().map(|s| s.table().id).collect()
    }
}

/// Returns the name of the function that counts a statement on a source as the statement begins.
fn begin_name(source: &Buffer) -> String {
    format!("{}_begin", source.table().id)
}

/// Returns a setting of a function. The search path decides which operators PostgreSQL finds for the query's
/// types. Objects in the caller's temporary schema must not hide others, so `pg_temp` comes last.
fn in_force(s: &Setting) -> (String, Vec<String>) {
    let temporary = "pg_temp".to_owned();
    let last = s.name == "search_path" && !s.values.contains(&temporary);
    (s.name.clone(), s.values.iter().cloned().chain(last.then_some(temporary)).collect())
}
