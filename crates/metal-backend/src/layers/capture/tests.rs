//! Captured steps against those that are computed one operation after the other.

use std::net::TcpListener;
use std::thread;

use mlx_ffi::distributed::{Between, Limits, Member};
use mlx_ffi::{Device, Dtype, Indices, ops, use_device};

use super::*;
use crate::cache::{StateSpec, Storage};
use crate::config::Config;
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::layers::{Decoder, LayerScale, Mixer};
use crate::models;
use crate::weights::{Checkpoint, Weights};

/// Windows, norms on heads, and two ropes.
pub(in crate::layers) const GEMMA: &str = r#"{
    "model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
    "vocab_size": 90, "sliding_window": 40, "sliding_window_pattern": 3, "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 32, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
    "max_position_embeddings": 512
}"#;
/// Biases, and packed weights.
pub(in crate::layers) const QWEN: &str = r#"{
    "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 90, "rms_norm_eps": 1e-6,
    "rope_theta": 1e4, "max_position_embeddings": 512, "tie_word_embeddings": true,
    "quantization": {"bits": 4, "group_size": 64}
}"#;

/// Gated delta nets, and attention whose output is gated.
const QWEN_3_5: &str = r#"{
    "model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
    "vocab_size": 90, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "max_position_embeddings": 512,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
    "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "full_attention_interval": 2
}"#;
/// Short convolutions beside attention.
const LFM_2: &str = r#"{
    "model_type": "lfm2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 90, "norm_eps": 1e-5,
    "rope_theta": 1e4, "max_position_embeddings": 512, "conv_L_cache": 3, "conv_bias": false,
    "block_auto_adjust_ff_dim": false,
    "layer_types": ["conv", "full_attention", "conv"]
}"#;
/// State spaces, attention and networks, each a layer of its own.
const NEMOTRON: &str = r#"{
    "model_type": "nemotron_h", "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
    "hybrid_override_pattern": "M-*M", "vocab_size": 90, "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 512, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
    "ssm_state_size": 32, "conv_kernel": 4, "use_conv_bias": true, "mlp_hidden_act": "relu2"
}"#;

/// Experts without a gate, and one beside them.
const NEMOTRON_MOE: &str = r#"{
    "model_type": "nemotron_h", "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
    "hybrid_override_pattern": "ME*E", "vocab_size": 90, "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 512, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
    "ssm_state_size": 32, "conv_kernel": 4, "use_conv_bias": true, "mlp_hidden_act": "relu2",
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 96, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": true, "routed_scaling_factor": 2.5, "n_shared_experts": 1
}"#;
/// Each half's output is scaled before it is added to the stream.
pub(in crate::layers) const GRANITE: &str = r#"{
    "model_type": "granite", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 90, "rms_norm_eps": 1e-5,
    "rope_theta": 1e4, "max_position_embeddings": 512, "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0, "residual_multiplier": 0.22, "logits_scaling": 2.0
}"#;
/// A state space beside attention, with factors around everything.
const FALCON: &str = r#"{
    "model_type": "falcon_h1", "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
    "vocab_size": 90, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 512,
    "mamba_d_ssm": 256, "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 32,
    "mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_rms_norm": false, "mamba_conv_bias": true,
    "tie_word_embeddings": true, "attention_in_multiplier": 0.9, "attention_out_multiplier": 0.9375,
    "embedding_multiplier": 3.0, "key_multiplier": 0.39, "lm_head_multiplier": 0.5,
    "mlp_multipliers": [0.88, 0.58], "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.23,
    "ssm_multipliers": [0.35, 0.25, 0.35, 0.5, 0.35]
}"#;
/// Latent attention, and experts beside a shared one.
const GLM_FLASH: &str = r#"{
    "model_type": "glm4_moe_lite", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 3, "vocab_size": 90, "rms_norm_eps": 1e-5,
    "rope_theta": 1e4, "max_position_embeddings": 512, "q_lora_rank": 48, "kv_lora_rank": 128,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 40, "n_group": 1,
    "topk_group": 1, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 64, "first_k_dense_replace": 1, "norm_topk_prob": true
}"#;
/// Latent attention with whole queries, and experts in groups.
const DEEPSEEK: &str = r#"{
    "model_type": "deepseek_v3", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 90, "rms_norm_eps": 1e-6,
    "rope_theta": 1e4, "max_position_embeddings": 512, "q_lora_rank": null, "kv_lora_rank": 64,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64, "n_group": 4,
    "topk_group": 2, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1,
    "moe_intermediate_size": 64, "first_k_dense_replace": 1, "norm_topk_prob": true,
    "quantization": {"bits": 4, "group_size": 64}
}"#;
/// Large heads, normed values, shared keys, and inputs and scales of layers.
const GEMMA_4: &str = r#"{
    "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "global_head_dim": 512, "vocab_size": 90, "vocab_size_per_layer_input": 90,
    "hidden_size_per_layer_input": 32, "sliding_window": 40, "sliding_window_pattern": 2,
    "num_kv_shared_layers": 2, "rms_norm_eps": 1e-6, "max_position_embeddings": 512
}"#;
/// Keys that are values, and experts beside dense networks. All are chosen: rounding chooses none.
const GEMMA_4_MOE: &str = r#"{
    "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "global_head_dim": 128, "num_global_key_value_heads": 1, "attention_k_eq_v": true,
    "vocab_size": 90, "hidden_size_per_layer_input": 0, "sliding_window": 40,
    "sliding_window_pattern": 2, "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
    "enable_moe_block": true, "num_experts": 4, "top_k_experts": 4, "moe_intermediate_size": 64
}"#;

/// Models whose steps CUDA captures, and how many of these may go either way.
const ON_CUDA: [(&str, usize); 12] = [
    (GEMMA, 0),
    (QWEN, 3),
    (QWEN_3_5, 0),
    (LFM_2, 0),
    (NEMOTRON, 0),
    (NEMOTRON_MOE, 0),
    (GRANITE, 0),
    (FALCON, 0),
    (GLM_FLASH, 0),
    (DEEPSEEK, 3),
    (GEMMA_4, 0),
    (GEMMA_4_MOE, 0),
];

pub(in crate::layers) fn decoder(config: &str, kernels: Kernels) -> Decoder {
    decoder_in(config, kernels, None)
}

/// The model in `dtype`, where that is not the type of random weights.
pub(in crate::layers) fn decoder_in(
    config: &str,
    kernels: Kernels,
    dtype: Option<Dtype>,
) -> Decoder {
    let files = ModelFiles::Random(config.into());
    let is_gemma_4 = config.contains("gemma4");
    let config = Config::parse("config.json", config).expect("an object");
    let checkpoint = Checkpoint::open(&files).expect("no files are read");
    let weights = Weights::of(&checkpoint, &config, dtype, kernels, false);
    let mut model = models::load(&config, &weights).expect("a model");
    if is_gemma_4 {
        let dtype = model.embed_tokens.dtype();
        for layer in &mut model.layers {
            let scale = Array::from_f32(&[0.75], &[1]).and_then(|of| ops::astype(&of, dtype));
            layer.ending.scale = Some(LayerScale::new(scale.expect("one")).expect("a scale"));
            // Released norms make scores small, norms of ones do not: rounding alone would choose
            // what is seen.
            if let Mixer::Attention(attention) = &mut layer.mixer {
                attention.config.scale = (attention.config.head_dim as f32).sqrt().recip();
            }
        }
    }
    model
}

/// Logits of each step of two rows, one of which joins later; whether steps were replayed at last.
fn run(model: &Decoder, captures: bool) -> (Vec<Vec<f32>>, bool) {
    run_with(model, captures, StepCapture::default())
}

fn run_with(model: &Decoder, captures: bool, mut capture: StepCapture) -> (Vec<Vec<f32>>, bool) {
    let specs: Vec<StateSpec> = model.layers.iter().map(|layer| layer.mixer.state(None)).collect();
    let prefilled = |ids: &[u32]| {
        let mut caches = Caches::new(&specs, Storage::Plain, 1, 1000);
        let ids = Indices::from_u32(ids, &[1, ids.len() as i32]).expect("ids");
        model
            .hidden(&ids, &mut caches, &mut StepCapture::default())
            .expect("states")
            .eval()
            .expect("values");
        caches
    };
    let mut caches = prefilled(&[1, 2, 3, 4, 5]);
    let (mut found, mut was_captured) = (Vec::new(), Vec::new());
    for step in 0..60u32 {
        if step == 20 {
            caches.join(prefilled(&[7, 8])).expect("rows of one kind");
        }
        capture.state.is_impossible |= !captures;
        let ids: Vec<u32> =
            caches.offsets().iter().map(|at| (*at as u32 * 7 + step) % 90).collect();
        let ids = Indices::from_u32(&ids, &[ids.len() as i32, 1]).expect("ids");
        let h = model.hidden(&ids, &mut caches, &mut capture).expect("states");
        let logits = model.logits(&h).expect("logits");
        let logits = ops::astype(&logits, Dtype::F32).expect("f32");
        found.push(logits.to_vec_f32().expect("values"));
        was_captured.push(capture.state.replay.is_some());
    }
    let alone = was_captured[..20].iter().filter(|captured| **captured).count();
    let together = was_captured[20..].iter().filter(|captured| **captured).count();
    (found, alone > 8 && together > 8)
}

/// Logits of each step of so many rows, of which nothing was computed before.
fn from_nothing(model: &Decoder, rows: i32) -> Vec<Vec<f32>> {
    let specs: Vec<StateSpec> = model.layers.iter().map(|layer| layer.mixer.state(None)).collect();
    let mut caches = Caches::new(&specs, Storage::Plain, rows as usize, 1000);
    let mut capture = StepCapture::default();
    let logits = (0..50).map(|step| {
        let ids: Vec<u32> = (0..rows as u32).map(|row| (row * 31 + step * 7) % 90).collect();
        let h = model.hidden(&Indices::from_u32(&ids, &[rows, 1])?, &mut caches, &mut capture);
        let logits = model.logits(&h.expect("states")).expect("logits");
        ops::astype(&logits, Dtype::F32)?.to_vec_f32()
    });
    logits.collect::<Result<_>>().expect("values")
}

/// The steps whose logits are far from those that are expected, beside the largest of all.
fn far(expected: &[Vec<f32>], found: &[Vec<f32>]) -> Vec<usize> {
    let largest = expected.iter().flatten().fold(0.0_f32, |most, x| most.max(x.abs()));
    let is_far = |(expected, found): (&Vec<f32>, &Vec<f32>)| {
        expected.iter().zip(found).any(|(a, b)| (a - b).abs() >= 0.05 * largest)
    };
    let steps = expected.iter().zip(found).enumerate();
    steps.filter_map(|(step, logits)| is_far(logits).then_some(step)).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn steps_on_cuda_are_captured_and_near_those_of_a_cpu() {
    // Two keys that an attention likes about as much make a step go either way. Two kinds of a
    // CPU's kernels differ so at two steps of the packed one.
    let mut wrong = Vec::new();
    for (config, either_way) in ON_CUDA {
        let config = config.replacen('{', r#"{"torch_dtype": "bfloat16", "#, 1);
        use_device(Device::Cpu).expect("a CPU");
        let (expected, _) = run(&decoder(&config, Kernels::CPU), false);
        use_device(Device::Gpu).expect("a GPU");
        let model = decoder(&config, Kernels::Cuda);
        let (plain, _) = run(&model, false);
        let (found, kept) = run(&model, true);
        let far = far(&expected, &found);
        let is_as_plain = found == plain;
        if !kept || far.len() > either_way || !is_as_plain {
            wrong.push(format!(
                "captured: {kept}, as plain: {is_as_plain}, steps {far:?} are off, {config}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn first_positions_on_cuda_are_near_those_of_a_cpu() {
    let mut wrong = Vec::new();
    for (config, either_way) in ON_CUDA {
        let config = config.replacen('{', r#"{"torch_dtype": "bfloat16", "#, 1);
        for rows in [1, 3] {
            use_device(Device::Cpu).expect("a CPU");
            let expected = from_nothing(&decoder(&config, Kernels::CPU), rows);
            use_device(Device::Gpu).expect("a GPU");
            let far = far(&expected, &from_nothing(&decoder(&config, Kernels::Cuda), rows));
            if far.len() > either_way || far.contains(&0) {
                wrong.push(format!("steps {far:?} of {rows} rows are off, {config}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_cpu_computes_every_model_whose_steps_cuda_captures_and_its_kernels_agree() {
    use_device(Device::Cpu).expect("a CPU");
    for (config, either_way) in ON_CUDA {
        let (logits, kept) = run(&decoder(config, Kernels::CPU), false);
        assert!(!kept && logits.iter().flatten().all(|logit| logit.is_finite()), "{config}");
        // MLX's kernels for a CPU have no experts in 16 bits. Where they are far from ours, no
        // other device can be near.
        if !config.contains("experts") {
            let far = far(&logits, &run(&decoder(config, Kernels::Mlx), false).0);
            assert!(far.len() <= either_way, "steps {far:?} are off, {config}");
        }
    }
}

#[test]
fn steps_on_a_cpu_are_captured_and_replayed_with_the_same_numbers() {
    use_device(Device::Cpu).expect("a CPU");
    for config in [GEMMA, QWEN, QWEN_3_5, LFM_2, NEMOTRON] {
        let model = decoder(config, Kernels::CPU);
        let (expected, kept) = run(&model, false);
        assert!(!kept, "{config}");
        let (found, kept) = run(&model, true);
        assert!(kept, "{config}");
        for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(found.iter().all(|logit| logit.is_finite()), "step {step} {config}");
            assert!(found == expected, "step {step} {config}");
        }
    }
}

#[test]
fn ranks_replay_the_same_steps_or_none() {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let addresses = listeners.map(|listener| listener.local_addr().expect("an address"));
    // A CPU does not multiply what is added by an operation of ours.
    for (configs, all) in [([QWEN, QWEN], true), ([QWEN, GRANITE], false)] {
        let rank = |rank: usize| {
            use_device(Device::Cpu).expect("a CPU");
            let member = Member {
                rank,
                addresses: addresses.to_vec(),
                group: 0,
                digest: [0; 32],
                between: Between::Cpus,
                limits: Limits::default(),
            };
            let ranks = Some(Group::meet(&member).expect("both come"));
            let model = decoder(configs[rank], Kernels::CPU);
            run_with(&model, true, StepCapture { ranks, ..StepCapture::default() })
        };
        let found = thread::scope(|scope| {
            let other = scope.spawn(|| rank(1));
            [rank(0), other.join().expect("no panic")]
        });
        for (rank, (logits, kept)) in found.iter().enumerate() {
            assert_eq!(*kept, all, "rank {rank}, {configs:?}");
            let model = decoder(configs[rank], Kernels::CPU);
            assert!(*logits == run(&model, false).0, "rank {rank}, {configs:?}");
        }
    }
}

#[test]
fn a_step_whose_buffers_grew_is_captured_at_once() {
    use_device(Device::Cpu).expect("a CPU");
    let model = decoder(QWEN, Kernels::CPU);
    let specs: Vec<StateSpec> = model.layers.iter().map(|layer| layer.mixer.state(None)).collect();
    let mut caches = Caches::new(&specs, Storage::Plain, 3, 1000);
    let mut capture = StepCapture::default();
    let mut hidden = |ids: &[u32], caches: &mut Caches| {
        let ids = Indices::from_u32(ids, &[3, ids.len() as i32 / 3]).expect("ids");
        let h = model.hidden(&ids, caches, &mut capture).expect("states");
        h.eval().expect("values");
        capture.state.replay.is_some()
    };
    hidden(&[5; 3 * 248], &mut caches);
    let captured: Vec<bool> = (0..16)
        .map(|step| {
            if step == 9 || step == 12 {
                caches.vacate(step / 9);
            }
            hidden(&[1, 2, 3], &mut caches)
        })
        .collect();
    // There is room for eight. The ninth step makes buffers.
    let expected = |step: usize| (2..8).contains(&step) || step > 8;
    assert_eq!(captured, (0..16).map(expected).collect::<Vec<_>>());
}
