//! A whole measurement: what must be known, and each load after its warm-up.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Builder;

use crate::drive::{Numbers, Records, run};
use crate::error::{Error, Result};
use crate::figures::{Expected, Round};
use crate::options::{Extent, Load, Options, Prompts};
use crate::probe::{Known, learn};

/// Threads that read answers: few, because the server may be on this machine.
const THREADS: usize = 4;

/// Requests of each client, where nothing else is asked for.
const EACH: usize = 4;

/// How long requests come by the clock, where nothing else is asked for.
const TIME: Duration = Duration::from_secs(30);

/// Results of a server under each load.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The server's address, as it was given.
    pub url: String,
    /// The model's name for the server.
    pub model: String,
    /// Tokens of a generated prompt, as the server counts them.
    pub prompt_tokens: Option<usize>,
    /// Tokens that were asked for.
    pub gen_tokens: usize,
    /// How far both are spread around these, which are averages then; 0: not at all.
    pub spread: f64,
    /// Requests had `ignore_eos`.
    pub ignore_eos: bool,
    /// How tokens were counted: by the server's `usage`, or else by the `frames` with text.
    pub counted_by: &'static str,
    /// Seed of the prompts and arrivals.
    pub seed: u64,
    /// One for each load.
    pub results: Vec<Round>,
}

/// Measures the server that `options` name; `each` is given the figures of each load as it ends.
/// Must not be called from an async program.
///
/// # Errors
/// Bad options, a server that does not answer the first requests, and one that answers no request
/// of a warm-up. Errors of single requests are counted in their [`Round`].
pub fn measure(options: &Options, mut each: impl FnMut(&Round)) -> Result<Report> {
    options.validate()?;
    let cores = available_parallelism().map_or(1, NonZero::get);
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores.min(THREADS))
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Error::Runtime(error.to_string()))?;
    runtime.block_on(async {
        let known = Arc::new(learn(options).await?);
        let numbers = Arc::new(Numbers::new(options.seed));
        let expected = expected(options, &known);
        let mut results = Vec::new();
        for load in &options.loads {
            warm_up(options, &known, &numbers, *load).await?;
            let extent = options.extent.unwrap_or(match (load, &options.prompts) {
                (Load::Clients(count), Prompts::Lines(lines)) => {
                    Extent::Requests(lines.len().max(*count))
                }
                (Load::Rate(_), Prompts::Lines(lines)) => Extent::Requests(lines.len()),
                (Load::Clients(count), _) => Extent::Requests(count * EACH),
                (Load::Rate(_), _) => Extent::Time(TIME),
            });
            let records = run(&known, &numbers, *load, extent).await;
            let round = Round::of(*load, &records, expected);
            each(&round);
            results.push(round);
        }
        let form = &known.asker.form;
        Ok(Report {
            url: options.url.clone(),
            model: form.model.clone(),
            prompt_tokens: known.prompt_tokens,
            gen_tokens: form.gen_tokens,
            spread: options.spread,
            ignore_eos: form.ignore_eos,
            counted_by: if known.tells_usage { "usage" } else { "frames" },
            seed: options.seed,
            results,
        })
    })
}

fn expected(options: &Options, known: &Known) -> Expected {
    let prompt_tokens = match options.prompts {
        Prompts::Ids { count, .. } => count,
        _ => known.prompt_tokens.unwrap_or(0),
    };
    // Frames may hold several tokens each, so that only the usage can tell a length.
    let given = options.fields.contains_key("max_tokens") || known.lengths.is_some();
    let fixed = known.asker.form.greedy && known.tells_usage && !given;
    Expected { prompt_tokens, output_tokens: fixed.then_some(known.asker.form.gen_tokens) }
}

async fn warm_up(
    options: &Options,
    known: &Arc<Known>,
    numbers: &Arc<Numbers>,
    load: Load,
) -> Result<()> {
    let count = options.warm_up.unwrap_or(match load {
        Load::Clients(count) => count,
        Load::Rate(rate) => rate.ceil() as usize,
    });
    if count == 0 {
        return Ok(());
    }
    let Records { mut requests, .. } = run(known, numbers, load, Extent::Requests(count)).await;
    if requests.iter().any(|record| record.outcome.is_ok()) {
        return Ok(());
    }
    match requests.pop().map(|record| record.outcome) {
        Some(Err(error)) => Err(error),
        _ => Ok(()),
    }
}
