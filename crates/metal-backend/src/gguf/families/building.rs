//! Parts of the tables of architectures: changes, and keys that several have.

use crate::error::{Error, Result};
use crate::gguf::metadata::{Change, Config, Metadata, Modules, Rows};

/// Rows of queries and keys stand in pairs.
pub(super) fn pairs(metadata: &Metadata<'_>, tensor: &str) -> Result<Change> {
    let module = tensor.rsplit_once('.').map_or(tensor, |(module, _)| module);
    let key = match module {
        "attn_q" => "attention.head_count",
        "attn_k" => "attention.head_count_kv",
        _ => return Ok(Change::default()),
    };
    let heads = match metadata.largest(key)? {
        Some(heads) => heads,
        None => metadata.required("attention.head_count")?,
    };
    Ok(Change { rows: Rows::Paired(heads), ..Change::default() })
}

/// Norms are one more.
pub(super) fn norms_less_one(_: &Metadata<'_>, tensor: &str) -> Result<Change> {
    let is_norm = tensor.ends_with("norm.weight");
    Ok(Change { value: is_norm.then_some(|value| value - 1.0), ..Change::default() })
}

/// For each layer, what it is: with a window where the flag stands, else without.
pub(super) fn window_types(flags: &[bool]) -> Vec<&'static str> {
    let kind = |windowed: &bool| if *windowed { "sliding_attention" } else { "full_attention" };
    flags.iter().map(kind).collect()
}

/// Experts that all positions pass, and what corrects the choice of the others, under the names of
/// DeepSeek V3.
pub(super) const SHARED_EXPERTS: Modules = &[
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
];

/// A mixture of experts with sigmoid scores in groups, under the names of DeepSeek V3.
/// `normalises`: the weights of the chosen are divided by their sum where the file does not say.
///
/// # Errors
/// Metadata that is missing or wrong; other scores.
pub(super) fn grouped_experts(
    metadata: &Metadata<'_>,
    config: &mut Config,
    normalises: bool,
) -> Result<()> {
    expect_sigmoid(metadata)?;
    numbers_of_experts(metadata, config, normalises)
}

/// A mixture of experts in groups as [`grouped_experts`] has it, whatever its scores are.
///
/// # Errors
/// Metadata that is missing or wrong.
pub(super) fn numbers_of_experts(
    metadata: &Metadata<'_>,
    config: &mut Config,
    normalises: bool,
) -> Result<()> {
    copy_numbers(
        metadata,
        config,
        &[
            ("expert_count", "n_routed_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
        ],
    )?;
    let number = |key| Ok::<_, Error>(metadata.number(key)?.unwrap_or(0));
    let factor = metadata.float("expert_weights_scale")?.filter(|factor| *factor != 0.0);
    let normalises = metadata.flag("expert_weights_norm")?.unwrap_or(normalises);
    config.extend([
        ("n_shared_experts".into(), number("expert_shared_count")?.into()),
        ("first_k_dense_replace".into(), number("leading_dense_block_count")?.into()),
        ("n_group".into(), number("expert_group_count")?.max(1).into()),
        ("topk_group".into(), number("expert_group_used_count")?.max(1).into()),
        ("norm_topk_prob".into(), normalises.into()),
        ("routed_scaling_factor".into(), factor.unwrap_or(1.0).into()),
    ]);
    Ok(())
}

/// Refuses scores of experts that are no sigmoids.
///
/// # Errors
/// Another kind of scores.
pub(super) fn expect_sigmoid(metadata: &Metadata<'_>) -> Result<()> {
    const KEY: &str = "expert_gating_func";
    const SIGMOID: u64 = 2;
    match metadata.number(KEY)? {
        None | Some(SIGMOID) => Ok(()),
        Some(other) => Err(Error::model(format!(
            "`{}` is {other}; {SIGMOID}, the sigmoid, works",
            metadata.key(KEY)
        ))),
    }
}

/// Decays are stored as what they are in the exponent; elsewhere, their logarithms are.
pub(super) fn decays(tensor: &str) -> Change {
    let log: fn(f32) -> f32 = |value| (-value).ln();
    Change { value: (tensor == "ssm_a").then_some(log), ..Change::default() }
}

/// Copies metadata into the config: each whole number is required.
pub(super) fn copy_numbers(
    metadata: &Metadata<'_>,
    config: &mut Config,
    keys: &[(&str, &str)],
) -> Result<()> {
    for (theirs, key) in keys {
        config.insert((*key).into(), metadata.required(theirs)?.into());
    }
    Ok(())
}

/// The scaling of positions that the config has, to add to it.
pub(super) fn scaling(config: &mut Config) -> Option<&mut Config> {
    config.get_mut("rope_scaling")?.as_object_mut()
}
