//! Ranks that compute a model together, each with a part of the weights.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use inference_core::{
    GenerateOptions, Generation, LoadOptions, Prompt, RankSplit, Ranks, TextModel, Token,
};
use serde_json::{Value as Json, json};

use crate::fixtures::{Checkpoint, backend, greedy, ids, root};

/// Addresses that were free a moment ago.
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let bind = |_| TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners: Vec<TcpListener> = (0..count).map(bind).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

/// The work of the first rank.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Lengths of the prompts that it goes on with, all together.
    pub lengths: Vec<u32>,
    pub max_tokens: usize,
    /// For draws at temperature 1 and with a penalty; without it they are greedy.
    pub seed: Option<u64>,
    /// Tokens after which the first prompt's consumer leaves.
    pub leaves_after: Option<usize>,
    /// One of the adapters of the fixtures.
    pub adapter: Option<&'static str>,
    /// The cache in so many bits.
    pub kv_bits: Option<usize>,
    /// The bytes that each rank may take.
    pub memory_limit: Option<u64>,
    /// Nothing is told of tokens but their ids.
    pub ids_alone: bool,
    /// Each rank has some of the layers.
    pub pipeline: bool,
    /// For draws among so many of the most likely ids alone, without a penalty.
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
}

/// The results of a rank.
#[derive(Debug)]
pub struct Found {
    /// In the first rank.
    pub tokens: Vec<Vec<u32>>,
    pub weight_bytes: u64,
    pub parameters: u64,
    /// The most bytes that keys and values took, in the first rank.
    pub kv_bytes: u64,
    /// Errors of a request to it, and of following the first rank.
    pub errors: Vec<String>,
    /// The error of the load, where it fails.
    pub refusal: Option<String>,
}

/// The name of the test that is a rank where it is asked to be one.
const RANK: &str = "ranks::ranks_draw_as_one_does";
/// The variable with the work of that test.
const VARIABLE: &str = "PARITY_RANK";
/// The beginning of its answer.
const ANSWER: &str = "the rank's answer: ";

/// Returns the results of each rank. Each is a process, as MLX bounds what all threads of one have
/// in flight together. `folders` has one for each rank.
pub fn of_ranks(folders: &[&Path], work: &Work) -> Vec<Found> {
    let addresses: Vec<String> =
        free_addresses(folders.len()).iter().map(SocketAddr::to_string).collect();
    let start = |(rank, folder): (usize, &&Path)| {
        let Work { lengths, max_tokens, seed, leaves_after, adapter, kv_bits, .. } = work;
        let asked = json!({
            "rank": rank, "addresses": addresses, "folder": folder, "lengths": lengths,
            "max_tokens": max_tokens, "seed": seed, "leaves_after": leaves_after,
            "adapter": adapter, "kv_bits": kv_bits, "memory_limit": work.memory_limit,
            "ids_alone": work.ids_alone, "pipeline": work.pipeline,
            "top_k": work.top_k, "top_p": work.top_p,
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
        kv_bytes: answer["kv_bytes"].as_u64().unwrap(),
        errors: texts("errors").map(|error| error.as_str().unwrap().to_owned()).collect(),
        refusal: answer["refusal"].as_str().map(str::to_owned),
    }
}

/// Does what a process is asked to, and tells what came of it.
fn be_a_rank(asked: &str) {
    let asked: Json = serde_json::from_str(asked).unwrap();
    let addresses = asked["addresses"].as_array().unwrap().iter();
    let split = match asked["pipeline"] == true {
        true => RankSplit::Layers,
        false => RankSplit::Tensors,
    };
    let ranks = Ranks {
        split,
        group: 0,
        rank: asked["rank"].as_u64().unwrap() as usize,
        addresses: addresses.map(|address| address.as_str().unwrap().parse().unwrap()).collect(),
    };
    let adapter_path = asked["adapter"].as_str().map(|name| root().join("adapters").join(name));
    let kv_bits = asked["kv_bits"].as_u64().map(|bits| bits as usize);
    let rank = ranks.rank;
    let memory_limit = asked["memory_limit"].as_u64();
    let options =
        LoadOptions { ranks: Some(ranks), adapter_path, kv_bits, memory_limit, ..plain() };
    let folder = Path::new(asked["folder"].as_str().unwrap());
    let mut answer = json!({
        "tokens": [], "weight_bytes": 0, "parameters": 0, "kv_bytes": 0, "errors": [],
        "refusal": null
    });
    metal_backend::register().unwrap();
    match inference_core::load_model(folder, &options) {
        Err(error) => answer["refusal"] = error.to_string().into(),
        Ok(model) => {
            answer["weight_bytes"] = model.info().weight_bytes.into();
            answer["parameters"] = model.info().num_parameters.into();
            let work = Work {
                lengths: ids(&asked["lengths"]),
                max_tokens: asked["max_tokens"].as_u64().unwrap() as usize,
                seed: asked["seed"].as_u64(),
                leaves_after: asked["leaves_after"].as_u64().map(|most| most as usize),
                ids_alone: asked["ids_alone"] == true,
                top_k: asked["top_k"].as_u64().map(|count| count as usize),
                top_p: asked["top_p"].as_f64().map(|p| p as f32),
                ..Work::default()
            };
            if rank == 0 {
                let (tokens, kv_bytes) = answers(&*model, &work);
                answer["tokens"] = json!(tokens);
                answer["kv_bytes"] = kv_bytes.into();
            } else {
                let refused = model.generate(&Prompt::Ids(vec![1]), &greedy(1)).err();
                let end = model.follow().err();
                let errors: Vec<String> =
                    refused.iter().chain(&end).map(|e| e.to_string()).collect();
                answer["errors"] = json!(errors);
            }
        }
    }
    eprintln!("{ANSWER}{answer}");
}

/// The tokens of all prompts, asked for together, and the most bytes that their keys and values
/// took.
fn answers(model: &dyn TextModel, work: &Work) -> (Vec<Vec<u32>>, u64) {
    let greedy = GenerateOptions { logprobs: !work.ids_alone, ..greedy(work.max_tokens) };
    let options = match work.seed {
        None => greedy,
        seed => GenerateOptions {
            temperature: Some(1.0),
            seed,
            repetition_penalty: work.top_k.is_none().then_some(1.1),
            top_k: work.top_k,
            top_p: work.top_p,
            ..greedy
        },
    };
    let begin = |length: &u32| model.generate(&prompt(model, *length), &options).unwrap();
    let begun: Vec<_> = work.lengths.iter().map(begin).collect();
    let mut most = work.leaves_after;
    let mut kept = 0;
    let tokens = |generation: Generation| {
        let most = most.take().unwrap_or(usize::MAX);
        let token = |token: inference_core::Result<Token>| {
            kept = kept.max(model.status().kv_bytes);
            token.unwrap().id
        };
        generation.take(most).map(token).collect()
    };
    (begun.into_iter().map(tokens).collect(), kept)
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

/// Returns true when ranks compute on this CPU here; on a GPU of Apple they are refused by name.
fn are_here() -> bool {
    backend() == "cpu" && std::env::var("ML_CPU_KERNELS").as_deref() != Ok("off")
}

/// Greedy tokens of ranks are those of the whole, for several requests at once, and each rank holds
/// less.
pub fn compute_what_one_computes(name: &str, counts: &[usize]) {
    let work = Work { lengths: vec![1, 150, 40, 9], max_tokens: 24, ..Work::default() };
    compute(name, counts, &work);
}

/// Why each of so many ranks refuses to load the model; nothing where there are no ranks.
pub fn refusals(name: &str, count: usize, work: &Work) -> Vec<String> {
    if !are_here() {
        return Vec::new();
    }
    let checkpoint = Checkpoint::new(name);
    let found = of_ranks(&vec![checkpoint.folder(); count], work);
    found.into_iter().map(|found| found.refusal.expect("refused")).collect()
}

/// Tokens of ranks are those of one process, and each rank holds less.
pub fn compute(name: &str, counts: &[usize], work: &Work) {
    if !are_here() {
        return;
    }
    let checkpoint = Checkpoint::new(name);
    let adapter_path = work.adapter.map(|adapter| root().join("adapters").join(adapter));
    let whole = checkpoint.load(LoadOptions { adapter_path, kv_bits: work.kv_bits, ..plain() });
    let bytes = whole.info().weight_bytes;
    let (expected, _) = answers(&*whole, work);
    for &count in counts {
        let found = of_ranks(&vec![checkpoint.folder(); count], work);
        assert_eq!(found[0].tokens, expected, "{name}: {count} ranks");
        for (rank, found) in found.into_iter().enumerate() {
            let which = format!("{name}: rank {rank} of {count}: {found:?}");
            assert_eq!(found.refusal, None, "{which}");
            assert_eq!(found.parameters, whole.info().num_parameters, "{which}");
            let is_less = found.weight_bytes < bytes || work.adapter.is_some();
            assert!(is_less, "{which}: all {bytes} bytes");
            // Another rank than the first takes no request, and ends with the first one.
            assert_eq!(found.errors.len(), usize::from(rank > 0), "{which}");
            assert!(found.errors.iter().all(|error| error.contains("rank 0 takes the requests")));
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
    let others = "mixtral dots1 bailing_moe bailing_moe_v1 granitemoe_swa llama4_text";
    others.split(' ').for_each(|name| compute_what_one_computes(name, &[2]));
}

#[test]
fn hybrids_have_them_too() {
    compute_what_one_computes("qwen3_5", &[2, 3]);
    compute_what_one_computes("qwen3_5_moe", &[2]);
    compute_what_one_computes("qwen3_next", &[2]);
    compute_what_one_computes("kimi_linear", &[2, 3]);
    compute_what_one_computes("nemotron_h", &[2, 3]);
    compute_what_one_computes("falcon_h1", &[2, 4]);
    compute_what_one_computes("granitemoehybrid", &[2, 4]);
    compute_what_one_computes("lfm2", &[2, 3]);
    compute_what_one_computes("lfm2_moe", &[2]);
}

#[test]
fn each_rank_has_the_states_of_its_heads_alone() {
    if !are_here() {
        return;
    }
    let work = Work { lengths: vec![40], max_tokens: 24, ..Work::default() };
    for name in ["qwen3_next", "falcon_h1", "granitemoehybrid"] {
        let checkpoint = Checkpoint::new(name);
        let (_, whole) = answers(&*checkpoint.load(plain()), &work);
        let found = of_ranks(&[checkpoint.folder(); 2], &work);
        let half = found[0].kv_bytes;
        assert!(half > 0 && 2 * half <= whole, "{name}: {half} of {whole}");
    }
}

#[test]
fn each_rank_has_the_rows_of_its_ids_alone() {
    if !are_here() {
        return;
    }
    // Tied, with an output layer of its own, with embeddings of each layer.
    for (name, most) in [("qwen3", 0.52), ("llama", 0.52), ("gemma3n", 0.65)] {
        let checkpoint = Checkpoint::new(name);
        let whole = checkpoint.load(plain()).info().weight_bytes as f64;
        for found in of_ranks(&[checkpoint.folder(); 2], &Work::default()) {
            let share = found.weight_bytes as f64 / whole;
            assert!(share < most, "{name}: {share}");
        }
    }
}

#[test]
fn most_likely_ids_are_found_without_the_logits_of_other_ranks() {
    let lengths = vec![1, 150, 40, 9];
    let work = Work { lengths, max_tokens: 40, ids_alone: true, ..Work::default() };
    // Tied, with an output layer of its own, with squashed logits, packed.
    for name in ["qwen3", "llama", "gemma2", "qwen3-mxfp4"] {
        compute(name, &[2, 3], &work);
    }
}

#[test]
fn packed_models_have_them_too() {
    compute_what_one_computes("llama-4bit-g64", &[2]);
    compute_what_one_computes("qwen3-mxfp4", &[2]);
    compute_what_one_computes("qwen3-nvfp4", &[2, 3]);
    compute_what_one_computes("qwen3-fp8", &[2]);
    compute_what_one_computes("qwen3_moe-4bit-g64", &[2]);
}

#[test]
fn packed_hybrids_have_them_too() {
    compute_what_one_computes("qwen3_5_moe-4bit-g32", &[2]);
    compute_what_one_computes("qwen3_5_moe-mxfp4", &[2]);
    compute_what_one_computes("nemotron_h-4bit-g32", &[2, 3]);
    compute_what_one_computes("lfm2_moe-6bit-g32", &[2, 3]);
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
    for (name, adapter) in ADAPTERS {
        let lengths = vec![70, 5];
        let work = Work { lengths, max_tokens: 24, adapter: Some(adapter), ..Work::default() };
        compute(name, &[2, 3], &work);
    }
}

#[test]
fn packed_caches_of_ranks_have_the_tokens_of_one() {
    let lengths = vec![70, 5, 200];
    let work = Work { lengths, max_tokens: 24, kv_bits: Some(8), ..Work::default() };
    compute("qwen3", &[2], &work);
    compute("qwen3_moe", &[2], &work);
}

#[test]
fn latent_attention_of_ranks_has_some_heads_each() {
    let names = "deepseek_v2 deepseek_v32 glm4_moe_lite glm_moe_dsa kimi_linear mistral4";
    names.split(' ').for_each(|name| compute_what_one_computes(name, &[2]));
}

#[test]
fn layers_that_are_not_split_are_computed_by_every_rank() {
    "mamba olmo2 recurrent_gemma".split(' ').for_each(|name| compute_what_one_computes(name, &[2]));
    compute_what_one_computes("laguna", &[2]);
    compute_what_one_computes("muse_glimmer", &[2]);
    compute_what_one_computes("gemma4_e", &[2, 3]);
    compute_what_one_computes("gemma3n", &[2]);
    compute_what_one_computes("phi3", &[2]);
}

#[test]
fn ranks_draw_as_one_does() {
    if let Ok(asked) = std::env::var(VARIABLE) {
        return be_a_rank(&asked);
    }
    let work = Work { lengths: vec![20, 3, 90], max_tokens: 40, seed: Some(17), ..Work::default() };
    for name in ["qwen3", "gemma3_text", "qwen3_moe", "qwen3_5"] {
        compute(name, &[2], &work);
    }
    compute("qwen3", &[3], &work);
}

#[test]
fn draws_among_few_ids_are_those_of_one() {
    for pipeline in [false, true] {
        for (top_k, top_p) in [(40, None), (20, Some(0.9)), (5, Some(0.3))] {
            let work = Work {
                lengths: vec![20, 3, 90],
                max_tokens: 40,
                seed: Some(17),
                ids_alone: true,
                top_k: Some(top_k),
                top_p,
                pipeline,
                ..Work::default()
            };
            for name in ["qwen3", "llama"] {
                compute(name, &[2, 3], &work);
            }
        }
    }
}

#[test]
fn ranks_go_on_where_a_consumer_leaves() {
    let lengths = vec![20, 300, 90];
    let work = Work { lengths, max_tokens: 60, leaves_after: Some(5), ..Work::default() };
    compute("qwen3", &[3], &work);
}

#[test]
fn rows_that_are_set_back_go_on_as_they_would_alone() {
    if !are_here() {
        return;
    }
    let checkpoint = Checkpoint::new("qwen3");
    let wide = Work { lengths: vec![3; 4], max_tokens: 500, seed: Some(3), ..Work::default() };
    // Of two ranks, each has one head of keys; of three, each has both.
    for (count, values) in [(2, 64), (3, 128)] {
        // Four layers have so many values of a key and of a value, in F32.
        let row = 503 * 4 * 2 * values * 4;
        let folders = vec![checkpoint.folder(); count];
        let free = of_ranks(&folders, &wide);
        assert!(free[0].kv_bytes >= 4 * row, "{count} ranks: {}", free[0].kv_bytes);
        // Room for two and a half rows.
        let limit = free[0].weight_bytes + row * 5 / 2;
        let narrow = of_ranks(&folders, &Work { memory_limit: Some(limit), ..wide.clone() });
        assert!(narrow[0].kv_bytes < 3 * row, "{count} ranks: {}", narrow[0].kv_bytes);
        assert_eq!(narrow[0].tokens, free[0].tokens, "{count} ranks");
        assert!(narrow[0].tokens.iter().all(|tokens| tokens.len() == 500));
    }
}

#[test]
fn ranks_with_different_models_do_not_begin() {
    if !are_here() {
        return;
    }
    let (first, second) = (Checkpoint::new("llama"), Checkpoint::new("qwen3"));
    for found in of_ranks(&[first.folder(), second.folder()], &Work::default()) {
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
    let ranks =
        |rank, addresses| Some(Ranks { rank, addresses, group: 0, split: RankSplit::default() });
    if !are_here() && (backend() == "cpu" || cfg!(target_os = "macos")) {
        let error =
            of(LoadOptions { ranks: ranks(0, free_addresses(2)), ..LoadOptions::default() });
        assert!(error.contains("ranks") && error.contains("cpu"), "{error}");
        return;
    }
    let error = of(LoadOptions { ranks: ranks(2, free_addresses(2)), ..LoadOptions::default() });
    assert!(error.contains("none of 2"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = of(LoadOptions {
        ranks: ranks(0, free_addresses(2)),
        prefix_cache: Some(1 << 20),
        prefix_cache_dir: Some(folder.path().to_owned()),
        ..LoadOptions::default()
    });
    assert!(error.contains("prefix_cache_dir") && error.contains("on disk"), "{error}");
}
