//! `trickle wait` returns as soon as all changes that were committed before the call are visible. The command
//! does not return earlier.

use super::{BY_REGION, Role};
use crate::support::newest_server;
use std::process::{Child, Stdio};

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_wait_ends_when_somebody_has_refreshed() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        app.does(&["create", "large", "--query", "SELECT region FROM by_region WHERE total > 1", "--quiet"]);
        // `wait` does not wait for transactions that change no source of the stream table.
        app.run_sql(db, "CREATE TABLE other (x int); INSERT INTO other VALUES (1)").await;
        let done = app.trickle(&["wait", "large", "--json"]).json();
        assert_eq!((&done["name"], &done["visible"]), (&"large".into(), &true.into()));

        app.run_sql(db, "UPDATE orders SET amount = 0 WHERE id = 1").await;
        for table in ["by_region", "large"] {
            let late = app.trickle(&["wait", table, "--timeout", "50ms"]);
            assert_eq!((late.code, late.out.as_str()), (1, ""), "{table}");
            assert!(late.err.contains("2 changes are pending"), "{}", late.err);
            assert!(late.err.contains("No refresher seems to run: start trickle run"), "{}", late.err);
        }
        let mut waiting = app.command(&["wait", "large"]).stdout(Stdio::null()).spawn().unwrap();
        app.does(&["refresh", "large", "--quiet"]);
        assert_eq!(waiting.wait().unwrap().code(), Some(0));

        app.run_sql(db, "UPDATE orders SET amount = 1 WHERE id = 1").await;
        app.does(&["alter", "by_region", "--suspend", "--quiet"]);
        let late = app.trickle(&["wait", "by_region", "--timeout", "1ms"]);
        assert!(
            late.code == 1 && late.err.contains("trickle alter public.by_region --resume"),
            "{}",
            late.err
        );
    });
}

/// A stream table whose query reads the clock is never idle. So `wait` compares the stream table's frontier
/// with the time of the call.
#[test]
fn a_table_that_is_never_idle_is_waited_for_by_its_frontier() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        let query = "SELECT id, now() AS at FROM orders";
        app.does(&["create", "dated", "--query", query, "--schedule", "1s", "--quiet"]);
        assert_eq!(app.trickle(&["wait", "dated", "--timeout", "20ms"]).code, 1);
        let mut refresher = Running(app.command(&["run", "--quiet"]).spawn().unwrap());
        app.does(&["wait", "dated", "--timeout", "2m", "--quiet"]);
        assert!(refresher.0.try_wait().unwrap().is_none(), "it still runs");
        let doctor = app.trickle(&["doctor", "--json"]).json();
        let found = doctor["checks"].as_array().unwrap().iter().find(|c| c["check"] == "refresher").unwrap();
        assert_eq!(found["result"], "ok", "{found}");
    });
}
