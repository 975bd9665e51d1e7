//! What the hub has, what goes wrong with it, and what it was asked.

use crate::fault::Fault;
use crate::repository::Repository;

/// What the hub was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host that it was sent to, with the port.
    pub host: String,
    /// `GET` or `HEAD`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// What `Authorization` says.
    pub authorization: Option<String>,
    /// The byte that `Range` begins at.
    pub from: Option<usize>,
}

/// All that the threads of a hub share.
#[derive(Default)]
pub(crate) struct State {
    pub repositories: Vec<Repository>,
    pub faults: Vec<(String, Fault)>,
    pub seen: Vec<Request>,
    /// Where large files are.
    pub store: String,
}
