//! The options of a conversion.

use inference_core::{Dtype, Error, Result};
use mlx_ffi::{QuantMode, Quantization};

/// How a checkpoint is quantised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantiseOptions {
    /// How every module is packed that nothing else speaks of.
    pub default: Packing,
    /// More bits for some modules, by a recipe of mlx-lm.
    pub recipe: Option<Recipe>,
    /// The user's rules for modules by their paths; the last one that fits a module holds.
    pub rules: Vec<Rule>,
    /// The type of everything that is not packed, and of scales; `None`: the one that the config
    /// names, or what the checkpoint has.
    pub dtype: Option<Dtype>,
    /// The vision tower and its projector stay, unpacked, as mlx-vlm has them; else they are left
    /// out, as mlx-lm does.
    pub keep_vision: bool,
    /// The backend that computes; `None`: the best one here.
    pub backend: Option<String>,
}

/// A mode with its bits and the size of its groups.
pub type Packing = Quantization;

/// The packing of a mode, with what the mode has where nothing is said.
///
/// # Errors
/// An unknown mode; bits or groups that the mode does not have.
pub fn packing(mode: &str, bits: Option<i32>, group_size: Option<i32>) -> Result<Packing> {
    let refused = |option, reason: String| Error::InvalidOption { option, reason };
    let mode = QuantMode::from_name(mode).ok_or_else(|| {
        refused("mode", format!("`{mode}` is not one of affine, mxfp4, mxfp8, nvfp4"))
    })?;
    let usual = mode.usual();
    let packing = Quantization {
        mode,
        bits: bits.unwrap_or(usual.bits),
        group_size: group_size.unwrap_or(usual.group_size),
    };
    let with_usual_groups = Quantization { group_size: usual.group_size, ..packing };
    let option = if with_usual_groups.validate().is_err() { "bits" } else { "group_size" };
    packing.validate().map_err(|error| refused(option, error.to_string()))?;
    Ok(packing)
}

/// A mixed recipe of mlx-lm: bits for most modules, and more for values and down projections of
/// some layers and for the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// 2 bits and 6.
    Mixed26,
    /// 3 bits and 4.
    Mixed34,
    /// 3 bits and 6.
    Mixed36,
    /// 4 bits and 6.
    Mixed46,
}

impl Recipe {
    /// All recipes.
    pub const ALL: [Recipe; 4] =
        [Recipe::Mixed26, Recipe::Mixed34, Recipe::Mixed36, Recipe::Mixed46];

    /// mlx-lm's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Recipe::Mixed26 => "mixed_2_6",
            Recipe::Mixed34 => "mixed_3_4",
            Recipe::Mixed36 => "mixed_3_6",
            Recipe::Mixed46 => "mixed_4_6",
        }
    }

    pub(super) fn bits(self) -> (i32, i32) {
        match self {
            Recipe::Mixed26 => (2, 6),
            Recipe::Mixed34 => (3, 4),
            Recipe::Mixed36 => (3, 6),
            Recipe::Mixed46 => (4, 6),
        }
    }
}

/// The user's rule for the modules whose paths fit a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A path such as `model.layers.0.mlp.down_proj`, in which `*` stands for any text.
    pub pattern: String,
    /// How they are packed; `None`: not at all.
    pub quantization: Option<Packing>,
}

impl Rule {
    /// Reads `PATTERN=BITS`, `PATTERN=BITS/GROUP`, `PATTERN=MODE` or `PATTERN=off`.
    ///
    /// # Errors
    /// Another form; bits or groups that do not exist.
    pub fn parse(text: &str) -> Result<Rule> {
        let refused = |reason| Error::InvalidOption { option: "rule", reason };
        let (pattern, value) =
            text.split_once('=').filter(|(pattern, _)| !pattern.is_empty()).ok_or_else(|| {
                refused(format!(
                    "`{text}` is not of the form PATTERN=BITS, PATTERN=MODE or PATTERN=off"
                ))
            })?;
        let quantization = if value == "off" {
            None
        } else if value.starts_with(|first: char| first.is_ascii_digit()) {
            let (bits, group) = value.split_once('/').map_or((value, None), |(b, g)| (b, Some(g)));
            let number = |text: &str| {
                text.parse().map_err(|_| refused(format!("`{text}` in `{value}` is no number")))
            };
            Some(packing("affine", Some(number(bits)?), group.map(number).transpose()?)?)
        } else {
            Some(packing(value, None, None)?)
        };
        Ok(Rule { pattern: pattern.to_owned(), quantization })
    }

    /// Returns true when the pattern fits the module at `path`.
    pub(super) fn matches(&self, path: &str) -> bool {
        fits(&self.pattern, path)
    }
}

/// Returns true when `text` fits `pattern`, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.any(|at| fits(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, path, expected) in [
            ("lm_head", "lm_head", true),
            ("lm_head", "language_model.lm_head", false),
            ("*lm_head", "language_model.lm_head", true),
            ("*.mlp.*", "model.layers.3.mlp.down_proj", true),
            ("model.layers.1.*", "model.layers.11.mlp", false),
            ("*", "anything", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
        ] {
            assert_eq!(fits(pattern, path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_packing_that_does_not_exist_is_told_with_what_is_to_blame() {
        let refused = |mode, bits, groups| packing(mode, bits, groups).unwrap_err().to_string();
        for (told, option) in [
            (refused("affine", Some(7), None), "bits"),
            (refused("affine", Some(7), Some(48)), "bits"),
            (refused("affine", None, Some(48)), "group_size"),
            (refused("fp4", None, None), "mode"),
        ] {
            assert!(told.contains(&format!("`{option}`")), "{told}");
        }
        let told = refused("affine", Some(7), None);
        assert!(told.ends_with("has 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128"), "{told}");
    }

    #[test]
    fn rules_are_read_or_refused() {
        let packed =
            |bits, group_size| Some(Quantization { mode: QuantMode::Affine, bits, group_size });
        let rule = |text| Rule::parse(text).map(|rule| rule.quantization);
        assert_eq!(rule("*.down_proj=8"), Ok(packed(8, 64)));
        assert_eq!(rule("lm_head=6/32"), Ok(packed(6, 32)));
        assert_eq!(rule("lm_head=off"), Ok(None));
        assert_eq!(rule("*=mxfp8").unwrap().unwrap().mode, QuantMode::Mxfp8);
        for wrong in ["lm_head", "=4", "a=7", "a=4/48", "a=fp4", "a=4/x", "a="] {
            assert!(Rule::parse(wrong).is_err(), "{wrong}");
        }
    }
}
