//! The differences between platforms, as one table: wheels, files, link lines, rpaths.

use std::path::Path;
use std::str::FromStr;

use crate::Error;
use crate::linkage::{LINUX, Linkage, MACOS};
use crate::target::{Release, Target, Variant};

impl FromStr for Variant {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        [Self::Metal, Self::Cpu, Self::Cuda]
            .into_iter()
            .find(|variant| variant.name() == name)
            .ok_or_else(|| Error::UnknownVariant { name: name.to_owned() })
    }
}

/// One wheel of MLX and the machines that it is for.
#[derive(Clone, Debug)]
pub struct Platform {
    /// The build of MLX in the wheel.
    pub variant: Variant,
    /// Operating system, as in `target_os`.
    pub os: &'static str,
    /// Processor, as in `target_arch`.
    pub arch: &'static str,
    /// The oldest release of the operating system that runs it; 0.0 is any.
    pub min_os: Release,
    /// The Python package.
    pub package: &'static str,
    /// The platform tag in the wheel's name.
    pub tag: &'static str,
    /// SHA-256 of the wheel, in hexadecimal.
    pub sha256: &'static str,
    /// The wheel's folder of libraries that MLX needs, where it has one.
    pub bundle: Option<&'static str>,
    /// Files that an unpacked wheel must hold, from its top folder.
    pub files: &'static [&'static str],
    /// How to link and find the library.
    pub linkage: &'static Linkage,
}

/// Every wheel that can be fetched; of several that fit, the last is the best.
pub const PLATFORMS: &[Platform] = &[
    Platform {
        arch: "x86_64",
        tag: "manylinux_2_35_x86_64",
        sha256: "fc5d31b90fc4f457b2f9614ed45651a567d22a6a11a03d114a90a4e10bdd8878",
        ..CPU
    },
    Platform {
        arch: "aarch64",
        tag: "manylinux_2_35_aarch64",
        sha256: "d0f94625588b51a878786dd51cec5617894ce586cf3c94645ce1b64e24c27c0b",
        ..CPU
    },
    Platform {
        arch: "x86_64",
        tag: "manylinux_2_35_x86_64",
        sha256: "335094ccd1c0c6dc3e09c8caba207c8180602bacc0c38ba20c1d81e9456ab394",
        ..CUDA
    },
    Platform {
        arch: "aarch64",
        tag: "manylinux_2_35_aarch64",
        sha256: "49b1a25df9021f3b519a534fd39a32a5cdbf93a1b265a31e59671c2d9fc9f4a2",
        ..CUDA
    },
    Platform {
        min_os: Release::new(14, 0),
        tag: "macosx_14_0_arm64",
        sha256: "3825fff379dbc107dd3413e564a06caeaa24819910ec49c0439e454c06a1b9b8",
        ..METAL
    },
    Platform {
        min_os: Release::new(15, 0),
        tag: "macosx_15_0_arm64",
        sha256: "55a369250d220b2cf10213a87a2ac1b1a420608c5b35b1df4e7147ac8e32f121",
        ..METAL
    },
    Platform {
        // Whatever its tag says: its library is built for 26.2.
        min_os: Release::new(26, 2),
        tag: "macosx_26_0_arm64",
        sha256: "e6abeac9ac5265830c9c1541b6f96e9be37a85c2446763a46ad466c63a3837ab",
        ..METAL
    },
];

// What the wheels of one variant share; the rows of the table say the rest.
const CPU: Platform = Platform {
    variant: Variant::Cpu,
    os: "linux",
    arch: "",
    min_os: Release::new(0, 0),
    package: "mlx-cpu",
    tag: "",
    sha256: "",
    bundle: Some("mlx_cpu.libs"),
    files: &["mlx/lib/libmlx.so", HEADER],
    linkage: &LINUX,
};
const CUDA: Platform = Platform {
    variant: Variant::Cuda,
    package: "mlx-cuda-13",
    bundle: Some("mlx_cuda_13.libs"),
    files: &[
        "mlx/lib/libmlx.so",
        HEADER,
        // Kernels are compiled against these headers at run time.
        "mlx/include/cccl",
        "mlx/include/cute",
        "mlx/include/cutlass",
    ],
    ..CPU
};
const METAL: Platform = Platform {
    variant: Variant::Metal,
    os: "macos",
    arch: "aarch64",
    package: "mlx-metal",
    bundle: None,
    files: &["mlx/lib/libmlx.dylib", "mlx/lib/libjaccl.dylib", "mlx/lib/mlx.metallib", HEADER],
    linkage: &MACOS,
    ..CPU
};
const HEADER: &str = "mlx/include/mlx/mlx.h";

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
}

impl Platform {
    /// The best of `platforms` with `variant` for `target`.
    ///
    /// # Errors
    /// [`Error::NoWheel`] when there is none, with the ones that exist.
    pub fn find<'a>(
        platforms: &'a [Self],
        variant: Variant,
        target: &Target,
    ) -> Result<&'a Self, Error> {
        platforms
            .iter()
            .rfind(|platform| {
                platform.variant == variant
                    && platform.os == target.os
                    && platform.arch == target.arch
                    && platform.min_os <= target.os_version
            })
            .ok_or_else(|| {
                let tags = platforms.iter().filter(|p| p.variant == variant).map(|p| p.tag);
                let available = tags.collect::<Vec<_>>().join(", ");
                Error::NoWheel { variant, target: target.clone(), available }
            })
    }

    /// The machine that the wheel is for.
    pub fn target(&self) -> Target {
        Target { os: self.os.to_owned(), arch: self.arch.to_owned(), os_version: self.min_os }
    }

    /// The oldest macOS that what is compiled against this wheel runs on: `wanted`, what
    /// `MACOSX_DEPLOYMENT_TARGET` says, else that of the wheel. `None` for other systems.
    pub(crate) fn deployment(&self, wanted: Option<String>) -> Option<String> {
        (self.os == "macos").then(|| wanted.unwrap_or_else(|| self.min_os.to_string()))
    }

    /// The first of [`Platform::files`] that `dist`, an unpacked wheel, lacks.
    pub fn missing_file(&self, dist: &Path) -> Option<&'static str> {
        self.files.iter().copied().find(|file| !dist.join(file).exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The release of systems whose wheels do not ask for one.
    const ANY: Release = Release::new(0, 0);

    fn wheel(variant: Variant, os: &str, arch: &str, os_version: Release) -> Result<String, Error> {
        let target = Target { os: os.to_owned(), arch: arch.to_owned(), os_version };
        let found = Platform::find(PLATFORMS, variant, &target)?;
        Ok(format!("{} {}", found.package, found.tag))
    }

    #[test]
    fn every_machine_gets_its_wheel() {
        let cases = [
            (Variant::Cpu, "linux", "x86_64", ANY, "mlx-cpu manylinux_2_35_x86_64"),
            (Variant::Cpu, "linux", "aarch64", ANY, "mlx-cpu manylinux_2_35_aarch64"),
            (Variant::Cuda, "linux", "x86_64", ANY, "mlx-cuda-13 manylinux_2_35_x86_64"),
            (Variant::Cuda, "linux", "aarch64", ANY, "mlx-cuda-13 manylinux_2_35_aarch64"),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(14, 0),
                "mlx-metal macosx_14_0_arm64",
            ),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(15, 0),
                "mlx-metal macosx_15_0_arm64",
            ),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(14, 7),
                "mlx-metal macosx_14_0_arm64",
            ),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(15, 6),
                "mlx-metal macosx_15_0_arm64",
            ),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(26, 0),
                "mlx-metal macosx_15_0_arm64",
            ),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(26, 1),
                "mlx-metal macosx_15_0_arm64",
            ),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(26, 2),
                "mlx-metal macosx_26_0_arm64",
            ),
            (
                Variant::Metal,
                "macos",
                "aarch64",
                Release::new(27, 0),
                "mlx-metal macosx_26_0_arm64",
            ),
        ];
        for (variant, os, arch, os_version, expected) in cases {
            assert_eq!(wheel(variant, os, arch, os_version).unwrap(), expected);
        }
    }

    #[test]
    fn a_machine_without_a_wheel_is_told_which_exist() {
        for (variant, os, arch, os_version, there) in [
            (Variant::Metal, "macos", "aarch64", Release::new(13, 0), "macosx_14_0_arm64"),
            (Variant::Metal, "macos", "x86_64", Release::new(15, 0), "macosx_14_0_arm64"),
            (Variant::Metal, "linux", "x86_64", ANY, "macosx_26_0_arm64"),
            (Variant::Cpu, "macos", "aarch64", Release::new(15, 0), "manylinux_2_35_aarch64"),
            (Variant::Cuda, "windows", "x86_64", ANY, "manylinux_2_35_x86_64"),
        ] {
            let text = wheel(variant, os, arch, os_version).unwrap_err().to_string();
            assert!(text.contains(os) && text.contains(there), "{text}");
            assert!(text.contains("MLX_ROOT") && text.contains("--from-source"), "{text}");
            assert!(text.contains("without MLX build inference-core"), "{text}");
        }
    }

    #[test]
    fn each_operating_system_has_its_linkage() {
        assert_eq!(Linkage::of("linux").unwrap().library, "libmlx.so");
        assert_eq!(Linkage::of("macos").unwrap().library, "libmlx.dylib");
        assert!(matches!(Linkage::of("windows"), Err(Error::UnsupportedOs { .. })));
    }

    #[test]
    fn the_table_is_complete_for_each_wheel() {
        for platform in PLATFORMS {
            let tag = platform.tag;
            assert_eq!(platform.sha256.len(), 64, "{tag}");
            assert!(platform.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()), "{tag}");
            let same = PLATFORMS.iter().filter(|other| other.sha256 == platform.sha256);
            assert_eq!(same.count(), 1, "{tag}");
            let library = format!("mlx/lib/{}", platform.linkage.library);
            assert!(platform.files.contains(&library.as_str()), "{tag}");
            let metallib = platform.files.contains(&"mlx/lib/mlx.metallib");
            assert_eq!(metallib, platform.variant == Variant::Metal, "{tag}");
        }
    }

    #[test]
    fn what_is_compiled_runs_where_the_wheel_does() {
        let of = |tag| PLATFORMS.iter().find(|platform| platform.tag == tag).unwrap();
        for (tag, oldest) in [
            ("macosx_14_0_arm64", "14.0"),
            ("macosx_15_0_arm64", "15.0"),
            ("macosx_26_0_arm64", "26.2"),
        ] {
            assert_eq!(of(tag).deployment(None).as_deref(), Some(oldest), "{tag}");
        }
        let wanted = of("macosx_15_0_arm64").deployment(Some("15.4".to_owned()));
        assert_eq!(wanted.as_deref(), Some("15.4"));
        assert_eq!(of("manylinux_2_35_x86_64").deployment(Some("15.4".to_owned())), None);
    }

    #[test]
    fn a_missing_file_is_found() {
        let dist = tempfile::tempdir().unwrap();
        let platform = PLATFORMS.iter().find(|p| p.variant == Variant::Metal).unwrap();
        for file in platform.files {
            assert_eq!(platform.missing_file(dist.path()), Some(*file));
            let path = dist.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(platform.missing_file(dist.path()), None);
    }

    #[test]
    fn variants_are_read_as_they_are_written() {
        for variant in [Variant::Metal, Variant::Cpu, Variant::Cuda] {
            assert_eq!(variant.name().parse::<Variant>().unwrap(), variant);
        }
        assert!("gpu".parse::<Variant>().unwrap_err().to_string().contains("metal, cpu or cuda"));
        assert_eq!(Variant::default_for("macos"), Variant::Metal);
        assert_eq!(Variant::default_for("linux"), Variant::Cpu);
    }
}
