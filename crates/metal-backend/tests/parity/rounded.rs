//! Effects on packed checkpoints of activations that are rounded to 8 bits.

use std::fs;

use inference_core::{CpuActivations, Error, LoadOptions, TextModel};

use crate::fixtures::{
    Checkpoint, Golden, backend, distance, first_logits, greedy, ids, root, run, token_ids,
};

/// Greedy tokens of each prompt.
const TOKENS: usize = 24;

fn rounded() -> LoadOptions {
    LoadOptions { cpu_activations: Some(CpuActivations::Int8), ..LoadOptions::default() }
}

/// Greedy tokens after `prompt` that are not the expected ones behind those before them.
fn differing(model: &dyn TextModel, prompt: &[u32], expected: &[u32]) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < expected.len() {
        let known = [prompt, &expected[..at]].concat();
        let found = token_ids(&run(model, &known, &greedy(expected.len() - at)));
        match found.iter().zip(&expected[at..]).position(|(found, expected)| found != expected) {
            Some(place) => (count, at) = (count + 1, at + place + 1),
            // A rounded model ends where the reference does, or goes on as it does.
            None => break,
        }
    }
    count
}

#[test]
fn rounded_activations_stay_near_the_references() {
    if backend() != "cpu" || !metal_backend::cpu_kernels().starts_with("our own") {
        return;
    }
    let mut names: Vec<String> = fs::read_dir(root().join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| ["-4bit", "-8bit", "-mxfp4"].iter().any(|form| name.contains(form)))
        .filter(|name| root().join(format!("golden/{name}.json")).exists())
        .collect();
    names.sort();
    let (mut all, mut differ, mut worst) = (0, 0, 0f32);
    for name in &names {
        let golden = Golden::new(name);
        let checkpoint = Checkpoint::new(name);
        let (plain, model) = (checkpoint.load(LoadOptions::default()), checkpoint.load(rounded()));
        let (mut tokens, mut others, mut far, mut size) = (0, 0, 0f32, 0f32);
        for (_, expected) in golden.prompts() {
            let prompt = ids(&expected["ids"]);
            let whole = first_logits(&*plain, &prompt);
            far = far.max(distance(&first_logits(&*model, &prompt), &whole));
            size = whole.iter().fold(size, |size, logit| size.max(logit.abs()));
            let references = ids(&expected["greedy"]["base"]["tokens"]);
            let references = &references[..references.len().min(TOKENS)];
            tokens += references.len();
            others += differing(&*model, &prompt, references);
        }
        eprintln!(
            "{name}: {others} of {tokens} tokens differ, logits of up to {size:.2} by up to {far:.3}"
        );
        assert!(far > 0.0, "{name}: nothing was rounded");
        // Rounding may send a position to another expert, and then chance decides.
        if !["gpt_oss", "moe"].iter().any(|routed| name.contains(routed)) {
            (all, differ, worst) = (all + tokens, differ + others, worst.max(far / size));
        }
    }
    eprintln!(
        "without experts {differ} of {all} tokens differ, logits by up to {worst:.3} of the largest"
    );
    assert!(all > 1000 && differ * 7 <= all, "{differ} of {all}");
    assert!(worst <= 0.25, "{worst}");
}

#[test]
fn weights_for_which_nothing_is_rounded_refuse_the_option() {
    for name in ["qwen3", "qwen3-nvfp4"] {
        let error = Checkpoint::new(name).try_load(rounded()).expect_err("a refusal");
        let refused =
            matches!(&error, Error::Unsupported { what, .. } if what == "cpu_activations");
        assert!(refused, "{name}: {error}");
    }
}
