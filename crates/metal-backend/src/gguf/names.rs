//! Names of tensors in files of GGUF, and those that other checkpoints have for them.

use super::architecture::Architecture;

/// Parts of a layer.
const LAYER: [(&str, &str); 18] = [
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
    ("ffn_norm", "post_attention_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Parts of layers that some architectures have under other names.
const GEMMA: [(&str, &str); 1] = [("ffn_norm", "pre_feedforward_layernorm")];
/// Both projections are one.
const PHI3: [(&str, &str); 1] = [("ffn_up", "mlp.gate_up_proj")];
const GPT_OSS: [(&str, &str); 4] = [
    ("ffn_gate_inp", "mlp.router"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
];
const LFM2: [(&str, &str); 11] = [
    ("attn_norm", "operator_norm"),
    ("attn_output", "self_attn.out_proj"),
    ("attn_q_norm", "self_attn.q_layernorm"),
    ("attn_k_norm", "self_attn.k_layernorm"),
    ("ffn_norm", "ffn_norm"),
    ("ffn_gate", "feed_forward.w1"),
    ("ffn_down", "feed_forward.w2"),
    ("ffn_up", "feed_forward.w3"),
    ("shortconv.conv", "conv.conv"),
    ("shortconv.in_proj", "conv.in_proj"),
    ("shortconv.out_proj", "conv.out_proj"),
];

/// The name of a tensor's module in other checkpoints, and which part it is (`weight`, `bias`); `None` for one that
/// is not known.
pub(super) fn named(name: &str, of: Architecture) -> Option<(String, &str)> {
    let (module, part) = name.rsplit_once('.')?;
    let own = match module {
        "token_embd" => "model.embed_tokens".to_owned(),
        // It is behind the layers, whatever it is called.
        "token_embd_norm" | "output_norm" if of == Architecture::Lfm2 => {
            "model.embedding_norm".to_owned()
        }
        "output_norm" => "model.norm".to_owned(),
        "output" => "lm_head".to_owned(),
        _ => {
            let (index, module) = module.strip_prefix("blk.")?.split_once('.')?;
            let index: u32 = index.parse().ok()?;
            if module == "attn_sinks" {
                return Some((format!("model.layers.{index}.self_attn"), "sinks"));
            }
            let special: &[(&str, &str)] = match of {
                Architecture::Gemma2 | Architecture::Gemma3 => &GEMMA,
                Architecture::GptOss => &GPT_OSS,
                Architecture::Lfm2 => &LFM2,
                Architecture::Phi3 => &PHI3,
                _ => &[],
            };
            let found = special.iter().chain(&LAYER).find(|(theirs, _)| *theirs == module);
            let own = found.map(|(_, own)| *own)?;
            format!("model.layers.{index}.{own}")
        }
    };
    Some((own, part))
}
