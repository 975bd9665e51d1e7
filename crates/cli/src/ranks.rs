//! Which of several processes this one is that compute a model together, as whoever started them says.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

use inference_core::{RankSplit, Ranks};

use crate::failure::{Failure, Result};

/// The variable with this process's rank, as `mlx.launch` sets it.
pub const RANK: &str = "MLX_RANK";
/// The variable with the file of all ranks' addresses, as `mlx.launch` sets it: a JSON array with an array of
/// `IP:PORT` for each rank.
pub const HOST_FILE: &str = "MLX_HOSTFILE";
/// The variable with the addresses themselves, a comma between two, as `ml launch` sets it.
pub const HOSTS: &str = "ML_RANK_ADDRESSES";

/// The variable that lets a rank listen where others reach it, as `ml launch --insecure-ranks` sets it.
pub const INSECURE: &str = "ML_INSECURE_RANKS";

/// The ranks that the environment names, where it names any; each has a part of every layer.
///
/// # Errors
/// A variable without the other one, or that cannot be read; an address that others reach, without leave.
pub fn from_environment() -> Result<Option<Ranks>> {
    let Some(rank) = env::var_os(RANK).filter(|rank| !rank.is_empty()) else { return Ok(None) };
    let rank = rank.to_str().and_then(|rank| rank.parse().ok()).ok_or_else(|| {
        Failure::Other(format!("{RANK} is {}, expected a number from 0", rank.display()))
    })?;
    let addresses: Vec<SocketAddr> = match (env::var_os(HOSTS), env::var_os(HOST_FILE)) {
        (Some(hosts), _) => of_list(&hosts)?,
        (None, Some(file)) => of_file(&file)?,
        (None, None) => {
            return Err(Failure::Other(format!(
                "{RANK} is set, and neither {HOST_FILE} nor {HOSTS} says where the ranks are: start them with `ml launch -n N`, or with `mlx.launch --backend ring`"
            )));
        }
    };
    let reached = addresses.iter().find(|address| !address.ip().is_loopback());
    if let Some(address) =
        reached.filter(|_| env::var_os(INSECURE).is_none_or(|given| given != "1"))
    {
        return Err(Failure::Other(format!(
            "the address {address} of a rank is not of the loopback: the traffic of ranks is neither encrypted nor \
             authenticated. Fence the network, as docs/distributed.md says, and set {INSECURE}=1"
        )));
    }
    Ok(Some(Ranks { rank, addresses, split: RankSplit::Tensors }))
}

/// The number of this process where it is not the first rank: what it prints is what the first one prints.
pub fn other() -> Option<usize> {
    static OTHER: OnceLock<Option<usize>> = OnceLock::new();
    let read = || env::var(RANK).ok()?.parse().ok().filter(|rank| *rank > 0);
    *OTHER.get_or_init(read)
}

fn of_list(hosts: &OsString) -> Result<Vec<SocketAddr>> {
    let hosts = hosts.to_string_lossy();
    hosts.split(',').map(|host| address(host, HOSTS)).collect()
}

fn of_file(file: &OsString) -> Result<Vec<SocketAddr>> {
    let failed = |error: String| Failure::Other(format!("{HOST_FILE} {}: {error}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let hosts: Vec<Vec<String>> = serde_json::from_str(&text)
        .map_err(|error| failed(format!("no array of arrays of addresses: {error}")))?;
    // Further addresses of a rank are further cables; one connection is enough here.
    let first = |hosts: Vec<String>| match hosts.first() {
        Some(host) => address(host, HOST_FILE),
        None => Err(failed("a rank has no address".to_owned())),
    };
    hosts.into_iter().map(first).collect()
}

fn address(host: &str, source: &str) -> Result<SocketAddr> {
    let unknown =
        || Failure::Other(format!("{source}: `{host}` is no address, such as 10.0.0.2:5000"));
    host.trim().to_socket_addrs().map_err(|_| unknown())?.next().ok_or_else(unknown)
}
