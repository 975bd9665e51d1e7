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

use inference_core::CancelToken;

use self::private::clean_folders;
use self::tried::Trial;
use crate::args::ReportArgs;
use crate::failure::{Failure, Result};
use crate::files::{Access, check_replaceable, replace};
use crate::interrupt::{Interrupt, Then};
use crate::output::{print, print_line};

/// Tries this machine and writes the report.
///
/// # Errors
/// [`Failure::Unhealthy`] where something is wrong or nothing was compared, which stdout tells
/// then; a file that cannot be written, in whose place the report is on stdout; Ctrl-C, after which
/// no file is there.
pub fn run(args: &ReportArgs) -> Result<()> {
    if let Some(probe) = args.probe {
        return probe::run(probe, args);
    }
    let (interrupt, cancel) = (Interrupt::install()?, CancelToken::new());
    let watch = interrupt.watch(&cancel, Then::Leave);
    // A place that takes no file is told before minutes were spent.
    check_place(args)?;
    let report = Trial::new(args, cancel)?.all()?;
    let mut value = serde_json::to_value(&report)
        .map_err(|error| Failure::Other(format!("the report as JSON: {error}")))?;
    clean_folders(&mut value);
    let text = serde_json::to_string_pretty(&value)
        .map_err(|error| Failure::Other(format!("the report as JSON: {error}")))?;
    let text = format!("{text}\n");
    if let Err(failure) = replace(&args.output, text.as_bytes(), Access::Shared) {
        // The minutes are spent.
        print(&text)?;
        return Err(failure);
    }
    drop(watch);
    for finding in &report.wrong {
        print_line(format_args!("  {finding}"))?;
    }
    print_line(format_args!("{} The report is in {}.", report.verdict, args.output.display()))?;
    if report.is_sound() { Ok(()) } else { Err(Failure::Unhealthy) }
}

/// Refuses a place that takes no file.
fn check_place(args: &ReportArgs) -> Result<()> {
    let folder = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        let output = args.output.display();
        return Err(Failure::Other(format!("{output}: its folder is not there")));
    }
    check_replaceable(&args.output)
}
