//! The engine against itself: what must not depend on how a prompt was fed or a text was read.

use inference_core::{FinishReason, GenerateOptions, LoadOptions, Prompt};

use crate::fixtures::{
    Checkpoint, Golden, distance, first_logits, greedy, ids, logprobs, run, tiny, token_ids,
};

/// How far two results may be apart whose sums in float32 differ only in their order.
const TOLERANCE: f32 = 2e-4;

/// The ids of a prompt of the goldens.
fn prompt(model: &str, name: &str) -> Vec<u32> {
    ids(&Golden::new(model).json["prompts"][name]["ids"])
}

#[test]
fn a_prompt_in_chunks_gives_what_it_gives_in_one_piece() {
    // The last one is cut by windows of 16 positions too.
    for name in ["llama", "gemma3_text"] {
        let checkpoint = Checkpoint::new(name);
        let prompt = prompt(name, "long");
        let whole = checkpoint.load(LoadOptions::default());
        let expected = run(&*whole, &prompt, &greedy(16));
        let expected_logits = first_logits(&*whole, &prompt);
        for chunk in [1, 2, 3, 7, 64] {
            let options = LoadOptions { prefill_chunk: Some(chunk), ..LoadOptions::default() };
            let chunked = checkpoint.load(options);
            let tokens = run(&*chunked, &prompt, &greedy(16));
            assert_eq!(token_ids(&tokens), token_ids(&expected), "{name} in chunks of {chunk}");
            let from_logits = distance(&first_logits(&*chunked, &prompt), &expected_logits);
            assert!(from_logits <= TOLERANCE, "{name} in chunks of {chunk}: {from_logits:e}");
            let from_logprobs = distance(&logprobs(&tokens), &logprobs(&expected));
            assert!(from_logprobs <= TOLERANCE, "{name} in chunks of {chunk}: {from_logprobs:e}");
        }
    }
}

#[test]
fn a_step_from_the_cache_gives_what_the_whole_sequence_gives() {
    for name in
        ["llama", "gemma2", "gemma3_text", "qwen3-4bit-g64", "gpt_oss", "qwen3_moe", "smollm3"]
    {
        let model = Checkpoint::new(name).load(LoadOptions::default());
        let mut sequence = prompt(name, "code");
        let mut worst: f32 = 0.0;
        for token in run(&*model, &sequence, &GenerateOptions { logits: true, ..greedy(24) }) {
            let cached = token.logits.unwrap();
            worst = worst.max(distance(&cached, &first_logits(&*model, &sequence)));
            sequence.push(token.id);
        }
        eprintln!("{name}: cached steps within {worst:.1e} of whole sequences");
        assert!(worst <= TOLERANCE, "{name}: {worst:e}");
    }
}

#[test]
fn a_sequence_that_outgrows_its_first_context_gives_what_the_whole_gives() {
    let model = Checkpoint::new("phi3_longrope").load(LoadOptions::default());
    let original = 16;
    let long = prompt("phi3_longrope", "long");
    for length in [1, original - 1, original, original + 1] {
        let mut sequence = long[..length].to_vec();
        let mut worst: f32 = 0.0;
        for token in run(&*model, &sequence, &GenerateOptions { logits: true, ..greedy(18) }) {
            let cached = token.logits.unwrap();
            worst = worst.max(distance(&cached, &first_logits(&*model, &sequence)));
            sequence.push(token.id);
        }
        assert!(worst <= TOLERANCE, "from {length}: {worst:e}");
    }
    let prefill_only = run(&*model, &long[..original + 1], &greedy(0));
    assert!(prefill_only.is_empty());
}

#[test]
fn the_streamed_text_is_the_decoded_whole() {
    for name in ["llama", "mistral", "gemma3"] {
        let model = Checkpoint::new(name).load(LoadOptions::default());
        for seed in 0..8 {
            // Hot enough that characters of several bytes and broken ones come up.
            let options = GenerateOptions {
                temperature: Some(4.0),
                seed: Some(seed),
                logprobs: false,
                ..greedy(200)
            };
            let tokens = run(&*model, &prompt(name, "unicode"), &options);
            let streamed: String = tokens.iter().map(|token| token.text.as_str()).collect();
            assert_eq!(streamed, model.decode(&token_ids(&tokens)).unwrap(), "{name} seed {seed}");
        }
    }
}

#[test]
fn no_tokens_are_generated_where_none_are_asked_for() {
    let prompt = Prompt::from("The licence permits");
    let mut generation = tiny().generate(&prompt, &greedy(0)).unwrap();
    assert!(generation.next().is_none());
    let outcome = generation.outcome().unwrap();
    assert_eq!(outcome.finish_reason, FinishReason::Length);
    assert_eq!(outcome.metrics.generated_tokens, 0);
    assert_eq!(outcome.metrics.prompt_tokens, tiny().encode("The licence permits").unwrap().len());
}

#[test]
fn a_request_does_not_depend_on_the_one_before_it() {
    let (short, long) = (prompt("llama", "short"), prompt("llama", "long"));
    let first = run(tiny(), &short, &greedy(16));
    run(tiny(), &long, &greedy(16));
    assert_eq!(run(tiny(), &short, &greedy(16)), first);
}

#[test]
fn requests_at_the_same_time_give_what_they_give_alone() {
    let names = ["short", "long", "unicode", "space", "code", "chat"];
    let alone = names.map(|name| run(tiny(), &prompt("llama", name), &greedy(16)));
    let together = std::thread::scope(|scope| {
        let start = |name| scope.spawn(move || run(tiny(), &prompt("llama", name), &greedy(16)));
        names.map(start).map(|thread| thread.join().unwrap())
    });
    assert_eq!(together, alone);
}
