//! A model on a GPU whose memory another process takes: what is held, what fails and what goes on.
//!
//! The other process is this program once more, told by the environment to hold what is free.

#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]
#![allow(
    clippy::print_stdout,
    reason = "what was held and what failed is told to whoever reads the log"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use inference_core::{Error, GenerateOptions, LoadOptions, Prompt, TextModel};
use metal_backend::load_random;
use mlx_ffi::{Device, memory, use_device};

/// The bytes that the other process leaves free.
const LEAVES: &str = "ML_TEST_LEAVES_FREE";

/// The sizes of Qwen3 0.6B with 4 bits.
const SMALL: &str = r#"{
    "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 40960,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "quantization": {"group_size": 64, "bits": 4}
}"#;

/// Bytes that a process may hold besides arrays: kernels, graphs, the driver's own, what is kept.
const BESIDE: u64 = 3 << 30;

fn some(max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(max_tokens),
        temperature: Some(0.0),
        ignore_eos: true,
        ..Default::default()
    }
}

fn prompt(row: usize, length: usize) -> Prompt {
    Prompt::Ids((0..length).map(|at| ((row * 7919 + at * 104_729) % 151_936) as u32).collect())
}

fn load() -> Result<Box<dyn TextModel>, Error> {
    let options = LoadOptions { parallel_slots: Some(256), ..Default::default() };
    load_random(SMALL, &options)
}

/// The ids of a request, or why it failed after how many of them; `told` hears of the first one.
fn run(
    model: &dyn TextModel,
    prompt: &Prompt,
    count: usize,
    told: &mpsc::Sender<()>,
) -> Result<Vec<u32>, Error> {
    let mut ids = Vec::new();
    for token in model.generate(prompt, &some(count))? {
        ids.push(token?.id);
        if ids.len() == 1 {
            let _ = told.send(());
        }
    }
    Ok(ids)
}

fn generate(model: &dyn TextModel, prompt: &Prompt, count: usize) -> Result<Vec<u32>, Error> {
    run(model, prompt, count, &mpsc::channel().0)
}

/// In the other process: holds what is free once it is told to, until nobody listens any more. True
/// there.
fn is_the_other() -> bool {
    let Ok(leaves) = std::env::var(LEAVES) else { return false };
    use_device(Device::Gpu).unwrap();
    let free = || memory::of_device().expect("a device of CUDA").free;
    println!("there are {}", free());
    let _ = std::io::stdin().read_exact(&mut [0]);
    let leaves: u64 = leaves.parse().unwrap();
    // Where the first process takes some meanwhile, as much is not there any more, and nothing is
    // held.
    for _ in 0..50 {
        memory::reserve(free().saturating_sub(leaves) as usize);
        if free() < leaves + (4 << 30) {
            break;
        }
    }
    println!("there are {}", free());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    true
}

/// A process that holds all memory but some bytes, as long as this lives.
struct Other {
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Other {
    /// One that has started, and holds nothing yet.
    fn leaving(test: &str, bytes: u64) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", test, "--ignored", "--nocapture"]).env(LEAVES, bytes.to_string());
        let mut process =
            process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let says = BufReader::new(process.stdout.take().unwrap());
        let mut other = Other { process, says };
        other.hears();
        other
    }

    fn hears(&mut self) -> String {
        let mut line = String::new();
        while !line.contains("there are ") {
            line.clear();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "the other process has ended");
        }
        line
    }

    /// Takes the memory.
    fn takes(mut self) -> Other {
        self.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        println!("another process has taken memory: {}", self.hears().trim());
        self
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.says.read_to_end(&mut Vec::new());
        let _ = self.process.wait();
    }
}

fn is_by_name(error: &Error) -> bool {
    println!("failed: {error}");
    matches!(error, Error::OutOfMemory { .. } | Error::Memory { .. })
}

fn held(model: &dyn TextModel) -> u64 {
    model.status().held_bytes.expect("the driver tells")
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn what_a_load_and_requests_leave_behind_is_given_back() {
    let model = load().unwrap();
    let weights = model.info().weight_bytes;
    let loaded = held(&*model);
    println!("held after the load: {} MiB, weights {} MiB", loaded >> 20, weights >> 20);
    assert!(loaded < weights + BESIDE, "{loaded}");
    thread::scope(|scope| {
        for row in 0..64 {
            let model = &model;
            scope.spawn(move || generate(&**model, &prompt(row, 256), 64).unwrap());
        }
    });
    println!("held while busy: {} MiB", held(&*model) >> 20);
    let patience = Instant::now() + Duration::from_secs(10);
    while held(&*model) > weights + BESIDE && Instant::now() < patience {
        thread::sleep(Duration::from_millis(200));
    }
    println!("held when idle: {} MiB", held(&*model) >> 20);
    assert!(held(&*model) < weights + BESIDE);
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn freed_memory_goes_back_at_once_when_a_program_asks() {
    let options = LoadOptions { cache_limit: Some(16 << 30), ..Default::default() };
    let model = load_random(SMALL, &options).unwrap();
    let cached = || memory::cached().unwrap();
    generate(&*model, &prompt(0, 4096), 8).unwrap();
    let kept = cached();
    model.clear_cache().unwrap();
    println!("kept after a request: {} MiB, then {} MiB", kept >> 20, cached() >> 20);
    assert!(kept > 0);
    assert_eq!(cached(), 0);
    // Beside a request that runs, too.
    let mut running = model.generate(&prompt(1, 256), &some(200)).unwrap();
    running.next().unwrap().unwrap();
    model.clear_cache().unwrap();
    assert_eq!(running.count(), 199);
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn under_a_tight_limit_more_requests_than_fit_end_and_hold_no_more() {
    const LIMIT: u64 = 4 << 30;
    const REQUESTS: usize = 128;
    let took = |memory_limit: Option<u64>| {
        let options = LoadOptions { parallel_slots: Some(256), memory_limit, ..Default::default() };
        let model = load_random(SMALL, &options).unwrap();
        let beside = held(&*model) - model.info().weight_bytes;
        let all = |shift: usize| {
            let started = Instant::now();
            thread::scope(|scope| {
                for row in 0..REQUESTS {
                    let model = &model;
                    scope.spawn(move || {
                        let ids = generate(&**model, &prompt(shift + row, 512), 128).unwrap();
                        assert_eq!(ids.len(), 128);
                    });
                }
            });
            started.elapsed()
        };
        let first = all(0);
        let (again, held) = (all(REQUESTS), held(&*model) - beside);
        println!("{memory_limit:?}: {first:?}, then {again:?}; {} MiB are held", held >> 20);
        (again, held)
    };
    let (without, _) = took(None);
    let (with, held) = took(Some(LIMIT));
    assert!(with < 4 * without, "a third of the rows are computed at a time");
    assert!(held < LIMIT + LIMIT / 2, "{held}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_load_beside_a_full_device_fails_by_name_and_a_later_one_works() {
    const NAME: &str = "a_load_beside_a_full_device_fails_by_name_and_a_later_one_works";
    if is_the_other() {
        return;
    }
    // This process has what the driver takes for it.
    drop(load().unwrap());
    let other = Other::leaving(NAME, 100 << 20).takes();
    assert!(is_by_name(&load().err().unwrap()));
    drop(other);
    let model = load().unwrap();
    assert_eq!(generate(&*model, &prompt(1, 20), 5).unwrap().len(), 5);
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_prompt_beside_a_full_device_fails_by_name_and_later_ones_work() {
    const NAME: &str = "a_prompt_beside_a_full_device_fails_by_name_and_later_ones_work";
    if is_the_other() {
        return;
    }
    let model = load().unwrap();
    let expected = generate(&*model, &prompt(1, 300), 20).unwrap();
    for leaves in [20 << 20, 200 << 20, 600 << 20] {
        // What is kept for reuse is given back, and taken by the other.
        thread::sleep(Duration::from_secs(2));
        let other = Other::leaving(NAME, leaves).takes();
        assert!(is_by_name(&generate(&*model, &prompt(2, 30_000), 20).unwrap_err()));
        drop(other);
        assert_eq!(generate(&*model, &prompt(1, 300), 20).unwrap(), expected);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn prompts_whose_memory_is_taken_while_they_are_computed_wait_or_fail_by_name() {
    const NAME: &str = "prompts_whose_memory_is_taken_while_they_are_computed_wait_or_fail_by_name";
    if is_the_other() {
        return;
    }
    let model = load().unwrap();
    let expected = generate(&*model, &prompt(1, 300), 20).unwrap();
    for (wait, leaves) in [(50, 0), (200, 0), (400, 90 << 20), (700, 300 << 20)] {
        let other = Other::leaving(NAME, leaves);
        let ended: Vec<Result<Vec<u32>, Error>> = thread::scope(|scope| {
            let rows: Vec<_> = (0..6)
                .map(|row| {
                    let model = &model;
                    scope.spawn(move || generate(&**model, &prompt(row, 39_000), 40))
                })
                .collect();
            thread::sleep(Duration::from_millis(wait));
            let other = other.takes();
            let ended = rows.into_iter().map(|row| row.join().unwrap()).collect();
            drop(other);
            ended
        });
        let count = ended.iter().flatten().count();
        println!("after {wait} ms, beside {leaves} bytes: {count} of 6 came to their end");
        assert!(ended.iter().filter_map(|row| row.as_ref().err()).all(is_by_name));
        // What holds nothing yet waits for what ends.
        assert!(ended.iter().flatten().all(|ids| ids.len() == 40) && count > 0);
        assert_eq!(generate(&*model, &prompt(1, 300), 20).unwrap(), expected);
        assert_eq!(model.status().running, 0);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_batch_goes_on_with_what_fits_when_another_process_takes_the_device() {
    const NAME: &str = "a_batch_goes_on_with_what_fits_when_another_process_takes_the_device";
    if is_the_other() {
        return;
    }
    let model = load().unwrap();
    let alone = generate(&*model, &prompt(0, 300), 20).unwrap();
    for (many, leaves) in [(24, 0), (24, 150 << 20), (72, 0)] {
        let (told, begun) = mpsc::channel();
        let ended: Vec<Result<Vec<u32>, Error>> = thread::scope(|scope| {
            let rows: Vec<_> = (0..many)
                .map(|row| {
                    let (model, told) = (&model, told.clone());
                    scope.spawn(move || run(&**model, &prompt(row, 1500), 1500, &told))
                })
                .collect();
            for _ in 0..many {
                begun.recv_timeout(Duration::from_secs(60)).expect("all rows begin");
            }
            let other = Other::leaving(NAME, leaves).takes();
            // One more wants a prefill meanwhile.
            let late = generate(&*model, &prompt(99, 5000), 20);
            println!("late: {:?}", late.map(|ids| ids.len()).map_err(|error| error.to_string()));
            thread::sleep(Duration::from_secs(4));
            drop(other);
            rows.into_iter().map(|row| row.join().unwrap()).collect()
        });
        let done = ended.iter().filter(|row| row.is_ok()).count();
        println!("{done} of {} rows came to their end", ended.len());
        assert!(ended.iter().flatten().all(|ids| ids.len() == 1500));
        assert!(ended.iter().filter_map(|row| row.as_ref().err()).all(is_by_name));
        assert!(done > 0);
        assert_eq!(generate(&*model, &prompt(0, 300), 20).unwrap(), alone);
        assert_eq!(model.status().running, 0);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn two_hundred_rows_that_join_and_leave_come_to_their_ends() {
    let model = load().unwrap();
    thread::scope(|scope| {
        for row in 0..200 {
            let model = &model;
            scope.spawn(move || {
                let count = 20 + row % 61;
                let ids = generate(&**model, &prompt(row, 10 + row * 3), count).unwrap();
                assert_eq!(ids.len(), count);
            });
        }
    });
    assert_eq!(model.status().running, 0);
}
