//! gpt-oss.

use serde_json::json;

use super::building::{copy_numbers, scaling};
use crate::error::Result;
use crate::gguf::metadata::{Config, Family, Metadata, PLAIN};

pub(super) const FAMILIES: [Family; 1] = [Family {
    name: "gpt-oss",
    model_type: "gpt_oss",
    modules: &[&[
        ("ffn_gate_inp", "mlp.router"),
        ("ffn_gate_exps", "mlp.experts.gate_proj"),
        ("ffn_up_exps", "mlp.experts.up_proj"),
        ("ffn_down_exps", "mlp.experts.down_proj"),
        ("attn_sinks", "self_attn.sinks"),
        ("attn_sinks.weight", "self_attn.sinks"),
    ]],
    reads: &["attention.sliding_window", "expert_count"],
    needs_range: true,
    config,
    ..PLAIN
}];

fn config(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    if let Some(scaling) = scaling(config) {
        // Files do not say it.
        scaling.insert("truncate".into(), json!(false));
    }
    copy_numbers(
        metadata,
        config,
        &[
            ("expert_count", "num_local_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "intermediate_size"),
            ("attention.sliding_window", "sliding_window"),
        ],
    )
}
