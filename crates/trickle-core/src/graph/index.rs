//! The index that finds the node for an operator.

/// Numbers of nodes by the hash of their operator. The index is an open-addressing table that is at most half
/// full. The nodes store the hashes, so a copy of the index copies only numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    slots: Vec<u32>,
    used: usize,
}

const FREE: u32 = u32::MAX;

impl Index {
    /// Returns the number with the hash `hash` for which `is` returns true.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.probe(hash).map(|slot| self.slots[slot]).take_while(|id| *id != FREE).find(|id| is(*id))
    }

    /// Adds a number that the index does not contain yet. `hash_of` returns the hash for a number in the
    /// index.
    pub(super) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        if self.slots.len() < 2 * (self.used + 1) {
            let size = (2 * self.slots.len()).max(32);
            let old = std::mem::replace(&mut self.slots, vec![FREE; size]);
            for id in old.into_iter().filter(|id| *id != FREE) {
                self.place(hash_of(id), id);
            }
        }
        self.place(hash, id);
        self.used += 1;
    }

    fn place(&mut self, hash: u64, id: u32) {
        let free = self.probe(hash).find(|slot| self.slots[*slot] == FREE);
        if let Some(slot) = free {
            self.slots[slot] = id;
        }
    }

    /// Returns the slots in which a number with this hash may be. Each slot occurs once.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        // The number of slots is a power of two, or 0 before the first insertion.
        let size = self.slots.len();
        let mask = size.wrapping_sub(1);
        (0..size).map(move |i| ((hash as usize) & mask).wrapping_add(i) & mask)
    }
}
