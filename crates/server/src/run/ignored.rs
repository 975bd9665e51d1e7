//! Which ignored fields were logged, so that each client's are logged once.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The most clients and fields that are remembered, so that each is logged once.
const MOST: usize = 4096;

/// Hashes of the clients and the fields that were logged.
#[derive(Debug, Default)]
pub struct Logged {
    hashes: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl Logged {
    /// Returns true when this was not logged before. Where more is remembered than may be, nothing
    /// further is logged.
    pub fn is_new(&self, client: (Option<IpAddr>, &str), fields: &str) -> bool {
        let hash = self.hasher.hash_one((client, fields));
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.len() < MOST && hashes.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::{Logged, MOST};

    #[test]
    fn each_client_is_logged_once_for_its_fields_and_within_bounds() {
        let logged = Logged::default();
        assert!(logged.is_new((None, "a"), "x") && !logged.is_new((None, "a"), "x"));
        assert!(logged.is_new((None, "a"), "y") && logged.is_new((None, "b"), "x"));
        let all = (0..2 * MOST).filter(|index| logged.is_new((None, "c"), &index.to_string()));
        assert_eq!(all.count(), MOST - 3);
    }
}
