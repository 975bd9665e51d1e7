//! Towers of sizes that released ones do not have.

use std::fs;

use inference_core::LoadOptions;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::fixtures::{Seeing, greedy};

/// A copy of the model with these keys of the tower's config.
fn with_sizes(seeing: &Seeing, sizes: &[(&str, i64)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for entry in fs::read_dir(seeing.folder()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let path = folder.path().join("config.json");
    let mut config: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, size) in sizes {
        config["vision_config"][key] = json!(size);
    }
    fs::write(path, config.to_string()).unwrap();
    folder
}

#[test]
fn heads_of_any_size_see_where_positions_do_not_turn_and_in_pairs_where_they_may() {
    for (name, sizes) in [
        // Heads of 2 values.
        ("gemma3", &[("num_attention_heads", 16)][..]),
        ("gemma3", &[("num_attention_heads", 32)][..]),
        ("mistral3", &[("num_attention_heads", 16), ("head_dim", 2)][..]),
    ] {
        let seeing = Seeing::new(name);
        let folder = with_sizes(&seeing, sizes);
        let model = seeing.load_from(folder.path(), LoadOptions::default());
        let (case, golden) = seeing.cases().next().unwrap();
        let prompt = seeing.rendered(model.as_ref(), golden);
        let said = greedy(model.as_ref(), &prompt.prompt());
        let logits = said[0].logits.as_ref().unwrap();
        assert!(logits.iter().all(|logit| logit.is_finite()), "{name}");
        // It sees by these heads, not by those that it had.
        assert_ne!(*logits, seeing.last_logits(case), "{name}");
    }
}

#[test]
fn sizes_that_no_tower_can_have_are_told_by_their_keys() {
    let _ = metal_backend::register();
    for (name, sizes, told) in [
        ("qwen3_vl", &[("num_heads", 16)][..], "heads have 2 values, expected a multiple of 4"),
        ("gemma4_e", &[("num_attention_heads", 16), ("head_dim", 2)][..], "a multiple of 4"),
        ("mistral3", &[("num_attention_heads", 32), ("head_dim", 1)][..], "a multiple of 2"),
        ("gemma3", &[("image_size", 1 << 30)][..], "`image_size` is 1073741824, at most"),
        ("gemma3", &[("patch_size", 1 << 20)][..], "`patch_size` is 1048576, at most"),
        ("gemma3", &[("image_size", 14)][..], "`mm_tokens_per_image`"),
        ("gemma3", &[("intermediate_size", 1 << 30)][..], "`intermediate_size` is 1073741824"),
        ("qwen3_vl", &[("spatial_merge_size", 1 << 20)][..], "`spatial_merge_size` is 1048576"),
        ("mistral3", &[("head_dim", 1 << 16)][..], "`head_dim` is 65536, at most 32768"),
        ("qwen2_vl", &[("num_heads", 16)][..], "heads have 2 values, expected a multiple of 4"),
        ("qwen2_vl", &[("head_dim", 8)][..], "2 heads of 8 values are not 32 values"),
        ("qwen2_vl", &[("hidden_size", 32)][..], "`hidden_size` is 32, expected 64"),
        ("qwen2_vl", &[("mlp_ratio", 1 << 20)][..], "`mlp_ratio` is 1048576, at most 64"),
        ("qwen2_5_vl", &[("out_hidden_size", 32)][..], "`out_hidden_size` is 32, expected 64"),
        ("qwen2_5_vl", &[("window_size", 27)][..], "`window_size` is 27, expected at least 28"),
        (
            "qwen2_5_vl",
            &[("depth", 3)][..],
            "`fullatt_block_indexes` has 3, expected a block below",
        ),
    ] {
        let folder = with_sizes(&Seeing::new(name), sizes);
        let error = metal_backend::describe(folder.path(), &LoadOptions::default());
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(told) && !error.contains(" { "), "{name}: {error}");
    }
}
