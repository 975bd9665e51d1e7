//! Ranks that have some of the layers each.

use crate::ranks::{Work, compute};

fn of_layers(lengths: &[u32], max_tokens: usize) -> Work {
    Work { lengths: lengths.to_vec(), max_tokens, pipeline: true, ..Work::default() }
}

/// Greedy tokens are those of one process, for several requests at once, and each rank holds less.
fn compute_what_one_computes(name: &str, counts: &[usize]) {
    compute(name, counts, &of_layers(&[1, 150, 40, 9], 24));
}

#[test]
fn dense_models_in_stretches_have_the_tokens_of_one() {
    compute_what_one_computes("llama", &[2, 3]);
    compute_what_one_computes("qwen3", &[2, 3]);
    compute_what_one_computes("phi3", &[2]);
}

#[test]
fn models_with_windows_have_them_too() {
    compute_what_one_computes("gemma3_text", &[2, 3]);
    compute_what_one_computes("gpt_oss", &[2]);
}

#[test]
fn mixtures_have_them_too() {
    compute_what_one_computes("qwen3_moe", &[2, 3]);
    compute_what_one_computes("deepseek_v3", &[2]);
}

#[test]
fn hybrids_have_them_too() {
    compute_what_one_computes("qwen3_5", &[2, 3]);
    compute_what_one_computes("nemotron_h", &[2, 3]);
    compute_what_one_computes("mamba", &[2]);
    compute_what_one_computes("falcon_h1", &[2]);
    compute_what_one_computes("lfm2", &[2]);
    compute_what_one_computes("kimi_linear", &[2]);
}

#[test]
fn packed_models_have_them_too() {
    compute_what_one_computes("llama-4bit-g64", &[2]);
    compute_what_one_computes("qwen3-mxfp4", &[2]);
    compute_what_one_computes("qwen3_5_moe-4bit-g32", &[2]);
}

#[test]
fn most_likely_ids_come_without_logits() {
    let work = Work { ids_alone: true, ..of_layers(&[1, 150, 40, 9], 40) };
    for name in ["qwen3", "llama", "gemma2"] {
        compute(name, &[2, 3], &work);
    }
}

#[test]
fn draws_are_those_of_one() {
    let work = Work { seed: Some(17), ..of_layers(&[20, 3, 90], 40) };
    for name in ["qwen3", "qwen3_5"] {
        compute(name, &[2, 3], &work);
    }
}

#[test]
fn adapters_and_packed_caches_are_those_of_one() {
    for (name, adapter) in [("llama", "llama-lora"), ("qwen3_moe", "qwen3_moe-experts-lora")] {
        compute(name, &[2], &Work { adapter: Some(adapter), ..of_layers(&[70, 5], 24) });
    }
    compute("qwen3", &[2], &Work { kv_bits: Some(8), ..of_layers(&[70, 5, 200], 24) });
}

#[test]
fn ranks_go_on_where_a_consumer_leaves() {
    compute("qwen3", &[3], &Work { leaves_after: Some(5), ..of_layers(&[20, 300, 90], 60) });
}

#[test]
fn what_cannot_be_parted_is_refused_by_name() {
    for (name, count, reason) in [
        ("gemma3n", 2, "inputs or streams"),
        ("gemma4_e", 2, "let ranks have a part of every layer"),
        ("llama", 9, "fewer than 9 ranks"),
    ] {
        for refusal in crate::ranks::refusals(name, count, &of_layers(&[3], 2)) {
            assert!(refusal.contains("pipeline") && refusal.contains(reason), "{name}: {refusal}");
        }
    }
}
