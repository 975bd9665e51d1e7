//! `ml serve` as a manager of services starts it.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::serve::wait_until_ready;
use crate::{PATIENCE, command, finish, signal};

/// A server that gets `socket` as systemd hands it over, to the process that `pid` is in a shell.
fn with_socket(socket: impl Into<OwnedFd>, pid: &str, arguments: &[&str]) -> Child {
    let all = [&["serve", "--port", "0", "--log", "off"], arguments].concat();
    let told = command(&all);
    let script = format!("exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID={pid} exec \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(told.get_program()).args(told.get_args());
    shell.stdin(socket.into()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell.spawn().unwrap()
}

#[test]
fn a_socket_that_is_handed_over_is_listened_on() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let child = with_socket(socket, "$$", &[]);
    wait_until_ready(&address);
    signal(&child, "-TERM");
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains(&format!("http://{address}\n")), "{error}");
    assert!(error.contains("--host and --port are not used"), "{error}");
}

#[test]
fn sockets_of_other_kinds_and_other_processes_are_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixListener::bind(folder.path().join("socket")).unwrap();
    let (code, _, error) = finish(with_socket(socket, "$$", &[]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("LISTEN_FDS: socket 0") && error.contains("ListenStream="), "{error}");

    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let mut child = with_socket(socket, "1", &["--quiet"]);
    let mut said = [0; 64];
    let count = child.stderr.as_mut().unwrap().read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..count]).into_owned();
    assert!(said.starts_with("http://127.0.0.1:") && !said.contains(&address), "{said}");
    signal(&child, "-TERM");
    assert_eq!(finish(child).0, Some(0));
}

/// The first line of the next word that a manager hears.
fn heard(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let count = manager.recv(&mut buffer).unwrap();
    let text = String::from_utf8(buffer[..count].to_vec()).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Writes a fresh certificate and its key.
fn certify(folder: &Path) {
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn a_manager_hears_how_the_server_is_and_lets_it_read_files_again() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let mut server = command(&["serve", "--port", "0"]);
    server.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
    let child = server.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").spawn().unwrap();
    let next = |but: &[&str]| loop {
        let word = heard(&manager);
        if !but.iter().any(|other| word.starts_with(other)) {
            return word;
        }
    };
    assert_eq!(next(&["EXTEND_TIMEOUT_USEC="]), "READY=1");
    assert_eq!(next(&[]), "WATCHDOG=1");
    signal(&child, "-HUP");
    assert_eq!(next(&["WATCHDOG=1"]), "RELOADING=1");
    assert_eq!(next(&["WATCHDOG=1"]), "READY=1");
    signal(&child, "-TERM");
    assert_eq!(next(&["WATCHDOG=1"]), "STOPPING=1");
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("the certificate was read again"), "{error}");
}

#[test]
fn a_manager_that_cannot_be_told_is_refused_by_name() {
    for (name, value) in [("NOTIFY_SOCKET", "vsock:2:1"), ("WATCHDOG_USEC", "soon")] {
        let mut server = command(&["serve", "--port", "0"]);
        server.env("NOTIFY_SOCKET", "/nowhere/notify").env(name, value);
        let (code, _, error) = finish(server.spawn().unwrap());
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
}
