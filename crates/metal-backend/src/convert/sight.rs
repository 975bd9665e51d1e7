//! The vision towers of checkpoints: left out as mlx-lm does, or kept unpacked as mlx-vlm does.

use std::collections::BTreeMap;

use super::tensors::{Tensors, of_tensor};
use super::value::Value;
use crate::config::Config;
use crate::error::{Error, Result};

/// Parts that only see or hear; mlx-lm has no use for them.
const TOWERS: &[&str] = &[
    "visual.",
    "vision_tower.",
    "vision_model.",
    "vision_adapter.",
    "vision_projection.",
    "vision_embedder.",
    "multi_modal_projector.",
    "mm_projector.",
    "audio_tower.",
    "embed_audio.",
    "embed_vision.",
];

/// Channels of a picture.
const CHANNELS: i32 = 3;

/// Returns true when the tensor is part of a tower that sees or hears.
pub(super) fn is_of_tower(name: &str) -> bool {
    let own = name.strip_prefix("model.").unwrap_or(name);
    TOWERS.iter().any(|tower| own.starts_with(tower))
}

/// Takes the tower that sees and its projector out of `tensors`, in mlx-vlm's names and forms.
///
/// # Errors
/// A model without one that is known here.
pub(super) fn take(
    family: &str,
    config: &Config,
    tensors: &mut Tensors,
) -> Result<BTreeMap<String, Value>> {
    let vision = config.object("vision_config")?;
    let clips = vision.map(|vision| vision.opt_flag("use_clipped_linears")).transpose()?.flatten();
    let named: Vec<(String, String)> = tensors
        .all
        .keys()
        .filter_map(|name| Some((name.clone(), named(family, name)?)))
        .filter(|(_, new)| !is_buffer(new) && (clips == Some(true) || !is_clip(new)))
        .collect();
    if named.is_empty() {
        return Err(Error::model(
            "`keep_vision`: the model has no vision tower that is known here; leave the option out",
        ));
    }
    let mut kept = BTreeMap::new();
    for (name, new) in named {
        let Some(value) = tensors.all.remove(&name) else { continue };
        let value = channels_last(&new, value).map_err(|error| of_tensor(&name, error))?;
        if kept.insert(new.clone(), value).is_some() {
            return Err(Error::model(format!("two tensors would be called `{new}`")));
        }
    }
    Ok(kept)
}

/// mlx-vlm's name for a tensor of a tower or of its projector.
fn named(family: &str, name: &str) -> Option<String> {
    let own = name.strip_prefix("model.").unwrap_or(name);
    let of_tower = own.strip_prefix("vision_tower.");
    match family {
        "gemma3" | "mistral3" => match of_tower {
            Some(rest) => {
                let rest = rest.strip_prefix("vision_model.").unwrap_or(rest);
                Some(format!("vision_tower.vision_model.{rest}"))
            }
            None => own.starts_with("multi_modal_projector.").then(|| own.to_owned()),
        },
        "qwen2_vl" | "qwen2_5_vl" | "qwen3_5" | "qwen3_5_moe" | "qwen3_vl" | "qwen3_vl_moe" => {
            let rest = of_tower.or_else(|| own.strip_prefix("visual."))?;
            Some(format!("vision_tower.{rest}"))
        }
        "gemma4" => {
            (of_tower.is_some() || own.starts_with("embed_vision.")).then(|| own.to_owned())
        }
        _ => None,
    }
}

/// Returns true for buffers that no program computes with: wavelengths and position numbers.
fn is_buffer(name: &str) -> bool {
    name.ends_with(".inv_freq") || name.ends_with(".position_ids")
}

/// The bounds of a clipped projection.
fn is_clip(name: &str) -> bool {
    ["input_max", "input_min", "output_max", "output_min"].iter().any(|end| name.ends_with(end))
}

/// The kernel over a patch with its channels last, where they come first.
fn channels_last(name: &str, value: Value) -> Result<Value> {
    const KERNELS: [&str; 3] =
        ["patch_embedding.weight", "patch_embed.proj.weight", "patch_conv.weight"];
    let is_kernel = KERNELS.iter().any(|end| name.ends_with(end));
    let (second, last) = (value.shape.get(1).copied(), value.shape.last().copied());
    if !is_kernel || second != Some(CHANNELS) || last == Some(CHANNELS) {
        return Ok(value);
    }
    match value.shape.len() {
        4 => value.transpose(&[0, 2, 3, 1]),
        5 => value.transpose(&[0, 2, 3, 4, 1]),
        _ => Ok(value),
    }
}
