//! Bad input is a clear error: never a panic, an abort, a hang or a write.

#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

#[path = "../tiny/mod.rs"]
mod tiny;
#[path = "../tiny/gguf.rs"]
mod tiny_gguf;

mod adapters;
mod architectures;
mod config;
mod convert;
mod gguf;
mod options;
mod quantization;
mod released;
mod text_files;
mod vendors;
mod weight_files;

use std::path::Path;

use inference_core::LoadOptions;
use tiny::{Checkpoint, listing, load};

/// Why the folder is refused. The refusal names the folder and leaves it as it was.
fn refusal(folder: &Path) -> String {
    let before = folder.is_dir().then(|| listing(folder));
    let options = LoadOptions::default();
    let error = load(folder, &options).unwrap_err().to_string();
    assert!(error.contains(&folder.display().to_string()), "no path in: {error}");
    assert!(!error.contains("unexpectedly"), "a panic: {error}");
    let described = metal_backend::describe(folder, &options).map(|_| ()).unwrap_err();
    assert_eq!(described.to_string(), error, "describing says something else");
    assert_eq!(before, folder.is_dir().then(|| listing(folder)));
    error
}

/// Asserts that the checkpoint is refused with a message that holds every one of `parts`.
#[track_caller]
fn refused(checkpoint: &Checkpoint, parts: &[&str]) {
    let folder = checkpoint.write();
    let error = refusal(folder.path());
    for part in parts {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
}

#[test]
fn the_tiny_checkpoint_is_sound_and_stays_as_it_is() {
    let folder = Checkpoint::qwen3().write();
    let before = listing(folder.path());
    let model = load(folder.path(), &LoadOptions::default()).unwrap();
    let options = inference_core::GenerateOptions { max_tokens: Some(5), ..Default::default() };
    let tokens = model.generate(&"hello there".into(), &options).unwrap().count();
    assert!(tokens > 0);
    assert_eq!(before, listing(folder.path()));
}
