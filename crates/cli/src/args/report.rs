//! Arguments of `ml report`, which tries this machine and writes down what it found.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use inference_core::Dtype;
use serde::Serialize;

/// Work of a report that a process of its own does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    /// Greedy answers with their logits.
    Answers,
    /// The limits of memory, and what is freed.
    Memory,
}

/// A small model that is computed in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// The model that is part of the program.
    Demo,
    /// Attention and networks, as Qwen 3 has them.
    Dense,
    /// [`Dense`](Self::Dense) in 4 bits.
    Packed,
    /// Windows of attention, as Gemma 3 has them.
    Window,
    /// Experts in 4 bits, as Qwen 3's mixtures have them, all of which each token takes.
    Mixture,
    /// [`Mixture`](Self::Mixture), of whose experts each token takes two.
    Routed,
    /// Gated delta nets beside attention, as Qwen 3.5 has them.
    Delta,
    /// Mamba 2 beside attention and experts, as Nemotron 3 has them; each token takes all experts.
    Mamba,
}

/// `ml report`.
#[derive(Args, Debug)]
#[command(after_help = "\
Small models with random weights are computed on the device and on the CPU, with our own kernels
and with MLX's, and compared. Then memory is tried, and speeds are measured. That takes ten minutes
at most, and a minute with --quick. Nothing is fetched, and nothing is sent.

The file has the figures and what is wrong. It has no names of users, hosts or folders, and nothing
of the environment. Exits with 1 when something is wrong, or when nothing could be compared.

Examples:
  ml report
  ml report --quick --output report.json
  ml report --backend cpu")]
pub struct ReportArgs {
    /// Write the report into this file
    #[arg(short, long, value_name = "FILE", default_value = "ml-report.json")]
    pub output: PathBuf,
    /// Try less, in about a minute
    #[arg(long)]
    pub quick: bool,
    /// Try this device: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME")]
    pub backend: Option<String>,
    /// Take so many seconds at most in place of the usual time.
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub budget: Option<u64>,
    /// Do this part of a report alone, and print what came of it.
    #[arg(long, value_name = "PART", hide = true)]
    pub probe: Option<Probe>,
    /// The model of a part.
    #[arg(long, value_name = "NAME", value_enum, hide = true)]
    pub network: Option<Network>,
    /// The types in which a part computes.
    #[arg(long, value_name = "TYPE", hide = true, value_delimiter = ',',
          value_parser = super::values::dtype)]
    pub dtypes: Vec<Dtype>,
}
