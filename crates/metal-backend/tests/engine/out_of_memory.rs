//! Memory that is not there although the arithmetic said so: requests fail by name or begin again,
//! and the engine goes on. What fails is chosen for the whole process, so each test has one of its
//! own.

use inference_core::{Error, GenerateOptions, Generation, LoadOptions, TextModel};
use mlx_ffi::memory::fail_allocations;

use super::tiny::Checkpoint;
use super::{drawn, is_alone, some};

/// More allocations than any test makes.
const ALL: usize = 1 << 40;

fn begin(model: &dyn TextModel, options: &GenerateOptions) -> Generation {
    model.generate(&"abc abc abc abc".into(), options).unwrap()
}

/// The ids of a generation, and what it failed with.
fn ended(generation: Generation) -> (Vec<u32>, Option<Error>) {
    let (mut ids, mut failed) = (Vec::new(), None);
    for token in generation {
        match token {
            Ok(token) => ids.push(token.id),
            Err(error) => failed = Some(error),
        }
    }
    (ids, failed)
}

fn is_by_name(error: &Error, phase: &str) -> bool {
    let text = error.to_string();
    matches!(error, Error::OutOfMemory { .. })
        && text.contains(phase)
        && text.contains("the device is out of memory: [malloc] Unable to allocate")
}

#[test]
fn a_load_without_memory_fails_by_name_and_a_later_one_works() {
    if !is_alone("out_of_memory::a_load_without_memory_fails_by_name_and_a_later_one_works") {
        return;
    }
    let checkpoint = Checkpoint::qwen3();
    fail_allocations(2, ALL);
    let error = checkpoint.load(&LoadOptions::default()).err().unwrap();
    assert!(is_by_name(&error, "loading the weights"), "{error}");
    fail_allocations(0, 0);
    assert_eq!(ended(begin(&*checkpoint.model(), &some(5))).0.len(), 5);
}

#[test]
fn a_prompt_without_memory_begins_again_once_and_then_fails_by_name() {
    if !is_alone("out_of_memory::a_prompt_without_memory_begins_again_once_and_then_fails_by_name")
    {
        return;
    }
    let model = Checkpoint::with_sizes(2, 64, 128).model();
    let expected = ended(begin(&*model, &some(12)));
    assert_eq!(expected.1, None);
    fail_allocations(3, 1);
    assert_eq!(ended(begin(&*model, &some(12))), expected);
    fail_allocations(3, ALL);
    let (ids, error) = ended(begin(&*model, &some(12)));
    assert!(ids.is_empty() && is_by_name(error.as_ref().unwrap(), "prefill"), "{error:?}");
    fail_allocations(0, 0);
    assert_eq!(ended(begin(&*model, &some(12))), expected);
    assert_eq!(model.status().running + model.status().waiting, 0);
}

#[test]
fn a_batch_without_memory_goes_on_with_the_rows_that_fit() {
    if !is_alone("out_of_memory::a_batch_without_memory_goes_on_with_the_rows_that_fit") {
        return;
    }
    let model = Checkpoint::with_sizes(2, 64, 128).model();
    let options: Vec<GenerateOptions> = (0..4).map(|seed| drawn(60, seed)).collect();
    let alone: Vec<Vec<u32>> =
        options.iter().map(|options| ended(begin(&*model, options)).0).collect();
    assert!(alone.iter().all(|ids| ids.len() == 60) && alone[0] != alone[1]);
    let (mut whole, mut failed) = (0, 0);
    for skip in [40, 150, 400, 700] {
        for count in [1, 2, 5, 9] {
            fail_allocations(skip, count);
            let rows: Vec<Generation> =
                options.iter().map(|options| begin(&*model, options)).collect();
            for (row, alone) in rows.into_iter().zip(&alone) {
                let (ids, error) = ended(row);
                // What came before a failure came once.
                assert!(alone.starts_with(&ids), "{skip} {count}: {ids:?} of {alone:?}");
                match error {
                    Some(error) => {
                        assert!(is_by_name(&error, ""), "{error}");
                        failed += 1;
                    }
                    None => {
                        assert_eq!(&ids, alone, "{skip} {count}");
                        whole += 1;
                    }
                }
                // One failure is made up for.
                assert!(count > 1 || failed == 0 || ids.len() == 60, "{skip} {count}");
            }
            fail_allocations(0, 0);
            assert_eq!(model.status().running + model.status().waiting, 0);
        }
    }
    assert!(failed > 0 && whole > failed, "{whole} {failed}");
    assert_eq!(ended(begin(&*model, &options[0])).0, alone[0]);
}

/// The ids of a generation with the bits of their log probabilities.
fn to_the_bit(generation: Generation) -> Vec<(u32, u32)> {
    let bits = |token: inference_core::Token| (token.id, token.logprob.unwrap().to_bits());
    generation.map(|token| bits(token.unwrap())).collect()
}

#[test]
fn a_row_that_begins_again_is_what_it_was_to_the_bit_where_rows_are_computed_by_themselves() {
    if !is_alone(
        "out_of_memory::a_row_that_begins_again_is_what_it_was_to_the_bit_where_rows_are_computed_by_themselves",
    ) {
        return;
    }
    let options = LoadOptions {
        batch_invariant: true,
        prefix_cache: Some(8 << 20),
        prefill_chunk: Some(64),
        ..LoadOptions::default()
    };
    let packed = LoadOptions { kv_bits: Some(8), ..options.clone() };
    let kinds = [
        (Checkpoint::with_sizes(2, 64, 128), options.clone(), 0),
        (Checkpoint::with_sizes(2, 64, 128), options.clone(), 4),
        (Checkpoint::with_heads(32, 2, 64, 64), packed, 0),
        (Checkpoint::hybrid(4), options.clone(), 0),
        (Checkpoint::falcon_h1(4), options, 0),
    ];
    for (kind, (checkpoint, options, draft_tokens)) in kinds.into_iter().enumerate() {
        let model = checkpoint.load(&options).unwrap();
        for length in [5, 64, 100] {
            let prompt = inference_core::Prompt::Ids(crate::alike::prompt(3, length));
            let asked = GenerateOptions {
                logprobs: true,
                draft_tokens: Some(draft_tokens),
                ..drawn(60, 5)
            };
            let begin = || to_the_bit(model.generate(&prompt, &asked).unwrap());
            let expected = begin();
            assert_eq!(begin(), expected, "kind {kind}, {length} ids: once more");
            let mut have_failed = 0;
            for skip in (0..2400).step_by(211) {
                fail_allocations(skip, 1);
                let found = begin();
                // What is left of the failures tells whether one has happened.
                fail_allocations(0, 0);
                have_failed += 1;
                assert_eq!(found, expected, "kind {kind}, {length} ids, failure behind {skip}");
            }
            assert!(have_failed > 0);
        }
    }
}
