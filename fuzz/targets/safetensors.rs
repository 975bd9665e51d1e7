//! Files of weights: each input is one, of safetensors or of torch, beside a config and a tokenizer
//! that fit.
#![no_main]

use fuzz::{CONFIG, TOKENIZER};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: fuzz::end_at_a_panic(), |bytes: &[u8]| {
    let files = [("config.json", CONFIG), ("tokenizer.json", TOKENIZER)];
    for name in ["model.safetensors", "pytorch_model.bin"] {
        let folder = fuzz::folder(&[files[0], files[1], (name, bytes)]);
        fuzz::use_model(folder.path());
    }
});
