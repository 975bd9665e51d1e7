//! The manager of services that started `ml serve`, as systemd tells of itself by variables.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use inference_server::Notifier;
use listenfd::ListenFd;

use crate::failure::{Failure, Result};

/// The sockets that are handed over to this process; none where it was started otherwise.
///
/// # Errors
/// One is no TCP socket that listens.
pub fn sockets() -> Result<Vec<Arc<TcpListener>>> {
    if !is_own("LISTEN_PID") {
        return Ok(Vec::new());
    }
    let mut given = ListenFd::from_env();
    let taken = (0..given.len()).map(|at| {
        let refused = |reason: String| {
            let remedy = "in the unit of the socket, write ListenStream=ADDRESS:PORT and Accept=no";
            Failure::Usage(format!("LISTEN_FDS: socket {at}: {reason}: {remedy}"))
        };
        let socket = given.take_tcp_listener(at).map_err(|error| refused(error.to_string()))?;
        let socket = socket.ok_or_else(|| refused("was taken before".to_owned()))?;
        match listens(&socket) {
            Ok(true) => Ok(Arc::new(socket)),
            Ok(false) => Err(refused("does not listen".to_owned())),
            Err(error) => Err(refused(error.to_string())),
        }
    });
    taken.collect()
}

/// Returns true when a socket listens. Apple's systems do not tell, and have no systemd either.
fn listens(socket: &TcpListener) -> io::Result<bool> {
    #[cfg(target_vendor = "apple")]
    {
        let _ = socket;
        Ok(true)
    }
    #[cfg(not(target_vendor = "apple"))]
    Ok(rustix::net::sockopt::socket_acceptconn(socket)?)
}

/// The manager that wants to hear of this process, where there is one.
///
/// # Errors
/// Its address or its watchdog cannot be read.
pub fn notifier() -> Result<Option<Notifier>> {
    let Some(address) = variable("NOTIFY_SOCKET") else { return Ok(None) };
    // Without a process, the watchdog is this one's.
    let is_watched = variable("WATCHDOG_PID").is_none() || is_own("WATCHDOG_PID");
    let watchdog = variable("WATCHDOG_USEC").filter(|_| is_watched);
    let watchdog = watchdog.map(|given| {
        let time = given.to_str().and_then(|text| text.parse().ok()).filter(|time| *time > 0);
        let expected = || Failure::Usage(format!("WATCHDOG_USEC: {given:?} is no time"));
        time.map(Duration::from_micros).ok_or_else(expected)
    });
    let refused = |error| {
        let address = address.display();
        Failure::Usage(format!("NOTIFY_SOCKET: {address}: {error}"))
    };
    Notifier::new(&address, watchdog.transpose()?).map_err(refused).map(Some)
}

/// Returns true when the variable `name` has this process's number.
fn is_own(name: &str) -> bool {
    let number = variable(name).and_then(|text| text.to_str()?.parse().ok());
    number == Some(process::id())
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
