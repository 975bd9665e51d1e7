//! The errors on the way to a linked MLX, each with its remedy.

use std::io;
use std::path::{Path, PathBuf};

use crate::target::{MLX_VERSION, Target, Variant};

/// The way on for a machine that no MLX is made for.
const WITHOUT_MLX: &str = "without MLX build inference-core, inference-text, inference-server, hub, \
     the facade ml and the example echo-backend (cargo build -p NAME), for an engine of your own";

/// Why MLX could not be found, fetched or compiled against.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that is no variant.
    #[error("unknown MLX variant `{name}`; use metal, cpu or cuda")]
    UnknownVariant {
        /// The name given.
        name: String,
    },
    /// A release of macOS that cannot be read.
    #[error("MACOSX_DEPLOYMENT_TARGET is `{value}`; set it to a release of macOS, such as 15.0")]
    UnknownRelease {
        /// The value of the variable.
        value: String,
    },
    /// No operating system for which MLX exists.
    #[error("MLX does not run on {os}; it runs on macos and linux; {WITHOUT_MLX}")]
    UnsupportedOs {
        /// The name of the operating system.
        os: String,
    },
    /// There is no prebuilt MLX for this machine.
    #[error(
        "there is no prebuilt MLX {MLX_VERSION} {variant} for {target}, only for {available}; \
         choose another variant with MLX_VARIANT, name an installed MLX in MLX_ROOT, \
         or run `cargo xtask build-mlx --from-source DIR`; {WITHOUT_MLX}"
    )]
    NoWheel {
        /// The variant asked for.
        variant: Variant,
        /// The machine it was asked for.
        target: Target,
        /// The tags of the wheels that there are.
        available: String,
    },
    /// The interpreter that fetches and unpacks wheels is not there.
    #[error(
        "cannot run `{python}`: {cause}; install Python 3 with pip, name it in MLX_PYTHON, \
         or set MLX_ROOT to an installed MLX"
    )]
    NoPython {
        /// The interpreter tried.
        python: String,
        /// Why it did not start.
        cause: io::Error,
    },
    /// Python is there, and has neither pip nor the means to make an environment with it.
    #[error(
        "`{python}` has no pip, and makes no virtual environment: {reason}; \
         install pip (Debian: apt install python3-pip; elsewhere: {python} -m ensurepip), \
         or set MLX_ROOT to an installed MLX"
    )]
    NoPip {
        /// The interpreter tried.
        python: String,
        /// The last lines that it printed.
        reason: String,
    },
    /// pip ran and failed.
    #[error(
        "pip could not get {package}: {reason}; check the network and pip's settings, \
         or set MLX_ROOT to an installed MLX"
    )]
    Download {
        /// The package asked for, with its version.
        package: String,
        /// The last lines that pip printed.
        reason: String,
    },
    /// The file that came is not the file that was pinned.
    #[error(
        "wheel {wheel} has sha256 {found}, expected {expected}; it was deleted: run again, \
         and if it stays so, do not trust the package index that pip uses"
    )]
    WrongHash {
        /// Name of the wheel.
        wheel: String,
        /// Its hash.
        found: String,
        /// The pinned hash.
        expected: String,
    },
    /// A wheel does not unpack.
    #[error("cannot unpack {wheel}: {reason}; check the free space and run again")]
    Unpack {
        /// Name of the wheel.
        wheel: String,
        /// The last lines that the interpreter printed.
        reason: String,
    },
    /// A wheel whose library does not look for its bundled libraries where it did.
    #[error(
        "{} does not look for `{bundle}` in the one place expected; \
         the pinned wheel does, so unpack it again: remove the folder", library.display()
    )]
    UnknownLayout {
        /// MLX's library.
        library: PathBuf,
        /// The folder of the bundled libraries.
        bundle: String,
    },
    /// A folder that should hold MLX lacks a part of it.
    #[error("`{}` in {} is missing; {remedy}", file.display(), folder.display())]
    MissingFile {
        /// The part, relative to `folder`.
        file: PathBuf,
        /// The folder that was looked at.
        folder: PathBuf,
        /// The remedy, for the user.
        remedy: &'static str,
    },
    /// An installed MLX that mlx-c was not made for.
    #[error(
        "MLX in {} is version {found}, expected {MLX_VERSION}; install or check out that one, \
         or have it fetched: unset MLX_ROOT, leave away --from-source", root.display()
    )]
    WrongVersion {
        /// The installed MLX.
        root: PathBuf,
        /// Its version, as its header says it.
        found: String,
    },
    /// No C++ compiler.
    #[error(
        "cannot run the C++ compiler `{compiler}`: {cause}; install one \
         (Debian: apt install g++; macOS: xcode-select --install) or name it in CXX"
    )]
    NoCompiler {
        /// The compiler tried.
        compiler: String,
        /// Why it did not start.
        cause: io::Error,
    },
    /// A C++ compiler that does not know C++20.
    #[error(
        "the C++ compiler `{compiler}` cannot compile C++20: {reason}; \
         use gcc 12, clang 15 or later, and name it in CXX"
    )]
    OldCompiler {
        /// The compiler tried.
        compiler: String,
        /// The first error that it printed.
        reason: String,
    },
    /// A build tool that the machine lacks could not be installed.
    #[error(
        "there is no {tool} on this machine, and its Python package could not be installed; \
         install it with the system's package manager (Debian: apt install cmake make), \
         or help pip: {cause}"
    )]
    NoTool {
        /// The program or library.
        tool: &'static str,
        /// Why its package did not come.
        cause: Box<Error>,
    },
    /// cmake failed.
    #[error(
        "cmake could not build {what} from {}; its messages are above, \
         its log files are in {}", source_dir.display(), build_dir.display()
    )]
    Compile {
        /// `MLX` or `mlx-c`.
        what: &'static str,
        /// The sources.
        source_dir: PathBuf,
        /// The folder left behind.
        build_dir: PathBuf,
    },
    /// Cargo did not say where things are.
    #[error(
        "cargo metadata failed: {reason}; it says where the sources of mlx-c are: \
         run `cargo fetch --locked` with a network once, and try again"
    )]
    Metadata {
        /// Cargo's message, or the fault of its answer.
        reason: String,
    },
    /// A variable that only a build script has.
    #[error("{name} is not set; this function serves build scripts")]
    NotABuildScript {
        /// The variable.
        name: &'static str,
    },
    /// The file system said no.
    #[error("cannot {action} {}: {cause}", path.display())]
    Io {
        /// The action that failed, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

impl Error {
    /// Names the file and the action in an error of the file system.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io { action, path: path.to_owned(), cause }
    }
}
