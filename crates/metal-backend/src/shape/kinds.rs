//! Which layers are of which kind: with attention or without, with a window or without, and how
//! they see positions.

use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};

/// The window of each layer: by `layer_types` where the config has them, else by `is_sliding`.
///
/// # Errors
/// Layer types that are not known, or of another number than the layers.
pub(crate) fn windows(
    config: &Config,
    layers: i32,
    window: Option<i32>,
    is_sliding: impl Fn(i32) -> bool,
) -> Result<Vec<Option<i32>>> {
    let Some(types) = config.opt_texts("layer_types")? else {
        return Ok((0..layers).map(|i| window.filter(|_| is_sliding(i))).collect());
    };
    check_count(&types, layers)?;
    let windows = types.into_iter().map(|kind| match kind {
        "full_attention" => Ok(None),
        "sliding_attention" => Ok(window),
        other => Err(Error::model(format!(
            "config.json: `layer_types` names `{other}`, known are full_attention, sliding_attention"
        ))),
    });
    windows.collect()
}

/// Which layers have attention: by `layer_types`, where the others are called one of `others`; else
/// by `is_attention`.
///
/// # Errors
/// Layer types that are not known, or of another number than the layers.
pub(crate) fn attention_layers(
    config: &Config,
    layers: i32,
    others: &[&str],
    is_attention: impl Fn(i32) -> bool,
) -> Result<Vec<bool>> {
    let Some(types) = config.opt_texts("layer_types")? else {
        return Ok((0..layers).map(is_attention).collect());
    };
    check_count(&types, layers)?;
    let is_attention = |kind: &str| match kind {
        "full_attention" | "attention" => Ok(true),
        kind if others.contains(&kind) => Ok(false),
        kind => Err(Error::model(format!(
            "config.json: `layer_types` names `{kind}`, known are {}, full_attention",
            others.join(", ")
        ))),
    };
    types.into_iter().map(is_attention).collect()
}

/// The encoding of each layer, where it sees positions: `rope` with the base that
/// `layer_rope_theta` lists, or none for 0. `None`: the config has no such list.
///
/// # Errors
/// A list of another length than the layers; a base that is none.
pub(crate) fn layer_ropes(
    config: &Config,
    rope: &RopeConfig,
    layers: i32,
) -> Result<Option<Vec<Option<RopeConfig>>>> {
    const KEY: &str = "layer_rope_theta";
    let Some(thetas) = config.get(KEY) else { return Ok(None) };
    let wrong = || config.wrong(KEY, thetas, "for each layer 0 or a number above 1");
    let list = thetas.as_array().ok_or_else(wrong)?;
    if list.len() != layers as usize {
        return Err(Error::model(format!(
            "config.json: `{KEY}` has {} entries for {layers} layers",
            list.len()
        )));
    }
    let of_layer = |theta: &serde_json::Value| match theta.as_f64() {
        Some(0.0) => Ok(None),
        Some(theta) if theta > 1.0 && theta.is_finite() => {
            Ok(Some(RopeConfig { theta, ..rope.clone() }))
        }
        _ => Err(wrong()),
    };
    list.iter().map(of_layer).collect::<Result<_>>().map(Some)
}

/// Refuses `layer_types` of another number than the layers.
fn check_count(types: &[&str], layers: i32) -> Result<()> {
    if types.len() == layers as usize {
        return Ok(());
    }
    Err(Error::model(format!(
        "config.json: `layer_types` has {} entries for {layers} layers",
        types.len()
    )))
}

/// The windows of Qwen's layers: with `use_sliding_window`, from layer `max_window_layers` on.
///
/// # Errors
/// Layer types that are not known, or of another number than the layers.
pub(crate) fn qwen_windows(config: &Config, layers: i32) -> Result<Vec<Option<i32>>> {
    let (window, first) = qwen_window(config)?;
    windows(config, layers, window, |index| index >= first)
}

/// The windows of Qwen 2 MoE's layers: with `use_sliding_window`, of every other layer before
/// `max_window_layers`.
///
/// # Errors
/// As [`qwen_windows`].
pub(crate) fn qwen2_moe_windows(config: &Config, layers: i32) -> Result<Vec<Option<i32>>> {
    let (window, end) = qwen_window(config)?;
    windows(config, layers, window, |index| index % 2 == 0 && index < end)
}

/// The window, where one is used, and `max_window_layers`. Absent keys have the defaults of
/// transformers, which writes a window of 0 where none is used.
fn qwen_window(config: &Config) -> Result<(Option<i32>, i32)> {
    let window = match config.opt_flag("use_sliding_window")? {
        Some(true) => Some(config.opt_size("sliding_window")?.unwrap_or(4096)),
        _ => None,
    };
    Ok((window, config.opt_index("max_window_layers")?.unwrap_or(28)))
}
