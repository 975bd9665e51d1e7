//! Names of tensors in files of GGUF, and those that other checkpoints have for them.

use std::ops::Range;

use super::metadata::{Family, Splits};

/// Modules, those of layers without the layer, as most architectures have them.
const MODULES: [(&str, &str); 22] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
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
    ("ffn_gate_up_exps", "mlp.switch_mlp.gate_up_proj"),
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// The prefix of layers that predict tokens further ahead.
const AHEAD: &str = "mtp.layers";

/// A tensor's name in other checkpoints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named<'a> {
    /// Its name in the file, without the layer.
    pub tensor: &'a str,
    /// That, or what this one of several is called elsewhere.
    pub key: &'a str,
    /// The module that has it elsewhere.
    pub module: String,
    /// Which part of that it is (`weight`, `bias`), or its whole name there.
    pub part: &'a str,
}

impl<'a> Named<'a> {
    /// The tensors that the one is which a file of `of` calls `name`; `None` for one that is not
    /// known. The layers `ahead` predict tokens further ahead.
    pub fn of(
        name: &'a str,
        of: &Family,
        splits: Splits,
        ahead: &Range<u64>,
    ) -> Option<Vec<Named<'a>>> {
        let (prefix, tensor) = match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))
        {
            None => (None, name),
            Some((index, tensor)) => (Some(index.parse::<u32>().ok()?), tensor),
        };
        if prefix.is_some_and(|index| u64::from(index) >= ahead.end) {
            return None;
        }
        if let Some(index) = prefix.filter(|index| u64::from(*index) >= ahead.start) {
            let (module, part) = tensor.rsplit_once('.').unwrap_or(("", tensor));
            let module = format!("{AHEAD}.{index}.{module}");
            return Some(vec![Named { tensor, key: tensor, module, part }]);
        }
        if let Some((_, parts)) = splits.iter().find(|(theirs, _)| *theirs == tensor) {
            let under = |part: &'static str| Named {
                tensor,
                key: part,
                module: prefix.map_or_else(
                    || part.to_owned(),
                    |index| format!("{}.{index}.{part}", of.layers),
                ),
                part: "weight",
            };
            return Some(parts.iter().copied().map(under).collect());
        }
        let find = |list: &[(&'static str, &'static str)], name: &str| {
            list.iter().find(|(theirs, _)| *theirs == name).map(|(_, own)| *own)
        };
        let own = |name: &str| of.modules.iter().find_map(|list| find(list, name));
        let (module, part) = match own(tensor) {
            Some(whole) => whole.rsplit_once('.').unwrap_or(("", whole)),
            None => {
                let (module, part) = tensor.rsplit_once('.')?;
                (own(module).or_else(|| find(&MODULES, module))?, part)
            }
        };
        let module = match prefix {
            None => module.to_owned(),
            Some(index) if module.is_empty() => format!("{}.{index}", of.layers),
            Some(index) => format!("{}.{index}.{module}", of.layers),
        };
        Some(vec![Named { tensor, key: tensor, module, part }])
    }
}
