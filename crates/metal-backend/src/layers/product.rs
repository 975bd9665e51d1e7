//! Whose kernels multiply with a model's weights.

use mlx_ffi::{Array, Device, Quantized, cpu, gather_qmm, ops, quantized_matmul};

use super::Order;
use crate::error::{Error, Result};

/// The variable that names the kernels for a CPU.
const VARIABLE: &str = "ML_CPU_KERNELS";

/// Whose kernels multiply with a model's weights; decided when the model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// MLX's.
    Mlx,
    /// Our own ones for CPUs.
    CpuKernels,
}

impl Product {
    /// What a model on `device` uses: our own kernels on a CPU under Linux, where MLX has none
    /// that are fast, unless the environment says `ML_CPU_KERNELS=off`.
    ///
    /// # Errors
    /// A value of the variable that means nothing.
    pub fn on(device: Device) -> Result<Product> {
        let value = std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned());
        let wanted = wanted(value.as_deref())?;
        let fitting = device == Device::Cpu && cfg!(not(target_os = "macos"));
        Ok(if wanted && fitting { Product::CpuKernels } else { Product::Mlx })
    }

    /// `x wᵀ` for `x` of `[…, in]` and `w` of `[out, in]`.
    pub fn dense(self, x: &Array, w: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx => ops::matmul(x, &ops::swap_axes(w, -1, -2)?),
            Product::CpuKernels => cpu::matmul(x, w),
        }
    }

    /// `x wᵀ + b` as [`dense`](Self::dense) with `bias` of `[out]`; MLX's own rounds the sum once.
    pub fn biased_dense(self, x: &Array, w: &Array, bias: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx => ops::addmm(bias, x, &ops::swap_axes(w, -1, -2)?),
            Product::CpuKernels => ops::add(&cpu::matmul(x, w)?, bias),
        }
    }

    /// As [`dense`](Self::dense), with packed weights.
    pub fn quantized(self, x: &Array, w: &Quantized) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx => quantized_matmul(x, w),
            Product::CpuKernels => cpu::quantized_matmul(x, w),
        }
    }

    /// `x wᵀ` with a matrix of `w`, `[experts, out, in]`, for each of `indices`, `[t, e]`: `x` of
    /// `[t, 1 or e, in]` to `[t, e, out]`.
    pub fn gather_dense(
        self,
        x: &Array,
        w: &Array,
        indices: &Array,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx => {
                let (x, w) = (ops::expand_dims(x, -2)?, ops::swap_axes(w, -1, -2)?);
                let product = ops::gather_mm(&x, &w, indices, order == Order::Sorted)?;
                ops::squeeze(&product, -2)
            }
            Product::CpuKernels => cpu::gather_matmul(x, w, indices),
        }
    }

    /// As [`gather_dense`](Self::gather_dense), with packed weights.
    pub fn gather_quantized(
        self,
        x: &Array,
        w: &Quantized,
        indices: &Array,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx => {
                let x = ops::expand_dims(x, -2)?;
                ops::squeeze(&gather_qmm(&x, w, indices, order == Order::Sorted)?, -2)
            }
            Product::CpuKernels => cpu::gather_quantized_matmul(x, w, indices),
        }
    }

    /// Whether products of many rows are faster where the matrices are named in order. Our own
    /// kernels bring the rows of a matrix together themselves.
    pub fn prefers_order(self) -> bool {
        self == Product::Mlx
    }
}

/// Whether the variable's value asks for our own kernels.
fn wanted(value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("" | "on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => {
            let reason = format!("{VARIABLE} is `{other}`, expected on or off");
            Err(Error::Core(inference_core::Error::Engine(reason)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_turns_our_kernels_off_and_nothing_else_is_taken() {
        assert!(wanted(None).expect("unset"));
        assert!(wanted(Some("on")).expect("on"));
        assert!(!wanted(Some("off")).expect("off"));
        let error = wanted(Some("0")).expect_err("neither on nor off").to_string();
        assert!(error.contains("ML_CPU_KERNELS") && error.contains("`0`"), "{error}");
    }

    #[test]
    fn a_gpu_keeps_the_kernels_of_mlx() {
        assert_eq!(Product::on(Device::Gpu).expect("no such variable in tests"), Product::Mlx);
    }
}
