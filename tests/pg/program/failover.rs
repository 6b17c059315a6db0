//! A refresher connects to one of several hosts. The primary dies, and a standby is promoted. The tests catch
//! a promoted standby that is taken for another database, and changes that are lost or counted twice at the
//! promotion. The tests also catch a refresher that stays with a host that cannot be written.

use super::refresher::{Refresher, holds, until};
use super::{BY_REGION, Role, SHOP};
use crate::support::private::{connect, follow, newest_version, start};
use crate::support::{count, run};
use std::process::Command;
use trickle_client::throwaway::Server;

/// Kills the server's first process, and does not start the server again. The other processes end when they
/// notice the death.
fn kill(server: &Server) {
    let pid = std::fs::read_to_string(server.directory().join("data/postmaster.pid")).unwrap();
    let told = Command::new("kill").args(["-KILL", pid.lines().next().unwrap()]).status().unwrap();
    assert!(told.success());
}

/// Returns a URL that names these hosts by the directories of their sockets.
fn url(hosts: &[&Server], more: &str) -> String {
    let hosts = hosts.iter().map(|s| s.directory().display().to_string().replace('/', "%2F"));
    format!("postgres://app@{}/shop?{more}", hosts.collect::<Vec<_>>().join(","))
}

fn app(settings: String) -> Role {
    Role { name: "app".to_owned(), settings }
}

/// A query for the number of refreshes that recomputed a stream table.
const ANEW: &str =
    "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action NOT IN ('DIFFERENTIAL', 'NO_DATA')";

const WRITE: &str = "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0";

#[test]
fn a_refresher_goes_on_where_the_primary_is_now() {
    newest_version(async |binaries| {
        let first = start(binaries, "first").await;
        run(&connect(&first, "postgres").await, "CREATE ROLE app LOGIN").await;
        run(&connect(&first, "postgres").await, "CREATE DATABASE shop OWNER app").await;
        let p = connect(&first, "shop").await;
        run(&p, &format!("SET SESSION AUTHORIZATION app; {SHOP}")).await;
        let mut second = start(binaries, "second").await;
        follow(&mut second, &first).await;
        let s = connect(&second, "shop").await;
        let hosts = app(url(&[&first, &second], "target_session_attrs=read-write"));
        hosts.does(&["init", "--quiet"]);
        hosts.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        // The program does not use a standby, at any position in the list.
        for more in
            ["target_session_attrs=read-write", "target_session_attrs=primary&load_balance_hosts=random"]
        {
            app(url(&[&second, &first], more)).does(&["refresh", "--quiet"]);
        }
        let mut refresher =
            Refresher::start(hosts.command(&["run", "--quiet", "--refresh-strategy", "differential"]));
        for _ in 0..2 {
            run(&p, WRITE).await;
            until(&p, &holds("by_region", BY_REGION)).await;
        }
        let anew = count(&p, ANEW).await;
        // The change is committed and replicated when the primary dies. A refresh may have applied the change
        // or not.
        run(&p, "UPDATE customers SET region = 'moved' WHERE id = 3").await;
        until(&s, "SELECT EXISTS (SELECT FROM customers WHERE region = 'moved')").await;
        kill(&first);
        // While there is no primary, the message gives a reason for each host.
        let refused = hosts.trickle(&["status"]);
        assert_eq!(refused.code, 3, "{refused:?}");
        let [one, two] =
            [&first, &second].map(|s| format!("socket {}/.s.PGSQL.5432: ", s.directory().display()));
        let names_both = refused.err.contains(&one) && refused.err.contains(&format!("{two}it is read-only"));
        assert!(names_both, "{refused:?}");
        refresher.is_running();
        assert_eq!(count(&s, "SELECT pg_promote()::int::int8").await, 1);
        until(&s, &holds("by_region", BY_REGION)).await;
        for _ in 0..2 {
            run(&s, WRITE).await;
            until(&s, &holds("by_region", BY_REGION)).await;
        }
        assert_eq!(count(&s, ANEW).await, anew, "nothing is computed anew");
        let last = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'DIFFERENTIAL' AND refresh_id = \
             (SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history)";
        assert_eq!(count(&s, last).await, 1);
        hosts.does(&["check", "--quiet"]);
        refresher.terminate();
        assert_eq!(refresher.ended().code(), Some(0));
        second.stop();
        first.stop();
    });
}
