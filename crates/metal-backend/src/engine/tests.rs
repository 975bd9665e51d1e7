//! Tests of what no request shows: a panic on the engine thread is one request's error, and which
//! prompts share a pass.

mod beside;
mod drafting;

use std::path::{Path, PathBuf};
use std::time::Instant;

use inference_core::{CancelToken, Error, GenerateOptions, Generation, LoadOptions, Speculate};
use inference_text::{Detokenizer, SkipSpecial, StopMatcher, Tokenizer};
use mlx_ffi::{Device, Dtype, Indices, ops, use_device};

use super::dispatcher::Dispatcher;
use super::prefill::{Computed, Prefill, Sent};
use super::ranks::Ranks;
use super::row::Row;
use super::{Engine, Job, JobSender, Stops, TextState};
use crate::cache::Caches;
use crate::files::ModelFiles;
use crate::kernels::{Bf16, Kernels};
use crate::layers::{Decoder, StepCapture};
use crate::load;
use crate::load::{EngineOptions, LoadedModel};
use crate::sampling::Sampler;
use crate::weights::Checkpoint;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity")
}

fn options() -> EngineOptions {
    options_of("qwen3", (Device::Cpu, Kernels::Mlx), None)
}

fn options_of(
    model: &str,
    (device, kernels): (Device, Kernels),
    dtype: Option<inference_core::Dtype>,
) -> EngineOptions {
    let files = ModelFiles::Folder(fixtures().join("models").join(model));
    let config = load::config(&files).unwrap();
    let load = LoadOptions { dtype, speculate: Speculate::Off, ..LoadOptions::default() };
    let bf16 = Bf16::Itself;
    EngineOptions { files, config, device, kernels, bf16, load, drafting: None }
}

fn engine() -> Engine {
    Engine::start(options(), || Ok(())).unwrap().0
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_dir(&fixtures().join("tokenizers/qwen")).unwrap()
}

/// Computes `layers` more layers of a chunk.
fn advance(prefill: &mut Prefill, with: (&Decoder, &Ranks), chunk: usize, layers: usize) {
    let mut sent = 0;
    prefill
        .advance(with, chunk, layers, None, &mut Dispatcher::default(), |what| {
            assert!(!matches!(what, Sent::Rows(_)));
            sent += usize::from(matches!(what, Sent::All));
        })
        .unwrap();
    assert_eq!(sent, 1, "others are told once that the layers are on their way");
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

/// A request of greedy tokens. It panics where its text comes to `broken`, a stop string that
/// the engine knows nothing of.
fn job(ids: Vec<u32>, tokenizer: &Tokenizer, broken: &[String]) -> (Job, Generation) {
    let options =
        GenerateOptions { max_tokens: Some(30), temperature: Some(0.0), ..Default::default() };
    let (output, generation) = Generation::channel(ids.clone(), CancelToken::new());
    let detokenizer = Detokenizer::new(tokenizer, SkipSpecial::Yes).unwrap();
    let text = TextState::new(detokenizer, Stops::Text(StopMatcher::new(broken).unwrap()));
    let output = JobSender::new(output);
    let (eos_token_ids, protected_ids) = (Vec::new(), Vec::new());
    let (repeats, guide, prompt_logprobs, queued_at) = (None, None, None, Instant::now());
    let job = Job {
        number: 0,
        scene: None,
        ids,
        options,
        eos_token_ids,
        protected_ids,
        repeats,
        guide,
        prompt_logprobs,
        text: Some(text),
        output,
        queued_at,
    };
    (job, generation)
}

fn submit(engine: &Engine, tokenizer: &Tokenizer, broken: &[String]) -> Generation {
    let ids = tokenizer.encode("Once upon a time", inference_text::AddSpecial::Prompt).unwrap();
    let (job, generation) = job(ids, tokenizer, broken);
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
    let (engine, tokenizer) = (engine(), tokenizer());
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
                // A piece of text may be held back, so that steps may be ahead of it.
                let (_, step) = reason.split_once("decode step ").expect("the phase");
                let (step, _) = step.split_once(':').expect("the phase ends");
                let step: usize = step.parse().expect("a number");
                assert!((10..20).contains(&step) && step >= found.len(), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(texts(submit(&engine, &tokenizer, &[])), (alone, None));
    assert_eq!(engine.status().running, 0);
}

#[test]
fn prompts_that_share_passes_leave_what_they_leave_alone() {
    use_device(Device::Cpu).unwrap();
    let options = options();
    let LoadedModel { model, specs, storage, .. } =
        load::load(&options, &Checkpoint::open(&options.files).unwrap(), None).unwrap();
    let (tokenizer, layers) = (tokenizer(), model.layers.len());
    // All ids but the last are computed before the first draw.
    let prefill = |ids: &[u32]| {
        let (job, _) = job(ids.to_vec(), &tokenizer, &[]);
        let sampler = Sampler::new(job.options.clone(), 0, ids, &[], model.vocab_size).unwrap();
        let caches = Caches::new(&specs, storage, 1, 100);
        Prefill::new(Row::new(job, sampler, 30), caches, 0, false)
    };
    let logits = |ids: &[u32], caches: &mut Caches| {
        let ids = Indices::from_u32(ids, &[ids.len() as i32, 1]).unwrap();
        let h = model.hidden(&ids, caches, &mut StepCapture::default()).unwrap();
        let logits = ops::astype(&model.logits(&h).unwrap(), Dtype::F32).unwrap();
        let values = logits.to_vec_f32().unwrap();
        values.chunks(model.vocab_size as usize).map(<[f32]>::to_vec).collect::<Vec<_>>()
    };
    let prompts: [Vec<u32>; 3] =
        [5, 9, 9].map(|count| (0..count).map(|id| id * 37 + count).collect());
    let mut together = prefill(&prompts[0]);
    for prompt in &prompts[1..] {
        let other = prefill(prompt);
        let kind = together.waiting(6).kind;
        assert!(kind.is_some() && kind == other.waiting(6).kind);
        together.join(vec![other], &mut Dispatcher::default()).unwrap();
    }
    let mut found = Vec::new();
    for (positions, ended) in [(3 * 6, vec![4]), (2 * 2, vec![8, 8])] {
        assert_eq!(together.waiting(6).positions(), positions);
        advance(&mut together, (&model, &Ranks::none()), 6, layers - 1);
        assert!(together.is_between_layers() && together.waiting(6).kind.is_none());
        advance(&mut together, (&model, &Ranks::none()), 6, 1);
        let Computed { rows, mut caches, .. } =
            together.end_chunk(&mut Dispatcher::default()).unwrap().unwrap();
        assert_eq!(caches.offsets(), ended);
        let last: Vec<u32> = rows.iter().map(|row| *row.ids.last().unwrap()).collect();
        found.extend(logits(&last, &mut caches));
    }
    assert!(together.is_empty());
    for (prompt, found) in prompts.iter().zip(found) {
        let mut alone = prefill(prompt);
        while alone.waiting(6).left > 0 {
            advance(&mut alone, (&model, &Ranks::none()), 6, layers);
        }
        let Computed { mut caches, .. } =
            alone.end_chunk(&mut Dispatcher::default()).unwrap().unwrap();
        let expected = &logits(&prompt[prompt.len() - 1..], &mut caches)[0];
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-4, "{prompt:?}: off by {worst}");
    }
}
