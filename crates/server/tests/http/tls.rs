//! Connections under TLS, and certificates that change while the server runs.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_model::FakeModel as Fake;
use inference_server::{Ended, Tls};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use crate::client::Client;
use crate::{TestServer, chat};

const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with a certificate and its key.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        files.write();
        files
    }

    /// Writes a fresh certificate and its key.
    fn write(&self) {
        let names = vec!["localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        fs::write(self.certificate(), made.cert.pem()).unwrap();
        fs::write(self.key(), made.signing_key.serialize_pem()).unwrap();
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    fn tls(&self) -> Tls {
        Tls::read(&self.certificate(), &self.key()).unwrap()
    }

    fn refused(&self) -> String {
        Tls::read(&self.certificate(), &self.key()).unwrap_err().to_string()
    }

    fn server(&self, fake: Fake) -> TestServer {
        let tls = self.tls();
        let server = TestServer::loading(fake, |config| config.tls = Some(tls), || {});
        while !self.get(server.address, "/health").contains("\"ok\"") {}
        server
    }

    /// A connection that trusts the certificate which the file has now.
    fn connect(&self, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        let text = fs::read(self.certificate()).unwrap();
        roots.add(CertificateDer::from_pem_slice(&text).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(client, stream)
    }

    fn get(&self, address: SocketAddr, path: &str) -> String {
        let mut stream = self.connect(address);
        ask(&mut stream, "GET", path, "", "close");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn ask(stream: &mut impl Write, method: &str, path: &str, body: &str, connection: &str) {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: {connection}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
}

/// Reads until `text` has come.
fn read_until(stream: &mut impl Read, text: &str) -> String {
    let mut seen = String::new();
    let mut bytes = [0; 1024];
    while !seen.contains(text) {
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "closed before {text:?}: {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    seen
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn answers_come_whole_and_in_streams_on_one_connection() {
    let files = Files::new();
    let server = files.server(Fake { says: vec!["a fox"; 3], ..Fake::default() });
    let mut stream = files.connect(server.address);
    let whole = chat(json!({})).to_string();
    ask(&mut stream, "POST", "/v1/chat/completions", &whole, "keep-alive");
    read_until(&mut stream, "a foxa foxa fox");
    let streamed = chat(json!({"stream": true})).to_string();
    ask(&mut stream, "POST", "/v1/chat/completions", &streamed, "close");
    let mut rest = String::new();
    // The end is one that TLS tells.
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("text/event-stream") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(stream.conn.alpn_protocol(), None);
}

#[test]
fn a_client_without_tls_is_told_so() {
    let files = Files::new();
    let server = files.server(Fake::default());
    let answer = Client::connect(server.address).get("/v1/models");
    assert_eq!((answer.status, answer.error("code").as_str()), (400, "https_required"));
    assert!(answer.error("message").contains("https"));
    // A long body is read on, so that the answer is not lost.
    let long = json!({"messages": "a".repeat(3 << 20)});
    assert_eq!(Client::connect(server.address).post("/v1/chat/completions", &long).status, 400);
}

#[test]
fn a_new_certificate_takes_over_and_open_connections_stay() {
    let files = Files::new();
    let server = files.server(Fake::default());
    let mut kept = files.connect(server.address);
    ask(&mut kept, "GET", "/health", "", "keep-alive");
    read_until(&mut kept, "\"ok\"");
    let serial = |files: &Files| shown(files, server.address);
    let old = serial(&files);

    // A broken one is not taken.
    let good = fs::read(files.key()).unwrap();
    fs::write(files.key(), "nothing").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(serial(&files), old);
    fs::write(files.key(), good).unwrap();

    files.write();
    let new = CertificateDer::from_pem_slice(&fs::read(files.certificate()).unwrap()).unwrap();
    assert_ne!(new.as_ref(), old);
    wait_for("a new certificate", || trusted(&files, server.address));
    assert_eq!(serial(&files), new.as_ref());
    ask(&mut kept, "GET", "/health", "", "keep-alive");
    read_until(&mut kept, "\"ok\"");

    // One that is moved there, as tools that renew certificates do.
    let other = Files::new();
    fs::rename(other.key(), files.key()).unwrap();
    fs::rename(other.certificate(), files.certificate()).unwrap();
    wait_for("a moved certificate", || trusted(&files, server.address));
}

/// Returns true when the server shows the certificate of `files`.
fn trusted(files: &Files, address: SocketAddr) -> bool {
    let mut stream = files.connect(address);
    stream.conn.complete_io(&mut stream.sock).is_ok()
}

/// The certificate that the server shows.
fn shown(files: &Files, address: SocketAddr) -> Vec<u8> {
    let mut stream = files.connect(address);
    let _ = stream.conn.complete_io(&mut stream.sock);
    stream.conn.peer_certificates().unwrap()[0].as_ref().to_vec()
}

#[test]
fn handshakes_that_stall_or_are_none_end_with_the_headers_time() {
    let files = Files::new();
    let tls = files.tls();
    let limit = Duration::from_millis(500);
    let change = |config: &mut inference_server::Config| {
        config.tls = Some(tls);
        config.timeouts.header = limit;
    };
    let mut server = TestServer::loading(Fake::default(), change, || {});
    let begun = Instant::now();
    for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x16garbage garbage garbage"] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 64, "{rest:?}");
    }
    assert!(begun.elapsed() < 10 * limit, "{:?}", begun.elapsed());
    // Nor is the end of the server kept waiting by one.
    let change = |config: &mut inference_server::Config| config.tls = Some(files.tls());
    let mut other = TestServer::loading(Fake::default(), change, || {});
    let _silent = TcpStream::connect(other.address).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    other.shut_down();
    assert_eq!(other.join().unwrap(), Ended::Drained);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    server.shut_down();
    assert_eq!(server.join().unwrap(), Ended::Drained);
}

#[test]
fn connections_are_bounded_and_running_streams_are_drained() {
    let files = Files::new();
    let tls = files.tls();
    let fake = Fake { endless: true, ..Fake::default() };
    let change = |config: &mut inference_server::Config| {
        config.tls = Some(tls);
        config.limits.connections = 1;
        config.timeouts.drain = Duration::from_secs(1);
    };
    let mut server = TestServer::loading(fake, change, || {});
    let mut stream = files.connect(server.address);
    let body = chat(json!({"stream": true})).to_string();
    loop {
        ask(&mut stream, "POST", "/v1/chat/completions", &body, "close");
        if read_until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 200") {
            break;
        }
        stream = files.connect(server.address);
    }
    // A second one waits until there is room.
    let second = TcpStream::connect(server.address).unwrap();
    second.set_nonblocking(true).unwrap();
    let mut waits = files.connect(server.address);
    waits.sock.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(waits.conn.complete_io(&mut waits.sock).is_err());
    server.shut_down();
    read_until(&mut stream, "[DONE]");
    assert_eq!(server.join().unwrap(), Ended::Drained);
}

#[test]
fn a_client_that_does_not_read_is_left() {
    let files = Files::new();
    let tls = files.tls();
    let fake = Fake { says: vec!["a long piece of text "; 400_000], ..Fake::default() };
    let change = |config: &mut inference_server::Config| {
        config.tls = Some(tls);
        config.timeouts.write = Duration::from_millis(500);
    };
    let server = TestServer::loading(fake, change, || {});
    while !files.get(server.address, "/health").contains("\"ok\"") {}
    let mut silent = files.connect(server.address);
    let body = chat(json!({"stream": true, "max_tokens": 400_000})).to_string();
    ask(&mut silent, "POST", "/v1/chat/completions", &body, "close");
    let open = |count: &str| {
        let metrics = files.get(server.address, "/metrics");
        metrics.contains(&format!("ml_num_connections {count}\n"))
    };
    wait_for("the stream", || open("2"));
    wait_for("its end", || open("1"));
}

#[test]
fn what_is_wrong_with_the_files_is_told_by_name() {
    let files = Files::new();
    let (certificate, key) = (files.certificate(), files.key());
    let (good, private) = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
    let broken = |path: &Path, text: &[u8]| {
        fs::write(path, text).unwrap();
        let error = files.refused();
        fs::write(&certificate, &good).unwrap();
        fs::write(&key, &private).unwrap();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        error
    };
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    assert!(broken(&key, other.as_bytes()).contains("is not that of the first certificate"));
    assert!(broken(&certificate, b"").contains("holds no certificate"));
    assert!(broken(&certificate, &private).contains("holds no certificate"));
    assert!(broken(&key, &good).contains("holds no private key"));
    let encrypted =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(broken(&key, encrypted).contains("openssl pkey"));
    let cut = &good[..good.len() / 2];
    assert!(broken(&certificate, cut).contains("is no PEM"));
    let empty = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(broken(&certificate, empty).contains("cannot be used"));
    assert!(broken(&certificate, &vec![b'a'; 2 << 20]).contains("more than"));
    // Both in one file, in either order.
    fs::write(&certificate, [&private[..], &good].concat()).unwrap();
    Tls::read(&certificate, &certificate).unwrap();
    fs::remove_file(&key).unwrap();
    assert!(files.refused().contains("key.pem: No such file"), "{}", files.refused());
    assert!(Tls::read(files.folder.path(), &key).is_err());
}
