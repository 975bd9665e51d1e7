//! Lines that `ml serve` prints at its start.

use std::net::SocketAddr;

use inference_core::ModelInfo;
use inference_server::Models;

use super::access;
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
    move |address| {
        note(format_args!("http://{address}"));
        if !quiet {
            note(format_args!("  page    http://{address}/"));
            note(format_args!(
                "  API     http://{address}/v1 (OpenAI, Anthropic), http://{address} (Ollama)"
            ));
            facts.iter().for_each(|fact| note(format_args!("  {fact}")));
        }
    }
}

/// Lines about the model, and about the limits.
pub fn of_model(name: &str, info: &ModelInfo, args: &ServeArgs, slots: usize) -> Vec<String> {
    let (parameters, weights) =
        (bytes::parameters(info.num_parameters), bytes::human(info.weight_bytes));
    vec![
        format!(
            "model   {name}: {}, {parameters} parameters, {weights}, {} on {}, context {}",
            info.architecture, info.dtype, info.device, info.context_length
        ),
        limits(args, slots),
    ]
}

/// Lines about several models, and about the limits.
pub fn of_models(models: &Models, args: &ServeArgs, slots: usize) -> Vec<String> {
    let names = models.entries.iter().map(|entry| match entry.at_start {
        true => format!("{} (at the start)", entry.name),
        false => entry.name.clone(),
    });
    let names: Vec<String> = names.collect();
    vec![
        format!("models  {}; loaded when a request names them", names.join(", ")),
        format!("memory  {} for their weights", bytes::human(models.memory)),
        limits(args, slots),
    ]
}

fn limits(args: &ServeArgs, slots: usize) -> String {
    let (queue, keys) = (args.limits.queue, access::has_keys(args));
    let access = if keys { "a key is wanted" } else { "no key is wanted" };
    format!("limits  {} at once, {queue} may wait; {access}", counted(slots, "request"))
}
