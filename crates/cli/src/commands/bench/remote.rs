//! `ml bench --url`: what the clients of a server see under load.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use load_generator::{
    Api, Error, Extent, IgnoreEos, Load, Options, Prompts, Report, Round, Spread, measure,
    parse_lines,
};

use super::table;
use crate::args::{BenchArgs, Ends, Interface, RemoteArgs};
use crate::failure::{Failure, Result};
use crate::files;
use crate::interrupt::Interrupt;
use crate::output::{Spinner, note, print, print_json};

/// The variable with the server's key. It is no flag, because other users of a machine see flags.
const API_KEY: &str = "ML_BENCH_API_KEY";

/// A measurement whose own threads are later than this measures itself.
const LATE: f64 = 0.010;

/// Measures the server at `url`.
///
/// # Errors
/// Bad options, a server that cannot be measured, and a load of which no request was answered.
pub fn run(url: &str, args: &BenchArgs) -> Result<()> {
    let options = options(url, args)?;
    let _interrupt = Interrupt::install()?;
    let spinner = (!args.quiet).then(|| Spinner::new("measuring".to_owned()));
    let told = |round: &Round| {
        if let Some(spinner) = &spinner {
            let rate = round.output_tokens_per_second;
            spinner.note(format_args!("{}: {rate:.1} tokens/s of answers", round.test));
        }
    };
    let report = measure(&options, told).map_err(|error| match error {
        Error::Options(reason) => Failure::Usage(reason),
        other => Failure::Other(other.to_string()),
    })?;
    drop(spinner);
    match args.json {
        true => print_json(&report)?,
        false => print(&text(&report))?,
    }
    report.results.iter().for_each(warn);
    let failed = |round: &&Round| round.errors.values().sum::<usize>() == round.requests;
    match report.results.iter().find(failed) {
        Some(round) => Err(Failure::Other(format!("{}: no request was answered", round.test))),
        None => Ok(()),
    }
}

fn options(url: &str, args: &BenchArgs) -> Result<Options> {
    let remote = &args.remote;
    let clients = remote.clients.iter().map(|count| Load::Clients(*count));
    let mut loads: Vec<_> = clients.chain(remote.rate.iter().copied().map(Load::Rate)).collect();
    if loads.is_empty() {
        loads.push(Load::Clients(1));
    }
    let api = match remote.api.unwrap_or_default() {
        Interface::Completions => Api::Completions,
        Interface::Chat => Api::Chat,
    };
    let requests = remote.requests.map(Extent::Requests);
    let defaults = Options::default();
    Ok(Options {
        url: url.to_owned(),
        model: args.load.model.as_ref().map(|name| name.to_string_lossy().into_owned()),
        key: std::env::var(API_KEY).ok().filter(|key| !key.is_empty()),
        prompts: prompts(args, api)?,
        api,
        gen_tokens: args.new,
        spread: remote.spread.unwrap_or(defaults.spread),
        loads,
        extent: requests.or(remote.seconds.map(Extent::Time)),
        warm_up: remote.warm_up,
        ignore_eos: match remote.ignore_eos.unwrap_or_default() {
            Ends::Auto => IgnoreEos::Auto,
            Ends::Yes => IgnoreEos::Always,
            Ends::No => IgnoreEos::Never,
        },
        fields: remote.fields.clone().unwrap_or_default(),
        timeout: remote.timeout.unwrap_or(defaults.timeout),
        seed: remote.seed.unwrap_or_else(clock),
    })
}

fn prompts(args: &BenchArgs, api: Api) -> Result<Prompts> {
    let RemoteArgs { requests_file, prompt_ids, shared_prefix, .. } = &args.remote;
    let (count, shared) = (args.prompt, shared_prefix.unwrap_or(0));
    Ok(match (requests_file, prompt_ids) {
        (Some(path), _) => {
            let name = path.display().to_string();
            let lines = parse_lines(&files::read(path)?, &name, api);
            Prompts::Lines(lines.map_err(|error| Failure::Usage(error.to_string()))?)
        }
        (None, Some(vocab)) => Prompts::Ids { count, shared, vocab: vocab.0 },
        (None, None) => Prompts::Tokens { count, shared },
    })
}

/// A seed that no earlier call had.
fn clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_nanos() as u64
}

/// The table of the loads, and what all of them have in common below it.
fn text(report: &Report) -> String {
    let head = [
        "load",
        "requests",
        "errors",
        "requests/s",
        "output tokens/s",
        "with prompts",
        "TTFT p50/p95/p99, ms",
        "ITL p50/p95/p99, ms",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for round in &report.results {
        rows.push(vec![
            round.test.clone(),
            round.requests.to_string(),
            errors(round),
            format!("{:.2}", round.requests_per_second),
            format!("{:.1}", round.output_tokens_per_second),
            format!("{:.1}", round.total_tokens_per_second),
            milliseconds(round.time_to_first_token_seconds),
            milliseconds(round.inter_token_latency_seconds),
        ]);
    }
    let prompt =
        report.prompt_tokens.map_or_else(String::new, |count| format!("prompts of {count}, "));
    let spread = match report.spread {
        spread if spread > 0.0 => format!(", spread by {spread}"),
        _ => String::new(),
    };
    let ends = if report.ignore_eos { ", `ignore_eos`" } else { "" };
    let lengths = format!("{spread}{ends}");
    let counted = match report.counted_by {
        "usage" => "the server's usage",
        _ => "frames with text",
    };
    let cached: usize = report.results.iter().map(|round| round.cached_prompt_tokens).sum();
    let cached = match cached {
        0 => String::new(),
        count => format!("; {count} tokens of prompts came from the server's cache"),
    };
    format!(
        "{}\n{}: {prompt}answers of {} tokens{lengths}; counted by {counted}; seed {}{cached}\n",
        table::markdown(&rows, 1),
        report.model,
        report.gen_tokens,
        report.seed,
    )
}

/// How many, and of which kinds.
fn errors(round: &Round) -> String {
    let kinds: Vec<_> =
        round.errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if kinds.is_empty() { "0".to_owned() } else { kinds.join(", ") }
}

fn milliseconds(spread: Option<Spread>) -> String {
    let text = |seconds: f64| format!("{:.1}", seconds * 1e3);
    spread.map_or_else(
        || "-".to_owned(),
        |s| format!("{} / {} / {}", text(s.p50), text(s.p95), text(s.p99)),
    )
}

/// Says what makes a round's figures mean less than they seem to.
fn warn(round: &Round) {
    for (kind, message) in &round.error_messages {
        note(format_args!("{}: {} × {kind}, first: {message}", round.test, round.errors[kind]));
    }
    if round.other_lengths > 0 {
        note(format_args!(
            "{}: {} answers have other lengths than asked: the model ended them, or the server bounds them",
            round.test, round.other_lengths
        ));
    }
    if round.without_text > 0 {
        note(format_args!(
            "{}: {} answers have no text, and no time to the first token",
            round.test, round.without_text
        ));
    }
    if round.client_late_p99_seconds > LATE {
        note(format_args!(
            "{}: the measurement itself was late by {:.1} ms (p99): its machine is busy, times seem longer",
            round.test,
            round.client_late_p99_seconds * 1e3
        ));
    }
}
