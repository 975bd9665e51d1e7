//! The collector of spans, and the name of the server there.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::http::Uri;

/// The path of OTLP over HTTP behind a collector's address.
const PATH: &str = "/v1/traces";

/// Spans of requests, sent to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// The collector.
    pub endpoint: TraceEndpoint,
    /// The name of this server among the services that the collector knows.
    pub service: String,
    /// The longest time that a span waits for others before they are sent. A batch that was not
    /// taken is sent again after as long.
    pub every: Duration,
}

impl Traces {
    /// Spans for `endpoint`, sent each second.
    pub fn new(endpoint: TraceEndpoint, service: &str) -> Traces {
        Traces { endpoint, service: service.to_owned(), every: Duration::from_secs(1) }
    }
}

/// The address of a collector that takes OTLP as JSON over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEndpoint {
    /// The host without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The host with its port, for the header `Host`.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl FromStr for TraceEndpoint {
    type Err = String;

    /// Reads `http://HOST:PORT`, with a path or without one; it ends with `/v1/traces` in any case.
    fn from_str(text: &str) -> Result<TraceEndpoint, String> {
        let expected = || "expected an address such as http://127.0.0.1:4318".to_owned();
        let uri: Uri = text.parse().map_err(|_| expected())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                let reason = "https is not spoken: name a collector that takes http on this machine or network, which \
                              sends them on";
                return Err(reason.to_owned());
            }
            _ => return Err(expected()),
        }
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.filter(|authority| !authority.host().is_empty());
        let authority = authority.filter(|_| uri.query().is_none()).ok_or_else(expected)?;
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => 80,
            _ => authority.port_u16().filter(|port| *port > 0).ok_or_else(|| {
                format!("the port of `{authority}` is no number from 1 to 65535; {}", expected())
            })?,
        };
        let path = uri.path().trim_end_matches('/');
        Ok(TraceEndpoint {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port,
            authority: authority.to_string(),
            path: if path.ends_with(PATH) { path.to_owned() } else { format!("{path}{PATH}") },
        })
    }
}

impl fmt::Display for TraceEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::TraceEndpoint;

    #[test]
    fn a_collectors_path_is_put_behind_its_address_once() {
        for (text, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://a/", "http://a/v1/traces"),
            ("http://a/v1/traces", "http://a/v1/traces"),
            ("http://[::1]:4318/otlp/", "http://[::1]:4318/otlp/v1/traces"),
        ] {
            assert_eq!(text.parse::<TraceEndpoint>().unwrap().to_string(), expected);
        }
        let endpoint: TraceEndpoint = "http://[::1]".parse().unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 80));
    }

    #[test]
    fn what_is_no_address_over_http_is_refused() {
        for text in ["", "a", "127.0.0.1:4318", "http://", "http://u:p@a", "http://a?b", "grpc://a"]
        {
            assert!(text.parse::<TraceEndpoint>().unwrap_err().contains("expected"), "{text}");
        }
        for text in ["http://a:99999", "http://a:0", "http://a:", "http://[::1]:70000/otlp"] {
            let error = text.parse::<TraceEndpoint>().unwrap_err();
            assert!(error.contains("from 1 to 65535") && error.contains("expected"), "{text}");
        }
        assert!("https://a".parse::<TraceEndpoint>().unwrap_err().contains("not spoken"));
    }
}
