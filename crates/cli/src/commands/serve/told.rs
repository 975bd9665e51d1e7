//! Lines that `ml serve` prints at its start.

use std::net::SocketAddr;

use inference_core::ModelInfo;
use inference_server::{Config, Models};

use crate::args::{LogFormat, ServeArgs};
use crate::bytes;
use crate::output::{counted, note};

/// Returns true when nothing but the address is told: a log in JSON shall hold no more of lines
/// for people.
pub fn is_quiet(args: &ServeArgs) -> bool {
    args.quiet || args.log == LogFormat::Json
}

/// Says where the server listens, and what it serves.
pub fn listening(args: &ServeArgs, facts: Vec<String>) -> impl FnOnce(SocketAddr) {
    let quiet = is_quiet(args);
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    move |address| {
        note(format_args!("{scheme}://{address}"));
        if !quiet {
            note(format_args!("  page    {scheme}://{address}/"));
            note(format_args!(
                "  API     {scheme}://{address}/v1 (OpenAI, Anthropic), {scheme}://{address} (Ollama)"
            ));
            facts.iter().for_each(|fact| note(format_args!("  {fact}")));
        }
    }
}

/// Lines about the model, and about the limits.
pub fn of_model(config: &Config, info: &ModelInfo) -> Vec<String> {
    let (parameters, weights) =
        (bytes::parameters(info.num_parameters), bytes::human(info.weight_bytes));
    vec![
        format!(
            "model   {}: {}, {parameters} parameters, {weights}, {} on {}, context {}",
            config.model, info.architecture, info.dtype, info.device, info.context_length
        ),
        limits(config),
    ]
}

/// Lines about several models, and about the limits.
pub fn of_models(models: &Models, config: &Config) -> Vec<String> {
    let names = models.entries.iter().map(|entry| match entry.at_start {
        true => format!("{} (at the start)", entry.name),
        false => entry.name.clone(),
    });
    let names: Vec<String> = names.collect();
    vec![
        format!("models  {}; loaded when a request names them", names.join(", ")),
        format!("memory  {} for their weights", bytes::human(models.memory)),
        limits(config),
    ]
}

fn limits(config: &Config) -> String {
    let access = if config.keys.is_empty() { "no key is wanted" } else { "a key is wanted" };
    let (slots, waiting) = (counted(config.slots, "request"), config.limits.waiting);
    format!("limits  {slots} at once, {waiting} may wait; {access}")
}
