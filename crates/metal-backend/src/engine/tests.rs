//! A panic on the engine thread is one request's error.

use std::path::{Path, PathBuf};
use std::time::Instant;

use inference_core::{CancelToken, Error, GenerateOptions, Generation, LoadOptions};
use inference_text::{Detokenizer, SkipSpecial, StopMatcher, Tokenizer};
use mlx_ffi::Device;

use super::{Engine, Job, JobSender, TextState};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::load;
use crate::load::EngineOptions;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity")
}

fn options() -> EngineOptions {
    let files = ModelFiles::Folder(fixtures().join("models/qwen3"));
    let config = load::config(&files).unwrap();
    let (device, kernels) = (Device::Cpu, Kernels::Mlx);
    EngineOptions { files, config, device, kernels, load: LoadOptions::default() }
}

fn engine() -> Engine {
    Engine::start(options(), || Ok(())).unwrap().0
}

#[test]
fn a_load_ends_with_what_is_done_meanwhile() {
    let broken = || Err::<(), _>(Error::Prompt("no tokenizer".into()));
    let error = Engine::start(options(), broken).err().unwrap().to_string();
    assert!(error.contains("no tokenizer"), "{error}");
    let (engine, _, done) = Engine::start(options(), || Ok(7)).unwrap();
    engine.check_open().unwrap();
    assert_eq!(done, 7);
}

/// Queues a request of greedy tokens. It panics where its text comes to `broken`, a stop string that
/// the engine knows nothing of.
fn submit(engine: &Engine, tokenizer: &Tokenizer, broken: &[String]) -> Generation {
    let ids = tokenizer.encode("Once upon a time", inference_text::AddSpecial::Prompt).unwrap();
    let options =
        GenerateOptions { max_tokens: Some(30), temperature: Some(0.0), ..Default::default() };
    let (output, generation) = Generation::channel(ids.clone(), CancelToken::new());
    let detokenizer = Detokenizer::new(tokenizer, SkipSpecial::Yes).unwrap();
    let text = TextState::new(detokenizer, StopMatcher::new(broken).unwrap());
    let output = JobSender::new(output);
    let (eos_token_ids, protected_ids) = (Vec::new(), Vec::new());
    let (constraint, prompt_logprobs, queued_at) = (None, None, Instant::now());
    let job = Job {
        ids,
        options,
        eos_token_ids,
        protected_ids,
        constraint,
        prompt_logprobs,
        text,
        output,
        queued_at,
    };
    engine.submit(job).unwrap();
    generation
}

fn texts(generation: Generation) -> (Vec<String>, Option<Error>) {
    let (mut texts, mut failed) = (Vec::new(), None);
    for token in generation {
        match token {
            Ok(token) => texts.push(token.text),
            Err(error) => failed = Some(error),
        }
    }
    (texts, failed)
}

#[test]
fn a_row_that_panics_ends_alone() {
    let (engine, tokenizer) =
        (engine(), Tokenizer::from_dir(&fixtures().join("tokenizers/qwen")).unwrap());
    let (alone, failed) = texts(submit(&engine, &tokenizer, &[]));
    assert_eq!((alone.len(), failed), (30, None));
    // In the middle of its text, and of a batch.
    let broken = alone[10..20].iter().find(|text| text.chars().count() > 1).unwrap().clone();
    let started: Vec<_> = (0..6)
        .map(|index| {
            let broken = if index % 2 == 1 { vec![broken.clone()] } else { Vec::new() };
            submit(&engine, &tokenizer, &broken)
        })
        .collect();
    for (index, generation) in started.into_iter().enumerate() {
        let (found, failed) = texts(generation);
        if index % 2 == 0 {
            assert_eq!((found, failed), (alone.clone(), None));
            continue;
        }
        assert!(found.len() < 20, "{found:?}");
        match failed {
            Some(Error::Engine(reason)) => {
                assert!(reason.contains("the request failed unexpectedly"), "{reason}");
                assert!(reason.contains("index out of bounds"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(texts(submit(&engine, &tokenizer, &[])), (alone, None));
    assert_eq!(engine.status().running, 0);
}
