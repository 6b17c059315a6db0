//! Attempts of every kind of role to get more than its rights allow. The tests catch code that runs as
//! another role, and rows that are shown to a role that may not read them. The tests also catch a stream
//! table with wrong rows, and a writer or refresh that is blocked.
//!
//! Attempts are in `attempts/`, in one file for each kind of object or right that is attacked. [`script`]
//! describes their form. Each attempt is made in a database of its own ([`world`]). `mallory` attacks,
//! `alice` has secrets that mallory must not get, and `wilma` writes. A superuser owns stream tables over
//! tables of these roles.
//!
//! After mallory's steps the superuser does three operations on a stream table in one of the modes
//! ([`COMBINATIONS`]). The verdict depends on three facts: the roles under which code ran, the rows that each
//! role can read, and the stored rows. A known attempt that succeeds although it should not is listed in
//! [`OPEN`], with the reason. The test fails when a listed attempt does not succeed. TRICKLE_ATTEMPT is a
//! part of a title. When it is set, the test makes only that attempt and prints its operations.

mod operations;
mod script;
mod world;

use crate::support::is_todays;
use operations::Operation::{
    Alter, Check, Create, Drain, Drop, Explain, Refresh, RefreshFull, Repair, Replace, Run, Upgrade,
};
use operations::{Keeping, Operation};
use script::{Actor, Attempt};
use std::collections::BTreeSet;

/// Modes of the attacked stream table. Each mode has the operations on the stream table after the attempt, in
/// their order. Successive attempts take successive combinations. Any four successive combinations have all
/// operations and four modes.
const COMBINATIONS: &[(Keeping, [Operation; 3])] = &[
    (Keeping::Statement, [Refresh, Check, Upgrade]),
    (Keeping::Row, [RefreshFull, Explain, Run]),
    (Keeping::Full, [Create, Alter, Drop]),
    (Keeping::Immediate, [Repair, Replace, Drain]),
    (Keeping::Copied, [Refresh, Check, Upgrade]),
    (Keeping::Statement, [Explain, Run, RefreshFull]),
    (Keeping::Row, [Alter, Drop, Create]),
    (Keeping::Full, [Replace, Drain, Repair]),
    (Keeping::Immediate, [Check, Upgrade, Refresh]),
    (Keeping::Copied, [Explain, Run, RefreshFull]),
    (Keeping::Statement, [Drop, Create, Alter]),
    (Keeping::Row, [Drain, Repair, Replace]),
    (Keeping::Full, [Upgrade, Refresh, Check]),
    (Keeping::Immediate, [Run, RefreshFull, Explain]),
    (Keeping::Copied, [Drop, Create, Alter]),
    (Keeping::Statement, [Repair, Replace, Drain]),
    (Keeping::Row, [Refresh, Check, Upgrade]),
    (Keeping::Full, [RefreshFull, Explain, Run]),
    (Keeping::Immediate, [Create, Alter, Drop]),
    (Keeping::Copied, [Drain, Repair, Replace]),
];

/// Attempts that still succeed. Each entry has the driver, the title, and the work that would prevent the
/// attempt.
const OPEN: &[(Driver, &str, &str)] = &[];

/// The driver through which the superuser operates on stream tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Driver {
    Program,
    Extension,
}

const DRIVERS: [Driver; 2] = [Driver::Program, Driver::Extension];

impl Driver {
    /// Returns the driver of this run.
    fn meant() -> Driver {
        if crate::support::Driver::is_the_servers() { Driver::Extension } else { Driver::Program }
    }

    /// Whether the driver has this mode. Only the extension has capture triggers in C.
    fn has(self, keeping: Keeping) -> bool {
        self == Driver::Extension || keeping != Keeping::Copied
    }
}

/// Names of the files in `attempts/`, without the extension. Each file has a test at the end of this file.
const WAYS: &[&str] = &[
    "casts",
    "operators",
    "functions",
    "domains",
    "types",
    "expressions",
    "policies",
    "triggers",
    "views",
    "event_triggers",
    "search_path",
    "settings",
    "names",
    "errors",
    "ownership",
    "membership",
    "inheritance",
    "foreign",
    "publications",
    "rules",
    "generated",
    "catalog",
    "locks",
    "squatting",
];

/// Returns the attempts of one file with this driver, each with its combination.
fn attempts(driver: Driver, way: &str) -> Vec<(Attempt, (Keeping, [Operation; 3]))> {
    let begin = WAYS.iter().position(|w| *w == way).unwrap() * 4;
    let rows: Vec<_> = COMBINATIONS.iter().filter(|(k, _)| driver.has(*k)).collect();
    let mut next = begin;
    let mut with_combinations = Vec::new();
    for attempt in script::read(way).into_iter().filter(|a| a.only.is_none_or(|d| d == driver)) {
        while attempt.kept.is_some_and(|k| k != rows[next % rows.len()].0) {
            next += 1;
        }
        with_combinations.push((attempt, *rows[next % rows.len()]));
        next += 1;
    }
    with_combinations
}

/// Makes attempts of one file on every server. Each day a server gets half of the attempts, and the next
/// server the other half. Through the extension, a server gets only a quarter of the attempts each day.
fn try_all(way: &str) {
    let driver = Driver::meant();
    let only = std::env::var("TRICKLE_ATTEMPT").ok();
    world::each_server(way, async |place| {
        let mut wrong = Vec::new();
        for (nth, (attempt, (keeping, operations))) in attempts(driver, way).into_iter().enumerate() {
            let of_today = is_todays(nth + place.nth, 2);
            if only.as_ref().map_or(!of_today, |o| !attempt.title.contains(o)) {
                continue;
            }
            let got = world::make(place, &attempt, keeping, &operations).await;
            let open = OPEN.iter().any(|(d, t, _)| *d == driver && *t == attempt.title);
            let place = format!("{:?}: {} ({keeping:?}, {operations:?})", attempt.actor, attempt.title);
            match (got.is_empty(), open) {
                (false, false) => wrong.push(format!("{place}\n    {}", got.join("\n    "))),
                (true, true) => wrong.push(format!("{place}\n    no longer succeeds: take it out of OPEN")),
                _ => {}
            }
        }
        wrong
    });
}

/// Any two values of different parameters occur together in an attempt. The parameters are driver, actor,
/// mode, operation and file of attempts. Some pairs are impossible, such as a mode that a driver lacks. A
/// file must occur only with each driver and each operation.
#[test]
fn attempts_cover_each_pair() {
    let mut missing = BTreeSet::new();
    let mut pairs = BTreeSet::new();
    for driver in DRIVERS {
        for way in WAYS {
            for (attempt, (keeping, operations)) in attempts(driver, way) {
                for o in operations.into_iter().filter(|o| !(attempt.named && o.gives())) {
                    let all = [
                        format!("{driver:?}"),
                        format!("{:?}", attempt.actor),
                        (*way).to_owned(),
                        format!("{keeping:?}"),
                        format!("{o:?}"),
                    ];
                    for (i, a) in all.iter().enumerate() {
                        for b in &all[i + 1..] {
                            pairs.insert((a.clone(), b.clone()));
                        }
                    }
                }
            }
        }
    }
    let mut want = |a: String, b: String| {
        if !pairs.contains(&(a.clone(), b.clone())) {
            missing.insert(format!("{a} × {b}"));
        }
    };
    for d in DRIVERS {
        for k in Keeping::ALL.into_iter().filter(|k| d.has(*k)) {
            want(format!("{d:?}"), format!("{k:?}"));
        }
        for o in Operation::ALL {
            want(format!("{d:?}"), format!("{o:?}"));
        }
        for a in Actor::ALL {
            want(format!("{d:?}"), format!("{a:?}"));
        }
        for w in WAYS {
            want(format!("{d:?}"), (*w).to_owned());
        }
    }
    for k in Keeping::ALL {
        for o in Operation::ALL {
            want(format!("{k:?}"), format!("{o:?}"));
        }
        for a in Actor::ALL {
            want(format!("{a:?}"), format!("{k:?}"));
        }
    }
    for o in Operation::ALL {
        for a in Actor::ALL {
            want(format!("{a:?}"), format!("{o:?}"));
        }
        for w in WAYS {
            want((*w).to_owned(), format!("{o:?}"));
        }
    }
    assert!(missing.is_empty(), "no attempt has {missing:#?}");
    for (_, title, _) in OPEN {
        let named = |w: &&str| script::read(w).iter().any(|a| a.title == *title);
        assert!(WAYS.iter().any(named), "no attempt is named {title}");
    }
}

#[test]
fn nobody_gets_in_by_casts() {
    try_all("casts");
}

#[test]
fn nobody_gets_in_by_operators() {
    try_all("operators");
}

#[test]
fn nobody_gets_in_by_functions() {
    try_all("functions");
}

#[test]
fn nobody_gets_in_by_domains() {
    try_all("domains");
}

#[test]
fn nobody_gets_in_by_types() {
    try_all("types");
}

#[test]
fn nobody_gets_in_by_expressions() {
    try_all("expressions");
}

#[test]
fn nobody_gets_in_by_policies() {
    try_all("policies");
}

#[test]
fn nobody_gets_in_by_triggers() {
    try_all("triggers");
}

#[test]
fn nobody_gets_in_by_views() {
    try_all("views");
}

#[test]
fn nobody_gets_in_by_event_triggers() {
    try_all("event_triggers");
}

#[test]
fn nobody_gets_in_by_search_path() {
    try_all("search_path");
}

#[test]
fn nobody_gets_in_by_settings() {
    try_all("settings");
}

#[test]
fn nobody_gets_in_by_names() {
    try_all("names");
}

#[test]
fn nobody_gets_in_by_errors() {
    try_all("errors");
}

#[test]
fn nobody_gets_in_by_ownership() {
    try_all("ownership");
}

#[test]
fn nobody_gets_in_by_membership() {
    try_all("membership");
}

#[test]
fn nobody_gets_in_by_inheritance() {
    try_all("inheritance");
}

#[test]
fn nobody_gets_in_by_foreign() {
    try_all("foreign");
}

#[test]
fn nobody_gets_in_by_publications() {
    try_all("publications");
}

#[test]
fn nobody_gets_in_by_rules() {
    try_all("rules");
}

#[test]
fn nobody_gets_in_by_generated() {
    try_all("generated");
}

#[test]
fn nobody_gets_in_by_catalog() {
    try_all("catalog");
}

#[test]
fn nobody_gets_in_by_locks() {
    try_all("locks");
}

#[test]
fn nobody_gets_in_by_squatting() {
    try_all("squatting");
}
