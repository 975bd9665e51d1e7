//! Files of GGUF that have a known model under another name.

use std::fs;
use std::path::Path;

use inference_core::{Dtype, LoadOptions, load_model};

use crate::fixtures::{backend, first_logits};

/// The place of a file's entries: behind its mark, its version and two counts.
const ENTRIES: usize = 24;
/// The data of tensors is aligned to so many bytes.
const ALIGNMENT: usize = 32;

/// A text as files have it.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// All of `bytes` with `from`, a text of the file, as `to`.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        found.extend_from_slice(&rest[..at]);
        found.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    found.extend_from_slice(rest);
    found
}

/// The file of Qwen 2 as one of Qwen 2 VL, whose pairs turn by time, row and column.
fn as_qwen2vl(bytes: &[u8]) -> Vec<u8> {
    let named = [text("general.architecture"), 8_u32.to_le_bytes().to_vec()].concat();
    let from = [&named[..], &text("qwen2")].concat();
    let mut changed = replaced(bytes, &from, &[&named[..], &text("qwen2vl")].concat());
    for key in [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.freq_base",
    ] {
        let to = text(&format!("qwen2vl.{key}"));
        changed = replaced(&changed, &text(&format!("qwen2.{key}")), &to);
    }
    let mut more = text("qwen2vl.rope.dimension_sections");
    // A list of four 32-bit integers.
    more.extend([9_u32, 5, 4, 0, 2, 3, 3, 0].into_iter().flat_map(u32::to_le_bytes));
    let mut name = [text("general.name"), 8_u32.to_le_bytes().to_vec()].concat();
    let missing = (changed.len() + more.len() + name.len() + 8 - bytes.len()).wrapping_neg();
    name.extend(text(&"n".repeat(missing % ALIGNMENT)));
    more.extend(name);
    let entries = u64::from_le_bytes(changed[16..ENTRIES].try_into().expect("eight bytes"));
    changed[16..ENTRIES].copy_from_slice(&(entries + 2).to_le_bytes());
    changed.splice(ENTRIES..ENTRIES, more);
    changed
}

#[test]
fn the_language_model_of_qwen2_vl_is_qwen2() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/qwen2.gguf");
    let folder = tempfile::tempdir().expect("a folder");
    let renamed = folder.path().join("qwen2vl.gguf");
    fs::write(&renamed, as_qwen2vl(&fs::read(&file).expect("the file"))).expect("it is written");
    let _ = metal_backend::register();
    let prompt: Vec<u32> = (0..40).map(|i| 3 + i * 37 % 500).collect();
    let [found, expected] = [renamed.as_path(), &file].map(|path| {
        let dtype = Some(Dtype::F32);
        let options = LoadOptions { backend: Some(backend()), dtype, ..LoadOptions::default() };
        first_logits(&*load_model(path, &options).expect("it loads"), &prompt)
    });
    assert_eq!(found, expected);
}
