//! The case files, for the rings that run them.

use std::path::{Path, PathBuf};

/// Returns all case files by name, sorted. If `TRICKLE_CASE` is set, returns only the files whose names
/// contain its value.
pub(crate) fn case_files() -> Vec<(String, PathBuf)> {
    let only = std::env::var("TRICKLE_CASE").unwrap_or_default();
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut files = Vec::new();
    for area in std::fs::read_dir(&all).unwrap() {
        for file in std::fs::read_dir(area.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            let name = file.strip_prefix(&all).unwrap().display().to_string();
            if file.extension().is_some_and(|e| e == "case") && name.contains(&only) {
                files.push((name, file));
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "no case is called \"{only}\"");
    assert!(!only.is_empty() || files.len() >= 60, "only {} case files were found", files.len());
    files
}
