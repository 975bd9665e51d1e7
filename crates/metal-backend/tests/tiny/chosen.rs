//! Checkpoints whose positions see a part of what came before: the keys that an index chose, or a
//! window beside a recurrent state.

use serde_json::json;

use super::Checkpoint;

impl Checkpoint {
    /// Latent attention in each of `layers` layers, to the 16 keys that an index chooses.
    pub fn indexed(layers: usize) -> Checkpoint {
        let (hidden, low, heads, dim) = (16, 12, 24, 32);
        let mut checkpoint = Checkpoint::latent(layers).keys(json!({
            "model_type": "deepseek_v32", "q_lora_rank": low,
            "index_n_heads": heads, "index_head_dim": dim, "index_topk": 16,
        }));
        for layer in 0..layers {
            let attention = format!("model.layers.{layer}.self_attn");
            checkpoint.tensors.remove(&format!("{attention}.q_proj.weight"));
            for (name, shape) in [
                ("q_a_proj.weight", vec![low, hidden]),
                ("q_a_layernorm.weight", vec![low]),
                ("q_b_proj.weight", vec![2 * 16, low]),
                ("indexer.wq_b.weight", vec![heads * dim, low]),
                ("indexer.wk.weight", vec![dim, hidden]),
                ("indexer.k_norm.weight", vec![dim]),
                ("indexer.k_norm.bias", vec![dim]),
                ("indexer.weights_proj.weight", vec![heads, hidden]),
            ] {
                checkpoint.put(&format!("{attention}.{name}"), &shape);
            }
        }
        checkpoint
    }

    /// Two linear recurrent units to one of attention with a window, as in Recurrent Gemma.
    pub fn recurrent_gemma(layers: usize) -> Checkpoint {
        let (hidden, width, inner) = (64, 32, 24);
        let mut checkpoint = Checkpoint::with_heads(32, layers, hidden, inner)
            .keys(json!({
                "model_type": "recurrent_gemma", "intermediate_size": 2 * inner,
                "lru_width": width, "conv1d_width": 4, "attention_window_size": 80,
            }))
            .without("model.layers.");
        checkpoint.rename("model.norm", "model.final_norm");
        for layer in 0..layers {
            let block = format!("model.layers.{layer}");
            let mixer: &[(&str, &[usize])] = match layer % 3 {
                2 => &[
                    ("q_proj.weight", &[hidden, hidden]),
                    ("k_proj.weight", &[32, hidden]),
                    ("v_proj.weight", &[32, hidden]),
                    ("o_proj.weight", &[hidden, hidden]),
                    ("o_proj.bias", &[hidden]),
                ],
                _ => &[
                    ("linear_y.weight", &[width, hidden]),
                    ("linear_y.bias", &[width]),
                    ("linear_x.weight", &[width, hidden]),
                    ("linear_x.bias", &[width]),
                    ("linear_out.weight", &[hidden, width]),
                    ("linear_out.bias", &[hidden]),
                    ("conv_1d.weight", &[width, 1, 4]),
                    ("conv_1d.bias", &[width]),
                    ("rg_lru.recurrent_param", &[width]),
                    ("rg_lru.input_gate_weight", &[2, width / 2, width / 2]),
                    ("rg_lru.input_gate_bias", &[2, width / 2]),
                    ("rg_lru.recurrent_gate_weight", &[2, width / 2, width / 2]),
                    ("rg_lru.recurrent_gate_bias", &[2, width / 2]),
                ],
            };
            for (name, shape) in mixer {
                checkpoint.put(&format!("{block}.temporal_block.{name}"), shape);
            }
            for name in ["temporal_pre_norm", "channel_pre_norm"] {
                checkpoint.put(&format!("{block}.{name}.weight"), &[hidden]);
            }
            for (name, shape) in [
                ("gate_proj", [inner, hidden]),
                ("up_proj", [inner, hidden]),
                ("down_proj", [hidden, inner]),
            ] {
                checkpoint.put(&format!("{block}.mlp_block.{name}.weight"), &shape);
                checkpoint.put(&format!("{block}.mlp_block.{name}.bias"), &shape[..1]);
            }
        }
        checkpoint
    }
}
