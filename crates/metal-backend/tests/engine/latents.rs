//! Models with latent attention: everything that works for keys and values works for latents, and
//! gives the same tokens.

use inference_core::{
    CacheMiss, ClassifyOptions, GenerateOptions, InspectOptions, LoadOptions, Prompt, TextModel,
};
use proptest::prelude::*;
use serde_json::json;

use crate::alike::{
    each_is_what_it_is_alone, goes_on_where_memory_ends, logprobs, mixes, prompt, run,
};
use crate::drawn;
use crate::tiny::{Checkpoint, Tensor};

fn load(options: LoadOptions) -> Box<dyn TextModel> {
    Checkpoint::latent(3).load(&options).unwrap()
}

fn near(found: &[f32], expected: &[f32]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4)
}

#[test]
fn a_position_is_remembered_as_one_latent() {
    let model = load(LoadOptions::default());
    // 24 values and 8 that see positions, of each of three layers, in F32.
    assert_eq!(model.info().kv_bytes_per_token, 3 * (24 + 8) * 4);
    let packed = load(LoadOptions { kv_bits: Some(8), ..Default::default() });
    assert_eq!(packed.info().kv_bytes_per_token, 3 * (32 + 2 * 4));
    // Widths that no group divides are refused by name.
    let odd = Checkpoint::latent(2).config("kv_lora_rank", json!(26));
    let odd = [0, 1].into_iter().fold(odd, |odd, layer| {
        let name = |part: &str| format!("model.layers.{layer}.self_attn.{part}.weight");
        odd.tensor(&name("kv_b_proj"), Tensor::noise("b", &[28, 26]))
            .tensor(&name("kv_a_layernorm"), Tensor::noise("n", &[26]))
            .tensor(&name("kv_a_proj_with_mqa"), Tensor::noise("a", &[34, 16]))
    });
    odd.load(&LoadOptions::default()).unwrap();
    let error = odd.load(&LoadOptions { kv_bits: Some(8), ..Default::default() }).unwrap_err();
    assert!(error.to_string().contains("34 values"), "{error}");
}

#[test]
fn chunks_of_any_length_give_the_same_numbers() {
    let ids = prompt(3, 150);
    let whole = logprobs(&*load(LoadOptions::default()), &ids);
    for chunk in [1, 2, 7, 64, 149] {
        let options = LoadOptions { prefill_chunk: Some(chunk), ..Default::default() };
        let parts = logprobs(&*load(options), &ids);
        assert!(near(&parts, &whole), "chunks of {chunk}: {parts:?} {whole:?}");
    }
}

#[test]
fn what_came_before_makes_a_difference_however_far_back_it_is() {
    let model = load(LoadOptions::default());
    let mut other = prompt(3, 60);
    let first = logprobs(&*model, &other);
    other[0] += 1;
    assert_ne!(first, logprobs(&*model, &other));
}

#[test]
fn a_context_length_bounds_the_latents() {
    let options = LoadOptions { context_length: Some(40), ..Default::default() };
    let (short, long) = (load(options), load(LoadOptions::default()));
    assert_eq!(run(&*short, &prompt(1, 20), 15, 1), run(&*long, &prompt(1, 20), 15, 1));
    // Past the bound, the oldest positions but the first are forgotten.
    let past = prompt(1, 70);
    assert_ne!(logprobs(&*short, &past), logprobs(&*long, &past));
}

#[test]
fn converted_names_are_the_released_ones() {
    let released = Checkpoint::latent(2);
    let mut converted = Checkpoint::latent(2);
    for layer in 0..2 {
        let prefix = format!("model.layers.{layer}.self_attn");
        let both = converted.tensors.remove(&format!("{prefix}.kv_b_proj.weight")).unwrap();
        let values: Vec<f32> =
            both.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        // Rows of a head: 8 of keys, 6 of values, each of 24 columns.
        let at = |head: usize, row: usize, column: usize| values[(head * 14 + row) * 24 + column];
        let (mut keys, mut outs) = (Vec::new(), Vec::new());
        for head in 0..2 {
            keys.extend(
                (0..24).flat_map(|c| (0..8).map(move |row| (row, c))).map(|(r, c)| at(head, r, c)),
            );
            outs.extend(
                (8..14).flat_map(|r| (0..24).map(move |c| (r, c))).map(|(r, c)| at(head, r, c)),
            );
        }
        converted = converted
            .tensor(&format!("{prefix}.embed_q.weight"), Tensor::f32(&keys, &[2, 24, 8]))
            .tensor(&format!("{prefix}.unembed_out.weight"), Tensor::f32(&outs, &[2, 6, 24]));
    }
    let ids = prompt(5, 50);
    let [found, expected] = [&converted, &released].map(|one| logprobs(&*one.model(), &ids));
    assert!(near(&found, &expected), "{found:?} {expected:?}");
}

#[test]
fn a_prompt_goes_on_from_what_it_shares_with_another() {
    let with = load(LoadOptions { prefix_cache: Some(1 << 22), ..Default::default() });
    let without = load(LoadOptions::default());
    let found = |prompt: &[u32]| {
        let mut generation = with.generate(&Prompt::Ids(prompt.to_vec()), &drawn(30, 1)).unwrap();
        let answer: Vec<u32> = generation.by_ref().map(|token| token.unwrap().id).collect();
        assert_eq!(answer, run(&*without, prompt, 30, 1), "{} ids", prompt.len());
        let metrics = &generation.outcome().unwrap().metrics;
        (metrics.cached_prompt_tokens, metrics.cache_miss)
    };
    let first = prompt(1, 200);
    assert_eq!(found(&first), (0, Some(CacheMiss::Empty)));
    assert_eq!(found(&first), (192, None));
    assert_eq!(found(&first[..150]), (128, None));
}

#[test]
fn what_is_inspected_is_what_attention_is_made_of() {
    let model = load(LoadOptions { prefill_chunk: Some(7), ..Default::default() });
    let inspector = model.attention_inspector().unwrap();
    let options = InspectOptions { weights: true, ..Default::default() };
    let n = 20;
    let found = inspector.inspect_attention(&Prompt::Ids(prompt(1, n)), &options).unwrap();
    assert_eq!(found.layers.len(), 3);
    for layer in &found.layers {
        assert_eq!((layer.n_heads, layer.n_kv_heads, layer.head_dim), (2, 2, 16));
        let weights = &layer.weights.as_ref().unwrap().values;
        for head in 0..2 {
            let vector = |all: &[f32], at: usize| all[(head * n + at) * 16..][..16].to_vec();
            for query in 0..n {
                let q = vector(&layer.queries, query);
                let score = |key: usize| -> f32 {
                    q.iter().zip(vector(&layer.keys, key)).map(|(q, k)| q * k).sum::<f32>() / 4.0
                };
                let scores: Vec<f32> = (0..=query).map(|key| score(key).exp()).collect();
                let sum: f32 = scores.iter().sum();
                let expected: Vec<f32> =
                    (0..n).map(|key| scores.get(key).map_or(0.0, |score| score / sum)).collect();
                let found = &weights[(head * n + query) * n..][..n];
                assert!(near(found, &expected), "{found:?} {expected:?}");
            }
        }
    }
}

#[test]
fn labels_and_prompts_of_any_length_are_scored_as_alone() {
    let model = load(LoadOptions::default());
    let prompts: Vec<Prompt> =
        [5, 90, 17, 1, 60, 33].map(|length| Prompt::Ids(prompt(length as u32, length))).into();
    let labels = ["a", "abc", "hello there"].map(str::to_owned).to_vec();
    let generate = GenerateOptions { logits: true, ..Default::default() };
    let options = ClassifyOptions { labels, generate };
    let together = model.classify(&prompts, &options).unwrap();
    for (prompt, together) in prompts.iter().zip(&together) {
        let alone = &model.classify(std::slice::from_ref(prompt), &options).unwrap()[0];
        assert!(near(together.logits.as_ref().unwrap(), alone.logits.as_ref().unwrap()));
        let scores = |one: &inference_core::ClassifyResult| -> Vec<f32> {
            one.labels.iter().map(|label| label.logprob).collect()
        };
        assert!(near(&scores(together), &scores(alone)));
    }
}

#[test]
fn a_row_that_is_set_back_by_memory_goes_on_as_alone() {
    if !crate::is_alone("latents::a_row_that_is_set_back_by_memory_goes_on_as_alone") {
        return;
    }
    // A position takes 3 layers of 32 values.
    goes_on_where_memory_ends(Checkpoint::latent(3), 384);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 10, ..Default::default() })]

    #[test]
    fn rows_are_what_they_are_alone_with_prefixes_and_packed_latents(mix in mixes(10, 90)) {
        each_is_what_it_is_alone(&mix, load)?;
    }

    #[test]
    fn rows_whose_keys_an_index_chooses_are_what_they_are_alone(mix in mixes(10, 90)) {
        each_is_what_it_is_alone(&mix, |options| Checkpoint::indexed(3).load(&options).unwrap())?;
    }
}
