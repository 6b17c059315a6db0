//! Ring 2: the case files. `TRICKLE_BLESS=1` rewrites their snapshots. `TRICKLE_CASE=part of a name` runs
//! only the case files with that part in their names. `TRICKLE_SQL=directory` writes the SQL of each case to
//! that directory.
//!
//! Each case states the rows of its results. So only this ring catches an evaluator that agrees with the
//! rules but not with SQL. Only this ring also catches a plan or a statement that changed although no result
//! changed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "case_files/mod.rs"]
mod case_files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use trickle_core::testing::Case;

/// Runs a case. Returns an error that describes the deviation of the case, if any.
fn holds(name: &str, file: &Path, bless: bool, written: Option<&Path>) -> Result<(), String> {
    let text = std::fs::read_to_string(file).unwrap();
    let case = Case::parse(&text)?;
    let found = case.run()?;
    if let (Some(directory), Some(sql)) = (written, found.get("sql")) {
        let file = directory.join(name.replace('/', "-")).with_extension("sql");
        std::fs::write(file, format!("{}\n", sql.trim_end())).unwrap();
    }
    let found = case.pinned(found);
    let refused = |m: &BTreeMap<String, String>| ["verdict", "error"].map(|name| m.contains_key(name));
    match case.stale(&found) {
        None => Ok(()),
        // The author of a case decides which kind of outcome the case has. A run never changes that kind.
        Some(_) if bless && refused(&case.snapshots) == refused(&found) => {
            std::fs::write(file, Case::with_snapshots(&text, &found)).unwrap();
            Ok(())
        }
        Some(difference) => Err(difference),
    }
}

#[test]
fn every_case_holds() {
    let bless = std::env::var_os("TRICKLE_BLESS").is_some();
    let written = std::env::var_os("TRICKLE_SQL").map(PathBuf::from);
    let files = case_files::case_files();
    let hold = |(name, file): &(String, PathBuf)| {
        holds(name, file, bless, written.as_deref()).err().map(|e| format!("{name}\n{e}"))
    };
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let failures: Vec<String> = std::thread::scope(|scope| {
        let (files, hold) = (&files, &hold);
        let each = |i| scope.spawn(move || files.iter().skip(i).step_by(workers).filter_map(hold).collect());
        let running: Vec<_> = (0..workers).map(each).collect();
        running.into_iter().flat_map(|one: ScopedJoinHandle<'_, Vec<String>>| one.join().unwrap()).collect()
    });
    println!("{} cases", files.len());
    assert!(failures.is_empty(), "{} of {} cases:\n\n{}", failures.len(), files.len(), failures.join("\n\n"));
}
