//! The output of `trickle lint` for every file in tests/errors, as reviewed snapshots. `NAME.sql` is the
//! input, and `NAME.out` is the output with the exit code. `TRICKLE_BLESS=1` writes the snapshots again: read
//! the diff.
//!
//! The files in `ashamed` hold bad messages. When a message becomes good, its file leaves the directory.

use super::{files, run};
use std::fs;

#[test]
fn every_message_is_as_reviewed() {
    let mut wrong = Vec::new();
    for directory in ["", "ashamed/"] {
        let names = fs::read_dir(files().join(directory)).unwrap();
        let mut names: Vec<String> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.retain(|n| n != "schema.sql");
        assert!(names.iter().any(|n| n.ends_with(".sql")), "no example in {directory}");
        for name in names.iter().filter_map(|n| n.strip_suffix(".sql")) {
            let ran = run(&["lint", "--schema", "schema.sql", &format!("{directory}{name}.sql")]);
            let said = format!("{}exit {}\n", ran.out, ran.code);
            assert_eq!(ran.err, "", "{name}");
            let file = files().join(format!("{directory}{name}.out"));
            if std::env::var_os("TRICKLE_BLESS").is_some() {
                fs::write(&file, &said).unwrap();
            }
            let reviewed = fs::read_to_string(&file).unwrap_or_default();
            if said != reviewed {
                wrong.push(format!("{directory}{name}: {said}instead of: {reviewed}"));
            }
        }
        // A snapshot without its input file would never be compared again.
        let orphan =
            |n: &&String| n.strip_suffix(".out").is_some_and(|n| !names.contains(&format!("{n}.sql")));
        assert_eq!(names.iter().find(orphan), None);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
