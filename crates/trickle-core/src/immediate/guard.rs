//! The guard of the triggers of an IMMEDIATE stream table. The triggers run only if everything that they need
//! is as it was when they were made.

use super::body::{SET, new, old};
use super::{Immediate, Key, Needs, modifiers};
use crate::cdc::fit::{SOURCE, fits, function, list, marked, reason, source, variable, when};
use crate::cdc::{Buffer, children, fit};
use crate::sql::ast::{FromItem, Instruction, Query, Scalar, Select, SelectItem, TriggerEvent};
use crate::sql::{Ident, Qualified, opaque};
use crate::table::TableId;
use crate::types::Type;
use std::sync::Arc;

/// The name of the trigger that refuses writes to a stream table.
const GUARD: &str = "trickle_guard";

impl Immediate<'_> {
    /// Runs `body`, unless the stream table was dropped with DROP TABLE. After such a drop the triggers do
    /// nothing and writers succeed, even if another table has got the name. A table is the stream table if it
    /// has the trigger that refuses writes. If the stream table exists under another name, the catalog notes
    /// that its triggers stopped, and the writer's statement succeeds.
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
        // Another role may have become the owner, and this role may lack the right to leave a mark. A
        // function of the catalog therefore notes that the triggers no longer keep the table up to date.
        let elsewhere = when(gone.negated(), self.stop(), vec![Instruction::Return]);
        // In an older snapshot, neither the stream table nor its trigger is visible, so such a snapshot is
        // refused first. If the control table's row is visible in a snapshot, everything made before this row
        // is visible too.
        let missing = when(unguarded, vec![self.check(), elsewhere], Vec::new());
        let fit = all_fit(&self.sources, &self.needs, self.id);
        let temporary = self.without_temporary_children();
        self.permitted().into_iter().chain([missing]).chain(fit).chain(temporary).chain(body).collect()
    }

    /// Returns the checks that stop the triggers if the writer's session has a temporary child of a source.
    /// Deltas read all sources as that session sees them, and no other session sees the rows of the child.
    fn without_temporary_children(&self) -> impl Iterator<Item = Instruction> {
        self.sources.iter().filter(|s| s.is_described() && !s.is_partitioned()).map(|s| {
            let mark = fit::marked(s, self.id, Scalar::text(children::TEMPORARY));
            when(children::has_temporary_child(s), vec![mark, Instruction::Return], Vec::new())
        })
    }

    /// Returns the checks that stop the triggers in two cases: the owner of the stream table lost the right
    /// to read the sources, or another role became the owner. The catalog notes that the triggers stopped,
    /// and writers succeed. Event triggers handle changes of rights and owners before this check. No trigger
    /// fires, however, when a role loses a right that it had through another role. Schemas are checked first,
    /// since a table cannot be looked up by name without a right on its schema.
    fn permitted(&self) -> [Instruction; 3] {
        let may =
            |function, what: Scalar, privilege| Scalar::call(function, vec![what, Scalar::text(privilege)]);
        let oid = |id: TableId| Scalar::int8(i64::from(id.0)).cast(Type::Other(Arc::new(opaque("oid"))));
        // The value is NULL for a schema that was renamed. Passing the name itself would raise an error.
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
        // The value is NULL for an object that no longer exists.
        let each = |function, ids: &[u32], privilege| {
            let each = ids.iter().map(|id| may(function, oid(TableId(*id)), privilege));
            each.map(|has| has.coalesce(Scalar::bool(false))).collect::<Vec<_>>()
        };
        wanted.extend(each("has_function_privilege", &self.needs.callable, "EXECUTE"));
        let schemas = each("has_schema_privilege", &self.needs.schemas, "USAGE");
        let schemas = std::iter::once(usage(self.table.state_schema())).chain(schemas);
        let remade = Scalar::or(self.as_planned().into_iter().map(Scalar::negated));
        // In a snapshot from before the plan was made, objects may differ from those in the plan. An old
        // snapshot is therefore refused first.
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

    /// Runs `body`, unless the trigger fires on a table that once was a partition of the source, or on an
    /// altered table that once was a child of it. For such a table, leaves a mark and returns.
    pub(super) fn of_own(&self, source: &Buffer, body: Vec<Instruction>) -> Vec<Instruction> {
        let former = children::of_a_former_partition(source, Some(self.id));
        let altered = fit::of_an_altered_child(source, source.columns(), Some(self.id));
        former.into_iter().chain(altered).chain(body).collect()
    }

    /// Leaves a mark and returns if the trigger does not get all changed rows.
    pub(super) fn unusable(&self, source: &Buffer, event: TriggerEvent) -> Vec<Instruction> {
        let stop = vec![fit::marked(source, self.id, Scalar::text(fit::MOVED)), Instruction::Return];
        let may = event == TriggerEvent::Update && source.is_partitioned();
        let moved = may.then(|| when(fit::may_have_moved(source), stop, Vec::new()));
        let unseen = children::of_unseen_values(source, event, source.columns(), Some(self.id));
        moved.into_iter().chain(unseen).chain(self.without_nulls(source, event)).collect()
    }

    /// Leaves a mark and returns if a row has a NULL in a column that is never NULL according to the plan.
    /// NOT NULL can be dropped without firing a trigger. A transaction may see an older catalog that still
    /// has NOT NULL. The rows themselves are therefore checked.
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
}

/// Returns the call that gives the reason why a table has lost one of these keys. Returns `None` if no key
/// belongs to this table.
fn lost_key(table: Scalar, of: TableId, keys: &[Key]) -> Option<Scalar> {
    let keys: Vec<&Key> = keys.iter().filter(|k| k.table == of).collect();
    let columns = |k: &&Key| {
        let numbers: Vec<String> = k.columns.iter().map(i16::to_string).collect();
        format!("{{{}}}", numbers.join(","))
    };
    let indexes = list(keys.iter().map(|k| k.index.to_string()), "oid[]");
    let args = vec![table, indexes, list(keys.iter().map(columns), "text[]")];
    (!keys.is_empty()).then(|| Scalar::Call(function("lost_key"), args))
}

/// Builds the guard of the triggers of a stream table in mode IMMEDIATE, which runs before the triggers read
/// anything. The guard checks three conditions. All sources fit and have their keys. Row security hides no
/// row of the sources from the owner, since the triggers run with the owner's rights. The stream table itself
/// is unaltered. If a condition is false, the stream table is marked and not written, and the writer's
/// statement succeeds.
fn all_fit(sources: &[Buffer], needs: &Needs, id: i64) -> Vec<Instruction> {
    let unfit = |s: &Buffer| {
        let of = s.table().id;
        let never_null = needs.never_null.iter().filter(|(table, _)| *table == of).map(|(_, c)| *c);
        let mut positions: Vec<usize> = s.columns().iter().copied().chain(never_null).collect();
        positions.sort_unstable();
        positions.dedup();
        let hidden = Scalar::call("row_security_active", vec![source(s, "oid")]);
        let keyed = lost_key(source(s, "oid"), of, &needs.keys).map(Scalar::is_null);
        let fit = Scalar::and([fits(s, &positions, true), hidden.negated()].into_iter().chain(keyed));
        let lost = Scalar::text("row security applies to the owner of the stream table");
        let lost = match lost_key(variable(SOURCE), of, &needs.keys) {
            Some(key) => key.coalesce(lost),
            None => lost,
        };
        let marked = vec![
            Instruction::Assign(Ident::fixed(SOURCE), source(s, "oid")),
            marked(s, id, reason(s, variable(SOURCE), &positions, true, lost)),
            Instruction::Return,
        ];
        when(fit.negated(), marked, Vec::new())
    };
    let own = needs.own.as_ref().zip(sources.first()).map(|(own, told)| own_fits(own, told, needs, id));
    own.into_iter().chain(sources.iter().filter(|s| s.is_described()).map(unfit)).collect()
}

/// Builds the guard for the stream table itself. The table must have the columns and keys by which its
/// triggers write it. The mark names `told`, one of the sources.
fn own_fits(own: &Buffer, told: &Buffer, needs: &Needs, id: i64) -> Instruction {
    let (of, positions) = (own.table().id, own.columns());
    let keyed = lost_key(source(own, "oid"), of, &needs.keys).map(Scalar::is_null);
    let fit = Scalar::and(std::iter::once(fits(own, positions, false)).chain(keyed));
    let altered = Scalar::text("the stream table itself was altered");
    let lost = match lost_key(variable(SOURCE), of, &needs.keys) {
        Some(key) => key.coalesce(altered),
        None => altered,
    };
    let marked = vec![
        Instruction::Assign(Ident::fixed(SOURCE), source(own, "oid")),
        marked(told, id, reason(own, variable(SOURCE), positions, false, lost)),
        Instruction::Return,
    ];
    when(fit.negated(), marked, Vec::new())
}
