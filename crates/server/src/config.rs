//! Configuration of a server, with the defaults.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use inference_core::{EmbeddingModel, ImageModel, LoadProgress, SpeechModel, TranscriptionModel};
use subtle::ConstantTimeEq;

use crate::notify::Notifier;
use crate::tls::Tls;
use crate::traces::settings::Traces;

/// A key that clients must present. It is never printed.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// The key `text`; white space around it is not part of it. `None` where nothing is left, or
    /// where a header could not carry it.
    pub fn new(text: &str) -> Option<ApiKey> {
        let text = text.trim();
        let sendable = text.bytes().all(|byte| byte.is_ascii_graphic());
        (!text.is_empty() && sendable).then(|| ApiKey(text.to_owned()))
    }

    /// Returns true when `given` is this key. The time does not depend on the byte that differs.
    pub fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// A model that makes pictures, and its name. Its own queue bounds how many wait for it.
#[derive(Clone)]
pub struct ImageService {
    /// The name under which it is served.
    pub name: String,
    /// The model.
    pub model: Arc<dyn ImageModel>,
}

impl fmt::Debug for ImageService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageService({})", self.name)
    }
}

/// A model that embeds texts or scores pairs of them, and its name. Its own queue bounds how many
/// wait for it.
#[derive(Clone)]
pub struct EmbeddingService {
    /// The name under which it is served.
    pub name: String,
    /// The model.
    pub model: Arc<dyn EmbeddingModel>,
}

impl fmt::Debug for EmbeddingService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmbeddingService({})", self.name)
    }
}

/// A model that transcribes speech, and its name. Its own queue bounds how many wait for it.
#[derive(Clone)]
pub struct TranscriptionService {
    /// The name under which it is served.
    pub name: String,
    /// The model.
    pub model: Arc<dyn TranscriptionModel>,
}

impl fmt::Debug for TranscriptionService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TranscriptionService({})", self.name)
    }
}

/// A model that speaks, and its name. Its own queue bounds how many wait for it.
#[derive(Clone)]
pub struct SpeechService {
    /// The name under which it is served.
    pub name: String,
    /// The model.
    pub model: Arc<dyn SpeechModel>,
}

impl fmt::Debug for SpeechService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpeechService({})", self.name)
    }
}

/// Which models may be given tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tools {
    /// Those whose chat templates know tools, in a format that is known.
    #[default]
    Template,
    /// All: others are told of tools by instructions.
    Generic,
}

/// The folder with files and batches of requests, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// The folder. One server has it at a time.
    pub folder: PathBuf,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Bytes of all contents.
    pub bytes: u64,
    /// Requests of a batch.
    pub requests: usize,
}

impl Batches {
    /// The usual bounds, in `folder`.
    pub fn new(folder: PathBuf) -> Batches {
        Batches { folder, file_bytes: 100 << 20, bytes: 1 << 30, requests: 50_000 }
    }
}

/// How a server listens, whom it answers, and what it bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Sockets that listen already, as a manager of services hands them over. They are taken in
    /// place of the address.
    pub sockets: Vec<Arc<TcpListener>>,
    /// The manager of services that started the process; none: nobody is told.
    pub notifier: Option<Notifier>,
    /// The certificate that connections are shown; none: they are plain.
    pub tls: Option<Tls>,
    /// Keys, any of which opens the server; none: everyone who reaches it may use it.
    pub keys: Vec<ApiKey>,
    /// Names that the `Host` header may have beside `localhost` and IP addresses; `*`: any.
    pub allowed_hosts: Vec<String>,
    /// Web pages of these origins may use the server from a browser; `*`: all. An origin is what
    /// browsers send: `scheme://host` with a port that is not the scheme's own, or `null`.
    pub cors_origins: Vec<String>,
    /// The name under which the model is served.
    pub model: String,
    /// Further names for it; `*`: any.
    pub aliases: Vec<String>,
    /// The progress of its load, where that tells.
    pub load_progress: Option<LoadProgress>,
    /// The folder whose pictures requests may name by `file://` URLs; none: no files are read.
    pub local_media_path: Option<PathBuf>,
    /// The folder with files and batches; none: there are none.
    pub batches: Option<Batches>,
    /// A model that makes pictures, beside the one for text.
    pub images: Option<ImageService>,
    /// Models that embed texts or score pairs of them, beside the one for text.
    pub embeddings: Vec<EmbeddingService>,
    /// Models that transcribe speech, beside the one for text.
    pub transcriptions: Vec<TranscriptionService>,
    /// Models that speak, beside the one for text.
    pub speech: Vec<SpeechService>,
    /// How many requests the engine computes together, so that further ones count as waiting.
    pub slots: usize,
    /// Lets a request end the server.
    pub allows_shutdown: bool,
    /// Refuses fields that change no answer here, such as hints for another server's engine. They
    /// are taken otherwise, and the header `x-ml-ignored` tells of them.
    pub strict_fields: bool,
    /// Which models may be given tools.
    pub tools: Tools,
    /// The collector of spans of requests; none: there are none.
    pub traces: Option<Traces>,
    /// Sizes and counts.
    pub limits: Limits,
    /// Times.
    pub timeouts: Timeouts,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            sockets: Vec::new(),
            notifier: None,
            tls: None,
            keys: Vec::new(),
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            model: "default".to_owned(),
            aliases: Vec::new(),
            load_progress: None,
            local_media_path: None,
            batches: None,
            images: None,
            embeddings: Vec::new(),
            transcriptions: Vec::new(),
            speech: Vec::new(),
            slots: 1,
            allows_shutdown: false,
            strict_fields: false,
            tools: Tools::Template,
            traces: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Config {
    /// Checks what is dangerous or means nothing.
    ///
    /// # Errors
    /// The first setting that is refused, in words for a person.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(ip) = self.open_to_all().filter(|_| self.keys.is_empty()) {
            return Err(ConfigError::OpenToAll(ip));
        }
        if let Some(given) = self.cors_origins.iter().find(|given| !is_origin(given)) {
            return Err(ConfigError::NoOrigin(given.clone()));
        }
        let positive = [
            ("connections", self.limits.connections),
            ("headers", self.limits.headers),
            ("body bytes", self.limits.body_bytes),
            ("choices", self.limits.choices),
            ("slots", self.slots),
        ];
        match positive.into_iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}

impl Config {
    /// An address of the server that other machines reach, where there is one.
    fn open_to_all(&self) -> Option<IpAddr> {
        let given = self.sockets.iter().filter_map(|socket| socket.local_addr().ok());
        let own = self.sockets.is_empty().then_some(self.listen);
        given.chain(own).map(|address| address.ip()).find(|ip| !ip.is_loopback())
    }
}

/// Returns true for an origin that a browser can send, and for `*`.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return matches!(text, "*" | "null") };
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && byte != b'/';
    let has_own_port = !own_port.is_empty() && host.ends_with(own_port);
    !scheme.is_empty()
        && !host.is_empty()
        && text.replace("://", "").bytes().all(is_plain)
        && !has_own_port
}

/// A configuration that no server is started with.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Others could reach the server, and nothing keeps them out.
    #[error(
        "{0} can be reached from other machines: give an API key (`ML_SERVE_API_KEY` or `--api-key-file`), or listen on \
         127.0.0.1 alone"
    )]
    OpenToAll(IpAddr),
    /// No page has this origin.
    #[error(
        "no web page has the origin `{0}`: browsers send scheme://host or scheme://host:port in lower case, without a path \
         and without the scheme's own port"
    )]
    NoOrigin(String),
    /// A limit of 0 lets nothing through.
    #[error("the limit of {0} is 0, which lets nothing through")]
    Zero(&'static str),
    /// There is nothing to serve.
    #[error("the server has no models")]
    NoModels,
    /// A name means two models.
    #[error("two models are called `{0}`: give one of them another name")]
    NamedTwice(String),
}

/// Bounds of sizes and counts. What is beyond is refused by name.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Connections at once; further ones wait to be accepted.
    pub connections: usize,
    /// Generations that wait for a slot.
    pub waiting: usize,
    /// Answers to one request: `n` and `best_of`.
    pub choices: usize,
    /// Prompts or inputs of one request to the model for text.
    pub prompts: usize,
    /// Texts or documents of one request to a model that embeds or scores.
    pub inputs: usize,
    /// `top_logprobs`, and `logprobs` of completions.
    pub top_logprobs: usize,
    /// Log probabilities of prompts' own tokens, the likeliest ones at their places counted, that
    /// one answer holds.
    pub prompt_logprobs: usize,
    /// Strings of `stop`, and ids of `stop_token_ids`.
    pub stop: usize,
    /// Entries of `logit_bias`.
    pub logit_bias: usize,
    /// Bytes of a JSON schema, of a regular expression and of a grammar.
    pub schema_bytes: usize,
    /// Values that one answer of `/v1/inspect` holds.
    pub inspect_values: usize,
    /// Responses of `/v1/responses` that are kept; 0: none.
    pub stored_responses: usize,
    /// Bytes of them, as JSON.
    pub stored_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: 4 << 20,
            headers: 100,
            connections: 512,
            waiting: 64,
            choices: 8,
            prompts: 64,
            inputs: 2048,
            top_logprobs: 20,
            prompt_logprobs: 1 << 20,
            stop: 16,
            logit_bias: 1024,
            schema_bytes: 256 << 10,
            inspect_values: 1 << 22,
            stored_responses: 1000,
            stored_bytes: 64 << 20,
        }
    }
}

/// Bounds of times.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// For a request's headers, counted from the connection or from the answer before.
    pub header: Duration,
    /// For a request's body.
    pub body: Duration,
    /// For a client to take in what was sent to it.
    pub write: Duration,
    /// Between two comments that keep a silent stream alive.
    pub keep_alive: Duration,
    /// For what runs when the server is told to end.
    pub drain: Duration,
    /// The age of the engine's last step from which `/health` calls it stalled.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            write: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            drain: Duration::from_secs(30),
            stall: Duration::from_secs(120),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{ApiKey, Config, ConfigError};

    #[test]
    fn beyond_loopback_a_key_is_required() {
        let mut config = Config { listen: ([0, 0, 0, 0], 0).into(), ..Config::default() };
        assert!(matches!(config.validate(), Err(ConfigError::OpenToAll(_))));
        config.keys.extend(ApiKey::new("secret"));
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn sockets_that_are_handed_over_count_in_place_of_the_address() {
        let open: std::net::SocketAddr = ([0, 0, 0, 0], 0).into();
        let socket = |address: std::net::SocketAddr| TcpListener::bind(address).unwrap().into();
        let local = socket(([127, 0, 0, 1], 0).into());
        let config = Config { listen: open, sockets: vec![local], ..Config::default() };
        assert_eq!(config.validate(), Ok(()));
        let sockets = [config.sockets, vec![socket(open)]].concat();
        let config = Config { sockets, ..Config::default() };
        assert!(matches!(config.validate(), Err(ConfigError::OpenToAll(_))));
    }

    #[test]
    fn origins_are_those_that_browsers_send() {
        let validate = |origin: &str| {
            Config { cors_origins: vec![origin.into()], ..Config::default() }.validate()
        };
        for origin in [
            "*",
            "null",
            "http://a",
            "https://a.example:8443",
            "http://[::1]:3000",
            "app://obsidian.md",
            "chrome-extension://abcdef",
        ] {
            assert_eq!(validate(origin), Ok(()), "{origin}");
        }
        for origin in [
            "",
            "a",
            "a.example",
            "http://a/",
            "http://a/b",
            "http://A",
            "http://a:80",
            "https://a:443",
            "http://",
            "://a",
            "http://a ",
        ] {
            assert_eq!(validate(origin), Err(ConfigError::NoOrigin(origin.into())), "{origin}");
        }
    }

    #[test]
    fn a_key_is_not_printed_and_not_empty() {
        let key = ApiKey::new(" secret\n").unwrap();
        assert!(key.is(b"secret") && !key.is(b"secre") && !key.is(b"secret "));
        assert!(!format!("{key:?}").contains("secret"));
        assert!(ApiKey::new(" \n").is_none() && ApiKey::new("a b").is_none());
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        let mut config = Config::default();
        config.limits.connections = 0;
        assert_eq!(config.validate(), Err(ConfigError::Zero("connections")));
    }
}
