//! The seeds of the random tests.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The seeds of a random test. An environment variable sets their number, and the seeds then begin at 0.
/// Without the variable the run is short: one half of its seeds is the same each time, and the other half is
/// new. `TRICKLE_SEED` names a single seed.
pub(crate) struct Seeds {
    /// The environment variable that sets the number of seeds of a long run.
    pub(crate) setting: &'static str,
    /// The number of seeds of a short run.
    pub(crate) short: u64,
}

/// The range of new seeds. No long run reaches this range, and in it the generators have their usual limits.
const NEW: Range<u64> = 1 << 28..1 << 31;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Returns the first new seed of this run.
fn new() -> u64 {
    static BEGIN: OnceLock<u64> = OnceLock::new();
    *BEGIN.get_or_init(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        NEW.start + now.wrapping_mul(0x9E37_79B9) % (NEW.end - NEW.start)
    })
}

impl Seeds {
    /// Whether the run is a long run. Only the environment variable makes a run long.
    pub(crate) fn is_long(&self) -> bool {
        variable(self.setting).is_some() && variable("TRICKLE_SEED").is_none()
    }

    /// Returns the number of seeds, for assertions about counts that need many seeds. For a single seed the
    /// number is 0.
    pub(crate) fn count(&self) -> u64 {
        match variable("TRICKLE_SEED") {
            Some(_) => 0,
            None => variable(self.setting).unwrap_or(self.short),
        }
    }

    /// Returns one in `part` of the seeds. If `part` is 1, returns all seeds.
    pub(crate) fn one_in(&self, part: u64) -> Vec<u64> {
        let n = self.count() / part;
        match variable("TRICKLE_SEED") {
            Some(seed) => vec![seed],
            None if self.is_long() => (0..n).collect(),
            None => (0..n / 2).chain((n / 2..n).map(|i| new() + i)).collect(),
        }
    }
}
