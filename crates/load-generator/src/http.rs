//! Connections to the server, and requests on them.

use std::io;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::error::{Error, Result};

/// Bytes of a whole answer, beyond which it is none.
const LONGEST: usize = 64 << 20;

/// Characters of an answer that an error shows.
const SHOWN: usize = 400;

/// A server's address, with the headers of each request.
#[derive(Debug)]
pub struct Server {
    host: String,
    port: u16,
    /// The prefix of all paths, which ends with `/v1`.
    base: String,
    /// The `Host` header.
    authority: HeaderValue,
    /// The `Authorization` header.
    key: Option<HeaderValue>,
}

/// A connection on which no answer is under way.
pub type Connection = SendRequest<Full<Bytes>>;

impl Server {
    /// The server at `url`, with the key that it wants.
    ///
    /// # Errors
    /// [`Error::Options`] for what is no URL of plain HTTP, and for a key that no header carries.
    pub fn new(url: &str, key: Option<&str>) -> Result<Server> {
        let refuse = |reason: &str| Error::Options(format!("{url}: {reason}"));
        let expected = "expected a URL such as http://127.0.0.1:8080";
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| refuse(expected))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(refuse(
                    "TLS would be measured too: name the server's own http address",
                ));
            }
            _ => return Err(refuse(expected)),
        }
        let authority = uri.authority().ok_or_else(|| refuse(expected))?;
        let path = uri.path().trim_end_matches('/');
        let base = if path.ends_with("/v1") { path.to_owned() } else { format!("{path}/v1") };
        let key = key.map(|key| HeaderValue::from_str(&format!("Bearer {}", key.trim())));
        Ok(Server {
            // An IPv6 address stands in brackets.
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            base,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| refuse(expected))?,
            key: key.transpose().map_err(|_| refuse("the key is no visible ASCII text"))?,
        })
    }

    /// The path of `name`, which begins with a slash, below `/v1`.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.base)
    }

    async fn connect(&self) -> Result<Connection> {
        let address = || format!("{}:{}", self.host, self.port);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(
            |error| match error.kind() {
                io::ErrorKind::ConnectionRefused => Error::Refused { address: address() },
                _ => Error::Connect { address: address(), reason: error.to_string() },
            },
        )?;
        // Without it a request may wait for the acknowledgement of the one before.
        let failed = |reason: String| Error::Connect { address: address(), reason };
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.to_string()))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// The answer to a request, on the connection in `slot` where there is one. It may be used
    /// again when the answer was read.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Connect`] and [`Error::Lost`].
    async fn send(
        &self,
        slot: &mut Option<Connection>,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        if let Some(mut sender) = slot.take()
            && sender.ready().await.is_ok()
            && let Ok(response) = sender.send_request(self.request(&method, path, &body)?).await
        {
            *slot = Some(sender);
            return Ok(response);
        }
        // A server may close a connection between two requests, so that only a fresh one can tell.
        let mut sender = self.connect().await?;
        let request = self.request(&method, path, &body)?;
        let response = sender.send_request(request).await.map_err(|error| lost(&error))?;
        *slot = Some(sender);
        Ok(response)
    }

    fn request(&self, method: &Method, path: &str, body: &Bytes) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(USER_AGENT, concat!("ml-bench/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "text/event-stream, application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        let request = request.body(Full::new(body.clone()));
        request.map_err(|error| Error::Options(format!("{path}: {error}")))
    }

    /// Posts `body`; the answer's status is 200.
    ///
    /// # Errors
    /// Those of the connection, and [`Error::Status`].
    pub async fn post(
        &self,
        slot: &mut Option<Connection>,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        ok(self.send(slot, Method::POST, path, body).await?, path).await
    }

    /// The body at `path`.
    ///
    /// # Errors
    /// As [`Server::post`].
    pub async fn get(&self, slot: &mut Option<Connection>, path: &str) -> Result<Bytes> {
        let response = self.send(slot, Method::GET, path, Bytes::new()).await?;
        whole(ok(response, path).await?.into_body()).await
    }
}

/// `response`, where its status is 200.
async fn ok(response: Response<Incoming>, path: &str) -> Result<Response<Incoming>> {
    let code = response.status().as_u16();
    if code == 200 {
        return Ok(response);
    }
    let body = whole(response.into_body()).await.map(|body| shortened(&body));
    Err(Error::Status { code, path: path.to_owned(), body: body.unwrap_or_default() })
}

/// All of `body`.
///
/// # Errors
/// [`Error::Lost`] where it breaks off or has no end.
pub async fn whole(body: impl Body<Data = Bytes, Error = hyper::Error>) -> Result<Bytes> {
    let collected = Limited::new(Box::pin(body), LONGEST).collect().await;
    collected.map(|body| body.to_bytes()).map_err(|error| Error::Lost(error.to_string()))
}

/// Why a connection broke.
pub fn lost(error: &hyper::Error) -> Error {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    Error::Lost(format!("{error}{}", cause.unwrap_or_default()))
}

/// The beginning of `text` on one line.
pub fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::{Server, shortened};

    #[test]
    fn a_url_may_name_the_version_or_not() {
        let server = |url: &str| Server::new(url, None).unwrap();
        let path = |url: &str| server(url).path("/completions");
        assert_eq!(path("http://127.0.0.1:8080"), "/v1/completions");
        assert_eq!(path("http://127.0.0.1:8080/v1/"), "/v1/completions");
        assert_eq!(path("http://host/api/v1"), "/api/v1/completions");
        let one = server("http://[::1]:81");
        assert_eq!((one.host.as_str(), one.port), ("::1", 81));
        assert_eq!(server("http://host").port, 80);
    }

    #[test]
    fn what_is_no_url_of_plain_http_is_refused() {
        for url in ["", "127.0.0.1:8080", "host", "ftp://host", "http://", "https://host"] {
            let error = Server::new(url, None).unwrap_err().to_string();
            assert!(error.contains("http"), "{url}: {error}");
        }
        assert!(Server::new("http://host", Some("a\nb")).is_err());
    }

    #[test]
    fn long_bodies_are_shown_on_a_line_to_a_bound() {
        assert_eq!(shortened(b"{\n  \"a\": 1\n}\n"), "{ \"a\": 1 }");
        let long = shortened("é".repeat(500).as_bytes());
        assert_eq!(long.chars().count(), 401);
    }
}
