//! Settings of kernels from the environment: the only place that reads it.

use mlx_ffi::cpu::{self, Level};

use crate::error::{Error, Result};

/// The variables that name the kernels for a CPU, for CUDA and for Metal.
const CPU_VARIABLE: &str = "ML_CPU_KERNELS";
const CUDA_VARIABLE: &str = "ML_CUDA_KERNELS";
const METAL_VARIABLE: &str = "ML_METAL_KERNELS";

/// The settings of our own kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub cpu: CpuKernels,
    /// Our kernels for CUDA are used where they can be.
    pub cuda: bool,
    pub metal: MetalKernels,
}

/// The setting of our kernels for Metal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetalKernels {
    /// MLX's are used instead.
    Off,
    /// They are used where they can be.
    On,
    /// A CPU runs them, for tests of a library that was built for that.
    Emulated,
}

/// The setting of our kernels for CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuKernels {
    /// MLX's are used instead.
    Off,
    /// They use the best instructions that the processor has.
    Fastest,
    /// They use these instructions.
    At(Level),
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { cpu: CpuKernels::Fastest, cuda: true, metal: MetalKernels::On }
    }
}

impl Settings {
    /// Reads the environment: `ML_CPU_KERNELS` is on, off or a level, `ML_CUDA_KERNELS` and
    /// `ML_METAL_KERNELS` are on or off.
    ///
    /// # Errors
    /// A value that means nothing.
    pub fn from_environment() -> Result<Settings> {
        let values = [CPU_VARIABLE, CUDA_VARIABLE, METAL_VARIABLE].map(variable);
        Settings::parse(values.each_ref().map(Option::as_deref))
    }

    fn parse([cpu, cuda, metal]: [Option<&str>; 3]) -> Result<Settings> {
        let cuda = match cuda {
            None | Some("" | "on") => true,
            Some("off") => false,
            Some(other) => return Err(unknown(CUDA_VARIABLE, other, "on or off")),
        };
        let metal = match metal {
            None | Some("" | "on") => MetalKernels::On,
            Some("off") => MetalKernels::Off,
            Some("emulated") if mlx_ffi::metal::IS_EMULATED => MetalKernels::Emulated,
            Some(other) => return Err(unknown(METAL_VARIABLE, other, "on or off")),
        };
        Ok(Settings { cpu: cpu_kernels(cpu)?, cuda, metal })
    }

    /// Lets what is computed on a CPU in this process from now on use the instructions that are
    /// wanted.
    ///
    /// # Errors
    /// Instructions that this processor does not have.
    pub fn apply(&self) -> Result<()> {
        let level = match self.cpu {
            CpuKernels::Off => return Ok(()),
            CpuKernels::Fastest => None,
            CpuKernels::At(level) => Some(level),
        };
        cpu::set_level(level).map_err(|error| refused(format!("{CPU_VARIABLE}: {error}")))
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn cpu_kernels(value: Option<&str>) -> Result<CpuKernels> {
    match value {
        None | Some("" | "on") => Ok(CpuKernels::Fastest),
        Some("off") => Ok(CpuKernels::Off),
        Some(other) => match Level::ALL.into_iter().find(|level| level.name() == other) {
            Some(level) => Ok(CpuKernels::At(level)),
            None => {
                Err(unknown(CPU_VARIABLE, other, "on, off, portable, avx2, avx512f, avx512 or amx"))
            }
        },
    }
}

fn unknown(variable: &str, value: &str, expected: &str) -> Error {
    refused(format!("{variable} is `{value}`, expected {expected}"))
}

fn refused(reason: String) -> Error {
    Error::Core(inference_core::Error::Engine(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_turns_kernels_off_or_names_their_level_and_nothing_else_is_taken() {
        let cpu = |value| Settings::parse([value, None, None]).expect("a known value").cpu;
        assert_eq!(cpu(None), CpuKernels::Fastest);
        assert_eq!(cpu(Some("on")), CpuKernels::Fastest);
        assert_eq!(cpu(Some("off")), CpuKernels::Off);
        assert_eq!(cpu(Some("avx2")), CpuKernels::At(Level::Avx2));
        assert_eq!(cpu(Some("avx512f")), CpuKernels::At(Level::Avx512f));
        let error =
            Settings::parse([Some("0"), None, None]).expect_err("none of these").to_string();
        assert!(error.contains("ML_CPU_KERNELS") && error.contains("`0`"), "{error}");
        let cuda = |value| Settings::parse([None, value, None]).map(|settings| settings.cuda);
        assert!(cuda(None).expect("unset") && !cuda(Some("off")).expect("off"));
        let error = cuda(Some("1")).expect_err("none of these").to_string();
        assert!(error.contains("ML_CUDA_KERNELS") && error.contains("`1`"), "{error}");
        let metal = |value| Settings::parse([None, None, value]).map(|settings| settings.metal);
        assert_eq!(metal(None).expect("unset"), MetalKernels::On);
        assert_eq!(metal(Some("off")).expect("off"), MetalKernels::Off);
        let error = metal(Some("fast")).expect_err("none of these").to_string();
        assert!(error.contains("ML_METAL_KERNELS") && error.contains("`fast`"), "{error}");
    }
}
