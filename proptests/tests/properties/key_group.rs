//! Rules 83 to 85 for any number of groups and subtasks.

use cofferdam::id::SubtaskIndex;
use cofferdam::state::hash::KeyHash;
use cofferdam::state::key_group::{
    KeyGroupAssigner, KeyGroupCount, default_max_parallelism, range_of, subtask_of,
};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_owners_of_keys_own_their_groups(
        (max, parallelism) in sizes(),
        keys in vec(any::<u64>(), 0..40),
    ) {
        let hashes: Vec<_> = keys.iter().map(KeyHash::of).collect();
        let low: Vec<_> = hashes.iter().map(|hash| hash.low()).collect();
        let mut found = vec![SubtaskIndex::new(u32::MAX); keys.len()];
        KeyGroupAssigner::new(max, parallelism).find_subtasks(&low, &mut found);
        for (hash, owner) in hashes.into_iter().zip(found) {
            let group = max.group_of(hash);
            prop_assert!(u32::from(group.get()) < max.get());
            prop_assert_eq!(owner, subtask_of(group, parallelism, max));
            let all = (0..parallelism).map(SubtaskIndex::new);
            let owners = all.filter(|subtask| range_of(*subtask, parallelism, max).contains(group));
            prop_assert_eq!(owners.collect::<Vec<_>>(), vec![owner]);
        }
    }

    #[test]
    fn subtasks_own_equally_many_groups_but_for_one((max, parallelism) in sizes()) {
        let sizes = (0..parallelism)
            .map(|subtask| range_of(SubtaskIndex::new(subtask), parallelism, max).group_count());
        let fair = (max.get() / parallelism) as usize;
        prop_assert!(sizes.clone().all(|size| size == fair || size == fair + 1));
        prop_assert_eq!(sizes.sum::<usize>(), max.get() as usize);
    }

    #[test]
    fn the_default_leaves_room_to_grow_by_half(parallelism in 1_u32..=21_845) {
        let max = default_max_parallelism(parallelism).get();
        prop_assert!(max.is_power_of_two() && max >= 128);
        prop_assert!(max >= parallelism + parallelism / 2);
    }
}

fn sizes() -> impl Strategy<Value = (KeyGroupCount, u32)> {
    // Powers of two are usual, and computed in a way of their own.
    let powers = (0..10).prop_map(|bits| 1_u32 << bits);
    prop_oneof![1_u32..=700, powers]
        .prop_flat_map(|max| (Just(KeyGroupCount::new(max).expect("within 1 to 32768")), 1..=max))
}
