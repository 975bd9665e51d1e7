//! Vision towers, built from the config of each family.

mod gemma4;
mod pixtral;
mod qwen;
mod siglip;

use crate::config::Config;
use crate::error::{Error, Result};

pub(crate) use gemma4::gemma4_tower;
pub(crate) use pixtral::pixtral_tower;
pub(crate) use qwen::qwen_tower;
pub(crate) use siglip::siglip_tower;

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
        let most =
            [sizes.hidden, sizes.inner, head_dim, sizes.heads].into_iter().max().unwrap_or(0);
        let is_large = most > 1 << 16 || sizes.layers > super::MAX_LAYERS || sizes.patch > 1 << 10;
        if is_large || head_dim % 4 != 0 {
            return Err(Error::model(format!(
                "config.json: `vision_config` has sizes that no tower has: {sizes:?}, heads of {head_dim} values"
            )));
        }
        Ok(TowerSizes { head_dim, ..sizes })
    }

    /// Values of all heads together.
    fn attended(&self) -> i32 {
        self.heads * self.head_dim
    }

    /// What scores are multiplied with.
    fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }
}

/// The config of the tower, where there is one.
fn vision(config: &Config) -> Result<Option<Config>> {
    config.object("vision_config")
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
