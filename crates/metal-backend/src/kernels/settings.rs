//! Settings of kernels from the environment: the only place that reads it.

use mlx_ffi::cpu::{self, Level};

use crate::error::{Error, Result};

/// The variables that name the kernels for a CPU and for CUDA.
const CPU_VARIABLE: &str = "ML_CPU_KERNELS";
const CUDA_VARIABLE: &str = "ML_CUDA_KERNELS";

/// The settings of our own kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub cpu: CpuKernels,
    /// Our kernels for CUDA are used where they can be.
    pub cuda: bool,
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
        Settings { cpu: CpuKernels::Fastest, cuda: true }
    }
}

impl Settings {
    /// Reads the environment: `ML_CPU_KERNELS` is on, off or a level, `ML_CUDA_KERNELS` on or off.
    ///
    /// # Errors
    /// A value that means nothing.
    pub fn from_environment() -> Result<Settings> {
        Settings::parse(variable(CPU_VARIABLE).as_deref(), variable(CUDA_VARIABLE).as_deref())
    }

    fn parse(cpu: Option<&str>, cuda: Option<&str>) -> Result<Settings> {
        let cuda = match cuda {
            None | Some("" | "on") => true,
            Some("off") => false,
            Some(other) => return Err(unknown(CUDA_VARIABLE, other, "on or off")),
        };
        Ok(Settings { cpu: cpu_kernels(cpu)?, cuda })
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
        let cpu = |value| Settings::parse(value, None).expect("a known value").cpu;
        assert_eq!(cpu(None), CpuKernels::Fastest);
        assert_eq!(cpu(Some("on")), CpuKernels::Fastest);
        assert_eq!(cpu(Some("off")), CpuKernels::Off);
        assert_eq!(cpu(Some("avx2")), CpuKernels::At(Level::Avx2));
        assert_eq!(cpu(Some("avx512f")), CpuKernels::At(Level::Avx512f));
        let error = Settings::parse(Some("0"), None).expect_err("none of these").to_string();
        assert!(error.contains("ML_CPU_KERNELS") && error.contains("`0`"), "{error}");
        let cuda = |value| Settings::parse(None, value).map(|settings| settings.cuda);
        assert!(cuda(None).expect("unset") && !cuda(Some("off")).expect("off"));
        let error = cuda(Some("1")).expect_err("none of these").to_string();
        assert!(error.contains("ML_CUDA_KERNELS") && error.contains("`1`"), "{error}");
    }
}
