//! Quantised models: what they load as, and how far their results are from those of the unquantised
//! ones.

use std::fs;
use std::path::Path;

use inference_core::{
    CancelToken, Dtype, EmbedOptions, EmbeddingLoadOptions, EmbeddingModel, ScoreOptions, Truncate,
};
use metal_backend::{QuantiseOptions, Rule, packing, quantise};
use safetensors::tensor::TensorView;
use safetensors::{Dtype as SafeDtype, SafeTensors};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::fixtures::{EMBEDDERS, Fixture, RERANKERS, distance, folder, load};

/// Modes with their bits, and how near results must be to those of the unquantised model. First
/// stands the least cosine of a text's vectors, then the greatest distance of a pair's logits, as a
/// part of one more than the largest.
const CASES: [(&str, Option<i32>, f32, f32); 2] =
    [("affine", Some(8), 0.995, 0.05), ("mxfp8", None, 0.98, 0.1)];

/// How far values may be from those of the same weights unpacked: products add up in another order.
pub const ROUNDING: f32 = 2e-5;

/// Writes the fixture `name` into the folder `target`.
fn packed(name: &str, target: &Path, options: &QuantiseOptions) -> inference_core::Result<()> {
    quantised(&folder(name), target, options)
}

/// Writes the model in `source` into the folder `target`.
pub fn quantised(
    source: &Path,
    target: &Path,
    options: &QuantiseOptions,
) -> inference_core::Result<()> {
    metal_backend::register()?;
    quantise(source, target, options, &CancelToken::new(), &mut |_, _| {}).map(drop)
}

/// Groups of 32, on the CPU.
pub fn options(mode: &str, bits: Option<i32>) -> QuantiseOptions {
    QuantiseOptions {
        default: packing(mode, bits, Some(32)).expect("the mode has these bits"),
        recipe: None,
        rules: Vec::new(),
        dtype: None,
        keep_vision: false,
        backend: Some("cpu".into()),
    }
}

/// The names of all tensors in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let bytes = fs::read(folder.join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("they are whole");
    tensors.names().iter().map(|name| (*name).to_owned()).collect()
}

/// Replaces the packed weights of `bits` bits in a folder by what they stand for, in F32.
pub fn unpack(folder: &Path, bits: u32) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("they are whole");
    let words = |name: &str| -> Vec<u32> {
        let data = tensors.tensor(name).expect(name).data().chunks_exact(4);
        data.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    };
    let floats = |name: &str| -> Vec<f32> {
        let data = tensors.tensor(name).expect(name).data().chunks_exact(2);
        let half = |bytes: &[u8]| u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16;
        data.map(|bytes| f32::from_bits(half(bytes))).collect()
    };
    let mut all: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, tensor) in tensors.iter() {
        let path = name.strip_suffix("weight").unwrap_or_default();
        let is_bf16 = tensor.dtype() == SafeDtype::BF16;
        let values = if tensor.dtype() == SafeDtype::U32 {
            let (scales, biases) = (format!("{path}scales"), format!("{path}biases"));
            let (scales, biases) = (floats(&scales), floats(&biases));
            let packed = words(name);
            let value = |at: usize| packed[at / (32 / bits as usize)] >> (at as u32 * bits % 32);
            let value = |at: usize| (value(at) & ((1 << bits) - 1)) as f32;
            (0..scales.len() * 32).map(|at| value(at) * scales[at / 32] + biases[at / 32]).collect()
        } else if is_bf16 && !name.ends_with(".scales") && !name.ends_with(".biases") {
            floats(name)
        } else {
            continue;
        };
        let mut shape = tensor.shape().to_vec();
        let rows: usize = shape.iter().rev().skip(1).product();
        if let Some(last) = shape.last_mut() {
            *last = values.len() / rows;
        }
        let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
        all.push((name.to_owned(), shape, bytes));
    }
    let views = all.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(SafeDtype::F32, shape.clone(), bytes).expect("a tensor");
        (name.as_str(), view)
    });
    safetensors::serialize_to_file(views, None, &path).expect("it can be written");
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).expect("a config");
    let mut config: Json = serde_json::from_str(&text).expect("it is JSON");
    let fields = config.as_object_mut().expect("an object");
    fields.retain(|key, _| !key.starts_with("quantization"));
    fs::write(&path, config.to_string()).expect("it can be written");
    fs::remove_file(folder.join("model.safetensors.index.json")).expect("an index");
}

fn scores(model: &dyn EmbeddingModel, fixture: &Fixture) -> Vec<f32> {
    model.score(&fixture.pairs(), &ScoreOptions::default()).expect("the pairs fit").logits
}

pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn vectors_are_near_those_of_the_unquantised_model() {
    let options_of_texts = EmbedOptions { truncate: Truncate::End, ..EmbedOptions::default() };
    let mut wrong = Vec::new();
    for name in EMBEDDERS {
        let fixture = Fixture::new(name);
        let plain = fixture.load(Default::default());
        let expected = plain.embed(&fixture.inputs(), &options_of_texts).expect("the texts fit");
        for (mode, bits, least, _) in CASES {
            let home = TempDir::new().expect("a folder");
            let target = home.path().join("made");
            packed(name, &target, &options(mode, bits)).expect(name);
            let model = load(&target, &EmbeddingLoadOptions::default()).expect(name);
            let made = model.embed(&fixture.inputs(), &options_of_texts).expect("the texts fit");
            assert_eq!(made.tokens, expected.tokens, "{name}");
            let pairs = made.vectors.iter().zip(&expected.vectors);
            let nearest = pairs.map(|(a, b)| cosine(a, b)).fold(1.0, f32::min);
            println!("{name} {mode} {bits:?}: cosine {nearest:.5}");
            if nearest < least {
                wrong.push(format!("{name} {mode} {bits:?}: cosine {nearest}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn scores_are_near_those_of_the_unquantised_model() {
    let mut wrong = Vec::new();
    for name in RERANKERS {
        let fixture = Fixture::new(name);
        let expected = scores(&*fixture.load(Default::default()), &fixture);
        let scale = 1.0 + expected.iter().fold(0.0_f32, |most, logit| most.max(logit.abs()));
        for (mode, bits, _, most) in CASES {
            let home = TempDir::new().expect("a folder");
            let target = home.path().join("made");
            packed(name, &target, &options(mode, bits)).expect(name);
            let model = load(&target, &EmbeddingLoadOptions::default()).expect(name);
            let furthest = distance(&scores(&*model, &fixture), &expected) / scale;
            println!("{name} {mode} {bits:?}: {furthest:.4} of {scale} away");
            if furthest > most {
                wrong.push(format!("{name} {mode} {bits:?}: {furthest} of {scale} away"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn packed_weights_are_computed_with_as_what_they_stand_for() {
    let mut wrong = Vec::new();
    for name in EMBEDDERS.into_iter().chain(RERANKERS) {
        let fixture = Fixture::new(name);
        for bits in [4, 8] {
            let home = TempDir::new().expect("a folder");
            let made = home.path().join("made");
            packed(name, &made, &options("affine", Some(bits))).expect(name);
            let options = EmbeddingLoadOptions { dtype: Some(Dtype::F32), ..Default::default() };
            let results = |model: &dyn EmbeddingModel| match RERANKERS.contains(&name) {
                true => scores(model, &fixture),
                false => {
                    let end = EmbedOptions { truncate: Truncate::End, ..EmbedOptions::default() };
                    let made = model.embed(&fixture.inputs(), &end).expect("the texts fit");
                    made.vectors.concat()
                }
            };
            let of_packed = results(&*load(&made, &options).expect(name));
            unpack(&made, bits as u32);
            let of_unpacked = results(&*load(&made, &options).expect(name));
            let furthest = distance(&of_packed, &of_unpacked);
            println!("{name} {bits}: {furthest:.1e}");
            if furthest > ROUNDING {
                wrong.push(format!("{name} {bits}: {furthest:.1e} away"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_and_config_are_those_of_mlx_embeddings() {
    for (name, modules) in [
        (
            "bert",
            &[
                "embeddings.word_embeddings",
                "embeddings.position_embeddings",
                "embeddings.token_type_embeddings",
                "encoder.layer.0.attention.self.query",
                "pooler.dense",
            ][..],
        ),
        ("xlm_roberta", &["embeddings.position_embeddings", "encoder.layer.1.intermediate.dense"]),
        ("modernbert", &["model.embeddings.tok_embeddings", "model.layers.0.attn.Wqkv"]),
        ("modernbert_reranker", &["model.layers.0.mlp.Wi", "head.dense", "classifier"]),
        ("qwen3_embedding", &["model.embed_tokens", "model.layers.0.self_attn.q_proj"]),
        ("embedding_gemma", &["model.embed_tokens", "model.layers.0.mlp.up_proj"]),
    ] {
        let home = TempDir::new().expect("a folder");
        let target = home.path().join("made");
        packed(name, &target, &options("affine", Some(4))).expect(name);
        let names = names(&target);
        for module in modules {
            for part in ["weight", "scales", "biases"] {
                assert!(names.contains(&format!("{module}.{part}")), "{name}: {module}.{part}");
            }
        }
        let text = fs::read_to_string(target.join("config.json")).expect("a config");
        let config: Json = serde_json::from_str(&text).expect("it is JSON");
        let expected = serde_json::json!({"group_size": 32, "bits": 4, "mode": "affine"});
        assert_eq!(config["quantization"], expected, "{name}");
    }
}

#[test]
fn rules_leave_tables_of_places_unpacked() {
    let home = TempDir::new().expect("a folder");
    let target = home.path().join("made");
    let rules = vec![Rule::parse("embeddings.*=off").expect("a rule")];
    packed("bert", &target, &QuantiseOptions { rules, ..options("affine", Some(4)) })
        .expect("bert");
    let names = names(&target);
    assert!(!names.iter().any(|name| name.starts_with("embeddings.") && name.ends_with("scales")));
    assert!(names.contains(&"encoder.layer.0.output.dense.bias".to_owned()));
    load(&target, &EmbeddingLoadOptions::default()).expect("it loads");
}
