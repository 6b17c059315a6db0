//! `trickle demo` with small data. Every stream table is updated by deltas and equals its query. The demo
//! prints every fact about each stream table.

use super::keys;
use crate::support::planted;
use serde_json::Value;
use std::process::Command;
use trickle_client::throwaway;

fn demo(binaries: &std::path::Path, args: &[&str]) -> (String, String) {
    let mut program = planted::program();
    program.args(["demo", "--rows", "20000", "--seconds", "3"]).args(args).env("TRICKLE_PG_BINS", binaries);
    let out = planted::output(&mut program);
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

#[test]
fn the_demo_shows_every_stream_table_and_verifies_it() {
    for binaries in throwaway::find().unwrap().into_values() {
        let (out, err) = demo(&binaries, &["--json"]);
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(keys(&shown), ["rows_written", "seconds", "tables"]);
        let tables = shown["tables"].as_array().unwrap();
        assert_eq!(tables.len(), 6);
        for t in tables {
            assert_eq!((&t["equal"], &t["mode"]), (&true.into(), &"differential".into()), "{t}");
            assert!(t["refreshes"].as_u64().unwrap() + t["full_refreshes"].as_u64().unwrap() > 0, "{t}");
            assert!(t["rows_changed"].as_u64().unwrap() > 0 && t["anew_ms"].as_f64().unwrap() > 0.0, "{t}");
            assert!(t["greatest_lag_ms"].as_f64() >= t["median_lag_ms"].as_f64(), "{t}");
        }
        for part in
            ["rows changed", "refresh", "compute anew", "lag", "customer_worth", "kill -9 of the refresher"]
        {
            assert!(err.contains(part), "{part} is not shown:\n{err}");
        }
    }
}

/// Every command that the demo prints works as printed. There are commands for exploring, and a command that
/// stops the server.
#[test]
fn a_demo_that_is_kept_can_be_explored_and_stopped() {
    let (_, binaries) = throwaway::find().unwrap().pop_last().unwrap();
    let (out, _) = demo(&binaries, &["--keep"]);
    let commands: Vec<&str> = out.lines().filter_map(|l| l.strip_prefix("  ")).collect();
    let (stop, explore) = commands.split_last().unwrap();
    assert!(explore.len() > 3 && stop.contains("rm -r"), "{out}");
    for command in explore.iter().filter(|c| !c.ends_with(" run")) {
        let ran = Command::new("sh").args(["-c", command]).output().unwrap();
        assert!(ran.status.success() && !ran.stdout.is_empty(), "{command}: {ran:?}");
    }
    assert!(Command::new("sh").args(["-c", stop]).status().unwrap().success());
    let dir = stop.rsplit(' ').next().unwrap();
    assert!(!std::path::Path::new(dir).exists(), "{dir} is left");
}
