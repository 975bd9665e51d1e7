//! Whose kernels multiply with a model's weights.

use mlx_ffi::{Array, Device, Quantized, cpu, fast, ops, quantized_matmul};

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

    /// `x / √(mean(x²) + eps) · weight` over the last dimension.
    pub fn rms_norm(self, x: &Array, weight: &Array, eps: f32) -> mlx_ffi::Result<Array> {
        match self {
            Product::CpuKernels if x.dtype() == weight.dtype() => cpu::rms_norm(x, weight, eps),
            _ => fast::rms_norm(x, Some(weight), eps),
        }
    }

    /// As [`dense`](Self::dense), with packed weights.
    pub fn quantized(self, x: &Array, w: &Quantized) -> mlx_ffi::Result<Array> {
        match self {
            Product::Mlx => quantized_matmul(x, w),
            Product::CpuKernels => cpu::quantized_matmul(x, w),
        }
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
