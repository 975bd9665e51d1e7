//! One step of denoising: the transformer's prediction with guidance.

use mlx_ffi::{Array, Dtype, ops};

use super::pipeline::Transformer;
use super::plan::Plan;
use super::qwen_image::{QwenImage, QwenPrepared};
use super::z_image::{PATCH, Prepared, ZImage};
use crate::error::Result;

/// The inputs of a picture.
pub(super) struct Conditions {
    /// The states of the prompt and of the negative one, `[1, ids, hidden]` each.
    pub prompts: Vec<Array>,
    /// The latents of the pictures that are edited, as rows of patches.
    pub given: Option<Array>,
    /// Rows and columns of the patches of all pictures, the one that is made first.
    pub grids: Vec<[i32; 2]>,
}

/// A transformer with what all steps of a picture share.
pub(super) struct Denoiser<'a> {
    model: Model<'a>,
    plan: &'a Plan,
}

enum Model<'a> {
    ZImage(&'a ZImage, Vec<Prepared>),
    Qwen(&'a QwenImage, Vec<QwenPrepared>, Option<&'a Array>),
}

impl<'a> Denoiser<'a> {
    /// Prepares what all steps share.
    ///
    /// # Errors
    /// Sizes that the transformer has no positions for; errors of MLX.
    pub fn new(
        transformer: &'a Transformer,
        plan: &'a Plan,
        conditions: &'a Conditions,
    ) -> Result<Denoiser<'a>> {
        let prompts = conditions.prompts.iter();
        let model = match transformer {
            Transformer::ZImage(model) => {
                let shared = prompts.map(|prompt| model.prepare(prompt, plan.grid()));
                Model::ZImage(model, shared.collect::<Result<_>>()?)
            }
            Transformer::Qwen(model) => {
                let shared = prompts.map(|prompt| model.prepare(prompt, &conditions.grids));
                let given = conditions.given.as_ref();
                Model::Qwen(model, shared.collect::<Result<_>>()?, given)
            }
        };
        Ok(Denoiser { model, plan })
    }

    /// Latents, `[1, channels, height, width]`, as rows of patches, `[1, tokens, 4 · channels]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn patches(&self, latents: &Array) -> Result<Array> {
        match self.model {
            Model::ZImage(..) => patches(latents),
            Model::Qwen(..) => packed(latents),
        }
    }

    /// Rows of patches as latents, `[1, height, width, channels]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn latents(&self, patches: &Array, channels: i32) -> Result<Array> {
        let [rows, columns] = self.plan.grid();
        let moved = match self.model {
            Model::ZImage(..) => {
                let cut = ops::reshape(patches, &[rows, columns, PATCH, PATCH, channels])?;
                ops::transpose(&cut, &[0, 2, 1, 3, 4])?
            }
            Model::Qwen(..) => {
                let cut = ops::reshape(patches, &[rows, columns, channels, PATCH, PATCH])?;
                ops::transpose(&cut, &[0, 3, 1, 4, 2])?
            }
        };
        Ok(ops::reshape(&moved, &[1, rows * PATCH, columns * PATCH, channels])?)
    }

    /// The prediction in F32, with guidance, in the direction in which noise grows.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn velocity(&self, patches: &Array, sigma: f32) -> Result<Array> {
        let of = |out: Array| -> Result<Array> {
            let out = ops::astype(&out, Dtype::F32)?;
            out.eval()?;
            Ok(out)
        };
        match &self.model {
            Model::ZImage(model, shared) => {
                let time = (1000.0 - 1000.0 * sigma) / 1000.0;
                let predict = |shared: &Prepared| of(model.forward(patches, time, shared)?);
                let positive = predict(&shared[0])?;
                // As in diffusers: exactly at the truncation there still is guidance.
                let out = match &shared[1..] {
                    [negative] if time <= self.plan.truncation => {
                        self.led_away(&positive, &predict(negative)?)?
                    }
                    _ => positive,
                };
                // The model predicts the way from noise.
                Ok(ops::negative(&out)?)
            }
            Model::Qwen(model, shared, given) => {
                let predict =
                    |shared: &QwenPrepared| of(model.forward(patches, *given, sigma, shared)?);
                let positive = predict(&shared[0])?;
                match &shared[1..] {
                    [negative] => self.of_one_length(&positive, &predict(negative)?),
                    _ => Ok(positive),
                }
            }
        }
    }

    /// Z-Image's guidance: `positive + g · (positive - negative)`, no longer than the plan allows.
    fn led_away(&self, positive: &Array, negative: &Array) -> Result<Array> {
        let factor = Array::scalar(self.plan.guidance, Dtype::F32)?;
        let away = ops::multiply(&factor, &ops::subtract(positive, negative)?)?;
        let all = ops::add(positive, &away)?;
        if self.plan.normalization > 0.0 {
            let (length, most) = (norm(&all)?, norm(positive)? * self.plan.normalization);
            if length > most {
                return Ok(ops::multiply(&all, &Array::scalar(most / length, Dtype::F32)?)?);
            }
        }
        Ok(all)
    }

    /// Qwen-Image's guidance: `negative + g · (positive - negative)`, each row as long as that of
    /// `positive`.
    fn of_one_length(&self, positive: &Array, negative: &Array) -> Result<Array> {
        let factor = Array::scalar(self.plan.guidance, Dtype::F32)?;
        let away = ops::multiply(&factor, &ops::subtract(positive, negative)?)?;
        let all = ops::add(negative, &away)?;
        let length = |x: &Array| ops::sqrt(&ops::sum(&ops::multiply(x, x)?, -1, true)?);
        Ok(ops::multiply(&all, &ops::divide(&length(positive)?, &length(&all)?)?)?)
    }
}

/// The root of the sum of squares.
fn norm(x: &Array) -> Result<f32> {
    let square = ops::multiply(x, x)?;
    let sums = ops::sum(&ops::reshape(&square, &[square.rows(), -1])?, -1, false)?;
    Ok(ops::sqrt(&ops::sum(&sums, 0, false)?)?.item_f32()?)
}

/// Latents as rows of patches whose values are (row, column, channel), Z-Image's.
fn patches(latents: &Array) -> Result<Array> {
    let [_, channels, height, width] = latents.dims()?;
    let (rows, columns) = (height / PATCH, width / PATCH);
    let cut = ops::reshape(latents, &[channels, rows, PATCH, columns, PATCH])?;
    let moved = ops::transpose(&cut, &[1, 3, 2, 4, 0])?;
    Ok(ops::reshape(&moved, &[1, rows * columns, PATCH * PATCH * channels])?)
}

/// Latents, `[1, channels, height, width]`, as rows of patches whose values are (channel, row,
/// column), Qwen-Image's.
///
/// # Errors
/// Those of MLX.
pub(super) fn packed(latents: &Array) -> Result<Array> {
    let [_, channels, height, width] = latents.dims()?;
    let (rows, columns) = (height / PATCH, width / PATCH);
    let cut = ops::reshape(latents, &[channels, rows, PATCH, columns, PATCH])?;
    let moved = ops::transpose(&cut, &[1, 3, 0, 2, 4])?;
    Ok(ops::reshape(&moved, &[1, rows * columns, PATCH * PATCH * channels])?)
}
