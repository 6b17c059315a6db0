//! The laws that hold in every run, and their checks.

use crate::daemon::{Daemon, graph};
use crate::database::{Bag, Database, add, defined, pairs_of};
use crate::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use trickle_core::catalog::TableId;
use trickle_core::frontier::Frontier;

/// A law that holds in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
    OneSnapshot,
    NothingLost,
    NothingTwice,
    FrontierAdvances,
    QuietIsPresent,
    LagBounded,
    NothingStarves,
    TriedAgain,
    BackoffHonoured,
    NoMissedRuns,
    IdleCostsNothing,
    SuspendedInTime,
    AtMostSoMany,
    OneAtATime,
    FenceHolds,
    WaysAreLearnt,
    MachineUnderstands,
}

impl Law {
    /// All laws.
    pub(crate) const ALL: &[Law] = &[
        Law::OneSnapshot,
        Law::NothingLost,
        Law::NothingTwice,
        Law::FrontierAdvances,
        Law::QuietIsPresent,
        Law::LagBounded,
        Law::NothingStarves,
        Law::TriedAgain,
        Law::BackoffHonoured,
        Law::NoMissedRuns,
        Law::IdleCostsNothing,
        Law::SuspendedInTime,
        Law::AtMostSoMany,
        Law::OneAtATime,
        Law::FenceHolds,
        Law::WaysAreLearnt,
        Law::MachineUnderstands,
    ];

    /// Returns the law as a sentence.
    fn meaning(self) -> &'static str {
        match self {
            Law::OneSnapshot => {
                "a stream table that is committed is its query over what one snapshot shows of its sources"
            }
            Law::NothingLost => "every change that the stored frontier has counted is in the stream table",
            Law::NothingTwice => {
                "no change is in the stream table that the frontier has not counted, or more than once"
            }
            Law::FrontierAdvances => "a frontier that is stored contains the one before",
            Law::QuietIsPresent => {
                "where users and faults are gone, what has a schedule is equal to its query after a bounded time"
            }
            Law::LagBounded => {
                "while nothing is in the way and capacity suffices, no change stays out longer than the period, the jitter, \
                 the queue and the durations make"
            }
            Law::NothingStarves => {
                "what has a schedule, and waits for no error, is looked at or started within its period and its queue"
            }
            Law::TriedAgain => {
                "what found somebody in its way is tried again when its wait and its queue are over, whatever its period"
            }
            Law::BackoffHonoured => {
                "what failed n times is not tried again before first · 2^(n − 1), at most the cap"
            }
            Law::NoMissedRuns => {
                "what was refreshed in time or late is not due again before a period has passed"
            }
            Law::IdleCostsNothing => "where nothing changed nothing is refreshed",
            Law::SuspendedInTime => {
                "max_consecutive_errors errors of its own suspend a stream table, nothing less; what is suspended is left alone"
            }
            Law::AtMostSoMany => "no more than max_concurrent groups are at work for one refresher",
            Law::OneAtATime => "a refresher does not start what it is at work on",
            Law::FenceHolds => "who lost the lease commits nothing",
            Law::WaysAreLearnt => {
                "where nothing is in the way, ten refreshes or more take no more than twice what the best ways would, and six tries of the dearest way; where a source was replaced there is one way"
            }
            Law::MachineUnderstands => "the refresh machine never fails by itself",
        }
    }
}

/// A broken law, with the time and the details.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) law: Law,
    pub(crate) at: i64,
    pub(crate) detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { law, at, detail } = self;
        write!(f, "{law:?} is broken at {at}: {detail}\n(the law: {})", law.meaning())
    }
}

/// Returns the contents that a stream table must have under a frontier. For a source that is refreshed
/// together with the stream table, the contents are computed by this law too. The contents of other sources
/// are the committed rows below the frontier.
fn expected(
    db: &Database,
    id: TableId,
    frontier: &Frontier,
    together: &BTreeSet<TableId>,
    known: &mut BTreeMap<TableId, Bag>,
) -> Bag {
    if let Some(bag) = known.get(&id) {
        return bag.clone();
    }
    let sources = db.catalog.get(&id).map(|e| e.definition.sources.clone()).unwrap_or_default();
    let mut bags = Vec::new();
    for s in sources {
        bags.push(match together.contains(&s) {
            true => expected(db, s, frontier, together, known),
            false => db.contents(s, |xid, c| db.commits.contains_key(&xid) && frontier.contains(xid, c)),
        });
    }
    let bag = defined(id, &bags);
    known.insert(id, bag.clone());
    bag
}

/// Compares two bags. Returns the law that a difference breaks, and a text about the rows that differ.
fn difference(db: &Database, wanted: &Bag, found: &Bag) -> Option<(Law, String)> {
    let mut surplus = found.clone();
    for (row, w) in wanted {
        add(&mut surplus, *row, -w);
    }
    let pairs = pairs_of(TableId(0));
    let row = surplus.keys().next().copied()?;
    let (w, f) = (wanted.get(&row).copied().unwrap_or(0), found.get(&row).copied().unwrap_or(0));
    let law = match () {
        () if row >= pairs => Law::OneSnapshot,
        () if f.abs() < w.abs() => Law::NothingLost,
        () => Law::NothingTwice,
    };
    let writer = db.tables.values().flatten().find(|c| c.row == row).map(|c| c.xid);
    let writer = writer.map_or(String::new(), |x| format!(" of transaction {x}"));
    let what =
        if row >= pairs { format!("the product of {}", row - pairs) } else { format!("row {row}{writer}") };
    Some((law, format!("{what} has the weight {f} and should have {w}; {} rows differ", surplus.len())))
}

/// Returns the law that a stream table breaks just after its refresh was committed, if any. The contents of
/// the stream table must be those that its frontier denotes.
pub(crate) fn committed(db: &Database, id: TableId, together: &BTreeSet<TableId>) -> Option<(Law, String)> {
    let (_, frontier) = db.catalog.get(&id)?.state.frontier.as_ref()?;
    let wanted = expected(db, id, frontier, together, &mut BTreeMap::new());
    let (law, detail) = difference(db, &wanted, &db.committed(id))?;
    let frontier = frontier.snapshot();
    Some((law, format!("in {id}, under {frontier}: {detail}")))
}

/// Returns the contents of every stream table as computed from the present contents of its sources.
pub(crate) fn present(db: &Database) -> BTreeMap<TableId, Bag> {
    let mut all: BTreeMap<TableId, Bag> = BTreeMap::new();
    for id in graph(db).order().iter().copied() {
        let sources = db.catalog.get(&id).map(|e| e.definition.sources.clone()).unwrap_or_default();
        let bags: Vec<Bag> =
            sources.iter().map(|s| all.get(s).cloned().unwrap_or_else(|| db.committed(*s))).collect();
        all.insert(id, defined(id, &bags));
    }
    all
}

/// Returns the time since the commit of the oldest change that a stream table does not show.
pub(crate) fn lag(db: &Database, id: TableId, present: &Bag, now: i64) -> i64 {
    let mut missing = present.clone();
    for (row, w) in db.committed(id) {
        add(&mut missing, row, -w);
    }
    let since = |c: &crate::database::Change| {
        missing.contains_key(&c.row).then(|| db.commits.get(&c.xid).copied()).flatten()
    };
    let bases = db.tables.iter().filter(|(id, _)| id.0 < 10);
    let first = bases.flat_map(|(_, t)| t).filter_map(since).min();
    first.map_or(0, |at| now - at)
}

/// Returns the first scheduled stream table that differs from its query as computed at this moment.
pub(crate) fn quiet(db: &Database) -> Option<(Law, String)> {
    let present = present(db);
    let scheduled = db.catalog.iter().filter(|(_, e)| e.definition.schedule.is_some());
    for (id, _) in scheduled {
        if let Some((_, detail)) = difference(db, &present[id], &db.committed(*id)) {
            return Some((Law::QuietIsPresent, format!("{id}: {detail}")));
        }
    }
    None
}

/// Returns the longest time for which a stream table may be left unexamined, if a refresh takes `longest`.
/// The time is the stream table's period in force, plus the time that [`turn`] returns. `None` means that the
/// stream table has no schedule.
pub(crate) fn patience(daemon: &Daemon, scenario: &Scenario, id: TableId, longest: i64) -> Option<i64> {
    Some(daemon.period(id, longest)? + turn(daemon, scenario, id, longest))
}

/// Returns how long a due stream table may wait, in milliseconds. The stream table waits for its own group
/// and for the groups of its sources. Each of these groups takes the rest of a running refresh, its turn in
/// the queue of all groups, and its own refresh. The time until the refresher looks for due stream tables is
/// added.
pub(crate) fn turn(daemon: &Daemon, scenario: &Scenario, id: TableId, longest: i64) -> i64 {
    let on_the_way = daemon.on_the_way.get(&id).copied().unwrap_or(1);
    let queue = daemon.groups.len().div_ceil(scenario.options.max_concurrent) as i64;
    on_the_way * (2 + queue) * longest + scenario.reload + scenario.unit
}
