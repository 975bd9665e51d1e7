//! Rotary position encodings in a config.

use std::rc::Rc;

use serde_json::Value;

use super::Config;
use crate::error::{Error, Result};

const PARTIAL: &str = "partial_rotary_factor";

/// A rotary position encoding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeConfig {
    /// The base, θ, of the inverse frequencies.
    pub theta: f64,
    /// How the inverse frequencies are scaled for longer contexts.
    pub scaling: RopeScaling,
    /// How much of each head is rotated, from its beginning on; the rest knows no position.
    pub partial_rotary_factor: f64,
    /// Which values of a head are rotated together.
    pub pairs: RopePairs,
    /// Which pairs turn by time, row and column of a picture.
    pub sections: Option<RopeSections>,
}

/// Which pairs of a head turn by time, row and column of a picture (`mrope_section`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RopeSections {
    /// How many by each.
    pub sizes: [u64; 3],
    /// They come in turns, as far as they last.
    pub interleaved: bool,
}

impl RopeSections {
    fn read(parameters: &Config) -> Result<Option<RopeSections>> {
        const KEY: &str = "mrope_section";
        let Some(sizes) = parameters.opt_indices(KEY)? else { return Ok(None) };
        let found = Value::from(sizes.clone());
        let sizes = <[u64; 3]>::try_from(sizes)
            .map_err(|_| parameters.wrong(KEY, &found, "three counts"))?;
        let interleaved = parameters.opt_flag("mrope_interleaved")?.unwrap_or(false);
        Ok(Some(RopeSections { sizes, interleaved }))
    }

    /// Which of the three turns each of so many pairs.
    pub fn axes(&self, pairs: i32) -> Rc<[u8]> {
        let [time, rows, columns] = self.sizes;
        let axis = |pair: u64| match self.interleaved {
            true if pair % 3 == 1 && pair < 3 * rows => 1,
            true if pair % 3 == 2 && pair < 3 * columns => 2,
            false if (time..time + rows).contains(&pair) => 1,
            false if pair >= time + rows => 2,
            _ => 0,
        };
        (0..pairs as u64).map(axis).collect()
    }
}

/// Which values of a head are rotated together, of `dims` that are rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RopePairs {
    /// `i` and `i + dims / 2` (GPT-NeoX, Llama).
    #[default]
    Halves,
    /// `2 i` and `2 i + 1` (GPT-J, Cohere).
    Neighbours,
}

/// How the inverse frequencies are scaled for longer contexts; each is divided by a factor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RopeScaling {
    /// Not at all.
    None,
    /// Positions divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: low frequencies by the factor, high ones not, those between smoothly.
    Llama3 {
        /// The factor of low frequencies.
        factor: f64,
        /// A frequency is low where its wavelength is above the original context over this.
        low_freq_factor: f64,
        /// A frequency is high where its wavelength is below the original context over this.
        high_freq_factor: f64,
        /// The context that the model was trained on first.
        original_max_position_embeddings: f64,
    },
    /// YaRN (arXiv 2309.00071).
    Yarn {
        /// The scaling factor.
        factor: f64,
        /// The context that the model was trained on first.
        original_max_position_embeddings: f64,
        /// Rotations over the original context above which a dimension keeps its frequency.
        beta_fast: f64,
        /// Rotations below which a dimension is scaled in full.
        beta_slow: f64,
        /// The factor of queries and keys.
        attention_factor: f64,
        /// The bounds between the two are rounded to whole dimensions.
        truncate: bool,
    },
    /// The first pairs of a whole head turn, by the frequencies that they have there; the others do
    /// not (Gemma 4).
    Proportional {
        /// How much of the pairs turns.
        part: f64,
        /// The scaling factor.
        factor: f64,
    },
    /// LongRoPE (arXiv 2402.13753): a factor for each frequency, and another one for sequences
    /// that are longer than the original context.
    Long {
        /// The factors up to the original context.
        short_factor: Vec<f64>,
        /// The factors of longer sequences.
        long_factor: Vec<f64>,
        /// The context that the model was trained on first.
        original_max_position_embeddings: i32,
        /// The factor of queries and keys, at every length.
        attention_factor: f64,
    },
}

impl RopeScaling {
    fn parse(model: &Config, parameters: &Config) -> Result<RopeScaling> {
        let kind = match parameters.opt_text("rope_type")? {
            Some(kind) => kind,
            None => parameters.opt_text("type")?.unwrap_or("default"),
        };
        let factor =
            || parameters.opt_positive("factor")?.ok_or_else(|| parameters.missing("factor"));
        let positive = |key: &str, default: f64| -> Result<f64> {
            Ok(parameters.opt_positive(key)?.unwrap_or(default))
        };
        match kind {
            // Qwen 2 VL: by `mrope_section`, and no longer than usual.
            "default" | "none" | "mrope" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: factor()? }),
            "proportional" => Ok(RopeScaling::Proportional {
                part: positive(PARTIAL, 1.0)?,
                factor: positive("factor", 1.0)?,
            }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: factor()?,
                low_freq_factor: positive("low_freq_factor", 1.0)?,
                high_freq_factor: positive("high_freq_factor", 4.0)?,
                original_max_position_embeddings: positive(
                    "original_max_position_embeddings",
                    8192.0,
                )?,
            }),
            // Frequencies change behind `max_position_embeddings` alone, where requests end.
            "dynamic" if parameters.get("original_max_position_embeddings").is_none() => {
                match model.opt_size("max_position_embeddings")? {
                    Some(_) => Ok(RopeScaling::None),
                    None => Err(model.missing("max_position_embeddings")),
                }
            }
            "longrope" | "su" => RopeScaling::parse_long(model, parameters),
            // The first Phi 3 checkpoints.
            "yarn" if parameters.get("long_factor").is_some() => {
                RopeScaling::parse_long(model, parameters)
            }
            "yarn" => {
                let factor = factor()?;
                let original = match parameters.opt_positive("original_max_position_embeddings")? {
                    Some(original) => original,
                    None => model
                        .opt_positive("max_position_embeddings")?
                        .ok_or_else(|| parameters.missing("original_max_position_embeddings"))?,
                };
                Ok(RopeScaling::Yarn {
                    factor,
                    original_max_position_embeddings: original,
                    beta_fast: positive("beta_fast", 32.0)?,
                    beta_slow: positive("beta_slow", 1.0)?,
                    attention_factor: yarn_attention_factor(parameters, factor)?,
                    truncate: parameters.opt_flag("truncate")?.unwrap_or(true),
                })
            }
            other => Err(Error::model(format!(
                "{}: rope type `{other}` is not known; known are default, linear, llama3, longrope, proportional, yarn",
                parameters.name
            ))),
        }
    }

    fn parse_long(model: &Config, parameters: &Config) -> Result<RopeScaling> {
        const ORIGINAL: &str = "original_max_position_embeddings";
        let factors = |key| parameters.opt_positives(key)?.ok_or_else(|| parameters.missing(key));
        // Phi 3 states it outside, which counts more.
        let whole = model.opt_size("max_position_embeddings")?;
        let original = match model.opt_size(ORIGINAL)? {
            Some(original) => Some(original),
            None => parameters.opt_size(ORIGINAL)?.or(whole),
        };
        let original = original.ok_or_else(|| parameters.missing(ORIGINAL))?;
        let stretch = match parameters.opt_positive("factor")? {
            Some(factor) => factor,
            None => f64::from(whole.unwrap_or(original)) / f64::from(original),
        };
        let attention_factor = match parameters.opt_positive("attention_factor")? {
            Some(given) => given,
            None if stretch <= 1.0 => 1.0,
            None if original == 1 => {
                return Err(model.wrong(ORIGINAL, &Value::from(original), "more than 1"));
            }
            None => (1.0 + stretch.ln() / f64::from(original).ln()).sqrt(),
        };
        Ok(RopeScaling::Long {
            short_factor: factors("short_factor")?,
            long_factor: factors("long_factor")?,
            original_max_position_embeddings: original,
            attention_factor,
        })
    }
}

/// YaRN's scale of what is stretched by `factor`: 1 where nothing is.
fn yarn_scale(m: f64, factor: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 }
}

/// transformers' rule: the given factor, else the ratio of the two scales, else `0.1 ln s + 1`.
fn yarn_attention_factor(parameters: &Config, factor: f64) -> Result<f64> {
    if let Some(given) = parameters.opt_positive("attention_factor")? {
        return Ok(given);
    }
    let mscale = parameters.opt_number("mscale")?.filter(|m| *m != 0.0);
    let all_dim = parameters.opt_number("mscale_all_dim")?.filter(|m| *m != 0.0);
    Ok(match (mscale, all_dim) {
        (Some(mscale), Some(all_dim)) => yarn_scale(mscale, factor) / yarn_scale(all_dim, factor),
        _ => yarn_scale(1.0, factor),
    })
}

impl Config {
    /// The position encoding of layers of `layer_type` (`full_attention`, `sliding_attention`):
    /// from `rope_parameters`, nested by layer type or not, else from `rope_theta` and
    /// `rope_scaling`.
    ///
    /// # Errors
    /// An unknown type, or a parameter that the type needs and the config lacks.
    pub fn rope(&self, layer_type: &str, default_theta: f64) -> Result<RopeConfig> {
        let config = self.partial_rope(layer_type, default_theta)?;
        if config.partial_rotary_factor != 1.0 {
            let factor = Value::from(config.partial_rotary_factor);
            return Err(self.wrong(PARTIAL, &factor, "1: whole heads are rotated"));
        }
        Ok(config)
    }

    /// The factor of scores beside 1 / √width where YaRN stretches the positions (DeepSeek): the
    /// square of `0.1 mscale_all_dim ln factor + 1`. 1 for other encodings.
    ///
    /// # Errors
    /// A parameter of another type.
    pub fn yarn_score_factor(&self) -> Result<f64> {
        let found = self.object("rope_parameters")?;
        let Some(parameters) =
            found.map_or_else(|| self.object("rope_scaling"), |own| Ok(Some(own)))?
        else {
            return Ok(1.0);
        };
        let kind = match parameters.opt_text("rope_type")? {
            Some(kind) => Some(kind),
            None => parameters.opt_text("type")?,
        };
        if kind != Some("yarn") {
            return Ok(1.0);
        }
        let factor = parameters.opt_positive("factor")?.unwrap_or(1.0);
        let all_dim = parameters.opt_number("mscale_all_dim")?.unwrap_or(0.0);
        Ok(yarn_scale(all_dim, factor).powi(2))
    }

    /// The position encoding of the layers with a window (Gemma 3 and 3n): from `rope_parameters`,
    /// else `rope_local_base_freq`.
    ///
    /// # Errors
    /// As [`rope`](Self::rope).
    pub fn local_rope(&self) -> Result<RopeConfig> {
        const THETA: f64 = 10_000.0;
        if self.object("rope_parameters")?.is_some() {
            return self.rope("sliding_attention", THETA);
        }
        let theta = self.opt_positive("rope_local_base_freq")?.unwrap_or(THETA);
        let (scaling, pairs) = (RopeScaling::None, RopePairs::default());
        Ok(RopeConfig { theta, scaling, partial_rotary_factor: 1.0, pairs, sections: None })
    }

    /// The rotary embedding of the first values of each head: as many as `key` states, of
    /// `head_dim`, or the part that the config states.
    ///
    /// # Errors
    /// As [`rope`](Self::rope), and more values than a head has.
    pub fn rope_of_dims(&self, key: &str, head_dim: i32, theta: f64) -> Result<RopeConfig> {
        let rope = self.partial_rope("full_attention", theta)?;
        let Some(dims) = self.opt_size(key)? else { return Ok(rope) };
        if dims > head_dim {
            return Err(Error::model(format!(
                "{}: `{key}` is {dims}, a head has {head_dim} values",
                self.name
            )));
        }
        Ok(RopeConfig { partial_rotary_factor: f64::from(dims) / f64::from(head_dim), ..rope })
    }

    /// The rotary embedding of an architecture that may rotate a part of each head only.
    ///
    /// # Errors
    /// As [`rope`](Self::rope), and a part above the whole.
    pub fn partial_rope(&self, layer_type: &str, default_theta: f64) -> Result<RopeConfig> {
        let parameters = match self.object("rope_parameters")? {
            Some(outer) => outer.object(layer_type)?.or(Some(outer)),
            None => self.object("rope_scaling")?,
        };
        let own_theta = self.opt_positive("rope_theta")?;
        let mut theta = own_theta.unwrap_or(default_theta);
        let mut scaling = RopeScaling::None;
        let mut part = self.opt_positive(PARTIAL)?.unwrap_or(1.0);
        let mut sections = None;
        if let Some(parameters) = parameters {
            part = parameters.opt_positive(PARTIAL)?.unwrap_or(part);
            theta = parameters.opt_positive("rope_theta")?.unwrap_or(theta);
            scaling = RopeScaling::parse(self, &parameters)?;
            sections = RopeSections::read(&parameters)?;
        }
        // At 1, every pair of dimensions would turn at the same rate.
        if theta <= 1.0 {
            return Err(self.wrong("rope_theta", &Value::from(theta), "a number above 1"));
        }
        if part > 1.0 {
            return Err(self.wrong(PARTIAL, &Value::from(part), "at most 1"));
        }
        if let RopeScaling::Proportional { .. } = scaling {
            // Of the pairs, not of the head.
            part = 1.0;
        }
        let pairs = RopePairs::default();
        Ok(RopeConfig { theta, scaling, partial_rotary_factor: part, pairs, sections })
    }
}
