//! Which of several processes this one is that compute a model together, as whoever started them
//! says.

use std::env;
use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::OnceLock;

use inference_core::{Error, RankSplit, Ranks};
use rustix::process::{Pid, test_kill_process};

use crate::failure::{Failure, Result};
use crate::files;

/// The variable with this process's rank, as `mlx.launch` sets it.
pub const RANK: &str = "MLX_RANK";
/// The variable with the file of all ranks' addresses, as `mlx.launch` sets it: a JSON array with
/// an array of `IP:PORT` for each rank.
pub const HOST_FILE: &str = "MLX_HOSTFILE";
/// The variable with the addresses themselves, a comma between two, as `ml launch` sets it.
pub const HOSTS: &str = "ML_RANK_ADDRESSES";

/// The variable with the number of the group, as `ml launch` sets it.
pub const GROUP: &str = "ML_RANK_GROUP";

/// The variable with the id of the `ml launch` that started this rank on its own host.
pub const LAUNCHER: &str = "ML_RANK_LAUNCHER";

/// The variable that lets a rank listen where others reach it, as `ml launch --insecure-ranks` sets
/// it.
pub const INSECURE: &str = "ML_INSECURE_RANKS";

/// The ranks that the environment names, where it names any; each has a part of every layer.
///
/// # Errors
/// A variable without the other one, or that cannot be read; an address that others reach, without
/// leave.
pub fn from_environment() -> Result<Option<Ranks>> {
    let Some(rank) = env::var_os(RANK).filter(|rank| !rank.is_empty()) else { return Ok(None) };
    let rank = rank.to_str().and_then(|rank| rank.parse().ok()).ok_or_else(|| {
        Failure::Other(format!("{RANK} is {}, expected a number from 0", rank.display()))
    })?;
    let group = match env::var(GROUP) {
        Err(_) => 0,
        Ok(group) => group.parse().map_err(|_| {
            Failure::Other(format!(
                "{GROUP} is {group}, expected a number: unset it, or give all ranks the same"
            ))
        })?,
    };
    let (source, addresses) = match (env::var_os(HOSTS), env::var_os(HOST_FILE)) {
        (Some(hosts), _) => (HOSTS.to_owned(), of_list(&hosts)?),
        (None, Some(file)) => (format!("{HOST_FILE} {}", file.display()), of_file(&file)?),
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
    let ranks = Ranks { rank, addresses, group, split: RankSplit::Tensors };
    ranks.validate().map_err(|error| match error {
        Error::InvalidOption { reason, .. } => Failure::Other(format!("{source}: {reason}")),
        other => other.into(),
    })?;
    Ok(Some(ranks))
}

/// The number of this process where it is not the first rank: what it prints is what the first one
/// prints.
pub fn other() -> Option<usize> {
    static OTHER: OnceLock<Option<usize>> = OnceLock::new();
    let read = || env::var(RANK).ok()?.parse().ok().filter(|rank| *rank > 0);
    *OTHER.get_or_init(read)
}

/// The `ml launch` that started this rank on this host.
pub fn launcher() -> Option<Pid> {
    env::var(LAUNCHER).ok()?.parse().ok().and_then(Pid::from_raw)
}

/// Has this rank end with its `ml launch`, however that one ends.
pub fn end_with_launcher() {
    let Some(launcher) = launcher() else { return };
    watch();
    // It may have ended before.
    if test_kill_process(launcher).is_err() {
        signal_hook::low_level::exit(1);
    }
}

#[cfg(target_os = "linux")]
fn watch() {
    use rustix::process::{Signal, set_parent_process_death_signal};
    // Without it, this rank ends where another one does.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

#[cfg(not(target_os = "linux"))]
fn watch() {
    use rustix::process::getppid;
    use std::{thread, time::Duration};
    let parent = getppid();
    thread::spawn(move || {
        while getppid() == parent {
            thread::sleep(Duration::from_millis(500));
        }
        signal_hook::low_level::exit(1);
    });
}

fn of_list(hosts: &OsString) -> Result<Vec<SocketAddr>> {
    let hosts = hosts.to_string_lossy();
    hosts.split(',').map(|host| address(host, HOSTS)).collect()
}

fn of_file(file: &OsString) -> Result<Vec<SocketAddr>> {
    let failed = |error: String| Failure::Other(format!("{HOST_FILE} {}: {error}", file.display()));
    let unread = |error| Failure::Other(format!("{HOST_FILE} {error}"));
    let text = files::read(Path::new(file)).map_err(unread)?;
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
