//! The text before a kernel, and the numbers that kernels and those who launch them agree on.

use std::ffi::CStr;

use crate::custom_kernel::{self, bare};
use crate::{Activation, GELU_CUBE};

/// The body of a kernel with the names of its inputs and outputs.
pub(super) struct Source {
    pub(super) name: &'static CStr,
    pub(super) inputs: &'static [&'static CStr],
    pub(super) outputs: &'static [&'static CStr],
    pub(super) body: &'static str,
}

/// Lanes of a SIMD group.
pub(super) const LANES: i32 = 32;
/// SIMD groups of a threadgroup.
pub(super) const SIMD_GROUPS: i32 = 8;
/// Keeps the length of a query or a key above 0, as in transformers.
const LENGTH_EPSILON: f32 = 1e-6;

/// An activation as kernels know it; Metal has no error function.
pub(super) fn code(activation: Activation) -> Option<i32> {
    (activation != Activation::Gelu).then_some(custom_kernel::code(activation))
}

/// The text before each kernel: definitions, and functions that several kernels call.
pub(super) fn header() -> String {
    let codes = [
        ("SILU", Activation::Silu),
        ("GELU_TANH", Activation::GeluTanh),
        ("RELU", Activation::Relu),
        ("SIGMOID", Activation::Sigmoid),
        ("SOFTPLUS", Activation::Softplus),
    ];
    let codes = codes.map(|(name, of)| format!("#define {name} {}\n", custom_kernel::code(of)));
    format!(
        "{}#define GELU_CUBE {GELU_CUBE:?}f\n#define LENGTH_EPSILON {LENGTH_EPSILON:e}f\n{}\n",
        codes.concat(),
        bare(include_str!("common.metal"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_get_codes_and_functions() {
        let text = header();
        assert!(text.contains("#define SILU 1\n#define GELU_TANH 2\n"), "{text}");
        assert!(text.contains("#define LENGTH_EPSILON 1e-6f\n"), "{text}");
        assert!(text.contains("inline float softplus_of(float x) {\n"), "{text}");
    }
}
