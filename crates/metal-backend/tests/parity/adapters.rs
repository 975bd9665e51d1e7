//! Checkpoints with a LoRA adapter: tokens, log probabilities and logits are the references'.

use std::fs;

use inference_core::LoadOptions;
use safetensors::tensor::{TensorView, serialize_to_file};

use crate::checkpoints::{F32_TOLERANCE, bf16_logits_are_the_references};
use crate::fixtures::{
    Checkpoint, Golden, distance, first_logits, greedy, ids, logprobs, numbers, root, run,
    token_ids,
};

fn with(adapter: &str) -> LoadOptions {
    let folder = root().join("adapters").join(adapter);
    LoadOptions { adapter_path: Some(folder), ..LoadOptions::default() }
}

/// Checks `models/<model>` with `adapters/<adapter>` against `golden/<golden>`, in f32 and bf16.
fn agrees_with_the_references(model: &str, adapter: &str, golden: &str) {
    agrees_in_f32(model, adapter, golden);
    let native = Checkpoint::new(model).load_native(with(adapter));
    bf16_logits_are_the_references(&*native, &Golden::new(golden), golden);
}

fn agrees_in_f32(model: &str, adapter: &str, golden: &str) {
    let (checkpoint, name) = (Checkpoint::new(model), golden);
    let golden = Golden::new(golden);
    let loaded = checkpoint.load(with(adapter));
    let (mut worst, mut compared) = (0.0_f32, 0);
    for (prompt, expected) in golden.prompts() {
        let prompt_ids = ids(&expected["ids"]);
        let tokens = run(&*loaded, &prompt_ids, &greedy(48));
        let base = &expected["greedy"]["base"];
        assert_eq!(token_ids(&tokens), ids(&base["tokens"]), "{name} {prompt}");
        assert_ne!(base["tokens"], expected["greedy"]["without"]["tokens"], "{name} {prompt}");
        let distance_of_logprobs = distance(&logprobs(&tokens), &numbers(&base["logprobs"]));
        assert!(distance_of_logprobs <= F32_TOLERANCE, "{name} {prompt}: {distance_of_logprobs:e}");
        let logits = first_logits(&*loaded, &prompt_ids);
        for column in ["mlx_f32_last", "hf_f32_last"] {
            let Some(reference) = golden.logits(&format!("{prompt}/{column}")) else { continue };
            let distance = distance(&logits, &reference);
            assert!(distance <= F32_TOLERANCE, "{name} {prompt} {column}: {distance:e}");
            worst = worst.max(distance);
            compared += 1;
        }
    }
    // Three prompts by mlx-lm; by PEFT where the golden was made with it.
    let by_peft = golden.json["versions"].get("peft").is_some();
    assert_eq!(compared, if by_peft { 6 } else { 3 }, "{name}");
    eprintln!("{name}: logits within {worst:.1e}");
}

#[test]
fn an_adapter_of_mlx_lm_agrees_with_it_and_with_peft() {
    agrees_with_the_references("llama", "llama-lora", "llama-lora");
}

#[test]
fn the_same_adapter_in_the_layout_of_peft_agrees_too() {
    agrees_with_the_references("llama", "llama-lora-peft", "llama-lora");
}

#[test]
fn an_adapter_over_quantised_weights_agrees_with_mlx_lm() {
    agrees_with_the_references("llama-4bit-g64", "llama-lora", "llama-lora-4bit-g64");
    agrees_with_the_references("llama-4bit-g64", "llama-lora-peft", "llama-lora-4bit-g64");
}

#[test]
fn an_adapter_of_tied_embeddings_counts_at_both_ends() {
    agrees_with_the_references("qwen3", "qwen3-lora", "qwen3-lora");
    agrees_with_the_references("qwen3-4bit-g64", "qwen3-lora", "qwen3-lora-4bit-g64");
}

#[test]
fn an_adapter_of_fused_projections_agrees_with_mlx_lm() {
    agrees_with_the_references("phi3", "phi3-lora", "phi3-lora");
}

#[test]
fn an_adapter_beside_experts_agrees_with_mlx_lm() {
    agrees_with_the_references("qwen3_moe-4bit-g64", "qwen3_moe-lora", "qwen3_moe-lora");
}

#[test]
fn an_adapter_of_experts_agrees_with_mlx_lm() {
    // In bf16, small differences choose other experts. Where prompts are multiplied by tiles or as
    // whole numbers, they do for the first of these; the second has the reference's logits to the
    // bit with MLX's kernels alone.
    let adapter = "qwen3_moe-experts-lora";
    let kernels = metal_backend::cpu_kernels();
    if ["AMX", "AVX2", "without VBMI and BF16"].iter().any(|end| kernels.ends_with(end)) {
        agrees_in_f32("qwen3_moe-4bit-g64", adapter, adapter);
    } else {
        agrees_with_the_references("qwen3_moe-4bit-g64", adapter, adapter);
    }
    let adapter = "gpt_oss-experts-lora";
    let golden = "gpt_oss-experts-lora-4bit-g64";
    if metal_backend::cpu_kernels().starts_with("our own") {
        agrees_in_f32("gpt_oss-4bit-g64", adapter, golden);
    } else {
        agrees_with_the_references("gpt_oss-4bit-g64", adapter, golden);
    }
}

#[test]
fn an_adapter_of_experts_with_a_tensor_each_agrees_with_mlx_lm() {
    // There mlx-lm has no bf16 on a CPU.
    let adapter = "qwen3_moe-experts-lora";
    agrees_in_f32("qwen3_moe", adapter, "qwen3_moe-experts-lora-dense");
}

#[test]
fn an_adapter_of_experts_whose_rows_lie_in_turn_agrees_with_mlx_lm() {
    agrees_with_the_references("gpt_oss", "gpt_oss-experts-lora", "gpt_oss-experts-lora");
    agrees_with_the_references("gpt_oss", "gpt_oss-up-lora", "gpt_oss-up-lora");
}

#[test]
fn without_its_adapter_a_checkpoint_computes_what_it_did() {
    let golden = Golden::new("llama-lora");
    let loaded = Checkpoint::new("llama").load(LoadOptions::default());
    for (prompt, expected) in golden.prompts() {
        let tokens = run(&*loaded, &ids(&expected["ids"]), &greedy(48));
        let without = &expected["greedy"]["without"]["tokens"];
        assert_eq!(token_ids(&tokens), ids(without), "{prompt}");
    }
}

#[test]
fn the_bytes_of_an_adapter_are_counted_and_the_model_stays_what_it_is() {
    let checkpoint = Checkpoint::new("llama");
    let plain = checkpoint.load_native(LoadOptions::default());
    let adapted = checkpoint.load_native(with("llama-lora"));
    // Two layers of four projections: (128 + 128) values thrice, (128 + 64) once, by a rank of 4.
    let bytes = 2 * (3 * 256 + 192) * 4 * 4;
    let (plain, adapted) = (plain.info(), adapted.info());
    assert_eq!(adapted.weight_bytes, plain.weight_bytes + bytes);
    assert_eq!(adapted.num_parameters, plain.num_parameters);
    assert_eq!(adapted.dtype, plain.dtype);
}

/// Log probabilities of `name` with an adapter of `module`, whose weight is `[output, input]`.
fn logprobs_with(name: &str, module: &str, [output, input]: [usize; 2]) -> Vec<f32> {
    const RANK: usize = 2;
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<u8> = (0..RANK * input.max(output))
        .flat_map(|i| ((i as f32 * 0.7).sin() * 0.5).to_le_bytes())
        .collect();
    let factor = |shape: [usize; 2]| {
        let bytes = &values[..shape[0] * shape[1] * 4];
        TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes).unwrap()
    };
    let pair = [
        (format!("{module}.lora_a"), factor([input, RANK])),
        (format!("{module}.lora_b"), factor([RANK, output])),
    ];
    serialize_to_file(pair, None, &folder.path().join("adapters.safetensors")).unwrap();
    let config = r#"{"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 4.0}}"#;
    fs::write(folder.path().join("adapter_config.json"), config).unwrap();
    let adapter_path = Some(folder.path().to_owned());
    let model = Checkpoint::new(name).load(LoadOptions { adapter_path, ..LoadOptions::default() });
    logprobs(&run(&*model, &(20..40).collect::<Vec<u32>>(), &greedy(4)))
}

#[test]
fn an_adapter_finds_its_modules_under_the_names_of_the_release_and_of_mlx_lm() {
    for (name, [own, other], shape) in [
        ("lfm2_moe", ["layers.0.feed_forward.w1", "layers.0.feed_forward.gate_proj"], [72, 96]),
        (
            "lfm2_moe-mxfp4",
            ["layers.1.feed_forward.down_proj", "layers.1.feed_forward.w2"],
            [96, 72],
        ),
        (
            "kimi_linear",
            [
                "layers.1.block_sparse_moe.shared_experts.up_proj",
                "layers.1.mlp.shared_experts.up_proj",
            ],
            [24, 96],
        ),
    ] {
        let [own, other] = [own, other].map(|module| format!("model.{module}"));
        let model = Checkpoint::new(name).load(LoadOptions::default());
        let without = logprobs(&run(&*model, &(20..40).collect::<Vec<u32>>(), &greedy(4)));
        let with = logprobs_with(name, &own, shape);
        assert_ne!(with, without, "{name}");
        assert_eq!(logprobs_with(name, &other, shape), with, "{name}");
    }
}
