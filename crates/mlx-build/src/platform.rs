//! What differs between platforms, as one table: wheels, files, link lines, rpaths.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::Error;

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

impl FromStr for Variant {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        [Self::Metal, Self::Cpu, Self::Cuda]
            .into_iter()
            .find(|variant| variant.name() == name)
            .ok_or_else(|| Error::UnknownVariant { name: name.to_owned() })
    }
}

/// What an operating system's linker and loader need.
#[derive(Debug)]
pub struct Linkage {
    /// File name of the MLX library.
    pub library: &'static str,
    /// The C++ standard library.
    pub cxx: &'static str,
    /// Frameworks to link.
    pub frameworks: &'static [&'static str],
    /// Linker arguments that go before the rpath entries.
    pub rpath_flags: &'static [&'static str],
    /// Entries relative to the executable, in the order in which they are tried.
    pub rpath_origins: &'static [&'static str],
}

const LINUX: Linkage = Linkage {
    library: "libmlx.so",
    cxx: "stdc++",
    frameworks: &[],
    // RUNPATH rather than RPATH: LD_LIBRARY_PATH comes first, so one binary runs
    // on a CPU, and on a GPU when the CUDA build of libmlx.so is put before ours.
    rpath_flags: &["-Wl,--enable-new-dtags"],
    rpath_origins: &["$ORIGIN", "$ORIGIN/../lib"],
};

const MACOS: Linkage = Linkage {
    library: "libmlx.dylib",
    cxx: "c++",
    frameworks: &["Foundation", "Metal"],
    rpath_flags: &[],
    rpath_origins: &["@loader_path", "@loader_path/../lib"],
};

/// One wheel of MLX and the machines that it is for.
#[derive(Debug)]
pub struct Platform {
    /// The build of MLX in the wheel.
    pub variant: Variant,
    /// Operating system, as in `target_os`.
    pub os: &'static str,
    /// Processor, as in `target_arch`.
    pub arch: &'static str,
    /// The oldest major release of the operating system that runs it; 0 is any.
    pub min_os: u32,
    /// The Python package.
    pub package: &'static str,
    /// The platform tag in the wheel's name.
    pub tag: &'static str,
    /// SHA-256 of the wheel, in hexadecimal.
    pub sha256: &'static str,
    /// Files that an unpacked wheel must hold, from its top folder.
    pub files: &'static [&'static str],
    /// How to link and find the library.
    pub linkage: &'static Linkage,
}

const CPU_FILES: &[&str] = &["mlx/lib/libmlx.so", "mlx/include/mlx/mlx.h", CMAKE_CONFIG];
const CUDA_FILES: &[&str] = &[
    "mlx/lib/libmlx.so",
    "mlx/include/mlx/mlx.h",
    // Kernels are compiled at run time against these headers.
    "mlx/include/cccl",
    "mlx/include/cute",
    "mlx/include/cutlass",
    CMAKE_CONFIG,
];
const METAL_FILES: &[&str] = &[
    "mlx/lib/libmlx.dylib",
    "mlx/lib/libjaccl.dylib",
    "mlx/lib/mlx.metallib",
    "mlx/include/mlx/mlx.h",
    CMAKE_CONFIG,
];
const CMAKE_CONFIG: &str = "mlx/share/cmake/MLX/MLXConfig.cmake";

/// Every wheel that can be fetched; of several that fit, the last is the best.
pub const PLATFORMS: &[Platform] = &[
    Platform {
        variant: Variant::Cpu,
        os: "linux",
        arch: "x86_64",
        min_os: 0,
        package: "mlx-cpu",
        tag: "manylinux_2_35_x86_64",
        sha256: "fc5d31b90fc4f457b2f9614ed45651a567d22a6a11a03d114a90a4e10bdd8878",
        files: CPU_FILES,
        linkage: &LINUX,
    },
    Platform {
        variant: Variant::Cpu,
        os: "linux",
        arch: "aarch64",
        min_os: 0,
        package: "mlx-cpu",
        tag: "manylinux_2_35_aarch64",
        sha256: "d0f94625588b51a878786dd51cec5617894ce586cf3c94645ce1b64e24c27c0b",
        files: CPU_FILES,
        linkage: &LINUX,
    },
    Platform {
        variant: Variant::Cuda,
        os: "linux",
        arch: "x86_64",
        min_os: 0,
        package: "mlx-cuda-13",
        tag: "manylinux_2_35_x86_64",
        sha256: "335094ccd1c0c6dc3e09c8caba207c8180602bacc0c38ba20c1d81e9456ab394",
        files: CUDA_FILES,
        linkage: &LINUX,
    },
    Platform {
        variant: Variant::Cuda,
        os: "linux",
        arch: "aarch64",
        min_os: 0,
        package: "mlx-cuda-13",
        tag: "manylinux_2_35_aarch64",
        sha256: "49b1a25df9021f3b519a534fd39a32a5cdbf93a1b265a31e59671c2d9fc9f4a2",
        files: CUDA_FILES,
        linkage: &LINUX,
    },
    Platform {
        variant: Variant::Metal,
        os: "macos",
        arch: "aarch64",
        min_os: 14,
        package: "mlx-metal",
        tag: "macosx_14_0_arm64",
        sha256: "3825fff379dbc107dd3413e564a06caeaa24819910ec49c0439e454c06a1b9b8",
        files: METAL_FILES,
        linkage: &MACOS,
    },
    Platform {
        variant: Variant::Metal,
        os: "macos",
        arch: "aarch64",
        min_os: 15,
        package: "mlx-metal",
        tag: "macosx_15_0_arm64",
        sha256: "55a369250d220b2cf10213a87a2ac1b1a420608c5b35b1df4e7147ac8e32f121",
        files: METAL_FILES,
        linkage: &MACOS,
    },
    Platform {
        variant: Variant::Metal,
        os: "macos",
        arch: "aarch64",
        min_os: 26,
        package: "mlx-metal",
        tag: "macosx_26_0_arm64",
        sha256: "e6abeac9ac5265830c9c1541b6f96e9be37a85c2446763a46ad466c63a3837ab",
        files: METAL_FILES,
        linkage: &MACOS,
    },
];

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

impl Platform {
    /// The best wheel of `variant` for `target`.
    ///
    /// # Errors
    /// [`Error::NoWheel`] when there is none, with the ones that exist.
    pub fn find(variant: Variant, target: &Target) -> Result<&'static Self, Error> {
        PLATFORMS
            .iter()
            .rfind(|platform| {
                platform.variant == variant
                    && platform.os == target.os
                    && platform.arch == target.arch
                    && platform.min_os <= target.os_version
            })
            .ok_or_else(|| Error::NoWheel { variant, target: target.clone() })
    }

    /// The first of [`Platform::files`] that `dist`, an unpacked wheel, lacks.
    pub fn missing_file(&self, dist: &Path) -> Option<&'static str> {
        self.files.iter().copied().find(|file| !dist.join(file).exists())
    }
}

impl Linkage {
    /// The linkage of an operating system.
    ///
    /// # Errors
    /// [`Error::UnsupportedOs`] when MLX does not run on it.
    pub fn of(os: &str) -> Result<&'static Self, Error> {
        PLATFORMS
            .iter()
            .find(|platform| platform.os == os)
            .map(|platform| platform.linkage)
            .ok_or_else(|| Error::UnsupportedOs { os: os.to_owned() })
    }

    /// Linker arguments with which an executable finds the library beside it,
    /// in `../lib`, or in `lib_dir`.
    pub fn rpath_args(&self, lib_dir: &Path) -> Vec<String> {
        let origins = self.rpath_origins.iter().map(|entry| (*entry).to_owned());
        let entries = origins.chain([lib_dir.display().to_string()]);
        let flags = self.rpath_flags.iter().map(|flag| (*flag).to_owned());
        flags.chain(entries.map(|entry| format!("-Wl,-rpath,{entry}"))).collect()
    }
}
