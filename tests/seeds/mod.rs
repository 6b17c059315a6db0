//! Which seeds the random tests draw from.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The seeds of a random test: as many as an environment variable says, from 0 on; without it a short run, of
/// which one half is the same each time and the other is new. `TRICKLE_SEED` names a single one.
pub(crate) struct Seeds {
    /// The variable of a long run.
    pub(crate) setting: &'static str,
    /// How many a short run has.
    pub(crate) short: u64,
}

/// New seeds stand in this range, which no long run reaches and in which the generators' limits are the usual
/// ones.
const NEW: Range<u64> = 1 << 28..1 << 31;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Where this run's new seeds begin.
fn new() -> u64 {
    static BEGIN: OnceLock<u64> = OnceLock::new();
    *BEGIN.get_or_init(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        NEW.start + now.wrapping_mul(0x9E37_79B9) % (NEW.end - NEW.start)
    })
}

impl Seeds {
    /// Whether the run is a long one, which is asked for by name.
    pub(crate) fn is_long(&self) -> bool {
        variable(self.setting).is_some() && variable("TRICKLE_SEED").is_none()
    }

    /// How many there are of a run that is large enough to count in; 0 for a single one.
    pub(crate) fn count(&self) -> u64 {
        match variable("TRICKLE_SEED") {
            Some(_) => 0,
            None => variable(self.setting).unwrap_or(self.short),
        }
    }

    /// All of them, or a part of one in so many.
    pub(crate) fn one_in(&self, part: u64) -> Vec<u64> {
        let n = self.count() / part;
        match variable("TRICKLE_SEED") {
            Some(seed) => vec![seed],
            None if self.is_long() => (0..n).collect(),
            None => (0..n / 2).chain((n / 2..n).map(|i| new() + i)).collect(),
        }
    }
}
