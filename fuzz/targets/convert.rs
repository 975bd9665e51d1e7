//! Folders to quantise: an input's first line is the config, the rest are the weights; without a
//! rest they are whole.
#![no_main]

use fuzz::{TOKENIZER, WEIGHTS};
use inference_core::CancelToken;
use libfuzzer_sys::fuzz_target;
use metal_backend::{QuantiseOptions, packing, quantise};

fuzz_target!(init: fuzz::end_at_a_panic(), |bytes: &[u8]| {
    let (config, weights) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if end + 1 < bytes.len() => (&bytes[..end], &bytes[end + 1..]),
        _ => (bytes, WEIGHTS),
    };
    let files = [("config.json", config), ("tokenizer.json", TOKENIZER)];
    let folder = fuzz::folder(&[files[0], files[1], ("model.safetensors", weights)]);
    let target = folder.path().join("packed");
    let options = QuantiseOptions {
        default: packing("affine", Some(4), Some(32)).expect("a packing"),
        recipe: None,
        rules: Vec::new(),
        dtype: None,
        keep_vision: false,
        backend: Some("cpu".into()),
    };
    let written = quantise(folder.path(), &target, &options, &CancelToken::new(), &mut |_, _| {});
    match written {
        Ok(_) => fuzz::use_model(&target),
        Err(_) => assert!(!target.exists(), "a folder of what was not quantised"),
    }
});
