//! Deltas of queries over the clock.

use super::MOST;
use super::explained::Tables;
use crate::support::newest_server;
use std::collections::BTreeSet;
use trickle_core::catalog::TableId;

const EVENTS: &str =
    "CREATE TABLE events (id int PRIMARY KEY, device int, at timestamptz NOT NULL, value int);
    CREATE TABLE devices (id int PRIMARY KEY, name text);";

const EVENTS_DATA: &str = "
INSERT INTO events SELECT i, i % 10000, timestamptz '2025-05-31 12:00:00+00' + i * interval '1 second', i % 7
    FROM generate_series(1, 50000) i;
INSERT INTO devices SELECT i, 'd' || i FROM generate_series(0, 9999) i;
CREATE INDEX ON events (at); CREATE INDEX ON events (device, at);
ANALYZE events, devices;";

/// Queries whose rows enter and leave as time passes.
const TIMED: &[(&str, &str)] = &[
    ("recent", "SELECT id, device FROM events WHERE at > now() - interval '1 hour' AND at <= now()"),
    ("yet to come", "SELECT id FROM events WHERE now() < at"),
    (
        "between",
        "SELECT id FROM events WHERE at BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'",
    ),
    ("sums", "SELECT device, count(*) AS n, sum(value) AS s FROM events WHERE at <= now() GROUP BY device"),
    (
        "joined",
        "SELECT e.id, d.name FROM events e JOIN devices d ON d.id = e.device WHERE e.at > now() - interval '1 hour'",
    ),
    (
        "padded",
        "SELECT d.id, e.id AS event FROM devices d LEFT JOIN events e ON e.device = d.id AND e.at > now() - interval '1 hour'",
    ),
    ("distinct", "SELECT DISTINCT device FROM events WHERE at > now() - interval '1 minute'"),
    (
        "silent",
        "SELECT id FROM devices d WHERE NOT EXISTS (SELECT FROM events e WHERE e.device = d.id AND e.at > now() - interval '1 minute')",
    ),
    (
        "last",
        "SELECT DISTINCT ON (device) device, id, at FROM events WHERE at <= now() ORDER BY device, at DESC, id",
    ),
];

#[test]
fn rows_that_enter_or_leave_with_time_are_found_by_index() {
    newest_server(async |db| {
        let tables = Tables::filled(db, EVENTS, EVENTS_DATA).await;
        let mut found = Vec::new();
        for (name, query) in TIMED {
            let kept = tables.keep(query).await;
            let delta = kept.delta(&BTreeSet::from([TableId::CLOCK]), "").await;
            found.extend(delta.beyond(name, |s| s.relation == "events" && s.rows > MOST));
            kept.discard().await;
        }
        tables.assert_none(&found);
    });
}
