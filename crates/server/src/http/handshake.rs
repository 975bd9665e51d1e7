//! The first words of a connection to a server that speaks TLS.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::timed_io::{Ending, TimedIo};

/// The first byte of a client that speaks TLS.
const HANDSHAKE: u8 = 22;

/// The answer to who speaks plain HTTP.
const PLAIN: &str = r#"{"error": {"message": "this server speaks TLS: write https in place of http in its address", "type": "invalid_request_error", "param": null, "code": "https_required"}}"#;

/// The first words of one connection.
pub struct Handshake {
    /// It knows the certificate.
    pub acceptor: TlsAcceptor,
    /// The time that the client has.
    pub limit: Duration,
    /// Says how the connection ends.
    pub ending: Ending,
}

impl Handshake {
    /// The connection under TLS. None where the client is too slow, speaks something else or does
    /// not like the certificate, and where `ends` is ready.
    pub async fn done(
        self,
        stream: TcpStream,
        timed: impl FnOnce(TcpStream) -> TimedIo,
        ends: impl Future<Output = ()>,
    ) -> Option<TlsStream<TimedIo>> {
        let Handshake { acceptor, limit, ending } = self;
        let shaken = async {
            let mut first = [0];
            let count = stream.peek(&mut first).await?;
            let io = timed(stream);
            match first[0] {
                _ if count == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
                HANDSHAKE => acceptor.accept(io).await,
                _ => {
                    refuse(io, &ending).await?;
                    Err(io::ErrorKind::InvalidData.into())
                }
            }
        };
        tokio::select! {
            // That a client leaves or is too slow is no event.
            shaken = timeout(limit, shaken) => shaken.ok()?.ok(),
            () = ends => None,
        }
    }
}

/// Tells a client that does not speak TLS what to do.
async fn refuse(mut io: TimedIo, ending: &Ending) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{PLAIN}",
        PLAIN.len()
    );
    io.write_all(answer.as_bytes()).await?;
    // What it sends is read on, so that it gets to see the answer.
    ending.ends_early();
    io.shutdown().await
}
