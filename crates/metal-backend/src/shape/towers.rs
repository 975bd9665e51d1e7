//! Vision towers, built from the config of each family.

mod gemma4;
mod pixtral;
mod qwen;
mod qwen2;
mod siglip;

use crate::config::Config;
use crate::error::{Error, Result};

pub(crate) use gemma4::gemma4_tower;
pub(crate) use pixtral::pixtral_tower;
pub(crate) use qwen::qwen_tower;
pub(crate) use qwen2::{qwen2_5_tower, qwen2_tower};
pub(crate) use siglip::siglip_tower;

/// The most values of a tower's hidden states, and of all of its heads.
const MAX_WIDTH: i32 = 1 << 16;

/// The sizes of a tower, under the names of its config.
#[derive(Clone, Copy, Debug)]
struct TowerSizes {
    hidden: i32,
    inner: i32,
    layers: i32,
    heads: i32,
    head_dim: i32,
    patch: i32,
}

impl TowerSizes {
    /// The sizes that `config` states. `layers` and `heads` are the keys of their counts.
    fn read(config: &Config, [layers, heads]: [&str; 2]) -> Result<TowerSizes> {
        let sizes = TowerSizes {
            hidden: config.size("hidden_size")?,
            inner: config.size("intermediate_size")?,
            layers: config.size(layers)?,
            heads: config.size(heads)?,
            head_dim: 0,
            patch: config.size("patch_size")?,
        };
        let head_dim = match config.opt_size("head_dim")? {
            Some(head_dim) => head_dim,
            None if sizes.hidden % sizes.heads == 0 => sizes.hidden / sizes.heads,
            None => {
                let TowerSizes { hidden, heads: count, .. } = sizes;
                return Err(Error::model(format!(
                    "config.json: `vision_config`: `hidden_size` {hidden} is no multiple of `{heads}` {count}"
                )));
            }
        };
        for (key, size, most) in [
            ("hidden_size", sizes.hidden, MAX_WIDTH),
            ("intermediate_size", sizes.inner, MAX_WIDTH),
            (layers, sizes.layers, super::MAX_LAYERS),
            (heads, sizes.heads, MAX_WIDTH),
            ("head_dim", head_dim, MAX_WIDTH / sizes.heads.clamp(1, MAX_WIDTH)),
            ("patch_size", sizes.patch, 1 << 10),
        ] {
            at_most(key, size, most)?;
        }
        Ok(TowerSizes { head_dim, ..sizes })
    }

    /// Refuses heads whose values do not turn in groups of `unit`: pairs, of which as many turn by
    /// the row of a patch as by its column where `unit` is 4.
    fn expect_turning(&self, unit: i32) -> Result<()> {
        if self.head_dim % unit == 0 {
            return Ok(());
        }
        Err(Error::model(format!(
            "config.json: `vision_config`: heads have {} values, expected a multiple of {unit}: they turn in pairs by the rows and columns of a picture",
            self.head_dim
        )))
    }

    /// Values of all heads together.
    fn attended(&self) -> i32 {
        self.heads * self.head_dim
    }

    /// The factor of scores.
    fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }
}

/// The config of the tower, where there is one.
fn vision(config: &Config) -> Result<Option<Config>> {
    config.object("vision_config")
}

/// The size under `key` of a tower's config, `usual` where it has none.
fn small_size(vision: &Config, key: &str, usual: i32, most: i32) -> Result<i32> {
    let size = vision.opt_size(key)?.unwrap_or(usual);
    at_most(key, size, most).map(|()| size)
}

fn at_most(key: &str, size: i32, most: i32) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    Err(Error::model(format!(
        "config.json: `vision_config`: `{key}` is {size}, at most {most} are supported"
    )))
}

/// Refuses vectors of another size than the language model's, which `key` may state.
fn expect_width(vision: &Config, key: &str, width: i32) -> Result<()> {
    match vision.opt_size(key)? {
        Some(out) if out != width => Err(Error::model(format!(
            "config.json: `vision_config`: `{key}` is {out}, expected {width}, the text's `hidden_size`"
        ))),
        _ => Ok(()),
    }
}

/// Refuses another activation than the family's.
fn expect_activation(config: &Config, key: &str, expected: &[&str]) -> Result<()> {
    match config.opt_text(key)? {
        Some(found) if !expected.contains(&found) => Err(Error::model(format!(
            "config.json: `vision_config`: `{key}` is `{found}`, expected {}",
            expected.join(" or ")
        ))),
        _ => Ok(()),
    }
}
