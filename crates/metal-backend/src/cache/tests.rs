//! Rows that join, grow and leave, against what each must see.

use mlx_ffi::{Array, Dtype, Result, ops};
use proptest::prelude::*;

use super::buffer::{More, STEP};
use super::kv::{KvCache, View};
use super::slot::Slot;
use super::spec::{Growth, KvSpec, RecurrentSpec, StateSpec};
use super::*;

/// Keys `[1, 2, l, 32]` of a row's positions from `first` on: the value says row and position.
fn keys(row: usize, first: i32, l: i32) -> Array {
    let head: Vec<f32> = (first..first + l)
        .flat_map(|position| std::iter::repeat_n((row * 10_000) as f32 + position as f32, 32))
        .collect();
    Array::from_f32(&[head.clone(), head].concat(), &[1, 2, l, 32]).unwrap()
}

/// The positions that query `i` of each row sees, as the view's values and visibility say.
fn seen(view: &View, l: i32, i: i32) -> Vec<Vec<f32>> {
    let [b, heads, n, d] = view.keys.dims().unwrap();
    let values = view.keys.to_vec_f32().unwrap();
    let mask = view
        .visible
        .array(l, n)
        .unwrap()
        .map(|mask| ops::astype(&mask, Dtype::F32).unwrap().to_vec_f32().unwrap());
    (0..b)
        .map(|row| {
            let is_seen = |key: i32| match &mask {
                None => true,
                Some(mask) => {
                    let rows = mask.len() as i32 / (l * n);
                    mask[(((row % rows) * l + i) * n + key) as usize] > 0.0
                }
            };
            let value = |key: i32| values[(((row * heads + 1) * n + key) * d) as usize];
            (0..n).filter(|key| is_seen(*key)).map(value).collect()
        })
        .collect()
}

/// The values that the row with this number sees from `position`.
fn expected(row: usize, position: i32, window: Option<i32>) -> Vec<f32> {
    let first = window.map_or(0, |window| (position + 1 - window).max(0));
    (first..=position).map(|p| (row * 10_000) as f32 + p as f32).collect()
}

/// The positions that each row sees after a step that wrote `new` in place into what was reserved
/// for it, as kernels do that take the first position of each row and the window; `None` where
/// nothing can be reserved.
fn seen_in_place(cache: &mut KvCache, new: &Array, window: Option<i32>) -> Option<Vec<Vec<f32>>> {
    let slot = cache.reserve(new.dtype()).unwrap()?;
    let Slot { at, ref starts, .. } = slot;
    let write = |held: &Array| ops::slice_update_axis(held, new, 2, at, at + 1).unwrap();
    let (keys, values) = (write(slot.keys().unwrap()), write(slot.values().unwrap()));
    let [_, heads, n, d] = keys.dims().unwrap();
    let held = keys.to_vec_f32().unwrap();
    cache.fill(vec![keys, values], 1);
    let of_row = |(row, start): (i32, i32)| {
        let first = start.max(window.map_or(0, |window| at + 1 - window));
        (first..=at).map(|key| held[(((row * heads + 1) * n + key) * d) as usize]).collect()
    };
    Some((0..).zip(starts.iter().copied()).map(of_row).collect())
}

/// A layer of two heads of 32 values.
fn spec(growth: Growth) -> StateSpec {
    StateSpec::Kv(KvSpec { growth, n_kv_heads: 2, key_dim: 32, value_dim: 32 })
}

/// The keys and values of a layer.
fn kv(caches: &mut Caches, layer: usize) -> &mut KvCache {
    match &mut caches.layers_mut()[layer] {
        State::Kv(cache) => cache,
        _ => panic!("layer {layer} has keys and values"),
    }
}

#[test]
fn steps_in_place_take_the_room_that_is_there_and_no_more() {
    for (growth, room) in [(Growth::Growing, STEP - 5), (Growth::Sliding { window: 8 }, 10 - 5)] {
        let mut caches = Caches::new(&[spec(growth); 2], Storage::Plain, 1, 1000);
        let new = keys(0, 0, 5);
        for layer in 0..2 {
            kv(&mut caches, layer).update(&new, &new).unwrap();
        }
        caches.advance(5);
        let mut steps = 0;
        while caches.have_room() {
            for layer in 0..2 {
                let layer = kv(&mut caches, layer);
                let held = layer.arrays().first().map(|array| array.shape().to_vec());
                let room = layer.reserve(new.dtype()).unwrap().unwrap();
                assert_eq!(
                    (room.at, room.keys().ok().map(Array::shape)),
                    (5 + steps, held.as_deref())
                );
            }
            caches.fill_in_place(1);
            steps += 1;
        }
        assert_eq!((steps, caches.offsets()), (room, &[5 + room][..]), "{growth:?}");
        // The next position makes room first.
        let next = kv(&mut caches, 0).reserve(new.dtype()).unwrap().unwrap();
        assert!(next.at < next.keys().unwrap().shape()[2], "{next:?}");
    }
}

/// Buffers that hold what nobody may see.
fn unwritten(shape: &[i32], dtype: Dtype) -> Result<[Array; 2]> {
    let garbage = || {
        let nan = Array::scalar(f32::NAN, Dtype::F32)?;
        let all = ops::add(&ops::zeros(shape, Dtype::F32)?, &nan)?;
        // Codes are whole numbers.
        if dtype == Dtype::U32 { ops::view(&all, dtype) } else { ops::astype(&all, dtype) }
    };
    Ok([garbage()?, garbage()?])
}

/// Those of so many layers.
fn all_unwritten(shape: &[i32], dtype: Dtype, layers: usize) -> Result<Vec<[Array; 2]>> {
    (0..layers).map(|_| unwritten(shape, dtype)).collect()
}

#[derive(Clone, Debug)]
enum Op {
    /// One more position for each row.
    Step,
    /// One more position for each row, written in place.
    StepInPlace,
    /// One position and drafts of each row in one pass, of which each row, in turn, keeps so many.
    Draft(i32, Vec<i32>),
    /// A new row joins after prefills of these sizes, with so many slots behind it.
    Join(Vec<i32>, usize),
    /// The buffers are made longer.
    Lengthen,
    /// The rows are copied into other buffers, each without so many of its last positions, in turn;
    /// not where those see more.
    Copy(Vec<i32>),
    /// The row at this index, modulo the rows, leaves.
    Leave(usize),
    /// The row at this index, modulo the rows, leaves its slot vacant.
    Vacate(usize),
}

fn ops_of_a_batch() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => Just(Op::Step),
        6 => Just(Op::StepInPlace),
        3 => (1..6i32, prop::collection::vec(0..6i32, 1..5)).prop_map(|(drafts, kept)| Op::Draft(drafts, kept)),
        2 => (prop::collection::vec(1..40i32, 0..4), 0..3usize)
            .prop_map(|(chunks, spare)| Op::Join(chunks, spare)),
        1 => Just(Op::Lengthen),
        1 => prop::collection::vec(0..3i32, 1..4).prop_map(Op::Copy),
        1 => (0..8usize).prop_map(Op::Leave),
        1 => (0..8usize).prop_map(Op::Vacate),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_that_join_and_leave_see_their_own_positions_and_no_others(
        ops in ops_of_a_batch(),
        window in prop::option::of(1..30i32),
        packed in any::<bool>(),
    ) {
        let spec = spec(window.map_or(Growth::Growing, |window| Growth::Sliding { window }));
        // All values of a group are equal, so that packing changes none of them.
        let storage = if packed { Storage::packed(8, 32) } else { Storage::Plain };
        let mut batch: Option<Caches> = None;
        // The row in each slot.
        let mut rows: Vec<Option<usize>> = Vec::new();
        let mut next = 0;
        for op in ops {
            match op {
                Op::Step | Op::StepInPlace => {
                    let Some(batch) = &mut batch else { continue };
                    let offsets = batch.offsets().to_vec();
                    let new: Vec<Array> =
                        rows.iter().zip(&offsets).map(|(row, at)| keys(row.unwrap_or(99), *at, 1)).collect();
                    let new = ops::concatenate(&new.iter().collect::<Vec<_>>(), 0).unwrap();
                    let cache = kv(batch, 0);
                    let in_place = match op {
                        Op::StepInPlace => seen_in_place(cache, &new, window),
                        _ => None,
                    };
                    prop_assert!(in_place.is_none() || !packed);
                    let all_seen = match in_place {
                        Some(seen) => seen,
                        None => seen(&cache.update(&new, &new).unwrap(), 1, 0),
                    };
                    batch.advance(1);
                    for ((row, offset), seen) in rows.iter().zip(offsets).zip(all_seen) {
                        if let Some(row) = row {
                            prop_assert_eq!(seen, expected(*row, offset, window));
                        }
                    }
                }
                Op::Draft(drafts, kept) => {
                    let Some(batch) = &mut batch else { continue };
                    let offsets = batch.offsets().to_vec();
                    let new: Vec<Array> = rows
                        .iter()
                        .zip(&offsets)
                        .map(|(row, at)| keys(row.unwrap_or(99), *at, 1 + drafts))
                        .collect();
                    let new = ops::concatenate(&new.iter().collect::<Vec<_>>(), 0).unwrap();
                    let view = kv(batch, 0).update(&new, &new).unwrap();
                    batch.advance(1 + drafts);
                    for i in 0..=drafts {
                        let seen = seen(&view, 1 + drafts, i);
                        for ((row, offset), seen) in rows.iter().zip(&offsets).zip(seen) {
                            if let Some(row) = row {
                                prop_assert_eq!(seen, expected(*row, offset + i, window));
                            }
                        }
                    }
                    drop(view);
                    let counts: Vec<i32> = (0..rows.len())
                        .map(|row| drafts - kept[row % kept.len()].min(drafts))
                        .collect();
                    if drafts % 2 == 1 && batch.are_alike(&[]) {
                        let rows: Vec<(usize, i32)> = counts.iter().copied().enumerate().collect();
                        let more = More { slots: 0, positions: 70 };
                        batch.move_into(&rows, Vec::new(), more, all_unwritten, |_| Ok(())).unwrap();
                    } else {
                        batch.truncate(&counts).unwrap();
                    }
                    let ends = offsets.iter().zip(counts).map(|(at, count)| at + 1 + drafts - count);
                    prop_assert_eq!(batch.offsets(), &ends.collect::<Vec<_>>()[..]);
                }
                Op::Join(chunks, spare) => {
                    let mut caches = Caches::new(&[spec], storage, 1, 1000);
                    for l in chunks {
                        let first = caches.offsets()[0];
                        let new = keys(next, first, l);
                        let view = kv(&mut caches, 0).update(&new, &new).unwrap();
                        caches.advance(l);
                        for i in 0..l {
                            prop_assert_eq!(
                                &seen(&view, l, i)[0],
                                &expected(next, first + i, window)
                            );
                        }
                    }
                    let vacant = rows.iter().position(Option::is_none);
                    match (&mut batch, vacant) {
                        (Some(batch), Some(slot)) if batch.have_slots_for(&caches) => {
                            batch.place(caches, &[slot]).unwrap();
                            rows[slot] = Some(next);
                        }
                        (Some(batch), _) => {
                            if spare > 0 && batch.are_alike(std::slice::from_ref(&caches)) {
                                let more = More { slots: spare, positions: 70 };
                                // Vacant slots are given up.
                                let kept: Vec<(usize, i32)> = (0..rows.len())
                                    .filter(|at| rows[*at].is_some())
                                    .map(|at| (at, 0))
                                    .collect();
                                batch.move_into(&kept, vec![caches], more, all_unwritten, |_| Ok(())).unwrap();
                                rows.retain(Option::is_some);
                                rows.push(Some(next));
                                rows.extend((0..spare).map(|_| None));
                            } else {
                                batch.join(caches).unwrap();
                                rows.push(Some(next));
                            }
                        }
                        (None, _) => {
                            batch = Some(caches);
                            rows = vec![Some(next)];
                        }
                    }
                    next += 1;
                }
                Op::Lengthen => {
                    let Some(batch) = &mut batch else { continue };
                    if !batch.are_alike(&[]) {
                        continue;
                    }
                    let all: Vec<(usize, i32)> = (0..rows.len()).map(|row| (row, 0)).collect();
                    let more = More { slots: 0, positions: 70 };
                    batch.move_into(&all, Vec::new(), more, all_unwritten, |_| Ok(())).unwrap();
                    prop_assert!(batch.have_room());
                }
                Op::Copy(left_out) => {
                    let Some(held) = batch.as_mut().filter(|held| held.are_alike(&[]))
                    else {
                        continue;
                    };
                    // What earlier positions see in a window may be gone.
                    let most = |row: usize| match (window, rows[row]) {
                        (None, Some(_)) => held.offsets()[row],
                        _ => 0,
                    };
                    let all: Vec<(usize, i32)> = (0..rows.len())
                        .map(|row| (row, left_out[row % left_out.len()].min(most(row))))
                        .collect();
                    let ends = held.offsets().iter().zip(&all).map(|(at, (_, count))| at - count);
                    let ends: Vec<i32> = ends.collect();
                    *held = held.copies_by(&all, 3, Some(all_unwritten)).unwrap();
                    prop_assert_eq!(held.offsets(), &ends[..]);
                }
                Op::Leave(at) => {
                    let Some(mut all) = batch.take() else { continue };
                    let gone = at % rows.len();
                    // Vacant slots go as well.
                    let stay: Vec<usize> =
                        (0..rows.len()).filter(|at| *at != gone && rows[*at].is_some()).collect();
                    rows = stay.iter().map(|at| rows[*at]).collect();
                    if !rows.is_empty() {
                        all.keep(&stay).unwrap();
                        batch = Some(all);
                    }
                }
                Op::Vacate(at) => {
                    let Some(batch) = &mut batch else { continue };
                    let slot = at % rows.len();
                    batch.vacate(slot);
                    rows[slot] = None;
                }
            }
        }
    }

    #[test]
    fn a_bound_row_sees_the_first_and_the_last_positions(
        chunks in prop::collection::vec(1..12i32, 1..12),
        limit in 6..20i32,
    ) {
        let keep = 4;
        let spec = spec(Growth::Bounded { limit, keep });
        let mut caches = Caches::new(&[spec], Storage::Plain, 1, 1000);
        for l in chunks {
            let first = caches.offsets()[0];
            let new = keys(0, first, l);
            let view = kv(&mut caches, 0).update(&new, &new).unwrap();
            caches.advance(l);
            if l > 1 {
                continue;
            }
            let mut seen = seen(&view, 1, 0).remove(0);
            seen.sort_by(f32::total_cmp);
            let all: Vec<f32> = (0..=first).map(|p| p as f32).collect();
            if all.len() <= limit as usize {
                prop_assert_eq!(seen, all);
            } else {
                let last = &all[all.len() - (limit - keep) as usize..];
                prop_assert_eq!(&seen[keep as usize..], last);
                prop_assert_eq!(&seen[..keep as usize], &all[..keep as usize]);
            }
        }
    }
}

#[test]
fn a_context_length_bounds_what_would_grow_and_leaves_windows_alone() {
    let specs = |windows: &[Option<i32>], context_length| {
        let state = |window: &Option<i32>, bound| StateSpec::Kv(KvSpec::new(2, 32, *window, bound));
        let specs = StateSpec::of_layers(windows, context_length, state);
        let growth = |spec| match spec {
            StateSpec::Kv(kv) => kv.growth,
            _ => panic!("a layer with keys and values"),
        };
        specs.into_iter().map(growth).collect::<Vec<_>>()
    };
    let (growing, bounded) = (Growth::Growing, Growth::Bounded { limit: 10, keep: 4 });
    let sliding = |window| Growth::Sliding { window };
    assert_eq!(specs(&[None, Some(8)], None), [growing, sliding(8)]);
    assert_eq!(specs(&[None, Some(8), Some(12)], Some(10)), [bounded, sliding(8), sliding(12)]);
    assert_eq!(specs(&[Some(8), Some(12)], Some(10)), [sliding(8), bounded]);
    assert_eq!(specs(&[None], Some(1)), [Growth::Bounded { limit: 1, keep: 0 }]);
}

#[test]
fn a_bound_that_is_never_reached_lets_a_row_join() {
    let spec = [spec(Growth::Bounded { limit: 10, keep: 4 })];
    assert!(Caches::new(&spec, Storage::Plain, 1, 10).can_join());
    assert!(!Caches::new(&spec, Storage::Plain, 1, 11).can_join());
}

#[test]
fn the_buffers_of_a_window_stay_near_its_size() {
    let window = 20;
    let spec = spec(Growth::Sliding { window });
    let cost = spec.cost(Storage::Plain, 4);
    let mut caches = Caches::new(&[spec], Storage::Plain, 1, 1000);
    for (first, l) in [(0, 100)].into_iter().chain((100..400).map(|first| (first, 1))) {
        let new = keys(0, first, l);
        drop(kv(&mut caches, 0).update(&new, &new).unwrap());
        caches.advance(l);
        let held = caches.nbytes() / (2 * 2 * 32 * 4);
        assert!(held <= cost.positions((first + l) as u64, l as u64), "{held} after {first}");
    }
    let held = caches.nbytes() / (2 * 2 * 32 * 4);
    assert!(held <= (window + slab::slack(window)) as u64, "{held}");
}

#[test]
fn the_parts_of_a_prompt_come_into_one_buffer() {
    let window = 20;
    let specs = [spec(Growth::Growing), spec(Growth::Sliding { window })];
    let positions = |caches: &mut Caches, layer| kv(caches, layer).arrays()[0].shape()[2];
    let mut caches = Caches::new(&specs, Storage::Plain, 1, 1000);
    let ends = [300, 600, 700];
    for (first, end) in [0, 300, 600].into_iter().zip(ends) {
        caches.will_grow_by(700 - first);
        let new = keys(3, first, end - first);
        for (layer, bound) in [(0, None), (1, Some(window))] {
            let view = kv(&mut caches, layer).update(&new, &new).unwrap();
            let last = end - first - 1;
            assert_eq!(seen(&view, last + 1, last), [expected(3, end - 1, bound)], "to {end}");
        }
        caches.advance(end - first);
        assert_eq!(positions(&mut caches, 0), 3 * STEP, "to {end}");
        let held = spec(Growth::Sliding { window }).cost(Storage::Plain, 4);
        let most = held.positions(end as u64, (end - first) as u64);
        assert!(positions(&mut caches, 1) as u64 <= most, "a window takes no more, to {end}");
    }
    // Once it is computed, buffers grow as rows go on.
    caches.will_grow_by(0);
    for (first, end) in [(700, 768), (768, 769)] {
        let new = keys(3, first, end - first);
        for layer in 0..2 {
            kv(&mut caches, layer).update(&new, &new).unwrap();
        }
    }
    assert_eq!(positions(&mut caches, 0), 4 * STEP);
    caches.will_grow_by(1000);
    caches.will_grow_by(0);
    let new = keys(3, 769, 4 * STEP + 1 - 769);
    kv(&mut caches, 0).update(&new, &new).unwrap();
    assert_eq!(positions(&mut caches, 0), 5 * STEP, "not as many as were expected before");
}

#[test]
fn what_cannot_be_cut_back_is_refused_and_stays() {
    let recurrent = StateSpec::Recurrent(RecurrentSpec { convolution: [3, 4], state: None });
    let bounded = spec(Growth::Bounded { limit: 10, keep: 4 });
    for (specs, total, refusal) in [
        ([spec(Growth::Growing), recurrent], 1000, Some("layer 1")),
        ([bounded, spec(Growth::Growing)], 11, Some("layer 0")),
        ([bounded, spec(Growth::Sliding { window: 8 })], 10, None),
    ] {
        let can = specs.iter().all(|spec| spec.can_go_back(total));
        assert_eq!(can, total != 11, "a recurrent state goes back to a copy");
        let mut caches = Caches::new(&specs, Storage::Plain, 1, total);
        let new = keys(0, 0, 5);
        for layer in caches.layers_mut() {
            if let State::Kv(cache) = layer {
                cache.update(&new, &new).unwrap();
            }
        }
        caches.advance(5);
        assert_eq!(caches.truncate(&[0]), Ok(()));
        let result = caches.truncate(&[2]).map_err(|error| error.to_string());
        match refusal {
            None => assert_eq!((result, caches.offsets()), (Ok(()), &[3][..])),
            Some(layer) => {
                assert!(result.is_err_and(|error| error.contains(layer)));
                assert_eq!(caches.offsets(), [5]);
            }
        }
        assert!(caches.truncate(&[6]).is_err_and(|error| error.to_string().contains("row 0")));
        assert!(
            caches.truncate(&[0, 0]).is_err_and(|error| error.to_string().contains("2 counts"))
        );
    }
}
