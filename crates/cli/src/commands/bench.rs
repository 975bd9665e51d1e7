//! `ml bench`: how fast a model runs here and in how much memory, or a server under load.

mod measure;
mod remote;
pub mod shapes;
mod step;
mod table;

use std::env;

use inference_core::{Feature, LoadOptions, ModelInfo, Support, TextModel};
use serde::Serialize;

use self::measure::{Bench, Measured, timed};
use super::info::{Facts, quantization};
use super::launch;
use crate::args::{BenchArgs, Shape};
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{Spinner, print, print_json, printable};
use crate::ranks;
use crate::source::Source;

/// The object of `--json`.
#[derive(Serialize)]
struct Report {
    model: String,
    #[serde(flatten)]
    facts: Facts,
    load_seconds: f64,
    /// Memory in use after the tests, when no request runs.
    active_memory_bytes: u64,
    peak_memory_bytes: u64,
    /// Bytes that the process holds after the tests, by the driver's or the system's count.
    held_bytes: Option<u64>,
    /// Bytes that the process held once the model was loaded, before any test.
    held_bytes_after_load: Option<u64>,
    results: Vec<Measured>,
}

/// Measures what `args` name.
///
/// # Errors
/// Bad options, a model that cannot be loaded, tests that do not fit its context or the memory.
pub fn run(args: &BenchArgs) -> Result<()> {
    if let Some(url) = &args.remote.url {
        return remote::run(url, args);
    }
    if let (Some(shape), Some(layers)) = (args.shape, args.layers) {
        check_layers(shape, layers)?;
    }
    if let (true, Some(shape)) = (args.print_config, args.shape) {
        return print_json(&shapes::config(shape, args.bits, args.layers));
    }
    if args.prompt == 0 && args.new == 0 {
        return Err(Failure::Usage("--prompt 0 and --new 0 leave nothing to measure".into()));
    }
    if args.concurrency.is_some() && (args.prompt == 0 || args.new == 0) {
        let reason = "--concurrency measures prompts and answers: neither may be 0";
        return Err(Failure::Usage(reason.into()));
    }
    if args.breakdown && args.new == 0 {
        let reason = "--breakdown takes the steps of answers apart: --new may not be 0";
        return Err(Failure::Usage(reason.into()));
    }
    if let Some(count) = args.ranks {
        if args.shape.is_none() {
            // Of the ranks, each would have to ask for what is missing.
            Source::choose(&args.load)?;
        }
        return in_ranks(count);
    }
    let _interrupt = Interrupt::install()?;
    let name = match args.shape {
        Some(shape) => format!("{} (random weights)", name(shape)),
        None => Source::choose(&args.load)?.name(),
    };
    let options = options(args)?;
    let (model, load_time) = timed(|| load(args, &options))?;
    if args.concurrency.is_some()
        && let Support::No(reason) = model.capabilities().support(Feature::ParallelSlots)
    {
        return Err(Failure::Usage(format!("--concurrency: {reason}")));
    }
    let held_bytes_after_load = model.status().held_bytes;
    let results = tests(args, model.as_ref())?;
    let report = Report {
        model: name,
        facts: Facts::from(model.info()),
        load_seconds: load_time.as_secs_f64(),
        active_memory_bytes: metal_backend::system()?.active_memory_bytes,
        peak_memory_bytes: results.iter().map(|test| test.peak_memory_bytes).max().unwrap_or(0),
        held_bytes: model.status().held_bytes,
        held_bytes_after_load,
        results,
    };
    if args.json {
        return print_json(&report);
    }
    print(&printable(&text(&report, model.info())))
}

/// Refuses more layers than the released model has.
fn check_layers(shape: Shape, layers: usize) -> Result<()> {
    let most = shapes::config(shape, None, None)["num_hidden_layers"].as_u64().unwrap_or(0);
    match layers as u64 > most {
        true => Err(Failure::Usage(format!("--layers: {} has {most}, not {layers}", name(shape)))),
        false => Ok(()),
    }
}

/// Measures in `count` processes that compute together, each of which has this one's arguments.
fn in_ranks(count: usize) -> Result<()> {
    if ranks::from_environment()?.is_some() {
        let reason = "--ranks starts ranks, and this process is one of several already";
        return Err(Failure::Usage(reason.into()));
    }
    let mut arguments = Vec::new();
    let mut given = env::args_os().skip(1);
    while let Some(argument) = given.next() {
        match argument.to_str() {
            Some("--ranks") => drop(given.next()),
            Some(text) if text.starts_with("--ranks=") => {}
            _ => arguments.push(argument),
        }
    }
    launch::in_processes(count, &arguments)
}

/// The options of the load.
///
/// # Errors
/// Bad ones.
pub fn options(args: &BenchArgs) -> Result<LoadOptions> {
    let options = args.load.options()?;
    // So many requests run together where nothing else is asked for.
    let parallel_slots = options.parallel_slots.or(args.concurrency);
    Ok(LoadOptions { parallel_slots, ..options })
}

/// Loads what is measured.
///
/// # Errors
/// A model that cannot be loaded.
pub fn load(args: &BenchArgs, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
    let Some(shape) = args.shape else {
        return Source::choose(&args.load)?.load(options, args.quiet);
    };
    let config = shapes::config(shape, args.bits, args.layers).to_string();
    let _spinner = (!args.quiet).then(|| Spinner::new("drawing weights".to_owned()));
    Ok(metal_backend::load_random(&config, options)?)
}

fn tests(args: &BenchArgs, model: &dyn TextModel) -> Result<Vec<Measured>> {
    let bench = Bench {
        model,
        repeat: args.repeat,
        draft_tokens: args.draft_tokens,
        temperature: args.temperature,
        breakdown: args.breakdown,
    };
    let _spinner = (!args.quiet).then(|| Spinner::new("measuring".to_owned()));
    let mut results = Vec::new();
    if args.prompt > 0 {
        results.push(bench.prompt(args.prompt)?);
    }
    if args.new > 0 {
        results.push(bench.decode(args.new, args.depth)?);
    }
    if let Some(requests) = args.concurrency {
        results.push(bench.together(requests, args.prompt, args.new)?);
    }
    Ok(results)
}

/// As the command line spells it.
pub fn name(shape: Shape) -> String {
    use clap::ValueEnum;
    shape.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The table of the tests, those of their steps, and what else was measured below them.
fn text(report: &Report, info: &ModelInfo) -> String {
    let head = ["model", "weights", "size", "device", "test", "tokens/s"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for test in &report.results {
        rows.push(vec![
            report.model.clone(),
            quantization(info),
            bytes::human(info.weight_bytes),
            info.device.clone(),
            test.test.clone(),
            format!("{:.2} ± {:.2}", test.tokens_per_second, test.stddev),
        ]);
    }
    let mut text = table::markdown(&rows, 4);
    text.push('\n');
    for (test, step) in report.results.iter().filter_map(|test| Some((test, test.step.as_ref()?))) {
        text += &table::markdown(&step.rows(&test.test), 1);
        text.push('\n');
    }
    for (test, together) in
        report.results.iter().filter_map(|test| Some((test, test.together.as_ref()?)))
    {
        let milliseconds = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        let (first, each) =
            (&together.time_to_first_token_seconds, &together.time_per_token_seconds);
        let while_all = together
            .decode_tokens_per_second
            .map_or_else(String::new, |rate| format!("while all decode {rate:.2} tokens/s; "));
        text += &format!(
            "{}: {while_all}first token p50 {}, p95 {}; next token p50 {}, p95 {}\n",
            test.test,
            milliseconds(first.p50),
            milliseconds(first.p95),
            milliseconds(each.p50),
            milliseconds(each.p95),
        );
    }
    for (test, drafts) in report.results.iter().filter_map(|test| Some((test, test.drafts?))) {
        let (accepted, verified) = (drafts.accepted_draft_tokens, drafts.draft_tokens);
        text += &format!("{}: {accepted} of {verified} draft tokens accepted\n", test.test);
    }
    text += &format!(
        "loaded in {:.2} s; memory: peak {}, afterwards {}{}\n",
        report.load_seconds,
        bytes::human(report.peak_memory_bytes),
        bytes::human(report.active_memory_bytes),
        report.held_bytes.map_or_else(String::new, |held| format!(", held {}", bytes::human(held))),
    );
    text
}
