//! `ml report`: all of it is tried on this machine, and one file tells what is wrong.

mod answers;
mod doctor;
mod memory;
mod networks;
mod private;
mod probe;
mod process;
mod speed;
mod tried;
mod written;

use std::time::Duration;

use inference_core::CancelToken;

use self::private::Private;
use self::tried::Trial;
use crate::args::ReportArgs;
use crate::failure::{Failure, Result};
use crate::files::{Access, replace};
use crate::interrupt::{Interrupt, Then};
use crate::output::print_line;

/// No step begins after so long, and none takes longer than what is left of it.
const BUDGET: Duration = Duration::from_secs(570);
/// [`BUDGET`] where less is tried.
const QUICK_BUDGET: Duration = Duration::from_secs(100);

/// Tries this machine and writes the report.
///
/// # Errors
/// [`Failure::Unhealthy`] where something is wrong, which stdout tells then; a file that cannot be
/// written; Ctrl-C, after which no file is there.
pub fn run(args: &ReportArgs) -> Result<()> {
    if let Some(probe) = args.probe {
        return probe::run(probe, args);
    }
    let (interrupt, cancel) = (Interrupt::install()?, CancelToken::new());
    let watch = interrupt.watch(&cancel, Then::Leave);
    // A place that takes no file is told before minutes were spent.
    check_place(args)?;
    let budget = if args.quick { QUICK_BUDGET } else { BUDGET };
    let report = Trial::new(args, budget, cancel)?.all()?;
    let mut value = serde_json::to_value(&report)
        .map_err(|error| Failure::Other(format!("the report as JSON: {error}")))?;
    let private = Private::here();
    private.clean(&mut value);
    let text = serde_json::to_string_pretty(&value)
        .map_err(|error| Failure::Other(format!("the report as JSON: {error}")))?;
    replace(&args.output, format!("{text}\n").as_bytes(), Access::Shared)?;
    drop(watch);
    for finding in &report.wrong {
        print_line(format_args!("  {}", private.without(&finding.to_string())))?;
    }
    print_line(format_args!("{} The report is in {}.", report.verdict, args.output.display()))?;
    if report.wrong.is_empty() { Ok(()) } else { Err(Failure::Unhealthy) }
}

/// Refuses a file in a folder that is not there, or in place of a folder.
fn check_place(args: &ReportArgs) -> Result<()> {
    let folder = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    let told = |reason: &str| Failure::Other(format!("{}: {reason}", args.output.display()));
    match folder {
        Some(folder) if !folder.is_dir() => Err(told("its folder is not there")),
        _ if args.output.is_dir() => Err(told("is a folder, expected a file")),
        _ => Ok(()),
    }
}
