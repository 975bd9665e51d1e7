//! Whose kernels a model's layers compute with: chosen once, when a model is loaded.

use inference_core::CpuActivations;
use mlx_ffi::{Device, Dtype};

use super::settings::{CpuKernels, MetalKernels, Settings};
use crate::error::Result;

/// The first of NVIDIA's generations that has the instructions of our kernels (Ampere).
const COMPUTE_CAPABILITY: u64 = 8;

/// From so many rows on, CUDA unpacks a matrix that no kernel of ours multiplies with, and
/// multiplies with the unpacked one. That is faster than MLX's product of packed weights from 128
/// rows on: 103 µs against 104 for 128 rows of 9728 × 2560 in 4 bits, 125 against 250 for 511
/// (H200). Below, it spares the first prompt on a machine the half minute for which MLX compiles
/// its own kernel.
pub(crate) const UNPACKED_FROM: i32 = 33;

/// From so many rows on, where no kernel of ours multiplies with the packed matrix, one unpacks it.
/// Up to eight rows MLX multiplies with the packed one, because an unpacked matrix has to be
/// written and read again.
pub(crate) const UNPACKED_BY_US_FROM: i32 = 9;

/// From so many rows of F32 on, CUDA unpacks a matrix: MLX's product of packed weights is right for
/// one row alone. For 32 rows it was 0.535 where -1.72 is right (H100, MLX 0.32.2).
pub(crate) const UNPACKED_F32_FROM: i32 = 2;

/// Activations as our kernels for CPUs multiply them with packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activations {
    /// As they are.
    Whole,
    /// Rounded to 8 bits.
    Int8,
}

/// Whose kernels a model's layers compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernels {
    /// MLX's.
    Mlx,
    /// Our own ones for Metal where MLX needs many operations, and MLX's.
    Metal,
    /// MLX's, in the way that is fast on CUDA.
    MlxOnCuda,
    /// Our own ones for CUDA where they are faster, and MLX's.
    Cuda,
    /// Our own ones for CPUs.
    Cpu(Activations),
}

impl Kernels {
    /// Our own ones for CPUs, with activations as they are.
    pub const CPU: Kernels = Kernels::Cpu(Activations::Whole);

    /// Returns true for our own kernels for CPUs.
    pub fn is_ours_on_cpu(self) -> bool {
        matches!(self, Kernels::Cpu(_))
    }

    /// These kernels, with activations rounded as a load wants it where they can be.
    pub fn with_activations(self, wanted: Option<CpuActivations>) -> Kernels {
        match (self, wanted) {
            (Kernels::Cpu(_), Some(CpuActivations::Int8)) => Kernels::Cpu(Activations::Int8),
            _ => self,
        }
    }

    /// The kernels for a model on `device`, unless `settings` turn ours off. Ours run on a CPU
    /// under Linux, for which MLX has no fast ones, on NVIDIA GPUs that have their
    /// instructions, and on Metal.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn choose(device: Device, settings: &Settings) -> Result<Kernels> {
        if device == Device::Cpu {
            if settings.metal == MetalKernels::Emulated {
                return Ok(Kernels::Metal);
            }
            let ours = cfg!(not(target_os = "macos")) && settings.cpu != CpuKernels::Off;
            return Ok(if ours { Kernels::CPU } else { Kernels::Mlx });
        }
        if !device.is_available()? {
            return Ok(Kernels::Mlx);
        }
        let info = device.info()?;
        let has_instructions = info.compute_capability.is_some_and(|of| of >= COMPUTE_CAPABILITY);
        Ok(match info.backend {
            "cuda" if settings.cuda && has_instructions => Kernels::Cuda,
            "cuda" => Kernels::MlxOnCuda,
            "metal" if settings.metal != MetalKernels::Off => Kernels::Metal,
            _ => Kernels::Mlx,
        })
    }

    /// Returns true for kernels on a CUDA device.
    pub fn is_on_cuda(self) -> bool {
        matches!(self, Kernels::MlxOnCuda | Kernels::Cuda)
    }

    /// From how many rows of `dtype` on a packed matrix is unpacked for a product.
    pub fn unpacked_from(self, dtype: Dtype) -> Option<i32> {
        match dtype {
            Dtype::Bf16 | Dtype::F16 if self == Kernels::Cuda => Some(UNPACKED_BY_US_FROM),
            Dtype::Bf16 | Dtype::F16 if self.is_on_cuda() => Some(UNPACKED_FROM),
            Dtype::F32 if self.is_on_cuda() => Some(UNPACKED_F32_FROM),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_our_kernels_where_it_is_one_of_cuda_that_knows_their_instructions() {
        let kernels = Kernels::choose(Device::Gpu, &Settings::default()).expect("MLX tells");
        let info = Device::Gpu.is_available().expect("MLX tells").then(|| Device::Gpu.info());
        let expected = match info.map(|info| info.expect("a device")) {
            Some(info) if info.backend == "cuda" => match info.compute_capability {
                Some(8..) => Kernels::Cuda,
                _ => Kernels::MlxOnCuda,
            },
            Some(info) if info.backend == "metal" => Kernels::Metal,
            _ => Kernels::Mlx,
        };
        assert_eq!(kernels, expected);
    }

    #[test]
    fn settings_turn_our_kernels_for_cpus_off() {
        let chosen = |cpu| {
            let settings = Settings { cpu, ..Settings::default() };
            Kernels::choose(Device::Cpu, &settings).expect("a CPU is always there")
        };
        assert_eq!(chosen(CpuKernels::Off), Kernels::Mlx);
        if cfg!(target_os = "linux") {
            assert_eq!(chosen(CpuKernels::Fastest), Kernels::CPU);
        }
    }
}
