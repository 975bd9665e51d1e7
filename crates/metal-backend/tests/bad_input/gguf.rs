//! Files of GGUF: damaged ones, and ones that say more than any model has.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use inference_core::{Dtype, GenerateOptions, LoadOptions, Prompt};

use crate::tiny::load;
use crate::tiny_gguf::{GgufFile, Kind, Meta};

/// Describes the file, or returns why that fails.
fn described(path: &Path) -> Result<(), String> {
    let options = LoadOptions { backend: Some("cpu".into()), ..LoadOptions::default() };
    metal_backend::register().unwrap();
    metal_backend::describe(path, &options).map(|_| ()).map_err(|error| error.to_string())
}

/// Asserts that the file is refused in a line that holds every one of `parts`.
#[track_caller]
fn refused(file: &GgufFile, parts: &[&str]) {
    let (_folder, path) = file.write();
    let error = described(&path).unwrap_err();
    assert!(error.len() < 600, "{} bytes: {}", error.len(), &error[..200]);
    for part in parts {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
}

fn llama() -> GgufFile {
    GgufFile::of("llama", 2)
}

/// The logits of a prompt.
fn logits(file: &GgufFile, dtype: Option<Dtype>) -> Vec<f32> {
    let (_folder, path) = file.write();
    let model = load(&path, &LoadOptions { dtype, ..LoadOptions::default() }).unwrap();
    let options = GenerateOptions {
        max_tokens: Some(1),
        logits: true,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let mut tokens = model.generate(&Prompt::Ids(vec![1, 5, 9, 3, 17]), &options).unwrap();
    tokens.next().unwrap().unwrap().logits.unwrap()
}

#[test]
fn in_f32_a_file_is_its_own_weights_in_every_family() {
    for name in ["gemma3", "llama", "qwen3"] {
        let file = GgufFile::of(name, 2);
        let found = logits(&file, Some(Dtype::F32));
        let expected = logits(&file.clone().in_f32(), Some(Dtype::F32));
        let largest = expected.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        let furthest = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Scales that are rounded to bf16 are a thousandth away.
        assert!(furthest <= 1e-5 * largest, "{name}: {furthest} of {largest}");
    }
}

#[test]
fn the_time_that_a_file_takes_grows_with_its_layers() {
    let best = |layers: u32| -> Duration {
        let file = GgufFile { shares: true, ..GgufFile::of("qwen3", layers) };
        let (_folder, path) = file.write();
        let time = || {
            let began = Instant::now();
            described(&path).unwrap();
            began.elapsed()
        };
        (0..3).map(|_| time()).min().unwrap()
    };
    let (few, many) = (best(200), best(1600));
    // Eight times as long, and 64 times where each layer goes through all of them.
    assert!(many < 24 * few.max(Duration::from_millis(5)), "{few:?}, {many:?}");
}

#[test]
fn what_no_model_has_is_refused_in_a_line() {
    let with = |key: &str, value: Meta| {
        let mut file = llama();
        file.set(key, value);
        file
    };
    let long = "x".repeat(1 << 20);
    let text = || Meta::Text(long.clone());
    refused(&with("general.architecture", text()), &["has the architecture `xxx"]);
    refused(&with("tokenizer.ggml.model", text()), &["`tokenizer.ggml.model` is `xxx"]);
    refused(&with("tokenizer.ggml.pre", text()), &["`tokenizer.ggml.pre` is `xxx"]);
    refused(&with("llama.rope.scaling.type", text()), &["rope.scaling.type` is `xxx"]);
    refused(&with("general.alignment", text()), &["`general.alignment` is `xxx"]);
    refused(&with("general.alignment", Meta::Whole(48)), &["is 48, expected a power of two"]);
    refused(&with("general.alignment", Meta::Whole(1 << 31)), &["a power of two"]);
    refused(&with("split.count", text()), &["`split.count` is `xxx"]);
    refused(&with(&long, Meta::Flag(true)), &["has a name of 1048576 bytes"]);
    let mut deep = Meta::List(vec![Meta::Whole(1)]);
    (0..6).for_each(|_| deep = Meta::List(vec![deep.clone()]));
    refused(&with("general.deep", deep), &["general.deep", "lists within lists"]);
    let mut file = llama();
    file.put(&"y".repeat(300), &[32], Kind::F32);
    refused(&file, &["has a name of 300 bytes"]);
}

#[test]
fn more_than_any_model_has_is_refused_before_it_is_kept() {
    let mut file = llama();
    for key in 0..1 << 15 {
        file.metadata.push((format!("own.{key}"), Meta::Flag(true)));
    }
    refused(&file, &["keys of metadata; at most 16384"]);
    // A count alone, for which the file has room.
    let (mut bytes, _) = llama().bytes();
    bytes[8..16].copy_from_slice(&(1u64 << 19).to_le_bytes());
    bytes.resize(20 << 20, 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.gguf");
    fs::write(&path, bytes).unwrap();
    let error = described(&path).unwrap_err();
    assert!(error.contains("has 524288 tensors; at most 262144"), "{error}");
    // Tokens that text is searched for.
    let mut file = llama();
    let tokens = (0..100_000).map(|id| Meta::Text(format!("<t{id}>")));
    file.set("tokenizer.ggml.tokens", Meta::List(tokens.collect()));
    file.set("tokenizer.ggml.token_type", Meta::List(vec![Meta::Whole(3); 100_000]));
    refused(&file, &["100000 tokens that are no pieces of text; at most 65536"]);
    // Pieces whose parts are looked up.
    let pieces = (0..2000).map(|id| Meta::Text(format!("{}{id}", "ab".repeat(400))));
    file.set("tokenizer.ggml.tokens", Meta::List(pieces.collect()));
    file.set("tokenizer.ggml.token_type", Meta::List(vec![Meta::Whole(1); 2000]));
    file.set("tokenizer.ggml.scores", Meta::List(vec![Meta::Float(0.0); 2000]));
    file.set("tokenizer.ggml.model", Meta::Text("llama".into()));
    file.metadata.retain(|(key, _)| key != "tokenizer.ggml.merges");
    refused(&file, &["its tokens are longer than those of any vocabulary"]);
}

/// The most bytes that this process had in memory so far, where the system tells.
fn most_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

#[test]
fn four_thousand_damaged_files_are_refused_or_described() {
    const FILES: [&str; 4] = ["llama", "gemma3", "qwen3", "seed_oss"];
    const EXTREMES: [u64; 10] = [
        0,
        1,
        u64::MAX,
        i64::MAX as u64,
        i64::MIN as u64,
        1 << 32,
        (1 << 31) - 1,
        1 << 40,
        0xffff_ffff,
        7,
    ];
    let mut state = 20_261_128_u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % bound.max(1)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.gguf");
    let (mut refused, mut told) = (0, 0);
    for name in FILES {
        let (whole, header) = GgufFile::of(name, 1).bytes();
        fs::write(&path, &whole).unwrap();
        described(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        for round in 0..1000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random(3) {
                let at = random(header.min(bytes.len()) - 8);
                match random(6) {
                    0 => bytes[at] ^= 1 << random(8),
                    1 => bytes[at..at + 8].copy_from_slice(&EXTREMES[random(10)].to_le_bytes()),
                    2 => {
                        let number = EXTREMES[random(10)] as u32;
                        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
                    }
                    3 => drop(bytes.drain(at..(at + 1 + random(16)).min(header - 8))),
                    4 => {
                        let part = bytes[at..at + 8].to_vec();
                        drop(bytes.splice(at..at, part));
                    }
                    _ => bytes.truncate(header.max(bytes.len() - random(200))),
                }
            }
            fs::write(&path, &bytes).unwrap();
            match described(&path) {
                Ok(()) => told += 1,
                Err(error) => {
                    assert!(!error.contains("unexpectedly"), "{name} {round}: {error}");
                    assert!(error.len() < 4000, "{name} {round}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 2000 && told > 100, "{refused} refused, {told} described");
    // What other tests of this program hold is a part of it.
    assert!(most_bytes().is_none_or(|bytes| bytes < 2 << 30), "{:?}", most_bytes());
}
