//! The build wanted: a release of MLX, a variant of it, and the machine that it is for.

use std::fmt;

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
    /// Release of the operating system; only macOS has wheels by release.
    pub os_version: Release,
}

/// A release of an operating system, such as 26.2; 0.0 where it does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The number before the point.
    pub major: u32,
    /// The number behind it.
    pub minor: u32,
}

impl Release {
    /// The release `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The release that a text such as `15`, `26.1` or `14.7.1` begins with.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split('.').map(str::parse);
        let major = numbers.next()?.ok()?;
        let minor = numbers.next().map_or(Some(0), Result::ok)?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.os, self.arch)?;
        if self.os_version == Release::default() {
            Ok(())
        } else {
            write!(f, " {}", self.os_version)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Release;

    #[test]
    fn releases_are_read_as_systems_write_them() {
        for (text, expected) in [
            ("15", Some(Release::new(15, 0))),
            ("26.1\n", Some(Release::new(26, 1))),
            ("14.7.1", Some(Release::new(14, 7))),
            ("", None),
            ("11.x", None),
        ] {
            assert_eq!(Release::parse(text), expected, "{text}");
        }
        assert!(Release::new(26, 1) < Release::new(26, 2));
        assert_eq!(Release::new(26, 2).to_string(), "26.2");
    }
}
