//! Tests that compare the algebra of frontiers with explicit sets. A simulation of PostgreSQL's transactions
//! also tests that each row is in exactly one window.

use super::{ALL_COMMANDS, Command, Frontier, Snapshot, Xid, window};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The transactions that the explicit sets cover, with the commands `COMMANDS`. The sets say nothing about
/// other transactions.
const XIDS: std::ops::Range<Xid> = 1..16;
const COMMANDS: std::ops::Range<Command> = 0..7;

fn snapshots() -> impl Strategy<Value = Snapshot> {
    (1u64..14, prop::collection::vec(0u64..16, 0..6)).prop_map(|(xmax, xip)| Snapshot::new(xmax, xip))
}

fn owns() -> impl Strategy<Value = Option<(Xid, Command)>> {
    prop::option::of((1u64..15, prop_oneof![3 => 0u32..5, 1 => Just(ALL_COMMANDS)]))
}

fn taken() -> impl Strategy<Value = Frontier> {
    (snapshots(), owns()).prop_map(|(s, own)| Frontier::new(7, 5, &s, own))
}

/// Generates frontiers. A join of two frontiers has several partly counted transactions.
fn frontiers() -> impl Strategy<Value = Frontier> {
    (taken(), prop::option::of(taken())).prop_map(|(a, b)| match b {
        Some(b) => a.join(&b).unwrap(),
        None => a,
    })
}

fn set(f: &Frontier) -> BTreeSet<(Xid, Command)> {
    XIDS.flat_map(|x| COMMANDS.map(move |c| (x, c))).filter(|(x, c)| f.contains(*x, *c)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn join_and_meet_are_union_and_intersection(a in frontiers(), b in frontiers(), c in frontiers()) {
        let (j, m) = (a.join(&b).unwrap(), a.meet(&b).unwrap());
        prop_assert_eq!(set(&j), &set(&a) | &set(&b));
        prop_assert_eq!(set(&m), &set(&a) & &set(&b));
        prop_assert_eq!(&j, &b.join(&a).unwrap());
        prop_assert_eq!(&m, &b.meet(&a).unwrap());
        prop_assert_eq!(&a, &a.join(&a).unwrap());
        prop_assert_eq!(&a, &a.meet(&a).unwrap());
        prop_assert_eq!(&a, &a.join(&m).unwrap());
        prop_assert_eq!(&a, &a.meet(&j).unwrap());
        prop_assert_eq!(j.join(&c).unwrap(), a.join(&b.join(&c).unwrap()).unwrap());
        prop_assert_eq!(m.meet(&c).unwrap(), a.meet(&b.meet(&c).unwrap()).unwrap());
        prop_assert_eq!(
            a.meet(&b.join(&c).unwrap()).unwrap(),
            m.join(&a.meet(&c).unwrap()).unwrap()
        );
    }

    #[test]
    fn order_is_inclusion_and_agrees_with_the_lattice(a in frontiers(), b in frontiers()) {
        prop_assert_eq!(a.is_within(&b), set(&a).is_subset(&set(&b)));
        prop_assert_eq!(a.is_within(&b), a.join(&b).unwrap() == b);
        prop_assert_eq!(a.is_within(&b), a.meet(&b).unwrap() == a);
        prop_assert_eq!(a == b, set(&a) == set(&b));
        prop_assert_eq!(a.partial_cmp(&b) == Some(std::cmp::Ordering::Equal), a == b);
    }

    #[test]
    fn text_forms_are_canonical(a in frontiers(), s in snapshots()) {
        prop_assert_eq!(&Frontier::from_json(&a.to_json().unwrap()).unwrap(), &a);
        prop_assert_eq!(s.to_string().parse::<Snapshot>().unwrap(), s);
    }

    #[test]
    fn windows_are_differences_within_their_bounds(a in frontiers(), b in frontiers()) {
        let w = window(&a, &b);
        let (from, to) = w.bounds();
        let mut any = false;
        for x in XIDS {
            for c in COMMANDS {
                prop_assert_eq!(w.contains(x, c), b.contains(x, c) && !a.contains(x, c));
                prop_assert!(!w.contains(x, c) || (from..to).contains(&x));
                any |= w.contains(x, c);
            }
        }
        prop_assert_eq!(w.is_empty(), !any);
    }

    #[test]
    fn no_text_panics(text in "[0-9:,x ]{0,24}") {
        if let Ok(s) = text.parse::<Snapshot>() {
            prop_assert_eq!(s.to_string().parse::<Snapshot>().unwrap(), s);
        }
    }
}

#[test]
fn own_transaction_is_tested_before_visibility() {
    // PostgreSQL gives the snapshot '770:772:' to transaction 770 itself. In this snapshot, the transaction
    // looks visible although it has not ended.
    let s: Snapshot = "770:772:".parse().unwrap();
    let f = Frontier::new(1, 1, &s, Some((770, 4)));
    assert!(f.contains(770, 4) && !f.contains(770, 5) && f.contains(771, 9));
    assert_eq!(f.snapshot().xmin(), 770);
    assert_eq!(
        f.to_json().unwrap(),
        r#"{"own":{"770":4},"system":"1","database":1,"snapshot":"770:772:770"}"#
    );
    let whole = Frontier::new(1, 1, &s, Some((774, ALL_COMMANDS)));
    assert_eq!(whole.snapshot().to_string(), "772:775:772,773");
}

#[test]
fn malformed_snapshots_are_refused() {
    for bad in [
        "",
        "1",
        "1:2",
        "1:2:3:4",
        "0:2:",
        "3:2:",
        "a:2:",
        "1:2:x",
        "1:5:5",
        "3:5:2",
        "1:9:4,3",
        "1:5:2,",
        "1:99999999999999999999:",
    ] {
        assert!(bad.parse::<Snapshot>().is_err(), "{bad} was accepted");
    }
    assert!(Frontier::from_json("{}").is_err());
    assert!(Frontier::from_json(r#"{"own":{},"system":"1","database":1,"snapshot":"5"}"#).is_err());
}

#[test]
fn another_database_does_not_match() {
    let (a, b) = (Frontier::empty(1, 5), Frontier::empty(2, 5));
    assert!(a.matches(1, 5) && !a.matches(1, 6) && !a.matches(2, 5));
    assert!(a.join(&b).is_err() && a.meet(&b).is_err());
    assert_eq!(a.partial_cmp(&b), None);
}

/// A model of PostgreSQL's transactions. Ids are given in the order of first writes, and snapshots are built
/// as in PostgreSQL.
#[derive(Default)]
struct Server {
    next: Xid,
    running: BTreeSet<Xid>,
    /// Captured rows: transaction, command, and whether the transaction has committed.
    rows: Vec<(Xid, Command)>,
    committed: BTreeSet<Xid>,
}

impl Server {
    fn begin(&mut self) -> Xid {
        self.next += 1;
        self.running.insert(self.next);
        self.next
    }
    /// Takes a snapshot as `GetSnapshotData` does: the own transaction counts for `xmin` but is not listed,
    /// and may be less than `xmax`.
    fn snapshot(&self, own: Option<Xid>) -> Snapshot {
        let done = self.committed.iter().next_back().copied().unwrap_or(0) + 1;
        let list: Vec<Xid> =
            self.running.iter().filter(|x| Some(**x) != own && **x < done).copied().collect();
        let xmin = self.running.iter().next().copied().unwrap_or(done).min(done);
        let ids: Vec<String> = list.iter().map(ToString::to_string).collect();
        format!("{xmin}:{done}:{}", ids.join(",")).parse().unwrap()
    }
    /// Returns the rows of a scan in transaction `own` under `snapshot`.
    fn scan(&self, snapshot: &Snapshot, own: Xid) -> Vec<(Xid, Command)> {
        let seen = |x: &Xid| *x == own || (snapshot.sees(*x) && self.committed.contains(x));
        self.rows.iter().filter(|(x, _)| seen(x)).copied().collect()
    }
}

#[derive(Clone, Debug)]
enum Event {
    Begin,
    Write(usize),
    Commit(usize),
    Abort(usize),
    /// A refresh in a separate transaction. The transaction writes captured rows first, and gets its id
    /// before or after the snapshot.
    Refresh {
        writes: u8,
        id_first: bool,
    },
    /// A refresh in the middle of a user's transaction.
    RefreshWithin(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => Just(Event::Begin),
        6 => (0usize..8).prop_map(Event::Write),
        3 => (0usize..8).prop_map(Event::Commit),
        1 => (0usize..8).prop_map(Event::Abort),
        2 => (0u8..3, any::<bool>()).prop_map(|(writes, id_first)| Event::Refresh { writes, id_first }),
        2 => (0usize..8).prop_map(Event::RefreshWithin),
    ];
    prop::collection::vec(event, 1..60)
}

/// The state of the stream table after each transaction that updated it: the stored frontier and the applied
/// rows.
#[derive(Clone)]
struct Kept {
    frontier: Frontier,
    applied: Vec<(Xid, Command)>,
}

impl Kept {
    fn refresh(&self, server: &Server, snapshot: &Snapshot, own: Xid, command: Command) -> Kept {
        let high = Frontier::new(1, 1, snapshot, Some((own, command)));
        let mut next = Kept { frontier: high.clone(), applied: self.applied.clone() };
        let rows = server.scan(snapshot, own);
        next.applied.extend(rows.iter().filter(|(x, c)| window(&self.frontier, &high).contains(*x, *c)));
        next
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// The simulation has long open transactions and commits in any order. Refreshes run alone, and within
    /// user transactions that continue to write. In the end, every committed row was applied exactly once.
    #[test]
    fn every_committed_row_is_in_exactly_one_window(events in events()) {
        let mut server = Server { next: 100, ..Server::default() };
        let mut kept = Kept { frontier: Frontier::empty(1, 1), applied: Vec::new() };
        // A refresh within a user's transaction locks the table until that transaction ends.
        let mut holder: Option<(Xid, Kept)> = None;
        let mut open: Vec<(Xid, Command)> = Vec::new();
        for event in events {
            match event {
                Event::Begin => open.push((server.begin(), 0)),
                Event::Write(i) if i < open.len() => {
                    let (x, c) = &mut open[i];
                    server.rows.push((*x, *c));
                    *c += 1;
                }
                Event::Commit(i) if i < open.len() => {
                    let (x, _) = open.remove(i);
                    server.running.remove(&x);
                    server.committed.insert(x);
                    if let Some((_, k)) = holder.take_if(|(h, _)| *h == x) {
                        kept = k;
                    }
                }
                Event::Abort(i) if i < open.len() => {
                    let (x, _) = open.remove(i);
                    server.running.remove(&x);
                    server.rows.retain(|(r, _)| *r != x);
                    holder.take_if(|(h, _)| *h == x);
                }
                Event::Refresh { writes, id_first } if holder.is_none() => {
                    let early = id_first.then(|| server.begin());
                    let snapshot = server.snapshot(early);
                    let own = early.unwrap_or_else(|| server.begin());
                    for c in 0..writes {
                        server.rows.push((own, u32::from(c)));
                    }
                    kept = kept.refresh(&server, &snapshot, own, ALL_COMMANDS);
                    server.running.remove(&own);
                    server.committed.insert(own);
                }
                Event::RefreshWithin(i) if i < open.len() => {
                    let (x, c) = &mut open[i];
                    if holder.as_ref().is_none_or(|(h, _)| h == x) {
                        let before = holder.as_ref().map_or(&kept, |(_, k)| k);
                        let after = before.refresh(&server, &server.snapshot(Some(*x)), *x, *c);
                        holder = Some((*x, after));
                        *c += 1;
                    }
                }
                _ => {}
            }
        }
        for (x, _) in open {
            server.running.remove(&x);
            server.committed.insert(x);
            if let Some((_, k)) = holder.take_if(|(h, _)| *h == x) {
                kept = k;
            }
        }
        let own = server.begin();
        kept = kept.refresh(&server, &server.snapshot(Some(own)), own, ALL_COMMANDS);
        let mut applied = kept.applied;
        applied.sort_unstable();
        let mut written = server.rows;
        written.sort_unstable();
        prop_assert_eq!(applied, written);
    }
}
