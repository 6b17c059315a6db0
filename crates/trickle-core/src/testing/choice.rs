//! A stream of small decisions, from a seed or from a fuzzer's bytes.

use xxhash_rust::xxh64::xxh64;

/// The origin of decisions. Equal input gives equal decisions.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Drawn from a hash of seed and counter.
    Seeded {
        /// The seed.
        seed: u64,
        /// Decisions made.
        drawn: u64,
    },
    /// Read from bytes, zero after the last.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// The place of the next byte.
        next: usize,
    },
}

impl Choice {
    /// Makes decisions from a seed.
    pub fn seeded(seed: u64) -> Choice {
        Choice::Seeded { seed, drawn: 0 }
    }
    /// Makes decisions from bytes.
    pub fn bytes(bytes: &[u8]) -> Choice {
        Choice::Bytes { bytes: bytes.to_vec(), next: 0 }
    }
    /// Draws a number in `0..n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let raw = match self {
            Choice::Seeded { seed, drawn } => {
                *drawn += 1;
                xxh64(&drawn.to_le_bytes(), *seed)
            }
            Choice::Bytes { bytes, next } => {
                let b = bytes.get(*next).copied().unwrap_or(0);
                *next += 1;
                u64::from(b)
            }
        };
        usize::try_from(raw % u64::try_from(n.max(1)).unwrap_or(1)).unwrap_or(0)
    }
    /// Draws whether an event occurs that occurs once in `n` draws.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n.saturating_sub(1)
    }
    /// Draws one of several; `None` where there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())) }
    }
}
