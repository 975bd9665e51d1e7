//! Weights: files that are damaged, tensors that do not fit, an index that lies.

use std::collections::BTreeMap;
use std::fs;

use inference_core::{GenerateOptions, LoadOptions};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::tiny::{Checkpoint, Tensor, VOCAB_SIZE, listing, load, weights};
use crate::{refusal, refused};

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const EMBEDDINGS: &str = "model.embed_tokens.weight";

#[test]
fn every_truncation_is_refused_with_the_file_named() {
    let folder = Checkpoint::qwen3().write();
    let path = folder.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = load(folder.path(), &LoadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(FILE), "{length} bytes: {error}");
    }
    fs::write(&path, &whole).unwrap();
    load(folder.path(), &LoadOptions::default()).unwrap();
}

#[test]
fn a_file_that_is_too_long_is_refused() {
    let mut bytes = Checkpoint::qwen3().weights();
    bytes.push(0);
    refused(&Checkpoint::qwen3().file(FILE, bytes), &[FILE, "truncated or damaged"]);
}

/// A bit flip in the header is an error or harmless; one in the data may give any number, NaN
/// included, and the generation must end all the same.
#[test]
fn two_thousand_flipped_bits_end_nothing_but_the_call() {
    let folder = Checkpoint::qwen3().write();
    let path = folder.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut state = 20_261_121_u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % bound
    };
    let (mut refused, mut loaded) = (0, 0);
    for round in 0..2000 {
        let mut bytes = whole.clone();
        let at =
            if round % 2 == 0 { random(header) } else { header + random(whole.len() - header) };
        bytes[at] ^= 1 << random(8);
        fs::write(&path, &bytes).unwrap();
        match load(folder.path(), &LoadOptions::default()) {
            Err(error) => {
                assert!(!error.to_string().contains("unexpectedly"), "byte {at}: {error}");
                refused += 1;
            }
            Ok(model) => {
                let options = GenerateOptions {
                    max_tokens: Some(3),
                    ignore_eos: true,
                    temperature: Some((round % 4 / 2) as f32),
                    top_p: Some(0.9),
                    seed: Some(1),
                    ..Default::default()
                };
                for token in model.generate(&"abc".into(), &options).unwrap() {
                    match token {
                        Ok(token) => assert!((token.id as usize) < VOCAB_SIZE, "byte {at}"),
                        Err(error) => assert!(error.to_string().contains("no numbers"), "{error}"),
                    }
                }
                loaded += 1;
            }
        }
    }
    assert!(refused > 500 && loaded > 900, "{refused} refused, {loaded} loaded");
}

#[test]
fn a_weight_that_is_not_a_number_is_told_at_the_first_token() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let data = value.to_le_bytes().repeat(8);
        let norm = Tensor { dtype: Dtype::F32, shape: vec![8], data };
        let model = Checkpoint::qwen3().tensor("model.norm.weight", norm).model();
        for temperature in [0.0, 1.0] {
            let options = GenerateOptions {
                max_tokens: Some(4),
                temperature: Some(temperature),
                top_k: Some(3),
                top_p: Some(0.5),
                min_p: Some(0.1),
                top_logprobs: 2,
                ignore_eos: true,
                ..Default::default()
            };
            let tokens: Vec<_> = model.generate(&"abc".into(), &options).unwrap().collect();
            let [Err(error)] = &tokens[..] else { panic!("{value}: {tokens:?}") };
            assert!(error.to_string().contains("logits are no numbers"), "{value}: {error}");
        }
    }
}

#[test]
fn headers_that_lie_are_refused() {
    let with_header = |header: &str| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend([0; 16]);
        Checkpoint::qwen3().file(FILE, bytes)
    };
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    let lies = [
        "",
        "null",
        "[]",
        "{",
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551615]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}}"#,
        r#"{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}"#,
        r#"{"a":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}"#,
        &deep,
    ];
    for header in lies {
        refused(&with_header(header), &[FILE]);
    }
    // A header that is sound and describes something else.
    let other = r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
    refused(&with_header(other), &[EMBEDDINGS, "missing"]);
    let mut huge = u64::MAX.to_le_bytes().to_vec();
    huge.extend([b'{'; 64]);
    refused(&Checkpoint::qwen3().file(FILE, huge), &[FILE, "truncated"]);
}

#[test]
fn a_tensor_described_twice_does_no_harm() {
    let bytes = Checkpoint::qwen3().weights();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[8..8 + length]).unwrap();
    let far =
        r#"{"model.norm.weight":{"dtype":"F32","shape":[8],"data_offsets":[9000000,9000032]},"#;
    let header = header.replacen('{', far, 1);
    let mut doubled = (header.len() as u64).to_le_bytes().to_vec();
    doubled.extend(header.as_bytes());
    doubled.extend(&bytes[8 + length..]);
    let folder = Checkpoint::qwen3().file(FILE, doubled).write();
    match load(folder.path(), &LoadOptions::default()) {
        Ok(model) => assert_eq!(model.generate(&"a".into(), &one()).unwrap().count(), 1),
        Err(error) => assert!(error.to_string().contains(FILE), "{error}"),
    }
}

fn one() -> GenerateOptions {
    GenerateOptions { max_tokens: Some(1), ignore_eos: true, ..Default::default() }
}

#[test]
fn a_folder_without_weights_is_refused() {
    let folder = Checkpoint::qwen3().write();
    fs::remove_file(folder.path().join(FILE)).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("model*.safetensors"), "{error}");
    fs::create_dir(folder.path().join(FILE)).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains(FILE) && error.contains("is not a file"), "{error}");
}

#[test]
fn tensors_that_do_not_fit_are_refused_with_both_sides() {
    let tiny = Checkpoint::qwen3;
    let up = "model.layers.0.mlp.up_proj.weight";
    let turned = Tensor::zeros(Dtype::F32, &[8, 16]);
    refused(&tiny().tensor(up, turned), &[up, "[8, 16]", "[16, 8]"]);
    let flat = Tensor::zeros(Dtype::F32, &[128]);
    refused(&tiny().tensor(up, flat), &[up, "[128]", "[16, 8]"]);
    for (dtype, name) in [
        (Dtype::I32, "I32"),
        (Dtype::U8, "U8"),
        (Dtype::BOOL, "Bool"),
        (Dtype::F64, "F64"),
        (Dtype::F8_E5M2, "F8"),
    ] {
        refused(&tiny().tensor(up, Tensor::zeros(dtype, &[16, 8])), &[up, name]);
    }
    let without_scales = tiny().tensor(up, Tensor::zeros(Dtype::F8_E4M3, &[16, 8]));
    refused(&without_scales, &[up, "floats of 8 bits", "weight_scale_inv", "missing"]);
    let mut less = tiny();
    less.tensors.remove(up);
    refused(&less, &[up, "missing"]);
    let extra = Tensor::zeros(Dtype::F32, &[2]);
    refused(&tiny().tensor("model.layers.0.moe.router", extra), &["model.layers.0.moe.router"]);
    let untied = tiny().config("tie_word_embeddings", json!(false));
    refused(&untied, &["lm_head.weight", "missing"]);
}

#[test]
fn a_tensor_in_two_parts_is_refused_and_a_file_with_all_goes_before_parts() {
    let tiny = Checkpoint::qwen3();
    let norm = BTreeMap::from([(
        "model.norm.weight".to_owned(),
        tiny.tensors["model.norm.weight"].clone(),
    )]);
    let parts = tiny
        .clone()
        .file("model-1.safetensors", tiny.weights())
        .file("model-2.safetensors", weights(&norm));
    refused(&parts, &["model.norm.weight", "model", "another file"]);
    let whole = tiny.clone().file(FILE, tiny.weights()).file("model-2.safetensors", weights(&norm));
    says_the_same(&whole);
}

/// Two shards and an index whose map `change` alters.
fn sharded(change: impl Fn(&mut serde_json::Map<String, Value>)) -> Checkpoint {
    let tiny = Checkpoint::qwen3();
    let mut first = tiny.tensors.clone();
    let second = first.split_off("model.layers.0.self_attn");
    let mut map = serde_json::Map::new();
    for (file, shard) in [("a.safetensors", &first), ("b.safetensors", &second)] {
        map.extend(shard.keys().map(|name| (name.clone(), json!(file))));
    }
    change(&mut map);
    tiny.file("a.safetensors", weights(&first))
        .file("b.safetensors", weights(&second))
        .file(INDEX, json!({"weight_map": map}).to_string())
}

#[test]
fn a_sound_index_loads() {
    let folder = sharded(|_| ()).write();
    let before = listing(folder.path());
    load(folder.path(), &LoadOptions::default()).unwrap();
    assert_eq!(before, listing(folder.path()));
}

/// A folder that loads, and answers as the sound one does.
fn says_the_same(checkpoint: &Checkpoint) {
    let said = |checkpoint: &Checkpoint| -> Vec<u32> {
        let options = GenerateOptions { max_tokens: Some(8), ..one() };
        let model = checkpoint.model();
        let tokens = model.generate(&"abc".into(), &options).unwrap();
        tokens.map(|token| token.unwrap().id).collect()
    };
    assert_eq!(said(checkpoint), said(&Checkpoint::qwen3()));
}

#[test]
fn an_index_decides_nothing_that_the_files_say() {
    let names = [
        json!("gone.safetensors"),
        json!("b.safetensors"),
        json!("/etc/passwd"),
        json!("../a.safetensors"),
        json!("sub/a.safetensors"),
        json!("..\\a.safetensors"),
        json!("."),
        json!(""),
        json!(7),
        Value::Null,
        json!(["a.safetensors"]),
    ];
    for name in names {
        says_the_same(&sharded(|map| {
            map.insert(EMBEDDINGS.into(), name.clone());
        }));
    }
    // A name too many, one too few, and all of them in the other file.
    says_the_same(&sharded(|map| {
        map.insert("model.extra".into(), json!("a.safetensors"));
    }));
    says_the_same(&sharded(|map| {
        map.remove(EMBEDDINGS);
    }));
    says_the_same(&sharded(|map| {
        for file in map.values_mut() {
            let other = if file == "a.safetensors" { "b.safetensors" } else { "a.safetensors" };
            *file = json!(other);
        }
    }));
}

#[test]
fn an_index_of_another_save_is_passed_over_beside_a_file_with_all() {
    let whole = Checkpoint::qwen3().weights();
    let of_shards = json!({"weight_map": {
        EMBEDDINGS: "model-00001-of-00002.safetensors",
        "model.norm.weight": "model-00002-of-00002.safetensors",
    }});
    for text in
        ["", "[]", "{}", r#"{"weight_map": []}"#, r#"{"weight_map": {}}"#, &of_shards.to_string()]
    {
        says_the_same(&Checkpoint::qwen3().file(FILE, whole.clone()).file(INDEX, text));
    }
    // Files of an earlier save lie there, too, and say otherwise.
    let mut old = Checkpoint::qwen3().tensors;
    old.values_mut().for_each(|tensor| tensor.data.fill(0));
    let beside = Checkpoint::qwen3()
        .file(FILE, whole)
        .file("model-00001-of-00002.safetensors", weights(&old))
        .file(INDEX, of_shards.to_string());
    says_the_same(&beside);
}

#[test]
fn parts_have_the_names_of_today_or_of_earlier_programs_or_one_has_any() {
    let tiny = Checkpoint::qwen3();
    let mut first = tiny.tensors.clone();
    let second = first.split_off("model.layers.0.self_attn");
    for [one, other] in [
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ["weights.00.safetensors", "weights.01.safetensors"],
    ] {
        let parts = tiny.clone();
        says_the_same(&parts.file(one, weights(&first)).file(other, weights(&second)));
    }
    let only = tiny.clone().file("tiny.safetensors", tiny.weights());
    says_the_same(&only);
    // An index that names some of the parts, with another part of an earlier save beside them.
    let some = json!({"weight_map": {EMBEDDINGS: "model-00001-of-00002.safetensors"}});
    let listed = tiny
        .file("model-00001-of-00002.safetensors", weights(&first))
        .file("model-00002-of-00002.safetensors", weights(&second))
        .file(INDEX, some.to_string());
    says_the_same(&listed);
    let cut = &weights(&second)[..100];
    says_the_same(&listed.file("model-00003-of-00009.safetensors", cut));
}

#[test]
fn a_tensor_that_is_missing_is_told_with_the_file_that_should_have_it() {
    let tiny = Checkpoint::qwen3();
    let mut first = tiny.tensors.clone();
    let second = first.split_off("model.layers.0.self_attn");
    let place = |name: &String| match second.contains_key(name) {
        true => (name.clone(), json!("model-00002-of-00002.safetensors")),
        false => (name.clone(), json!("model-00001-of-00002.safetensors")),
    };
    let map: serde_json::Map<String, Value> = tiny.tensors.keys().map(place).collect();
    let half = tiny
        .clone()
        .file("model-00001-of-00002.safetensors", weights(&first))
        .file(INDEX, json!({"weight_map": map}).to_string());
    refused(&half, &["model-00002-of-00002.safetensors", "not in the folder", "self_attn"]);
    let damaged = half.file("model-00002-of-00002.safetensors", "version https://git-lfs");
    refused(&damaged, &["model-00002-of-00002.safetensors", "git-lfs"]);
}

#[test]
fn tensors_that_code_counts_or_that_pack_caches_are_passed_over() {
    let small = || Tensor::zeros(Dtype::F32, &[1]);
    for name in [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.rotary_emb.inv_freq",
        "rotary_emb.inv_freq",
        "model.layers.0.self_attn.k_scale",
        "model.layers.0.self_attn.v_scale",
        "model.layers.0.self_attn.masked_bias",
        "model.embeddings.position_ids",
    ] {
        says_the_same(&Checkpoint::qwen3().tensor(name, small()));
    }
    // A part of the output layer that no copy of the embeddings has.
    refused(&Checkpoint::qwen3().tensor("lm_head.bias", small()), &["lm_head.bias", "1 tensor is"]);
}

#[test]
fn a_model_that_leaves_the_range_of_f16_is_refused_at_the_load() {
    let f16 = LoadOptions { dtype: Some(inference_core::Dtype::F16), ..LoadOptions::default() };
    let refusal = |checkpoint: &Checkpoint| checkpoint.load(&f16).err().unwrap().to_string();
    Checkpoint::qwen3().load(&f16).unwrap();
    let norm = |value: f32| Tensor::f32(&[value; 8], &[8]);
    let large = Checkpoint::qwen3().tensor("model.norm.weight", norm(1e5));
    large.load(&LoadOptions::default()).unwrap();
    let error = refusal(&large);
    assert!(error.contains("model.norm.weight") && error.contains("65504"), "{error}");
    // Each weight has a value in f16, and logits do not.
    let error = refusal(&Checkpoint::qwen3().tensor("model.norm.weight", norm(6e4)));
    assert!(error.contains("dtype") && error.contains("range of f16"), "{error}");
}
