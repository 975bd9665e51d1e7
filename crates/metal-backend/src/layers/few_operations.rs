//! Operations of a layer on Metal, each of which is at least one dispatch there.

use mlx_ffi::{Array, Device, Indices, eval_all, operations, use_device};

use super::StepCapture;
use super::capture::tests::decoder;
use crate::cache::{Caches, StateSpec, Storage};
use crate::kernels::Kernels;

/// Gated delta nets with the heads of Qwen3.5-9B, in few layers. Other sizes change no
/// number of operations.
const QWEN_3_5_9B: &str = r#"{
    "model_type": "qwen3_5_text", "torch_dtype": "bfloat16", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "full_attention_interval": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
    "partial_rotary_factor": 0.25, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "attn_output_gate": true, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e7,
    "max_position_embeddings": 262144, "vocab_size": 64, "tie_word_embeddings": false
}"#;
/// State spaces with the heads of Granite 4.0 H Tiny, without experts.
const GRANITE_4: &str = r#"{
    "model_type": "granitemoehybrid", "torch_dtype": "bfloat16", "hidden_size": 1536,
    "shared_intermediate_size": 512, "intermediate_size": 512, "num_hidden_layers": 2,
    "layer_types": ["mamba", "mamba"], "num_local_experts": 0, "num_experts_per_tok": 0,
    "num_attention_heads": 12, "num_key_value_heads": 4, "mamba_n_heads": 48, "mamba_d_head": 64,
    "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_conv_bias": true, "mamba_proj_bias": false, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "position_embedding_type": "nope", "attention_multiplier": 0.0078125,
    "embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 6,
    "max_position_embeddings": 131072, "vocab_size": 64, "tie_word_embeddings": true
}"#;

/// Operations that only see an array otherwise: nothing runs for them.
const VIEWS: [&str; 10] = [
    "Broadcast",
    "ExpandDims",
    "Flatten",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unflatten",
    "View",
];
/// Operations of a norm on a CPU, among them one root. On Metal it is one kernel.
const OF_NORM: usize = 9;

/// The dispatches for a pass of so many ids behind others, in all layers.
fn dispatches(config: &str, ids: u32) -> (usize, Vec<String>) {
    use_device(Device::Cpu).expect("a CPU");
    let model = decoder(config, Kernels::Metal);
    let specs: Vec<StateSpec> = model.layers.iter().map(|layer| layer.mixer.state(None)).collect();
    let mut caches = Caches::new(&specs, Storage::Plain, 1, 4096);
    let mut pass = |ids: u32| {
        let ids: Vec<u32> = (0..ids).map(|id| id % 64).collect();
        let ids = Indices::from_u32(&ids, &[1, ids.len() as i32]).expect("ids");
        let h = model.hidden(&ids, &mut caches, &mut StepCapture::default()).expect("states");
        let all: Vec<Array> = caches.arrays().chain([&h]).map(|of| of.share().unwrap()).collect();
        all
    };
    // Random weights are made at their first use.
    eval_all(&pass(2)).expect("states");
    let mut found = operations(&pass(ids)).expect("names");
    found.retain(|name| !VIEWS.iter().any(|view| name.starts_with(view)));
    let norms = found.iter().filter(|name| *name == "Rsqrt").count();
    (found.len() - norms * (OF_NORM - 1), found)
}

#[test]
fn a_prompt_on_metal_is_few_dispatches_a_layer() {
    for (config, layers, most) in [(QWEN_3_5_9B, 2, 18), (GRANITE_4, 2, 18)] {
        for ids in [1, 2048] {
            let (count, names) = dispatches(config, ids);
            assert!(count <= layers * most, "{count} for {ids} ids: {names:?}");
        }
    }
}
