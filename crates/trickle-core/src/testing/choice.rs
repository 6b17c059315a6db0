//! A stream of small decisions, made from a seed or from a fuzzer's bytes.

use xxhash_rust::xxh64::xxh64;

/// The origin of random decisions. Equal origins give equal decisions.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Decisions drawn from a hash of seed and counter.
    Seeded {
        /// The seed.
        seed: u64,
        /// The number of decisions made so far.
        drawn: u64,
    },
    /// Decisions read from bytes. After the last byte, zeros are read.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// The position of the next byte.
        next: usize,
    },
}

impl Choice {
    /// Makes an origin from a seed.
    pub fn seeded(seed: u64) -> Choice {
        Choice::Seeded { seed, drawn: 0 }
    }
    /// Makes an origin from bytes.
    pub fn bytes(bytes: &[u8]) -> Choice {
        Choice::Bytes { bytes: bytes.to_vec(), next: 0 }
    }
    /// Draws a number in `0..n`. Returns 0 if `n` is 0.
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
    /// Draws true with a probability of 1 in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n.saturating_sub(1)
    }
    /// Draws one of several values. Returns `None` if there are no values.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())) }
    }
}
