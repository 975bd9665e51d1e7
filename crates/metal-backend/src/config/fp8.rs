//! The config's entry for weights that are floats of 8 bits (`quant_method` `fp8`).

use super::Config;
use crate::error::Result;

/// The names of the one form of floats of 8 bits that is read.
const E4M3: [&str; 3] = ["e4m3", "e4m3fn", "float8_e4m3fn"];
/// The name of scales that are powers of two, of which a byte has the exponent.
const E8M0: &str = "ue8m0";

/// How floats of 8 bits have their scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fp8Format {
    /// Rows and columns that share a scale; `None`: all do.
    pub block: Option<[i32; 2]>,
    /// Scales that are bytes are exponents of two.
    pub has_exponents: bool,
}

impl Config {
    /// How weights of 8 bits have their scales.
    ///
    /// # Errors
    /// Sizes that are no two numbers from 1 on.
    pub fn fp8_format(&self) -> Result<Fp8Format> {
        const KEY: &str = "weight_block_size";
        let usual = Fp8Format { block: Some([128, 128]), has_exponents: false };
        let Some(object) = self.part_of("quantization_config", &[KEY, "scale_fmt"])? else {
            return Ok(usual);
        };
        let has_exponents = object.opt_text("scale_fmt")? == Some(E8M0);
        if !object.fields.contains_key(KEY) {
            return Ok(Fp8Format { has_exponents, ..usual });
        }
        let Some(found) = object.get(KEY) else {
            return Ok(Fp8Format { block: None, has_exponents });
        };
        let size = |size: &u64| i32::try_from(*size).ok().filter(|size| *size > 0);
        let sizes = object.opt_indices(KEY)?.unwrap_or_default();
        match sizes.iter().map(size).collect::<Option<Vec<i32>>>().as_deref() {
            Some(&[rows, columns]) => Ok(Fp8Format { block: Some([rows, columns]), has_exponents }),
            _ => Err(object.wrong(KEY, found, "two numbers from 1 on")),
        }
    }

    /// Checks what a `quantization_config` of the method `fp8` says of its numbers.
    ///
    /// # Errors
    /// A form of numbers that is not read.
    pub(super) fn fp8_fields(&self) -> Result<()> {
        let known: [(&str, &[&str]); 3] =
            [("fmt", &E4M3), ("expert_dtype", &["fp8"]), ("scale_fmt", &[E8M0])];
        for (key, known) in known {
            if let Some(other) = self.opt_text(key)?.filter(|found| !known.contains(found)) {
                return Err(self.wrong(key, &other.into(), known[0]));
            }
        }
        Ok(())
    }
}
