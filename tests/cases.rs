//! Ring 2: the case files. `TRICKLE_BLESS=1` rewrites their snapshots, `TRICKLE_CASE=part of a name` runs
//! some, `TRICKLE_SQL=directory` writes the SQL of each there.
//!
//! What it alone can catch: an evaluator that agrees with the rules and not with SQL, for each case says which rows
//! must come out; and a plan or a statement that changed though no result did.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "case_files/mod.rs"]
mod case_files;

use trickle_core::testing::Case;

#[test]
fn every_case_holds() {
    let bless = std::env::var_os("TRICKLE_BLESS").is_some();
    let written = std::env::var_os("TRICKLE_SQL").map(std::path::PathBuf::from);
    let mut failures = Vec::new();
    let files = case_files::case_files();
    for (name, file) in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let result = Case::parse(&text).and_then(|case| {
            let found = case.run()?;
            if let (Some(directory), Some(sql)) = (&written, found.get("sql")) {
                let file = directory.join(name.replace('/', "-")).with_extension("sql");
                std::fs::write(file, format!("{}\n", sql.trim_end())).unwrap();
            }
            let found = case.pinned(found);
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
            failures.push(format!("{name}\n{e}"));
        }
    }
    println!("{} cases", files.len());
    assert!(failures.is_empty(), "{} of {} cases:\n\n{}", failures.len(), files.len(), failures.join("\n\n"));
}
