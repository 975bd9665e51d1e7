//! Requests to the hub: whom they carry the token to, where they are sent on to, and when they are
//! repeated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::{HeaderMap, HeaderValue, Response, Uri};
use ureq::{Agent, Body};

use crate::{Error, Name, Result, Settings, Token};

/// The characters to percent-encode in one segment of a path.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const MOST_REDIRECTS: usize = 8;
/// The hub's own words are told up to so many letters.
const MOST_TOLD: usize = 300;

/// The beginning of the reason where a repository is not there, or not for who asks.
const UNKNOWN: &str = "the hub has no such repository, or does not show it to you: check the name; where it is private";

/// How long a hub that does not answer, or breaks off, is asked again.
#[derive(Clone, Debug)]
pub struct Patience {
    /// How often something is tried in a row without one byte more.
    pub tries: u32,
    /// The wait before the second try; it doubles from try to try.
    pub first_wait: Duration,
    /// The longest wait that the hub may ask for.
    pub longest_wait: Duration,
    /// After so long without a byte, a connection counts as cut.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            tries: 6,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(330),
            silence: Duration::from_secs(30),
        }
    }
}

/// Why a try brought nothing, or not all.
pub enum Trouble {
    /// Another try would bring the same.
    Fatal(Error),
    /// It may go better next time.
    Passing {
        /// The cause, for the user.
        reason: String,
        /// The wait that the hub asked for.
        wait: Option<Duration>,
        /// True when some new bytes came, which starts the count of tries anew.
        progressed: bool,
    },
}

impl Trouble {
    pub fn passing(reason: impl ToString) -> Self {
        Trouble::Passing { reason: reason.to_string(), wait: None, progressed: false }
    }
}

/// The part of a file that a request asks for.
#[derive(Clone, Copy)]
enum Question {
    /// The bytes from this one on.
    From(u64),
    /// The headers alone.
    Headers,
}

/// `ETag` and size of a file, by the headers of an answer.
#[derive(Debug, Default)]
pub struct Facts {
    /// `X-Linked-Etag` or `ETag`, as it came.
    pub etag: Option<String>,
    /// `X-Linked-Size` or `Content-Length`.
    pub size: Option<u64>,
}

impl Facts {
    /// Takes in what a file in large-file storage says of itself; whether that is all.
    fn take_linked(&mut self, headers: &HeaderMap) -> bool {
        let linked = Facts::of(headers, ["x-linked-etag", "x-linked-size"]);
        self.or(linked);
        self.etag.is_some() && self.size.is_some()
    }

    fn of(headers: &HeaderMap, [etag, size]: [&str; 2]) -> Self {
        let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let size = header(size).and_then(|size| size.parse().ok());
        Facts { etag: header(etag).map(str::to_owned), size }
    }

    /// Fills up what is missing.
    fn or(&mut self, other: Facts) {
        self.etag = self.etag.take().or(other.etag);
        self.size = self.size.or(other.size);
    }
}

/// The hub, as one user sees it.
pub struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<Token>,
    patience: Patience,
}

impl Client {
    pub fn new(settings: &Settings, patience: Patience) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // Followed by hand: the token goes to the hub alone.
            .max_redirects(0)
            .user_agent(concat!("ml/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(patience.silence))
            .timeout_recv_response(Some(2 * patience.silence))
            .timeout_per_read(Some(patience.silence))
            .build()
            .new_agent();
        Client {
            agent,
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
            patience,
        }
    }

    /// The address of the list with the commit and the files of `name`.
    pub fn listing_url(&self, name: &Name) -> String {
        let revision = utf8_percent_encode(name.revision(), PART);
        let (endpoint, repository) = (&self.endpoint, name.repository());
        format!("{endpoint}/api/models/{repository}/revision/{revision}?blobs=true")
    }

    /// The address of the file `path` at `commit`.
    pub fn file_url(&self, name: &Name, commit: &str, path: &str) -> String {
        let parts: Vec<_> =
            path.split('/').map(|part| utf8_percent_encode(part, PART).to_string()).collect();
        format!("{}/{}/resolve/{commit}/{}", self.endpoint, name.repository(), parts.join("/"))
    }

    /// The whole answer of `url`, in memory, of at most `most` bytes.
    pub fn text(&self, name: &Name, url: &str, most: u64) -> Result<Vec<u8>, Trouble> {
        let mut answer = self.ask(name, url, 0)?;
        let body = answer.body_mut().with_config().limit(most.saturating_add(1));
        body.read_to_vec().map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => {
                let reason = format!("{} has more than {most} bytes", without_query(url));
                Trouble::Fatal(Error::Listing { name: name.to_string(), reason })
            }
            other => Trouble::passing(other),
        })
    }

    /// The answer of `url`, its bytes from `from` on; status 200, 206 or 416.
    pub fn ask(&self, name: &Name, url: &str, from: u64) -> Result<Response<Body>, Trouble> {
        self.follow(name, url, Question::From(from), &mut |_| false)
    }

    /// `ETag` and size of the file at `url`, by the headers of its answer.
    ///
    /// The hub's own headers are enough where it redirects to a store.
    pub fn facts(&self, name: &Name, url: &str) -> Result<Facts, Trouble> {
        let mut facts = Facts::default();
        let answer =
            self.follow(name, url, Question::Headers, &mut |headers| facts.take_linked(headers))?;
        if !answer.status().is_redirection() {
            facts.or(Facts::of(answer.headers(), ["etag", "content-length"]));
        }
        Ok(facts)
    }

    /// Asks `url`, and where that sends on. `is_enough` looks at each answer's headers.
    fn follow(
        &self,
        name: &Name,
        url: &str,
        question: Question,
        is_enough: &mut dyn FnMut(&HeaderMap) -> bool,
    ) -> Result<Response<Body>, Trouble> {
        let fatal = |url: &str, reason: String| {
            Trouble::Fatal(Error::Network { url: without_query(url), reason })
        };
        let home: Uri = self.endpoint.parse().map_err(|error| fatal(url, format!("{error}")))?;
        let mut url = url.to_owned();
        let mut question = question;
        for _ in 0..=MOST_REDIRECTS {
            let uri: Uri = url.parse().map_err(|error| fatal(&url, format!("{error}")))?;
            let at_home = origin(&uri) == origin(&home);
            let answer = self.request(&uri, question, at_home)?;
            if matches!(answer.status().as_u16(), 200..400) && is_enough(answer.headers()) {
                return Ok(answer);
            }
            let location = answer.headers().get("location").and_then(|value| value.to_str().ok());
            match (answer.status().as_u16(), question) {
                (200 | 206 | 416, _) => return Ok(answer),
                (301 | 302 | 303 | 307 | 308, _) => {
                    url = followed(&uri, location.unwrap_or_default())
                        .map_err(|reason| fatal(&url, reason))?;
                }
                // Some take no HEAD, and addresses of stores may be signed for GET. Its body is not
                // read.
                (403 | 405 | 501, Question::Headers) => question = Question::From(0),
                (status, _) => return Err(self.trouble(name, status, &uri, &answer)),
            }
        }
        Err(fatal(&url, format!("sent on more than {MOST_REDIRECTS} times")))
    }

    /// One request. The token goes to the hub alone.
    fn request(
        &self,
        uri: &Uri,
        question: Question,
        at_home: bool,
    ) -> Result<Response<Body>, Trouble> {
        let mut request = match question {
            Question::From(_) => self.agent.get(uri),
            Question::Headers => self.agent.head(uri),
        };
        request = request.header("Accept-Encoding", "identity");
        if let Some(token) = self.token.as_ref().filter(|_| at_home) {
            request = request.header("Authorization", format!("Bearer {}", token.secret()));
        }
        if let Question::From(from @ 1..) = question {
            request = request.header("Range", format!("bytes={from}-"));
        }
        request.call().map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::InvalidProxyUrl | ureq::Error::Http(_) => {
                let url = without_query(&uri.to_string());
                Trouble::Fatal(Error::Network { url, reason: error.to_string() })
            }
            // What the system says is told without the words around it.
            ureq::Error::Io(error) => Trouble::passing(error),
            other => Trouble::passing(other),
        })
    }

    /// The trouble that an answer without the file means.
    fn trouble(&self, name: &Name, status: u16, uri: &Uri, answer: &Response<Body>) -> Trouble {
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        match status {
            408 | 429 | 500.. => self.later(name, status, asked_wait(answer)),
            // An address of another host was made for this request alone, and may have run out.
            _ if self.endpoint.parse().is_ok_and(|home| origin(uri) != origin(&home)) => {
                let host = uri.host().unwrap_or_default();
                Trouble::passing(format!("{host} answers with {status}"))
            }
            _ => {
                let message = header("x-error-message").map(|m| m.get(..MOST_TOLD).unwrap_or(m));
                let reason = self.refusal(name, status, header("x-error-code"), message);
                let name = name.to_string();
                Trouble::Fatal(match reason.starts_with(UNKNOWN) {
                    true => Error::Unknown { name, reason },
                    false => Error::Refused { name, reason },
                })
            }
        }
    }

    fn later(&self, name: &Name, status: u16, wait: Option<Duration>) -> Trouble {
        if wait.is_some_and(|wait| wait > self.patience.longest_wait) {
            let seconds = wait.unwrap_or_default().as_secs();
            let reason = format!(
                "the hub takes no more requests for {seconds} s ({status}): pull again then, or set HF_TOKEN, with \
                 which more are allowed"
            );
            return Trouble::Fatal(Error::Refused { name: name.to_string(), reason });
        }
        let reason = format!("the hub answers with {status}");
        Trouble::Passing { reason, wait, progressed: false }
    }

    /// Why the hub does not give it, with the remedy. To people whom it does not know, it denies
    /// that there is such a repository.
    fn refusal(
        &self,
        name: &Name,
        status: u16,
        code: Option<&str>,
        message: Option<&str>,
    ) -> String {
        let (endpoint, repository) = (&self.endpoint, name.repository());
        let invalid = message.is_some_and(|message| message.contains("Invalid credentials"));
        match (status, code) {
            (_, Some("GatedRepo")) => format!(
                "its owners let in only who asked: ask at {endpoint}/{repository}, and set HF_TOKEN to a token of \
                 that account"
            ),
            (404, Some("RevisionNotFound")) => {
                format!(
                    "the hub has no revision `{}` of it: see {endpoint}/{repository}",
                    name.revision()
                )
            }
            (401, code) if self.token.is_some() && (invalid || code.is_none()) => format!(
                "the hub does not know the token: set HF_TOKEN to one of {endpoint}/settings/tokens, or unset it"
            ),
            (401, _) | (404, Some("RepoNotFound")) if self.token.is_some() => {
                format!("{UNKNOWN}, set HF_TOKEN to a token that may read it")
            }
            (401, _) | (404, Some("RepoNotFound")) => format!("{UNKNOWN}, set HF_TOKEN"),
            (403, _) => format!(
                "the hub forbids it ({}): ask for access at {endpoint}/{repository}",
                message.unwrap_or("403")
            ),
            _ => format!("the hub answers with {status}: see {endpoint}/{repository}"),
        }
    }

    /// Tries until it goes, as long as there is patience; `told` hears of each wait. `stop` ends
    /// it.
    pub fn patiently<T>(
        &self,
        url: &str,
        stop: &AtomicBool,
        told: impl Fn(&str, Duration),
        mut attempt: impl FnMut() -> Result<T, Trouble>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            let (reason, wait) = match attempt() {
                Ok(result) => return Ok(result),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(Trouble::Passing { reason, wait, progressed }) => {
                    tries = if progressed { 1 } else { tries + 1 };
                    (reason, wait)
                }
            };
            if tries >= self.patience.tries || stop.load(Ordering::Relaxed) {
                return Err(Error::Network { url: without_query(url), reason });
            }
            let wait = wait.unwrap_or(self.patience.first_wait * 2_u32.pow(tries.min(6) - 1));
            told(&reason, wait);
            let until = Instant::now() + wait;
            while Instant::now() < until && !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20).min(until - Instant::now()));
            }
        }
    }
}

/// Scheme, host and port: who gets the token.
fn origin(uri: &Uri) -> (String, String, Option<u16>) {
    let lower = |text: Option<&str>| text.unwrap_or_default().to_ascii_lowercase();
    let scheme = lower(uri.scheme_str());
    let usual = if scheme == "https" { 443 } else { 80 };
    (scheme, lower(uri.host()), uri.port_u16().or(Some(usual)))
}

/// The address that `location` means, seen from `from`.
fn followed(from: &Uri, location: &str) -> Result<String, String> {
    let scheme = from.scheme_str().unwrap_or_default();
    if location.starts_with("https://") || location.starts_with("http://") && scheme == "http" {
        return Ok(location.to_owned());
    }
    if location.starts_with("http://") {
        return Err("sent on from https to http, which is not followed".to_owned());
    }
    if location.starts_with('/') && !location.starts_with("//") {
        let authority = from.authority().map_or("", |authority| authority.as_str());
        return Ok(format!("{scheme}://{authority}{location}"));
    }
    Err(format!("sent on to `{location}`, which is no address"))
}

/// How long the hub asks to wait: `Retry-After` in seconds or as a date, else the rest of
/// `RateLimit`'s window.
fn asked_wait(answer: &Response<Body>) -> Option<Duration> {
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    if let Some(text) = header("retry-after") {
        let date = || httpdate::parse_http_date(text).ok();
        let until = |date: SystemTime| date.duration_since(SystemTime::now()).unwrap_or_default();
        return text.parse().ok().map(Duration::from_secs).or_else(|| date().map(until));
    }
    let mut parts = header("ratelimit")?.split(';').map(str::trim);
    parts.find_map(|part| part.strip_prefix("t=")?.parse().ok()).map(Duration::from_secs)
}

/// Addresses that were made for one request have a signature in their query, which nobody shall
/// read.
fn without_query(url: &str) -> String {
    url.split('?').next().unwrap_or(url).to_owned()
}
