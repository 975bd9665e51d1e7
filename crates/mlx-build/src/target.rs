//! The build wanted: a release of MLX, a variant of it, and the machine that it is for.

use std::env;
use std::fmt;
use std::process::Command;

/// The release of MLX that everything here is pinned to.
pub const MLX_VERSION: &str = "0.32.2";

/// Which build of MLX to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Apple silicon, with GPU kernels in `mlx.metallib`.
    Metal,
    /// Linux without a GPU.
    Cpu,
    /// Linux with an NVIDIA GPU and the CUDA 13 libraries.
    Cuda,
}

impl Variant {
    /// The variant for a machine on which nobody asked for one.
    pub fn default_for(os: &str) -> Self {
        if os == "macos" { Self::Metal } else { Self::Cpu }
    }

    /// The name used on the command line, in `MLX_VARIANT` and in folder names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metal => "metal",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A machine to build for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Operating system, as in `target_os`.
    pub os: String,
    /// Processor, as in `target_arch`.
    pub arch: String,
    /// Major release of the operating system; only macOS has wheels by release.
    pub os_version: u32,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.os, self.arch)?;
        if self.os_version == 0 { Ok(()) } else { write!(f, " {}", self.os_version) }
    }
}

impl Target {
    /// The machine that this program runs on.
    pub fn host() -> Self {
        Self {
            os: env::consts::OS.to_owned(),
            arch: env::consts::ARCH.to_owned(),
            os_version: macos_release(),
        }
    }
}

/// The major release of macOS to build for, or 0 elsewhere.
fn macos_release() -> u32 {
    let wanted = env::var("MACOSX_DEPLOYMENT_TARGET").ok();
    let version = wanted.or_else(|| {
        let output = Command::new("sw_vers").arg("-productVersion").output().ok()?;
        String::from_utf8(output.stdout).ok()
    });
    let major = version.as_deref().and_then(|text| text.trim().split('.').next());
    major.and_then(|text| text.parse().ok()).unwrap_or(0)
}
