//! Finds MLX, or gets it, and compiles mlx-c against it.
//!
//! [`provision`] is the whole of it. Build scripts call it through [`build_script`],
//! people through `cargo xtask build-mlx`; both use the same folder, so what one
//! made the other finds.
//!
//! MLX comes prebuilt from its Python wheels, checked against pinned hashes; mlx-c
//! comes from a locked crate and is compiled with cmake. Where the machine has no
//! cmake, it comes as a Python package too.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `MLX_ROOT` | an installed MLX 0.32.2 (a folder with `lib`, `include` and `share/cmake`); nothing is fetched |
//! | `MLX_VARIANT` | `metal`, `cpu` or `cuda`; by default metal on macOS and cpu on Linux |
//! | `MLX_PYTHON` | the Python 3 that fetches and unpacks wheels; by default `python3` |
//! | `CXX`, `CXXFLAGS` | the C++ compiler and its flags, as the `cc` crate reads them |
//! | `CARGO_TARGET_DIR` | moves the folder, which is `mlx` in cargo's target folder |
#![forbid(unsafe_code)]

pub mod build_script;
mod compile;
mod error;
mod fetch;
pub mod location;
mod platform;
mod python;
mod stamp;

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

pub use error::Error;
pub use platform::{Linkage, MLX_VERSION, PLATFORMS, Platform, Target, Variant};
pub use python::{Python, Tools};

pub use compile::HOST;

use compile::Build;
use stamp::Stamped;

/// Where MLX comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// What is in the folder already, else the wheel.
    Any,
    /// The pinned wheel.
    Wheel,
    /// A checkout of MLX's sources, compiled here.
    Checkout(PathBuf),
    /// An installed MLX, used where it is.
    Installed(PathBuf),
}

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// MLX unpacked and checked; this works for foreign machines too.
    Fetched,
    /// mlx-c compiled as well.
    Linkable,
}

/// What to provide, where, and for which machine.
#[derive(Debug)]
pub struct Request {
    /// Which build of MLX.
    pub variant: Variant,
    /// Where it comes from.
    pub source: Source,
    /// How far to go.
    pub goal: Goal,
    /// The machine it is for.
    pub target: Target,
    /// The same machine as cargo's triple.
    pub triple: String,
    /// The folder that keeps everything, `mlx` in cargo's target folder.
    pub cache: PathBuf,
    /// The manifest folder of a crate in this workspace.
    pub manifest_dir: PathBuf,
    /// The interpreter for wheels.
    pub python: Python,
    /// Takes one line for each step that takes time.
    pub progress: fn(&str),
}

/// An MLX that is ready.
#[derive(Debug)]
pub struct Mlx {
    /// Its folder, with `lib`, `include` and `share`.
    pub root: PathBuf,
    /// The folder of the static library `mlxc`, when it was asked for.
    pub mlx_c_lib: Option<PathBuf>,
    /// Files that change when MLX or mlx-c is replaced.
    pub stamps: Vec<PathBuf>,
}

impl Request {
    /// The folder of the MLX that this request is about; it need not be there yet.
    pub fn root(&self) -> PathBuf {
        match &self.source {
            Source::Installed(root) => root.clone(),
            _ => self.home().join("dist").join("mlx"),
        }
    }

    /// The folder for one variant and version, or for one installed MLX.
    fn home(&self) -> PathBuf {
        let name = match &self.source {
            Source::Installed(root) => {
                let path = root.display().to_string();
                format!("installed-{}", path.replace(['/', '\\', ':'], "_").trim_matches('_'))
            }
            _ => format!("{}-{MLX_VERSION}", self.variant),
        };
        // Foreign processors get their own folder; systems differ by variant.
        if self.target.arch == env::consts::ARCH || self.variant == Variant::Metal {
            self.cache.join(name)
        } else {
            self.cache.join(format!("{name}-{}", self.target.arch))
        }
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
    let deployment = env::var("MACOSX_DEPLOYMENT_TARGET").ok();
    let version = deployment.or_else(|| {
        let output = Command::new("sw_vers").arg("-productVersion").output().ok()?;
        String::from_utf8(output.stdout).ok()
    });
    let major = version.as_deref().and_then(|text| text.trim().split('.').next()?.parse().ok());
    major.unwrap_or(0)
}

/// Provides MLX, and mlx-c when asked for. Done twice, the second time finds everything.
///
/// Only one provision works in a cache folder at a time; others wait for it.
///
/// # Errors
/// [`Error`] names what is missing and what to do.
pub fn provision(request: &Request) -> Result<Mlx, Error> {
    let since = SystemTime::now() - Duration::from_secs(2);
    fs::create_dir_all(&request.cache).map_err(Error::io("create", &request.cache))?;
    let _lock = lock(&request.cache, request.progress)?;
    let home = request.home();
    fs::create_dir_all(&home).map_err(Error::io("create", &home))?;

    let tools = Tools::new(request.cache.join("tools"), request.python.clone());
    let (mut stamps, identity) = provide_mlx(request, &home, &tools, since)?;
    let mut mlx_c_lib = None;
    if request.goal == Goal::Linkable {
        let dist = Stamped { dir: home.join("mlxc") };
        let content = format!("mlx-c for {identity}");
        if dist.content().as_ref() != Some(&content) {
            let source = location::mlx_c_sources(&request.manifest_dir)?;
            let build = Build::prepare(&request.triple, &tools)?;
            (request.progress)("compiling mlx-c (half a minute on two cores)");
            dist.make(&content, since, |out| build.mlx_c(&source, &request.root(), out))?;
        }
        stamps.push(dist.stamp());
        mlx_c_lib = Some(dist.dir.join("lib"));
    }
    Ok(Mlx { root: request.root(), mlx_c_lib, stamps })
}

/// Makes sure that MLX is in its folder; returns its stamps and a text that identifies it.
fn provide_mlx(
    request: &Request,
    home: &Path,
    tools: &Tools,
    since: SystemTime,
) -> Result<(Vec<PathBuf>, String), Error> {
    let dist = Stamped { dir: home.join("dist") };
    match &request.source {
        Source::Installed(root) => {
            let library = check_installed(root, &request.target.os)?;
            let identity = identity_of(&library)?;
            return Ok((vec![library], identity));
        }
        Source::Any => {
            if let Some(content) = dist.content() {
                return Ok((vec![dist.stamp()], content));
            }
        }
        Source::Wheel | Source::Checkout(_) => {}
    }
    let content = match &request.source {
        Source::Checkout(source) => {
            let content = format!("MLX {} from {}", request.variant, source.display());
            let build = Build::prepare(&request.triple, tools)?;
            (request.progress)("compiling MLX (this takes many minutes)");
            dist.make(&content, since, |out| {
                build.mlx(source, request.variant, &out.join("mlx"))?;
                check_installed(&out.join("mlx"), &request.target.os).map(drop)
            })?;
            content
        }
        _ => {
            let platform = Platform::find(request.variant, &request.target)?;
            let content = format!("{} {MLX_VERSION} {}", platform.package, platform.sha256);
            if dist.content().as_ref() != Some(&content) {
                (request.progress)(&format!("fetching {} {MLX_VERSION}", platform.package));
                dist.make(&content, since, |out| fetch::fetch(platform, &request.python, out))?;
            }
            content
        }
    };
    Ok((vec![dist.stamp()], content))
}

/// Checks that `root` holds a complete MLX of the right version; returns its library.
fn check_installed(root: &Path, os: &str) -> Result<PathBuf, Error> {
    let library = root.join("lib").join(Linkage::of(os)?.library);
    let header = root.join("include/mlx/version.h");
    let config = root.join("share/cmake/MLX/MLXConfig.cmake");
    if let Some(file) = [&library, &header, &config].into_iter().find(|file| !file.is_file()) {
        return Err(Error::MissingFile {
            file: file.strip_prefix(root).unwrap_or(file).to_owned(),
            folder: root.to_owned(),
            remedy: "MLX_ROOT must be an installed MLX, with lib, include and share/cmake",
        });
    }
    let text = fs::read_to_string(&header).map_err(Error::io("read", &header))?;
    let found = version_in(&text);
    if found == MLX_VERSION {
        Ok(library)
    } else {
        Err(Error::WrongVersion { root: root.to_owned(), found })
    }
}

/// The version that MLX's `version.h` states.
fn version_in(header: &str) -> String {
    let number = |name: &str| {
        let line = header.lines().find(|line| line.contains(&format!("define {name} ")));
        line.and_then(|line| line.split_whitespace().last()).unwrap_or("?").to_owned()
    };
    ["MLX_VERSION_MAJOR", "MLX_VERSION_MINOR", "MLX_VERSION_PATCH"].map(number).join(".")
}

/// What tells one build of an installed library from the next.
fn identity_of(library: &Path) -> Result<String, Error> {
    let metadata = fs::metadata(library).map_err(Error::io("read", library))?;
    let time = metadata.modified().map_err(Error::io("read", library))?;
    let age = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} {} {}", library.display(), metadata.len(), age.as_nanos()))
}

/// Waits until no other process provisions in `cache`; dropping the file ends the hold.
fn lock(cache: &Path, progress: fn(&str)) -> Result<File, Error> {
    let path = cache.join("lock");
    let file =
        File::options().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
    if file.try_lock().is_err() {
        progress("waiting for another build of MLX in the same folder");
        file.lock().map_err(Error::io("lock", &path))?;
    }
    Ok(file)
}
