//! The options of a load, and what each does to the model.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use inference_core::{
    CpuActivations, Dtype, Error, Feature, GenerateMetrics, GenerateOptions, Generation,
    LoadOptions, LoadProgress, ModelInfo, Prompt, RankSplit, Ranks, Speculate, TextModel,
    WeightsRead,
};
use mlx_ffi::memory;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as Stored, TensorView, serialize_to_file};

use super::{Walk, prompt};
use crate::fixtures::{Checkpoint, backend, greedy, logprobs, run};
use crate::ranks::{Work, free_addresses, of_ranks};

/// Bytes that may be kept for reuse.
const CACHE: u64 = 123 << 20;

/// Sets each option to a value that shows.
fn asked(adapter: &Path, drafter: &Path) -> LoadOptions {
    LoadOptions {
        backend: Some("none of these".to_owned()),
        context_length: Some(8),
        parallel_slots: Some(1),
        queue_limit: Some(0),
        batch_invariant: true,
        prefix_cache: Some(64 << 20),
        prefix_cache_dir: Some(adapter.join("prefixes")),
        prefix_cache_disk: Some(0),
        kv_bits: Some(8),
        kv_group_size: Some(32),
        gpu_layers: Some(1),
        adapter_path: Some(adapter.to_owned()),
        speculate: Speculate::Ngram,
        draft_model: Some(drafter.to_owned()),
        dtype: Some(Dtype::F32),
        memory_limit: Some(1000),
        cache_limit: Some(CACHE),
        wired_limit: Some(1 << 20),
        prefill_chunk: Some(64),
        threads: Some(cores() + 2),
        cpu_activations: Some(CpuActivations::Int8),
        ranks: Some(Ranks {
            rank: 0,
            addresses: free_addresses(2),
            group: 0,
            split: RankSplit::default(),
        }),
        progress: Some(LoadProgress::new()),
    }
}

/// Asks for each option, beside what it needs to show.
pub fn walk(walk: &mut Walk, model: &dyn TextModel) {
    let adapter = tempfile::tempdir().unwrap();
    write_adapter(walk.checkpoint.folder(), adapter.path());
    let drafter = drafter(walk.checkpoint.folder());
    let LoadOptions {
        backend: other,
        context_length,
        parallel_slots,
        queue_limit,
        batch_invariant,
        prefix_cache,
        prefix_cache_dir,
        prefix_cache_disk,
        kv_bits,
        kv_group_size,
        gpu_layers,
        adapter_path,
        speculate,
        draft_model,
        dtype,
        memory_limit,
        cache_limit,
        wired_limit,
        prefill_chunk,
        threads,
        cpu_activations,
        ranks,
        progress,
    } = asked(adapter.path(), drafter.folder());
    let none = LoadOptions::default;
    let plain = numbers(model);
    let load = |walk: &Walk, options| walk.checkpoint.try_load(options);
    let differs = |model: Box<dyn TextModel>| numbers(&*model) != plain;

    assert_eq!(model.info().device, backend());
    let loaded = inference_core::load_model(
        walk.checkpoint.folder(),
        &LoadOptions { backend: other, ..none() },
    );
    let unknown = loaded.unwrap_err();
    assert!(
        matches!(&unknown, Error::BackendNotRegistered { name, .. } if name == "none of these")
    );

    let short = load(walk, LoadOptions { context_length, ..none() });
    walk.option("context_length", Some(Feature::ContextLength), short.map(differs));
    let wide = load(walk, LoadOptions { dtype, ..none() });
    let is_wide =
        |info: &ModelInfo| info.dtype == "f32" && info.weight_bytes > model.info().weight_bytes;
    walk.option(
        "dtype",
        Some(Feature::Dtype),
        wide.map(|wide| is_wide(wide.info()) && differs(wide)),
    );
    let adapted = load(walk, LoadOptions { adapter_path, ..none() });
    walk.option("adapter_path", Some(Feature::Adapter), adapted.map(differs));
    let by_itself = || LoadOptions { batch_invariant: true, ..none() };
    let looking_up = load(walk, LoadOptions { speculate, ..by_itself() });
    let looks_up = |model: Box<dyn TextModel>| drafts(&*model) > 0 && numbers(&*model) == plain;
    walk.option("speculate", Some(Feature::DraftTokens), looking_up.map(looks_up));
    let drafting = load(walk, LoadOptions { draft_model, ..by_itself() });
    walk.option("draft_model", Some(Feature::DraftModel), drafting.map(looks_up));
    let layers = load(walk, LoadOptions { gpu_layers, ..none() });
    walk.option("gpu_layers", Some(Feature::GpuLayers), layers.map(differs));
    let packed = load(walk, LoadOptions { kv_bits, ..none() });
    let bytes = |model: &dyn TextModel| model.info().kv_bytes_per_token;
    // Nothing grows where every layer has a window.
    let is_packed = |packed: Box<dyn TextModel>| bytes(&*packed) <= bytes(model) && differs(packed);
    walk.option("kv_bits", Some(Feature::KvBits), packed.map(is_packed));
    let groups = load(walk, LoadOptions { kv_bits, kv_group_size, ..none() });
    let larger = load(walk, LoadOptions { kv_bits, kv_group_size: Some(64), ..none() });
    let shown = groups.map(|groups| match larger {
        // Each group has a scale and a bias.
        Ok(larger) => bytes(&*larger) < bytes(&*groups),
        Err(Error::Unsupported { what, .. }) => what == "kv_group_size",
        Err(_) => false,
    });
    walk.option("kv_group_size", Some(Feature::KvBits), shown);

    let kept = |walk: &Walk, options| load(walk, options).map(|model| cached(&*model));
    let cache = kept(walk, LoadOptions { prefix_cache, ..none() });
    walk.option(
        "prefix_cache",
        Some(Feature::PrefixCache),
        cache.map(|ids| ids == 128 && cached(model) == 0),
    );
    let on_disk = |prefix_cache_disk| {
        let prefix_cache_dir = prefix_cache_dir.clone();
        LoadOptions { prefix_cache, prefix_cache_dir, prefix_cache_disk, ..none() }
    };
    // What one load keeps, the next one knows at once; without room on the disk it does not.
    let next = |walk: &Walk, disk| {
        let written = load(walk, on_disk(disk)).map(|model| cached(&*model));
        written.and_then(|_| load(walk, on_disk(disk))).map(|model| known(&*model))
    };
    let kept_on_disk = next(walk, None);
    walk.option("prefix_cache_dir", Some(Feature::PrefixStore), kept_on_disk.map(|ids| ids == 128));
    let without_room = next(walk, prefix_cache_disk);
    let shown = without_room.map(|ids| ids == 0);
    walk.option("prefix_cache_disk", Some(Feature::PrefixStore), shown);
    // A prompt computed by itself has the chunks that it has without a cache.
    let by_itself = kept(walk, LoadOptions { prefix_cache, batch_invariant, ..none() });
    walk.option("batch_invariant", Some(Feature::BatchInvariant), by_itself.map(|ids| ids == 0));
    let chunks = LoadOptions { prefix_cache, batch_invariant, prefill_chunk, ..none() };
    let chunks = kept(walk, chunks);
    walk.option("prefill_chunk", Some(Feature::PrefillChunk), chunks.map(|ids| ids == 128));

    let slot = load(walk, LoadOptions { parallel_slots, ..none() });
    let shown = slot.map(|slot| both_run(model) && waits(&*slot));
    walk.option("parallel_slots", Some(Feature::ParallelSlots), shown);
    let full = load(walk, LoadOptions { parallel_slots, queue_limit, ..none() });
    let shown = full.map(|full| {
        let _first = long(&*full);
        let second = full.generate(&Prompt::Ids(prompt(8)), &greedy(1));
        matches!(second, Err(Error::QueueFull { limit: 0 }))
    });
    walk.option("queue_limit", Some(Feature::QueueLimit), shown);

    let limit = Some(Feature::MemoryLimit);
    let shown = match load(walk, LoadOptions { memory_limit, ..none() }) {
        Err(Error::Memory { remedy, .. }) => Ok(remedy.contains("memory limit")),
        other => other.map(|_| false),
    };
    walk.option("memory_limit", limit, shown);
    // These two are the process's.
    let before = memory::set_cache_limit(0).unwrap();
    let limited = load(walk, LoadOptions { cache_limit, ..none() });
    let limited = limited.map(|_| memory::set_cache_limit(before).unwrap() == CACHE as usize);
    walk.option("cache_limit", limit, limited);
    let wired = load(walk, LoadOptions { wired_limit, ..none() });
    // Metal wires it; elsewhere users are told that nothing is.
    let is_told = |notices: Vec<String>| notices.iter().any(|notice| notice.contains("wired"));
    let shown = wired.map(|wired| is_told(wired.notices()) != (wired.info().device == "metal"));
    walk.option("wired_limit", limit, shown);
    let before = workers();
    let threads = load(walk, LoadOptions { threads, ..none() }).map(|model| {
        numbers(&*model);
        workers() >= before.max(Some(cores() + 1))
    });
    walk.option("threads", Some(Feature::Threads), threads);
    if walk.capabilities.require(Feature::Threads).is_ok() {
        drop(load(walk, LoadOptions { threads: Some(cores()), ..none() }).unwrap());
    }
    // Products of few rows may stay as they are: steps, and those of experts that few ids chose.
    let long = |model: &dyn TextModel| logprobs(&run(model, &prompt(240), &greedy(1)));
    let rounded = load(walk, LoadOptions { cpu_activations, ..none() });
    let rounded = rounded.map(|rounded| long(&*rounded) != long(model));
    walk.option("cpu_activations", Some(Feature::CpuActivations), rounded);
    let together = match walk.capabilities.require(Feature::Ranks) {
        Err(_) => load(walk, LoadOptions { ranks, ..none() }).map(|_| false),
        // The other rank is a process of its own.
        Ok(()) => {
            let work = Work { lengths: vec![20], max_tokens: 2, ..Work::default() };
            let found = of_ranks(&[walk.checkpoint.folder(); 2], &work);
            Ok(found[0].tokens.iter().any(|tokens| !tokens.is_empty())
                && found.iter().all(|found| found.refusal.is_none()))
        }
    };
    walk.option("ranks", Some(Feature::Ranks), together);
    let told = load(walk, LoadOptions { progress: progress.clone(), ..none() }).map(|told| {
        let total = told.info().weight_bytes;
        progress.and_then(|progress| progress.weights()) == Some(WeightsRead { read: total, total })
    });
    walk.option("progress", None, told);
}

/// Log probabilities of tokens after a prompt that does not fit into a short context.
fn numbers(model: &dyn TextModel) -> Vec<f32> {
    logprobs(&run(model, &prompt(40), &greedy(4)))
}

fn metrics(mut generation: Generation) -> GenerateMetrics {
    generation.by_ref().for_each(|token| drop(token.unwrap()));
    generation.outcome().unwrap().metrics.clone()
}

/// Ids of a prompt that are found again when it is asked for once more.
fn cached(model: &dyn TextModel) -> usize {
    known(model);
    known(model)
}

/// The draft tokens of a request that repeats itself, and says nothing of drafts.
fn drafts(model: &dyn TextModel) -> usize {
    let one = *prompt(9).last().unwrap();
    let options = GenerateOptions { logit_bias: [(one, 1000.0)].into(), ..greedy(20) };
    metrics(model.generate(&Prompt::Ids(prompt(20)), &options).unwrap()).draft_tokens
}

/// How many of the prompt's ids are known the first time.
fn known(model: &dyn TextModel) -> usize {
    let prompt = Prompt::Ids(prompt(150));
    metrics(model.generate(&prompt, &greedy(1)).unwrap()).cached_prompt_tokens
}

/// A generation that has begun and does not end by itself.
fn long(model: &dyn TextModel) -> Generation {
    let options = GenerateOptions { max_tokens: None, ..greedy(0) };
    let mut first = model.generate(&Prompt::Ids(prompt(8)), &options).unwrap();
    first.next().unwrap().unwrap();
    first
}

/// Returns true when two requests run at once.
fn both_run(model: &dyn TextModel) -> bool {
    let _both = [long(model), long(model)];
    let deadline = Instant::now() + Duration::from_secs(10);
    while model.status().running < 2 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    model.status().running == 2
}

/// Returns true when a second request begins only when the first one is gone.
fn waits(model: &dyn TextModel) -> bool {
    let mut first = long(model);
    let second = model.generate(&Prompt::Ids(prompt(8)), &greedy(1)).unwrap();
    let since = Instant::now();
    first.by_ref().take(5).for_each(|token| drop(token.unwrap()));
    let waited = since.elapsed();
    drop(first);
    metrics(second).queue_duration >= waited
}

fn cores() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// Threads of this process that compute for it; `None` where the system does not list them.
fn workers() -> Option<usize> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.flatten().filter_map(name);
    Some(names.filter(|name| name.starts_with("cpu-kernels-")).count())
}

/// A small model with the tokenizer of the one in `folder`. Its vocabulary may be another size.
fn drafter(folder: &Path) -> Checkpoint {
    let drafter = Checkpoint::new("qwen3");
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains("token") {
            fs::copy(entry.path(), drafter.folder().join(entry.file_name())).unwrap();
        }
    }
    drafter
}

/// Writes an adapter of the first layer's output projection of `checkpoint` into `folder`.
fn write_adapter(checkpoint: &Path, folder: &Path) {
    const RANK: usize = 2;
    let (module, [output, input]) = first_output_projection(checkpoint);
    let values: Vec<u8> = (0..RANK * input.max(output))
        .flat_map(|i| ((i as f32 * 0.7).sin() * 0.5).to_le_bytes())
        .collect();
    let factor = |shape: [usize; 2]| {
        let bytes = &values[..shape[0] * shape[1] * 4];
        TensorView::new(Stored::F32, shape.to_vec(), bytes).unwrap()
    };
    let pair = [
        (format!("{module}.lora_a"), factor([input, RANK])),
        (format!("{module}.lora_b"), factor([RANK, output])),
    ];
    serialize_to_file(pair, None, &folder.join("adapters.safetensors")).unwrap();
    let config = r#"{"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 4.0}}"#;
    fs::write(folder.join("adapter_config.json"), config).unwrap();
}

/// Its name, and its shape `[out, in]`.
fn first_output_projection(checkpoint: &Path) -> (String, [usize; 2]) {
    let files = fs::read_dir(checkpoint).unwrap().map(|entry| entry.unwrap().path());
    let shards = files.filter(|path| path.extension().is_some_and(|ext| ext == "safetensors"));
    let found = shards.into_iter().find_map(|shard| {
        let bytes = fs::read(shard).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        tensors.iter().find_map(|(name, tensor)| {
            let module = name.strip_suffix(".weight")?;
            // Of hybrids, that of the first layer with attention.
            let firsts = [
                "h.0.attn.attention.out_proj",
                "layers.0.attention.dense",
                "layers.0.attention.wo",
                "layers.0.self_attn.dense",
                "layers.0.self_attn.o_proj",
                "layers.1.self_attn.o_proj",
                "layers.1.self_attn.out_proj",
                "layers.2.self_attn.o_proj",
                "layers.2.self_attn.out_proj",
                "layers.3.mixer.o_proj",
                "layers.0.mixer.out_proj",
                "layers.2.temporal_block.o_proj",
                "layers.3.self_attn.o_proj",
            ];
            let is_first = firsts.iter().any(|first| module.ends_with(first));
            let is_aside = module.starts_with("mtp.") || module.contains("vision");
            let is_first = is_first && !is_aside;
            is_first.then(|| (module.to_owned(), tensor.shape().try_into().unwrap()))
        })
    });
    found.expect("every architecture has one")
}
