//! Deltas of window functions with frames of a few rows, over partitions of many rows.

use super::explained::{Tables, update};
use crate::support::newest_server;
use std::collections::BTreeSet;

const READINGS: &str = "
CREATE TABLE readings (id int PRIMARY KEY, device int, at timestamp NOT NULL, value int);
CREATE TABLE devices (id int PRIMARY KEY, name text);";

/// 20,000 readings of each of three devices, and 20,000 readings without a device.
const ROWS: &str = "
INSERT INTO readings SELECT i, nullif(i % 4, 0), timestamp '2026-01-01' + i * interval '1 minute', i % 7
    FROM generate_series(1, 80000) i;
INSERT INTO devices SELECT i, 'd' || i FROM generate_series(1, 3) i;
CREATE INDEX ON readings (device, at); CREATE INDEX ON readings (at);
ANALYZE readings, devices;";

/// Name and text of the queries.
const NEAR: &[(&str, &str)] = &[
    (
        "neighbours",
        "SELECT id, value - lag(value) OVER (PARTITION BY device ORDER BY at, id) AS step FROM readings",
    ),
    (
        "the last seven",
        "SELECT id, device, avg(value) OVER (PARTITION BY device ORDER BY at DESC, id ROWS 6 PRECEDING) AS mean FROM readings",
    ),
    (
        "the last hour",
        "SELECT id, sum(value) OVER (PARTITION BY device ORDER BY at RANGE '1 hour' PRECEDING) AS hour, \
         count(*) OVER (PARTITION BY device ORDER BY at GROUPS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS around FROM readings",
    ),
    ("all in one order", "SELECT id, lead(id) OVER (ORDER BY at, id) AS next FROM readings"),
    (
        "of a join",
        "SELECT r.id, d.name, r.at - lag(r.at) OVER (PARTITION BY r.device ORDER BY r.at, r.id) AS since \
         FROM readings r JOIN devices d ON d.id = r.device",
    ),
];

/// The greatest number of rows that one scan may read. These rows are some hours of one device. If the server
/// uses the index on the time, the rows are some hours of all devices.
const MOST: f64 = 400.0;

#[test]
fn windows_of_near_rows_read_near_a_change() {
    newest_server(async |db| {
        let tables = Tables::filled(db, READINGS, ROWS).await;
        let readings = tables.table("readings");
        let windows = [
            ("a value changes", update(readings, "id = 40001", "value = 100")),
            (
                "a reading moves by a minute",
                update(readings, "id = 40004", "at = at + interval '61 seconds'"),
            ),
            ("a reading of two devices", update(readings, "id IN (79997, 79998)", "value = value + 1")),
        ];
        let mut found = Vec::new();
        for (name, query) in NEAR {
            let kept = tables.keep(query).await;
            for (what, changes) in &windows {
                let delta = kept.delta(&BTreeSet::from([readings.id]), changes).await;
                found.extend(delta.beyond(&format!("{name}, {what}"), |s| s.rows > MOST));
            }
            kept.discard().await;
        }
        tables.assert_none(&found);
    });
}
