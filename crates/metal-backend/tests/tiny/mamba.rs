//! Small checkpoints with Mamba layers.

use serde_json::{Value, json};

use super::{Checkpoint, Tensor};

const HIDDEN: usize = 16;
const HEADS: usize = 4;
const HEAD_DIM: usize = 6;
const GROUPS: usize = 2;
const STATE_DIM: usize = 8;
const INNER: usize = HEADS * HEAD_DIM;
const MIXED: usize = INNER + 2 * GROUPS * STATE_DIM;

impl Checkpoint {
    /// Nemotron H of `layers` layers: attention in every second one, and in turn a Mamba 2 layer
    /// and a mixture of experts.
    pub fn nemotron_h(layers: usize) -> Checkpoint {
        let pattern: String = "M*E*".chars().cycle().take(layers).collect();
        let mut checkpoint = Checkpoint::with_heads(32, layers, HIDDEN, 24)
            .keys(json!({
                "model_type": "nemotron_h", "hybrid_override_pattern": pattern, "n_groups": GROUPS,
                "mamba_num_heads": HEADS, "mamba_head_dim": HEAD_DIM, "ssm_state_size": STATE_DIM,
                "conv_kernel": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
                "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 12,
            }))
            .without("model.layers.");
        checkpoint.rename("model.embed_tokens", "backbone.embeddings");
        checkpoint.rename("model.norm", "backbone.norm_f");
        for (layer, kind) in pattern.chars().enumerate() {
            let layer = format!("backbone.layers.{layer}");
            checkpoint.put(&format!("{layer}.norm.weight"), &[HIDDEN]);
            match kind {
                'M' => checkpoint.put_mamba(&format!("{layer}.mixer"), true),
                '*' => checkpoint.put_attention(&format!("{layer}.mixer")),
                _ => checkpoint.put_experts(&format!("{layer}.mixer"), HIDDEN),
            }
        }
        checkpoint
    }

    /// Mamba of `layers` layers, which have nothing else.
    pub fn mamba1(layers: usize) -> Checkpoint {
        let mut checkpoint = Checkpoint::state_spaces("mamba", layers)
            .keys(json!({"state_size": STATE_DIM, "time_step_rank": 3}));
        for layer in 0..layers {
            let mixer = format!("backbone.layers.{layer}.mixer");
            for (name, shape) in [
                ("in_proj.weight", vec![2 * INNER, HIDDEN]),
                ("conv1d.weight", vec![INNER, 1, 4]),
                ("conv1d.bias", vec![INNER]),
                ("x_proj.weight", vec![3 + 2 * STATE_DIM, INNER]),
                ("dt_proj.weight", vec![INNER, 3]),
                ("dt_proj.bias", vec![INNER]),
                ("A_log", vec![INNER, STATE_DIM]),
                ("D", vec![INNER]),
                ("out_proj.weight", vec![HIDDEN, INNER]),
            ] {
                checkpoint.put(&format!("{mixer}.{name}"), &shape);
            }
        }
        checkpoint
    }

    /// Mamba 2 of `layers` layers, which have nothing else.
    pub fn mamba2(layers: usize) -> Checkpoint {
        let mut checkpoint = Checkpoint::state_spaces("mamba2", layers).keys(json!({
            "state_size": STATE_DIM, "num_heads": HEADS, "head_dim": HEAD_DIM, "n_groups": GROUPS,
        }));
        for layer in 0..layers {
            checkpoint.put_mamba(&format!("backbone.layers.{layer}.mixer"), true);
        }
        checkpoint
    }

    /// Embeddings and norms of a model of `layers` layers without attention.
    fn state_spaces(model_type: &str, layers: usize) -> Checkpoint {
        let mut checkpoint = Checkpoint::with_heads(32, layers, HIDDEN, INNER)
            .keys(json!({"model_type": model_type, "expand": 1.5, "conv_kernel": 4}))
            .without("model.layers.");
        checkpoint.rename("model.embed_tokens", "backbone.embeddings");
        checkpoint.rename("model.norm", "backbone.norm_f");
        for layer in 0..layers {
            checkpoint.put(&format!("backbone.layers.{layer}.norm.weight"), &[HIDDEN]);
        }
        checkpoint
    }

    /// [`nemotron_h`](Self::nemotron_h) whose experts see ten values.
    pub fn latent_nemotron_h(layers: usize) -> Checkpoint {
        let mut checkpoint = Checkpoint::nemotron_h(layers).keys(json!({"moe_latent_size": 10}));
        for layer in (2..layers).step_by(4) {
            let mixer = format!("backbone.layers.{layer}.mixer");
            checkpoint.put(&format!("{mixer}.fc1_latent_proj.weight"), &[10, HIDDEN]);
            checkpoint.put(&format!("{mixer}.fc2_latent_proj.weight"), &[HIDDEN, 10]);
            checkpoint.put_experts(&mixer, 10);
        }
        checkpoint
    }

    /// Falcon H1 of `layers` layers, each a Mamba 2 layer and attention side by side.
    pub fn falcon_h1(layers: usize) -> Checkpoint {
        let mut checkpoint = Checkpoint::with_heads(32, layers, HIDDEN, 24)
            .keys(json!({
                "model_type": "falcon_h1", "mamba_d_ssm": INNER, "mamba_n_heads": HEADS,
                "mamba_d_head": HEAD_DIM, "mamba_n_groups": GROUPS, "mamba_d_state": STATE_DIM,
                "mamba_d_conv": 4, "mamba_rms_norm": false, "key_multiplier": 0.5,
                "ssm_multipliers": [0.9, 0.8, 1.1, 1.2, 0.7], "mlp_multipliers": [0.9, 0.6],
                "attention_in_multiplier": 0.9, "ssm_out_multiplier": 0.8,
                "lm_head_multiplier": 0.9, "embedding_multiplier": 1.5,
            }))
            .without("q_norm")
            .without("k_norm");
        checkpoint.rename("model.norm", "model.final_layernorm");
        for layer in 0..layers {
            let layer = format!("model.layers.{layer}");
            checkpoint.rename(&format!("{layer}.mlp"), &format!("{layer}.feed_forward"));
            let norm = format!("{layer}.post_attention_layernorm");
            checkpoint.rename(&norm, &format!("{layer}.pre_ff_layernorm"));
            checkpoint.put_mamba(&format!("{layer}.mamba"), false);
        }
        checkpoint
    }

    /// Sets the values of keys of the config.
    pub(super) fn keys(mut self, keys: Value) -> Checkpoint {
        for (key, value) in keys.as_object().expect("keys") {
            self = self.config(key, value.clone());
        }
        self
    }

    /// Leaves out the tensors whose names have `part`.
    pub(super) fn without(mut self, part: &str) -> Checkpoint {
        self.tensors.retain(|name, _| !name.contains(part));
        self
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let named = std::mem::take(&mut self.tensors).into_iter();
        self.tensors = named.map(|(name, tensor)| (name.replace(from, to), tensor)).collect();
    }

    pub(super) fn put(&mut self, name: &str, shape: &[usize]) {
        self.tensors.insert(name.to_owned(), Tensor::noise(name, shape));
    }

    fn put_mamba(&mut self, prefix: &str, has_norm: bool) {
        let all = INNER + MIXED + HEADS;
        self.put(&format!("{prefix}.in_proj.weight"), &[all, HIDDEN]);
        self.put(&format!("{prefix}.conv1d.weight"), &[MIXED, 1, 4]);
        self.put(&format!("{prefix}.conv1d.bias"), &[MIXED]);
        for name in ["A_log", "dt_bias", "D"] {
            self.put(&format!("{prefix}.{name}"), &[HEADS]);
        }
        if has_norm {
            self.put(&format!("{prefix}.norm.weight"), &[INNER]);
        }
        self.put(&format!("{prefix}.out_proj.weight"), &[HIDDEN, INNER]);
    }

    /// Four experts that see `width` values, and one that all positions pass.
    fn put_experts(&mut self, prefix: &str, width: usize) {
        self.put(&format!("{prefix}.gate.weight"), &[4, HIDDEN]);
        self.put(&format!("{prefix}.gate.e_score_correction_bias"), &[4]);
        self.put(&format!("{prefix}.shared_experts.up_proj.weight"), &[12, HIDDEN]);
        self.put(&format!("{prefix}.shared_experts.down_proj.weight"), &[HIDDEN, 12]);
        for expert in 0..4 {
            let expert = format!("{prefix}.experts.{expert}");
            self.put(&format!("{expert}.up_proj.weight"), &[8, width]);
            self.put(&format!("{expert}.down_proj.weight"), &[width, 8]);
        }
    }

    fn put_attention(&mut self, prefix: &str) {
        self.put(&format!("{prefix}.q_proj.weight"), &[64, HIDDEN]);
        self.put(&format!("{prefix}.k_proj.weight"), &[32, HIDDEN]);
        self.put(&format!("{prefix}.v_proj.weight"), &[32, HIDDEN]);
        self.put(&format!("{prefix}.o_proj.weight"), &[HIDDEN, 64]);
    }
}
