//! A manager of services that started the server: its sockets, and what it hears.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fake_model::FakeModel as Fake;
use inference_server::{Config, Notifier};

use crate::TestServer;
use crate::client::Client;

const PATIENCE: Duration = Duration::from_secs(30);
const WATCHDOG: Duration = Duration::from_millis(40);

/// A manager that listens at a path.
struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        Manager { folder, socket }
    }

    fn is_told(&self, config: &mut Config, watchdog: Option<Duration>) {
        let path = self.folder.path().join("notify");
        config.notifier = Some(Notifier::new(path.as_os_str(), watchdog).unwrap());
    }

    /// The first line of the next word; `None` where there is none for so long.
    fn word(&self, within: Duration) -> Option<String> {
        let mut buffer = [0; 256];
        self.socket.set_read_timeout(Some(within)).unwrap();
        let count = self.socket.recv(&mut buffer).ok()?;
        let text = String::from_utf8(buffer[..count].to_vec()).unwrap();
        text.lines().next().map(str::to_owned)
    }

    fn wait_for(&self, word: &str) {
        let begun = Instant::now();
        while self.word(PATIENCE).as_deref() != Some(word) {
            assert!(begun.elapsed() < PATIENCE, "no {word}");
        }
    }

    /// Waits until there is no word while `server` gets ten times as far as between two words of a
    /// watchdog. It answers each time, so that a host without time for it is no silence.
    fn wait_for_silence(&self, server: &TestServer) {
        let (begun, mut silent) = (Instant::now(), 0);
        while silent < 10 {
            thread::sleep(WATCHDOG / 2);
            assert_eq!(server.get("/version").status, 200, "the server itself goes on");
            silent = if self.word(Duration::from_millis(1)).is_some() { 0 } else { silent + 1 };
            assert!(begun.elapsed() < PATIENCE, "no silence");
        }
    }
}

#[test]
fn a_manager_hears_of_loads_and_of_the_end() {
    let manager = Manager::new();
    let (loads, wait) = channel::<()>();
    let mut server = TestServer::loading(
        Fake::default(),
        |config| manager.is_told(config, None),
        move || {
            let _ = wait.recv();
        },
    );
    assert_eq!(manager.word(PATIENCE).as_deref(), Some("EXTEND_TIMEOUT_USEC=60000000"));
    assert_eq!(server.get("/health").status, 503);
    drop(loads);
    assert_eq!(manager.word(PATIENCE).as_deref(), Some("READY=1"));
    assert_eq!(server.get("/health").status, 200);
    server.shut_down();
    server.join().unwrap();
    assert_eq!(manager.word(PATIENCE).as_deref(), Some("STOPPING=1"));
}

#[test]
fn a_watchdog_hears_nothing_while_the_engine_hangs() {
    let manager = Manager::new();
    let server =
        TestServer::with(Fake::default(), |config| manager.is_told(config, Some(WATCHDOG)));
    manager.wait_for("READY=1");
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    // A step that takes longer than a client is told to wait is no reason to kill the server.
    server.model.stalled.store(500, Ordering::SeqCst);
    assert_eq!(server.get("/health").status, 503);
    while manager.word(Duration::from_millis(1)).is_some() {}
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    server.model.stalled.store(700, Ordering::SeqCst);
    manager.wait_for_silence(&server);
    server.model.stalled.store(0, Ordering::SeqCst);
    manager.wait_for("WATCHDOG=1");
}

#[test]
fn sockets_that_are_handed_over_are_listened_on_in_place_of_the_address() {
    let sockets: Vec<TcpListener> =
        (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<SocketAddr> =
        sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    let server = TestServer::with(Fake::default(), |config| {
        config.sockets = sockets.into_iter().map(Arc::new).collect();
        // None of them holds the only place while it has no client.
        config.limits.connections = 1;
    });
    assert_eq!(server.address, addresses[0]);
    for address in addresses {
        assert_eq!(Client::connect(address).get("/health").status, 200);
    }
}
