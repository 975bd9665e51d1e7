//! The processes that compute a model together.

use std::net::SocketAddr;

use mlx_ffi::distributed::{Group, Limits, Member};

use crate::error::Result;
use crate::load::EngineOptions;
use crate::weights::Checkpoint;

/// Waits for the other ranks, where there are any, which must have the same model.
///
/// # Errors
/// Ranks that do not come, or have another model.
pub(super) fn meet(options: &EngineOptions, checkpoint: &Checkpoint) -> Result<Option<Group>> {
    let Some(ranks) = &options.load.ranks else { return Ok(None) };
    let addresses: Vec<SocketAddr> = ranks.addresses.clone();
    let digest = checkpoint.digest()?;
    let member = Member { rank: ranks.rank, addresses, digest, limits: Limits::default() };
    Ok(Some(Group::meet(&member)?))
}
