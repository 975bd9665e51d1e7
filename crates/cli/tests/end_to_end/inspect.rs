//! `ml inspect` from beginning to end.

use std::fs;

use safetensors::{Dtype, SafeTensors};

use crate::{generated, json, ml, ml_with_stdin, text};

const PROMPT: &str = "Once upon a time <b> & \"fox\"";

#[test]
fn a_table_has_a_row_for_each_head() {
    let output = ml(&["inspect", "--raw", PROMPT, "--layers", "1,0"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("LAYER  HEAD  ENTROPY  MOST ATTENDED"), "{table}");
    let report = json(&["inspect", "--raw", PROMPT, "--layers", "1,0", "--json"]);
    let heads = report["layers"][0]["n_heads"].as_u64().unwrap() as usize;
    assert_eq!(rows.len(), 1 + 2 * heads, "{table}");
    assert!(rows[1].trim_start().starts_with('1') && rows[heads + 1].trim_start().starts_with('0'));
    assert!(rows[1..].iter().all(|row| row.contains('%')), "{table}");
    assert!(text(&output.stderr).contains(" tokens, "), "{}", text(&output.stderr));
    assert_eq!(generated(&["inspect", "--raw", PROMPT, "-q"]), "");
}

#[test]
fn json_tells_shapes_and_entropies_and_values_where_asked() {
    let arguments = ["inspect", "--raw", PROMPT, "--layers", "1", "--json"];
    let shapes = json(&arguments);
    let layer = &shapes["layers"][0];
    let n = shapes["seq_len"].as_u64().unwrap() as usize;
    assert_eq!(shapes["tokens"].as_array().unwrap().len(), n);
    assert_eq!((&layer["layer"], layer.get("weights")), (&1.into(), None));
    let heads = layer["n_heads"].as_u64().unwrap() as usize;
    let entropy = layer["entropy"].as_array().unwrap();
    assert_eq!((entropy.len(), entropy[0].as_array().unwrap().len()), (heads, n));
    let report = json(&[&arguments[..], &["--values"]].concat());
    let layer = &report["layers"][0];
    let weights: Vec<f64> =
        layer["weights"].as_array().unwrap().iter().filter_map(|weight| weight.as_f64()).collect();
    assert_eq!(layer["shapes"]["weights"], serde_json::json!([heads, n, n]));
    assert_eq!(weights.len(), heads * n * n);
    for (at, row) in weights.chunks_exact(n).enumerate() {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5);
        let entropy: f64 = row.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        let told = layer["entropy"][at / n][at % n].as_f64().unwrap();
        assert!((entropy - told).abs() < 1e-4, "{entropy} {told}");
        assert!(row[at % n + 1..].iter().all(|weight| *weight == 0.0));
    }
}

#[test]
fn tensors_are_those_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("attention.safetensors");
    let file = path.to_str().unwrap();
    let arguments = ["inspect", "--raw", PROMPT, "--json", "--values", "--safetensors", file];
    let report = json(&arguments);
    let bytes = fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let layers = report["layers"].as_array().unwrap();
    assert_eq!(tensors.len(), 1 + 5 * layers.len());
    for (index, layer) in layers.iter().enumerate() {
        for part in ["queries", "keys", "weights"] {
            let tensor = tensors.tensor(&format!("layers.{index}.{part}")).unwrap();
            assert_eq!(tensor.dtype(), Dtype::F32);
            assert_eq!(serde_json::json!(tensor.shape()), layer["shapes"][part]);
            let values = tensor.data().chunks_exact(4);
            let values = values.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let told = layer[part].as_array().unwrap();
            assert_eq!(told.len(), values.len());
            for (value, told) in values.zip(told) {
                assert_eq!(Some(value), told.as_f64().map(|told| told as f32), "{part}");
            }
        }
    }
    assert_eq!(
        tensors.tensor("ids").unwrap().shape(),
        [report["tokens"].as_array().unwrap().len()]
    );
}

#[test]
fn a_picture_has_a_panel_for_each_layer_or_head() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("attention.svg");
    let draw = |more: &[&str]| {
        let file = path.to_str().unwrap();
        let arguments = ["inspect", "-q", "--raw", PROMPT, "--layers", "0,1", "--svg", file];
        assert_eq!(generated(&[&arguments[..], more].concat()), "");
        fs::read_to_string(&path).unwrap()
    };
    let mean = draw(&[]);
    assert!(mean.starts_with("<svg ") && mean.ends_with("</svg>\n"));
    assert_eq!(mean.matches("mean of").count(), 2);
    // No text of the prompt is markup: what opens is what this program opens.
    assert!(mean.contains("&lt;") && mean.contains("&amp;") && mean.contains("&quot;"));
    assert!(!mean.contains("<b"), "{mean}");
    assert_eq!(mean.matches("<g").count(), mean.matches("</g>").count());
    assert_eq!(mean.matches("<text").count(), mean.matches("</text>").count());
    let heads = draw(&["--head", "1,0"]);
    assert_eq!(heads.matches("head 1: entropy").count(), 2);
    assert_eq!(heads.matches("head 0: entropy").count(), 2);
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = ml_with_stdin(&[&["inspect"], arguments].concat(), b"");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(words) && output.stdout.is_empty(), "{error}");
    };
    refused(&[], 2, "the prompt is empty");
    refused(&["a", "--layers", "99"], 2, "no layer 99");
    refused(&["a", "--layers", "1,1"], 2, "layer 1 twice");
    refused(&["a", "--values"], 2, "--json");
    refused(&["a", "--head", "0"], 2, "--svg");
    refused(&["a", "--svg", "x.svg", "--head", "99"], 2, "has no head 99");
    refused(&["a", "--svg", "no/such/x.svg"], 1, "no/such/x.svg: no such file");
    refused(&["a", "--safetensors", "no/such/x"], 1, "no/such/x: ");
    refused(&["--raw", "--svg", "x.svg", &"fox ".repeat(600)], 1, "a picture at most 512");
    refused(&["a", "--timeout", "0.000001"], 1, "raise --timeout");
}
