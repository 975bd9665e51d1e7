//! Models whose last layers see the keys of earlier ones: everything that works for keys of one's
//! own works for them, and gives the same tokens.

use inference_core::{InspectOptions, LoadOptions, Prompt, TextModel};
use proptest::prelude::*;

use crate::alike::{each_is_what_it_is_alone, logprobs, mixes, prompt};
use crate::tiny::Checkpoint;

fn load(options: LoadOptions) -> Box<dyn TextModel> {
    Checkpoint::lending().load(&options).unwrap()
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
        for (owner, reuser) in [(2, 3), (1, 4)] {
            let [shared, reused] = [owner, reuser].map(|layer| &seen.layers[layer]);
            assert_eq!(shared.keys, reused.keys);
            assert_ne!(shared.queries, reused.queries);
            assert_ne!(shared.weights, reused.weights);
        }
        assert_ne!(seen.layers[0].keys, seen.layers[2].keys);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 10, ..Default::default() })]

    #[test]
    fn rows_are_what_they_are_alone_with_prefixes_and_packed_keys(mix in mixes(8, 60)) {
        each_is_what_it_is_alone(&mix, load)?;
    }
}
