//! Models in files of GGUF: see `fixtures/gguf/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{Dtype, LoadOptions, TextModel, load_model};
use safetensors::SafeTensors;
use serde_json::Value as Json;

use crate::checkpoints::{F32_TOLERANCE, prompts_are_the_references};
use crate::fixtures::{
    Checkpoint, Golden, backend, distance, first_logits, greedy, ids, numbers, run, token_ids,
};

const MODELS: [&str; 11] = [
    "llama",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma2",
    "gemma3_text",
    "granite",
    "smollm3",
    "phi3",
    "phi3_longrope",
    "olmo2",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf")
}

fn file(name: &str) -> PathBuf {
    root().join(format!("{name}.gguf"))
}

fn golden(name: &str) -> Json {
    let text = fs::read_to_string(root().join(format!("{name}.json"))).expect("a golden");
    serde_json::from_str(&text).expect("it is JSON")
}

fn load(path: &Path, dtype: Option<Dtype>) -> inference_core::Result<Box<dyn TextModel>> {
    let _ = metal_backend::register();
    let backend = Some(backend());
    load_model(path, &LoadOptions { backend, dtype, ..LoadOptions::default() })
}

/// Why the file with `bytes` does not load.
fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changed.gguf");
    fs::write(&path, bytes).expect("it is written");
    let error = load(&path, None).expect_err("refused").to_string();
    assert!(error.contains("changed.gguf"), "{error}");
    error
}

#[test]
fn logits_and_tokens_are_those_of_what_the_files_stand_for() {
    for name in MODELS {
        let model = load(&file(name), Some(Dtype::F32)).expect(name);
        let golden = golden(name);
        let mut worst: f32 = 0.0;
        for prompt in ["short", "chat"] {
            let prompt = &golden[prompt];
            let logits = first_logits(&*model, &ids(&prompt["ids"]));
            worst = worst.max(distance(&logits, &numbers(&prompt["logits"])));
        }
        assert!(worst <= F32_TOLERANCE, "{name}: {worst:e}");
        eprintln!("{name}: logits within {worst:.1e}");
        let expected = ids(&golden["short"]["greedy"]);
        let found = run(&*model, &ids(&golden["short"]["ids"]), &greedy(expected.len()));
        assert_eq!(token_ids(&found), expected, "{name}");
    }
}

#[test]
fn weights_keep_their_bits_and_load_in_sixteen_too() {
    for (name, bits, dtype) in
        [("llama", 4, "f16"), ("qwen2", 8, "f16"), ("qwen3", 4, "f16"), ("qwen3_moe", 4, "f16")]
    {
        let model = load(&file(name), None).expect(name);
        let info = model.info();
        assert_eq!((info.quant_bits, info.dtype.as_str()), (bits, dtype), "{name}");
        let golden = golden(name);
        let short = &golden["short"];
        let logits = first_logits(&*model, &ids(&short["ids"]));
        let distance = distance(&logits, &numbers(&short["logits"]));
        eprintln!("{name}: logits within {distance:.1e}");
        assert!(distance < 0.1, "{name}: {distance}");
    }
    // Gemma's activations outgrow f16.
    let name = "gemma3_text";
    let model = load(&file(name), None).expect(name);
    assert_eq!((model.info().quant_bits, model.info().dtype.as_str()), (0, "bf16"));
    let folder = Checkpoint::new(name);
    let mut config = folder.config();
    config["query_pre_attn_scalar"] = config["head_dim"].clone();
    let folder = folder.with_config(&config).load_native(LoadOptions::default());
    let prompt = ids(&golden(name)["short"]["ids"]);
    let distance = distance(&first_logits(&*model, &prompt), &first_logits(&*folder, &prompt));
    assert!(distance < 0.01, "{name}: {distance}");
}

#[test]
fn groups_of_sixteen_keep_their_bits_on_a_cpu() {
    let name = "k_quants";
    let golden = golden(name);
    let short = &golden["short"];
    let (prompt, expected) = (ids(&short["ids"]), numbers(&short["logits"]));
    let has_kernels = backend() == "cpu" && metal_backend::cpu_kernels().starts_with("our own");
    // Numbers of 16 bits have three bits less than such a product of two scales and a code.
    let most = if has_kernels { F32_TOLERANCE } else { 0.01 };
    for dtype in [Some(Dtype::F32), None] {
        if dtype.is_none() && !has_kernels && backend() == "cpu" {
            // MLX multiplies experts on a CPU in F32 alone.
            continue;
        }
        let model = load(&file(name), dtype).expect("it loads");
        let found = distance(&first_logits(&*model, &prompt), &expected);
        eprintln!("{name} {dtype:?}: logits within {found:.1e}");
        assert!(found <= if dtype.is_some() { most } else { 0.1 }, "{dtype:?}: {found:e}");
        let packings: Vec<_> =
            model.info().packings.iter().map(|way| (way.bits, way.group_size)).collect();
        let sixteen = [(6, 16), (3, 16), (2, 16)].map(|way| packings.contains(&way));
        assert_eq!(
            (sixteen, packings.contains(&(4, 32))),
            ([has_kernels; 3], true),
            "{packings:?}"
        );
    }
    if !has_kernels {
        return;
    }
    let tokens = ids(&short["greedy"]);
    let exact = load(&file(name), Some(Dtype::F32)).expect("it loads");
    assert_eq!(token_ids(&run(&*exact, &prompt, &greedy(tokens.len()))), tokens);
    let cpu_activations = Some(inference_core::CpuActivations::Int8);
    let rounded =
        LoadOptions { backend: Some(backend()), cpu_activations, ..LoadOptions::default() };
    let rounded = load_model(&file(name), &rounded).expect("it loads");
    let found = distance(&first_logits(&*rounded, &prompt), &expected);
    eprintln!("{name}, rounded: logits within {found:.1e}");
    assert!(found < 0.1, "{found}");
}

/// Packs a file in eight bits into the folder `target`.
fn quantise(name: &str, target: &Path) -> Result<metal_backend::Quantised, inference_core::Error> {
    let options = metal_backend::QuantiseOptions {
        default: metal_backend::packing("affine", Some(8), Some(32)).expect("eight bits"),
        recipe: None,
        rules: Vec::new(),
        dtype: None,
        keep_vision: false,
        backend: Some(backend()),
    };
    let _ = metal_backend::register();
    metal_backend::quantise(&file(name), target, &options, &Default::default(), &mut |_, _| {})
}

#[test]
fn a_folder_has_no_groups_that_mlx_does_not_have() {
    let home = tempfile::tempdir().expect("a folder");
    let target = home.path().join("packed");
    quantise("k_quants", &target).expect("it is packed");
    let model = load(&target, None).expect("it loads");
    let groups = model.info().packings.iter().map(|way| way.group_size).collect::<Vec<_>>();
    assert!(!groups.is_empty() && groups.iter().all(|size| *size >= 32), "{groups:?}");
    let golden = golden("k_quants");
    let short = &golden["short"];
    let found = distance(&first_logits(&*model, &ids(&short["ids"])), &numbers(&short["logits"]));
    assert!(found < 0.2, "{found}");
}

#[test]
fn texts_and_chats_become_the_ids_of_the_tokenizer_that_was_written() {
    for name in MODELS {
        let model = load(&file(name), None).expect(name);
        prompts_are_the_references(&*model, &Golden::new(name));
        for prompt in ["code", "long"] {
            let prompt = &golden(name)[prompt];
            let back = model.decode(&ids(&prompt["ids"])).expect("it is decoded");
            assert_eq!(back.trim_start_matches("<bos>"), prompt["text"], "{name}");
        }
    }
}

#[test]
fn prefixes_on_disk_are_those_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let _ = metal_backend::register();
    let options = LoadOptions {
        backend: Some(backend()),
        prefix_cache: Some(1 << 20),
        prefix_cache_dir: Some(folder.path().to_owned()),
        ..LoadOptions::default()
    };
    for name in ["qwen3", "qwen3_moe", "qwen3"] {
        let model = load_model(&file(name), &options).expect(name);
        let prompt = ids(&golden(name)["long"]["ids"]);
        let plain = run(&*load(&file(name), None).expect(name), &prompt, &greedy(4));
        assert_eq!(token_ids(&run(&*model, &prompt, &greedy(4))), token_ids(&plain), "{name}");
    }
    // What is known of the weights lies beside the folders of the two models.
    let entries = fs::read_dir(folder.path()).expect("a folder");
    let folders = entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()));
    assert_eq!(folders.count(), 2);
}

#[test]
fn a_folder_with_one_file_is_a_model_and_one_with_several_names_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = |name: &str| fs::copy(file("qwen3"), folder.path().join(name)).expect("a copy");
    copy("small.gguf");
    // What stands beside it is no model.
    copy("mmproj-small-F16.gguf");
    load(folder.path(), None).expect("it loads");
    let found = inference_core::discover(folder.path()).expect("it is listed");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, folder.path().join("small.gguf"));
    copy("large.gguf");
    let error = load(folder.path(), None).expect_err("two").to_string();
    assert!(error.contains("large.gguf, small.gguf"), "{error}");
    assert_eq!(inference_core::discover(folder.path()).expect("it is listed").len(), 2);
}

#[test]
fn damaged_and_truncated_files_are_named() {
    let whole = fs::read(file("qwen3")).expect("the fixture");
    for length in [0, 3, 7, 20, 100, 5000, whole.len() / 2, whole.len() - 1] {
        let error = refusal(&whole[..length]);
        assert!(error.contains("truncated") || error.contains("GGUF"), "{length}: {error}");
    }
    let changed = |from: &[u8], to: &[u8]| {
        let at = whole.windows(from.len()).position(|part| part == from).expect("it is there");
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        refusal(&bytes)
    };
    assert!(changed(b"GGUF\x03", b"GGUF\x09").contains("version 9"));
    assert!(changed(b"GGUF\x03", b"GGUF\x01").contains("version 1 of GGUF; 2 and 3 work"));
    assert!(changed(b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03").contains("big endian"));
    assert!(changed(b"GGUF", b"GGML").contains("no GGUF file"));
    // More tensors, metadata or text than the file has room for.
    let counts = [&b"GGUF\x03\0\0\0"[..], &whole[8..16]].concat();
    let huge = [&counts[..8], &u64::MAX.to_le_bytes()].concat();
    assert!(changed(&counts, &huge).contains("truncated or damaged"));
    let huge = [&counts[..], &(1u64 << 40).to_le_bytes()].concat();
    assert!(changed(&counts, &huge).contains("truncated or damaged"));
    let length = [&20u64.to_le_bytes()[..], b"general.architecture"].concat();
    let huge = [&(1u64 << 33).to_le_bytes()[..], b"general.architecture"].concat();
    assert!(changed(&length, &huge).contains("truncated or damaged"));
    assert!(changed(b"\0qwen3", b"\0qwen9").contains("`qwen9`"));
    // The number of a kind stands behind the name and two sizes.
    let up = [&b"blk.0.ffn_up.weight\x02\0\0\0"[..], &64u64.to_le_bytes(), &128u64.to_le_bytes()]
        .concat();
    let kind = |number: u32| [&up[..], &number.to_le_bytes()].concat();
    let error = changed(&kind(6), &kind(21));
    assert!(error.contains("`blk.0.ffn_up.weight`") && error.contains("IQ3_S"), "{error}");
    assert!(changed(&kind(6), &kind(999)).contains("number 999"));
    // A tensor that begins behind the file's end.
    let far = [&kind(6)[..], &(1u64 << 40).to_le_bytes()].concat();
    assert!(changed(&kind(6), &far).contains("tensor `blk.0.ffn_up.weight` lies at"));
    let wide = [&b"blk.0.ffn_up.weight\x02\0\0\0"[..], &(1u64 << 62).to_le_bytes()].concat();
    assert!(changed(&up[..31], &wide).contains("`blk.0.ffn_up.weight`"));
    assert!(
        changed(b"blk.0.ffn_up.weight", b"blk.0.ffn_xx.weight").contains("`blk.0.ffn_xx.weight`")
    );
}

#[test]
fn experts_in_floats_of_four_bits_stay_so() {
    let name = "gpt_oss";
    let folder = Checkpoint::new(name);
    let prompt =
        Golden::new(name).prompts().find(|(name, _)| *name == "long").map(|(_, p)| ids(&p["ids"]));
    let prompt = prompt.expect("a prompt");
    let model = load(&file(name), Some(Dtype::F32)).expect("it loads");
    let expected = first_logits(&*folder.load(LoadOptions::default()), &prompt);
    let furthest = distance(&first_logits(&*model, &prompt), &expected);
    assert!(furthest <= F32_TOLERANCE, "{furthest:e}");
    prompts_are_the_references(&*model, &Golden::new(name));
    let model = load(&file(name), None).expect("it loads");
    assert_eq!((model.info().quant_bits, model.info().dtype.as_str()), (4, "bf16"));
    let expected = first_logits(&*folder.load_native(LoadOptions::default()), &prompt);
    let furthest = distance(&first_logits(&*model, &prompt), &expected);
    assert!(furthest < 0.05, "{furthest}");
}

#[test]
fn short_convolutions_are_those_of_the_folder() {
    let name = "lfm2";
    let folder = Checkpoint::new(name);
    let mut config = folder.config();
    config["conv_bias"] = false.into();
    // Files of GGUF have no such biases.
    let is_bias = |name: &str| name.contains(".conv.") && name.ends_with(".bias");
    let kept = |name: &str| (!is_bias(name)).then(|| name.to_owned());
    let folder = folder.with_config(&config).renamed(kept);
    let prompts = Golden::new(name);
    let prompt = prompts.prompts().find(|(name, _)| *name == "long").expect("a prompt").1;
    let prompt = ids(&prompt["ids"]);
    let model = load(&file(name), Some(Dtype::F32)).expect("it loads");
    let expected = first_logits(&*folder.load(LoadOptions::default()), &prompt);
    let furthest = distance(&first_logits(&*model, &prompt), &expected);
    assert!(furthest <= F32_TOLERANCE, "{furthest:e}");
    prompts_are_the_references(&*model, &prompts);
    assert_eq!(load(&file(name), None).expect("it loads").info().dtype, "bf16");
}

#[test]
fn a_file_becomes_a_folder_in_which_all_of_it_is_packed() {
    let home = tempfile::tempdir().expect("a folder");
    // Its other weights have eight bits already.
    let target = home.path().join("packed");
    let made = quantise("qwen2", &target).expect("it is packed");
    let model = load(&target, None).expect("it loads");
    assert_eq!(made.packed, model.info().num_layers);
    assert_eq!(model.info().quant_bits, 8);
    let golden = golden("qwen2");
    let short = &golden["short"];
    let exact = load(&target, Some(Dtype::F32)).expect("it loads");
    let logits = first_logits(&*exact, &ids(&short["ids"]));
    let distance = distance(&logits, &numbers(&short["logits"]));
    eprintln!("packed: logits within {distance:.1e}");
    assert!(distance < 0.2, "{distance}");
    prompts_are_the_references(&*model, &Golden::new("qwen2"));
    let error = quantise("llama", &home.path().join("llama")).expect_err("all is packed");
    assert!(error.to_string().contains("nothing is left to quantise"), "{error}");
}

#[test]
fn files_of_one_model_are_read_together() {
    let part = |at: usize| format!("qwen3-0000{at}-of-00003.gguf");
    let folder = tempfile::tempdir().expect("a folder");
    let place = |at: usize| folder.path().join(part(at));
    for at in 1..=3 {
        fs::copy(root().join("parts").join(part(at)), place(at)).expect("a copy");
    }
    let prompt = ids(&golden("qwen3")["short"]["ids"]);
    let expected = first_logits(&*load(&file("qwen3"), None).expect("it loads"), &prompt);
    for path in [place(1), folder.path().to_owned()] {
        let model = load(&path, None).expect("it loads");
        assert_eq!(first_logits(&*model, &prompt), expected);
    }
    let found = inference_core::discover(folder.path()).expect("it is listed");
    assert_eq!((found.len(), found[0].num_files, &found[0].path), (1, 3, &place(1)));
    let refusal = |path: PathBuf| load(&path, None).expect_err("refused").to_string();
    let error = refusal(place(2));
    assert!(error.contains("file 2 of 3 of a model: name the first one, "), "{error}");
    fs::rename(place(3), folder.path().join("third.gguf")).expect("it is moved");
    let error = refusal(place(1));
    assert!(error.contains(&part(3)), "{error}");
    fs::copy(place(2), place(3)).expect("a copy");
    let error = refusal(place(1));
    assert!(error.contains("is not file 3 of 3 of a model"), "{error}");
    let renamed = folder.path().join("first.gguf");
    fs::rename(place(1), &renamed).expect("it is moved");
    let error = refusal(renamed);
    assert!(error.contains("which are called `NAME-00001-of-00003.gguf`"), "{error}");
}

/// Puts together the file that llama.cpp's converter made of the checkpoint `name`: bytes of its
/// own, and rows of the checkpoint's tensors.
fn converted(name: &str, folder: &Path) -> PathBuf {
    let parts = root().join("converted");
    let text = fs::read_to_string(parts.join(format!("{name}.json"))).expect("the fixture");
    let order: Json = serde_json::from_str(&text).expect("it is JSON");
    let own = fs::read(parts.join(format!("{name}.bin"))).expect("the fixture");
    let weights = fs::read(Checkpoint::new(name).folder().join("model.safetensors"));
    let weights = weights.expect("the checkpoint");
    let weights = SafeTensors::deserialize(&weights).expect("weights");
    let (mut bytes, mut at) = (Vec::new(), 0);
    let number = |value: &Json| value.as_u64().expect("a number") as usize;
    for part in order.as_array().expect("a list") {
        if let Some(count) = part.as_u64() {
            bytes.extend_from_slice(&own[at..][..count as usize]);
            at += count as usize;
            continue;
        }
        let tensor = weights.tensor(part[0].as_str().expect("a name")).expect("a tensor");
        let row = tensor.shape().last().expect("a matrix") * 2;
        let (first, count) = (number(&part[1]), number(&part[2]));
        bytes.extend_from_slice(&tensor.data()[first * row..][..count * row]);
    }
    assert_eq!(at, own.len(), "{name}");
    let path = folder.join(format!("{name}.gguf"));
    fs::write(&path, bytes).expect("it is written");
    path
}

/// The folder of the checkpoint `name`, with what its file has lost.
fn as_converted(name: &str) -> Checkpoint {
    let folder = Checkpoint::new(name);
    if !["dots1", "granitemoehybrid", "laguna", "mamba2", "starcoder2"].contains(&name) {
        return folder;
    }
    let mut config = folder.config();
    match name {
        // The converter leaves windows out.
        "dots1" => config["sliding_window"] = Json::Null,
        // It says so of all hybrids.
        "granitemoehybrid" => config["position_embedding_type"] = "nope".into(),
        // It leaves out the bounds of steps, which no release has.
        "mamba2" => config["time_step_limit"] = Json::Null,
        // It leaves out the window, which is this in all releases.
        "starcoder2" => config["sliding_window"] = 4096.into(),
        // It leaves out which layers have a window, and the first of four has none then.
        _ => {
            let kinds = ["full_attention", "sliding_attention"];
            config["layer_types"] =
                (0..6).map(|layer| kinds[usize::from(layer % 4 != 0)]).collect();
        }
    }
    folder.with_config(&config)
}

#[test]
fn files_of_llama_cpps_converter_are_the_folders_that_they_were_made_of() {
    let home = tempfile::tempdir().expect("a folder");
    let entries = fs::read_dir(root().join("converted")).expect("fixtures");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut names: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 54);
    let mut wrong = Vec::new();
    for name in names {
        let path = converted(&name, home.path());
        let model = match load(&path, Some(Dtype::F32)) {
            Ok(model) => model,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        let folder = as_converted(&name).load(LoadOptions::default());
        let (mut furthest, mut compared) = (0.0_f32, 0);
        for (_, prompt) in Golden::new(&name).prompts() {
            let prompt = ids(&prompt["ids"]);
            if prompt.len() >= model.info().context_length {
                continue;
            }
            let found = first_logits(&*model, &prompt);
            // The converter leaves out rows of the vocabulary that the tokenizer does not have.
            let expected = first_logits(&*folder, &prompt);
            furthest = furthest.max(distance(&found, &expected[..found.len()]));
            compared += 1;
        }
        eprintln!("{name}: logits within {furthest:.1e}");
        assert!(compared > 3, "{name}: {compared} prompts");
        // The converter norms the rows of this head, and rounds them.
        let tolerance = if name == "bailing_moe_v1" { 4e-3 } else { F32_TOLERANCE };
        if furthest > tolerance {
            wrong.push(format!("{name}: {furthest:e}"));
        }
        if name.starts_with("gemma4") {
            prompts_are_the_references(&*model, &Golden::new(&name));
        }
        // As it is stored, most of it in bf16.
        let stored = load(&path, None).expect(&name);
        let dtype = if name == "falcon_h1" { "f32" } else { "bf16" };
        let found = stored.info();
        if (found.dtype.as_str(), found.quant_bits) != (dtype, 0) {
            wrong.push(format!("{name}: {} of {} bits", found.dtype, found.quant_bits));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name() {
    let home = tempfile::tempdir().expect("a folder");
    let refused = |name: &str, key: &str, number: u32| {
        let bytes = fs::read(converted(name, home.path())).expect("the fixture");
        // Behind the key stand the number of a type and the value.
        let start = bytes.windows(key.len()).position(|part| part == key.as_bytes());
        let at = start.expect("it is there") + key.len() + 4;
        let changed = [&bytes[..at], &number.to_le_bytes(), &bytes[at + 4..]].concat();
        refusal(&changed)
    };
    for name in ["qwen3_5", "qwen3_next", "gemma4", "olmo3", "ernie4_5_moe", "laguna"] {
        let error = refused(name, ".block_count", 300_000_000);
        assert!(error.contains("block_count` is 300000000, at most 10000"), "{error}");
    }
    for number in [0, 1, u32::MAX] {
        let error = refused("qwen3_next", "qwen3next.ssm.time_step_rank", number);
        assert!(error.contains("ssm.time_step_rank"), "{error}");
    }
    let error = refused("gemma4", "gemma4.rope.dimension_count_swa", 8);
    assert!(error.contains("`gemma4.rope.dimension_count_swa` is not"), "{error}");
}
