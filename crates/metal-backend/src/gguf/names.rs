//! Names of tensors in files of GGUF, and those that other checkpoints have for them.

use super::architecture::Architecture;

/// Parts of a layer.
const LAYER: [(&str, &str); 17] = [
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.switch_mlp.gate_proj"),
    ("ffn_up_exps", "mlp.switch_mlp.up_proj"),
    ("ffn_down_exps", "mlp.switch_mlp.down_proj"),
    ("attn_norm", "input_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// The name of a tensor's module in other checkpoints, and which part it is (`weight`, `bias`); `None` for one that
/// is not known.
pub(super) fn named(name: &str, of: Architecture) -> Option<(String, &str)> {
    let (module, part) = name.rsplit_once('.')?;
    let own = match module {
        "token_embd" => "model.embed_tokens".to_owned(),
        "output_norm" => "model.norm".to_owned(),
        "output" => "lm_head".to_owned(),
        _ => {
            let (index, module) = module.strip_prefix("blk.")?.split_once('.')?;
            let index: u32 = index.parse().ok()?;
            let found = LAYER.iter().find(|(theirs, _)| *theirs == module);
            let own = match module {
                "ffn_norm" if of.is_gemma() => "pre_feedforward_layernorm",
                "ffn_norm" => "post_attention_layernorm",
                // Both projections in one.
                "ffn_up" if of == Architecture::Phi3 => "mlp.gate_up_proj",
                _ => found.map(|(_, own)| *own)?,
            };
            format!("model.layers.{index}.{own}")
        }
    };
    Some((own, part))
}
