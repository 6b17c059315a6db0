//! A hasher for the parts of a plan.
//!
//! Plans are short, but their parts are hashed very often, since every node that a rule builds is looked up
//! by its hash. Hashes are never stored outside a plan, and the text of the query bounds the size of its
//! plan. The hasher therefore need not resist collisions that an attacker chooses.

use std::hash::{BuildHasherDefault, Hasher};

/// A hasher that multiplies and rotates one word at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastHasher(u64);

/// The builder of [`FastHasher`]s.
pub(crate) type FastBuild = BuildHasherDefault<FastHasher>;
/// A map that uses [`FastHasher`].
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, FastBuild>;

impl FastHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            self.mix(rest.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b)));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.mix(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.mix(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }
    fn finish(&self) -> u64 {
        // The low bits choose the slot in a map. The high bits are better mixed, so they are moved to the low
        // positions.
        self.0 ^ (self.0 >> 32)
    }
}

/// Returns the hash of one value.
pub(crate) fn hash_of(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = FastHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}
