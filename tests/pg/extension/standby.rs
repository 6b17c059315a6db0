//! A standby of a server that refreshes on schedule. Before its promotion the standby does not refresh. After
//! its promotion the standby refreshes as the primary did. The tests catch schedulers that try to write in a
//! standby, and a promoted standby that is taken for a restored dump.

use super::workers::{MADE, SCHEDULERS, STALE, scheduled, until};
use crate::support::private::{connect, follow, has, newest_version};
use crate::support::{count, run};

/// A query for the number of recomputes of the kind that follows the restore of a dump.
const ANEW: &str = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE'";

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_standby_does_nothing_until_it_is_promoted() {
    newest_version(async |binaries| {
        if !has(binaries, "pg_basebackup") {
            return;
        }
        let primary = scheduled(binaries, "primary").await;
        let p = connect(&primary, "postgres").await;
        run(&p, MADE).await;
        until(&p, SCHEDULERS, 1).await;
        let mut copy = scheduled(binaries, "standby").await;
        follow(&mut copy, &primary).await;
        let s = connect(&copy, "postgres").await;
        assert_eq!(count(&s, "SELECT pg_is_in_recovery()::int::int8").await, 1);
        for k in 4..7 {
            run(&p, &format!("UPDATE t SET k = {k} WHERE id < {k}")).await;
            until(&p, STALE, 0).await;
            until(&s, &format!("SELECT count(*) FROM counts WHERE k = {k}"), 1).await;
        }
        let processes = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_trickle%'";
        assert_eq!(count(&s, processes).await, 0);
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'ACTIVE'").await, 2);
        let refused = s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('counts')").await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code().map(|c| c.code()), Some("25006"), "{refused:?}");
        let before = count(&s, ANEW).await;
        primary.stop();
        assert_eq!(count(&s, "SELECT pg_promote()::int::int8").await, 1);
        until(&s, SCHEDULERS, 1).await;
        run(&s, "DELETE FROM t WHERE k = 4; INSERT INTO t VALUES (100, 1)").await;
        until(&s, STALE, 0).await;
        assert_eq!(count(&s, ANEW).await, before);
        copy.stop();
    });
}
