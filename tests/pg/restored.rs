//! A database is dumped and restored, copied, renamed, or moved to another system. Its OIDs, transaction
//! numbers and system identifier then differ from those in the catalog, or belong to other objects. The tests
//! catch trust in frontiers and OIDs that came from another database.

use crate::support::private::{connect, each_version, has, open, start, start_with};
use crate::support::{Driver, assert_equal, count, create, name, refresh, run};
use std::path::Path;
use std::process::Command;
use trickle_client::throwaway::Server;
use trickle_client::{NewStreamTable, RefreshMode, Session, Settings, Trickle};
use trickle_core::cost::Force;

const SOURCES: &str = r#"
    CREATE TABLE a (id int PRIMARY KEY, k int, v numeric);
    CREATE TABLE "odd ""T""" (id int PRIMARY KEY, k int);
    CREATE VIEW v AS SELECT * FROM a WHERE v > 3;
    CREATE FUNCTION twice(n numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT n * 2';
    INSERT INTO a SELECT i, i % 4, i FROM generate_series(1, 40) i;
    INSERT INTO "odd ""T""" SELECT i, i % 4 FROM generate_series(1, 8) i"#;

const TABLES: [(&str, &str); 4] = [
    (
        "sums",
        r#"SELECT o.k, count(*) AS n, sum(twice(v)) AS s FROM v JOIN "odd ""T""" o USING (k) GROUP BY o.k"#,
    ),
    ("kinds", "SELECT DISTINCT k FROM a"),
    ("over", "SELECT k, s FROM sums WHERE s > 10"),
    ("late", "SELECT max(v) AS most FROM a"),
];

const CHANGE: &str = r#"UPDATE a SET v = v + 1 WHERE id % 3 = 0; DELETE FROM "odd ""T""" WHERE id = (SELECT max(id) FROM "odd ""T""");
    INSERT INTO a SELECT max(id) + 1, 9, 50 FROM a"#;

fn settings() -> Settings {
    Settings { force: Some(Force::Incremental), ..Settings::default() }
}

async fn set_up(server: &Server, database: &str) -> Driver {
    let mut t = open(server, database, settings()).await;
    run(&connect(server, database).await, SOURCES).await;
    for (what, query) in TABLES {
        create(&mut t, what, query).await;
    }
    // The stream table is IMMEDIATE, so the dump has its triggers.
    let query = "SELECT v.k, count(*) AS n, max(v.v) AS most FROM v GROUP BY v.k";
    let kept =
        NewStreamTable { mode: Some(RefreshMode::Immediate), ..NewStreamTable::new(name("kept"), query) };
    t.create(&kept).await.unwrap();
    t
}

/// Refreshes all stream tables. Asserts that each is recomputed for this reason, and is then updated by
/// deltas.
async fn rebuilt_and_right(t: &mut Driver, w: &Session, reason: &str) {
    run(w, CHANGE).await;
    refresh(t, "kept").await;
    assert_equal(t, "kept").await;
    for (what, _) in TABLES {
        let e = t.find(&name(what)).await.unwrap();
        let done = refresh(t, what).await;
        let history = t.history(&name(what), 1).await.unwrap();
        assert_eq!(history[0].action, trickle_client::Action::Reinitialize, "{what}: {done:?} {e:?}");
        let why = history[0].strategy_reason.clone().unwrap();
        assert!(why.contains(reason), "{what}: {why}");
        assert_equal(t, what).await;
    }
    for _ in 0..2 {
        run(w, CHANGE).await;
        assert_equal(t, "kept").await;
        for (what, _) in TABLES {
            let done = refresh(t, what).await;
            assert_ne!(done.last().unwrap().report.action.name(), "REINITIALIZE", "{what}: {done:?}");
            assert_equal(t, what).await;
        }
    }
}

pub(crate) fn tool(binaries: &Path, tool: &str, server: &Server, args: &[&str]) {
    let out = Command::new(binaries.join(tool))
        .args(["-h", &server.directory().display().to_string(), "-U", "postgres"])
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{tool} {args:?}: {text}");
}

/// Dumps a database with these options, and returns the path of the dump.
fn dump(binaries: &Path, server: &Server, database: &str, ways: &[&str]) -> String {
    let place =
        std::env::temp_dir().join(format!("trickle-dump-{}-{database}{}", std::process::id(), ways.concat()));
    let place = place.display().to_string();
    tool(binaries, "pg_dump", server, &[ways, &["-f", &place, database]].concat());
    place
}

async fn restored(binaries: &Path, file: &str, server: &Server, database: &str, ways: &[&str]) {
    run(&connect(server, "postgres").await, &format!("CREATE DATABASE {database}")).await;
    // These two tables take OIDs that tables had in the dumped database, or that tables would get in this
    // database.
    run(&connect(server, database).await, "CREATE TABLE before_1 (x int); CREATE TABLE before_2 (x int)")
        .await;
    tool(binaries, "pg_restore", server, &[ways, &["-d", database, "--exit-on-error", file]].concat());
    let w = connect(server, database).await;
    // Triggers from the dump must not make writers fail.
    run(&w, CHANGE).await;
    let session = connect(server, database).await;
    let e = Trickle::open(session, settings()).await.err().expect("it is not at home");
    assert_eq!(e.message(), "this database was restored from a dump");
    assert!(e.to_string().contains("trickle init"), "{e}");
    run(&w, CHANGE).await;
    let mut t = open(server, database, settings()).await;
    let standing = t.status(&[]).await.unwrap();
    assert!(standing.iter().all(|s| s.exists && s.pending == Some(true)), "{standing:?}");
    rebuilt_and_right(&mut t, &w, "the database was restored from a dump").await;
    // No buffer has a name from an OID of the dumped database.
    let strangers = "SELECT count(*) FROM pg_class c WHERE relnamespace = 'pgtrickle_changes'::regnamespace \
         AND relname LIKE 'changes%' AND split_part(relname, '_', 2)::oid NOT IN (SELECT source_relid FROM pgtrickle.pgt_buffers)";
    assert_eq!(count(&w, strangers).await, 0);
    assert_eq!(count(&w, "SELECT count(*) FROM pgtrickle.pgt_buffers WHERE capture <> 'ON'").await, 0);
    assert!(t.init().await.is_ok(), "at home by now");
}

#[test]
fn stream_tables_of_a_restored_dump_are_rebuilt() {
    each_version(async |binaries| {
        if !has(binaries, "pg_dump") {
            return;
        }
        let server = start(binaries, "dump").await;
        run(&connect(&server, "postgres").await, "CREATE DATABASE origin").await;
        let mut t = set_up(&server, "origin").await;
        run(&connect(&server, "origin").await, CHANGE).await;
        let file = dump(binaries, &server, "origin", &["-Fc"]);
        restored(binaries, &file, &server, "copy", &[]).await;
        std::fs::remove_file(file).unwrap();
        let directory = dump(binaries, &server, "origin", &["-Fd", "-j", "2"]);
        let other = start(binaries, "dump2").await;
        restored(binaries, &directory, &other, "origin", &["-j", "2"]).await;
        std::fs::remove_dir_all(directory).unwrap();
        other.stop();
        // The dumped database itself is still updated by deltas.
        let done = refresh(&mut t, "sums").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        assert_equal(&mut t, "sums").await;
        server.stop();
    });
}

/// Runs a file of SQL as `psql` would, without the commands that only `psql` understands.
async fn script(w: &Session, file: &str) -> Result<(), tokio_postgres::Error> {
    let text = std::fs::read_to_string(file).unwrap();
    let text: String = text.lines().filter(|l| !l.starts_with('\\')).map(|l| format!("{l}\n")).collect();
    w.client().batch_execute(&text).await
}

/// Only definitions are restored, as for test databases. Writers do not fail, and the catalog is made again.
#[test]
fn definitions_restored_without_rows_are_an_empty_catalog() {
    each_version(async |binaries| {
        // With the extension, CREATE EXTENSION makes a catalog. `extension::restored` has the test of that
        // case.
        if !has(binaries, "pg_dump") || Driver::is_the_servers() {
            return;
        }
        let server = start(binaries, "shape").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE origin").await;
        drop(set_up(&server, "origin").await);
        let file = server.directory().join("shape").display().to_string();
        tool(binaries, "pg_dump", &server, &["-s", "-f", &file, "origin"]);
        run(&admin, "CREATE DATABASE shape").await;
        let w = connect(&server, "shape").await;
        script(&w, &file).await.unwrap();
        // The script of a dump leaves an empty search path in its session, so the test opens a new session.
        let w = connect(&server, "shape").await;
        run(&w, "INSERT INTO a SELECT i, i % 4, i FROM generate_series(1, 40) i").await;
        run(&w, CHANGE).await;
        let e =
            Trickle::open(connect(&server, "shape").await, settings()).await.err().expect("it has no rows");
        assert_eq!(e.message(), "this database has no trickle catalog");
        let mut t = open(&server, "shape", settings()).await;
        let triggers = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle%'";
        assert_eq!(count(&w, triggers).await, 0);
        run(&w, "DROP TABLE sums, kinds, over, late, kept").await;
        for (what, query) in TABLES {
            create(&mut t, what, query).await;
        }
        run(&w, CHANGE).await;
        for (what, _) in TABLES {
            assert_equal(&mut t, what).await;
        }
        // The rows are restored later, with triggers disabled. The catalog's rows are among them, so the
        // stream tables are found again.
        let data = server.directory().join("rows").display().to_string();
        tool(binaries, "pg_dump", &server, &["-a", "--disable-triggers", "--inserts", "-f", &data, "origin"]);
        run(&admin, "CREATE DATABASE whole").await;
        let w = connect(&server, "whole").await;
        script(&w, &file).await.unwrap();
        let w = connect(&server, "whole").await;
        script(&w, &data).await.unwrap();
        let w = connect(&server, "whole").await;
        let mut t = open(&server, "whole", settings()).await;
        rebuilt_and_right(&mut t, &w, "the database was restored from a dump").await;
        server.stop();
    });
}

/// Dumps and restores a single table or a single schema.
#[test]
fn a_table_or_a_schema_dumped_alone_is_a_table_or_a_schema() {
    each_version(async |binaries| {
        if !has(binaries, "pg_dump") {
            return;
        }
        let server = start(binaries, "alone").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE origin").await;
        drop(set_up(&server, "origin").await);
        for (what, args) in [("table", ["-t", "a"]), ("schema", ["-n", "public"])] {
            let file = server.directory().join(what).display().to_string();
            let mut all = vec!["-Fc", "-f", &*file];
            all.extend(args);
            all.push("origin");
            tool(binaries, "pg_dump", &server, &all);
            // The restore leaves out triggers of trickle, since the dump lacks their functions.
            let list = server.directory().join("list").display().to_string();
            let out = Command::new(binaries.join("pg_restore")).args(["-l", &file]).output().unwrap();
            let listed = String::from_utf8(out.stdout).unwrap();
            let kept: String =
                listed.lines().filter(|l| !l.contains(" trickle_")).map(|l| format!("{l}\n")).collect();
            std::fs::write(&list, kept).unwrap();
            run(&admin, &format!("CREATE DATABASE alone_{what}")).await;
            let w = connect(&server, &format!("alone_{what}")).await;
            run(&w, "DROP SCHEMA public").await;
            if what == "table" {
                run(&w, "CREATE SCHEMA public").await;
            }
            let database = format!("alone_{what}");
            tool(binaries, "pg_restore", &server, &["-d", &database, "--exit-on-error", "-L", &list, &file]);
            run(&w, "UPDATE a SET v = v + 1").await;
            let mut t = open(&server, &database, settings()).await;
            run(&w, "DROP TABLE IF EXISTS kinds").await;
            create(&mut t, "kinds", TABLES[1].1).await;
            run(&w, "DELETE FROM a WHERE k = 1").await;
            assert_equal(&mut t, "kinds").await;
        }
        server.stop();
    });
}

#[test]
fn a_renamed_database_goes_on_and_a_copied_one_is_rebuilt() {
    each_version(async |binaries| {
        let server = start(binaries, "rename").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE old").await;
        drop(set_up(&server, "old").await);
        let gone = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'old'";
        while count(&admin, gone).await > 0 {
            tokio::task::yield_now().await;
        }
        run(&admin, "ALTER DATABASE old RENAME TO new").await;
        run(&admin, "CREATE DATABASE copy TEMPLATE new").await;
        let mut t = open(&server, "new", settings()).await;
        run(&connect(&server, "new").await, CHANGE).await;
        for (what, _) in TABLES {
            let done = refresh(&mut t, what).await;
            assert_ne!(done.last().unwrap().report.action.name(), "REINITIALIZE", "{done:?}");
            assert_equal(&mut t, what).await;
        }
        let mut t = open(&server, "copy", settings()).await;
        rebuilt_and_right(&mut t, &connect(&server, "copy").await, "of another system or database").await;
        server.stop();
    });
}

/// Settings that archive the write-ahead log beside the data directory.
const ARCHIVE: &[&str] = &["archive_mode=on", "archive_command=cp %p ../archived_%f"];

/// A server is recovered from a base backup and the write-ahead log up to a restore point. The stream tables
/// have the rows and pending changes of that point. From that point on they are updated by deltas.
#[test]
fn a_database_recovered_to_a_point_in_time_goes_on() {
    each_version(async |binaries| {
        if !has(binaries, "pg_basebackup") {
            return;
        }
        let (first, mut second) =
            (start_with(binaries, "point", ARCHIVE).await, start(binaries, "point2").await);
        let mut t = set_up(&first, "postgres").await;
        let w = connect(&first, "postgres").await;
        run(&w, CHANGE).await;
        refresh(&mut t, "sums").await;
        let back_up = format!("{}/pg_basebackup -h {{}} -U postgres -D copied -c fast", binaries.display());
        in_place(&second, &first, &back_up).await;
        run(&w, CHANGE).await;
        refresh(&mut t, "over").await;
        run(&w, CHANGE).await;
        run(&w, "SELECT pg_create_restore_point('here')").await;
        let rows = count(&w, "SELECT sum(hashtext(a::text)) FROM a").await;
        // The recovery stops at a point before these changes, these refreshes, and the drop of a stream
        // table.
        run(&w, CHANGE).await;
        for (what, _) in TABLES {
            refresh(&mut t, what).await;
        }
        t.drop(&name("late"), false).await.unwrap();
        let last = "SELECT pg_walfile_name(pg_current_wal_lsn())";
        let last: String = w.client().query_one(last, &[]).await.unwrap().get(0);
        run(&w, "SELECT pg_switch_wal()").await;
        let recover = format!(
            "while [ \"$(stat -c %s {{}}/archived_{last})\" != 16777216 ]; do sleep 0.1; done; \
             echo \"restore_command = 'cp {{}}/archived_%f %p'\" >> copied/postgresql.auto.conf; \
             echo \"recovery_target_name = here\" >> copied/postgresql.auto.conf; \
             echo \"recovery_target_action = promote\" >> copied/postgresql.auto.conf; touch copied/recovery.signal; \
             cp data/postmaster.pid copied/ && mv data replaced && mv copied data"
        );
        in_place(&second, &first, &recover).await;
        second.crash().unwrap();
        second.ready().await.unwrap();
        let w = connect(&second, "postgres").await;
        while count(&w, "SELECT pg_is_in_recovery()::int::int8").await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(count(&w, "SELECT sum(hashtext(a::text)) FROM a").await, rows);
        let mut t = open(&second, "postgres", settings()).await;
        for round in 0..2 {
            assert_equal(&mut t, "kept").await;
            for (what, _) in TABLES {
                let done = refresh(&mut t, what).await;
                assert_ne!(done.last().unwrap().report.action.name(), "REINITIALIZE", "{round}: {done:?}");
                assert_equal(&mut t, what).await;
            }
            run(&w, CHANGE).await;
        }
        second.stop();
        first.stop();
    });
}

/// Runs a script in the directory of a server, as the server's user. In the script, `{}` stands for the
/// directory of another server.
async fn in_place(server: &Server, other: &Server, script: &str) {
    let file = server.directory().join("script.sh");
    let script = script.replace("{}", &other.directory().display().to_string());
    std::fs::write(&file, format!("set -e; cd {}; {script}", server.directory().display())).unwrap();
    let through = format!("COPY (SELECT) TO PROGRAM 'sh {}'", file.display());
    run(&connect(server, "postgres").await, &through).await;
}

/// Runs a program as the owner of `directory`, the user of the servers. An error contains the program's
/// output.
fn as_owner_of(directory: &Path, program: std::path::PathBuf, args: &[&str]) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let of = std::fs::metadata(directory).unwrap();
    let log = std::fs::File::create(directory.join("tool.log")).unwrap();
    let mut command = Command::new(&program);
    command.args(args).current_dir(directory).uid(of.uid()).gid(of.gid());
    let status = command.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap();
    let said = || std::fs::read_to_string(directory.join("tool.log")).unwrap();
    if status.success() { Ok(()) } else { Err(format!("{} {args:?}: {}", program.display(), said())) }
}

/// Whether an upgrade failed because only the old server has a minor release of November 2026 or later. Such
/// a release stores a version of each column in `attoptions`, and writes this option into a dump for
/// `pg_upgrade`. Older releases reject the option.
fn lacks_versions_of_columns(said: &str) -> bool {
    let log = said.lines().find(|l| l.starts_with("Consult the last few lines of"));
    let log = log.and_then(|l| l.split('"').nth(1)).map(|path| std::fs::read_to_string(path).unwrap());
    log.is_some_and(|log| log.contains(r#"unrecognized parameter "pg_attver""#))
}

/// Upgrades the tests' tables to a newer version of PostgreSQL. The new system has another identifier and
/// other transaction numbers. An error contains the reason for which PostgreSQL itself cannot upgrade.
async fn upgraded(old: &Path, new: &Path) -> Result<(), &'static str> {
    let server = start(old, "upgrade").await;
    let (dir, config) = (server.directory().to_owned(), server.config("postgres"));
    drop(set_up(&server, "postgres").await);
    run(&connect(&server, "postgres").await, CHANGE).await;
    server.keep().unwrap();
    let at = |name: &str| dir.join(name).display().to_string();
    let (before, after, here) = (at("data"), at("data2"), dir.display().to_string());
    as_owner_of(&dir, old.join("pg_ctl"), &["-D", &before, "-m", "fast", "-w", "stop"]).unwrap();
    let mut init =
        vec!["-D", &after, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
    if old != new {
        // From version 18 on, checksums are the default.
        init.push("--no-data-checksums");
    }
    as_owner_of(&dir, new.join("initdb"), &init).unwrap();
    let (old_bin, new_bin) = (old.display().to_string(), new.display().to_string());
    let upgrade =
        ["-b", &old_bin, "-B", &new_bin, "-d", &before, "-D", &after, "-U", "postgres", "-s", &here];
    if let Err(said) = as_owner_of(&dir, new.join("pg_upgrade"), &upgrade) {
        assert!(lacks_versions_of_columns(&said), "{said}");
        std::fs::remove_dir_all(&dir).unwrap();
        return Err("the new server is of an older minor release");
    }
    let options = format!("-k {here} -c listen_addresses= -c fsync=off");
    let start = ["-D", &after, "-o", &options, "-l", &at("log2"), "-w", "start"];
    as_owner_of(&dir, new.join("pg_ctl"), &start).unwrap();
    let w = Session::connect(&config).await.unwrap();
    run(&w, CHANGE).await;
    let t = Trickle::open(Session::connect(&config).await.unwrap(), settings()).await.unwrap();
    let mut t = Driver::of(t);
    rebuilt_and_right(&mut t, &w, "").await;
    drop((t, w));
    as_owner_of(&dir, new.join("pg_ctl"), &["-D", &after, "-m", "immediate", "-w", "stop"]).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    Ok(())
}

#[test]
fn a_cluster_that_is_upgraded_is_rebuilt() {
    each_version(async |binaries| {
        if binaries.join("pg_upgrade").exists() {
            upgraded(binaries, binaries).await.unwrap();
        }
    });
}

#[test]
fn a_cluster_that_is_upgraded_to_another_version_is_rebuilt() {
    let found = trickle_client::throwaway::find().unwrap();
    let (Some((_, old)), Some((major, new))) = (found.first_key_value(), found.last_key_value()) else {
        return;
    };
    if old == new || *major < 18 || !new.join("pg_upgrade").exists() {
        return;
    }
    crate::support::private::block_on(async {
        if let Err(reason) = upgraded(old, new).await {
            println!("not upgraded: {reason}");
        }
    });
}
