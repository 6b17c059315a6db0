//! The answer of the decision query.

use super::Value;
use super::plan::{Bind, Member, Source};
use crate::cost::{Model, Strategy};
use crate::expr::Moment;
use crate::frontier::{ALL_COMMANDS, Command, Frontier, Snapshot, Xid};
use crate::server_error::ServerError;
use crate::sql::Qualified;
use crate::table::TableId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The facts about one source of a stream table in the refresh.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    /// The number of change rows that the frontier does not count. `None` where changes are not captured.
    pub(super) rows: Option<i64>,
    /// The time when the first of these change rows was committed, written like [`Facts::now`]. `None` where
    /// the commit time of a row is not known.
    pub(super) committed: Option<Arc<str>>,
    /// The reason why the change rows do not contain all changes of the source.
    pub(super) gap: Option<Gap>,
    /// The number of rows of the source itself, as estimated by the server.
    pub(super) size: i64,
}

/// A reason why the change rows of a source do not contain all its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// The source was truncated, or replaced without a delta.
    Replaced,
    /// The buffer of the source was at its limit.
    Overflowed,
}

impl Pending {
    /// Returns `None` if the buffer of this source has all changes of the source. Otherwise returns the
    /// reason why changes are missing.
    pub(super) fn untold(&self, source: &Source) -> Option<String> {
        let name = Qualified::new(&source.relation.schema, &source.relation.name);
        match (self.gap, self.rows) {
            (Some(Gap::Replaced), _) => Some(format!("{name} was truncated or replaced")),
            (Some(Gap::Overflowed), _) => Some(format!("{name} was changed more than its buffer may hold")),
            (None, None) => Some(match &source.uncaptured {
                Some(why) => why.to_string(),
                None => format!("changes of {name} are not captured"),
            }),
            (None, Some(_)) => None,
        }
    }
}

/// The facts about a member.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) frontier: Option<Frontier>,
    /// The reason why the member must be recomputed.
    pub(super) reinit: Option<String>,
    pub(super) rows: i64,
    /// Whether triggers, publications or readers must see exactly the rows that changed, and no others.
    pub(super) watched: bool,
    /// The costs of earlier refreshes.
    pub(super) model: Model,
    /// The time of the stored rows (t0), as text of `timestamptz`.
    pub(super) then: Option<Arc<str>>,
    /// The time of this refresh (t1), as text of `timestamptz`.
    pub(super) now: Option<Arc<str>>,
    pub(super) pending: BTreeMap<TableId, Pending>,
}

/// The facts about the database.
#[derive(Clone, Debug)]
pub(super) struct Now {
    pub(super) snapshot: Snapshot,
    pub(super) own: Xid,
    pub(super) system: i64,
    pub(super) database: u32,
}

/// Makes an error that the machine itself raises.
pub(super) fn give_up(sqlstate: &str, message: impl Into<String>) -> ServerError {
    ServerError::new(sqlstate, message)
}

pub(super) fn stale() -> ServerError {
    give_up("42P01", "a table was dropped, renamed or replaced since the refresh was planned")
        .with_hint(Some("Read the catalog again and plan the refresh anew."))
}

/// Reads the rows of [`super::decide_text`]. Fails if a member has no row, or if a name no longer denotes its
/// table.
pub(super) fn read(
    rows: &[Vec<Value>],
    members: &[Member],
) -> Result<(Now, BTreeMap<i64, Facts>), ServerError> {
    let mut all: BTreeMap<i64, Facts> = BTreeMap::new();
    let mut now = None;
    for row in rows {
        let bad = || give_up("XX000", format!("unexpected row from the decision query: {row:?}"));
        let [
            snapshot,
            own,
            system,
            database,
            id,
            frontier,
            reinit,
            stored,
            watched,
            held,
            source,
            source_held,
            size,
            pending,
            cut,
            committed,
            time,
            then,
            model,
        ] = row.as_slice()
        else {
            return Err(bad());
        };
        if now.is_none() {
            now = Some(Now {
                snapshot: snapshot.as_text().and_then(|s| s.parse().ok()).ok_or_else(bad)?,
                own: own.as_text().and_then(|s| s.parse().ok()).ok_or_else(bad)?,
                system: system.as_int().ok_or_else(bad)?,
                database: database.as_int().and_then(|d| u32::try_from(d).ok()).ok_or_else(bad)?,
            });
        }
        let facts = all.entry(id.as_int().ok_or_else(bad)?).or_default();
        facts.frontier = frontier.as_text().and_then(|f| Frontier::from_json(f).ok());
        facts.reinit = reinit.as_text().map(str::to_owned);
        facts.rows = stored.as_int().unwrap_or(0).max(0);
        facts.watched = watched.is_true();
        facts.now = Some(time.as_text().ok_or_else(bad)?.into());
        facts.then = then.as_text().map(Arc::from);
        // If another version of the program wrote the model in another format, an empty model replaces it.
        facts.model = model.as_text().and_then(|m| serde_json::from_str(m).ok()).unwrap_or_default();
        if !held.is_true() {
            return Err(stale());
        }
        let Some(source) = source.as_int() else { continue };
        if !source_held.is_true() {
            return Err(stale());
        }
        let pending = Pending::read(pending, cut, committed, size);
        facts.pending.insert(TableId(u32::try_from(source).map_err(|_| bad())?), pending);
    }
    match now.filter(|_| members.iter().all(|m| all.contains_key(&m.id))) {
        Some(now) => Ok((now, all)),
        None => Err(stale()),
    }
}

impl Pending {
    /// Reads the columns about one source.
    fn read(rows: &Value, cut: &Value, committed: &Value, size: &Value) -> Pending {
        Pending {
            rows: rows.as_int(),
            committed: committed.as_text().map(Arc::from),
            gap: match cut {
                Value::Bool(overflowed) => Some(if *overflowed { Gap::Overflowed } else { Gap::Replaced }),
                Value::Null | Value::Int8(_) | Value::Float8(_) | Value::Text(_) => None,
            },
            size: size.as_int().unwrap_or(0).max(0),
        }
    }
}

impl Now {
    /// Returns the frontier of a refresh that reads this snapshot and counts the commands of its own
    /// transaction up to `command`.
    pub(super) fn frontier(&self, command: Command) -> Frontier {
        Frontier::new(self.system, self.database, &self.snapshot, Some((self.own, command)))
    }
}

impl Facts {
    /// Returns the reason why the refresh cannot continue from the stored frontier. Returns `None` if it can.
    /// Frontiers only advance, since the locks are taken before the snapshot. A stored frontier ahead of the
    /// snapshot therefore comes from another history of the database, for example before a restore.
    pub(super) fn foreign(&self, now: Option<&Now>) -> Option<&'static str> {
        let (Some(now), Some(f)) = (now, &self.frontier) else { return Some("it has no frontier yet") };
        if !f.matches(now.system, now.database) {
            return Some("its frontier is of another system or database (restored, copied or upgraded)");
        }
        self.is_ahead(now).then_some("its frontier is ahead of the database (restored to an earlier state)")
    }

    /// Whether the stored frontier counts changes that are not visible in the snapshot.
    pub(super) fn is_ahead(&self, now: &Now) -> bool {
        let high = now.frontier(ALL_COMMANDS);
        self.frontier.as_ref().is_some_and(|f| f.matches(now.system, now.database) && !f.is_within(&high))
    }

    /// Returns the strategies among `all` that this refresh may use. A watched table is replaced as a whole
    /// only if its program cannot write the difference. Without a frontier, nothing is known of the stored
    /// rows, and comparing with them costs more than it saves. In that case the difference is written only if
    /// the table is watched.
    pub(super) fn ways(&self, all: &[Strategy]) -> Vec<Strategy> {
        let has_both = [Strategy::Full, Strategy::FullDifference].iter().all(|s| all.contains(s));
        let closed = match (self.watched, &self.frontier) {
            (true, _) => Some(Strategy::Full),
            (false, None) => Some(Strategy::FullDifference),
            (false, Some(_)) => None,
        };
        all.iter().copied().filter(|s| !has_both || Some(*s) != closed).collect()
    }

    /// Whether this refresh has another time than the stored rows.
    pub(super) fn is_later(&self) -> bool {
        self.then != self.now
    }

    /// Whether no source is known to have changed.
    pub(super) fn is_quiet(&self) -> bool {
        self.pending.values().all(|p| p.gap.is_none() && p.rows.unwrap_or(0) == 0)
    }

    /// Returns when the first pending change was committed, if the commit times are known for all sources.
    /// The texts of times sort in the same order as the times.
    pub(super) fn committed(&self) -> Option<Arc<str>> {
        let told = |p: &Pending| p.committed.clone().filter(|_| p.gap.is_none());
        let pending = self.pending.values().filter(|p| p.gap.is_some() || p.rows != Some(0));
        pending.map(told).collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// Returns the number of change rows of a source: those that the decision query counted, and those that
    /// members of this refresh wrote afterwards. Returns `None` where the changes of the source are not
    /// captured.
    pub(super) fn counted(&self, id: TableId) -> Option<i64> {
        self.pending.get(&id)?.rows
    }

    /// Returns a number that changes when the size of a table that a refresh reads or writes reaches another
    /// power of two. For tables of another size, another plan of the server may be the best.
    pub(super) fn scale(&self) -> u64 {
        let sizes = self.pending.values().map(|p| p.size).chain([self.rows]);
        sizes.fold(0, |scale: u64, n| {
            scale.rotate_left(7) ^ u64::from(n.max(0).unsigned_abs().checked_ilog2().map_or(0, |l| l + 1))
        })
    }

    /// Returns the value that is bound to a parameter.
    pub(super) fn bind(&self, b: &Bind) -> Value {
        let own = || self.frontier.as_ref().and_then(|f| f.partial().next());
        match b {
            Bind::Value(v) => v.clone(),
            Bind::Clock(moment) => {
                let time = if *moment == Moment::Then { &self.then } else { &self.now };
                time.as_ref().map_or(Value::Null, Value::text)
            }
            Bind::FrontierSnapshot => {
                self.frontier.as_ref().map_or(Value::Null, |f| Value::text(f.snapshot().to_string()))
            }
            Bind::FrontierXid => own().map_or(Value::Null, |(xid, _)| Value::text(xid.to_string())),
            Bind::FrontierCommand => {
                own().map_or(Value::Null, |(_, command)| Value::Int8(i64::from(command)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, Frontier, Strategy};

    #[test]
    fn of_what_is_watched_only_differences_are_written() {
        let frontier = || {
            let text = r#"{"own":{},"system":"1","database":5,"snapshot":"90:90:"}"#;
            Some(Frontier::from_json(text).unwrap())
        };
        let all = [Strategy::Delta, Strategy::FullDifference, Strategy::Full];
        let ways = |watched, frontier| Facts { watched, frontier, ..Facts::default() }.ways(&all);
        assert_eq!(ways(false, frontier()), all);
        assert_eq!(ways(true, frontier()), all[..2]);
        assert_eq!(ways(true, None), all[..2]);
        assert_eq!(ways(false, None), [Strategy::Delta, Strategy::Full]);
        let watched = Facts { watched: true, ..Facts::default() };
        assert_eq!(watched.ways(&all[2..]), all[2..], "there is no other");
    }
}
