//! The choice of the next refresh, if several owners share the refreshers of a database.
//!
//! A refresh may last for ever, since it runs code of its owner. If there are several owners, each has at
//! most half of the refreshers (at least one), even while no other owner waits. When another owner's refresh
//! becomes due, there is a free refresher, or two other owners have running refreshers.

use std::collections::BTreeMap;

/// Returns how many of `most` refreshers each of `owners` owners may have. The number is at least one.
pub fn share(owners: usize, most: usize) -> usize {
    if owners > 1 { (most / 2).max(1) } else { most }
}

/// Returns the position of the next refresh in the queue: the first whose owner may have one more refresher.
/// `queue` holds the owners of the waiting refreshes. `at_work` counts the running refreshers of each owner.
pub fn next(
    queue: impl IntoIterator<Item = u32>,
    at_work: &BTreeMap<u32, usize>,
    owners: usize,
    most: usize,
) -> Option<usize> {
    if at_work.values().sum::<usize>() >= most {
        return None;
    }
    let share = share(owners, most);
    queue.into_iter().position(|owner| at_work.get(&owner).copied().unwrap_or(0) < share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_owner_alone_has_all_refreshers_and_one_of_several_half() {
        assert_eq!((share(1, 4), share(2, 4), share(3, 5), share(2, 1), share(0, 4)), (4, 2, 2, 1, 4));
    }

    proptest! {
        /// No owner has more than a share, in whatever order owners request refreshes, and even if no refresh
        /// ends. If there are two owners, each owner has a refresher once it has requested a refresh.
        #[test]
        fn no_owner_keeps_another_waiting(asked in prop::collection::vec(0u32..2, 0..20), most in 2usize..9) {
            let (mut queue, mut at_work) = (Vec::new(), BTreeMap::new());
            for owner in &asked {
                queue.push(*owner);
                while let Some(i) = next(queue.iter().copied(), &at_work, 2, most) {
                    *at_work.entry(queue.remove(i)).or_insert(0) += 1;
                }
                prop_assert!(at_work.values().all(|n| *n <= most / 2));
            }
            prop_assert!(asked.iter().all(|owner| at_work.contains_key(owner)));
            prop_assert!(at_work.values().sum::<usize>() <= most);
        }
    }
}
