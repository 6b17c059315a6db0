//! The shape of the workspace: mistakes that cargo ignores in silence, and crates that the core must never
//! depend on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the names in a directory, sorted; none if there is no such directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A virtual workspace ignores top-level tests/ and benches/: a file that no member declares is never
/// compiled.
#[test]
fn every_test_and_bench_is_declared_by_a_member() {
    let root = root();
    let manifests: String = names(&root.join("crates"))
        .iter()
        .map(|c| fs::read_to_string(root.join("crates").join(c).join("Cargo.toml")).unwrap())
        .collect();
    let mut undeclared = Vec::new();
    for dir in ["tests", "benches"] {
        for name in names(&root.join(dir)) {
            let path = root.join(dir).join(&name);
            let target = match () {
                () if name.ends_with(".rs") => format!("{dir}/{name}"),
                () if path.join("main.rs").exists() => format!("{dir}/{name}/main.rs"),
                () => continue,
            };
            if !manifests.contains(&format!("path = \"../../{target}\"")) {
                undeclared.push(target);
            }
        }
    }
    assert!(undeclared.is_empty(), "no member's Cargo.toml declares {undeclared:?} with its path");
}

/// The fuzz targets are declared as well; their crate stands outside the workspace.
#[test]
fn every_fuzz_target_is_declared() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for name in names(&root().join("fuzz/fuzz_targets")) {
        assert!(
            manifest.contains(&format!("path = \"fuzz_targets/{name}\"")),
            "fuzz/Cargo.toml lacks {name}"
        );
    }
}

/// Each test that tests/README.md names exists.
#[test]
fn every_test_that_the_list_names_exists() {
    let tests = root().join("tests");
    let list = fs::read_to_string(tests.join("README.md")).unwrap();
    let rows = list.lines().filter(|l| l.starts_with('|'));
    let (mut missing, mut named) = (Vec::new(), 0);
    for test in rows.flat_map(|row| row.split('`').skip(1).step_by(2)) {
        let (file, function) = test.split_once("::").map_or((test, None), |(f, t)| (f, Some(t)));
        let text = fs::read_to_string(tests.join(file)).unwrap_or_default();
        let is_case = file.ends_with(".case") && !text.is_empty();
        let starts = |f: &str| Some(text.split_once(&format!("\nfn {f}()"))?.0);
        // A test that needs the extension has another attribute between `#[test]` and the function.
        let marks = |f| starts(f).map(|before| before.lines().rev().take_while(|l| l.starts_with("#[")));
        let is_test = function.and_then(marks).is_some_and(|mut marks| marks.any(|m| m == "#[test]"));
        if !is_case && !is_test {
            missing.push(test);
        }
        named += 1;
    }
    assert!(missing.is_empty(), "tests/README.md names {missing:?}");
    assert!(named > 100, "only {named} tests were found in tests/README.md");
}

/// Returns the names and versions of a crate and of all crates that it is built from.
fn crates(of: &str, features: &str) -> BTreeSet<String> {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "-p", of, "-e", "normal", features, "--prefix", "none", "--format", "{p}"])
        .args(["--manifest-path", "Cargo.toml"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let tree = String::from_utf8(out.stdout).unwrap();
    assert!(tree.contains("sqlparser v"), "not a dependency tree: {tree}");
    let two = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    tree.lines().map(two).collect()
}

/// An application that depends on the library builds all of these crates.
#[test]
fn the_client_library_is_built_from_at_most_110_crates() {
    let crates = crates("trickle-client", "--no-default-features");
    assert!(crates.len() <= 110, "{} crates: {crates:#?}", crates.len());
}

/// The core decides and has no effects: no I/O, no runtime, no database.
#[test]
fn the_core_depends_on_no_io() {
    let crates = crates("trickle-core", "--all-features");
    let io = [
        "tokio",
        "postgres",
        "pgrx",
        "mio",
        "hyper",
        "async",
        "futures",
        "socket2",
        "rustls",
        "native-tls",
        "sqlx",
    ];
    let found: Vec<&String> = crates.iter().filter(|c| io.iter().any(|i| c.starts_with(i))).collect();
    assert!(found.is_empty(), "trickle-core depends on {found:?}");
}
