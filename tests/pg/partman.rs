//! Partitions that pg_partman makes, fills, and drops (PostgreSQL 15, from the distribution's package). The
//! tests catch lost or doubled rows of these partitions.

use crate::support::{assert_equal, count, create, each_server, open, refresh, run};
use trickle_client::Session;

/// A partition for each of some days, and a default partition.
pub(crate) const EVENTS: &str = "
    CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
    CREATE TABLE events (id int, at timestamptz NOT NULL, v int) PARTITION BY RANGE (at);
    SELECT partman.create_parent('public.events', 'at', 'native', 'daily', p_premake := 2);
    INSERT INTO events SELECT i, now() - i * interval '1 hour', i % 5 FROM generate_series(0, 40) i";

pub(crate) const SUMS: &str = "SELECT v, count(*) AS n, max(id) AS m FROM events GROUP BY v";

/// Statements of a maintenance. The extension recomputes no reader after any of these statements.
pub(crate) const MAINTENANCE: [&str; 7] = [
    "UPDATE events SET v = v + 1 WHERE id % 7 = 0",
    "UPDATE partman.part_config SET premake = 5; SELECT partman.run_maintenance('public.events')",
    "INSERT INTO events SELECT 100 + i, now() + i * interval '1 day', i FROM generate_series(1, 4) i",
    "INSERT INTO events VALUES (200, now() + interval '20 days', 7), (201, now() + interval '21 days', 8)",
    "DO $$ BEGIN PERFORM partman.partition_data_time('public.events', p_batch_count := 5); END $$",
    "UPDATE partman.part_config SET retention = '1 day', retention_keep_table = false; SELECT partman.run_maintenance('public.events')",
    "DELETE FROM events WHERE id < 10; UPDATE events SET v = 1 WHERE id > 100",
];

/// Whether the server has pg_partman. `./x` installs pg_partman if the distribution has a package of it.
pub(crate) async fn is_there(s: &Session) -> bool {
    count(s, "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman'").await == 1
}

#[test]
fn partitions_of_pg_partman_are_followed() {
    each_server(async |db| {
        let s = db.session().await;
        if !is_there(&s).await {
            return;
        }
        run(&s, EVENTS).await;
        let mut t = open(db).await;
        create(&mut t, "sums", SUMS).await;
        for change in MAINTENANCE {
            run(&s, change).await;
            refresh(&mut t, "sums").await;
            assert_equal(&mut t, "sums").await;
        }
    });
}
