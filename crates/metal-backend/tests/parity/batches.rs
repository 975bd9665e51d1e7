//! Rows of a batch are what the references compute for each prompt alone; packed caches are
//! mlx-lm's.

use inference_core::{LoadOptions, Prompt, Token};
use serde_json::Value as Json;

use crate::checkpoints::{F32_TOLERANCE, logprob_tolerance};
use crate::fixtures::{
    Checkpoint, Golden, backend, distance, greedy, ids, json, logprobs, numbers, run, token_ids,
};

/// Runs all prompts of `name` at once and checks each against its run alone.
pub fn rows_agree_with_the_references(name: &str, variant: &str) {
    let golden = Golden::new(name);
    let size = |key: &str| golden.json[key].as_u64().expect("a size") as usize;
    let options = LoadOptions {
        prefill_chunk: variant.ends_with("chunked").then(|| size("chunk")),
        context_length: variant.starts_with("rotating").then(|| size("max_kv")),
        ..LoadOptions::default()
    };
    let model = Checkpoint::new(name).load(options);
    let (names, prompts): (Vec<&str>, Vec<Prompt>) =
        golden.prompts().map(|(name, prompt)| (name, Prompt::Ids(ids(&prompt["ids"])))).unzip();
    let results = model.batch_generate(&prompts, &greedy(48)).expect("the batch runs");
    for (prompt, result) in names.iter().zip(results) {
        assert_eq!(result.error, None);
        let expected = &golden.json["prompts"][prompt]["greedy"][variant];
        assert_eq!(
            token_ids(&result.tokens),
            ids(&expected["tokens"]),
            "{name} {prompt} {variant} in a batch"
        );
        let distance = distance(&logprobs(&result.tokens), &numbers(&expected["logprobs"]));
        assert!(distance <= logprob_tolerance(name), "{name} {prompt} {variant}: {distance:e}");
    }
}

#[test]
fn rows_without_a_window_agree_with_the_references() {
    for name in ["llama", "qwen2", "qwen3-4bit-g64", "olmo2", "smollm3", "phi3"] {
        rows_agree_with_the_references(name, "base");
    }
}

#[test]
fn rows_with_windows_agree_with_the_references() {
    // Of gpt-oss, beside sinks.
    for name in ["gemma3_text", "gemma3", "gemma2", "gpt_oss", "gpt_oss-4bit-g64"] {
        rows_agree_with_the_references(name, "base");
    }
}

#[test]
fn rows_in_chunks_agree_with_the_references() {
    for name in ["qwen3", "gemma3_text", "qwen3_moe", "gpt_oss", "phi3_longrope"] {
        rows_agree_with_the_references(name, "chunked");
    }
}

#[test]
fn rows_of_mixtures_of_experts_agree_with_the_references() {
    for name in ["qwen3_moe", "qwen3_moe-4bit-g64", "qwen3_moe-mxfp4"] {
        rows_agree_with_the_references(name, "base");
    }
}

#[test]
fn rows_that_outgrow_the_original_context_agree_with_the_references() {
    // Short prompts and long ones, whose positions are encoded otherwise, at once.
    for name in ["phi3_longrope", "phi3_longrope-6bit-g32"] {
        rows_agree_with_the_references(name, "base");
    }
}

#[test]
fn rows_past_a_bound_context_agree_with_the_references() {
    for name in ["mistral", "gemma3_text", "olmo2", "gpt_oss"] {
        rows_agree_with_the_references(name, "rotating_forced");
        rows_agree_with_the_references(name, "rotating_forced_chunked");
    }
}

/// Runs the prompts of `name` alone and in a batch; hands each prompt's tokens to `check`.
fn packed(name: &str, expected: &Json, check: impl Fn(&str, &[Token])) {
    let size = |key: &str| expected[key].as_u64().map(|size| size as usize);
    let options = LoadOptions {
        kv_bits: size("bits"),
        kv_group_size: size("group_size"),
        prefill_chunk: size("chunk"),
        ..LoadOptions::default()
    };
    let model = Checkpoint::new(name).load(options);
    let golden = Golden::new(name);
    let names: Vec<&String> = expected["prompts"].as_object().expect("prompts").keys().collect();
    let ids_of = |prompt: &&String| ids(&golden.json["prompts"][*prompt]["ids"]);
    let prompts: Vec<Prompt> = names.iter().map(|name| Prompt::Ids(ids_of(name))).collect();
    let batch = model.batch_generate(&prompts, &greedy(48)).expect("the batch runs");
    for (prompt, row) in names.iter().zip(batch) {
        let alone = run(&*model, &ids_of(prompt), &greedy(48));
        // On a GPU, sums depend on the rows beside, and a key that rounds otherwise may take the
        // next of few values.
        let count = if backend() == "cpu" { 48 } else { 1 };
        let [found, expected] = [&row.tokens, &alone].map(|tokens| token_ids(tokens));
        assert_eq!(found[..count], expected[..count], "{name} {prompt} in a batch");
        check(prompt, &alone);
    }
}

#[test]
fn packed_caches_agree_with_mlx_lm() {
    let on_cpu = backend() == "cpu";
    let ours = !on_cpu || metal_backend::cpu_kernels().starts_with("our own");
    let goldens = json("golden/packed_caches.json");
    for (name, runs) in goldens["models"].as_object().expect("models") {
        for expected in runs.as_array().expect("runs") {
            let label =
                format!("{name} {} bits, chunks of {}", expected["bits"], expected["chunk"]);
            packed(name, expected, |prompt, tokens| {
                let golden = &expected["prompts"][prompt];
                // A key that our kernels, or a GPU's, round a little otherwise may take the next of
                // few values, and a random model amplifies that. With MLX's products all tokens are
                // equal.
                let count = if ours { 1 } else { 48 };
                let tolerance = if ours { 0.2 } else { F32_TOLERANCE };
                assert_eq!(token_ids(tokens)[..count], ids(&golden["tokens"])[..count], "{label}");
                let found = logprobs(&tokens[..count]);
                let distance = distance(&found, &numbers(&golden["logprobs"])[..count]);
                assert!(distance <= tolerance, "{label}: {distance:e}");
            });
        }
    }
}

#[test]
fn a_prompt_of_one_id_sees_itself_as_it_is_beside_others_too() {
    if backend() != "cpu" {
        eprintln!("left out: on a GPU, packed keys depend on the rows beside");
        return;
    }
    let options =
        LoadOptions { kv_bits: Some(4), kv_group_size: Some(32), ..LoadOptions::default() };
    let model = Checkpoint::new("qwen3").load(options);
    let ids_of = |first: u32| match first {
        0 => (5..45).collect::<Vec<u32>>(),
        id => vec![id * 7],
    };
    let prompts: Vec<Prompt> = (0..10).map(|first| Prompt::Ids(ids_of(first))).collect();
    let batch = model.batch_generate(&prompts, &greedy(24)).expect("the batch runs");
    for (first, row) in (0..).zip(batch) {
        let alone = run(&*model, &ids_of(first), &greedy(24));
        assert_eq!(token_ids(&row.tokens), token_ids(&alone), "prompt {first}");
    }
}
