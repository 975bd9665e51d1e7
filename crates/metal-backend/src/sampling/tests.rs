//! The literals come from mlx-lm's `sample_utils`; `tests/fixtures/parity/scripts/literals.py`
//! prints them. Those of llama.cpp's samplers are printed by `samplers.py` beside it.

use std::collections::BTreeMap;

use super::*;

const LOGITS: [f32; 8] = [1.5, -0.5, 2.25, 0.0, 2.0, -3.0, 0.75, 1.5];

fn logits() -> Array {
    Array::from_f32(&LOGITS, &[1, 8]).unwrap()
}

fn logprobs() -> Array {
    let logits = logits();
    ops::subtract(&logits, &ops::logsumexp(&logits, -1, true).unwrap()).unwrap()
}

/// The ids that a filter leaves; those must keep their values.
fn kept(filtered: &Array) -> Vec<usize> {
    let before = logprobs().to_vec_f32().unwrap();
    let after = filtered.to_vec_f32().unwrap();
    let kept: Vec<usize> = (0..8).filter(|&id| after[id] > f32::NEG_INFINITY).collect();
    assert!(kept.iter().all(|&id| after[id] == before[id]));
    kept
}

#[test]
fn top_p_keeps_what_mlx_lm_keeps() {
    for (top_p, expected) in [
        (0.01, &[2][..]),
        (0.3, &[2]),
        (0.35, &[2, 4]),
        // Equals stay or go together.
        (0.6, &[0, 2, 4, 7]),
        (0.75, &[0, 2, 4, 7]),
        (0.9, &[0, 2, 4, 6, 7]),
        (0.999, &[0, 1, 2, 3, 4, 5, 6, 7]),
    ] {
        assert_eq!(kept(&filter_top_p(&logprobs(), top_p, None).unwrap()), expected, "{top_p}");
    }
}

#[test]
fn min_p_keeps_what_mlx_lm_keeps() {
    for (min_p, expected) in [
        (0.01, &[0, 1, 2, 3, 4, 6, 7][..]),
        (0.1, &[0, 2, 3, 4, 6, 7]),
        (0.3, &[0, 2, 4, 7]),
        (0.5, &[2, 4]),
        (0.9, &[2]),
        (1.0, &[2]),
    ] {
        assert_eq!(kept(&filter_min_p(&logprobs(), min_p).unwrap()), expected, "{min_p}");
    }
}

#[test]
fn top_k_keeps_what_mlx_lm_keeps() {
    for (top_k, expected) in
        [(1, &[2][..]), (2, &[2, 4]), (5, &[0, 2, 4, 6, 7]), (7, &[0, 1, 2, 3, 4, 6, 7])]
    {
        assert_eq!(kept(&filter_top_k(&logprobs(), top_k).unwrap()), expected, "{top_k}");
    }
}

#[test]
fn xtc_keeps_what_mlx_lm_keeps() {
    let key = random::key(0).unwrap();
    for (threshold, protected, expected) in [
        (0.0, &[][..], &[5][..]),
        (0.1, &[], &[0, 1, 3, 5, 6, 7]),
        (0.2, &[], &[0, 1, 3, 4, 5, 6, 7]),
        // Nothing to drop above one top choice, nor above none.
        (0.25, &[], &[0, 1, 2, 3, 4, 5, 6, 7]),
        (0.5, &[], &[0, 1, 2, 3, 4, 5, 6, 7]),
        (0.1, &[2, 5], &[0, 1, 2, 3, 5, 6, 7]),
    ] {
        let droppable: Vec<u8> = (0..8).map(|id| u8::from(!protected.contains(&id))).collect();
        let droppable = Array::from_bytes(&droppable, &[1, 8], Dtype::Bool).unwrap();
        let xtc = inference_core::Xtc { probability: 1.0, threshold };
        let filtered = filter_xtc(&logprobs(), xtc, &droppable, &key).unwrap();
        assert_eq!(kept(&filtered), expected, "{threshold} {protected:?}");
    }
}

#[test]
fn typical_p_keeps_what_llama_cpp_keeps() {
    for (typical_p, expected) in [
        (0.2, &[0, 7][..]),
        (0.3, &[0, 7]),
        (0.5, &[0, 4, 7]),
        (0.7, &[0, 2, 4, 7]),
        (0.9, &[0, 2, 4, 6, 7]),
        (0.95, &[0, 2, 3, 4, 6, 7]),
        (0.99, &[0, 1, 2, 3, 4, 6, 7]),
        (1.0, &[0, 1, 2, 3, 4, 5, 6, 7]),
    ] {
        assert_eq!(kept(&filter_typical(&logprobs(), typical_p).unwrap()), expected, "{typical_p}");
    }
    // One of two that are as typical.
    assert_eq!(kept(&filter_typical(&logprobs(), 0.0).unwrap()).len(), 1);
}

#[test]
fn top_n_sigma_keeps_what_llama_cpp_keeps() {
    for (n, expected) in [
        (0.1, &[2][..]),
        (0.2, &[2, 4]),
        (0.5, &[0, 2, 4, 7]),
        (1.0, &[0, 2, 4, 6, 7]),
        (1.5, &[0, 2, 3, 4, 6, 7]),
        (2.0, &[0, 1, 2, 3, 4, 6, 7]),
        (3.5, &[0, 1, 2, 3, 4, 5, 6, 7]),
    ] {
        assert_eq!(kept(&filter_top_n_sigma(&logprobs(), n).unwrap()), expected, "{n}");
    }
}

#[test]
fn filters_look_at_what_is_possible_alone() {
    let of = |values: &[f32]| Array::from_f32(values, &[1, values.len() as i32]).unwrap();
    let possible = of(&[1.0, 0.5, -2.0]);
    let padded = of(&[1.0, f32::NEG_INFINITY, 0.5, -2.0, f32::NEG_INFINITY]);
    let left = |array: &Array| {
        let values = array.to_vec_f32().unwrap();
        values.into_iter().filter(|value| *value > f32::NEG_INFINITY).collect::<Vec<_>>()
    };
    for p in [0.0, 0.3, 0.6, 0.9] {
        let both = [&possible, &padded].map(|all| left(&filter_typical(all, p).unwrap()));
        assert_eq!(both[0], both[1], "{p}");
        let both = [&possible, &padded].map(|all| left(&filter_top_n_sigma(all, p).unwrap()));
        assert_eq!(both[0], both[1], "{p}");
    }
}

#[test]
fn a_draw_with_a_filter_that_no_kernel_has_is_made_by_itself() {
    let with = |change: fn(&mut GenerateOptions)| {
        let mut options =
            GenerateOptions { temperature: Some(0.7), top_k: Some(4), ..Default::default() };
        change(&mut options);
        let repeats = options.dry.clone().map(|dry| Repeats::new(dry, Default::default(), &[]));
        let sampler = Sampler::new(options, 1, &[], &[], 8).unwrap().against(repeats);
        let mut narrow = sampler;
        narrow.count_draw();
        let is_narrow = narrow.narrow().is_some();
        (is_narrow, narrow.by_kernel(true).drawing().is_some())
    };
    for neutral in [
        (|_| ()) as fn(&mut GenerateOptions),
        |o| (o.typical_p, o.top_n_sigma) = (Some(1.0), Some(0.0)),
        |o| o.top_n_sigma = Some(-1.0),
    ] {
        assert_eq!(with(neutral), (true, true));
    }
    assert_eq!(with(|o| o.typical_p = Some(0.9)), (false, false));
    assert_eq!(with(|o| o.top_n_sigma = Some(1.0)), (false, false));
    let dry = |o: &mut GenerateOptions| {
        o.dry = Some(inference_core::Dry { multiplier: 1.0, ..Default::default() });
    };
    assert!(!with(dry).0);
}

#[test]
fn typical_p_may_leave_out_the_likeliest_token_also_before_narrow_filters() {
    let options = GenerateOptions {
        temperature: Some(1.0),
        typical_p: Some(0.2),
        top_k: Some(1),
        ..GenerateOptions::default()
    };
    assert!(!is_greedy(&options));
    let mut sampler = Sampler::new(options, 3, &[], &[], 8).unwrap();
    let id = sampler.draw(&logits()).unwrap().id.item_u32().unwrap();
    assert!([0, 7].contains(&id), "{id}");
}

#[test]
fn penalties_and_bias_give_what_mlx_lm_gives() {
    let all = GenerateOptions {
        repetition_penalty: Some(1.5),
        presence_penalty: Some(0.5),
        frequency_penalty: Some(0.25),
        logit_bias: BTreeMap::from([(2, -4.0), (3, 1.0)]),
        ..GenerateOptions::default()
    };
    let bias = all.logit_bias.clone();
    for (options, expected) in [
        (
            GenerateOptions { repetition_penalty: Some(1.5), ..GenerateOptions::default() },
            [1.5, -0.5, 1.5, 0.0, 2.0, -4.5, 0.5, 1.5],
        ),
        (
            GenerateOptions { presence_penalty: Some(0.5), ..GenerateOptions::default() },
            [1.5, -0.5, 1.75, 0.0, 2.0, -3.5, 0.25, 1.5],
        ),
        (
            GenerateOptions { frequency_penalty: Some(0.25), ..GenerateOptions::default() },
            [1.5, -0.5, 1.75, 0.0, 2.0, -3.75, 0.5, 1.5],
        ),
        (all, [1.5, -0.5, -3.625, 1.0, 2.0, -5.75, -0.25, 1.5]),
        (
            GenerateOptions {
                repetition_penalty: Some(1.5),
                penalty_window: Some(2),
                ..GenerateOptions::default()
            },
            [1.5, -0.5, 2.25, 0.0, 2.0, -4.5, 0.75, 1.5],
        ),
        (
            GenerateOptions { logit_bias: bias, ..GenerateOptions::default() },
            [1.5, -0.5, -1.75, 1.0, 2.0, -3.0, 0.75, 1.5],
        ),
    ] {
        let expected: &[f32] = &expected;
        let known = Sampler::new(options.clone(), 0, &[5, 2, 2, 6, 5, 5], &[], 8).unwrap();
        let adjusted = known.adjust(logits()).unwrap().to_vec_f32().unwrap();
        assert!(near(&adjusted, expected), "{options:?}: {adjusted:?}");
    }
}

fn near(found: &[f32], expected: &[f32]) -> bool {
    found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
}

/// The chi-square of 20,000 draws at temperature 1 against the softmax of the logits.
fn chi_square(mut draw: impl FnMut(u64) -> u32) -> f64 {
    const DRAWS: u64 = 20_000;
    let mut counts = [0.0; 8];
    for index in 0..DRAWS {
        counts[draw(index) as usize] += 1.0;
    }
    let total: f64 = LOGITS.iter().map(|logit| f64::from(*logit).exp()).sum();
    let expected = LOGITS.map(|logit| f64::from(logit).exp() / total * DRAWS as f64);
    counts.iter().zip(expected).map(|(n, e)| (n - e) * (n - e) / e).sum()
}

/// Beyond this, with seven degrees of freedom, once in 10,000.
const MAX_CHI_SQUARE: f64 = 29.9;

fn sampler(seed: u64) -> Sampler {
    let options = GenerateOptions { temperature: Some(1.0), ..GenerateOptions::default() };
    Sampler::new(options, seed, &[], &[], 8).unwrap()
}

#[test]
fn draws_of_many_seeds_follow_the_softmax() {
    let logits = logits();
    let draw = |seed| sampler(seed).draw(&logits).unwrap().id.item_u32().unwrap();
    let found = chi_square(draw);
    eprintln!("chi-square {found:.1}");
    assert!(found < MAX_CHI_SQUARE, "{found}");
}

#[test]
fn draws_of_many_steps_follow_the_softmax() {
    let logits = logits();
    let mut sampler = sampler(1);
    let found = chi_square(|_| sampler.draw(&logits).unwrap().id.item_u32().unwrap());
    eprintln!("chi-square {found:.1}");
    assert!(found < MAX_CHI_SQUARE, "{found}");
}
