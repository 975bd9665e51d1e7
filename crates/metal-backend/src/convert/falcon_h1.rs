//! Falcon H1: mlx-lm puts most of its factors into the weights.

use mlx_ffi::{Array, ops};

use super::tensors::Tensors;
use super::value::Value;
use crate::config::Config;
use crate::error::{Error, Result};

/// Multiplies the weights by the factors that mlx-lm puts into them, and turns the convolutions'
/// kernels.
///
/// # Errors
/// A config without the sizes of the parts of `in_proj`.
pub(super) fn arrange(config: &Config, tensors: &mut Tensors) -> Result<()> {
    let is_released = |(name, value): (&String, &Value)| {
        name.ends_with("mamba.conv1d.weight") && value.shape.last() != Some(&1)
    };
    if !tensors.all.iter().any(is_released) {
        return Ok(());
    }
    let factor = |key: &str| Ok::<_, Error>(config.opt_number(key)?.unwrap_or(1.0));
    let attention = factor("attention_in_multiplier")?;
    let [gate, down] = config.opt_numbers("mlp_multipliers")?.unwrap_or([1.0; 2]).map(f64::from);
    let factors = [
        ("embed_tokens.weight", factor("embedding_multiplier")?),
        ("lm_head.weight", factor("lm_head_multiplier")?),
        ("q_proj.weight", attention),
        ("k_proj.weight", attention),
        ("o_proj.weight", factor("attention_out_multiplier")?),
        ("out_proj.weight", factor("ssm_out_multiplier")?),
        ("gate_proj.weight", gate),
        ("down_proj.weight", down),
    ];
    let inputs = Inputs::read(config, factor("ssm_in_multiplier")?)?;
    tensors.change(|name, value| {
        if let Some((_, factor)) = factors.iter().find(|(end, _)| name.ends_with(end)) {
            return value.clone().times(*factor).map(Some);
        }
        if name.ends_with("in_proj.weight") {
            return inputs.scaled(value.clone()).map(Some);
        }
        let is_kernel = name.contains("conv1d.weight");
        is_kernel.then(|| value.clone().transpose(&[0, 2, 1])).transpose()
    })
}

/// The factors of the rows of `in_proj`: z, x, B, C and Δ in turn.
struct Inputs {
    factor: f32,
    /// So many rows with a factor.
    parts: [(i64, f32); 5],
}

impl Inputs {
    fn read(config: &Config, factor: f64) -> Result<Inputs> {
        let size = |key: &str| config.size(key).map(i64::from);
        let inner = size("mamba_d_ssm")?;
        let groups = i64::from(config.opt_size("mamba_n_groups")?.unwrap_or(1));
        let states = groups * size("mamba_d_state")?;
        let sizes = [inner, inner, states, states, size("mamba_n_heads")?];
        let factors = config.opt_numbers::<5>("ssm_multipliers")?.unwrap_or([1.0; 5]);
        let parts = std::array::from_fn(|part| (sizes[part], factors[part]));
        Ok(Inputs { factor: factor as f32, parts })
    }

    fn scaled(&self, value: Value) -> Result<Value> {
        let (factor, parts, dtype) = (self.factor, self.parts, value.float_type()?);
        let (found, expected) = (value.size(0)?, parts.iter().map(|(rows, _)| rows).sum::<i64>());
        // No more are made below than the tensor has.
        if value.shape.len() != 2 || i64::from(found) != expected {
            return Err(Error::model(format!(
                "has the shape {:?}, expected {expected} rows",
                value.shape
            )));
        }
        Ok(value.clone().map(value.shape, move |weight| {
            let rows =
                parts.iter().flat_map(|(rows, part)| std::iter::repeat_n(*part, *rows as usize));
            let rows: Vec<f32> = rows.collect();
            let rows = Array::from_f32(&rows, &[rows.len() as i32, 1])?;
            let rows = ops::multiply(&ops::astype(&rows, dtype)?, &Array::scalar(factor, dtype)?)?;
            ops::multiply(weight, &rows)
        }))
    }
}
