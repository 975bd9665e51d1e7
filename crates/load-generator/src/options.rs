//! Options of a measurement: the requests, their number, rate and time.

use std::time::Duration;

use serde_json::{Map, Value as Json};

use crate::error::{Error, Result};
use crate::lines::{Api, Line};

/// A measurement of one server under one or several loads.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's URL, such as `http://127.0.0.1:8080`; its path may end with `/v1`.
    pub url: String,
    /// The model's name for the server. Unset: the one that `/v1/models` lists.
    pub model: Option<String>,
    /// Sent as `Authorization: Bearer`.
    pub key: Option<String>,
    /// The prompts. Given lines name their own API.
    pub prompts: Prompts,
    /// The API that generated prompts are sent to.
    pub api: Api,
    /// Tokens of an answer; lines that state `max_tokens` have theirs.
    pub gen_tokens: usize,
    /// How far the lengths of generated prompts and of their answers are spread around the given
    /// ones, which are the averages then: the deviation of their logarithms, 0 to 1. 0: all have
    /// the given ones.
    pub spread: f64,
    /// Measured one after the other.
    pub loads: Vec<Load>,
    /// How much each load asks. Unset: four requests for each client, or the arrivals of 30 s.
    pub extent: Option<Extent>,
    /// Requests before each load, of which nothing is kept. Unset: one for each client, or the
    /// arrivals of one second.
    pub warm_up: Option<usize>,
    /// When requests have `ignore_eos`.
    pub ignore_eos: IgnoreEos,
    /// Further fields of each request; they replace those of the same name.
    pub fields: Map<String, Json>,
    /// After so long a request is given up.
    pub timeout: Duration,
    /// Makes prompts and arrivals. A server that remembers prompts knows those of an earlier call
    /// with the same seed.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            url: "http://127.0.0.1:8080".to_owned(),
            model: None,
            key: None,
            prompts: Prompts::Tokens { count: 512, shared: 0 },
            api: Api::Completions,
            gen_tokens: 128,
            spread: 0.0,
            loads: vec![Load::Clients(1)],
            extent: None,
            warm_up: None,
            ignore_eos: IgnoreEos::Auto,
            fields: Map::new(),
            timeout: Duration::from_secs(600),
            seed: 0,
        }
    }
}

/// The source of prompts. Generated ones differ after a prefix that they may share.
#[derive(Clone, Debug)]
pub enum Prompts {
    /// Text of so many tokens, as the server's `usage` counts them.
    Tokens {
        /// Tokens of a prompt, a chat's template counted.
        count: usize,
        /// About so many of them are common to all prompts.
        shared: usize,
    },
    /// Random ids, which only `/v1/completions` takes.
    Ids {
        /// Ids of a prompt.
        count: usize,
        /// So many of them are common to all prompts.
        shared: usize,
        /// Ids are below this number. Unset: the server's model list tells it.
        vocab: Option<u32>,
    },
    /// Given requests, in turn, again from the first after the last.
    Lines(Vec<Line>),
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many clients, each of which sends its next request when its answer has ended.
    Clients(usize),
    /// So many requests a second on average, at random times that do not wait for answers.
    Rate(f64),
}

/// How much is asked under one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// So many requests.
    Requests(usize),
    /// As many requests as begin in this time; all are answered to their end.
    Time(Duration),
}

/// When requests have `ignore_eos`, which fixes the length of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreEos {
    /// With generated prompts, unless the server refuses a first request that says it.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Options {
    /// Checks what means nothing.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub fn validate(&self) -> Result<()> {
        let refuse = |reason: &str| Err(Error::Options(reason.to_owned()));
        if self.loads.is_empty() {
            return refuse("no load is given: name a count of clients or a rate");
        }
        for load in &self.loads {
            match load {
                Load::Clients(0) => return refuse("0 clients ask nothing: at least 1"),
                Load::Rate(rate) if !(rate.is_finite() && *rate > 0.0) => {
                    return refuse("a rate is a number of requests a second above 0");
                }
                _ => {}
            }
            if let (Load::Clients(clients), Some(Extent::Requests(count))) = (load, self.extent)
                && count < *clients
            {
                return refuse(&format!(
                    "{count} requests leave some of {clients} clients idle: ask for more, or a time"
                ));
            }
        }
        if self.extent == Some(Extent::Requests(0)) {
            return refuse("0 requests measure nothing: at least 1");
        }
        if self.gen_tokens == 0 {
            return refuse("answers of 0 tokens measure nothing: at least 1");
        }
        if !(0.0..=1.0).contains(&self.spread) {
            return refuse("a spread of lengths is a number from 0 to 1");
        }
        match self.prompts {
            Prompts::Tokens { count: 0, .. } | Prompts::Ids { count: 0, .. } => {
                refuse("prompts of 0 tokens are none: at least 1")
            }
            Prompts::Tokens { count, shared } | Prompts::Ids { count, shared, .. }
                if shared >= count =>
            {
                refuse("the shared prefix leaves nothing of the prompt: it must be shorter")
            }
            Prompts::Ids { .. } if self.api == Api::Chat => {
                refuse("a chat takes no ids: ask the completions, or leave ids away")
            }
            Prompts::Lines(ref lines) if lines.is_empty() => refuse("the file holds no request"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Api, Extent, Load, Options, Prompts};

    #[test]
    fn what_measures_nothing_is_refused() {
        assert_eq!(Options::default().validate().map_err(|e| e.to_string()), Ok(()));
        let refused = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(refused(|o| o.loads = vec![Load::Clients(0)]).contains("0 clients"));
        assert!(refused(|o| o.loads = vec![]).contains("no load"));
        assert!(refused(|o| o.loads = vec![Load::Rate(f64::NAN)]).contains("rate"));
        assert!(refused(|o| o.extent = Some(Extent::Requests(0))).contains("0 requests"));
        let few = |o: &mut Options| {
            (o.loads, o.extent) = (vec![Load::Clients(8)], Some(Extent::Requests(7)));
        };
        assert!(refused(few).contains("of 8 clients idle"));
        assert!(refused(|o| o.gen_tokens = 0).contains("0 tokens"));
        for spread in [-0.1, 1.1, f64::NAN] {
            let options = Options { spread, ..Options::default() };
            assert!(options.validate().unwrap_err().to_string().contains("spread"), "{spread}");
        }
        let tokens = |count, shared| Prompts::Tokens { count, shared };
        let mut options = Options { prompts: tokens(8, 8), ..Options::default() };
        assert!(options.validate().unwrap_err().to_string().contains("shared prefix"));
        options.prompts = Prompts::Ids { count: 8, shared: 0, vocab: None };
        options.api = Api::Chat;
        assert!(options.validate().unwrap_err().to_string().contains("takes no ids"));
        options.prompts = Prompts::Lines(Vec::new());
        assert!(options.validate().unwrap_err().to_string().contains("no request"));
    }
}
