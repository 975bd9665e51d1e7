//! Weights that are kept as a seed and shapes, as `scripts/seeded/weights.py` makes them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::Bytes;

/// Writes `model.safetensors` beside the `weights.json` of `folder`.
pub fn write(folder: &Path) {
    let text = fs::read_to_string(folder.join("weights.json")).expect("the plan is there");
    let plan: Json = serde_json::from_str(&text).expect("the plan is JSON");
    let seed = plan["seed"].as_u64().expect("a seed");
    let tensors = plan["tensors"].as_object().expect("tensors");
    let tensors: Vec<Bytes> = tensors
        .iter()
        .map(|(name, draw)| {
            let dtype = draw.get("dtype").unwrap_or(&plan["dtype"]).as_str().expect("a dtype");
            let values = values(seed, name, draw);
            let (dtype, bytes) = match dtype {
                "float32" => (Dtype::F32, values.flat_map(f32::to_le_bytes).collect()),
                "bfloat16" => {
                    let rounded = values.map(bf16::from_f32);
                    (Dtype::BF16, rounded.flat_map(bf16::to_le_bytes).collect())
                }
                other => panic!("{name}: {other}"),
            };
            Bytes { name: name.clone(), dtype, shape: shape(draw), bytes }
        })
        .collect();
    let views = tensors.iter().map(|Bytes { name, dtype, shape, bytes }| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("values of the shape"))
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(metadata)).expect("weights");
    fs::write(folder.join("model.safetensors"), bytes).expect("the folder takes the file");
}

fn shape(draw: &Json) -> Vec<usize> {
    let sizes = draw["shape"].as_array().expect("a shape").iter();
    sizes.map(|size| size.as_u64().expect("a size") as usize).collect()
}

/// The values of a tensor, each by the seed, the tensor's name and its index alone.
fn values(seed: u64, name: &str, draw: &Json) -> impl Iterator<Item = f32> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let shape = shape(draw);
    let number = |key: &str| draw.get(key).map_or(0.0, |value| value.as_f64().expect("a number"));
    let mean = number("mean") as f32;
    let scale = (number("std") * 1.732_050_807_568_877_2 / f64::from(1 << 24)) as f32;
    let all = shape.iter().product();
    // What no token of the tokenizer names is nothing.
    let named = draw.get("rows").map_or(all, |rows| {
        rows.as_u64().expect("a size") as usize * shape[1..].iter().product::<usize>()
    });
    let key = mixed(seed ^ hashed(name));
    (0..all).map(move |index| {
        if index >= named {
            return 0.0;
        }
        let bits = mixed(key.wrapping_add((index as u64 + 1).wrapping_mul(GOLDEN))) >> 40;
        // Odd numbers of 24 bits and a sign, which f32 has without rounding.
        (2 * bits as i32 - ((1 << 24) - 1)) as f32 * scale + mean
    })
}

/// The finaliser of splitmix64.
fn mixed(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a of the name's bytes.
fn hashed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |value, byte| {
        (value ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn weights_of_a_seed_are_those_of_the_script_byte_for_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = r#"{"seed": 18446744073709551557, "dtype": "bfloat16", "tensors": {
        "model.embed_tokens.weight": {"shape": [40, 8], "std": 0.5, "rows": 37},
        "model.norm.weight": {"shape": [8], "mean": 1.0, "std": 0.2},
        "bias": {"shape": [3, 5, 7], "std": 1.5, "mean": -0.3, "dtype": "float32"}
    }}"#;
    fs::write(folder.path().join("weights.json"), plan).expect("it is written");
    write(folder.path());
    let bytes = fs::read(folder.path().join("model.safetensors")).expect("it is there");
    let digest = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(digest, "3f2b51b313775c4f419721dfefe1d0a11fdc8e6225de020fcb1323fd3d6192b6");
}
