//! Configs: other spellings of the same model, and features that the checkpoints do not use.

use std::fs;

use inference_core::LoadOptions;
use safetensors::SafeTensors;
use serde_json::{Map, Value as Json, json};

use crate::checkpoints::{F32_TOLERANCE, logprob_tolerance};
use crate::fixtures::{
    Checkpoint, Golden, Tensor, distance, first_logits, greedy, ids, json as fixture, logprobs,
    numbers, run, token_ids,
};

/// Checks that the config as transformers 5 saves it makes the same model.
pub fn resaved_config_gives_the_same_tokens(name: &str) {
    let resaved = fixture(&format!("configs/{name}-v5.json"));
    let model = Checkpoint::new(name).with_config(&resaved).load(LoadOptions::default());
    for (prompt, expected) in Golden::new(name).prompts() {
        let tokens = run(&*model, &ids(&expected["ids"]), &greedy(48));
        let base = &expected["greedy"]["base"];
        assert_eq!(token_ids(&tokens), ids(&base["tokens"]), "{name} {prompt}");
        let distance = distance(&logprobs(&tokens), &numbers(&base["logprobs"]));
        assert!(distance <= logprob_tolerance(name), "{name} {prompt}: {distance:e}");
    }
}

#[test]
fn llama_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("llama");
}

#[test]
fn mistral_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("mistral");
}

#[test]
fn qwen2_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("qwen2");
}

#[test]
fn qwen3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("qwen3");
}

#[test]
fn gemma2_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gemma2");
}

#[test]
fn gemma3_text_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gemma3_text");
}

#[test]
fn multimodal_gemma3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gemma3");
}

#[test]
fn phi3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("phi3");
}

#[test]
fn stretched_phi3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("phi3_longrope");
}

#[test]
fn olmo2_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("olmo2");
}

#[test]
fn smollm3_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("smollm3");
}

#[test]
fn qwen3_moe_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("qwen3_moe");
}

#[test]
fn gpt_oss_config_of_transformers_5_gives_the_same_tokens() {
    resaved_config_gives_the_same_tokens("gpt_oss");
}

/// Checks that a checkpoint whose config and weights are changed as somebody else saves them gives
/// the same tokens.
fn saved_otherwise_it_gives_the_same_tokens(
    name: &str,
    change: impl Fn(&mut Json),
    saved: impl Fn(Checkpoint) -> Checkpoint,
) {
    let checkpoint = saved(Checkpoint::new(name));
    let mut config = checkpoint.config();
    change(&mut config);
    let model = checkpoint.with_config(&config).load(LoadOptions::default());
    for (prompt, expected) in Golden::new(name).prompts() {
        let tokens = run(&*model, &ids(&expected["ids"]), &greedy(48));
        let base = &expected["greedy"]["base"];
        assert_eq!(token_ids(&tokens), ids(&base["tokens"]), "{name} {prompt}");
    }
}

#[test]
fn gemma_4_with_sizes_for_each_layer_gives_the_same_tokens() {
    for name in ["gemma4", "gemma4_e", "gemma4_moe"] {
        let change = |config: &mut Json| {
            let text = match config.get("text_config") {
                Some(_) => &mut config["text_config"],
                None => config,
            };
            let text = text.as_object_mut().expect("a config");
            let head_dim = text.remove("global_head_dim").expect("it has one");
            let heads = text.remove("num_global_key_value_heads");
            let mut sizes = json!({"head_dim": head_dim});
            if let Some(heads) = heads.filter(|heads| !heads.is_null()) {
                sizes["num_key_value_heads"] = heads;
            }
            let types = text["layer_types"].as_array().expect("a list").iter().enumerate();
            let far = types.filter(|(_, kind)| **kind == "full_attention");
            let layers: Map<_, _> = far.map(|(at, _)| (at.to_string(), sizes.clone())).collect();
            text.insert("per_layer_config".into(), layers.into());
        };
        saved_otherwise_it_gives_the_same_tokens(name, change, |checkpoint| checkpoint);
    }
    let checkpoint = Checkpoint::new("gemma4");
    let mut config = checkpoint.config();
    let text =
        if config.get("text_config").is_some() { &mut config["text_config"] } else { &mut config };
    text["per_layer_config"] = json!({"0": {"head_dim": 8}});
    let refusal = checkpoint.with_config(&config).refusal();
    assert!(refusal.contains("`per_layer_config` of layer 0"), "{refusal}");
}

#[test]
fn qwen_2_moe_with_a_window_of_nothing_gives_the_same_tokens() {
    let change = |config: &mut Json| config["sliding_window"] = 0.into();
    saved_otherwise_it_gives_the_same_tokens("qwen2_moe", change, |checkpoint| checkpoint);
}

#[test]
fn ernie_whose_mixtures_end_with_the_last_layer_wants_experts_there() {
    let checkpoint = Checkpoint::new("ernie4_5_moe");
    let mut config = checkpoint.config();
    let last = config["num_hidden_layers"].as_i64().expect("a number") - 1;
    assert!(config["moe_layer_end_index"].as_i64() < Some(last), "its last layer is dense");
    config["moe_layer_end_index"] = (-1).into();
    let refusal = checkpoint.with_config(&config).refusal();
    assert!(refusal.contains(&format!("model.layers.{last}.mlp.")), "{refusal}");
}

#[test]
fn the_bias_of_an_output_layer_beside_tied_embeddings_is_added_to_the_logits() {
    const PROJECTIONS: [&str; 7] =
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
    let plain = Checkpoint::new("ernie4_5_moe");
    let mut config = plain.config();
    assert_eq!(config["tie_word_embeddings"], json!(true));
    config["use_bias"] = true.into();
    let bias = |id: usize| ((id * 37) % 101) as f32 / 8.0 - 6.0;
    let with_biases = |head: bool| {
        Checkpoint::new("ernie4_5_moe").with_config(&config).with_tensors(|tensor| {
            let rows = tensor.shape[0];
            // Experts have none: transformers holds all of them in one tensor.
            let module = tensor.name.strip_suffix(".weight").map(str::to_owned);
            let module = module.filter(|name| !name.contains(".experts."));
            let named = |name: String, values| Tensor { name, shape: vec![rows], values };
            let mut all = vec![tensor];
            match module {
                Some(name) if PROJECTIONS.iter().any(|own| name.ends_with(own)) => {
                    all.push(named(format!("{name}.bias"), vec![0.0; rows]));
                }
                Some(name) if head && name == "model.embed_tokens" => {
                    all.push(named("lm_head.bias".to_owned(), (0..rows).map(bias).collect()));
                }
                _ => {}
            }
            all
        })
    };
    let prompt = [5, 17, 300, 42];
    let without = with_biases(false).load(LoadOptions::default());
    let with = with_biases(true).load(LoadOptions::default());
    let expected: Vec<f32> = first_logits(&*without, &prompt)
        .iter()
        .enumerate()
        .map(|(id, logit)| logit + bias(id))
        .collect();
    assert!(distance(&first_logits(&*with, &prompt), &expected) < 1e-5);
    let unknown = Checkpoint::new("qwen2").with_tensors(|tensor| {
        let bias = Tensor { name: "lm_head.bias".into(), shape: vec![8], values: vec![0.0; 8] };
        if tensor.name == "model.norm.weight" { vec![tensor, bias] } else { vec![tensor] }
    });
    let refusal = unknown.refusal();
    assert!(refusal.contains("lm_head.bias"), "{refusal}");
}

#[test]
fn gpt_oss_that_is_not_packed_gives_the_same_tokens() {
    let change = |config: &mut Json| {
        drop(config.as_object_mut().map(|all| all.remove("quantization_config")))
    };
    saved_otherwise_it_gives_the_same_tokens("gpt_oss", change, unpacked);
}

/// gpt-oss as transformers saves it: experts in matrices that are turned, and not packed.
fn unpacked(checkpoint: Checkpoint) -> Checkpoint {
    const SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let file =
        fs::read(checkpoint.folder().join("model.safetensors")).expect("the weights are there");
    let all = SafeTensors::deserialize(&file).expect("weights");
    checkpoint.with_tensors(|Tensor { name, shape, values }| {
        let Some(own) = name.strip_suffix("_blocks") else {
            let is_packed = name.ends_with("_scales");
            return if is_packed { vec![] } else { vec![Tensor { name, shape, values }] };
        };
        let scales = all.tensor(&format!("{own}_scales")).expect("scales").data().to_vec();
        let bytes = all.tensor(&name).expect("blocks").data().to_vec();
        let [experts, rows, groups, _] = shape[..] else { panic!("blocks of experts") };
        let columns = groups * 32;
        let value = |expert: usize, row: usize, column: usize| {
            let at = (expert * rows + row) * columns + column;
            let code = bytes[at / 2] >> (at % 2 * 4) & 15;
            let size = SIZES[usize::from(code & 7)] * 2_f32.powi(i32::from(scales[at / 32]) - 127);
            if code < 8 { size } else { -size }
        };
        let of_expert = |expert| {
            let places =
                (0..columns).flat_map(move |column| (0..rows).map(move |row| (row, column)));
            places.map(move |(row, column)| (expert, row, column))
        };
        let places = (0..experts).flat_map(of_expert);
        let values = places.map(|(expert, row, column)| value(expert, row, column)).collect();
        vec![Tensor { name: own.to_owned(), shape: vec![experts, columns, rows], values }]
    })
}

/// Checks a checkpoint under the changed config of `golden/variants.json`, in one piece and in
/// chunks that end inside a window.
fn variant_agrees_with_transformers(variant: &str) {
    let golden = Golden::new("variants");
    let expected = &golden.json[variant];
    let base = expected["base"].as_str().unwrap();
    let mut config = fixture(&format!("models/{base}/config.json"));
    for (key, value) in expected["overrides"].as_object().unwrap() {
        config[key] = value.clone();
    }
    let checkpoint = Checkpoint::new(base).with_config(&config);
    for prefill_chunk in [None, Some(7)] {
        let model = checkpoint.load(LoadOptions { prefill_chunk, ..LoadOptions::default() });
        for (prompt, expected) in expected["prompts"].as_object().unwrap() {
            let label = format!("{variant} {prompt} in chunks of {prefill_chunk:?}");
            let prompt_ids = ids(&expected["ids"]);
            let logits = first_logits(&*model, &prompt_ids);
            let reference = golden.logits(&format!("{variant}/{prompt}")).unwrap();
            let from_logits = distance(&logits, &reference);
            let tokens = run(&*model, &prompt_ids, &greedy(48));
            let from_logprobs = distance(&logprobs(&tokens), &numbers(&expected["logprobs"]));
            eprintln!("{label}: logits {from_logits:.1e}, log probabilities {from_logprobs:.1e}");
            assert!(from_logits <= F32_TOLERANCE, "{label}: {from_logits:e}");
            assert_eq!(token_ids(&tokens), ids(&expected["tokens"]), "{label}");
            assert!(from_logprobs <= F32_TOLERANCE, "{label}: {from_logprobs:e}");
        }
    }
}

#[test]
fn linear_rope_scaling_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_linear");
}

#[test]
fn yarn_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn");
}

#[test]
fn yarn_with_mscale_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn_mscale");
}

#[test]
fn yarn_with_an_attention_factor_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn_attention_factor");
}

#[test]
fn untruncated_yarn_agrees_with_transformers() {
    variant_agrees_with_transformers("llama_yarn_untruncated");
}

#[test]
fn a_mistral_with_a_window_agrees_with_transformers() {
    variant_agrees_with_transformers("mistral_window");
}

#[test]
fn a_qwen2_with_a_window_in_its_later_layers_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen2_window");
}

#[test]
fn a_qwen3_with_a_window_in_its_later_layers_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen3_window");
}

#[test]
fn a_gemma2_past_its_window_agrees_with_transformers() {
    variant_agrees_with_transformers("gemma2_window");
}

#[test]
fn a_gemma3_with_a_softcap_agrees_with_transformers() {
    variant_agrees_with_transformers("gemma3_text_softcap");
}

#[test]
fn a_phi3_past_its_window_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_window");
}

#[test]
fn a_phi3_that_rotates_half_of_each_head_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_partial");
}

#[test]
fn longrope_with_an_attention_factor_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_longrope_attention_factor");
}

#[test]
fn longrope_under_its_first_name_agrees_with_transformers() {
    variant_agrees_with_transformers("phi3_longrope_su");
}

#[test]
fn a_smollm3_with_a_window_and_another_interval_agrees_with_transformers() {
    variant_agrees_with_transformers("smollm3_window");
}

#[test]
fn a_qwen3_moe_with_a_window_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen3_moe_window");
}

#[test]
fn a_qwen3_moe_whose_weights_are_not_normalised_agrees_with_transformers() {
    variant_agrees_with_transformers("qwen3_moe_probabilities");
}

#[test]
fn a_gpt_oss_that_clips_more_and_slides_elsewhere_agrees_with_transformers() {
    variant_agrees_with_transformers("gpt_oss_clipped");
}
