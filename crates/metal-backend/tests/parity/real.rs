//! Checkpoints that others published: see `real-models/README.md`. `cargo xtask real-models`
//! fetches them, and names their folder in `ML_REAL_MODELS`.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{Dtype, LoadOptions, Prompt, TextModel, load_model};
use serde_json::Value as Json;

use crate::fixtures::{backend, first_logits, greedy, ids, run, token_ids};

/// Log probabilities of another engine in float32, which adds in another order.
const F32_TOLERANCE: f64 = 2e-3;

/// The mean distance from float32 in f16, which a file gets by default.
const F16_TOLERANCE: f64 = 0.03;

/// The mean distance from float32 in bf16. Gemma's files get it, whose values f16 does not hold.
const BF16_TOLERANCE: f64 = 0.1;

/// The prompts whose greedy tokens are compared here.
const CONTINUED: [&str; 3] = ["capital", "japanese", "question"];

fn golden(name: &str) -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../real-models/goldens");
    let text = fs::read_to_string(path.join(format!("{name}.json"))).expect("a golden");
    serde_json::from_str(&text).expect("it is JSON")
}

fn load(path: &Path, dtype: Option<Dtype>) -> Box<dyn TextModel> {
    let _ = metal_backend::register();
    let options = LoadOptions { backend: Some(backend()), dtype, ..LoadOptions::default() };
    load_model(path, &options).expect("a published file loads")
}

/// Prompts and conversations with their ids and what follows.
fn cases(golden: &Json) -> impl Iterator<Item = &Json> {
    let lists = ["prompts", "chats"].map(|list| golden[list].as_array().expect("a list"));
    lists.into_iter().flatten()
}

/// The mean distance of the likeliest first tokens' log probabilities from the golden's.
fn distance(model: &dyn TextModel, case: &Json) -> f64 {
    let logits = first_logits(model, &ids(&case["ids"]));
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
    let top = case["top"].as_array().expect("a list");
    let distances = top.iter().map(|pair| {
        let token = pair[0].as_u64().expect("an id") as usize;
        let found = f64::from(logits[token] - most) - sum.ln();
        (found - pair[1].as_f64().expect("a log probability")).abs()
    });
    distances.sum::<f64>() / top.len() as f64
}

/// Ids, tokens and log probabilities of a published file, in float32 and as it loads by default.
#[expect(clippy::print_stdout, reason = "`--nocapture` shows the distances")]
fn agrees(folder: &Path, name: &str) {
    let golden = golden(name);
    let file = folder.join(golden["file"].as_str().expect("a file"));
    let exact = load(&file, Some(Dtype::F32));
    let usual = load(&file, None);
    let (mut distances, mut wrong) = (Vec::new(), Vec::new());
    for case in cases(&golden) {
        let what = &case["name"];
        let prompt = ids(&case["ids"]);
        if let Some(text) = case["text"].as_str() {
            assert_eq!(
                exact.prompt_ids(&Prompt::from(text)).expect("it encodes"),
                prompt,
                "{name} {what}"
            );
        }
        let off = distance(&*exact, case);
        distances.push(distance(&*usual, case));
        println!("{name} {what}: {off:.1e}");
        if off > F32_TOLERANCE {
            wrong.push(format!("{name} {what}: {off:.1e} away"));
        }
        // The program says those of all.
        if !CONTINUED.contains(&what.as_str().expect("a name")) {
            continue;
        }
        let expected = ids(&case["tokens"]);
        let found = token_ids(&run(&*exact, &prompt, &greedy(expected.len())));
        if found != expected {
            wrong.push(format!("{name} {what}: {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    println!("{name}: {mean:.1e} away in {:?}", usual.info().dtype);
    let most = if usual.info().dtype == "f16" { F16_TOLERANCE } else { BF16_TOLERANCE };
    assert!(mean <= most, "{name}: {mean} away by default");
}

#[test]
#[ignore = "needs published checkpoints: cargo xtask real-models"]
fn published_files_say_what_the_reference_says() {
    let folder = std::env::var_os("ML_REAL_MODELS").expect("it names the folder of checkpoints");
    let folder = PathBuf::from(folder);
    for name in ["smollm2", "gemma3"] {
        agrees(&folder, name);
    }
}
