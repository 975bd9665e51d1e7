//! Label scores and next tokens of prompts that are classified together are the references'.

use inference_core::{ClassifyOptions, GenerateOptions, LoadOptions, Prompt};

use crate::checkpoints::F32_TOLERANCE;
use crate::fixtures::{Checkpoint, Golden, distance, ids, json, numbers};

/// A sum of up to thirty log probabilities.
const SUM_TOLERANCE: f32 = 5e-3;

/// Classifies all prompts of `name` at once, and checks each against what transformers computes for
/// it alone.
fn agrees_with_the_references(name: &str, options: LoadOptions) {
    let (golden, expected) = (Golden::new(name), json("golden/labels.json"));
    let (texts, expected) = (&expected["labels"], &expected["models"][name]);
    let label = |text: &serde_json::Value| text.as_str().expect("a text").to_owned();
    let labels = texts.as_array().expect("labels").iter().map(label).collect();
    let model = Checkpoint::new(name).load(options);
    let (names, prompts): (Vec<&str>, Vec<Prompt>) =
        golden.prompts().map(|(name, prompt)| (name, Prompt::Ids(ids(&prompt["ids"])))).unzip();
    let asked = ClassifyOptions {
        labels,
        generate: GenerateOptions { logits: true, ..GenerateOptions::default() },
    };
    let results = model.classify(&prompts, &asked).expect("it runs");
    let tokens = expected["tokens"].as_array().expect("labels").iter().map(ids);
    let tokens: Vec<usize> = tokens.map(|ids| ids.len()).collect();
    assert!(tokens.iter().any(|count| *count > 3) && tokens.contains(&1), "{tokens:?}");
    let mut worst: f32 = 0.0;
    for (prompt, result) in names.iter().zip(results) {
        let found: Vec<usize> = result.labels.iter().map(|score| score.tokens).collect();
        assert_eq!(found, tokens, "{name}");
        let found: Vec<f32> = result.labels.iter().map(|score| score.logprob).collect();
        let far = distance(&found, &numbers(&expected["prompts"][prompt]));
        assert!(far <= SUM_TOLERANCE, "{name} {prompt}: {far:e}");
        worst = worst.max(far);
        let reference = golden.logits(&format!("{prompt}/hf_f32_last")).expect("it is there");
        let far = distance(&result.logits.expect("they were asked for"), &reference);
        assert!(far <= F32_TOLERANCE, "{name} {prompt}: logits {far:e}");
        let first = &golden.json["prompts"][prompt]["greedy"]["base"]["tokens"][0];
        assert_eq!(Some(u64::from(result.token.id)), first.as_u64(), "{name} {prompt}");
    }
    eprintln!("{name}: label scores within {worst:.1e} of transformers'");
}

#[test]
fn label_scores_agree_with_the_references() {
    for name in ["llama", "qwen3", "gemma2", "gemma3_text"] {
        agrees_with_the_references(name, LoadOptions::default());
    }
}

#[test]
fn label_scores_in_small_chunks_agree_with_the_references() {
    for name in ["llama", "gemma3_text"] {
        let options = LoadOptions { prefill_chunk: Some(40), ..LoadOptions::default() };
        agrees_with_the_references(name, options);
    }
}

#[test]
fn label_scores_by_themselves_agree_with_the_references() {
    for name in ["qwen3", "gemma3_text"] {
        let options = LoadOptions { batch_invariant: true, ..LoadOptions::default() };
        agrees_with_the_references(name, options);
    }
}

#[test]
fn packed_caches_change_label_scores_little() {
    let plain = Checkpoint::new("qwen3").load(LoadOptions::default());
    let packed = LoadOptions { kv_bits: Some(8), kv_group_size: Some(64), ..Default::default() };
    let packed = Checkpoint::new("qwen3").load(packed);
    let labels = vec!["no".to_owned(), "positive".to_owned(), " a rather long label".to_owned()];
    let options = ClassifyOptions { labels, ..ClassifyOptions::default() };
    let golden = Golden::new("qwen3");
    let prompts: Vec<Prompt> =
        golden.prompts().map(|(_, prompt)| Prompt::Ids(ids(&prompt["ids"]))).collect();
    let plain = plain.classify(&prompts, &options).expect("it runs");
    let packed = packed.classify(&prompts, &options).expect("it runs");
    for (plain, packed) in plain.iter().zip(&packed) {
        assert_eq!(plain.token.id, packed.token.id);
        for (plain, packed) in plain.labels.iter().zip(&packed.labels) {
            assert!((plain.logprob - packed.logprob).abs() < 0.5, "{plain:?} {packed:?}");
        }
    }
    assert_ne!(plain, packed, "what labels see is packed");
}
