//! The bodies of the trigger functions of IMMEDIATE stream tables.

use super::exclusion::Exclusion;
use super::{BUCKETS, Immediate, Needs, guard, modifiers};
use crate::apply::LayoutSources;
use crate::cdc::{Buffer, changed_rows, fit};
use crate::error::Result;
use crate::graph::NodeId;
use crate::opt;
use crate::sql::ast::{
    ConflictAction, Cte, CteBody, Delete, FromItem, Insert, Instruction, OnConflict, OrderBy, Query, Scalar,
    Select, SelectItem, SetExpr, SpecialCall, Statement, TriggerEvent, Update,
};
use crate::sql::{
    BufferSources, Changes, Ident, Qualified, Relation, Sources, Stored, Window, opaque, render_states,
};
use crate::stream_table::Refresh;
use crate::table::{TableDef, TableId};
use crate::types::Type;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of changed rows from which on a statement is planned for its own number of rows. For fewer rows
/// the server uses one plan per session, made for [`FEW`] rows, however many rows the first statement of the
/// session changes.
const MANY: i64 = 1000;
const FEW: i64 = 1;

/// The setting under which the plan for few rows finds rows by index, even in a table of one page. Later
/// statements of the same transaction may find a thousand rows in the table, and the planner cannot learn
/// this before the transaction commits.
pub(super) const FOR_FEW: (&str, &str) = ("enable_seqscan", "off");

pub(super) fn old() -> Ident {
    Ident::fixed("trickle_old")
}
pub(super) fn new() -> Ident {
    Ident::fixed("trickle_new")
}

/// The name of the trigger that refuses writes to a stream table.
const GUARD: &str = "trickle_guard";

/// The variable for the place (`ctid`) of the row of the control table.
const AT: &str = "trickle_at";
/// The variable for the number of statements that have begun and not ended.
const PENDING: &str = "trickle_pending";
/// The variable for whether changes were put aside.
const ASIDE: &str = "trickle_aside";
/// The variable for whether a source was truncated, so that the stream table is recomputed.
const ANEW: &str = "trickle_anew";
/// The variable for the result of a statement; nothing reads it.
const DONE: &str = "trickle_done";
/// The variable for the result of a function that is called for its effect.
const SET: &str = "trickle_set";
/// The variable for the previous value of the setting [`REFRESHING`].
const WAS: &str = "trickle_was";
/// The setting under which stream tables may be written.
const REFRESHING: &str = "pgtrickle.refreshing";

pub(super) fn variables() -> Vec<(Ident, &'static str)> {
    [
        (AT, "text"),
        (PENDING, "int"),
        (ASIDE, "bool"),
        (ANEW, "bool"),
        (DONE, "record"),
        (SET, "text"),
        (WAS, "text"),
        fit::VARIABLE,
    ]
    .map(|(name, ty)| (Ident::fixed(name), ty))
    .into()
}

fn variable(name: &'static str) -> Scalar {
    Scalar::Column { table: None, name: Ident::fixed(name) }
}

/// Lets instructions write stream tables, by a setting. An error undoes the setting together with all other
/// changes. A SET clause of the function would be shorter, but only superusers may give a function a setting
/// that the server does not know.
pub(super) fn writing(body: Vec<Instruction>) -> Vec<Instruction> {
    let set = |value| {
        let args = vec![Scalar::text(REFRESHING), value, Scalar::bool(true)];
        Instruction::Assign(Ident::fixed(SET), Scalar::call("set_config", args))
    };
    let now = Scalar::call("current_setting", vec![Scalar::text(REFRESHING), Scalar::bool(true)]);
    let before = Instruction::Assign(Ident::fixed(WAS), now);
    // A setting that was never set is NULL; for NULL, `set_config` would change nothing.
    let was = Scalar::Special(SpecialCall::Coalesce, vec![variable(WAS), Scalar::text("")]);
    [before, set(Scalar::text("on"))].into_iter().chain(body).chain([set(was)]).collect()
}

fn when(condition: Scalar, then: Vec<Instruction>, otherwise: Vec<Instruction>) -> Instruction {
    Instruction::If { condition, then, otherwise }
}

fn not_found() -> Scalar {
    variable("found").negated()
}

/// The relations from which the changes of each table are read.
struct Given<'t> {
    layout: LayoutSources<'t>,
    from: BTreeMap<TableId, Qualified>,
    expected: Option<i64>,
}

impl Sources for Given<'_> {
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        let Some(name) = self.from.get(&def.id) else { return self.layout.changes(def) };
        let columns = def.columns.iter().map(|c| BufferSources::buffer_column(&c.name)).collect();
        Ok(Changes {
            relation: Relation { name: name.clone(), columns },
            weight: Ident::fixed("w"),
            weight_type: Type::Int2,
            window: Window::All,
            counted: self.expected.map(Scalar::int8),
        })
    }
    fn state(&self, of: NodeId) -> Result<Stored> {
        self.layout.state(of)
    }
}

impl Immediate<'_> {
    /// Runs `body`, unless the stream table was dropped with DROP TABLE. After such a drop the triggers do
    /// nothing and writers succeed, even if another table has got the name. The trigger that refuses writes
    /// shows whether a table is the stream table. If the stream table exists under another name, the catalog
    /// notes that its triggers stopped, and the writer's statement succeeds.
    pub(super) fn unless_gone(&self, body: Vec<Instruction>) -> Vec<Instruction> {
        let (s, c, g) = (Ident::fixed("s"), Ident::fixed("c"), Ident::fixed("g"));
        let column = |of: &Ident, name| Scalar::column(of, &Ident::fixed(name));
        let none = |from: Vec<FromItem>, filter: Vec<Scalar>| {
            let items = vec![SelectItem { expr: Scalar::int4(1), name: None }];
            let rows = Query::select(Select { items, from, filter, ..Select::default() });
            Scalar::Exists { query: Box::new(rows), negated: true }
        };
        let name = &self.table.layout().result.name;
        let named = Scalar::call("to_regclass", vec![Scalar::text(&name.to_string())]);
        let unguarded = none(
            vec![FromItem::relation(Qualified::new("pg_catalog", "pg_trigger"), g.clone())],
            vec![column(&g, "tgrelid").equals(named), column(&g, "tgname").equals(Scalar::text(GUARD))],
        );
        let gone = none(
            vec![
                FromItem::relation(Qualified::new("pgtrickle", "pgt_stream_tables"), s.clone()),
                FromItem::relation(Qualified::new("pg_catalog", "pg_class"), c.clone()),
            ],
            vec![
                column(&s, "pgt_id").equals(Scalar::int8(self.id)),
                column(&c, "oid").equals(column(&s, "pgt_relid")),
            ],
        );
        // Another role may have become the owner, without the right to leave a mark. A function of the
        // catalog therefore notes that the triggers no longer keep the table up to date.
        let elsewhere = when(gone.negated(), self.stop(), vec![Instruction::Return]);
        // An older snapshot shows neither the stream table nor its trigger, so it is refused first. A
        // snapshot that shows the row of the control table shows everything made before this row.
        let missing = when(unguarded, vec![self.check(), elsewhere], Vec::new());
        let fit = guard::all_fit(&self.sources, &self.needs, self.id);
        self.permitted().into_iter().chain([missing]).chain(fit).chain(body).collect()
    }

    /// Returns the checks that stop the triggers if the owner of the stream table lost the right to read the
    /// sources, or if another role became the owner. The catalog notes that the triggers stopped, and writers
    /// succeed. Changes that fire event triggers are handled before. No trigger fires, however, when a role
    /// loses a right that it had through another role. Schemas are checked first, since a table cannot be
    /// looked up by name without a right on its schema.
    fn permitted(&self) -> [Instruction; 3] {
        let may =
            |function, what: Scalar, privilege| Scalar::call(function, vec![what, Scalar::text(privilege)]);
        let oid = |id: TableId| Scalar::int8(i64::from(id.0)).cast(Type::Other(Arc::new(opaque("oid"))));
        // The value is NULL for a schema that was renamed; passing the name itself would raise.
        let usage = |schema: &str| {
            let named = Scalar::call("to_regnamespace", vec![Scalar::text(&Ident::new(schema).to_string())]);
            let named = named.cast(Type::Other(Arc::new(opaque("oid"))));
            may("has_schema_privilege", named, "USAGE").coalesce(Scalar::bool(false))
        };
        let stop = || self.stop();
        let mut wanted =
            vec![may("has_table_privilege", Scalar::text(&self.control().to_string()), "UPDATE")];
        for s in self.sources.iter().map(Buffer::table) {
            wanted.push(usage(&s.schema));
            wanted.push(may("has_table_privilege", oid(s.id), "SELECT"));
        }
        // The value is NULL for an object that is gone.
        let each = |function, ids: &[u32], privilege| {
            let each = ids.iter().map(|id| may(function, oid(TableId(*id)), privilege));
            each.map(|has| has.coalesce(Scalar::bool(false))).collect::<Vec<_>>()
        };
        wanted.extend(each("has_function_privilege", &self.needs.callable, "EXECUTE"));
        let schemas = each("has_schema_privilege", &self.needs.schemas, "USAGE");
        let schemas = std::iter::once(usage(self.table.hidden_schema())).chain(schemas);
        let remade = Scalar::or(self.as_planned().into_iter().map(Scalar::negated));
        // A snapshot from before the plan was made may show other objects than the plan has, so an old
        // snapshot is refused first.
        let remade = when(remade, std::iter::once(self.check()).chain(stop()).collect(), Vec::new());
        let denied = |rights: Vec<Scalar>| {
            when(Scalar::or(rights.into_iter().map(Scalar::negated)), stop(), Vec::new())
        };
        [denied(schemas.collect()), denied(wanted), remade]
    }

    /// Returns the conditions that functions, operators, types and schemas are as when the plan was made.
    fn as_planned(&self) -> Vec<Scalar> {
        let Needs {
            functions,
            bodies,
            objects,
            properties,
            types,
            names,
            path,
            callable: _,
            schemas: _,
            keys: _,
            own: _,
            never_null: _,
            modified,
        } = &self.needs;
        let call = |name, list| Scalar::Call(Qualified::new("pgtrickle", name), vec![list]);
        let oids = |of: &[u32]| fit::list(of.iter().map(u32::to_string), "oid[]");
        let texts = |of: &[String]| fit::list(of.iter().cloned(), "text[]");
        let mut all = Vec::new();
        if !functions.is_empty() {
            all.push(call("functions_fingerprint", oids(functions)).equals(Scalar::text(bodies)));
        }
        if !objects.is_empty() {
            all.push(call("objects_fingerprint", texts(objects)).equals(Scalar::text(properties)));
        }
        if !types.is_empty() {
            all.push(call("type_names", oids(types)).op("@>", texts(names)));
        }
        if !path.is_empty() {
            all.push(call("is_safe_path", texts(path)));
        }
        if !modified.is_empty() {
            all.push(modifiers::are_as_planned(modified));
        }
        all
    }

    /// Makes the catalog note that the triggers no longer keep the stream table up to date, and returns from
    /// the function.
    fn stop(&self) -> Vec<Instruction> {
        let noted = Qualified::new("pgtrickle", "stop_keeping");
        let noted = Instruction::Assign(Ident::fixed(SET), Scalar::Call(noted, vec![Scalar::int8(self.id)]));
        let usage = vec![Scalar::text("pgtrickle"), Scalar::text("USAGE")];
        vec![when(Scalar::call("has_schema_privilege", usage), vec![noted], Vec::new()), Instruction::Return]
    }

    /// Runs `body`, unless the trigger fires on a former child or partition of the source that was altered;
    /// for such a table, leaves a mark and returns.
    pub(super) fn of_own(&self, source: &Buffer, body: Vec<Instruction>) -> Vec<Instruction> {
        let foreign = fit::of_an_altered_child(source, source.columns(), Some(self.id));
        foreign.into_iter().chain(body).collect()
    }

    /// Leaves a mark and returns if the trigger does not get the rows that the plan must see.
    fn unusable(&self, source: &Buffer, event: TriggerEvent) -> Vec<Instruction> {
        let stop = |why| vec![fit::marked(source, self.id, Scalar::text(why)), Instruction::Return];
        let moves = event == TriggerEvent::Update && source.is_partitioned();
        let moved = moves.then(|| when(fit::may_have_moved(source), stop(fit::MOVED), Vec::new()));
        // Only statements on existing rows reach the children of a table.
        let reaches =
            matches!(event, TriggerEvent::Update | TriggerEvent::Delete) && !source.is_partitioned();
        let temporary =
            reaches.then(|| when(fit::has_temporary_child(source), stop(fit::TEMPORARY), Vec::new()));
        moved.into_iter().chain(temporary).chain(self.without_nulls(source, event)).collect()
    }

    /// Leaves a mark and returns if a row has a NULL in a column that has none according to the plan. NOT
    /// NULL can be dropped without firing a trigger. A transaction may see an older catalog, which still
    /// shows NOT NULL, but the rows that it writes are never older.
    fn without_nulls(&self, source: &Buffer, event: TriggerEvent) -> Option<Instruction> {
        let never = self.needs.never_null.iter().filter(|(of, _)| *of == source.table().id);
        let never: Vec<_> = never.filter_map(|(_, c)| source.table().columns.get(*c)).collect();
        let r = Ident::fixed("r");
        let nulls = |from: Ident| {
            let any = never.iter().map(|c| Scalar::column(&r, &Ident::from(&c.name)).is_null());
            let rows = Select {
                items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
                from: vec![FromItem::relation(Qualified::bare(from), r.clone())],
                filter: vec![Scalar::or(any)],
                ..Select::default()
            };
            Scalar::Exists { query: Box::new(Query::select(rows)), negated: false }
        };
        let given = match event {
            TriggerEvent::Insert => vec![new()],
            TriggerEvent::Update => vec![old(), new()],
            TriggerEvent::Delete => vec![old()],
            TriggerEvent::Truncate => Vec::new(),
        };
        if never.is_empty() || given.is_empty() {
            return None;
        }
        let names: Vec<&str> = never.iter().map(|c| c.name.as_ref()).collect();
        let reason = format!("one of these columns, which were NOT NULL, holds NULL: {}", names.join(", "));
        let stop = vec![fit::marked(source, self.id, Scalar::text(&reason)), Instruction::Return];
        Some(when(Scalar::or(given.into_iter().map(nulls)), stop, Vec::new()))
    }

    /// Counts a statement that begins.
    pub(super) fn begin(&self) -> Vec<Instruction> {
        let c = Ident::fixed("c");
        let column = |name| Scalar::column(&c, &Ident::fixed(name));
        // The first trigger of a statement ignores the flags of an earlier statement.
        let still = |name| Scalar::and([column(name), column("pending").op(">", Scalar::int4(0))]);
        let set = vec![
            (Ident::fixed("pending"), column("pending").op("+", Scalar::int4(1))),
            (Ident::fixed("aside"), still("aside")),
            (Ident::fixed("anew"), still("anew")),
        ];
        self.count(set)
    }

    /// Waits for other transactions, as [`Self::begin`] does, but counts no statement.
    pub(super) fn lock(&self) -> Vec<Instruction> {
        let (c, pending) = (Ident::fixed("c"), Ident::fixed("pending"));
        self.count(vec![(pending.clone(), Scalar::column(&c, &pending))])
    }

    /// Updates the row of the control table, and reads it. The update waits until all other transactions that
    /// updated this row have ended.
    ///
    /// Each statement of a transaction makes a version of the row. A setting of the transaction stores the
    /// place of the last version, so that older versions need not be searched. If the stored place is wrong,
    /// the row is searched for.
    fn count(&self, set: Vec<(Ident, Scalar)>) -> Vec<Instruction> {
        let c = Ident::fixed("c");
        let column = |name| Scalar::column(&c, &Ident::fixed(name));
        let setting = Scalar::text(&format!("pgtrickle.immediate_{}", self.id));
        let remembered = Scalar::call("current_setting", vec![setting.clone(), Scalar::bool(true)]);
        let remembered = Scalar::Special(SpecialCall::NullIf, vec![remembered, Scalar::text("")])
            .cast(Type::Other(Arc::new(opaque("tid"))));
        let returned = [column("ctid").cast(Type::Text), column("pending"), column("aside"), column("anew")];
        let update = |at: Option<Scalar>| {
            let statement = Statement::Update(Update {
                ctes: Vec::new(),
                table: self.control(),
                alias: Some(c.clone()),
                set: set.clone(),
                from: Vec::new(),
                // All roles can change the setting, so it may name the place of another row.
                filter: at.into_iter().chain([column("bucket").equals(self.counter())]).collect(),
                returning: returned
                    .iter()
                    .map(|expr| SelectItem { expr: expr.clone(), name: None })
                    .collect(),
            });
            Instruction::Fetch(statement, [AT, PENDING, ASIDE, ANEW].map(Ident::fixed).into())
        };
        let remember = Scalar::call("set_config", vec![setting, variable(AT), Scalar::bool(true)]);
        vec![
            update(Some(column("ctid").equals(remembered))),
            when(
                not_found(),
                vec![update(None), when(not_found(), vec![self.too_old()], Vec::new())],
                Vec::new(),
            ),
            Instruction::Assign(Ident::fixed(AT), remember),
        ]
    }

    /// Returns the number of the row that counts the statements: the only row, or the row of the transaction.
    fn counter(&self) -> Scalar {
        if self.exclusion == Exclusion::All {
            return Scalar::int4(0);
        }
        let number = current_xid().cast(Type::Text).cast(Type::Int8).op("%", Scalar::int8(BUCKETS));
        number.op("+", Scalar::int8(BUCKETS)).cast(Type::Int4)
    }

    /// Raises the error that the stream table was computed after the writer's snapshot was taken.
    fn too_old(&self) -> Instruction {
        Instruction::Raise {
            sqlstate: "40001",
            message: format!(
                "could not serialize access: stream table {} was computed after this transaction's snapshot",
                self.table.layout().result.name
            ),
            hint: "Retry the transaction.".to_owned(),
        }
    }

    /// Returns the instructions of the trigger that fires after a statement has changed a source.
    pub(super) fn end(&self, source: &Buffer, event: TriggerEvent) -> Result<Vec<Instruction>> {
        let truncated = event == TriggerEvent::Truncate;
        if self.counts() {
            return if truncated { self.end_of_truncate() } else { self.end_of_counted(source, event) };
        }
        if truncated {
            return Ok(std::iter::once(self.check()).chain(self.anew()?).collect());
        }
        let once = self.check_versions(source, event)?;
        let apply = self.direct(source, event, Refresh::AffectedGroups)?;
        let known = self.unusable(source, event).into_iter().chain([self.check(), once]);
        Ok(known.chain(apply).collect())
    }

    fn end_of_truncate(&self) -> Result<Vec<Instruction>> {
        let mut body = self.count_down(true);
        let anew = self.mark().into_iter().chain(self.anew()?).chain(self.forget()).collect();
        body.push(when(self.is_last(), anew, Vec::new()));
        Ok(body)
    }

    fn end_of_counted(&self, source: &Buffer, event: TriggerEvent) -> Result<Vec<Instruction>> {
        let mut body = self.unusable(source, event);
        body.extend(self.count_down(false));
        let id = source.table().id;
        let all = self.lock_groups(id, None)?.into_iter().chain(self.trying(self.apply_aside()?)?);
        let anew = self.mark().into_iter().chain(self.anew()?).collect();
        let all = when(variable(ANEW), anew, all.collect());
        let last = std::iter::once(all).chain(self.forget()).collect();
        let aside = vec![self.put_aside(source, event), when(self.is_last(), last, Vec::new())];
        let lock = self.lock_groups(id, Some(self.transition(source, event)))?;
        let direct = self.trying(self.direct(source, event, Refresh::Delta)?)?;
        body.push(when(variable(ASIDE), aside, lock.into_iter().chain(direct).collect()));
        Ok(body)
    }

    /// Whether all statements that were counted as they began have ended.
    fn is_last(&self) -> Scalar {
        variable(PENDING).equals(Scalar::int4(0))
    }

    fn count_down(&self, truncated: bool) -> Vec<Instruction> {
        let column = |name| Scalar::column(&Ident::fixed("c"), &Ident::fixed(name));
        let others = column("pending").op(">", Scalar::int4(1));
        let mut set = vec![
            (Ident::fixed("pending"), column("pending").op("-", Scalar::int4(1))),
            (Ident::fixed("aside"), Scalar::or([column("aside"), others])),
        ];
        if truncated {
            set.push((Ident::fixed("anew"), Scalar::bool(true)));
        }
        self.count(set)
    }

    /// Runs `body`, and recomputes the stream table if a delta in `body` raises an error that the query does
    /// not raise.
    fn trying(&self, body: Vec<Instruction>) -> Result<Vec<Instruction>> {
        if !self.can_raise() {
            return Ok(body);
        }
        Ok(vec![Instruction::Attempt { body, otherwise: self.anew()? }])
    }

    /// Recomputes the query, and writes the difference to the stream table.
    fn anew(&self) -> Result<Vec<Instruction>> {
        let sources = self.given(BTreeMap::new(), None);
        let statements = self.table.refresh_from(Refresh::Difference, &self.all(), &sources)?;
        Ok(statements.into_iter().flat_map(for_many).collect())
    }

    fn given(&self, from: BTreeMap<TableId, Qualified>, expected: Option<i64>) -> Given<'_> {
        let layout = LayoutSources::new(self.table.layout(), self.table.hidden_schema());
        Given { layout, from, expected }
    }

    /// Returns the changes of a statement, as a common table expression of the statement that applies them.
    fn transition(&self, source: &Buffer, event: TriggerEvent) -> Cte {
        let columns = source.columns().iter().filter_map(|c| source.column(*c)).map(|(name, _)| name);
        Cte {
            name: Ident::new(format!("trickle_changed_{}", source.table().id)),
            columns: std::iter::once(Ident::fixed("w")).chain(columns).collect(),
            materialized: None,
            body: CteBody::Query(Query::new(changed_rows(source, event, &old(), &new()))),
        }
    }

    /// Applies the changes of one event from its transition tables.
    fn direct(&self, source: &Buffer, event: TriggerEvent, how: Refresh) -> Result<Vec<Instruction>> {
        let id = source.table().id;
        let changed = BTreeSet::from([id]);
        let rows = self.transition(source, event);
        let from = BTreeMap::from([(id, Qualified::bare(rows.name.clone()))]);
        let statement = |expected| -> Result<Option<Statement>> {
            let given = self.given(from.clone(), expected);
            let made = self.table.refresh_from(how, &changed, &given)?.into_iter().next();
            Ok(made.map(|s| beginning_with(rows.clone(), s)))
        };
        let (Some(few), Some(many)) = (statement(Some(FEW))?, statement(None)?) else {
            return Ok(Vec::new());
        };
        Ok(vec![when(
            is_many(event),
            for_many(many).into(),
            vec![Instruction::Fetch(few, vec![Ident::fixed(DONE)])],
        )])
    }

    /// Stores the changes of one event until the last event of the statement.
    fn put_aside(&self, source: &Buffer, event: TriggerEvent) -> Instruction {
        let columns = source.columns().iter().filter_map(|c| source.column(*c)).map(|(name, _)| name);
        Instruction::Run(Statement::Insert(Insert {
            ctes: Vec::new(),
            note: None,
            table: self.aside(source.table().id),
            alias: None,
            columns: std::iter::once(Ident::fixed("w")).chain(columns).collect(),
            source: Query::new(changed_rows(source, event, &old(), &new())),
            on_conflict: None,
            returning: Vec::new(),
        }))
    }

    /// Applies all changes that were put aside. Changes of other transactions are not visible, since they are
    /// either not committed or already deleted.
    fn apply_aside(&self) -> Result<Vec<Instruction>> {
        let from = self.all().into_iter().map(|id| (id, self.aside(id))).collect();
        let made = self.table.refresh_from(Refresh::Delta, &self.all(), &self.given(from, None))?;
        let [statement] = <[Statement; 1]>::try_from(made)
            .map_err(|_| crate::error::Error::internal("a delta is not one statement"))?;
        Ok(for_many(statement).into())
    }

    fn forget(&self) -> impl Iterator<Item = Instruction> {
        let delete = |s: &Buffer| {
            Instruction::Run(Statement::Delete(Delete {
                ctes: Vec::new(),
                table: self.aside(s.table().id),
                alias: None,
                using: Vec::new(),
                filter: Vec::new(),
                returning: Vec::new(),
            }))
        };
        self.sources.iter().map(delete)
    }

    /// Refuses a snapshot that was taken before the stream table was computed.
    fn check(&self) -> Instruction {
        let c = Ident::fixed("c");
        let rows = Select {
            items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
            from: vec![FromItem::relation(self.control(), c)],
            ..Select::default()
        };
        let none = Scalar::Exists { query: Box::new(Query::select(rows)), negated: true };
        when(none, vec![self.too_old()], Vec::new())
    }

    /// Raises if the snapshot shows two rows of one key. The first was deleted by another transaction after
    /// the snapshot; the second was written by this statement. The unique index allows both rows, and a
    /// lookup by key may find either.
    fn check_versions(&self, source: &Buffer, event: TriggerEvent) -> Result<Instruction> {
        let (d, s) = (Ident::fixed("d"), Ident::fixed("s"));
        let rows = self.transition(source, event);
        let key = self.table.affected_key().unwrap_or_default();
        let names = key.iter().filter_map(|c| Some((source.column(*c)?.0, source.table().columns.get(*c)?)));
        let same = names
            .map(|(here, c)| Scalar::column(&s, &Ident::from(&c.name)).equals(Scalar::column(&d, &here)));
        let versions = Select {
            items: vec![SelectItem { expr: Scalar::aggregate("count", vec![]), name: None }],
            from: vec![FromItem::relation(source.table_name().clone(), s.clone())],
            filter: same.collect(),
            ..Select::default()
        };
        let several = Scalar::Subquery(Box::new(Query::select(versions))).op(">", Scalar::int8(1));
        let mut found = Query::select(Select {
            items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
            from: vec![FromItem::relation(Qualified::bare(rows.name.clone()), d)],
            filter: vec![several],
            ..Select::default()
        });
        found.ctes = vec![rows];
        let found = Scalar::Exists { query: Box::new(found), negated: false };
        let level = Scalar::call("current_setting", vec![Scalar::text("transaction_isolation")]);
        let old = level.op("<>", Scalar::text("read committed"));
        // In one condition, PostgreSQL might evaluate the second part first.
        Ok(when(old, vec![when(found, vec![self.too_old()], Vec::new())], Vec::new()))
    }

    /// Makes transactions with older snapshots fail, for every group that they change.
    fn mark(&self) -> Option<Instruction> {
        let groups = matches!(self.exclusion, Exclusion::Groups { .. });
        let bucket = Scalar::Column { table: None, name: Ident::fixed("bucket") };
        groups.then(|| {
            Instruction::Run(Statement::Update(Update {
                ctes: Vec::new(),
                table: self.control(),
                alias: None,
                set: vec![(Ident::fixed("xid"), current_xid())],
                from: Vec::new(),
                filter: vec![bucket.op("<", Scalar::int8(BUCKETS))],
                returning: Vec::new(),
            }))
        })
    }

    /// Waits for all transactions that changed a group in one of these buckets, and makes later ones wait.
    /// Buckets are locked in order, so two statements cannot wait for each other. Writing the bucket's row
    /// makes transactions with older snapshots fail (PostgreSQL 13.2.2). One write in a transaction is
    /// enough. Later statements only lock the row, which ON CONFLICT does whether its condition is true or
    /// false.
    fn lock_groups(&self, id: TableId, transition: Option<Cte>) -> Result<Option<Instruction>> {
        let Exclusion::Groups { of, keys } = &self.exclusion else { return Ok(None) };
        let from = transition.as_ref().map_or_else(|| self.aside(id), |t| Qualified::bare(t.name.clone()));
        let mut graph = self.table.graph().clone();
        let mut differ = self.table.differ(&mut graph, &BTreeSet::from([id]));
        let change = differ.delta(*of)?;
        let touched = differ.keys(change, keys)?;
        let touched = opt::Optimizer::default().optimize_one(&mut graph, touched)?;
        let given = self.given(BTreeMap::from([(id, from)]), Some(FEW));
        let (ctes, named) = render_states(&graph, &[touched], &given, self.table.profile())?;
        let Some(named) = named.first() else {
            return Err(crate::error::Error::internal("a root was not rendered"));
        };
        let (k, bucket, xid) = (Ident::fixed("k"), Ident::fixed("bucket"), Ident::fixed("xid"));
        let values = named.columns.iter().map(|c| Scalar::column(&k, c)).collect();
        let hash = Scalar::call("hash_record_extended", vec![Scalar::Row(values), Scalar::int8(0)]);
        let number = hash.op("&", Scalar::int8(BUCKETS - 1)).cast(Type::Int4);
        let found = Select {
            distinct: true,
            items: vec![
                SelectItem { expr: number, name: None },
                SelectItem { expr: current_xid(), name: None },
            ],
            from: vec![FromItem::relation(Qualified::bare(named.relation.clone()), k)],
            ..Select::default()
        };
        let mut found = Query::new(SetExpr::Select(Box::new(found)));
        found.order_by = vec![OrderBy { expr: Scalar::int4(1), descending: false, nulls_first: false }];
        let (c, excluded) = (Ident::fixed("c"), Ident::fixed("excluded"));
        let other = Scalar::column(&c, &xid).op("<>", Scalar::column(&excluded, &xid));
        let update = ConflictAction::Update {
            set: vec![(xid.clone(), Scalar::column(&excluded, &xid))],
            filter: vec![other],
        };
        Ok(Some(Instruction::Run(Statement::Insert(Insert {
            ctes: transition.into_iter().chain(ctes).collect(),
            note: None,
            table: self.control(),
            alias: Some(c),
            columns: vec![bucket.clone(), xid],
            source: found,
            on_conflict: Some(OnConflict { columns: vec![bucket], action: update }),
            returning: Vec::new(),
        }))))
    }
}

/// Runs a statement that is planned for the present number of rows.
fn for_many(statement: Statement) -> [Instruction; 2] {
    let on =
        Scalar::call("set_config", vec![Scalar::text(FOR_FEW.0), Scalar::text("on"), Scalar::bool(true)]);
    [Instruction::Assign(Ident::fixed(SET), on), Instruction::Anew(statement)]
}

fn current_xid() -> Scalar {
    Scalar::call("pg_current_xact_id", vec![])
}

/// Puts the relation that holds the changes before the other common table expressions of a statement that
/// applies them.
fn beginning_with(rows: Cte, statement: Statement) -> Statement {
    match statement {
        Statement::Query(mut query) => {
            query.ctes.insert(0, rows);
            Statement::Query(query)
        }
        other => other,
    }
}

/// Whether a statement changed at least [`MANY`] rows.
fn is_many(event: TriggerEvent) -> Scalar {
    let (r, n) = (Ident::fixed("r"), Ident::fixed("n"));
    let from = if event == TriggerEvent::Insert { new() } else { old() };
    let one = SelectItem { expr: Scalar::int4(1), name: Some(n) };
    let mut rows = Query::select(Select {
        items: vec![one],
        from: vec![FromItem::relation(Qualified::bare(from), r.clone())],
        ..Select::default()
    });
    rows.limit = Some(Scalar::int8(MANY));
    let counted = Select {
        items: vec![SelectItem { expr: Scalar::aggregate("count", vec![]), name: None }],
        from: vec![FromItem::Subquery {
            query: Box::new(rows),
            alias: r,
            columns: Vec::new(),
            lateral: false,
        }],
        ..Select::default()
    };
    Scalar::Subquery(Box::new(Query::select(counted))).op(">=", Scalar::int8(MANY))
}
