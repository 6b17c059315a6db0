//! An operator, an aggregate and a function are one file each, and one line in a list. This test adds one of
//! each to a copy of the core. The tests in the added files then pass the laws.
//!
//! Only this test catches code outside these files that matches on every operator, aggregate or function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

/// One addition: its file, its folder in the core's sources, and its line in the list of `mod.rs`. The line
/// comes after the line that opens the list.
struct Addition {
    file: &'static str,
    folder: &'static str,
    list: &'static str,
    line: &'static str,
}

const ADDITIONS: [Addition; 3] = [
    Addition { file: "flip", folder: "rel", list: "\noperators! {\n", line: "    flip::Flip,\n" },
    Addition {
        file: "parity",
        folder: "agg",
        list: "\npub const FAMILIES: &[&dyn Family] = &[\n",
        line: "    &parity::Parity,\n",
    },
    Addition {
        file: "collatz",
        folder: "expr/functions",
        list: "\nconst FAMILIES: &[&[Row]] = &[\n",
        line: "    collatz::ROWS,\n",
    },
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Returns a manifest without the sections that name files outside `src`.
fn without_targets(manifest: &str) -> String {
    let sections = manifest.split("\n[[");
    sections.take(1).collect()
}

#[test]
#[ignore = "it builds a copy of the core, which takes minutes; `just additions` runs it"]
fn an_addition_is_one_file_and_one_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = root.join("target/additions");
    let _ = fs::remove_dir_all(&made);
    let core = made.join("crates/trickle-core");
    copy(&root.join("crates/trickle-core/src"), &core.join("src"));
    let manifest = fs::read_to_string(root.join("crates/trickle-core/Cargo.toml")).unwrap();
    fs::write(core.join("Cargo.toml"), without_targets(&manifest)).unwrap();
    fs::copy(root.join("crates/trickle-core/README.md"), core.join("README.md")).unwrap();
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = workspace.lines().map(|l| match l.split_once(" = ") {
        Some((name @ ("members" | "default-members"), _)) => format!("{name} = [\"crates/trickle-core\"]"),
        _ => l.to_owned(),
    });
    fs::write(made.join("Cargo.toml"), members.collect::<Vec<_>>().join("\n")).unwrap();
    fs::copy(root.join("Cargo.lock"), made.join("Cargo.lock")).unwrap();

    for Addition { file, folder, list, line } in ADDITIONS {
        let folder = core.join("src").join(folder);
        fs::copy(root.join(format!("tests/additions/{file}.rs")), folder.join(format!("{file}.rs"))).unwrap();
        let lists = fs::read_to_string(folder.join("mod.rs")).unwrap();
        let longer = lists.replacen(list, &format!("{list}{line}"), 1);
        assert_ne!(longer, lists, "no list opens with {list:?}");
        fs::write(folder.join("mod.rs"), longer.replacen("\nmod ", &format!("\nmod {file};\nmod "), 1))
            .unwrap();
    }
    let tested = Command::new(env!("CARGO"))
        .args(["test", "--offline", "-p", "trickle-core", "--features", "testing", "--lib", "additions"])
        .current_dir(&made)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&tested.stdout), String::from_utf8_lossy(&tested.stderr));
    assert!(tested.status.success() && said.contains("3 passed"), "{said}");
    fs::remove_dir_all(&made).unwrap();
}
