//! The shape of the workspace. The tests catch mistakes that cargo ignores in silence, and crates that the
//! core must not depend on. The tests also check the layers of the core's modules and the length of files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the sorted names in a directory, or no names if the directory does not exist.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Checks that a member declares each test and bench. A virtual workspace ignores top-level tests/ and
/// benches/, so cargo never compiles a file that no member declares.
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

/// Checks that the fuzz targets are declared as well. Their crate is outside of the workspace.
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

/// Counts the crates of the client library, since an application that depends on the library builds all of
/// them.
#[test]
fn the_client_library_is_built_from_at_most_110_crates() {
    let crates = crates("trickle-client", "--no-default-features");
    assert!(crates.len() <= 110, "{} crates: {crates:#?}", crates.len());
}

/// The core makes decisions and has no effects: no I/O, no runtime, no database.
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

/// Returns the source files of a directory in order, as paths under `root`, without files of tests.
fn sources(root: &Path, dir: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(&root.join(dir)) {
        let path = format!("{dir}/{name}");
        match () {
            () if root.join(&path).is_dir() && name != "tests" => found.extend(sources(root, &path)),
            () if name.ends_with(".rs") && name != "tests.rs" => found.push(path),
            () => {}
        }
    }
    found
}

/// The files that may have more than 500 lines, each with its reason. A file that becomes short enough leaves
/// the list.
const LONG_FILES: &[(&str, &str)] = &[];

/// Checks the length of files, since a longer file has several subjects.
#[test]
fn source_files_have_at_most_500_lines() {
    let root = root();
    let dirs: Vec<String> = names(&root.join("crates")).iter().map(|c| format!("crates/{c}/src")).collect();
    let files: Vec<String> = dirs.iter().flat_map(|dir| sources(&root, dir)).collect();
    assert!(files.len() > 300, "only {} source files were found", files.len());
    let lines = |file: &str| fs::read_to_string(root.join(file)).unwrap().lines().count();
    let listed = |file: &str| LONG_FILES.iter().any(|(long, _)| *long == file);
    let long: Vec<String> = files
        .iter()
        .filter(|file| !listed(file) && lines(file) > 500)
        .map(|file| format!("{file}: {}", lines(file)))
        .collect();
    assert!(long.is_empty(), "more than 500 lines: {long:#?}");
    let cured: Vec<_> = LONG_FILES.iter().filter(|(file, _)| lines(file) <= 500).collect();
    assert!(cured.is_empty(), "no longer too long, so to be taken off the list: {cured:?}");
}

/// Returns the text with blanks in place of comments, characters, and the contents of strings. The text keeps
/// its lines.
fn without_texts(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|r| (r.len() - r.trim_start_matches('#').len(), r));
        let in_word = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = match raw {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            Some((n, r)) if !in_word && r[n..].starts_with('"') => {
                let end = format!("\"{}", "#".repeat(n));
                n + 2 + r[n + 1..].find(&end).unwrap() + end.len()
            }
            _ if c == '"' => {
                let mut escaped = false;
                let end = rest[1..].find(|c: char| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                end.unwrap() + 2
            }
            _ if rest.starts_with("'\\") => rest[3..].find('\'').unwrap() + 4,
            _ if c == '\'' && rest.chars().nth(2) == Some('\'') => {
                rest.chars().take(3).map(char::len_utf8).sum()
            }
            _ => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
        };
        out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[length..];
    }
    out
}

/// Returns the length of the text in braces with which `text` begins.
fn braced(text: &str) -> usize {
    let mut depth = 0;
    let end = text.find(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    });
    end.unwrap() + 1
}

/// Replaces the modules of tests in `code` by blanks. Returns the names of those modules that have files of
/// their own.
fn without_tests(code: &mut String) -> Vec<String> {
    const TEST: &str = "#[cfg(test)]\nmod ";
    let mut files = Vec::new();
    while let Some(at) = code.find(TEST) {
        let name = at + TEST.len();
        let end = name + code[name..].find([';', '{']).unwrap();
        let (end, file) = match code[end..].starts_with(';') {
            true => (end, Some(code[name..end].trim().to_owned())),
            false => (end + braced(&code[end..]), None),
        };
        files.extend(file);
        let blank: String = code[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        code.replace_range(at..end, &blank);
    }
    files
}

/// Returns the modules that `code` names behind `crate::`, each with its position.
fn named_modules(code: &str) -> Vec<(usize, &str)> {
    let word = |at: usize| {
        let name = code[at..].trim_start();
        let at = code.len() - name.len();
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        (at, &name[..end])
    };
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let at = at + prefix.len();
        if !code[at..].starts_with('{') {
            found.push(word(at));
            continue;
        }
        let mut depth = 0;
        for (i, c) in code[at..at + braced(&code[at..])].char_indices() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 1 && (c == '{' || c == ',') {
                found.extend(Some(word(at + i + 1)).filter(|(_, name)| !name.is_empty()));
            }
        }
    }
    found
}

/// A row of the table in ARCHITECTURE.md, for one module.
struct Layer {
    row: usize,
    ground: bool,
    /// The modules that this module uses. The value is true if the use closes the deliberate cycle.
    uses: BTreeMap<String, bool>,
}

/// Reads the table of the core's modules. The row of `testing` is left out, since `testing` may use all
/// modules.
fn layers() -> BTreeMap<String, Layer> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = text.split_once("| module | what it is | may use |\n|---|---|---|\n").unwrap().1;
    let mut layers = BTreeMap::new();
    for (row, line) in table.lines().take_while(|line| line.starts_with('|')).enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [modules, _, uses] = cells[..] else { panic!("not three cells: {line}") };
        let (ground, uses) = match uses.strip_prefix("ground") {
            Some(uses) => (true, uses.trim_start_matches([':', ' '])),
            None => (false, uses.trim_start_matches('–')),
        };
        let uses = uses.split(", ").filter(|name| !name.is_empty());
        let uses: BTreeMap<String, bool> =
            uses.map(|name| (name.trim_end_matches('↓').to_owned(), name.ends_with('↓'))).collect();
        for module in modules.split('`').skip(1).step_by(2).filter(|module| *module != "testing") {
            layers.insert(module.to_owned(), Layer { row, ground, uses: uses.clone() });
        }
    }
    layers
}

/// A module may use only the modules that the table allows. Otherwise cycles arise, and the table is wrong.
#[test]
fn layers_use_only_what_architecture_allows() {
    let (root, layers) = (root(), layers());
    let src = "crates/trickle-core/src";
    let mut tests = BTreeSet::new();
    let mut codes = Vec::new();
    for file in sources(&root, src) {
        let mut code = without_texts(&fs::read_to_string(root.join(&file)).unwrap());
        let dir = file.trim_end_matches(".rs").trim_end_matches("/mod").to_owned();
        tests.extend(without_tests(&mut code).into_iter().map(|name| format!("{dir}/{name}.rs")));
        codes.push((file, code));
    }
    let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
    for (file, code) in codes.iter().filter(|(file, _)| !tests.contains(file)) {
        let module = file[src.len() + 1..].split(['/', '.']).next().unwrap();
        if matches!(module, "lib" | "testing") {
            continue;
        }
        let Some(layer) = layers.get(module) else {
            wrong.push(format!("{file}: the table has no module {module}"));
            continue;
        };
        for (at, name) in named_modules(code).into_iter().filter(|(_, name)| *name != module) {
            let on_the_ground = !layer.ground && layers.get(name).is_some_and(|other| other.ground);
            if !on_the_ground && !layer.uses.contains_key(name) {
                let line = code[..at].matches('\n').count() + 1;
                wrong.push(format!("{file}:{line}: {module} may not use {name}"));
            }
            used.insert((module.to_owned(), name.to_owned()));
        }
    }
    for (module, layer) in &layers {
        for (name, closes_a_cycle) in &layer.uses {
            let below = layers.get(name).is_none_or(|other| other.row >= layer.row);
            if below != *closes_a_cycle {
                wrong
                    .push(format!("the row of {module} names {name}, which does not stand as its mark says"));
            }
            if !used.contains(&(module.clone(), name.clone())) {
                wrong.push(format!("the row of {module} names {name}, which {module} does not use"));
            }
        }
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md differs from the sources: {wrong:#?}");
    assert!(used.len() > 100, "only {} uses were found", used.len());
}

/// The directories of the crates whose modules form layers, each with the modules in it that belong to
/// another crate.
const LAYERED: [(&str, &[&str]); 4] = [
    ("crates/trickle-engine/src", &[]),
    ("crates/trickle-client/src", &["bin"]),
    ("crates/trickle-client/src/bin/trickle", &[]),
    ("crates/trickle-pgrx/src", &[]),
];

/// The modules of a crate that form a cycle have to be read and changed as one. A module is named by its own
/// path, since a re-export in the root of the crate would hide a use.
#[test]
fn modules_of_engine_and_drivers_form_no_cycle() {
    let root = root();
    for (src, elsewhere) in LAYERED {
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in sources(&root, src) {
            let module = file[src.len() + 1..].split(['/', '.']).next().unwrap();
            if matches!(module, "lib" | "main") || elsewhere.contains(&module) || file.ends_with("/tests.rs")
            {
                continue;
            }
            let mut code = without_texts(&fs::read_to_string(root.join(&file)).unwrap());
            without_tests(&mut code);
            let named = named_modules(&code).into_iter().map(|(_, name)| name.to_owned());
            uses.entry(module.to_owned()).or_default().extend(named.filter(|name| name != module));
        }
        assert!(uses.len() > 5, "{src}: only {} modules were found", uses.len());
        let modules: BTreeSet<String> = uses.keys().cloned().collect();
        let hidden: BTreeSet<&String> =
            uses.values().flatten().filter(|name| !modules.contains(*name)).collect();
        assert!(hidden.is_empty(), "{src}: named through the root of the crate: {hidden:?}");
        // Modules that use no remaining module are taken away until none is left, or all others are in cycles
        // or above cycles.
        let mut left = modules.clone();
        while let Some(lowest) = left.iter().find(|m| uses[*m].is_disjoint(&left)).cloned() {
            left.remove(&lowest);
        }
        assert!(left.is_empty(), "{src}: these modules are in a cycle, or above one: {left:?}");
    }
}

/// The files of the core that contain the character 0 although they read no marks of `parse`, with the
/// reason.
const NUL: [(&str, &str); 3] = [
    ("sql/fragment.rs", "a label with this character is no name"),
    ("ident.rs", "names are written without it"),
    ("sql/print/literal.rs", "constants are written without it"),
];

/// ARCHITECTURE.md has a table for the engine and for each driver. A new maintainer does not find a module
/// that has no row.
#[test]
fn architecture_lists_the_modules_of_engine_and_drivers() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for name in ["trickle-engine", "trickle-client", "trickle-pgrx"] {
        let table = text.split_once(&format!("| `{name}/src` | what it is |\n|---|---|\n")).unwrap().1;
        let first =
            table.lines().take_while(|line| line.starts_with('|')).filter_map(|l| l.split('|').nth(1));
        let listed: BTreeSet<&str> = first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let files = names(&root().join("crates").join(name).join("src"));
        let modules = files.iter().map(|file| file.trim_end_matches(".rs"));
        let missing: Vec<&str> =
            modules.filter(|m| !matches!(*m, "lib" | "bin") && !listed.contains(m)).collect();
        assert!(missing.is_empty(), "the table of {name} in ARCHITECTURE.md has no row for {missing:?}");
    }
}

/// Returns the paths of all Rust files under a directory.
fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let of = |name: String| match dir.join(&name) {
        path if path.is_dir() => rust_files(&path),
        path if name.ends_with(".rs") => vec![path],
        _ => Vec::new(),
    };
    names(dir).into_iter().flat_map(of).collect()
}

/// Only `parse` knows the parser crate. `parse` puts marks into the crate's tree: identifiers that begin with
/// the character 0. No other module reads these marks.
#[test]
fn the_parser_crate_is_known_to_parse_alone() {
    let crates = root().join("crates");
    let core = crates.join("trickle-core/src");
    let (mut leaks, mut read, mut parsing) = (Vec::new(), 0, 0);
    for path in names(&crates).iter().flat_map(|c| rust_files(&crates.join(c).join("src"))) {
        let text = fs::read_to_string(&path).unwrap();
        read += 1;
        if path.starts_with(core.join("parse")) {
            parsing += usize::from(text.contains("sqlparser"));
            continue;
        }
        let own = NUL.iter().any(|(file, _)| path == core.join(file));
        let marks = path.starts_with(&core) && !own && text.contains("\\0");
        if text.contains("sqlparser") || marks {
            leaks.push(path);
        }
    }
    assert!(leaks.is_empty(), "these files know the parser crate or its marks: {leaks:#?}");
    assert!(read > 200 && parsing > 10, "{read} files were read, and {parsing} of parse know the crate");
}
