//! Every checkpoint: prompts, tokens, log probabilities, logits and texts are the references'.

use inference_core::{ChatOptions, Error, LoadOptions, Message, Role, TextModel, Value};
use serde_json::Value as Json;

use crate::fixtures::{
    Checkpoint, Golden, backend, distance, first_logits, greedy, ids, logprobs, numbers, run,
    token_ids,
};

/// Two float32 engines that add in another order.
pub const F32_TOLERANCE: f32 = 1e-3;

/// mlx-lm rounds Gemma's embedding scale to bf16 even in float32, transformers does not and
/// neither do we; where √hidden_size is no bf16 number, log probabilities differ by this much.
const ROUNDED_SCALE_TOLERANCE: f32 = 5e-3;

/// bf16 has eight bits, and layers amplify each rounding. With MLX's own operations ours is
/// mlx-lm's to the bit, but for a router's probabilities, which are f32 as in transformers. Engines
/// may differ by this much, or by this part of what rounding does to mlx-lm itself, where that is
/// more.
const BF16_TOLERANCE: f32 = 0.5;

/// Rounding may send a position to another expert, and then chance decides how far the logits move:
/// over all prompts, ours may be this many times as far from float32 as the reference's.
const ROUTED_SLACK: f32 = 1.5;

/// Returns true when embeddings are scaled by √hidden_size, and that is no bf16 number.
fn has_rounded_scale(name: &str) -> bool {
    name.starts_with("gemma3_text")
}

/// Returns true when the kernels here refuse the checkpoint in bf16: it has experts that are not
/// packed, which MLX's own do not multiply on a CPU.
pub fn is_refused_in_bf16(name: &str) -> bool {
    let is_ours = metal_backend::cpu_kernels().starts_with("our own");
    let has_dense_experts = [
        "afmoe",
        "bailing_moe",
        "cohere2_moe",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots1",
        "ernie4_5_moe",
        "exaone_moe",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "granitemoe",
        "granitemoe_swa",
        "granitemoehybrid",
        "granitemoeshared",
        "hunyuan_v1_moe",
        "joyai_llm_flash",
        "kimi_k2",
        "kimi_k25",
        "kimi_linear",
        "laguna",
        "lfm2_moe",
        "llama4",
        "llama4_text",
        "mellum",
        "minimax_m2",
        "mistral4",
        "mixtral",
        "nemotron_h",
        "olmoe",
        "phimoe",
        "qwen2_moe",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_moe",
        "qwen3_next",
        "solar_open",
    ];
    has_dense_experts.contains(&name) && backend() == "cpu" && !is_ours
}

/// Returns true when the golden's ids are not those of `tokenizer.json`: for this `model_type`
/// transformers puts the pre-tokenizer of a class of its own in place of the file's.
fn is_encoded_by_class(name: &str) -> bool {
    ["exaone4", "laguna"].contains(&name)
}

/// Sparse activations keep what is left of differences between near values: the two references are
/// 8e-4 apart, and each engine by as much from both.
const SPARSE_TOLERANCE: f32 = 2e-3;

/// How far logits may be from the references' in float32.
fn logit_tolerance(name: &str) -> f32 {
    if name == "gemma3n" { SPARSE_TOLERANCE } else { F32_TOLERANCE }
}

/// How far log probabilities may be from mlx-lm's in float32.
pub fn logprob_tolerance(name: &str) -> f32 {
    if has_rounded_scale(name) { ROUNDED_SCALE_TOLERANCE } else { logit_tolerance(name) }
}

/// The ways to run a checkpoint, under the goldens' names.
const VARIANTS: [&str; 5] =
    ["base", "chunked", "chunked64", "rotating_forced", "rotating_forced_chunked"];

fn load_options(golden: &Json, variant: &str) -> LoadOptions {
    let size = |key: &str, wanted: bool| wanted.then(|| golden[key].as_u64().unwrap() as usize);
    LoadOptions {
        prefill_chunk: size("chunk", variant.ends_with("chunked"))
            .or(size("chunk2", variant == "chunked64")),
        context_length: size("max_kv", variant.starts_with("rotating")),
        ..LoadOptions::default()
    }
}

/// Checks `models/<name>` against `golden/<name>`.
pub fn agrees_with_the_references(name: &str) {
    let checkpoint = Checkpoint::new(name);
    let golden = Golden::new(name);
    let logprob_tolerance = logprob_tolerance(name);
    let mut worst_logprob: f32 = 0.0;
    for variant in VARIANTS {
        if golden.run(&golden.json["prompts"]["long"], variant).is_none() {
            continue;
        }
        let model = checkpoint.load(load_options(&golden.json, variant));
        if variant == "base" {
            assert_eq!(model.info().eos_token_ids, ids(&golden.json["eos_token_ids"]));
            if !is_encoded_by_class(name) {
                prompts_are_the_references(&*model, &golden);
            }
            logits_are_the_references(&*model, &golden, name);
        }
        for (prompt, expected) in golden.prompts() {
            // Where a sequence grows past its first context, mlx-lm has no run with a bounded
            // cache.
            let Some(expected_run) = golden.run(expected, variant) else { continue };
            let tokens = run(&*model, &ids(&expected["ids"]), &greedy(48));
            let found = token_ids(&tokens);
            assert_eq!(found, ids(&expected_run["tokens"]), "{name} {prompt} {variant}");
            let distance = distance(&logprobs(&tokens), &numbers(&expected_run["logprobs"]));
            assert!(distance <= logprob_tolerance, "{name} {prompt} {variant}: {distance:e}");
            worst_logprob = worst_logprob.max(distance);
            if variant == "base" {
                let streamed: String = tokens.iter().map(|token| token.text.as_str()).collect();
                assert_eq!(streamed, model.decode(&found).unwrap(), "{name} {prompt}");
                if let Some(decoded) = expected.get("decoded") {
                    assert_eq!(streamed, decoded.as_str().unwrap(), "{name} {prompt}");
                }
            }
        }
    }
    eprintln!("{name}: log probabilities within {worst_logprob:.1e}");
    if golden.json.get("rule").is_some() {
        // Nothing was computed in bf16.
        return;
    }
    if is_refused_in_bf16(name) {
        // Its evaluation would end the process, so the load names it.
        let error = checkpoint.refusal();
        assert!(error.contains("experts") && error.contains("load the model as f32"), "{error}");
        return;
    }
    bf16_logits_are_the_references(&*checkpoint.load_native(LoadOptions::default()), &golden, name);
}

pub fn bf16_logits_are_the_references(native: &dyn TextModel, golden: &Golden, name: &str) {
    assert_eq!(native.info().dtype, "bf16");
    let (mut between, mut ours, mut theirs) = (0.0_f32, 0.0_f32, 0.0_f32);
    let (mut all_ours, mut all_theirs) = (0.0_f32, 0.0_f32);
    for (prompt, expected) in golden.prompts() {
        let logits = first_logits(native, &ids(&expected["ids"]));
        // On a CPU mlx-lm has no experts in bf16; transformers has.
        let mlx = golden.logits(&format!("{prompt}/mlx_native_last"));
        let hf = || golden.logits(&format!("{prompt}/hf_native_last"));
        let reference = mlx.or_else(hf).unwrap();
        let exact = golden.logits(&format!("{prompt}/mlx_f32_last")).unwrap();
        between = between.max(distance(&logits, &reference));
        let (our, their) = (distance(&logits, &exact), distance(&reference, &exact));
        (ours, theirs) = (ours.max(our), theirs.max(their));
        (all_ours, all_theirs) = (all_ours + our, all_theirs + their);
    }
    eprintln!(
        "{name}: bf16 logits within {between:.1e} of the reference's; from float32 ours are {ours:.1e}, the reference's {theirs:.1e}"
    );
    let agrees = between <= BF16_TOLERANCE.max(BF16_TOLERANCE * theirs);
    // Our own kernels sum in f32, MLX's in bf16: ours may be far from MLX's where they are nearer,
    // over all prompts, to what both mean.
    let nearer = metal_backend::cpu_kernels().starts_with("our own") && all_ours <= all_theirs;
    let is_routed = name.starts_with("gpt_oss") || name.starts_with("qwen3_moe");
    // A GPU sums in another order than the references' CPU.
    let chance = (is_routed || backend() != "cpu") && all_ours <= ROUTED_SLACK * all_theirs;
    assert!(agrees || nearer || chance, "{name}: {between:e} {ours:e} {theirs:e}");
}

pub fn prompts_are_the_references(model: &dyn TextModel, golden: &Golden) {
    for (prompt, expected) in golden.prompts() {
        let text = expected["text"].as_str().unwrap();
        let found = if prompt == "chat" {
            let (messages, mut options) = conversation(&golden.json);
            let mut rendered = model.render_chat(&messages, &options);
            // The references pass over what a template does not read.
            if let Err(Error::Unsupported { what, .. }) = &rendered {
                options.template_kwargs.retain(|(name, _)| name != what);
                rendered = model.render_chat(&messages, &options);
            }
            let rendered = rendered.unwrap();
            assert_eq!(rendered.text, text);
            rendered.ids
        } else {
            model.encode(text).unwrap()
        };
        assert_eq!(found, ids(&expected["ids"]), "{prompt}");
    }
}

fn conversation(golden: &Json) -> (Vec<Message>, ChatOptions) {
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let messages = golden["chat"].as_array().unwrap().iter();
    let kwargs = golden["chat_kwargs"].as_object().unwrap().iter();
    let options = ChatOptions {
        template_kwargs: kwargs.map(|(k, v)| (k.clone(), Value::String(text(v)))).collect(),
        ..ChatOptions::default()
    };
    let message = |m: &Json| Message::new(Role::from(&*text(&m["role"])), text(&m["content"]));
    (messages.map(message).collect(), options)
}

fn logits_are_the_references(model: &dyn TextModel, golden: &Golden, name: &str) {
    let rounded_scale = has_rounded_scale(name);
    let mlx = if rounded_scale { "mlx_f32_exactscale_last" } else { "mlx_f32_last" };
    // One reference computed a golden that has each run once.
    let has_one = golden.json.get("as_base").is_some();
    let mut references = 0;
    for column in [mlx, "hf_f32_last"] {
        let mut worst: f32 = 0.0;
        let mut compared = 0;
        for (prompt, expected) in golden.prompts() {
            let key = format!("{prompt}/{column}");
            let Some(reference) = golden.logits(&key) else { continue };
            let distance = distance(&first_logits(model, &ids(&expected["ids"])), &reference);
            assert!(distance <= logit_tolerance(name), "{name} {key}: {distance:e}");
            worst = worst.max(distance);
            compared += 1;
        }
        if compared == 0 {
            // transformers does not read MLX's quantised checkpoints.
            let is_packed = column == "hf_f32_last" && model.info().quant_bits > 0;
            assert!(is_packed || has_one, "{name} {column}");
            continue;
        }
        let all = golden.prompts().count();
        let some = golden.json.get("rule").is_some() && column == "hf_f32_last" || has_one;
        assert!(compared == all || some && compared >= 2, "{name} {column}: {compared} of {all}");
        eprintln!("{name}: logits within {worst:.1e} of {column}");
        references += 1;
    }
    assert!(references > 0, "{name}");
}

#[test]
fn llama_agrees_with_the_references() {
    agrees_with_the_references("llama");
}

#[test]
fn mistral_agrees_with_the_references() {
    agrees_with_the_references("mistral");
}

#[test]
fn qwen2_agrees_with_the_references() {
    agrees_with_the_references("qwen2");
}

#[test]
fn qwen3_agrees_with_the_references() {
    agrees_with_the_references("qwen3");
}

#[test]
fn gemma2_agrees_with_the_references() {
    agrees_with_the_references("gemma2");
}

#[test]
fn gemma3_text_agrees_with_the_references() {
    agrees_with_the_references("gemma3_text");
}

#[test]
fn multimodal_gemma3_agrees_with_the_references() {
    agrees_with_the_references("gemma3");
}

#[test]
fn llama_of_4_bits_agrees_with_the_references() {
    agrees_with_the_references("llama-4bit-g64");
}

#[test]
fn llama_of_3_and_6_bits_agrees_with_the_references() {
    agrees_with_the_references("llama-mixed_3_6");
}

#[test]
fn qwen3_of_3_bits_agrees_with_the_references() {
    agrees_with_the_references("qwen3-3bit-g32");
}

#[test]
fn qwen3_of_4_bits_agrees_with_the_references() {
    agrees_with_the_references("qwen3-4bit-g64");
}

#[test]
fn qwen3_of_8_bits_agrees_with_the_references() {
    agrees_with_the_references("qwen3-8bit-g64");
}

#[test]
fn qwen3_of_4_and_6_bits_agrees_with_the_references() {
    agrees_with_the_references("qwen3-mixed_4_6");
}

#[test]
fn qwen3_in_mxfp4_agrees_with_the_references() {
    agrees_with_the_references("qwen3-mxfp4");
}

#[test]
fn qwen3_in_mxfp8_agrees_with_the_references() {
    agrees_with_the_references("qwen3-mxfp8");
}

#[test]
fn qwen3_in_nvfp4_agrees_with_the_references() {
    agrees_with_the_references("qwen3-nvfp4");
}

#[test]
fn gemma3_text_of_4_bits_agrees_with_the_references() {
    agrees_with_the_references("gemma3_text-4bit-g64");
}

#[test]
fn multimodal_gemma3_of_4_bits_agrees_with_the_references() {
    agrees_with_the_references("gemma3-4bit-g64");
}

#[test]
fn phi3_agrees_with_the_references() {
    agrees_with_the_references("phi3");
}

#[test]
fn a_phi3_that_stretches_long_sequences_agrees_with_the_references() {
    agrees_with_the_references("phi3_longrope");
}

#[test]
fn olmo2_agrees_with_the_references() {
    agrees_with_the_references("olmo2");
}

#[test]
fn smollm3_agrees_with_the_references() {
    agrees_with_the_references("smollm3");
}

#[test]
fn qwen3_moe_agrees_with_the_references() {
    agrees_with_the_references("qwen3_moe");
}

#[test]
fn gpt_oss_agrees_with_the_references() {
    agrees_with_the_references("gpt_oss");
}

#[test]
fn phi3_of_4_bits_agrees_with_the_references() {
    agrees_with_the_references("phi3-4bit-g64");
}

#[test]
fn a_phi3_of_6_bits_that_stretches_long_sequences_agrees_with_the_references() {
    agrees_with_the_references("phi3_longrope-6bit-g32");
}

#[test]
fn olmo2_of_8_bits_agrees_with_the_references() {
    agrees_with_the_references("olmo2-8bit-g64");
}

#[test]
fn smollm3_of_4_bits_agrees_with_the_references() {
    agrees_with_the_references("smollm3-4bit-g64");
}

#[test]
fn qwen3_moe_of_4_bits_agrees_with_the_references() {
    agrees_with_the_references("qwen3_moe-4bit-g64");
}

#[test]
fn qwen3_moe_in_mxfp4_agrees_with_the_references() {
    agrees_with_the_references("qwen3_moe-mxfp4");
}

#[test]
fn gpt_oss_converted_to_4_bits_agrees_with_the_references() {
    agrees_with_the_references("gpt_oss-4bit-g64");
}
