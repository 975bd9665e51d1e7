//! Checkpoints under the names and in the form that mlx-lm's converter gives them, in float32: the
//! tokens of the released ones.

use std::collections::BTreeMap;
use std::ops::Range;

use inference_core::LoadOptions;
use serde_json::Value as Json;

use crate::fixtures::{Checkpoint, Golden, Tensor, greedy, ids, run, token_ids};

/// Checks the tokens of `checkpoint` against those of `name`.
fn has_the_tokens_of(name: &str, checkpoint: &Checkpoint) {
    let model = checkpoint.load(LoadOptions::default());
    for (prompt, expected) in Golden::new(name).prompts() {
        let tokens = run(&*model, &ids(&expected["ids"]), &greedy(48));
        let expected = ids(&expected["greedy"]["base"]["tokens"]);
        assert_eq!(token_ids(&tokens), expected, "{name} {prompt}");
    }
}

fn is_convolution(name: &str) -> bool {
    name.ends_with("conv1d.weight") || name.ends_with("conv.conv.weight")
}

/// A convolution as the converter turns it: the taps before the one input of each channel.
fn turned(tensor: Tensor) -> Tensor {
    match tensor.shape[..] {
        [channels, 1, taps] if is_convolution(&tensor.name) => {
            Tensor { shape: vec![channels, taps, 1], ..tensor }
        }
        _ => tensor,
    }
}

#[test]
fn granitemoehybrid_with_projections_of_experts_apart_has_the_same_tokens() {
    let checkpoint = Checkpoint::new("granitemoehybrid").with_tensors(|tensor| {
        let tensor = turned(tensor);
        let Some(layer) = tensor.name.strip_suffix("input_linear.weight") else {
            let name =
                tensor.name.replace("sparse_moe.output_linear", "sparse_moe.switch_mlp.down_proj");
            return vec![Tensor { name, ..tensor }];
        };
        let [experts, rows, columns] = tensor.shape[..] else { return vec![tensor] };
        let half = rows / 2 * columns;
        let part = |name: &str, first: usize| {
            let of_expert = |expert: usize| {
                let at = (2 * expert + first) * half;
                tensor.values[at..at + half].to_vec()
            };
            Tensor {
                name: format!("{layer}switch_mlp.{name}.weight"),
                shape: vec![experts, rows / 2, columns],
                values: (0..experts).flat_map(of_expert).collect(),
            }
        };
        vec![part("gate_proj", 0), part("up_proj", 1)]
    });
    has_the_tokens_of("granitemoehybrid", &checkpoint);
}

#[test]
fn falcon_h1_with_factors_in_the_weights_has_the_same_tokens() {
    let config = Checkpoint::new("falcon_h1").config();
    let factor = |key: &str| config[key].as_f64().expect("a factor") as f32;
    let factors = |key: &str| -> Vec<f32> {
        let list = config[key].as_array().expect("factors").iter();
        list.map(|factor| factor.as_f64().expect("a factor") as f32).collect()
    };
    let size = |key: &str| config[key].as_u64().expect("a size") as usize;
    let shared = size("mamba_n_groups") * size("mamba_d_state");
    let inner = size("mamba_d_ssm");
    let counts = [inner, inner, shared, shared, size("mamba_n_heads")];
    let of_rows: Vec<f32> = factors("ssm_multipliers")
        .into_iter()
        .zip(counts)
        .flat_map(|(factor, count)| std::iter::repeat_n(factor, count))
        .collect();
    let of_mlp = factors("mlp_multipliers");
    let checkpoint = Checkpoint::new("falcon_h1").with_tensors(|tensor| {
        let tensor = turned(tensor);
        let module = tensor.name.rsplit('.').nth(1).unwrap_or_default();
        let all = match module {
            "embed_tokens" => factor("embedding_multiplier"),
            // The converter leaves out that of keys, and values.
            "q_proj" | "k_proj" => factor("attention_in_multiplier"),
            "o_proj" => factor("attention_out_multiplier"),
            "in_proj" => factor("ssm_in_multiplier"),
            "out_proj" => factor("ssm_out_multiplier"),
            "gate_proj" => of_mlp[0],
            "down_proj" => of_mlp[1],
            _ => 1.0,
        };
        let columns = tensor.shape.last().copied().unwrap_or(1);
        let of_row = |at: usize| if module == "in_proj" { of_rows[at / columns] } else { 1.0 };
        let values = tensor.values.iter().enumerate();
        let values = values.map(|(at, value)| value * all * of_row(at)).collect();
        vec![Tensor { values, ..tensor }]
    });
    has_the_tokens_of("falcon_h1", &checkpoint);
}

#[test]
fn a_converted_falcon_h1_with_biases_is_refused() {
    let checkpoint = Checkpoint::new("falcon_h1").with_tensors(|tensor| vec![turned(tensor)]);
    let mut config = checkpoint.config();
    config["attention_bias"] = Json::Bool(true);
    let refusal = checkpoint.with_config(&config).refusal();
    assert!(refusal.contains("biases of Falcon H1"), "{refusal}");
}

#[test]
fn qwen3_next_with_whole_norms_has_the_same_tokens() {
    let checkpoint = Checkpoint::new("qwen3_next").with_tensors(|tensor| {
        if tensor.name.starts_with("mtp.") {
            return vec![];
        }
        // The converter leaves the norm of delta nets as it is, which is released whole.
        let is_offset =
            tensor.name.ends_with("norm.weight") && !tensor.name.contains("linear_attn");
        let offset = f32::from(is_offset);
        let values = tensor.values.iter().map(|value| value + offset).collect();
        vec![turned(Tensor { values, ..tensor })]
    });
    has_the_tokens_of("qwen3_next", &checkpoint);
}

#[test]
fn lfm2_with_turned_convolutions_has_the_same_tokens() {
    let checkpoint = Checkpoint::new("lfm2").with_tensors(|tensor| vec![turned(tensor)]);
    has_the_tokens_of("lfm2", &checkpoint);
}

#[test]
fn kimi_linear_under_the_converters_names_has_the_same_tokens() {
    let config = Checkpoint::new("kimi_linear").config();
    let size = |key: &str| config[key].as_u64().expect("a size") as usize;
    let (heads, rank) = (size("num_attention_heads"), size("kv_lora_rank"));
    let (nope, value) = (size("qk_nope_head_dim"), size("v_head_dim"));
    let checkpoint = Checkpoint::new("kimi_linear").with_tensors(|tensor| {
        let tensor = turned(tensor);
        let Some(layer) = tensor.name.strip_suffix("kv_b_proj.weight") else {
            let name = tensor
                .name
                .replace("block_sparse_moe.gate.e_score", "mlp.e_score")
                .replace("block_sparse_moe", "mlp")
                .replace("_conv1d.weight", "_conv.conv.weight");
            let shape =
                if name.ends_with("A_log") { vec![heads_of(&config)] } else { tensor.shape };
            return vec![Tensor { name, shape, values: tensor.values }];
        };
        let at = |(head, row, column): (usize, usize, usize)| {
            tensor.values[(head * (nope + value) + row) * rank + column]
        };
        let embed_q = (0..heads).flat_map(|head| {
            (0..rank).flat_map(move |column| (0..nope).map(move |row| (head, row, column)))
        });
        let unembed_out = (0..heads).flat_map(|head| {
            (0..value).flat_map(move |row| (0..rank).map(move |column| (head, nope + row, column)))
        });
        let part = |name: &str, shape: [usize; 3], values: Vec<f32>| Tensor {
            name: format!("{layer}{name}.weight"),
            shape: shape.into(),
            values,
        };
        vec![
            part("embed_q", [heads, rank, nope], embed_q.map(at).collect()),
            part("unembed_out", [heads, value, rank], unembed_out.map(at).collect()),
        ]
    });
    has_the_tokens_of("kimi_linear", &checkpoint);
}

/// Heads of the delta nets of a Kimi Linear.
fn heads_of(config: &Json) -> usize {
    config["linear_attn_config"]["num_heads"].as_u64().expect("a size") as usize
}

/// The tensors of experts of a layer as mlx-lm puts them together: `experts.3.NAME` of all numbers
/// become `INTO.NEW`, for the pairs (`NAME`, `NEW`).
fn stacked(tensors: Vec<Tensor>, into: &str, names: &[(&str, &str)]) -> Vec<Tensor> {
    let mut found: Vec<Tensor> = Vec::new();
    let mut of_experts: BTreeMap<String, BTreeMap<usize, Tensor>> = BTreeMap::new();
    for tensor in tensors {
        let parts = tensor.name.split_once(".experts.").and_then(|(layer, rest)| {
            let (number, own) = rest.strip_suffix(".weight")?.split_once('.')?;
            let (_, new) = names.iter().find(|(known, _)| *known == own)?;
            Some((format!("{layer}.{into}.{new}.weight"), number.parse().ok()?))
        });
        match parts {
            Some((name, number)) => {
                drop(of_experts.entry(name).or_default().insert(number, tensor))
            }
            None => found.push(tensor),
        }
    }
    assert!(!of_experts.is_empty(), "no experts");
    found.extend(of_experts.into_iter().map(|(name, experts)| Tensor {
        name,
        shape: [&[experts.len()], &experts[&0].shape[..]].concat(),
        values: experts.into_values().flat_map(|expert| expert.values).collect(),
    }));
    found
}

const SAME: [(&str, &str); 3] =
    [("gate_proj", "gate_proj"), ("up_proj", "up_proj"), ("down_proj", "down_proj")];

#[test]
fn mixtures_with_their_experts_put_together_have_the_same_tokens() {
    for (name, into) in [
        ("afmoe", "experts"),
        ("bailing_moe", "switch_mlp"),
        ("deepseek_v2", "switch_mlp"),
        ("dots1", "experts"),
        ("exaone_moe", "switch_mlp"),
        ("mellum", "switch_mlp"),
        ("olmoe", "switch_mlp"),
        ("solar_open", "switch_mlp"),
    ] {
        let checkpoint = Checkpoint::new(name).with_all(|tensors| {
            let mut tensors = stacked(tensors, into, &SAME);
            if name == "bailing_moe" {
                for tensor in &mut tensors {
                    tensor.name =
                        tensor.name.replace("mlp.gate.weight", "mlp.gate.gate_proj.weight");
                }
            }
            tensors
        });
        has_the_tokens_of(name, &checkpoint);
    }
    let numbered = [("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")];
    let checkpoint =
        Checkpoint::new("phimoe").with_all(|tensors| stacked(tensors, "switch_mlp", &numbered));
    has_the_tokens_of("phimoe", &checkpoint);
}

#[test]
fn llama4_with_projections_of_experts_apart_has_the_same_tokens() {
    let checkpoint = Checkpoint::new("llama4").with_tensors(|tensor| {
        let of = |name: &str, rows: Range<usize>| {
            let [experts, columns, all] = tensor.shape[..] else { panic!("{:?}", tensor.shape) };
            let at = |expert: usize, row: usize| {
                let first = expert * columns * all;
                (0..columns).map(move |column| first + column * all + row)
            };
            let places = (0..experts).flat_map(|expert| {
                rows.clone().flat_map(move |row| at(expert, row)).collect::<Vec<_>>()
            });
            Tensor {
                name: tensor.name.replace("gate_up_proj", name).replace("down_proj", name)
                    + ".weight",
                shape: vec![experts, rows.len(), columns],
                values: places.map(|place| tensor.values[place]).collect(),
            }
        };
        let all = tensor.shape.last().copied().unwrap_or(0);
        if tensor.name.ends_with("experts.gate_up_proj") {
            return vec![of("gate_proj", 0..all / 2), of("up_proj", all / 2..all)];
        }
        if tensor.name.ends_with("experts.down_proj") {
            return vec![of("down_proj", 0..all)];
        }
        vec![tensor]
    });
    has_the_tokens_of("llama4", &checkpoint);
}
