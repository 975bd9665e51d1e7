//! The steps from nothing to a linkable MLX, each skipped when its result is there.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::compile::{Build, RECIPE};
use crate::fetch::{fetch, hex};
use crate::python::Python;
use crate::stamp::Stamped;
use crate::tools::Tools;
use crate::{Error, Linkage, MLX_VERSION, Platform, Target, Variant, host, installed, location};

/// The origin of MLX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The MLX last compiled from a checkout into the folder, else the wheel.
    Any,
    /// The pinned wheel.
    Wheel,
    /// A checkout of MLX's sources, compiled here; its own cmake files fetch what it
    /// depends on, and name what the machine lacks (on Linux: BLAS and LAPACK).
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

/// A request for an MLX: the build, its origin, its folders and the machine.
#[derive(Debug)]
pub struct Request {
    /// Which build of MLX.
    pub variant: Variant,
    /// The origin of that build.
    pub source: Source,
    /// How far to go.
    pub goal: Goal,
    /// The wheels to choose from; [`crate::PLATFORMS`] unless this is a test.
    pub platforms: &'static [Platform],
    /// The machine it is for.
    pub target: Target,
    /// Cargo's triple of the machine that is built for.
    pub triple: String,
    /// The folder that keeps everything, `mlx` in cargo's target folder.
    pub cache: PathBuf,
    /// The manifest folder of a crate in this workspace.
    pub manifest_dir: PathBuf,
    /// The Python 3 interpreter for wheels.
    pub python: OsString,
    /// Takes a line before each step that takes time.
    pub progress: fn(&str),
}

/// An MLX that is ready.
#[derive(Debug)]
pub struct Mlx {
    /// The folder of the library.
    pub lib_dir: PathBuf,
    /// The folder of the headers.
    pub include_dir: PathBuf,
    /// The folder of the static library `mlxc`; `None` unless [`Goal::Linkable`].
    pub mlx_c_dir: Option<PathBuf>,
    /// Files that change when MLX or mlx-c is replaced.
    pub stamps: Vec<PathBuf>,
}

impl Request {
    /// The folder of MLX's library; it need not be there yet.
    ///
    /// # Errors
    /// [`Error::UnsupportedOs`] when MLX does not run on the target.
    pub fn lib_dir(&self) -> Result<PathBuf, Error> {
        Ok(installed::lib_dir(&self.root(), Linkage::of(&self.target.os)?))
    }

    /// The oldest macOS that what is compiled has to run on: `MACOSX_DEPLOYMENT_TARGET`, else that
    /// of the wheel. `None` for other systems, for an MLX that is not of a wheel, and where the
    /// release of macOS is not known.
    pub fn deployment(&self) -> Option<String> {
        if !matches!(self.source, Source::Any | Source::Wheel) {
            return None;
        }
        let wheel = Platform::find(self.platforms, self.variant, &self.target).ok()?;
        wheel.deployment(host::deployment())
    }

    /// The folder of MLX, with its libraries and headers.
    fn root(&self) -> PathBuf {
        match &self.source {
            Source::Installed(root) => root.clone(),
            _ => self.home().join("dist/mlx"),
        }
    }

    /// The folder for one variant and version, or for one installed MLX.
    fn home(&self) -> PathBuf {
        let name = match &self.source {
            Source::Installed(root) => {
                let digest = Sha256::digest(root.as_os_str().as_encoded_bytes());
                format!("installed-{}", &hex(&digest)[..12])
            }
            _ => format!("{}-{MLX_VERSION}", self.variant),
        };
        // Another processor's libraries must not take the place of this one's.
        let foreign = self.target.arch != env::consts::ARCH && self.variant != Variant::Metal;
        let arch = if foreign { format!("-{}", self.target.arch) } else { String::new() };
        self.cache.join(name + &arch)
    }

    fn python(&self) -> Python {
        Python { program: self.python.clone(), venv: self.cache.join("tools/venv") }
    }
}

/// Provides MLX, and mlx-c when asked for. Done twice, the second time finds everything.
///
/// # Errors
/// [`Error`] says what is missing and what to do about it.
pub fn provision(request: &Request) -> Result<Mlx, Error> {
    // Cargo runs a build script again when a file that it named is younger than the
    // script's last start. What this call makes must not count as such.
    let since = SystemTime::now() - Duration::from_secs(2);
    let _lock = lock(&request.cache, request.progress)?;
    let home = request.home();
    let python = request.python();
    let tools =
        Tools { dir: request.cache.join("tools"), python: &python, progress: request.progress };
    let job = Job { request, home: &home, python: &python, tools: &tools, since };

    let (identity, mut stamps) = job.provide_mlx()?;
    let mut mlx_c_dir = None;
    if request.goal == Goal::Linkable {
        let mlx_c = job.provide_mlx_c(&identity)?;
        stamps.push(mlx_c.stamp());
        mlx_c_dir = Some(mlx_c.dir);
    }
    Ok(Mlx {
        lib_dir: request.lib_dir()?,
        include_dir: request.root().join("include"),
        mlx_c_dir,
        stamps,
    })
}

/// Installs libclang under `cache`, for bindgen; returns the folder of the library.
///
/// # Errors
/// [`Error::NoTool`] when pip cannot get it.
pub fn libclang(cache: &Path, python: OsString, progress: fn(&str)) -> Result<PathBuf, Error> {
    let _lock = lock(cache, progress)?;
    let dir = cache.join("tools");
    let python = Python { program: python, venv: dir.join("venv") };
    Tools { dir, python: &python, progress }.libclang()
}

/// How the stamp of a compiled MLX begins.
const FROM_SOURCE: &str = "MLX from";

/// One provision at work.
struct Job<'a> {
    request: &'a Request,
    home: &'a Path,
    python: &'a Python,
    tools: &'a Tools<'a>,
    since: SystemTime,
}

impl Job<'_> {
    /// Makes sure that MLX is there; returns what identifies it, and the files to watch.
    fn provide_mlx(&self) -> Result<(String, Vec<PathBuf>), Error> {
        let request = self.request;
        let linkage = Linkage::of(&request.target.os)?;
        let dist = Stamped { dir: self.home.join("dist") };
        let content = match &request.source {
            Source::Installed(root) => {
                let library = installed::check(root, linkage)?;
                return Ok((installed::identity(&library)?, vec![library]));
            }
            Source::Checkout(source) => self.compile_mlx(source, linkage, &dist)?,
            Source::Any => match dist.content() {
                Some(content)
                    if content.starts_with(FROM_SOURCE)
                        && installed::check(&request.root(), linkage).is_ok() =>
                {
                    content
                }
                _ => self.unpack_wheel(&dist)?,
            },
            Source::Wheel => self.unpack_wheel(&dist)?,
        };
        Ok((content, vec![dist.stamp()]))
    }

    /// Fetches the wheel unless `dist` holds it already; returns the stamp's text.
    fn unpack_wheel(&self, dist: &Stamped) -> Result<String, Error> {
        let request = self.request;
        let wheel = Platform::find(request.platforms, request.variant, &request.target)?;
        let content = format!("{} {MLX_VERSION} {} {}", wheel.package, wheel.tag, wheel.sha256);
        if dist.content().as_ref() != Some(&content) || wheel.missing_file(&dist.dir).is_some() {
            (request.progress)(&format!("fetching {} {MLX_VERSION} {}", wheel.package, wheel.tag));
            dist.make(&content, self.since, |out| fetch(wheel, self.python, out))?;
        }
        Ok(content)
    }

    /// Compiles a checkout; replaces `dist` only when the library is another one than before.
    fn compile_mlx(
        &self,
        source: &Path,
        linkage: &Linkage,
        dist: &Stamped,
    ) -> Result<String, Error> {
        let request = self.request;
        let source = fs::canonicalize(source).map_err(Error::io("find", source))?;
        let build = Build::prepare(&request.triple, request.deployment(), self.tools)?;
        (request.progress)(&format!("compiling MLX from {} (many minutes)", source.display()));
        let out = self.home.join("from-source");
        fs::create_dir_all(&out).map_err(Error::io("create", &out))?;
        build.mlx(&source, request.variant, &out)?;
        let library = installed::check(&out.join("mlx"), linkage)?;
        let identity = installed::identity(&library)?;
        let content = format!("{FROM_SOURCE} {}: {identity}", source.display());
        if dist.content().as_ref() != Some(&content) {
            let built = out.join("mlx");
            dist.make(&content, self.since, |place| {
                fs::rename(&built, place.join("mlx")).map_err(Error::io("move", &built))
            })?;
        }
        Ok(content)
    }

    /// Makes sure that mlx-c is compiled for the MLX with this identity.
    fn provide_mlx_c(&self, identity: &str) -> Result<Stamped, Error> {
        let request = self.request;
        let mlx_c = Stamped { dir: self.home.join("mlxc") };
        let deployment = request.deployment();
        let oldest = deployment.iter().map(|release| format!(", macOS {release}"));
        let content = format!(
            "mlx-c {}, recipe {RECIPE}, for {identity}{}",
            location::CARRIER.1,
            oldest.collect::<String>()
        );
        if mlx_c.content().as_ref() != Some(&content) {
            let source = location::mlx_c_sources(&request.manifest_dir)?;
            let build = Build::prepare(&request.triple, deployment, self.tools)?;
            (request.progress)("compiling mlx-c (half a minute on two cores)");
            let include = request.root().join("include");
            mlx_c.make(&content, self.since, |out| build.mlx_c(&source, &include, out))?;
        }
        Ok(mlx_c)
    }
}

/// Waits until no other process works in `cache`; dropping the file lets the next one in.
fn lock(cache: &Path, progress: fn(&str)) -> Result<File, Error> {
    fs::create_dir_all(cache).map_err(Error::io("create", cache))?;
    let path = cache.join("lock");
    let options = File::options().create(true).append(true).open(&path);
    let file = options.map_err(Error::io("open", &path))?;
    if file.try_lock().is_err() {
        progress("waiting for another build of MLX in the same folder");
        file.lock().map_err(Error::io("lock", &path))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
