//! The plan of a refresh for the machine: members, sources, and programs whose statements name their own
//! task.

use crate::database::{Bag, Database, OID, SYSTEM, add, pairs_of, size};
use crate::mutants::Mutant;
use crate::scenario::Scenario;
use std::collections::BTreeMap;
use std::sync::Arc;
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::cost::{Force, Policy, Strategy};
use trickle_core::frontier::{Command, Frontier, Snapshot};
use trickle_core::refresh::{
    Bind, Effect, Lock, Member, Plan, Program, ReaderView, Relation, Request, Source, Template, Transaction,
    Value, Windows,
};

/// A program with one statement. The text of the statement is the name of its task.
#[derive(Debug)]
struct Does {
    id: TableId,
    told: bool,
}

impl Program for Does {
    fn strategies(&self) -> &[Strategy] {
        &[Strategy::Delta, Strategy::FullDifference, Strategy::Full]
    }
    fn statements(&self, strategy: Strategy, windows: &Windows) -> trickle_core::Result<Arc<[Template]>> {
        let changed: Vec<String> = windows.keys().map(|id| id.0.to_string()).collect();
        let text = format!("{strategy} {} {}", self.id, changed.join(" "));
        let binds = Arc::new([Bind::FrontierSnapshot, Bind::FrontierXid, Bind::FrontierCommand]);
        Ok(Arc::new([Template { text: text.into(), binds, result: Effect::Counts }]))
    }
    fn feed(&self, strategy: Strategy) -> ReaderView {
        if strategy == Strategy::Full && self.told { ReaderView::Replaced } else { ReaderView::Changes }
    }
}

fn relation(id: TableId) -> Relation {
    Relation { id, schema: "s".into(), name: id.to_string().into() }
}

/// Returns the strategy that a mutant forces, if any, in place of the strategy of the cost model.
fn forced(db: &Database, scenario: &Scenario, id: TableId) -> Option<Force> {
    let table = scenario.tables.iter().find(|t| t.id == id).filter(|_| db.is(Mutant::DearestWay))?;
    Some(if table.costs[1] > table.costs[0] { Force::Full } else { Force::Incremental })
}

/// Makes the plan of a refresh of these members from the model's catalog.
pub(crate) fn plan(db: &Database, members: &[TableId], scenario: &Scenario, within: bool) -> Plan {
    let member = |id: &TableId| {
        let entry = db.catalog.get(id)?;
        let source = |s: &TableId| Source {
            relation: relation(*s),
            kind: if s.0 < 10 { TableKind::Table } else { TableKind::StreamTable },
            changes: Some(relation(TableId(s.0 + 1000))),
            partitioned: false,
            uncaptured: None,
        };
        Some(Member {
            id: i64::from(id.0),
            relation: relation(*id),
            sources: entry.definition.sources.iter().map(source).collect(),
            program: Arc::new(Does { id: *id, told: !db.is(Mutant::ReplacedUntold) }),
            policy: Policy { force: forced(db, scenario, *id), ..Policy::default() },
            definition: Some(entry.version.to_string().into()),
            polled: true,
            unseen: None,
            part: None,
            lock: if entry.state.frontier.is_some() { Lock::Refreshes } else { Lock::Writers },
            kept_by: None,
            settings: Vec::new(),
        })
    };
    let mut members: Vec<Member> = members.iter().filter_map(member).collect();
    if db.is(Mutant::DownstreamFirst) {
        members.reverse();
    }
    let lock_timeout_ms = scenario.lock_timeout as u32;
    let transaction = match within {
        true => Transaction::Callers { command: "command".into(), fresh: true },
        false => Transaction::Own { lock_timeout_ms, statement_timeout_ms: None, attempts: 3 },
    };
    Plan { members, transaction, work_mem: None, request: Request::default(), asked_at: None }
}

/// Reads the stored frontier from the parameters of a delta.
pub(crate) fn low(params: &[Value]) -> Frontier {
    let text = |i: usize| params.get(i).and_then(Value::as_text);
    let snapshot = text(0).and_then(|t| t.parse().ok()).unwrap_or_else(Snapshot::empty);
    let command = params.get(2).and_then(Value::as_int).and_then(|c| Command::try_from(c).ok());
    let own = text(1).and_then(|t| t.parse().ok()).zip(command);
    Frontier::new(SYSTEM, OID, &snapshot, own)
}

/// Computes ΔQ of [`defined`](crate::database::defined): the sum of the changes, and Δ(A⋈B) = ΔA⋈B′ + A′⋈ΔB −
/// ΔA⋈ΔB.
pub(crate) fn delta(
    id: TableId,
    sources: &[TableId],
    windows: &BTreeMap<TableId, Bag>,
    state: impl Fn(&TableId) -> Bag,
) -> Bag {
    let mut change = Bag::new();
    for (row, w) in windows.values().flatten() {
        add(&mut change, *row, *w);
    }
    if let (Some(a), Some(b)) = (sources.first(), sources.last()) {
        let changed = |s: &TableId| windows.get(s).map_or(0, size);
        let (da, db, a, b) = (changed(a), changed(b), size(&state(a)), size(&state(b)));
        add(&mut change, pairs_of(id), da * b + a * db - da * db);
    }
    change
}
