//! Questions to a running server.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::failure::{self, Failure, Result};
use crate::files;

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(10);

/// A running server.
pub struct Remote {
    /// Its address, without a path.
    pub url: String,
    agent: ureq::Agent,
    key: Option<String>,
    /// The remedy where no server answers.
    absent: &'static str,
    /// The way to give a key.
    wants_key: &'static str,
}

impl Remote {
    /// The server at `url`, which may end with `/v1`. Errors tell what to do where no server is
    /// there, and where it wants a key.
    pub fn new(
        url: &str,
        key: Option<String>,
        absent: &'static str,
        wants_key: &'static str,
    ) -> Remote {
        let url = url.trim_end_matches('/');
        let url = url.strip_suffix("/v1").unwrap_or(url);
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        Remote { url, agent: agent(RootCerts::WebPki), key, absent, wants_key }
    }

    /// This server, where its certificate is one of the authorities in the PEM file at `path`, or
    /// is in there itself.
    ///
    /// # Errors
    /// A file that cannot be read, or holds no certificate.
    pub fn trusting(self, path: &Path) -> Result<Remote> {
        let bytes = files::read_bytes_for_flag(path)?;
        let refused = |reason: &str| Failure::Usage(format!("{}: {reason}", path.display()));
        let mut roots: Vec<Certificate<'static>> = Vec::new();
        for item in parse_pem(&bytes) {
            if let PemItem::Certificate(found) = item.map_err(|e| refused(&e.to_string()))? {
                roots.push(found);
            }
        }
        match roots.is_empty() {
            true => Err(refused("holds no certificate: it needs a section `BEGIN CERTIFICATE`")),
            false => Ok(Remote { agent: agent(RootCerts::from(roots)), ..self }),
        }
    }

    /// The JSON at `path`.
    ///
    /// # Errors
    /// No server answers, or it refuses.
    pub fn get(&self, path: &str) -> Result<Json> {
        self.ask(path, None)
    }

    /// The answer to `body`, sent to `path`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn post(&self, path: &str, body: &Json) -> Result<Json> {
        self.ask(path, Some(body))
    }

    fn ask(&self, path: &str, body: Option<&Json>) -> Result<Json> {
        let url = format!("{}{path}", self.url);
        let asked = match body {
            None => self.signed(self.agent.get(&url)).call(),
            Some(body) => {
                let request = self.signed(self.agent.post(&url));
                request.header("content-type", "application/json").send(body.to_string())
            }
        };
        let mut answer = asked.map_err(|error| self.failed(&url, error))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().map_err(|error| self.failed(&url, error))?;
        match status {
            200 => serde_json::from_str(&text)
                .map_err(|error| Failure::Other(format!("{url}: not JSON: {error}"))),
            401 => Err(Failure::Other(format!("{url} wants a key: {}", self.wants_key))),
            status => {
                let reason = serde_json::from_str(&text).ok().and_then(|body| message(&body));
                Err(Failure::Other(format!(
                    "{url}: {}",
                    reason.unwrap_or(format!("status {status}: {text}"))
                )))
            }
        }
    }

    /// The request with the key, where there is one.
    fn signed<T>(&self, request: ureq::RequestBuilder<T>) -> ureq::RequestBuilder<T> {
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    fn failed(&self, url: &str, error: ureq::Error) -> Failure {
        let reason = match error {
            ureq::Error::Timeout(_) => format!("no answer in {} s", ANSWER.as_secs()),
            ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                "no server listens there".to_owned()
            }
            ureq::Error::Rustls(error) => return untrusted(url, &error.to_string()),
            ureq::Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
                return untrusted(url, &error.to_string());
            }
            ureq::Error::Io(error) => failure::reason(&error),
            other => other.to_string(),
        };
        Failure::Other(format!("{url}: {reason}; {}", self.absent))
    }
}

fn agent(roots: RootCerts) -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(ANSWER))
        .http_status_as_error(false)
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .build()
        .into()
}

/// A server that does not speak TLS, or whose certificate is not trusted.
fn untrusted(url: &str, reason: &str) -> Failure {
    let remedy = match reason {
        reason if reason.contains("UnknownIssuer") => {
            "; give the certificate of its authority, or its own, by --tls-ca"
        }
        // What `openssl req -x509` makes unless it is told otherwise.
        reason if reason.contains("CaUsedAsEndEntity") => {
            "; it is one of an authority: make it with `-addext basicConstraints=critical,CA:FALSE`"
        }
        reason if reason.contains("InvalidContentType") => {
            "; it may speak without TLS: write http in place of https"
        }
        _ => "",
    };
    Failure::Other(format!("{url}: {reason}{remedy}"))
}

/// The message of an error, in OpenAI's or Ollama's form.
fn message(body: &Json) -> Option<String> {
    let error = &body["error"];
    error.as_str().or(error["message"].as_str()).map(str::to_owned)
}

/// The request that unloads the model `name`, in Ollama's protocol.
pub fn unloading(name: &str) -> Json {
    json!({"model": name, "keep_alive": 0, "stream": false})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Remote, message};

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        let url = |url: &str| Remote::new(url, None, "", "").url;
        for given in ["http://host:1/v1/", "http://host:1", "host:1", "host:1/"] {
            assert_eq!(url(given), "http://host:1");
        }
    }

    #[test]
    fn errors_of_both_forms_are_read() {
        assert_eq!(message(&json!({"error": "no"})).unwrap(), "no");
        assert_eq!(message(&json!({"error": {"message": "no"}})).unwrap(), "no");
        assert_eq!(message(&json!({})), None);
    }
}
