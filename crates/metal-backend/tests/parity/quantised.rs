//! Quantised files, which are those of `mlx_lm.convert` byte for byte.

use std::fs;
use std::path::Path;

use inference_core::{CancelToken, EmbedOptions, EmbeddingLoadOptions, Error, LoadOptions};
use metal_backend::{QuantiseOptions, Quantised, Recipe, Rule, packing, quantise};
use safetensors::SafeTensors;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::fixtures::{Checkpoint, Golden, greedy, ids, json, root, run};

/// The options that a case of the goldens names as `ml quantise` has them.
fn options(arguments: &Json) -> QuantiseOptions {
    let arguments: Vec<&str> =
        arguments.as_array().unwrap().iter().filter_map(Json::as_str).collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| *argument == name);
        place.map(|place| arguments[place + 1])
    };
    let number = |name: &str| value(name).map(|number| number.parse().unwrap());
    let mode = value("--mode").unwrap_or("affine");
    QuantiseOptions {
        default: packing(mode, number("-b"), number("-g")).unwrap(),
        recipe: value("--recipe").map(|name| {
            Recipe::ALL.into_iter().find(|recipe| recipe.as_str() == name).expect("a recipe")
        }),
        rules: Vec::new(),
        keep_vision: false,
        dtype: value("--dtype").map(|name| name.parse().unwrap()),
        backend: Some("cpu".into()),
    }
}

/// Groups of 32 in 4 bits, on the CPU.
fn usual() -> QuantiseOptions {
    options(&serde_json::json!(["-g", "32"]))
}

fn quantised(source: &Path, target: &Path, options: &QuantiseOptions) -> Result<Quantised, Error> {
    metal_backend::register()?;
    quantise(source, target, options, &CancelToken::new(), &mut |_, _| {})
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tensors by name, whatever their order in the file.
fn tensors_hash(bytes: &[u8]) -> String {
    let tensors = SafeTensors::deserialize(bytes).expect("weights");
    let mut tensors: Vec<_> = tensors.iter().collect();
    tensors.sort_by(|a, b| a.0.cmp(b.0));
    let mut digest = Sha256::new();
    for (name, tensor) in tensors {
        let shape: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
        digest.update(format!("{name} {} [{}]\n", tensor.dtype(), shape.join(",")));
        digest.update(tensor.data());
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn files_are_those_of_mlx_lm() {
    let cases = json("golden/quantised.json");
    let mut differences = Vec::new();
    for case in cases.as_array().expect("cases") {
        let name = case["model"].as_str().expect("a model");
        let folder = TempDir::new().unwrap();
        let target = folder.path().join("made");
        // Without a tokenizer, but where the weights have to be made.
        let checkpoint = Checkpoint::new(name);
        let bare = root().join("models").join(name);
        let is_seeded = bare.join("weights.json").exists();
        let source = if is_seeded { checkpoint.folder() } else { &bare };
        let made = quantised(source, &target, &options(&case["options"]));
        made.unwrap_or_else(|error| panic!("{name} {}: {error}", case["options"]));
        // Routers' biases of ERNIE 4.5, which mlx-lm leaves out and so chooses other experts, are
        // kept.
        let keeps_more = name == "ernie4_5_moe";
        for (file, expected) in case["files"].as_object().expect("files") {
            let bytes = fs::read(target.join(file)).unwrap();
            let is_weights = file.ends_with(".safetensors");
            // The order of tensors is that of the standard library of C++.
            let (found, expected) = match is_weights && !cfg!(target_env = "gnu") {
                true => (tensors_hash(&bytes), &case["tensors"]),
                false => (hash(&bytes), expected),
            };
            let may_differ = keeps_more && file != "config.json";
            if (*expected == found) == may_differ {
                differences.push(format!("{name} {} {file}", case["options"]));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn every_family_loads_in_8_bits_and_answers() {
    let cases = json("golden/quantised.json");
    let options = options(&serde_json::json!(["-g", "32", "-b", "8"]));
    let plain = ["-g", "32"].map(Json::from).to_vec();
    let of_families = cases.as_array().expect("cases").iter();
    let names = of_families.filter(|case| case["options"].as_array() == Some(&plain));
    let mut tried = 0;
    for name in names.map(|case| case["model"].as_str().expect("a model")) {
        let (checkpoint, folder) = (Checkpoint::new(name), TempDir::new().unwrap());
        let target = folder.path().join("made");
        quantised(checkpoint.folder(), &target, &options).unwrap();
        let path = target.to_str().expect("a path in UTF-8");
        let model = inference_core::load_model(path.as_ref(), &LoadOptions::default());
        let model = model.unwrap_or_else(|error| panic!("{name}: {error}"));
        let prompts = Golden::new(name);
        let (_, prompt) = prompts.prompts().next().expect("a prompt");
        assert!(!run(&*model, &ids(&prompt["ids"]), &greedy(4)).is_empty(), "{name}");
        tried += 1;
    }
    assert!(tried > 40, "{tried} families");
}

#[test]
fn floats_of_8_bits_are_unpacked_and_packed_anew() {
    let checkpoint = Checkpoint::new("qwen3-fp8");
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("made");
    let options = options(&serde_json::json!(["-g", "32", "-b", "8"]));
    let made = quantised(checkpoint.folder(), &target, &options).unwrap();
    assert!(made.left_out.is_empty(), "{:?}", made.left_out);
    let weights = fs::read(target.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&weights).unwrap();
    assert!(tensors.names().iter().all(|name| !name.ends_with("_scale_inv")));
    let prompts = Golden::new("qwen3");
    let (_, prompt) = prompts.prompts().next().expect("a prompt");
    let first = |folder: &Path| {
        let model = inference_core::load_model(folder, &LoadOptions::default()).unwrap();
        run(&*model, &ids(&prompt["ids"]), &greedy(1))[0].id
    };
    assert_eq!(first(&target), first(checkpoint.folder()));
}

#[test]
fn an_embedding_model_keeps_its_modules() {
    let source = root().with_file_name("embeddings").join("models/qwen3_embedding");
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("made");
    let options = options(&serde_json::json!(["-g", "32", "-b", "8"]));
    quantised(&source, &target, &options).unwrap();
    let load = |folder: &Path| {
        let options = EmbeddingLoadOptions::default();
        let model = inference_core::load_embedding_model(folder, &options).unwrap();
        model.embed(&["The licence".into()], &EmbedOptions::default()).unwrap().vectors.remove(0)
    };
    // Both have the length 1.
    let cosine: f32 = load(&source).iter().zip(load(&target)).map(|(a, b)| a * b).sum();
    assert!((0.98..1.001).contains(&cosine), "{cosine}");
}

#[test]
fn rules_choose_modules_by_their_paths() {
    let checkpoint = Checkpoint::new("qwen3");
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("made");
    let rules = ["*.down_proj=8/32", "model.layers.0.*=off", "*.layers.1.self_attn.*=mxfp4"];
    let rules = rules.map(|rule| Rule::parse(rule).unwrap()).to_vec();
    quantised(checkpoint.folder(), &target, &QuantiseOptions { rules, ..usual() }).unwrap();
    let config: Json =
        serde_json::from_slice(&fs::read(target.join("config.json")).unwrap()).unwrap();
    let entry = |path: &str| config["quantization"][path].clone();
    let own = |bits, mode| serde_json::json!({"group_size": 32, "bits": bits, "mode": mode});
    assert_eq!(entry("model.layers.1.mlp.down_proj"), own(8, "affine"));
    assert_eq!(entry("model.layers.1.self_attn.q_proj"), own(4, "mxfp4"));
    assert_eq!(entry("model.layers.1.mlp.up_proj"), Json::Null);
    let weights = fs::read(target.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&weights).unwrap();
    assert!(tensors.tensor("model.layers.0.mlp.down_proj.scales").is_err());
    assert!(tensors.tensor("model.layers.1.self_attn.q_proj.biases").is_err());
    inference_core::load_model(&target, &LoadOptions::default()).unwrap();
}

#[test]
fn what_cannot_be_is_told_and_leaves_nothing() {
    let checkpoint = Checkpoint::new("qwen3");
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("made");
    let refused = |source: &Path, options: &QuantiseOptions, expected: &str| {
        let error = quantised(source, &target, options).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{expected}");
    };
    let rule = |rule| QuantiseOptions { rules: vec![Rule::parse(rule).unwrap()], ..usual() };
    refused(checkpoint.folder(), &rule("*.nothing=8"), "no module of the model fits `*.nothing`");
    refused(checkpoint.folder(), &rule("*.q_proj=4/128"), "groups of 128");
    let mixed = QuantiseOptions {
        default: packing("mxfp4", None, None).unwrap(),
        recipe: Some(Recipe::Mixed36),
        ..usual()
    };
    refused(checkpoint.folder(), &mixed, "recipe is affine");
    refused(&root().join("models/qwen3-4bit-g64"), &usual(), "nothing is left to quantise");
    refused(&folder.path().join("absent"), &usual(), "no such folder");

    let weights = checkpoint.folder().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() - 100]).unwrap();
    refused(checkpoint.folder(), &usual(), "truncated");
    fs::write(&weights, &bytes).unwrap();

    let (cancel, mut written) = (CancelToken::new(), 0);
    let stopped = quantise(checkpoint.folder(), &target, &usual(), &cancel, &mut |done, _| {
        written = done;
        cancel.cancel();
    });
    assert_eq!(stopped, Err(Error::Cancelled));
    assert!(written > 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    quantised(checkpoint.folder(), &target, &usual()).unwrap();
    let error = quantised(checkpoint.folder(), &target, &usual()).unwrap_err().to_string();
    assert!(error.contains("is there already"), "{error}");
}
