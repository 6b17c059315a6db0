//! The size of the program. The size matters, since the program is copied to machines, into containers and
//! into wheels.

use std::path::Path;
use std::process::Command;

/// Returns the size of a program without its symbols, in bytes.
fn stripped(program: &Path) -> u64 {
    let copy = std::env::temp_dir().join(format!("trickle-stripped-{}", std::process::id()));
    let ran = Command::new("strip").arg("-o").arg(&copy).arg(program).status().unwrap();
    assert!(ran.success());
    let bytes = std::fs::metadata(&copy).unwrap().len();
    std::fs::remove_file(&copy).unwrap();
    bytes
}

/// The limit of the released program, in bytes.
const RELEASED: u64 = 25_000_000;

#[test]
#[ignore = "builds the program as it is released, which takes minutes: just size"]
fn the_released_program_has_25_megabytes_at_most() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "-p", "trickle-client", "--bin", "trickle"]).current_dir(&root);
    assert!(build.status().unwrap().success());
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let bytes = stripped(&root.join(target).join("release/trickle"));
    println!("the released program has {bytes} bytes");
    assert!(bytes <= RELEASED, "the released program has {bytes} bytes");
}
