//! Which processes compute a model together.

use std::net::SocketAddr;

use crate::{Error, Result};

/// Which of the processes that compute a model together this one is, and where all of them are.
///
/// Their messages are neither encrypted nor authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// Which one of `addresses` is this process, from 0.
    pub rank: usize,
    /// The address on which each process listens for the others. All have the same list.
    pub addresses: Vec<SocketAddr>,
    /// A number that these processes have alone. Others that listen on the same addresses are
    /// waited for to be gone. 0: none.
    pub group: u64,
    /// The division of the model among them.
    pub split: RankSplit,
}

/// The division of a model among the processes that compute it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankSplit {
    /// A part of every layer: all work on the same token, and exchange results several times in
    /// each layer.
    #[default]
    Tensors,
    /// Some of the layers: a token goes from one to the next, with one message between them. For
    /// slow links.
    Layers,
}

impl Ranks {
    /// The most processes that compute a model together.
    pub const MAX: usize = 64;

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with what is wrong.
    pub fn validate(&self) -> Result<()> {
        let invalid = |reason| Err(Error::InvalidOption { option: "ranks", reason });
        let (rank, count) = (self.rank, self.addresses.len());
        if !(2..=Self::MAX).contains(&count) {
            let reason = format!("{count} addresses, expected 2 to {}", Self::MAX);
            return invalid(reason);
        }
        if rank >= count {
            return invalid(format!("rank {rank} is none of {count}"));
        }
        let twice = self.addresses.iter().enumerate();
        let mut twice = twice.filter(|(at, address)| self.addresses[..*at].contains(address));
        match twice.next() {
            None => Ok(()),
            Some((_, address)) => invalid(format!("{address} is there twice")),
        }
    }
}
