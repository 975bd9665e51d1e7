//! Requests to a server before it is measured.
//! They find its model, the fields that it takes, and how many tokens a prompt of words has.

use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::exchange::Asker;
use crate::form::{Answer, Form};
use crate::http::{Connection, Server};
use crate::lines::{Api, Line};
use crate::options::{IgnoreEos, Options, Prompts};
use crate::prompts::{Lengths, Source, plain_ids};

/// How often a length in words is tried.
const TRIES: usize = 6;

/// The words of the second prompt that is counted, which tells how many tokens a word has.
const SECOND: usize = 33;

/// Prompts of these numbers are never measured.
const PROBES: usize = usize::MAX / 2;

/// A server that is known well enough to be measured.
#[derive(Debug)]
pub struct Known {
    /// Asks it.
    pub asker: Asker,
    /// The source of its prompts.
    pub source: Source,
    /// How the lengths of what is generated differ.
    pub lengths: Option<Lengths>,
    /// Tokens of a generated prompt, on average.
    pub prompt_tokens: Option<usize>,
    /// Its streams report the usage.
    pub tells_usage: bool,
}

/// Asks the server what must be known of it.
///
/// # Errors
/// The failure of a first request of each kind; prompts that cannot be made.
pub async fn learn(options: &Options) -> Result<Known> {
    let server = Server::new(&options.url, options.key.as_deref())?;
    let slot = &mut None;
    let listed = listed(&server, slot, options).await?;
    let given = matches!(options.prompts, Prompts::Lines(_));
    let form = Form {
        model: listed.name,
        gen_tokens: options.gen_tokens,
        greedy: !given,
        ignore_eos: false,
        usage: true,
        fields: options.fields.clone(),
    };
    let mut asker = Asker { server, form, timeout: options.timeout };
    let mut source = match &options.prompts {
        // Lengthened when the server has told which fields it takes.
        Prompts::Tokens { .. } => Source::Words { count: SECOND, shared: 0, api: options.api },
        Prompts::Lines(lines) => Source::Lines(lines.clone()),
        Prompts::Ids { count, shared, vocab } => {
            let vocab = vocab.or(listed.vocab).filter(|vocab| *vocab > 0).ok_or_else(|| {
                let reason = "the server does not tell the size of its vocabulary: \
                              give it, such as --prompt-ids=32000";
                Error::Options(reason.to_owned())
            })?;
            Source::Ids { count: *count, shared: *shared, range: plain_ids(vocab) }
        }
    };
    let number = if given { 0 } else { PROBES };
    let first = source.request(options.seed, number);
    let tells_usage = negotiate(&mut asker, slot, options.ignore_eos, &first).await?;
    let mut prompt_tokens = None;
    if let Prompts::Tokens { count, shared } = options.prompts {
        let counter = Counter { asker: &asker, api: options.api, seed: options.seed };
        let (words, tokens) = counter.fit(slot, count).await?;
        // The template's own tokens are shared anyway.
        let shared = (words as f64 * shared as f64 / count as f64).round() as usize;
        source = Source::Words { count: words, shared, api: options.api };
        prompt_tokens = Some(tokens);
    }
    let Options { spread, gen_tokens, .. } = *options;
    let lengths = (spread > 0.0).then_some(Lengths { spread, gen_tokens });
    Ok(Known { asker, source, lengths, prompt_tokens, tells_usage })
}

struct Listed {
    name: String,
    vocab: Option<u32>,
}

/// The model to measure, and what the server's list says of it.
async fn listed(
    server: &Server,
    slot: &mut Option<Connection>,
    options: &Options,
) -> Result<Listed> {
    let path = server.path("/models");
    let answer = tokio::time::timeout(options.timeout, server.get(slot, &path)).await;
    let list = match answer.unwrap_or(Err(Error::Timeout(options.timeout))) {
        Ok(body) => serde_json::from_slice(&body).unwrap_or(Json::Null),
        // Where the name is given, the list is no more than a help.
        Err(Error::Status { code: 404 | 405 | 501, .. }) => Json::Null,
        Err(error) => return Err(error),
    };
    let models = list["data"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    let name = match (&options.model, &names[..]) {
        (Some(name), _) => name.clone(),
        (None, [name]) => (*name).to_owned(),
        (None, []) => {
            let reason = "the server lists no model at /v1/models: name it with --model";
            return Err(Error::Options(reason.to_owned()));
        }
        (None, several) => {
            let names = several.join(", ");
            return Err(Error::Options(format!(
                "the server has several models ({names}): choose one with --model"
            )));
        }
    };
    let model = models.iter().find(|model| model["id"] == name.as_str());
    let vocab = model.and_then(|model| {
        let count = model["info"]["vocab_size"].as_u64().or(model["meta"]["n_vocab"].as_u64())?;
        u32::try_from(count).ok()
    });
    Ok(Listed { name, vocab })
}

/// Leaves out of `asker`'s form what the server refuses; whether its streams tell the usage.
async fn negotiate(
    asker: &mut Asker,
    slot: &mut Option<Connection>,
    ignore_eos: IgnoreEos,
    first: &Line,
) -> Result<bool> {
    let ends: &[bool] = match ignore_eos {
        IgnoreEos::Auto if asker.form.greedy => &[true, false],
        IgnoreEos::Always => &[true],
        IgnoreEos::Auto | IgnoreEos::Never => &[false],
    };
    let forms: Vec<_> = [true, false].iter().flat_map(|u| ends.iter().map(|e| (*e, *u))).collect();
    let mut refusal = None;
    for (ignore_eos, usage) in forms {
        (asker.form.ignore_eos, asker.form.usage) = (ignore_eos, usage);
        match asker.stream(slot, first, Answer::Probe).await {
            Ok(streamed) => return Ok(streamed.usage.is_some()),
            // The first refusal is that of the request as it is meant.
            Err(error) if error.refuses_request() => refusal = refusal.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(|| Error::Answer("the server was not asked".to_owned())))
}

/// Counts the tokens of words.
struct Counter<'a> {
    asker: &'a Asker,
    api: Api,
    seed: u64,
}

impl Counter<'_> {
    /// How many words have `target` tokens, or nearly as many, and how many they have.
    async fn fit(&self, slot: &mut Option<Connection>, target: usize) -> Result<(usize, usize)> {
        let least = self.count(slot, 1).await?;
        if target <= least {
            return match target == least {
                true => Ok((1, least)),
                false => Err(Error::Options(format!(
                    "prompts of {target} tokens are too short: one word has {least} with what the \
                     server puts around it"
                ))),
            };
        }
        let second = self.count(slot, SECOND).await?;
        let each = second.saturating_sub(least) as f64 / (SECOND - 1) as f64;
        let each = if each > 0.0 { each } else { 1.0 };
        let further = |words: usize, tokens: usize| {
            let step = ((target as f64 - tokens as f64) / each).round();
            (words as f64 + step).max(1.0) as usize
        };
        let mut tried = vec![(1, least), (SECOND, second)];
        for _ in 0..TRIES {
            let (words, tokens) = nearest(&tried, target);
            let next = further(words, tokens);
            if tried.iter().any(|(words, _)| *words == next) {
                break;
            }
            tried.push((next, self.count(slot, next).await?));
        }
        Ok(nearest(&tried, target))
    }

    async fn count(&self, slot: &mut Option<Connection>, words: usize) -> Result<usize> {
        let source = Source::Words { count: words, shared: 0, api: self.api };
        self.asker.count(slot, &source.request(self.seed, PROBES + words)).await
    }
}

/// The words and tokens whose tokens are nearest to `target`.
fn nearest(tried: &[(usize, usize)], target: usize) -> (usize, usize) {
    let distance = |(_, tokens): &&(usize, usize)| tokens.abs_diff(target);
    tried.iter().min_by_key(distance).copied().unwrap_or((1, 0))
}
