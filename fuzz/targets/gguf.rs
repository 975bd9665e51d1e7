//! Files of GGUF: each input is a whole one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: fuzz::end_at_a_panic(), |bytes: &[u8]| {
    let folder = fuzz::folder(&[("model.gguf", bytes)]);
    fuzz::use_model(&folder.path().join("model.gguf"));
});
