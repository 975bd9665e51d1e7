//! The hosts of several ranks, from a file in the form that `mlx.launch` reads.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::files;

/// A host as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    ssh: String,
    #[serde(default)]
    ips: Vec<String>,
    /// Cables of Thunderbolt for another backend of MLX: the ring does without them.
    #[serde(default, rename = "rdma")]
    _rdma: serde::de::IgnoredAny,
}

/// The host of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The destination for `ssh`; `None`: this host.
    pub ssh: Option<String>,
    /// The address on which the rank listens.
    pub address: SocketAddr,
}

/// The hosts of `file`, one for each rank; the first rank listens on `port`, and each further one
/// on the next.
///
/// # Errors
/// A file that cannot be read or has another form, by the host and the field; fewer than two hosts,
/// or too many.
pub fn read(file: &Path, port: u16) -> Result<Vec<Host>> {
    let failed =
        |reason: String| Failure::Usage(format!("--hostfile {}: {reason}", file.display()));
    let unread = |error| Failure::Usage(format!("--hostfile {error}"));
    let text = files::read(file).map_err(unread)?;
    let written: Vec<Written> = serde_json::from_str(&text).map_err(|error| {
        let form = "expected an array such as [{\"ssh\": \"host1\", \"ips\": [\"10.0.0.1\"]}, …]";
        failed(format!("{error}; {form}"))
    })?;
    let most = inference_core::Ranks::MAX;
    if !(2..=most).contains(&written.len()) {
        return Err(failed(format!("has {} hosts, expected 2 to {most}", written.len())));
    }
    let mut hosts = Vec::with_capacity(written.len());
    for (rank, Written { ssh, ips, .. }) in written.into_iter().enumerate() {
        let wrong = |reason: String| failed(format!("rank {rank} (`{ssh}`): {reason}"));
        if ssh.is_empty() || ssh.starts_with('-') {
            return Err(wrong("`ssh` is no host".to_owned()));
        }
        // Further addresses of a rank are further cables; one connection is enough here.
        let Some(ip) = ips.first() else { return Err(wrong("no address in `ips`".to_owned())) };
        let port = u16::try_from(rank).ok().and_then(|rank| port.checked_add(rank));
        let Some(port) = port else {
            return Err(wrong("its port is beyond 65535: take a lower --starting-port".to_owned()));
        };
        let address = (ip.as_str(), port).to_socket_addrs().ok().and_then(|mut all| all.next());
        let Some(address) = address else { return Err(wrong(format!("`{ip}` is no address"))) };
        let is_here = ["localhost", "127.0.0.1", "::1"].contains(&ssh.as_str());
        hosts.push(Host { ssh: (!is_here).then_some(ssh), address });
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Host, read};

    fn told(text: &str, port: u16) -> Result<Vec<Host>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read(file.path(), port).map_err(|error| error.to_string())
    }

    #[test]
    fn each_rank_has_the_first_of_its_addresses_and_the_next_port() {
        let hosts = told(
            r#"[{"ssh": "localhost", "ips": ["10.0.0.1", "10.0.1.1"], "rdma": [null]},
                {"ssh": "me@b", "ips": ["10.0.0.2"]}]"#,
            7000,
        );
        let here = Host { ssh: None, address: "10.0.0.1:7000".parse().unwrap() };
        let there = Host { ssh: Some("me@b".into()), address: "10.0.0.2:7001".parse().unwrap() };
        assert_eq!(hosts.unwrap(), [here, there]);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let good = r#"{"ssh": "a", "ips": ["10.0.0.1"]}"#;
        for (text, port, expected) in [
            ("{}".to_owned(), 1, "expected an array such as"),
            (format!("[{good}]"), 1, "has 1 hosts"),
            (
                format!("[{good}, {{\"ssh\": \"b\", \"ips\": []}}]"),
                1,
                "rank 1 (`b`): no address in `ips`",
            ),
            (format!("[{good}, {{\"ssh\": \"b\"}}]"), 1, "no address in `ips`"),
            (format!("[{good}, {{\"ips\": [\"10.0.0.1\"]}}]"), 1, "missing field `ssh`"),
            (format!("[{good}, {{\"ssh\": \"-oX\", \"ips\": [\"10.0.0.2\"]}}]"), 1, "is no host"),
            (format!("[{good}, {{\"ssh\": \"b\", \"ips\": [\"a b\"]}}]"), 1, "`a b` is no address"),
            (format!("[{good}, {{\"ssh\": \"b\", \"ip\": []}}]"), 1, "unknown field `ip`"),
            (format!("[{good}, {good}]"), 65535, "--starting-port"),
        ] {
            let error = told(&text, port).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
