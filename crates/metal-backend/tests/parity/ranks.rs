//! Ranks that compute a model together, each with a part of the weights.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use inference_core::{GenerateOptions, LoadOptions, Prompt, Ranks, TextModel};
use serde_json::{Value as Json, json};

use crate::fixtures::{Checkpoint, backend, greedy, ids, root, token_ids};

/// Addresses that were free a moment ago.
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let bind = |_| TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners: Vec<TcpListener> = (0..count).map(bind).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

/// What a rank is asked to do.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Lengths of the prompts that it goes on with, one after the other.
    pub lengths: Vec<u32>,
    pub max_tokens: usize,
    /// For draws at temperature 1; without it they are greedy.
    pub seed: Option<u64>,
    /// Tokens after which it leaves.
    pub leaves_after: Option<usize>,
    /// One of the adapters of the fixtures.
    pub adapter: Option<&'static str>,
}

/// What came of it.
#[derive(Debug)]
pub struct Found {
    pub tokens: Vec<Vec<u32>>,
    pub weight_bytes: u64,
    pub parameters: u64,
    /// Why there are no more tokens, and why there are none for what is asked next.
    pub errors: Vec<String>,
    /// What loading it says where it fails.
    pub refusal: Option<String>,
}

/// The name of the test that is a rank where it is asked to be one.
const RANK: &str = "ranks::ranks_go_on_with_what_the_first_one_draws";
/// Where that test finds what it is asked to do.
const VARIABLE: &str = "PARITY_RANK";
/// What its answer begins with.
const ANSWER: &str = "the rank's answer: ";

/// What each rank makes of its part of a model, by rank: a process each, as MLX bounds what all threads of one have
/// under way together. `folders` has one for each rank.
pub fn of_ranks(folders: &[&Path], work: impl Fn(usize) -> Work) -> Vec<Found> {
    let addresses: Vec<String> =
        free_addresses(folders.len()).iter().map(SocketAddr::to_string).collect();
    let start = |(rank, folder): (usize, &&Path)| {
        let Work { lengths, max_tokens, seed, leaves_after, adapter } = work(rank);
        let asked = json!({
            "rank": rank, "addresses": addresses, "folder": folder, "lengths": lengths,
            "max_tokens": max_tokens, "seed": seed, "leaves_after": leaves_after,
            "adapter": adapter,
        });
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([RANK, "--exact", "--nocapture"]);
        command
            .env(VARIABLE, asked.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ranks: Vec<Child> = folders.iter().enumerate().map(start).collect();
    let end = |rank: Child| rank.wait_with_output().unwrap();
    let ends: Vec<Output> = ranks.into_iter().map(end).collect();
    ends.iter().enumerate().map(|(rank, end)| found(rank, end)).collect()
}

fn found(rank: usize, end: &Output) -> Found {
    let output = String::from_utf8_lossy(&end.stderr);
    let answer = output.lines().find_map(|line| Some(line.split_once(ANSWER)?.1));
    let answer: Json = serde_json::from_str(
        answer.unwrap_or_else(|| panic!("rank {rank} ended with {}: {output}", end.status)),
    )
    .unwrap();
    let texts = |key: &str| answer[key].as_array().unwrap().iter();
    Found {
        tokens: texts("tokens").map(ids).collect(),
        weight_bytes: answer["weight_bytes"].as_u64().unwrap(),
        parameters: answer["parameters"].as_u64().unwrap(),
        errors: texts("errors").map(|error| error.as_str().unwrap().to_owned()).collect(),
        refusal: answer["refusal"].as_str().map(str::to_owned),
    }
}

/// Does what a process is asked to, and tells what came of it.
fn be_a_rank(asked: &str) {
    let asked: Json = serde_json::from_str(asked).unwrap();
    let addresses = asked["addresses"].as_array().unwrap().iter();
    let ranks = Ranks {
        rank: asked["rank"].as_u64().unwrap() as usize,
        addresses: addresses.map(|address| address.as_str().unwrap().parse().unwrap()).collect(),
    };
    let adapter_path = asked["adapter"].as_str().map(|name| root().join("adapters").join(name));
    let options = LoadOptions { ranks: Some(ranks), adapter_path, ..plain() };
    let folder = Path::new(asked["folder"].as_str().unwrap());
    let mut answer = json!({
        "tokens": [], "weight_bytes": 0, "parameters": 0, "errors": [], "refusal": null
    });
    metal_backend::register().unwrap();
    match inference_core::load_model(folder, &options) {
        Err(error) => answer["refusal"] = error.to_string().into(),
        Ok(model) => {
            answer["weight_bytes"] = model.info().weight_bytes.into();
            answer["parameters"] = model.info().num_parameters.into();
            let mut tokens = Vec::new();
            let mut errors = Vec::new();
            let seed = asked["seed"].as_u64();
            let max_tokens = asked["max_tokens"].as_u64().unwrap() as usize;
            let greedy = greedy(max_tokens);
            let options = match seed {
                None => greedy,
                Some(_) => GenerateOptions { temperature: Some(1.0), seed, ..greedy },
            };
            let most = asked["leaves_after"].as_u64().map_or(usize::MAX, |most| most as usize);
            for length in ids(&asked["lengths"]) {
                match model.generate(&prompt(&*model, length), &options) {
                    Err(error) => errors.push(error.to_string()),
                    Ok(generation) => {
                        let (mut own, mut error) = (Vec::new(), None);
                        for token in generation.take(most) {
                            match token {
                                Ok(token) => own.push(token.id),
                                Err(found) => error = Some(found.to_string()),
                            }
                        }
                        tokens.push(own);
                        errors.extend(error);
                    }
                }
            }
            answer["tokens"] = json!(tokens);
            answer["errors"] = json!(errors);
        }
    }
    eprintln!("{ANSWER}{answer}");
}

/// How models are loaded here.
fn plain() -> LoadOptions {
    let dtype = Some(inference_core::Dtype::F32);
    LoadOptions {
        dtype,
        backend: Some("cpu".into()),
        prefill_chunk: Some(64),
        ..LoadOptions::default()
    }
}

fn prompt(model: &dyn TextModel, length: u32) -> Prompt {
    let known = model.info().vocab_size as u32;
    Prompt::Ids((0..length).map(|at| 3 + (at * 7 + at * at) % (known - 3)).collect())
}

fn tokens(model: &dyn TextModel, length: u32, options: &GenerateOptions) -> Vec<u32> {
    let generation = model.generate(&prompt(model, length), options).unwrap();
    token_ids(&generation.map(|token| token.unwrap()).collect::<Vec<_>>())
}

/// Whether ranks are honoured here; on a GPU they are refused by name.
fn are_here() -> bool {
    backend() == "cpu" && std::env::var("ML_CPU_KERNELS").as_deref() != Ok("off")
}

/// Greedy tokens of ranks are those of the whole, and each rank holds less.
fn compute_what_one_computes(name: &str, counts: &[usize]) {
    if !are_here() {
        return;
    }
    let checkpoint = Checkpoint::new(name);
    let whole = checkpoint.load(plain());
    let bytes = whole.info().weight_bytes;
    let work = Work { lengths: vec![1, 150], max_tokens: 24, ..Work::default() };
    let expected: Vec<_> =
        work.lengths.iter().map(|length| tokens(&*whole, *length, &greedy(24))).collect();
    for &count in counts {
        let folders = vec![checkpoint.folder(); count];
        for (rank, found) in of_ranks(&folders, |_| work.clone()).into_iter().enumerate() {
            let which = format!("{name}: rank {rank} of {count}: {found:?}");
            assert_eq!(found.tokens, expected, "{which}");
            assert_eq!(found.parameters, whole.info().num_parameters, "{which}");
            assert!(found.weight_bytes < bytes, "{which}: all {bytes} bytes");
        }
    }
}

#[test]
fn dense_models_of_ranks_have_the_tokens_of_one() {
    compute_what_one_computes("llama", &[2, 3]);
    compute_what_one_computes("qwen3", &[2, 3]);
    compute_what_one_computes("qwen2", &[2]);
}

#[test]
fn models_with_windows_have_them_too() {
    compute_what_one_computes("gemma3_text", &[2, 3]);
    compute_what_one_computes("gpt_oss", &[2]);
}

#[test]
fn mixtures_have_them_too() {
    compute_what_one_computes("qwen3_moe", &[2, 3]);
    compute_what_one_computes("mixtral", &[2]);
    compute_what_one_computes("granitemoehybrid", &[2]);
}

#[test]
fn hybrids_have_them_too() {
    compute_what_one_computes("qwen3_5", &[2, 3]);
    compute_what_one_computes("qwen3_5_moe", &[2]);
    compute_what_one_computes("nemotron_h", &[2]);
    compute_what_one_computes("falcon_h1", &[2]);
}

#[test]
fn packed_models_have_them_too() {
    compute_what_one_computes("llama-4bit-g64", &[2]);
    compute_what_one_computes("qwen3-mxfp4", &[2]);
    compute_what_one_computes("qwen3-nvfp4", &[2, 3]);
    compute_what_one_computes("qwen3-fp8", &[2]);
    compute_what_one_computes("qwen3_moe-4bit-g64", &[2]);
    compute_what_one_computes("qwen3_5_moe-4bit-g32", &[2]);
}

/// Checkpoints, each with an adapter of theirs.
const ADAPTERS: [(&str, &str); 7] = [
    ("llama", "llama-lora"),
    ("llama-4bit-g64", "llama-lora-peft"),
    ("qwen3", "qwen3-lora"),
    ("phi3", "phi3-lora"),
    ("qwen3_moe", "qwen3_moe-lora"),
    ("qwen3_moe", "qwen3_moe-experts-lora"),
    ("gpt_oss", "gpt_oss-experts-lora"),
];

#[test]
fn adapters_of_ranks_have_the_tokens_of_one() {
    if !are_here() {
        return;
    }
    for (name, adapter) in ADAPTERS {
        let checkpoint = Checkpoint::new(name);
        let adapter_path = Some(root().join("adapters").join(adapter));
        let whole = checkpoint.load(LoadOptions { adapter_path, ..plain() });
        let expected = tokens(&*whole, 70, &greedy(24));
        assert_ne!(expected, tokens(&*checkpoint.load(plain()), 70, &greedy(24)), "{adapter}");
        for count in [2, 3] {
            let work = || Work {
                lengths: vec![70],
                max_tokens: 24,
                adapter: Some(adapter),
                ..Work::default()
            };
            for found in of_ranks(&vec![checkpoint.folder(); count], |_| work()) {
                assert_eq!(found.tokens, std::slice::from_ref(&expected), "{adapter}: {found:?}");
            }
        }
    }
}

#[test]
fn layers_that_are_not_split_are_computed_by_every_rank() {
    compute_what_one_computes("olmo2", &[2]);
    compute_what_one_computes("deepseek_v3", &[2]);
    compute_what_one_computes("laguna", &[2]);
    compute_what_one_computes("muse_glimmer", &[2]);
    compute_what_one_computes("gemma4_e", &[2, 3]);
    compute_what_one_computes("gemma3n", &[2]);
    compute_what_one_computes("phi3", &[2]);
}

#[test]
fn ranks_go_on_with_what_the_first_one_draws() {
    if let Ok(asked) = std::env::var(VARIABLE) {
        return be_a_rank(&asked);
    }
    if !are_here() {
        return;
    }
    let checkpoint = Checkpoint::new("qwen3");
    // Each rank has a seed of its own; only that of the first one counts.
    let found = of_ranks(&[checkpoint.folder(); 2], |rank| Work {
        lengths: vec![20],
        max_tokens: 40,
        seed: Some(17 + rank as u64),
        ..Work::default()
    });
    let options = GenerateOptions { temperature: Some(1.0), seed: Some(17), ..greedy(40) };
    let alone = tokens(&*checkpoint.load(plain()), 20, &options);
    assert_eq!(found[0].tokens, std::slice::from_ref(&alone));
    assert_eq!(found[1].tokens, [alone]);
}

#[test]
fn a_rank_that_leaves_is_the_error_of_what_the_others_compute() {
    if !are_here() {
        return;
    }
    let checkpoint = Checkpoint::new("llama");
    let started = Instant::now();
    let found = of_ranks(&[checkpoint.folder(); 3], |rank| Work {
        lengths: if rank == 1 { vec![30] } else { vec![30, 3] },
        max_tokens: 400,
        leaves_after: (rank == 1).then_some(5),
        ..Work::default()
    });
    assert!(started.elapsed() < Duration::from_secs(30));
    for rank in [0, 2] {
        let errors = &found[rank].errors;
        assert_eq!(errors.len(), 2, "rank {rank}: {found:?}");
        assert!(errors.iter().all(|error| error.contains("is lost")), "rank {rank}: {errors:?}");
    }
}

#[test]
fn ranks_with_different_models_do_not_begin() {
    if !are_here() {
        return;
    }
    let (first, second) = (Checkpoint::new("llama"), Checkpoint::new("qwen3"));
    for found in of_ranks(&[first.folder(), second.folder()], |_| Work::default()) {
        let refusal = found.refusal.expect("they do not fit");
        assert!(refusal.contains("other model files"), "{refusal}");
    }
}

#[test]
fn what_ranks_do_not_do_is_refused_by_name() {
    let checkpoint = Checkpoint::new("llama");
    let of = |options: LoadOptions| {
        checkpoint.try_load(options).map(|_| ()).expect_err("refused").to_string()
    };
    let ranks = |rank, addresses| Some(Ranks { rank, addresses });
    if !are_here() {
        let error =
            of(LoadOptions { ranks: ranks(0, free_addresses(2)), ..LoadOptions::default() });
        assert!(error.contains("ranks") && error.contains("cpu"), "{error}");
        return;
    }
    let two = || ranks(1, free_addresses(2));
    let parallel_slots = Some(4);
    let error = of(LoadOptions { ranks: two(), parallel_slots, ..LoadOptions::default() });
    assert!(error.contains("parallel_slots"), "{error}");
    let error = of(LoadOptions { ranks: ranks(2, free_addresses(2)), ..LoadOptions::default() });
    assert!(error.contains("none of 2"), "{error}");
}
