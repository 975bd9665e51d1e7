//! Tests of the order in which prefixes are forgotten.

use mlx_ffi::{Array, Device, use_device};
use proptest::prelude::*;

use super::*;
use crate::cache::spec::{Growth, KvSpec, StateSpec};
use crate::cache::{State, Storage};

const SPEC: StateSpec =
    StateSpec::Kv(KvSpec { growth: Growth::Growing, n_kv_heads: 1, key_dim: 2, value_dim: 2 });
/// Bytes of a block: keys and values of two floats each.
const OF_BLOCK: u64 = (BLOCK * 16) as u64;

/// The ids of blocks that are called so.
fn ids(names: &[u32]) -> Vec<u32> {
    names.iter().flat_map(|name| (0..BLOCK as u32).map(move |at| name * 100 + at)).collect()
}

/// Caches of so many rows that hold so many positions.
fn filled(rows: usize, count: usize) -> Caches {
    let mut caches = Caches::new(&[SPEC], Storage::Plain, rows, count + 1);
    let values = vec![1.0; 2 * rows * count];
    let new = Array::from_f32(&values, &[rows as i32, 1, count as i32, 2]).expect("keys");
    match &mut caches.layers_mut()[0] {
        State::Kv(cache) => drop(cache.update(&new, &new).expect("an update")),
        other => panic!("{other:?}"),
    }
    caches.advance(count as i32);
    caches
}

/// Keeps the prefix of blocks with these names.
fn keep(cache: &mut PrefixCache, names: &[u32]) {
    keep_all(cache, &[names]);
}

/// Keeps the prefixes of as many blocks of rows.
fn keep_all(cache: &mut PrefixCache, names: &[&[u32]]) {
    let held = ids(names[0]).len();
    let row = |(row, names): (usize, &&[u32])| Keeping { ids: ids(names).into(), held, row };
    let rows: Vec<_> = names.iter().enumerate().map(row).collect();
    cache.keep(&rows, &filled(names.len(), held), Moment::Prefill).expect("kept");
}

/// How many of these blocks a request finds.
fn found(cache: &mut PrefixCache, names: &[u32]) -> usize {
    let mut caches = Caches::new(&[SPEC], Storage::Plain, 1, 1000);
    let ids = [&ids(names)[..], &[7]].concat();
    let usable = Usable { grid: 1, least: 0 };
    cache.fill(&mut caches, &ids, usable, |_| true).expect("filled");
    caches.offsets()[0] as usize / BLOCK
}

/// The ends of prefixes, looked for among all.
fn ends(cache: &PrefixCache) -> BTreeSet<(u64, u64)> {
    let ends = cache.nodes.iter().filter(|(_, node)| node.children.is_empty());
    ends.map(|(key, node)| (node.last_used, *key)).collect()
}

#[test]
fn the_end_that_was_not_used_for_the_longest_time_is_forgotten() {
    use_device(Device::Cpu).expect("a CPU");
    let mut cache = PrefixCache::new(4 * OF_BLOCK, Box::new(Ok));
    keep(&mut cache, &[1]);
    keep(&mut cache, &[1, 2]);
    keep(&mut cache, &[1, 3]);
    keep(&mut cache, &[4]);
    assert_eq!(found(&mut cache, &[1, 2]), 2);
    // For want of room 1, 3 goes: 4 and 1, 2 were used since.
    keep(&mut cache, &[5]);
    assert_eq!(cache.bytes(), 4 * OF_BLOCK);
    for (names, count) in [(&[1, 3][..], 1), (&[4], 1), (&[1, 2], 2), (&[5], 1)] {
        assert_eq!(found(&mut cache, names), count, "{names:?}");
    }
    // A beginning goes behind what follows it.
    keep(&mut cache, &[6]);
    keep(&mut cache, &[7]);
    for (names, count) in [(&[4][..], 0), (&[1, 2], 1), (&[5], 1), (&[6], 1), (&[7], 1)] {
        assert_eq!(found(&mut cache, names), count, "{names:?}");
    }
}

#[test]
fn rows_of_a_batch_are_kept_with_what_they_have_in_common_once() {
    use_device(Device::Cpu).expect("a CPU");
    let mut cache = PrefixCache::new(100 * OF_BLOCK, Box::new(Ok));
    keep_all(&mut cache, &[&[1, 2, 3], &[1, 2, 4], &[1, 2, 3], &[5, 2, 3]]);
    assert_eq!(cache.bytes(), 7 * OF_BLOCK);
    for names in [&[1, 2, 3], &[1, 2, 4], &[5, 2, 3]] {
        assert_eq!(found(&mut cache, names), 3, "{names:?}");
    }
    keep_all(&mut cache, &[&[1, 2, 3, 6], &[7, 8, 9, 10]]);
    assert_eq!(cache.bytes(), 12 * OF_BLOCK);
    assert_eq!(&cache.ends, &ends(&cache));
}

#[test]
fn rows_that_displace_each_other_come_to_an_end() {
    use_device(Device::Cpu).expect("a CPU");
    let mut cache = PrefixCache::new(20 * OF_BLOCK, Box::new(Ok));
    let rows: [Vec<u32>; 3] = [1, 2, 3].map(|row| (0..18).map(|at| 100 * row + at).collect());
    keep_all(&mut cache, &rows.each_ref().map(|row| &row[..]));
    assert!(cache.bytes() <= 20 * OF_BLOCK);
    assert_eq!(&cache.ends, &ends(&cache));
    assert_eq!(rows.iter().filter(|row| found(&mut cache, row) >= 16).count(), 1);
}

proptest! {
    #[test]
    fn ends_are_known_whatever_is_kept_used_and_forgotten(
        turns in prop::collection::vec((0..3, prop::collection::vec(1..4_u32, 1..4)), 1..40),
        budget in 1..12_u64,
    ) {
        use_device(Device::Cpu).expect("a CPU");
        let mut cache = PrefixCache::new(budget * OF_BLOCK, Box::new(Ok));
        for (what, names) in turns {
            match what {
                0 => {
                    let reversed: Vec<u32> = names.iter().rev().copied().collect();
                    keep_all(&mut cache, &[&names, &reversed]);
                }
                1 => drop(found(&mut cache, &names)),
                _ => {
                    let first = ends(&cache).first().copied();
                    prop_assert_eq!(cache.evict(1), first.is_some());
                    prop_assert!(first.is_none_or(|(_, key)| !cache.nodes.contains_key(&key)));
                }
            }
            prop_assert_eq!(&cache.ends, &ends(&cache));
            prop_assert!(cache.bytes() <= budget * OF_BLOCK);
        }
    }
}
