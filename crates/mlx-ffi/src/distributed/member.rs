//! The settings that a rank needs before it meets the others.

use std::net::SocketAddr;
use std::time::Duration;

/// Which rank a process is, and where all of them are.
#[derive(Clone, Debug)]
pub struct Member {
    /// Which one of `addresses` is this process.
    pub rank: usize,
    /// The address at which each rank listens, in their order.
    pub addresses: Vec<SocketAddr>,
    /// A number that the ranks of this group have alone, so that others on the same addresses are
    /// told apart. 0: none.
    pub group: u64,
    /// Bytes that must be equal in all ranks, such as the digest of the model's files.
    pub digest: [u8; 32],
    /// The devices that hold the values of ranks.
    pub between: Between,
    /// How long they wait.
    pub limits: Limits,
}

/// The devices that hold the values of ranks, and so what sends these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Between {
    /// CPUs: they go over the connections of ranks.
    #[default]
    Cpus,
    /// An NVIDIA GPU of each rank: they go by NCCL.
    Gpus,
}

/// How long ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all to be there.
    pub meet: Duration,
    /// For the others to come to the same operation.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { meet: Duration::from_secs(120), answer: Duration::from_secs(60) }
    }
}
