//! `ml quantise`: a checkpoint in fewer bits.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use inference_core::{CancelToken, Error};
use metal_backend::{QuantiseOptions, Quantised, packing};
use serde_json::json;

use crate::args::QuantiseArgs;
use crate::bytes::human;
use crate::failure::{Failure, Result};
use crate::interrupt::{Interrupt, Then};
use crate::names;
use crate::output::{note, print_json, print_line};

const BAR: &str = "{bar:20} {binary_bytes} of {binary_total_bytes}, {eta} left";

/// Quantises the model that `args` name, and prints the new folder.
///
/// # Errors
/// Bad options, a source that is no model, a target that exists, a full disk, an interruption.
pub fn run(args: &QuantiseArgs) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let cancel = CancelToken::new();
    let options = QuantiseOptions {
        default: packing(args.mode.as_str(), args.bits, args.group_size)?,
        recipe: args.recipe,
        rules: args.rules.clone(),
        keep_vision: args.keep_vision,
        dtype: args.dtype,
        backend: args.backend.clone(),
    };
    let source = names::folder(&args.source)?;
    let began = Instant::now();
    let bar = (!args.quiet && io::stderr().is_terminal()).then(|| {
        let style = ProgressStyle::with_template(BAR);
        let bar = ProgressBar::no_length();
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    });
    let watch = interrupt.watch(&cancel, Then::Leave);
    let mut progress = |done, total| {
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    };
    let made = metal_backend::quantise(&source, &args.target, &options, &cancel, &mut progress);
    let interrupted = watch.fired();
    drop(watch);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let made = match made {
        Err(Error::Cancelled) if interrupted => return Err(Failure::Interrupted),
        made => made?,
    };
    if !args.quiet {
        let seconds = began.elapsed().as_secs_f64();
        note(format_args!(
            "{} modules packed, {}, {:.3} bits a weight, {seconds:.1} s",
            made.packed,
            human(made.bytes),
            made.bits_per_weight()
        ));
        for line in left_out(&made).into_iter().chain(narrow(&made)) {
            note(line);
        }
        for folder in &made.removed {
            note(format_args!("removed what an interrupted run had left: {}", folder.display()));
        }
    }
    if args.json {
        return print_json(&json!({
            "folder": args.target,
            "modules": made.packed,
            "bytes": made.bytes,
            "parameters": made.parameters,
            "bits_per_weight": made.bits_per_weight(),
            "left_out": made.left_out,
            "narrow": made.narrow,
            "removed": made.removed,
        }));
    }
    print_line(args.target.display())
}

/// A line about modules that stay unpacked.
fn narrow(made: &Quantised) -> Option<String> {
    let first = made.narrow.first()?;
    let count = made.narrow.len();
    let modules = if count == 1 { "module" } else { "modules" };
    Some(format!(
        "left unpacked, as mlx-lm does: {count} {modules} whose rows are no whole groups, the first is {first}"
    ))
}

/// A line about parts that the result does not have.
fn left_out(made: &Quantised) -> Option<String> {
    let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &made.left_out {
        let own = name.strip_prefix("model.").unwrap_or(name);
        *parts.entry(own.split('.').next().unwrap_or(own)).or_default() += 1;
    }
    let part = |(name, count): (&&str, &usize)| match count {
        1 => format!("{name} (1 tensor)"),
        _ => format!("{name} ({count} tensors)"),
    };
    let parts: Vec<String> = parts.iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("left out, as mlx-lm does: {}", parts.join(", ")))
}
