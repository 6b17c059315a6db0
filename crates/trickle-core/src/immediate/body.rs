//! The bodies of the trigger functions of IMMEDIATE stream tables. They apply the delta of a statement at
//! once, or after the last of several statements.

use super::Immediate;
use crate::apply::LayoutSources;
use crate::cdc::{Buffer, changed_rows, fit};
use crate::error::Result;
use crate::graph::NodeId;
use crate::sql::ast::{
    Cte, CteBody, Delete, FromItem, Insert, Instruction, Query, Scalar, Select, SelectItem, SpecialCall,
    Statement, TriggerEvent,
};
use crate::sql::{BufferSources, Changes, Ident, Qualified, Relation, Sources, Stored, Window};
use crate::stream_table::Refresh;
use crate::table::{TableDef, TableId};
use crate::types::Type;
use std::collections::{BTreeMap, BTreeSet};

/// The number of changed rows at which a statement begins to be planned for its own number of rows. For fewer
/// rows, the server uses one plan per session. This plan is made for [`FEW`] rows, even if the first
/// statement of the session changes more rows.
const MANY: i64 = 1000;
pub(super) const FEW: i64 = 1;

/// The setting that makes the plan for few rows use indexes, even for a table of one page. Later statements
/// of the same transaction may find a thousand rows in the table, and the planner cannot learn this before
/// the transaction commits.
pub(super) const FOR_FEW: (&str, &str) = ("enable_seqscan", "off");

pub(super) fn old() -> Ident {
    Ident::fixed("trickle_old")
}
pub(super) fn new() -> Ident {
    Ident::fixed("trickle_new")
}

/// The variable for the place (`ctid`) of the row of the control table.
pub(super) const AT: &str = "trickle_at";
/// The variable for the number of statements that have begun and not ended.
pub(super) const PENDING: &str = "trickle_pending";
/// The variable that tells whether changes were put aside.
pub(super) const ASIDE: &str = "trickle_aside";
/// The variable that tells whether a source was truncated. If so, the stream table is recomputed.
pub(super) const ANEW: &str = "trickle_anew";
/// The variable for the result of a statement. Nothing reads this variable.
const DONE: &str = "trickle_done";
/// The variable for the result of a function that is called for its effect.
pub(super) const SET: &str = "trickle_set";
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

pub(super) fn variable(name: &'static str) -> Scalar {
    Scalar::Column { table: None, name: Ident::fixed(name) }
}

/// Runs instructions under a setting that lets them write stream tables. An error undoes the setting together
/// with all other changes. A SET clause of the function would be shorter, but only superusers may give a
/// function a setting that the server does not know.
pub(super) fn writing(body: Vec<Instruction>) -> Vec<Instruction> {
    let set = |value| {
        let args = vec![Scalar::text(REFRESHING), value, Scalar::bool(true)];
        Instruction::Assign(Ident::fixed(SET), Scalar::call("set_config", args))
    };
    let now = Scalar::call("current_setting", vec![Scalar::text(REFRESHING), Scalar::bool(true)]);
    let before = Instruction::Assign(Ident::fixed(WAS), now);
    // The value of a setting that was never set is NULL. Given NULL, `set_config` would change nothing.
    let was = Scalar::Special(SpecialCall::Coalesce, vec![variable(WAS), Scalar::text("")]);
    [before, set(Scalar::text("on"))].into_iter().chain(body).chain([set(was)]).collect()
}

pub(super) fn when(condition: Scalar, then: Vec<Instruction>, otherwise: Vec<Instruction>) -> Instruction {
    Instruction::If { condition, then, otherwise }
}

pub(super) fn not_found() -> Scalar {
    variable("found").negated()
}

/// The relations from which the changes of each table are read.
pub(super) struct Given<'t> {
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

    /// Runs `body`. Recomputes the stream table if a delta in `body` raises an error that the query itself
    /// does not raise.
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

    pub(super) fn given(&self, from: BTreeMap<TableId, Qualified>, expected: Option<i64>) -> Given<'_> {
        let layout = LayoutSources::new(self.table.layout(), self.table.state_schema());
        Given { layout, from, expected }
    }

    /// Returns the changes of a statement, as a common table expression of the statement that applies them.
    pub(super) fn transition(&self, source: &Buffer, event: TriggerEvent) -> Cte {
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

    /// Applies all changes that were put aside. Changes that other transactions put aside are not visible,
    /// since they are either not committed or already deleted.
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
}

/// Runs a statement that is planned for the present number of rows.
fn for_many(statement: Statement) -> [Instruction; 2] {
    let on =
        Scalar::call("set_config", vec![Scalar::text(FOR_FEW.0), Scalar::text("on"), Scalar::bool(true)]);
    [Instruction::Assign(Ident::fixed(SET), on), Instruction::Anew(statement)]
}

/// Adds the relation that holds the changes to a statement that applies them, before the statement's other
/// common table expressions.
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
