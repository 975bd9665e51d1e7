//! Arguments of `ml setup`, which puts packages into the user's folder.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ml setup`.
#[derive(Args, Debug)]
pub struct SetupArgs {
    /// The target.
    #[command(subcommand)]
    pub what: Setup,
}

/// The targets of `ml setup`.
#[derive(Debug, Subcommand)]
pub enum Setup {
    /// Fetch MLX for NVIDIA GPUs, for every `ml` of this user from then on
    Cuda(CudaArgs),
}

/// `ml setup cuda`.
#[derive(Args, Debug)]
#[command(after_help = "\
Packages of fixed versions and hashes go into `ml` below XDG_DATA_HOME, or below ~/.local/share.
Nothing else is changed. pip fetches them, so its own settings say from where.

From then on every `ml` that sees a GPU computes on it; `--device cpu` does not.

Examples:
  ml setup cuda
  ml setup cuda --from ~/venv/lib/python3.12/site-packages
  ml setup cuda --remove")]
pub struct CudaArgs {
    /// Take the packages from this folder of wheels, and nothing from the network
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    pub wheels: Option<PathBuf>,
    /// Use the packages that are installed in this folder, Python's site-packages, where they lie
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// The Python 3 whose pip fetches
    #[arg(long, value_name = "FILE", default_value = "python3", conflicts_with = "from")]
    pub python: PathBuf,
    /// Fetch even where less than 6 GiB of the disk are free
    #[arg(long, conflicts_with = "from")]
    pub force: bool,
    /// Set up where no GPU is, as for an image of a container; nothing is tried then
    #[arg(long)]
    pub without_gpu: bool,
    /// Take away what was set up
    #[arg(long, conflicts_with_all = ["wheels", "from", "python", "force", "without_gpu"])]
    pub remove: bool,
}
