//! Words to the manager of services that started the process, by systemd's `sd_notify`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// For the manager to take a word. It is dropped then, so that a manager that hangs stops nobody.
const TAKES: Duration = Duration::from_millis(100);

/// A manager of services that is told how the server is. A clone tells the same one.
#[derive(Clone, Debug)]
pub struct Notifier {
    socket: Arc<UnixDatagram>,
    manager: SocketAddr,
    watchdog: Option<Duration>,
    is_ready: Arc<AtomicBool>,
}

impl Notifier {
    /// The manager at `address`, a path or `@` with a name, as `NOTIFY_SOCKET` has it. With a
    /// `watchdog` it hears more often than each so long that the engines go on.
    ///
    /// # Errors
    /// An address of another form; no socket can be had.
    pub fn new(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Notifier> {
        let manager = match address.as_bytes() {
            [b'@', name @ ..] => abstract_address(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => {
                let reason = "is neither a path from / on nor a name behind @";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(TAKES))?;
        Ok(Notifier { socket: Arc::new(socket), manager, watchdog, is_ready: Arc::default() })
    }

    /// The models are loaded, and requests are answered.
    pub(crate) fn ready(&self) {
        self.is_ready.store(true, Ordering::Release);
        self.say("READY=1\nSTATUS=answers requests");
    }

    /// Files are read again; [`ready`](Self::ready) follows. Returns false before the server was
    /// ready for the first time: the manager waits for that word, and shall not hear it early.
    pub(crate) fn reloading(&self) -> bool {
        let was_ready = self.is_ready.load(Ordering::Acquire);
        if was_ready {
            self.say("RELOADING=1\nSTATUS=reads files again");
        }
        was_ready
    }

    /// Nothing new is taken.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=ends, once what runs is answered");
    }

    /// Loads take so much longer than until now.
    pub(crate) fn longer(&self, time: Duration) {
        let time = time.as_micros();
        self.say(&format!("EXTEND_TIMEOUT_USEC={time}\nSTATUS=loads models"));
    }

    /// The engines go on.
    pub(crate) fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// The time without that word after which the manager ends the process.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    fn say(&self, words: &str) {
        if let Err(error) = self.socket.send_to_addr(words.as_bytes(), &self.manager) {
            tracing::warn!(target: "server", %error, words, "the manager of services was not told");
        }
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    let reason = "names behind @ are Linux's";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::net::UnixDatagram;

    use super::Notifier;

    fn heard(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let count = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_hears_of_a_reload_only_once_the_server_was_ready() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(path.as_os_str(), None).unwrap();
        assert!(!notifier.reloading());
        notifier.ready();
        assert!(heard(&manager).starts_with("READY=1\n"));
        assert!(notifier.clone().reloading());
        assert!(heard(&manager).starts_with("RELOADING=1\n"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_manager_may_have_a_name_in_place_of_a_path() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;
        let name = format!("ml-notify-{}", std::process::id());
        let manager =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let notifier = Notifier::new(OsStr::new(&format!("@{name}")), None).unwrap();
        notifier.stopping();
        assert!(heard(&manager).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn other_addresses_are_refused_and_a_manager_that_is_gone_stops_nobody() {
        for address in ["", "vsock:2:1", "notify"] {
            assert!(Notifier::new(OsStr::new(address), None).is_err(), "{address}");
        }
        Notifier::new(OsStr::new("/nowhere/notify"), None).unwrap().ready();
    }
}
