//! Ring 2: the case files. `TRICKLE_BLESS=1` rewrites their snapshots, `TRICKLE_CASE=part of a name` runs some.
//!
//! What it alone can catch: an evaluator that agrees with the rules and not with SQL, for each case says which rows
//! must come out; and a plan or a statement that changed though no result did.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use std::path::{Path, PathBuf};
use trickle_core::testing::Case;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases")
}

/// All case files, sorted.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for area in std::fs::read_dir(directory()).unwrap() {
        let area = area.unwrap().path();
        files.extend(std::fs::read_dir(area).unwrap().map(|f| f.unwrap().path()));
    }
    files.retain(|f| f.extension().is_some_and(|e| e == "case"));
    files.sort();
    files
}

#[test]
fn every_case_holds() {
    let only = std::env::var("TRICKLE_CASE").unwrap_or_default();
    let bless = std::env::var_os("TRICKLE_BLESS").is_some();
    let mut failures = Vec::new();
    let files: Vec<PathBuf> = files().into_iter().filter(|f| f.to_string_lossy().contains(&only)).collect();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let result = Case::parse(&text).and_then(|case| {
            let found = case.run()?;
            let refused = |m: &std::collections::BTreeMap<String, String>| {
                ["verdict", "error"].map(|name| m.contains_key(name))
            };
            match case.stale(&found) {
                None => Ok(()),
                // What kind of outcome a case has is said by who wrote it, never by the run.
                Some(_) if bless && refused(&case.snapshots) == refused(&found) => {
                    std::fs::write(file, Case::with_snapshots(&text, &found)).unwrap();
                    Ok(())
                }
                Some(difference) => Err(difference),
            }
        });
        if let Err(e) = result {
            failures.push(format!("{}\n{e}", file.strip_prefix(directory()).unwrap().display()));
        }
    }
    println!("{} cases", files.len());
    assert!(failures.is_empty(), "{} of {} cases:\n\n{}", failures.len(), files.len(), failures.join("\n\n"));
    assert!(!only.is_empty() || files.len() >= 60, "only {} case files were found", files.len());
}
