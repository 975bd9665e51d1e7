//! The values for pictures in `preprocessor_config.json` or `processor_config.json`.

use serde_json::Value;

use crate::error::PictureError;
use crate::picture::Picture;
use crate::rescale::Rescale;
use crate::resize::{Arithmetic, Filter};
use crate::sizes::{SizeError, Sizing};

/// How a model's pictures are prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct Processor {
    /// To which size.
    pub sizing: Sizing,
    /// With which filter; `None` where `do_resize` is false.
    pub filter: Option<Filter>,
    /// And from 8 bits to numbers.
    pub rescale: Rescale,
}

/// A value of a processor's config that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {found}; expected {expected}")]
pub struct ProcessorError {
    /// The key of the config.
    pub key: &'static str,
    /// The value found, as JSON.
    pub found: String,
    /// The values that are understood.
    pub expected: &'static str,
}

impl Processor {
    /// Lays a config's values over those of a family, which are given. `config` is the object of
    /// `preprocessor_config.json`, or the one under `image_processor` in `processor_config.json`.
    /// Keys that are absent or null leave the family's values.
    ///
    /// # Errors
    /// When a value is of another kind, or asks for a step that is not done here.
    pub fn with(mut self, config: &Value) -> Result<Self, ProcessorError> {
        for (key, expected) in [
            ("do_center_crop", "false: pictures are not cropped"),
            ("do_pan_and_scan", "false: pictures are not cut into crops"),
            ("do_grayscale", "false: pictures are in colour"),
        ] {
            if boolean(config, key)? == Some(true) {
                return Err(ProcessorError { key, found: "true".to_owned(), expected });
            }
        }
        if let Some(filter) = filter(config)? {
            self.filter = self.filter.and(Some(filter));
        }
        if boolean(config, "do_resize")? == Some(false) {
            self.filter = None;
        }
        self.rescale = rescale(self.rescale, config)?;
        self.sizing = sizing(self.sizing, config)?;
        Ok(self)
    }

    /// The size that the model sees of a picture, as (width, height).
    ///
    /// # Errors
    /// Those of [`Sizing::of`].
    pub fn size(&self, width: u32, height: u32) -> Result<(u32, u32), SizeError> {
        if self.filter.is_none() { Ok((width, height)) } else { self.sizing.of(width, height) }
    }

    /// The picture with the size that [`Self::size`] gives.
    ///
    /// # Errors
    /// Those of [`Picture::resized`].
    pub fn resized(
        &self,
        picture: &Picture,
        (width, height): (u32, u32),
    ) -> Result<Picture, PictureError> {
        match self.filter {
            Some(filter) => picture.resized(width, height, filter, Arithmetic::Torchvision),
            None => Ok(picture.clone()),
        }
    }
}

fn refused(key: &'static str, found: &Value, expected: &'static str) -> ProcessorError {
    ProcessorError { key, found: found.to_string(), expected }
}

fn given<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    config.get(key).filter(|value| !value.is_null())
}

fn boolean(config: &Value, key: &'static str) -> Result<Option<bool>, ProcessorError> {
    let Some(value) = given(config, key) else { return Ok(None) };
    value.as_bool().map(Some).ok_or_else(|| refused(key, value, "true or false"))
}

/// A whole number of 1 or more.
fn count(config: &Value, key: &'static str) -> Result<Option<u64>, ProcessorError> {
    let Some(value) = given(config, key) else { return Ok(None) };
    let whole = value.as_u64().filter(|count| *count > 0);
    whole.map(Some).ok_or_else(|| refused(key, value, "a whole number of 1 or more"))
}

/// A number of pixels of a side.
fn side(config: &Value, key: &'static str) -> Result<Option<u32>, ProcessorError> {
    let Some(number) = count(config, key)? else { return Ok(None) };
    let side = u32::try_from(number).ok().filter(|side| *side <= 1 << 20);
    side.map(Some).ok_or_else(|| ProcessorError {
        key,
        found: number.to_string(),
        expected: "at most 1048576",
    })
}

fn filter(config: &Value) -> Result<Option<Filter>, ProcessorError> {
    let Some(value) = given(config, "resample") else { return Ok(None) };
    match value.as_u64() {
        Some(1) => Ok(Some(Filter::Lanczos)),
        Some(2) => Ok(Some(Filter::Bilinear)),
        Some(3) => Ok(Some(Filter::Bicubic)),
        _ => Err(refused("resample", value, "1 (Lanczos), 2 (bilinear) or 3 (bicubic)")),
    }
}

fn rescale(family: Rescale, config: &Value) -> Result<Rescale, ProcessorError> {
    let Rescale { factor, normalize } = family;
    let factor = match given(config, "rescale_factor") {
        Some(value) => {
            let number = value.as_f64().filter(|factor| *factor > 0.0 && factor.is_finite());
            Some(number.ok_or_else(|| refused("rescale_factor", value, "a number above 0"))?)
        }
        None => factor,
    };
    let mean = triple(config, "image_mean")?;
    let std = triple(config, "image_std")?;
    if let Some(value) =
        given(config, "image_std").filter(|_| std.is_some_and(|std| std.contains(&0.0)))
    {
        return Err(refused("image_std", value, "three numbers other than 0"));
    }
    let (family_mean, family_std) = normalize.unwrap_or(([0.0; 3], [1.0; 3]));
    let wanted = boolean(config, "do_normalize")?.unwrap_or(normalize.is_some());
    let rescales = boolean(config, "do_rescale")?.unwrap_or(true);
    Ok(Rescale {
        factor: factor.filter(|_| rescales),
        normalize: wanted.then(|| (mean.unwrap_or(family_mean), std.unwrap_or(family_std))),
    })
}

fn triple(config: &Value, key: &'static str) -> Result<Option<[f32; 3]>, ProcessorError> {
    const EXPECTED: &str = "three numbers, of red, green and blue";
    let Some(value) = given(config, key) else { return Ok(None) };
    let numbers: Option<Vec<f32>> = value
        .as_array()
        .map(|list| list.iter().map_while(|item| Some(item.as_f64()? as f32)).collect());
    let three = numbers.and_then(|numbers| <[f32; 3]>::try_from(numbers).ok());
    three.map(Some).ok_or_else(|| refused(key, value, EXPECTED))
}

fn sizing(family: Sizing, config: &Value) -> Result<Sizing, ProcessorError> {
    let none = Value::Null;
    let size = given(config, "size").unwrap_or(&none);
    let patch = patch(config)?;
    Ok(match family {
        Sizing::Fixed { width, height } => Sizing::Fixed {
            width: side(size, "width")?.unwrap_or(width),
            height: side(size, "height")?.unwrap_or(height),
        },
        Sizing::Area { factor, min_pixels, max_pixels } => {
            let merge = side(config, "merge_size")?;
            let factor = match (patch, merge) {
                (Some(patch), Some(merge)) => patch.saturating_mul(merge),
                _ => factor,
            };
            // The older names of the bounds win, as in transformers.
            let min = count(config, "min_pixels")?.or(count(size, "shortest_edge")?);
            let max = count(config, "max_pixels")?.or(count(size, "longest_edge")?);
            let min = min.or(count(size, "min_pixels")?);
            let max = max.or(count(size, "max_pixels")?);
            Sizing::Area {
                factor,
                min_pixels: min.unwrap_or(min_pixels),
                max_pixels: max.unwrap_or(max_pixels),
            }
        }
        Sizing::Patches { patch: of_family, pooling, max_tokens } => Sizing::Patches {
            patch: patch.unwrap_or(of_family),
            pooling: side(config, "pooling_kernel_size")?.unwrap_or(pooling),
            max_tokens: side(config, "max_soft_tokens")?.unwrap_or(max_tokens),
        },
        // The multiple stays: it is the patch times the merge of processor_config.json or
        // config.json.
        Sizing::LongestEdge { longest_width, longest_height, multiple } => {
            let edge = side(size, "longest_edge")?;
            Sizing::LongestEdge {
                longest_width: edge.or(side(size, "width")?).unwrap_or(longest_width),
                longest_height: edge.or(side(size, "height")?).unwrap_or(longest_height),
                multiple,
            }
        }
    })
}

/// `patch_size`, a number or an object of two equal sides.
fn patch(config: &Value) -> Result<Option<u32>, ProcessorError> {
    let Some(value) = given(config, "patch_size") else { return Ok(None) };
    if !value.is_object() {
        return side(config, "patch_size");
    }
    match (side(value, "height")?, side(value, "width")?) {
        (Some(height), Some(width)) if height == width => Ok(Some(height)),
        _ => Err(refused("patch_size", value, "a number, or equal height and width")),
    }
}
