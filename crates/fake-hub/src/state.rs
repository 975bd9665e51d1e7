//! State of a hub: its repositories, the pending faults and the requests so far.

use crate::fault::Fault;
use crate::repository::Repository;

/// A request that the hub received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host that it was sent to, with the port.
    pub host: String,
    /// `GET` or `HEAD`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Value of the `Authorization` header.
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
    /// Base URL of the large files, without a slash at the end.
    pub store: String,
}
