//! How activations are multiplied on a CPU.

use crate::{Error, Result};

/// The form to which activations are rounded before a CPU multiplies them with packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuActivations {
    /// 8 bits, with a scale for each group of 32 or 64.
    Int8,
}

impl std::str::FromStr for CpuActivations {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "int8" => Ok(CpuActivations::Int8),
            other => Err(Error::InvalidOption {
                option: "cpu_activations",
                reason: format!("`{other}` is not int8"),
            }),
        }
    }
}
