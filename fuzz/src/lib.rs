//! Helpers of the targets that read checkpoints: a model folder whose files an input replaces, and
//! an end at each panic that does not become an error.
#![forbid(unsafe_code)]

use std::fs;
use std::panic;
use std::path::Path;
use std::process;

use inference_core::{GenerateOptions, LoadOptions, Prompt};
use inference_text::panics;
use tempfile::TempDir;

/// A config that goes with the weights of the seeds.
pub const CONFIG: &[u8] = include_bytes!("../seeds/config.json");
/// A tokenizer that goes with them.
pub const TOKENIZER: &[u8] = include_bytes!("../seeds/tokenizer.json");
/// The weights that belong to [`CONFIG`].
pub const WEIGHTS: &[u8] = include_bytes!("../seeds/safetensors/whole.safetensors");
/// The most bytes that a model of an input may take.
const MEMORY: u64 = 64 << 20;

/// Ends the process at each panic but those of the tokenizer library that become errors.
pub fn end_at_a_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        if !panics::is_caught() {
            print(what);
            process::abort();
        }
    }));
}

/// A folder of its own that holds `files`, each a name and its bytes. It is gone when dropped.
pub fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("the folder takes the file");
    }
    folder
}

/// Describes the model at `path` on the CPU, loads it, and asks it for a token.
/// Each of them may fail, and none may end the process.
pub fn use_model(path: &Path) {
    let options = LoadOptions {
        backend: Some("cpu".into()),
        context_length: Some(64),
        memory_limit: Some(MEMORY),
        ..LoadOptions::default()
    };
    if metal_backend::describe(path, &options).is_err() {
        return;
    }
    // An input before this one has registered it.
    let _ = metal_backend::register();
    let Ok(model) = inference_core::load_model(path, &options) else { return };
    let one = GenerateOptions { max_tokens: Some(1), ..GenerateOptions::default() };
    if let Ok(generation) = model.generate(&Prompt::Ids(vec![2, 3, 4]), &one) {
        generation.for_each(drop);
    }
}
