//! Models whose last layers see the keys of earlier ones: everything that works for keys of one's own works
//! for them, and gives the same tokens.

use inference_core::{GenerateOptions, InspectOptions, LoadOptions, Prompt, TextModel};
use proptest::prelude::*;

use crate::tiny::Checkpoint;
use crate::{drawn, ids, some};

fn load(options: LoadOptions) -> Box<dyn TextModel> {
    Checkpoint::lending().load(&options).unwrap()
}

/// Ids that say nothing but differ by `salt`.
fn prompt(salt: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| 2 + (i * i + i * salt + salt) % 28).collect()
}

fn run(model: &dyn TextModel, prompt: &[u32], tokens: usize, seed: u64) -> Vec<u32> {
    ids(model.generate(&Prompt::Ids(prompt.to_vec()), &drawn(tokens, seed)).unwrap())
}

/// Log probabilities of greedy tokens, each of which a wrong key would change.
fn logprobs(model: &dyn TextModel, prompt: &[u32]) -> Vec<f32> {
    let options = GenerateOptions { logprobs: true, temperature: Some(0.0), ..some(12) };
    let generation = model.generate(&Prompt::Ids(prompt.to_vec()), &options).unwrap();
    generation.map(|token| token.unwrap().logprob.unwrap()).collect()
}

#[test]
fn chunks_of_any_length_give_the_same_numbers() {
    let ids = prompt(3, 150);
    let whole = logprobs(&*load(LoadOptions::default()), &ids);
    for chunk in [1, 2, 7, 64, 149] {
        let options = LoadOptions { prefill_chunk: Some(chunk), ..Default::default() };
        let parts = logprobs(&*load(options), &ids);
        for (part, whole) in parts.iter().zip(&whole) {
            assert!((part - whole).abs() < 1e-4, "chunks of {chunk}: {parts:?} {whole:?}");
        }
    }
}

#[test]
fn who_borrows_shows_the_lenders_keys() {
    for prefill_chunk in [None, Some(7)] {
        let model = load(LoadOptions { prefill_chunk, ..Default::default() });
        let inspector = model.attention_inspector().unwrap();
        let options = InspectOptions { weights: true, ..Default::default() };
        let seen = inspector.inspect_attention(&Prompt::Ids(prompt(1, 40)), &options).unwrap();
        assert_eq!(seen.layers.len(), 5);
        for (lender, borrower) in [(2, 3), (1, 4)] {
            let [lent, borrowed] = [lender, borrower].map(|layer| &seen.layers[layer]);
            assert_eq!(lent.keys, borrowed.keys);
            assert_ne!(lent.queries, borrowed.queries);
            assert_ne!(lent.weights, borrowed.weights);
        }
        assert_ne!(seen.layers[0].keys, seen.layers[2].keys);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 10, ..Default::default() })]

    #[test]
    fn rows_are_what_they_are_alone_with_prefixes_and_packed_keys(
        requests in prop::collection::vec((0..3u32, 1..220usize, 1..60usize, any::<bool>()), 2..8),
        slots in 1..5usize,
        chunk in 3..200usize,
        kv_bits in prop::option::of(prop::sample::select(vec![4, 8])),
        kept in 1..60u64,
    ) {
        let plain = LoadOptions { kv_bits, prefill_chunk: Some(chunk), ..Default::default() };
        let without = load(plain.clone());
        let with = load(LoadOptions {
            prefix_cache: Some(kept * 16_384),
            parallel_slots: Some(slots),
            ..plain
        });
        let mut running = Vec::new();
        for (at, (salt, length, tokens, cancel)) in requests.iter().enumerate() {
            let prompt = prompt(*salt, *length);
            let options = drawn(*tokens, at as u64);
            let generation = with.generate(&Prompt::Ids(prompt.clone()), &options).unwrap();
            // One that goes in the middle leaves what it computed.
            if *cancel { drop(generation) } else { running.push((at, prompt, *tokens, generation)) }
        }
        for (at, prompt, tokens, generation) in running {
            prop_assert_eq!(ids(generation), run(&*without, &prompt, tokens, at as u64));
        }
    }
}
