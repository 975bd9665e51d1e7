//! The layer around all handlers.
//!
//! A request gets an id and passes the checks of host, origin and key. An answer passes the log and
//! the counts; a panic becomes an error.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State as Shared};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, AUTHORIZATION, CONNECTION, CONTENT_TYPE,
    HOST, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::access_log::Entry;
use super::query::pairs;
use super::response::{FindErrorBody, written};
use super::timed_io::Ending;
use super::traced::Traced;
use super::unread::Unread;
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::page;
use crate::run::state::State;

/// Paths that need no key, beside the page's files: they tell nothing that is secret, and a page
/// cannot send one before it is loaded.
const OPEN: [&str; 3] = ["/", "/health", "/openapi.json"];

/// The header that carries a request's id.
const REQUEST_ID: &str = "x-request-id";

/// Headers that a web page may read: ids of requests, also Anthropic's, when to come again, and
/// fields that were ignored.
const EXPOSED: &str = "x-request-id, request-id, retry-after, x-ml-ignored";

/// The header that carries it for Anthropic's clients.
const REQUEST_ID_TOO: &str = "request-id";

/// A key, as Anthropic's clients send it.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A key, as Google's clients send it; also in the query.
const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const QUERY_KEY: &str = "key";

/// The longest id that is taken over from a client.
const LONGEST_ID: usize = 128;

/// Headers that may be there once.
const ONCE: [HeaderName; 6] = [HOST, ORIGIN, AUTHORIZATION, API_KEY, GOOGLE_KEY, CONTENT_TYPE];

/// The header by which a browser asks whether a page on a public address may reach a private one.
const REQUEST_PRIVATE_NETWORK: &str = "access-control-request-private-network";

/// The header that says it may.
const ALLOW_PRIVATE_NETWORK: &str = "access-control-allow-private-network";

/// State of the guard layer.
#[derive(Clone)]
pub struct Guard {
    /// The server's.
    pub state: Arc<State>,
    /// Finds what writes the bodies of errors, since it is here that the request of each is known.
    pub error_body: FindErrorBody,
}

/// Lets `request` through to `next`, or answers in its place.
pub async fn guard(Shared(guard): Shared<Guard>, request: Request, next: Next) -> Response {
    let Guard { state, error_body } = guard;
    let error_body = error_body(request.uri().path(), request.headers());
    let id = request_id(request.headers()).unwrap_or_else(|| state.id("req_"));
    let traced = Traced::begin(state.traces.as_ref(), &request);
    let entry = Entry::new(&request, id, traced);
    let started = entry.began();
    let origin = request.headers().get(ORIGIN).cloned();
    let preflight = Preflight::of(&request);
    let (request, unread) = Unread::of(request, state.config.limits.body_bytes);

    let ending = request.extensions().get::<Ending>().cloned();
    let version = request.version();

    let answer = respond(&state.config, request, next);
    let mut response = entry.tally().scope(answer).await;
    let time = started.elapsed();
    let goes_on = unread.drain(&state, started + state.config.timeouts.body).await;
    if let (false, Some(ending)) = (goes_on, ending) {
        ending.ends_early();
    }
    // An answer to an old client whose length is not known ends with its connection.
    let is_old = version == Version::HTTP_10;
    if !goes_on || is_old && response.body().size_hint().exact().is_none() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        if is_old {
            // hyper would keep one of 1.1.
            *response.version_mut() = Version::HTTP_10;
        }
    }
    let error = written(&mut response, error_body);
    allow_origin(&state.config, origin, preflight, response.headers_mut());
    if let Ok(id) = HeaderValue::from_str(&entry.id) {
        response.headers_mut().insert(REQUEST_ID, id.clone());
        response.headers_mut().insert(REQUEST_ID_TOO, id);
    }

    state.metrics.answered(&entry.endpoint, response.status().as_u16(), time);
    entry.log(response, error.as_ref())
}

async fn respond(config: &Config, request: Request, next: Next) -> Response {
    match admit(config, &request) {
        Ok(Passed::Preflight) => StatusCode::NO_CONTENT.into_response(),
        Ok(Passed::Request) => {
            let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            answered.unwrap_or_else(|_| ApiError::panicked().into_response())
        }
        Err(error) => error.into_response(),
    }
}

/// A browser's question before it sends the request itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preflight {
    /// Nothing.
    No,
    /// Which requests a page may send.
    Asked,
    /// Which requests a page on a public address may send to a private one.
    AskedFromPublic,
}

impl Preflight {
    fn of(request: &Request) -> Preflight {
        let asks = request.headers().get(REQUEST_PRIVATE_NETWORK);
        match (request.method() == Method::OPTIONS, asks.is_some_and(|asks| asks == "true")) {
            (false, _) => Preflight::No,
            (true, false) => Preflight::Asked,
            (true, true) => Preflight::AskedFromPublic,
        }
    }
}

/// The kind of a request that passed its checks. A preflight needs no key.
enum Passed {
    Preflight,
    Request,
}

fn admit(config: &Config, request: &Request) -> Result<Passed> {
    // Of two, a proxy in front may go by the other one.
    let twice = |name: &&HeaderName| request.headers().get_all(*name).iter().nth(1).is_some();
    if let Some(name) = ONCE.iter().find(twice) {
        return Err(ApiError::bad_request(format!("the header `{name}` is there twice")));
    }
    check_host(config, request)?;
    let origin = request.headers().get(ORIGIN);
    if let Some(origin) = origin
        && !may_come_from(config, origin, request.headers())
    {
        let message = "web pages of this origin may not use the server (see --cors-origin)";
        return Err(ApiError::origin(message));
    }
    // A browser's question before the request itself carries no key.
    let asks = request.headers().contains_key("access-control-request-method");
    if request.method() == Method::OPTIONS && origin.is_some() && asks {
        return Ok(Passed::Preflight);
    }
    let path = request.uri().path();
    let open = OPEN.contains(&path) || path.starts_with(page::FOLDER);
    if !open && !config.keys.is_empty() {
        check_key(config, request.headers(), request.uri().query())?;
    }
    Ok(Passed::Request)
}

/// Names can be made to point anywhere, so that a web page could reach this server under a name of
/// its own; an address or `localhost` cannot. HTTP/1.0 does not ask for a name, and no browser
/// speaks it.
fn check_host(config: &Config, request: &Request) -> Result<()> {
    let from_header = request.headers().get(HOST).map(|value| value.to_str().unwrap_or("?"));
    let Some(host) = request.uri().authority().map(|a| a.as_str()).or(from_header) else {
        if request.version() == Version::HTTP_10 {
            return Ok(());
        }
        return Err(ApiError::bad_request("the request has no `Host`"));
    };
    let name = host_name(host);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let allowed = |allowed: &String| allowed == "*" || allowed.eq_ignore_ascii_case(name);
    if is_address
        || name.eq_ignore_ascii_case("localhost")
        || config.allowed_hosts.iter().any(allowed)
    {
        return Ok(());
    }
    let message = "the name in `Host` is not allowed (see --allowed-host)";
    Err(ApiError::host(message))
}

/// `host` without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The server's own page may, and so may those of allowed origins.
fn may_come_from(config: &Config, origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let own = origin.split_once("://").is_some_and(|(_, name)| Some(name) == host);
    own || config.cors_origins.iter().any(|allowed| allowed == "*" || allowed == origin)
}

fn allow_origin(
    config: &Config,
    origin: Option<HeaderValue>,
    preflight: Preflight,
    headers: &mut HeaderMap,
) {
    let Some(origin) = origin.filter(|_| !config.cors_origins.is_empty()) else { return };
    headers.insert(VARY, HeaderValue::from_static("origin"));
    let text = origin.to_str().unwrap_or_default();
    if !config.cors_origins.iter().any(|allowed| allowed == "*" || allowed == text) {
        return;
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    if preflight == Preflight::AskedFromPublic {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    if preflight != Preflight::No {
        let methods = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        // `*` would leave out `authorization`; OpenAI's client in a browser sends `x-stainless-…`.
        let allowed = "authorization, content-type, x-request-id, x-stainless-arch, \
                       x-stainless-lang, x-stainless-os, x-stainless-package-version, \
                       x-stainless-retry-count, x-stainless-runtime, \
                       x-stainless-runtime-version, x-stainless-timeout, x-api-key, \
                       x-goog-api-key, x-goog-api-client, \
                       anthropic-version, anthropic-beta, \
                       anthropic-dangerous-direct-browser-access, *";
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
}

/// Each key that is given must be one of the server's.
fn check_key(config: &Config, headers: &HeaderMap, query: Option<&str>) -> Result<()> {
    let bearer = headers.get(AUTHORIZATION).map(|given| {
        let bytes = given.as_bytes();
        let scheme = bytes.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
        if scheme { bytes[7..].trim_ascii() } else { &[] }
    });
    let of_header = |name| headers.get(name).map(HeaderValue::as_bytes);
    let pairs = pairs(query)?;
    let of_query = pairs.iter().find(|(name, _)| name == QUERY_KEY);
    let of_query = of_query.map(|(_, key)| key.as_bytes());
    let given = [bearer, of_header(API_KEY), of_header(GOOGLE_KEY), of_query];
    if given.iter().all(Option::is_none) {
        let message = "no API key: send it as `Authorization: Bearer KEY`, as `x-api-key: KEY` or \
                       as `x-goog-api-key: KEY`";
        return Err(ApiError::invalid_key(message));
    }
    // All of them are compared, so that the time does not tell which one it was.
    let is_known = |key: &[u8]| config.keys.iter().fold(false, |known, own| known | own.is(key));
    match given.into_iter().flatten().all(is_known) {
        true => Ok(()),
        false => Err(ApiError::invalid_key("the API key is not one of this server")),
    }
}

/// The client's own id, where it is one that a log can hold.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    (plain && !id.is_empty() && id.len() <= LONGEST_ID).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::host_name;

    #[test]
    fn ports_are_no_part_of_a_name() {
        assert_eq!(host_name("localhost:8080"), "localhost");
        assert_eq!(host_name("localhost"), "localhost");
        assert_eq!(host_name("[::1]:80"), "[::1]");
        assert_eq!(host_name("[::1]"), "[::1]");
    }
}
