//! Settings from `trickle.toml`, settings from flags, and settings from the catalog for all clients. The
//! tests check that each kind takes effect.

use super::refresher::until;
use super::{BY_REGION, Role};
use crate::support::{count, newest_server, planted};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with a `trickle.toml`. The directory is removed at the end of the test.
struct Directory(PathBuf);

impl Directory {
    fn with(name: &str, settings: &str) -> Directory {
        // A test runs on several servers at once, so each directory gets a number.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trickle-settings-{}-{name}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("trickle.toml"), settings).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the program, and returns the exit code and the output of both streams.
fn run_both(role: &Role, within: &Path, args: &[&str]) -> (i32, String) {
    let out = planted::output(role.command(args).current_dir(within));
    let said = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap_or(-1), String::from_utf8(said).unwrap())
}

/// Runs the program, and returns the exit code and standard error.
fn run(role: &Role, within: &Path, args: &[&str]) -> (i32, String) {
    let out = planted::output(role.command(args).current_dir(within));
    (out.status.code().unwrap_or(-1), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn settings_come_from_the_file_and_from_flags() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        let here = Directory::with(
            "both",
            "buffer_limit_bytes = 65536\ncdc_trigger_mode = \"row\"\nrefresh_strategy = \"full\"\n",
        );
        let does = |args: &[&str]| assert_eq!(run(&app, &here.0, args), (0, String::new()), "{args:?}");
        does(&["init", "--quiet"]);
        does(&["create", "by_region", "--query", BY_REGION, "--quiet"]);
        let limited =
            "SELECT count(*) FROM pgtrickle.pgt_buffers WHERE limit_bytes = 65536 AND trigger_mode = 'ROW'";
        assert_eq!(count(&w, limited).await, 2);
        // Clients without the file use the settings in the catalog.
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id = 3").await;
        does(&["refresh", "--quiet"]);
        let by = async |action: &str| {
            count(&w, &format!("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = '{action}' AND initiated_by = 'MANUAL'")).await
        };
        assert_eq!((by("FULL").await, by("DIFFERENTIAL").await), (1, 0));
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id = 3").await;
        does(&["refresh", "--quiet", "--refresh-strategy", "differential"]);
        assert_eq!((by("FULL").await, by("DIFFERENTIAL").await), (1, 1));
        app.does(&["init", "--quiet"]);
        app.does(&["refresh", "--quiet"]);
        assert_eq!(count(&w, limited).await, 2);
        does(&["init", "--quiet", "--buffer-limit-bytes", "131072"]);
        app.does(&["refresh", "--quiet"]);
        assert_eq!(
            count(&w, "SELECT count(*) FROM pgtrickle.pgt_buffers WHERE limit_bytes = 131072").await,
            2
        );
    });
}

#[test]
fn a_file_that_is_wrong_is_refused_by_what_reads_it() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        let wrong = Directory::with("wrong", "load_connections = 2\nnonsense = 1\n");
        let (code, said) = run(&app, &wrong.0, &["status"]);
        assert!(code == 2 && said.contains("nonsense") && said.contains("trickle.toml"), "{code} {said}");
        assert_eq!(run(&app, &wrong.0, &["lint", "--help"]).0, 0);
        let (code, said) = run(&app, &wrong.0, &["status", "--config", "nowhere.toml"]);
        assert!(code == 2 && said.contains("nowhere.toml"), "{code} {said}");
        let wal = Directory::with("wal", "cdc_mode = \"wal\"");
        let (code, said) = run(&app, &wal.0, &["status"]);
        assert!(code == 2 && said.contains("cdc_mode to auto or trigger"), "{code} {said}");
    });
}

#[test]
fn enabled_false_stops_the_refresher_and_not_refreshes_by_hand() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id = 3").await;
        let off = Directory::with(
            "off",
            "enabled = false\nmerge_work_mem_mb = 32\nparallel_refresh_mode = \"off\"",
        );
        let mut command = app.command(&["run"]);
        let mut refresher = command.current_dir(&off.0).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(refresher.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("nothing is refreshed: enabled is false"), "{said}");
        let connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'trickle run' \
                         AND datname = current_database()";
        // The refresher connected once to check that a server answers. The test waits until that connection
        // is closed, since `doctor` would count it as a working refresher.
        until(&w, &format!("SELECT ({connected}) = 0")).await;
        let (code, doctor) = run_both(&app, &off.0, &["doctor"]);
        assert!(code == 0 && doctor.contains("enabled is false here"), "{doctor}");
        let end = Command::new("kill").arg(refresher.id().to_string()).status().unwrap();
        assert!(end.success() && refresher.wait().unwrap().success());
        let by = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER'";
        assert_eq!(count(&w, by).await, 0);
        let (code, said) = run(&app, &off.0, &["refresh"]);
        assert_eq!(code, 0);
        assert!(said.contains("enabled is false") && said.contains("this refresh is done"), "{said}");
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn a_refresh_has_the_memory_that_is_set() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        // The stored row shows the value of `work_mem` that was in force at the refresh.
        let query = "SELECT current_setting('work_mem') AS memory";
        app.does(&["create", "shown", "--query", query, "--no-schedule", "--quiet"]);
        app.does(&["refresh", "--quiet", "--merge-work-mem-mb", "32"]);
        assert_eq!(count(&w, "SELECT count(*) FROM shown WHERE memory = '32MB'").await, 1);
        // A full refresh of a query without sources writes only one row.
        app.does(&["refresh", "--quiet", "--merge-work-mem-mb", "2", "--merge-work-mem-max-mb", "64"]);
        assert_eq!(count(&w, "SELECT count(*) FROM shown WHERE memory = '2MB'").await, 1);
        app.does(&["refresh", "--quiet"]);
        assert_eq!(
            count(&w, "SELECT count(*) FROM shown WHERE memory = current_setting('work_mem')").await,
            1
        );
    });
}
